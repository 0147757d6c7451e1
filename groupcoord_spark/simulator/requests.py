"""The requests of group members, producers and administrators, as the coordinator reads them.

Fields are Kafka's, in snake_case; ``version`` is the request's own (None: the newest of the simulated release) and matters only where
an answer depends on it. ``client_id`` and ``client_host`` come from the request's header and connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

ANY_GENERATION = -1
"""Generation of a request that is sent outside any membership."""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Ask to be a member. ``member_id`` "" is a newcomer; ``rebalance_timeout_ms`` None (version 0) means the session timeout."""

    group_id: str | None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int | None = 300_000
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    protocols: tuple[tuple[str, bytes], ...] = ()
    client_id: str = ""
    client_host: str = "/127.0.0.1"
    version: int | None = None


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Ask for one's assignment; the leader brings everybody's. ``protocol_type`` and ``protocol`` are sent since version 5."""

    group_id: str | None
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Say that one is alive, and ask whether the group rebalances."""

    group_id: str | None
    generation: int
    member_id: str
    group_instance_id: str | None = None


class Leaving(NamedTuple):
    """Who leaves: a member id, or "" and an instance id."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Leave the group: one member up to version 2, a list since version 3."""

    group_id: str | None
    members: tuple[Leaving, ...]
    version: int | None = None


class OffsetToCommit(NamedTuple):
    """One partition of a commit. ``commit_timestamp_ms`` only in OffsetCommit version 1; metadata None is stored as ""."""

    topic: str
    partition: int
    committed_offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    commit_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Save positions. ``retention_ms`` -1: the broker's own (versions 2 to 4 may ask for another)."""

    group_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    generation: int = ANY_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = -1
    version: int | None = None


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    """Save positions as part of a producer's transaction."""

    group_id: str | None
    producer_id: int
    offsets: tuple[OffsetToCommit, ...]
    producer_epoch: int = 0
    generation: int = ANY_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


class GroupToFetch(NamedTuple):
    """A group and the partitions wanted; ``partitions`` None: all it has."""

    group_id: str
    partitions: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """Read positions; with ``require_stable`` partitions of open transactions are refused."""

    groups: tuple[GroupToFetch, ...]
    require_stable: bool = False


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn:
    """Make a group part of a producer's transaction (answered by the transaction coordinator; always granted here)."""

    group_id: str
    producer_id: int
    producer_epoch: int = 0


@dataclass(frozen=True, slots=True)
class EndTxn:
    """End a producer's transaction: its marker reaches every offsets partition whose groups it named."""

    producer_id: int
    committed: bool
    producer_epoch: int = 0


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Ask which broker coordinates the groups."""

    keys: tuple[str, ...]
    version: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeGroups:
    """Ask for everything about some groups."""

    group_ids: tuple[str, ...]
    version: int | None = None


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Ask for the names of groups, all or those in some states."""

    states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroups:
    """Remove groups with all their offsets."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    """Remove some offsets of one group."""

    group_id: str | None
    partitions: Mapping[str, tuple[int, ...]]


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | AddOffsetsToTxn
    | EndTxn
    | FindCoordinator
    | DescribeGroups
    | ListGroups
    | DeleteGroups
    | OffsetDelete
)
