"""The row of a rebalance, and its columns that groups of every type fill alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from groupcoord_spark.coordinator.rebalances.findings import Cause, Confidence
from groupcoord_spark.coordinator.rebalances.records import NOT_KNOWN


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


def coming_and_going(before: Collection[str] | None, after: Collection[str]) -> dict[str, Any]:
    """The columns of a row about members. ``before``: None where it is not known who was there."""
    joined: list[str] | None
    left: list[str] | None
    kept: list[str] | None
    if before is None:
        joined = left = kept = None
    elif before == after:
        joined, left, kept = [], [], sorted(after)
    else:
        was, now = set(before), set(after)
        joined, left, kept = sorted(now - was), sorted(was - now), sorted(now & was)
    return {
        "member_count": len(after),
        "joined_count": None if joined is None else len(joined),
        "left_count": None if left is None else len(left),
        "kept_count": None if kept is None else len(kept),
        "members_joined": joined,
        "members_left": left,
        "members_kept": kept,
    }


def elapsed_ms(before_ms: int, now_ms: int) -> int | None:
    """Between two records; None where the time of one is not known."""
    return None if NOT_KNOWN in (before_ms, now_ms) else now_ms - before_ms
