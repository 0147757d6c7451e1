"""The row of a rebalance, and the function that fills it for groups of every type."""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from groupcoord_spark.coordinator.rebalances.causes import Cause, Confidence, Reason
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN, GroupRecord
from groupcoord_spark.coordinator.rebalances.moves import Moves

MOST_KEPT: Final = 200
"""``members_kept`` of a modern group is None above this number of members. A record of such a group names one member, so the lists would
grow with the number of members times the number of epochs."""


class MemberChange(NamedTuple):
    """The members of a group after a record, and the differences from the members before. None: the members before are not known."""

    member_count: int
    joined: Sequence[str] | None = None
    left: Sequence[str] | None = None
    kept: Sequence[str] | None = None
    kept_count: int | None = None


def change_between(before: Collection[str] | None, members: Collection[str]) -> MemberChange:
    """Return the change between all member ids of two generations."""
    if before is None:
        return MemberChange(len(members))
    ids_before, ids = set(before), set(members)
    kept = sorted(ids & ids_before)
    return MemberChange(len(members), sorted(ids - ids_before), sorted(ids_before - ids), kept, len(kept))


class Rebalance(NamedTuple):
    """A new generation of a classic group, or a new group epoch or target assignment of a modern group (``kind``).

    Counts and lists are None where the earlier records are not known. Counts of partitions are None for share groups, because several
    members may have the same partition. For a target assignment ``from_generation`` and ``to_generation`` are assignment epochs.
    """

    record_offset: int
    record_timestamp_ms: int
    group_id: str
    group_type: str
    kind: str
    protocol_type: str | None
    from_generation: int | None
    to_generation: int
    since_previous_ms: int | None
    member_count: int
    joined_count: int | None
    left_count: int | None
    kept_count: int | None
    members_joined: Sequence[str] | None
    members_left: Sequence[str] | None
    members_kept: Sequence[str] | None
    previous_leader_id: str | None
    leader_id: str | None
    previous_protocol: str | None
    protocol: str | None
    partitions_moved: int | None
    """Another member has the partition now."""
    partitions_assigned: int | None
    """The partition had no owner before."""
    partitions_released: int | None
    """The partition has no owner any more."""
    cause: Cause
    confidence: Confidence | None
    evidence: str


def row_of(record: GroupRecord, change: MemberChange, moves: Moves | None, reason: Reason, **fields: Any) -> Rebalance:
    """Return the row of one record. moves: None if they are not known. fields: all other fields of the row."""
    moved, assigned, released = moves or (None, None, None)
    return Rebalance(
        record_offset=record.record_offset,
        record_timestamp_ms=record.timestamp_ms,
        group_id=record.key["group_id"],
        member_count=change.member_count,
        joined_count=None if change.joined is None else len(change.joined),
        left_count=None if change.left is None else len(change.left),
        kept_count=change.kept_count,
        members_joined=change.joined,
        members_left=change.left,
        members_kept=change.kept,
        partitions_moved=moved,
        partitions_assigned=assigned,
        partitions_released=released,
        **reason._asdict(),
        **fields,
    )


def elapsed_ms(before_ms: int, now_ms: int) -> int | None:
    """Return the time between two records.

    None if the time of one record is not known, or if 64 bits do not hold the difference: clients may choose any two timestamps.
    """
    elapsed = now_ms - before_ms
    return None if NOT_KNOWN in (before_ms, now_ms) or not -(2**63) <= elapsed < 2**63 else elapsed
