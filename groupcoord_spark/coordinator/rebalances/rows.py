"""The row of a rebalance, and the function that fills it for groups of every type."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from groupcoord_spark.coordinator.rebalances.causes import Cause, Confidence, Reason
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN, GroupRecord
from groupcoord_spark.coordinator.rebalances.moves import Moves


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


def row_of(
    record: GroupRecord,
    members_before: Collection[str] | None,
    members: Collection[str],
    moves: Moves | None,
    reason: Reason,
    **fields: Any,
) -> Rebalance:
    """The row of one record.

    members_before: member ids of the generation before; None: not known. moves: None: not known. fields: all other fields of the row.
    """
    joined = left = kept = None
    if members_before is not None:
        ids_before, ids = set(members_before), set(members)
        joined, left, kept = sorted(ids - ids_before), sorted(ids_before - ids), sorted(ids & ids_before)
    moved, assigned, released = moves or (None, None, None)
    return Rebalance(
        record_offset=record.record_offset,
        record_timestamp_ms=record.timestamp_ms,
        group_id=record.key["group_id"],
        member_count=len(members),
        joined_count=None if joined is None else len(joined),
        left_count=None if left is None else len(left),
        kept_count=None if kept is None else len(kept),
        members_joined=joined,
        members_left=left,
        members_kept=kept,
        partitions_moved=moved,
        partitions_assigned=assigned,
        partitions_released=released,
        **reason._asdict(),
        **fields,
    )


def elapsed_ms(before_ms: int, now_ms: int) -> int | None:
    """Time between two records; None: the time of one record is not known."""
    return None if NOT_KNOWN in (before_ms, now_ms) else now_ms - before_ms
