"""The numbers of partitions that moved between members, got their first owner, or lost their owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

Partitions = frozenset[tuple[str, int]]
"""Set of (topic, partition), for Connect of (connector, task)."""


class Moves(NamedTuple):
    """Numbers of partitions whose owner changed."""

    moved: int
    """Another member has the partition now."""
    assigned: int
    """The partition had no owner before."""
    released: int
    """The partition has no owner any more."""


def moves_between(before: Mapping[str, frozenset[Any]], after: Mapping[str, frozenset[Any]]) -> Moves:
    """The moves between two assignments, member id -> partitions. Members whose partitions did not change may be missing from both."""
    same = {member for member, partitions in after.items() if before.get(member) == partitions}
    if same:
        before, after = (
            {member: partitions for member, partitions in assignment.items() if member not in same} for assignment in (before, after)
        )
    all_before, all_after = union_of(before.values()), union_of(after.values())
    if not all_before or not all_after:  # In most generations a leader joined again, or one member joined or left.
        return Moves(0, len(all_after), len(all_before))
    in_both = len(all_before & all_after)
    if len(all_before) == sum(map(len, before.values())) and len(all_after) == sum(map(len, after.values())):
        unmoved = sum(len(partitions & before[member]) for member, partitions in after.items() if member in before)
    else:  # A partition has two owners: the last one counts.
        owner_before, owner_after = (
            {partition: member for member, partitions in assignment.items() for partition in partitions} for assignment in (before, after)
        )
        unmoved = len(owner_before.items() & owner_after.items())
    return Moves(in_both - unmoved, len(all_after) - in_both, len(all_before) - in_both)


def union_of(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    """Everything that is in at least one of the sets."""
    distinct = frozenset(sets)
    return _cached_union(distinct) if len(distinct) > 1 else next(iter(distinct), frozenset())


@lru_cache(maxsize=32)
def _cached_union(sets: frozenset[frozenset[Any]]) -> frozenset[Any]:
    """The union of several sets. It is cached, because the same members often join together or leave together again."""
    return frozenset[Any]().union(*sets)
