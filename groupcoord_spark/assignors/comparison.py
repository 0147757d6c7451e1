"""Comparison of two assignments: the effect of a change of members or partitions on a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from groupcoord_spark.assignors.membership import Assignment, TopicPartition, java_order
from groupcoord_spark.assignors.quality import Balance, balance_of


class OwnerChange(NamedTuple):
    """A partition with the member id of its owner before and after; None: no owner."""

    partition: TopicPartition
    before: str | None
    after: str | None


class Move(NamedTuple):
    """The partitions that go from one member to another. before None: they had no owner. after None: they have no owner any more."""

    before: str | None
    after: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class MemberChange:
    """The number of partitions of a member before and after; None: the member is not in the group.

    gained, lost: number of partitions that the member has only after, only before.
    """

    member_id: str
    before: int | None
    after: int | None
    gained: int
    lost: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two assignments. Partitions are ascending by topic and number.

    moved: partitions whose owner changes from one member to another.
    assigned: partitions that have an owner only after.
    released: partitions that have an owner only before.
    kept: number of partitions that keep their owner.
    members: all members of before and after, ascending by member id.
    """

    before: Balance
    after: Balance
    moved: tuple[OwnerChange, ...]
    assigned: tuple[OwnerChange, ...]
    released: tuple[OwnerChange, ...]
    kept: int
    members: tuple[MemberChange, ...]

    @property
    def moves(self) -> tuple[Move, ...]:
        """The partitions whose owner changes, by their owner before and after."""
        partitions: dict[tuple[str | None, str | None], list[TopicPartition]] = {}
        for change in (*self.moved, *self.assigned, *self.released):
            partitions.setdefault((change.before, change.after), []).append(change.partition)
        pairs = sorted(partitions, key=lambda pair: (pair[0] or "", pair[1] or ""))
        return tuple(Move(*owners, tuple(partitions[owners])) for owners in pairs)


def compare_assignments(before: Assignment, after: Assignment) -> Comparison:
    """The differences between two assignments. A member that joins or leaves is in only one of them."""
    old_owners, new_owners = _owners(before), _owners(after)
    changes = [
        OwnerChange(partition, old_owners.get(partition), new_owners.get(partition))
        for partition in sorted(old_owners.keys() | new_owners.keys(), key=lambda p: (java_order(p.topic), p.partition))
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


def _owners(assignment: Assignment) -> dict[TopicPartition, str]:
    return {partition: member_id for member_id, partitions in assignment.items() for partition in partitions}


def _member_change(member_id: str, old: Sequence[TopicPartition] | None, new: Sequence[TopicPartition] | None) -> MemberChange:
    old_partitions, new_partitions = set(old or ()), set(new or ())
    return MemberChange(
        member_id,
        before=None if old is None else len(old_partitions),
        after=None if new is None else len(new_partitions),
        gained=len(new_partitions - old_partitions),
        lost=len(old_partitions - new_partitions),
    )
