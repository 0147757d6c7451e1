"""The row of a rebalance, and its columns that groups of every type fill alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from groupcoord_spark.coordinator.rebalances.findings import Cause, Confidence, Finding
from groupcoord_spark.coordinator.rebalances.moves import Moves
from groupcoord_spark.coordinator.rebalances.records import NOT_KNOWN, GroupRecord

_NOT_COUNTED = (None, None, None)


class Rebalance(NamedTuple):
    """One new generation of a classic group (``kind`` generation), one new group epoch or target assignment of the others.

    Counts and lists are None where the records before are not known; those of partitions also for share groups, whose members share them.
    ``from_generation``, ``to_generation``: of an assignment its epochs.
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
    """From one member to another."""
    partitions_assigned: int | None
    """That had no owner before."""
    partitions_released: int | None
    """That have no owner any more."""
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
    finding: Finding,
) -> Rebalance:
    """The row of one record. members_before: None where it is not known who was there; leaders, protocols: before and now."""
    joined_left_kept: tuple[Sequence[str] | None, ...] = _NOT_COUNTED
    counts: tuple[int | None, ...] = _NOT_COUNTED
    if members_before is not None:
        if members_before is members:
            joined, left, kept = [], [], sorted(members)
        else:
            joined = sorted([each for each in members if each not in members_before])
            left = sorted([each for each in members_before if each not in members])
            kept = sorted([each for each in members if each in members_before] if joined else members)
        joined_left_kept = joined, left, kept
        counts = len(joined), len(left), len(kept)
    # by position: this is done for every generation, and names would take twice the time
    return Rebalance._make((
        record.record_offset, record.timestamp_ms, record.key["group_id"], group_type, kind, protocol_type,
        from_generation, to_generation, since_ms,
        len(members), *counts, *joined_left_kept,
        *leaders, *protocols, *(moves or _NOT_COUNTED), *finding,
    ))  # fmt: skip


def elapsed_ms(before_ms: int, now_ms: int) -> int | None:
    """Between two records; None where the time of one is not known."""
    return None if NOT_KNOWN in (before_ms, now_ms) else now_ms - before_ms
