"""The coordinator's answers, with Kafka's field names in snake_case. They have the fields of the newest version of each answer."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from msgspec import Struct, field

from groupcoord_spark.assignors import NO_GENERATION
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.requests import Tasks


class Answer(Struct, frozen=True):
    """The answer to a request."""


class ErrorAnswer(Answer, frozen=True):
    """The answer to Heartbeat, AddOffsetsToTxn, EndTxn and WriteTxnMarkers, and to a request in a version that the broker does not know."""

    error: Error


class Descriptions(Answer, frozen=True):
    """The answer to DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe, group by group."""

    groups: tuple[Any, ...]


class JoinedMember(NamedTuple):
    """A member as sent to the leader, with its metadata for the elected protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupAnswer(Answer, frozen=True):
    """The answer to JoinGroup.

    skip_assignment: the member is the leader, and computes no assignment (KIP-814).
    members: all members in the answer to the leader, empty for the others.
    """

    error: Error
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncGroupAnswer(Answer, frozen=True):
    """The answer to SyncGroup."""

    error: Error
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class ConsumerGroupHeartbeatAnswer(Answer, frozen=True):
    """The answer to ConsumerGroupHeartbeat. assignment: topic -> partitions; None: as in the answer before."""

    error: Error
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[str, tuple[int, ...]] | None = None


class ShareGroupHeartbeatAnswer(ConsumerGroupHeartbeatAnswer, frozen=True):
    """The answer to ShareGroupHeartbeat, which has the same fields."""


class DescribedConsumer(NamedTuple):
    """A member of a consumer group as ConsumerGroupDescribe shows it. assignment, target: topic -> partitions."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    member_epoch: int
    topics: tuple[str, ...]
    topic_regex: str | None
    assignment: Mapping[str, tuple[int, ...]]
    target: Mapping[str, tuple[int, ...]]


class DescribedConsumerGroup(Struct, frozen=True):
    """A consumer group as ConsumerGroupDescribe shows it."""

    group_id: str
    error: Error
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[Any, ...] = ()
    """Each a ``DescribedConsumer``."""


class DescribedShareMember(NamedTuple):
    """A member of a share group as ShareGroupDescribe shows it. assignment: topic -> partitions."""

    member_id: str
    client_id: str
    member_epoch: int
    topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]]


class DescribedShareGroup(DescribedConsumerGroup, frozen=True):
    """A share group as ShareGroupDescribe shows it, with the same fields. members: each a ``DescribedShareMember``."""


class LeftMember(NamedTuple):
    """The result for one member of a LeaveGroup request, with the ids of the request."""

    member_id: str
    group_instance_id: str | None
    error: Error


class LeaveGroupAnswer(Answer, frozen=True):
    """The answer to LeaveGroup. Up to version 2 ``error`` is the error of the only member."""

    error: Error
    members: tuple[LeftMember, ...] = ()


class OffsetCommitAnswer(Answer, frozen=True):
    """The answer to OffsetCommit and TxnOffsetCommit: (topic, partition) -> error."""

    errors: Mapping[tuple[str, int], Error]


class FetchedOffset(NamedTuple):
    """One partition in the answer to OffsetFetch; -1, -1 and "" without a committed offset or on an error."""

    committed_offset: int = -1
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: Error = Error.NONE


class FetchedGroup(NamedTuple):
    """One group in the answer to OffsetFetch: topic -> partition -> offset."""

    group_id: str
    error: Error
    topics: Mapping[str, Mapping[int, FetchedOffset]]


class OffsetFetchAnswer(Answer, frozen=True):
    """The answer to OffsetFetch, group by group."""

    groups: tuple[FetchedGroup, ...]


class FoundCoordinator(NamedTuple):
    """The coordinator of one key: the leader of ``offsets_partition``, which is -1 if the key is refused."""

    key: str
    error: Error
    offsets_partition: int


class FindCoordinatorAnswer(Answer, frozen=True):
    """The answer to FindCoordinator, key by key."""

    coordinators: tuple[FoundCoordinator, ...]


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(Struct, frozen=True):
    """A group as DescribeGroups shows it; ``protocol`` and the members' metadata only while it is Stable."""

    group_id: str
    error: Error
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    """One group in the answer to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class ListGroupsAnswer(Answer, frozen=True):
    """The answer to ListGroups."""

    error: Error
    groups: tuple[ListedGroup, ...] = ()


class DeleteGroupsAnswer(Answer, frozen=True):
    """The answer to DeleteGroups: group id -> error."""

    errors: Mapping[str, Error]


class OffsetDeleteAnswer(Answer, frozen=True):
    """The answer to OffsetDelete: an error for the whole request, or (topic, partition) -> error."""

    error: Error
    errors: Mapping[tuple[str, int], Error] = field(default_factory=dict)


# Streams groups (KIP-1071)


class StatusCode(IntEnum):
    """Status of a streams group member, sent in addition to its tasks."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Status(NamedTuple):
    """One status. about: the topics, the epochs, the member or the setting that it is about; Kafka makes a sentence of them."""

    code: StatusCode
    about: str


class EndpointPartitions(NamedTuple):
    """The partitions whose records a member can answer queries about. active, standby: topic -> partitions."""

    host: str
    port: int
    active: Tasks
    standby: Tasks


class StreamsGroupHeartbeatAnswer(Answer, frozen=True):
    """The answer to StreamsGroupHeartbeat. Tasks, endpoints: None: as in the answer before."""

    error: Error
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    status: tuple[Status, ...] = ()
    active_tasks: Tasks | None = None
    standby_tasks: Tasks | None = None
    warmup_tasks: Tasks | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: tuple[EndpointPartitions, ...] | None = None


class MemberTasks(NamedTuple):
    """Tasks of a member by their type."""

    active: Tasks
    standby: Tasks
    warmup: Tasks


class DescribedStreamsMember(NamedTuple):
    """A member of a streams group as StreamsGroupDescribe shows it."""

    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    topology_epoch: int
    process_id: str
    user_endpoint: tuple[str, int] | None
    client_tags: Mapping[str, str]
    assignment: MemberTasks
    target: MemberTasks


class DescribedSubtopology(NamedTuple):
    """A subtopology as StreamsGroupDescribe shows it. Of internal topics: name -> partitions, 0 while they are not decided."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: Mapping[str, int]
    state_changelog_topics: Mapping[str, int]


class DescribedStreamsGroup(Struct, frozen=True):
    """A streams group as StreamsGroupDescribe shows it."""

    group_id: str
    error: Error
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology_epoch: int | None = None
    subtopologies: tuple[DescribedSubtopology, ...] = ()
    members: tuple[DescribedStreamsMember, ...] = ()
