"""The row of a rebalance, and the function that fills it for groups of every type."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from groupcoord_spark.coordinator.rebalances.causes import Cause, Confidence, Reason
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN, GroupRecord
from groupcoord_spark.coordinator.rebalances.moves import Moves

_NOT_COUNTED = (None, None, None)


class Rebalance(NamedTuple):
    """A new generation of a classic group, or a new group epoch or target assignment of a modern group (``kind``).

    Counts and lists are None where the records before are not known. Counts of partitions are None for share groups, because several
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
    group_type: str,
    kind: str,
    protocol_type: str | None,
    from_generation: int | None,
    to_generation: int,
    since_ms: int | None,
    members_before: Collection[str] | None,
    members: Collection[str],
    leaders: tuple[str | None, str | None],
    protocols: tuple[str | None, str | None],
    moves: Moves | None,
    reason: Reason,
) -> Rebalance:
    """The row of one record.

    Args:
        members_before: Member ids of the generation before; None: not known.
        leaders: Before and now.
        protocols: Before and now.
        moves: Moves of partitions; None: not known.
    """
    joined_left_kept: tuple[Sequence[str] | None, ...] = _NOT_COUNTED
    counts: tuple[int | None, ...] = _NOT_COUNTED
    if members_before is not None:
        if members_before is members:
            joined, left, kept = [], [], sorted(members)
        else:
            joined = sorted([member_id for member_id in members if member_id not in members_before])
            left = sorted([member_id for member_id in members_before if member_id not in members])
            kept = sorted([member_id for member_id in members if member_id in members_before] if joined else members)
        joined_left_kept = joined, left, kept
        counts = len(joined), len(left), len(kept)
    # Arguments by position: this runs for every generation, and keyword arguments would take twice the time.
    return Rebalance._make((
        record.record_offset, record.timestamp_ms, record.key["group_id"], group_type, kind, protocol_type,
        from_generation, to_generation, since_ms,
        len(members), *counts, *joined_left_kept,
        *leaders, *protocols, *(moves or _NOT_COUNTED), *reason,
    ))  # fmt: skip


def elapsed_ms(before_ms: int, now_ms: int) -> int | None:
    """Time between two records; None: the time of one record is not known."""
    return None if NOT_KNOWN in (before_ms, now_ms) else now_ms - before_ms
