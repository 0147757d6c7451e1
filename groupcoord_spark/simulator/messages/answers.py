"""The coordinator's answers, with Kafka's field names in snake_case. They have the fields of the newest version of each answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from groupcoord_spark.assignors import NO_GENERATION
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH
from groupcoord_spark.simulator.messages.errors import Error


class Answer:
    """The answer to a request."""

    __slots__ = ()


class JoinedMember(NamedTuple):
    """A member as the leader sees it: its metadata is that of the elected protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupAnswer(Answer):
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


@dataclass(frozen=True, slots=True)
class SyncGroupAnswer(Answer):
    """The answer to SyncGroup."""

    error: Error
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer(Answer):
    """The answer to Heartbeat."""

    error: Error


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatAnswer(Answer):
    """The answer to ConsumerGroupHeartbeat. assignment: topic -> partitions; None: as in the answer before."""

    error: Error
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[str, tuple[int, ...]] | None = None


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


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """A consumer group as ConsumerGroupDescribe shows it."""

    group_id: str
    error: Error
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribeAnswer(Answer):
    """The answer to ConsumerGroupDescribe, group by group."""

    groups: tuple[DescribedConsumerGroup, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeatAnswer(Answer):
    """The answer to ShareGroupHeartbeat. assignment: topic -> partitions; None: as in the answer before."""

    error: Error
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[str, tuple[int, ...]] | None = None


class DescribedShareMember(NamedTuple):
    """A member of a share group as ShareGroupDescribe shows it. assignment: topic -> partitions."""

    member_id: str
    client_id: str
    member_epoch: int
    topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    """A share group as ShareGroupDescribe shows it."""

    group_id: str
    error: Error
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareGroupDescribeAnswer(Answer):
    """The answer to ShareGroupDescribe, group by group."""

    groups: tuple[DescribedShareGroup, ...]


class LeftMember(NamedTuple):
    """The result for one member of a LeaveGroup request, with the ids of the request."""

    member_id: str
    group_instance_id: str | None
    error: Error


@dataclass(frozen=True, slots=True)
class LeaveGroupAnswer(Answer):
    """The answer to LeaveGroup. Up to version 2 ``error`` is the error of the only member."""

    error: Error
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetCommitAnswer(Answer):
    """The answer to OffsetCommit and TxnOffsetCommit: (topic, partition) -> error."""

    errors: Mapping[tuple[str, int], Error]


class FetchedOffset(NamedTuple):
    """One partition in the answer to OffsetFetch; -1, -1 and "" if there is no committed offset or if there is an error."""

    committed_offset: int = -1
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: Error = Error.NONE


class FetchedGroup(NamedTuple):
    """One group in the answer to OffsetFetch: topic -> partition -> offset."""

    group_id: str
    error: Error
    topics: Mapping[str, Mapping[int, FetchedOffset]]


@dataclass(frozen=True, slots=True)
class OffsetFetchAnswer(Answer):
    """The answer to OffsetFetch, group by group."""

    groups: tuple[FetchedGroup, ...]


@dataclass(frozen=True, slots=True)
class TransactionAnswer(Answer):
    """The answer to AddOffsetsToTxn, EndTxn and WriteTxnMarkers."""

    error: Error


class FoundCoordinator(NamedTuple):
    """The coordinator of one key: the leader of ``offsets_partition``, which is -1 if the key is refused."""

    key: str
    error: Error
    offsets_partition: int


@dataclass(frozen=True, slots=True)
class FindCoordinatorAnswer(Answer):
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


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as DescribeGroups shows it; ``protocol`` and the members' metadata only while it is Stable."""

    group_id: str
    error: Error
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroupsAnswer(Answer):
    """The answer to DescribeGroups, group by group."""

    groups: tuple[DescribedGroup, ...]


class ListedGroup(NamedTuple):
    """One group in the answer to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class ListGroupsAnswer(Answer):
    """The answer to ListGroups."""

    error: Error
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroupsAnswer(Answer):
    """The answer to DeleteGroups: group id -> error."""

    errors: Mapping[str, Error]


@dataclass(frozen=True, slots=True)
class OffsetDeleteAnswer(Answer):
    """The answer to OffsetDelete: an error for the whole request, or (topic, partition) -> error."""

    error: Error
    errors: Mapping[tuple[str, int], Error] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefusedAnswer(Answer):
    """The answer to a request that is refused before the broker reads it: it has the error alone."""

    error: Error
