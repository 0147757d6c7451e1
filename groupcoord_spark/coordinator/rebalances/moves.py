"""The numbers of partitions that moved between members, got their first owner, or lost their owner."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

PartitionSet = frozenset[tuple[str, int]]
"""Set of (topic, partition), for Connect of (connector, task)."""


class Moves(NamedTuple):
    """Numbers of partitions whose owner changed."""

    moved: int
    """Another member has the partition now."""
    assigned: int
    """The partition had no owner before."""
    released: int
    """The partition has no owner any more."""


def moves_between(old_assignment: Mapping[str, frozenset[Any]], new_assignment: Mapping[str, frozenset[Any]]) -> Moves:
    """Return the moves between two assignments, member id -> partitions. Members without changes may be missing from both."""
    same = {member for member, partitions in new_assignment.items() if old_assignment.get(member) == partitions}
    if same:
        old_assignment, new_assignment = (
            {member: partitions for member, partitions in assignment.items() if member not in same}
            for assignment in (old_assignment, new_assignment)
        )
    old_partitions, new_partitions = union_of(old_assignment.values()), union_of(new_assignment.values())
    if not old_partitions or not new_partitions:  # In most generations a leader joined again, or one member joined or left.
        return Moves(0, len(new_partitions), len(old_partitions))
    in_both = len(old_partitions & new_partitions)
    if len(old_partitions) == sum(map(len, old_assignment.values())) and len(new_partitions) == sum(map(len, new_assignment.values())):
        unmoved = sum(len(partitions & old_assignment[member]) for member, partitions in new_assignment.items() if member in old_assignment)
    else:  # A partition has two owners: the last one counts.
        old_owners, new_owners = (
            {partition: member for member, partitions in assignment.items() for partition in partitions}
            for assignment in (old_assignment, new_assignment)
        )
        unmoved = len(old_owners.items() & new_owners.items())
    return Moves(in_both - unmoved, len(new_partitions) - in_both, len(old_partitions) - in_both)


def union_of(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    """Everything that is in at least one of the sets."""
    distinct = frozenset(sets)
    return _cached_union(distinct) if len(distinct) > 1 else next(iter(distinct), frozenset())


@lru_cache(maxsize=32)
def _cached_union(sets: frozenset[frozenset[Any]]) -> frozenset[Any]:
    """Return the union of several sets. It is cached, because the same members often join or leave together."""
    return frozenset[Any]().union(*sets)
