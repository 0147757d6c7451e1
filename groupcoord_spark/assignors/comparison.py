"""Two assignments side by side: what a change of members or partitions would do to a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from groupcoord_spark.assignors.membership import Assignment, TopicPartition, java_order
from groupcoord_spark.assignors.quality import Balance, balance_of


class OwnerChange(NamedTuple):
    """A partition and who holds it, before and after; None: nobody."""

    partition: TopicPartition
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A member's number of partitions, before and after; None: it is not in the group then.

    gained and lost: partitions that it has only after, only before.
    """

    member_id: str
    before: int | None
    after: int | None
    gained: int
    lost: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changes between two assignments.

    moved: partitions that go from one member to another. assigned: partitions that only then have an owner. released: partitions that
    then have none. All ascending by topic and partition. kept: how many stay where they are.
    members: everybody of before and after, by member id.
    """

    before: Balance
    after: Balance
    moved: tuple[OwnerChange, ...]
    assigned: tuple[OwnerChange, ...]
    released: tuple[OwnerChange, ...]
    kept: int
    members: tuple[MemberChange, ...]


def compare_assignments(before: Assignment, after: Assignment) -> Comparison:
    """What changes from one assignment to another; a member that left or joined is in one of them only."""
    held_before, held_after = _holders(before), _holders(after)
    changes = [
        OwnerChange(partition, held_before.get(partition), held_after.get(partition))
        for partition in sorted(held_before.keys() | held_after.keys(), key=lambda p: (java_order(p.topic), p.partition))
    ]
    return Comparison(
        before=balance_of(before),
        after=balance_of(after),
        moved=tuple(change for change in changes if None not in (change.before, change.after) and change.before != change.after),
        assigned=tuple(change for change in changes if change.before is None),
        released=tuple(change for change in changes if change.after is None),
        kept=sum(change.before == change.after for change in changes),
        members=tuple(
            _member_change(member_id, before.get(member_id), after.get(member_id))
            for member_id in sorted(before.keys() | after.keys(), key=java_order)
        ),
    )


def _holders(assignment: Assignment) -> dict[TopicPartition, str]:
    return {partition: member_id for member_id, partitions in assignment.items() for partition in partitions}


def _member_change(member_id: str, before: Sequence[TopicPartition] | None, after: Sequence[TopicPartition] | None) -> MemberChange:
    had, has = set(before or ()), set(after or ())
    return MemberChange(
        member_id,
        before=None if before is None else len(had),
        after=None if after is None else len(has),
        gained=len(has - had),
        lost=len(had - has),
    )
