"""How many partitions went from one member to another, to somebody at last, or to nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Holding = frozenset[tuple[str, int]]
"""(topic, topic id, subtopology or connector; partition or task)."""


class Moves(NamedTuple):
    """Partitions that went from one member to another, that had no owner before, that have none any more."""

    moved: int
    assigned: int
    released: int


def moves_between(before: Mapping[tuple[str, int], str], after: Mapping[tuple[str, int], str]) -> Moves:
    """From the owners before and after, by partition."""
    in_both = len(before.keys() & after.keys())
    return Moves(in_both - len(before.items() & after.items()), len(after) - in_both, len(before) - in_both)
