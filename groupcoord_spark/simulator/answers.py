"""The coordinator's answers. Field names are Kafka's in snake_case; what a version of the wire format leaves out is here all the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from groupcoord_spark.simulator.errors import Error


class JoinedMember(NamedTuple):
    """A member as the leader sees it: its metadata is that of the elected protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupAnswer:
    """What JoinGroup gets. Only the leader is told the members; ``skip_assignment``: it leads, but has nothing to assign (KIP-814)."""

    error: Error
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupAnswer:
    """What SyncGroup gets."""

    error: Error
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What Heartbeat gets."""

    error: Error


class LeftMember(NamedTuple):
    """How one member of a LeaveGroup request fared; the ids are those of the request."""

    member_id: str
    group_instance_id: str | None
    error: Error


@dataclass(frozen=True, slots=True)
class LeaveGroupAnswer:
    """What LeaveGroup gets; up to version 2 ``error`` is that of the only member."""

    error: Error
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetCommitAnswer:
    """What OffsetCommit and TxnOffsetCommit get: (topic, partition) -> error."""

    errors: Mapping[tuple[str, int], Error]


class FetchedOffset(NamedTuple):
    """One partition of OffsetFetch; -1, -1 and "" where there is nothing or where it may not be told."""

    committed_offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: Error = Error.NONE


class FetchedGroup(NamedTuple):
    """One group of OffsetFetch: topic -> partition -> offset."""

    group_id: str
    error: Error
    topics: Mapping[str, Mapping[int, FetchedOffset]]


@dataclass(frozen=True, slots=True)
class OffsetFetchAnswer:
    """What OffsetFetch gets, group by group."""

    groups: tuple[FetchedGroup, ...]


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    """What AddOffsetsToTxn and EndTxn get."""

    error: Error


class FoundCoordinator(NamedTuple):
    """Where one key belongs: ``offsets_partition`` is the partition whose leader coordinates the group, -1 if the key is refused."""

    key: str
    error: Error
    offsets_partition: int


@dataclass(frozen=True, slots=True)
class FindCoordinatorAnswer:
    """What FindCoordinator gets, key by key."""

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
class DescribeGroupsAnswer:
    """What DescribeGroups gets, group by group."""

    groups: tuple[DescribedGroup, ...]


class ListedGroup(NamedTuple):
    """A line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class ListGroupsAnswer:
    """What ListGroups gets."""

    error: Error
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroupsAnswer:
    """What DeleteGroups gets: group id -> error."""

    errors: Mapping[str, Error]


@dataclass(frozen=True, slots=True)
class OffsetDeleteAnswer:
    """What OffsetDelete gets: an error for the whole request, or (topic, partition) -> error."""

    error: Error
    errors: Mapping[tuple[str, int], Error] = field(default_factory=dict)


Answer = (
    JoinGroupAnswer
    | SyncGroupAnswer
    | HeartbeatAnswer
    | LeaveGroupAnswer
    | OffsetCommitAnswer
    | OffsetFetchAnswer
    | TransactionAnswer
    | FindCoordinatorAnswer
    | DescribeGroupsAnswer
    | ListGroupsAnswer
    | DeleteGroupsAnswer
    | OffsetDeleteAnswer
)
