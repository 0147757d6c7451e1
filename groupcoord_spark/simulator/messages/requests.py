"""The requests of group members, producers and administrators, with Kafka's field names in snake_case.

``version`` is the version of the request (None: the newest that the simulated release knows).
``client_id`` and ``client_host`` come from the request's header and connection.
A request that is sent outside of any membership has the generation ``NO_GENERATION``.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from groupcoord_spark.assignors import NO_GENERATION
from groupcoord_spark.assignors.sticky_tasks import Task
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_TIMESTAMP


class Request(Struct, frozen=True, kw_only=True):
    """A request. ``version`` None: the newest version that the simulated release knows."""

    version: int | None = None


class JoinGroup(Request, frozen=True):
    """Join the group. ``member_id`` is "" for a new member; ``rebalance_timeout_ms`` None (version 0) means the session timeout."""

    group_id: str | None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int | None = 300_000
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    protocols: tuple[tuple[str, bytes], ...] = ()
    client_id: str = ""
    client_host: str = "/127.0.0.1"


class SyncGroup(Request, frozen=True):
    """Get the member's assignment. The leader sends all members' assignments; ``protocol_type`` and ``protocol`` exist since version 5."""

    group_id: str | None
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class Heartbeat(Request, frozen=True):
    """Keep the member's session, and ask whether the group rebalances."""

    group_id: str | None
    generation: int
    member_id: str
    group_instance_id: str | None = None


LEAVE_EPOCH = -1
"""Member epoch in the last heartbeat of a member that leaves."""
LEFT_FOR_A_WHILE = -2
"""Member epoch of a static member that has closed and may come back."""


class ConsumerGroupHeartbeat(Request, frozen=True):
    """Join a consumer group, stay in it, report one's partitions, or leave (KIP-848). None: as in the request before.

    member_epoch: 0 to join, -1 to leave, -2 to leave for a while as a static member.
    topic_regex: since version 1; "" ends the subscription by expression.
    partitions: topic -> partitions that the client owns.
    """

    group_id: str | None
    member_id: str
    member_epoch: int
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None
    client_id: str = ""
    client_host: str = "/127.0.0.1"


class ConsumerGroupDescribe(Request, frozen=True):
    """Get the state, the epochs and the members of consumer groups."""

    group_ids: tuple[str, ...]


class ShareGroupHeartbeat(Request, frozen=True):
    """Join a share group, stay in it, or leave (KIP-932). None: as in the request before.

    member_epoch: 0 to join, -1 to leave. A member of a share group has no instance id and never reports its partitions.
    """

    group_id: str | None
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = "/127.0.0.1"


class ShareGroupDescribe(Request, frozen=True):
    """Get the state, the epochs and the members of share groups."""

    group_ids: tuple[str, ...]


class Leaving(NamedTuple):
    """The member that leaves: its member id, or "" and its instance id."""

    member_id: str
    group_instance_id: str | None = None


class LeaveGroup(Request, frozen=True):
    """Leave the group: one member up to version 2, a list since version 3."""

    group_id: str | None
    members: tuple[Leaving, ...]


class OffsetToCommit(NamedTuple):
    """One partition of a commit. ``commit_timestamp_ms`` only in OffsetCommit version 1; metadata None is stored as ""."""

    topic: str
    partition: int
    committed_offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = ""
    commit_timestamp_ms: int = NO_TIMESTAMP


class OffsetCommit(Request, frozen=True):
    """Commit offsets. ``retention_ms`` -1: the retention of the broker (versions 2 to 4 may ask for another)."""

    group_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = -1


class TxnOffsetCommit(Request, frozen=True):
    """Commit offsets as part of a producer's transaction."""

    group_id: str | None
    producer_id: int
    offsets: tuple[OffsetToCommit, ...]
    producer_epoch: int = 0
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


