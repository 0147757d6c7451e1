"""The quality of an assignment, the rebalances until every partition has an owner, and the effect of a change on a group.

The quality is the balance, and the partitions that move, have no owner or are in another rack than their owner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from groupcoord_spark.assignors.membership import Assignment, Assignor, Member, TopicPartition, Topics, java_order, subscribers_by_topic
from groupcoord_spark.assignors.ownership_claims import resolve_claims
from groupcoord_spark.assignors.racks import is_in_rack


@dataclass(frozen=True, slots=True)
class Balance:
    """The number of partitions of each member. ``least``, ``most`` and ``spread`` count all members, whatever their subscriptions."""

    partitions_by_member: Mapping[str, int]

    @property
    def least(self) -> int:
        """The smallest number of partitions of a member; 0 without members."""
        return min(self.partitions_by_member.values(), default=0)

    @property
    def most(self) -> int:
        """The largest number of partitions of a member; 0 without members."""
        return max(self.partitions_by_member.values(), default=0)

    @property
    def spread(self) -> int:
        """The difference between ``most`` and ``least``."""
        return self.most - self.least


@dataclass(frozen=True, slots=True)
class AssignmentQuality:
    """Counts of partitions in an assignment, compared with the subscriptions and the owners before.

    moved: partitions that an owner before (see ownership_claims.py), still a member and still subscribed to the topic, does not keep.
    unassigned: partitions of subscribed topics without an owner (cooperative-sticky: another member has to revoke them first).
    rack_misses: partitions with known racks whose owner is in another rack.
    not_subscribed: partitions whose owner does not subscribe to the topic.
    """

    balance: Balance
    moved: int
    unassigned: int
    rack_misses: int
    not_subscribed: int


def balance_of(assignment: Assignment) -> Balance:
    """Return the number of partitions of each member."""
    return Balance({member_id: len(partitions) for member_id, partitions in assignment.items()})


def quality_of(members: Sequence[Member], topics: Topics, assignment: Assignment) -> AssignmentQuality:
    """Measure the quality of an assignment of these topics to these members."""
    subscribed = subscribers_by_topic(members, topics)
    owners = {partition: member_id for member_id, partitions in assignment.items() for partition in partitions}
    return AssignmentQuality(
        balance=balance_of(assignment),
        moved=sum(owners.get(partition) != owner for partition, owner in _owners_before(members, topics).items()),
        unassigned=sum(
            TopicPartition(topic, partition) not in owners for topic in subscribed for partition in range(topics[topic].partitions)
        ),
        rack_misses=sum(
            topics[topic].racks is not None and not is_in_rack(member, topics[topic].racks_of(partition))
            for member in members
            for topic, partition in assignment[member.member_id]
            if topic in topics
        ),
        not_subscribed=sum(topic not in member.topics for member in members for topic, _ in assignment[member.member_id]),
    )


def _owners_before(members: Sequence[Member], topics: Topics) -> dict[TopicPartition, str]:
    owned = resolve_claims(members, topics).owned
    return {
        partition: member.member_id
        for member in members
        for partition in owned[member.member_id]
        if partition.topic in member.topics and partition.partition < topics[partition.topic].partitions
    }


@dataclass(frozen=True, slots=True)
class RebalanceSequence:
    """The assignments of consecutive rebalances.

    converges: True if the last assignment is final. False if the last assignment is equal to an earlier one, so that the group would
    rebalance without end; then each of the assignments leaves partitions without an owner.
    """

    assignments: tuple[Assignment, ...]
    converges: bool


def rebalances_until_stable(assignor: Assignor, members: Sequence[Member], topics: Topics) -> RebalanceSequence:
    """Return the assignments of successive rebalances until every partition of a subscribed topic has an owner.

    Only cooperative-sticky needs more than one rebalance: a partition that its owner revokes in one rebalance is assigned in the next.
    After each rebalance the members join again with the partitions that they own then, in a new generation.
    """
    generation = max((member.generation for member in members), default=0)
    assignments = [assignor(members, topics)]
    while quality_of(members, topics, assignments[-1]).unassigned:
        if assignments[-1] in assignments[:-1]:
            return RebalanceSequence(tuple(assignments), converges=False)
        generation += 1
        members = [replace(member, owned=assignments[-1][member.member_id], generation=generation) for member in members]
        assignments.append(assignor(members, topics))
    return RebalanceSequence(tuple(assignments), converges=True)


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
    """Return the differences between two assignments. A member that joins or leaves is in only one of them."""
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
