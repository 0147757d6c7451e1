"""How many partitions went from one member to another, to somebody at last, or to nobody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

Holding = frozenset[tuple[str, int]]
"""(topic or connector, partition or task)."""


@lru_cache(maxsize=4096)
def partition_counts(held: Holding) -> tuple[tuple[str, int], ...]:
    """Each topic in it with one more than the last of its partitions: 0 for a connector alone, whose own task is -1."""
    counts: dict[str, int] = {}
    for topic, partition in held:
        if partition >= counts.get(topic, -1):
            counts[topic] = partition + 1
    return tuple(counts.items())


class Moves(NamedTuple):
    """Partitions that went from one member to another, that had no owner before, that have none any more."""

    moved: int
    assigned: int
    released: int


def moves_between(before: Mapping[str, frozenset[Any]], after: Mapping[str, frozenset[Any]]) -> Moves:
    """From what members had and have; those that have what they had may be left out of both."""
    same = {member for member, held in after.items() if before.get(member) == held}
    if same:
        before, after = ({member: held for member, held in of.items() if member not in same} for of in (before, after))
    had, has = all_of(before.values()), all_of(after.values())
    if not had or not has:  # most generations: a leader joined again, one member came or went
        return Moves(0, len(has), len(had))
    in_both = len(had & has)
    if len(had) == sum(map(len, before.values())) and len(has) == sum(map(len, after.values())):
        staying = sum(len(held & before[member]) for member, held in after.items() if member in before)
    else:  # some partition has two owners, of whom the last counts
        owner_before, owner_after = ({each: member for member, held in of.items() for each in held} for of in (before, after))
        staying = len(owner_before.items() & owner_after.items())
    return Moves(in_both - staying, len(has) - in_both, len(had) - in_both)


def all_of(holdings: Iterable[frozenset[Any]]) -> frozenset[Any]:
    """What is in any of them."""
    several = frozenset(holdings)
    return _union(several) if len(several) > 1 else next(iter(several), frozenset())


@lru_cache(maxsize=32)
def _union(holdings: frozenset[frozenset[Any]]) -> frozenset[Any]:
    """Remembered, as the members that come all at once or go all at once are mostly those that did so before."""
    return frozenset[Any]().union(*holdings)