class GroupToFetch(NamedTuple):
    """A group, and the partitions whose offsets are requested; ``partitions`` None: all partitions with a committed offset.

    member_id, member_epoch: of a member of a consumer group, since version 9.
    """

    group_id: str
    partitions: Mapping[str, tuple[int, ...]] | None = None
    member_id: str | None = None
    member_epoch: int = NO_GENERATION


class OffsetFetch(Request, frozen=True):
    """Get committed offsets. With ``require_stable`` the answer for a partition with a pending offset is UNSTABLE_OFFSET_COMMIT."""

    groups: tuple[GroupToFetch, ...]
    require_stable: bool = False


class AddOffsetsToTxn(Request, frozen=True):
    """Make a group part of a producer's transaction. The transaction coordinator answers it; the simulator always accepts it."""

    group_id: str
    producer_id: int
    producer_epoch: int = 0


class EndTxn(Request, frozen=True):
    """End a producer's transaction: every offsets partition that takes part in it gets a marker."""

    producer_id: int
    committed: bool
    producer_epoch: int = 0


class WriteTxnMarkers(Request, frozen=True):
    """Write the marker of a producer to the offsets partition of a group. The transaction coordinator sends it after EndTxn."""

    group_id: str
    producer_id: int
    committed: bool
    producer_epoch: int = 0


class FindCoordinator(Request, frozen=True):
    """Get the coordinators of groups."""

    keys: tuple[str, ...]


class DescribeGroups(Request, frozen=True):
    """Get the state and the members of groups."""

    group_ids: tuple[str, ...]


class ListGroups(Request, frozen=True):
    """Get the names of all groups, or of the groups in some states (version 4) or of some types (version 5)."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class DeleteGroups(Request, frozen=True):
    """Delete groups with all their offsets."""

    group_ids: tuple[str, ...]


class OffsetDelete(Request, frozen=True):
    """Delete some offsets of one group."""

    group_id: str | None
    partitions: Mapping[str, tuple[int, ...]]


# Streams groups (KIP-1071)

Tasks = Mapping[str, tuple[int, ...]]
"""Subtopology -> partition numbers of its tasks."""


class InternalTopic(NamedTuple):
    """A topic that the broker makes for the application. partitions: 0, as many as its sources; configs: setting -> value."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics of a subtopology that must have the same number of partitions: places in its lists of topics."""

    source_topics: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(Struct, frozen=True):
    """A part of a topology that has tasks of its own.

    repartition_sink_topics: topics that it writes for other subtopologies, which have them among their repartition source topics.
    """

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


class Topology(Struct, frozen=True):
    """Topics that an application reads, keeps and writes. A member whose ``epoch`` is older than the group's is reported as stale."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]


class StreamsGroupHeartbeat(Request, frozen=True):
    """Join a streams group, stay in it, report one's tasks, or leave. None: as in the request before.

    member_epoch: 0 to join, -1 to leave. active_tasks, standby_tasks, warmup_tasks: what the client has now; all three or none.
    user_endpoint: host and port for queries to the client. endpoint_information_epoch: of the last answer that listed them.
    task_offsets: (subtopology, partition) -> sum of the changelog offsets of the task in the client's store.
    shutdown_application: all members of the group must stop.
    """

    group_id: str | None
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int = 0
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topology: Topology | None = None
    active_tasks: Tasks | None = None
    standby_tasks: Tasks | None = None
    warmup_tasks: Tasks | None = None
    process_id: str | None = None
    user_endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] | None = None
    task_offsets: Mapping[Task, int] | None = None
    shutdown_application: bool = False
    client_id: str = ""
    client_host: str = "/127.0.0.1"

    @property
    def tasks(self) -> dict[str, Tasks | None]:
        """Kind -> the tasks of that kind that the client says it has; None: it says nothing."""
        return {"active": self.active_tasks, "standby": self.standby_tasks, "warmup": self.warmup_tasks}


class StreamsGroupDescribe(Request, frozen=True):
    """Get the state, the epochs, the topology and the members of streams groups."""

    group_ids: tuple[str, ...]
