"""The quality of an assignment: its balance, and its partitions that move, have no owner or are in another rack than their owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupcoord_spark.assignors.membership import Assignment, Member, TopicPartition, Topics, subscribers_by_topic
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
    """The number of partitions of each member."""
    return Balance({member_id: len(partitions) for member_id, partitions in assignment.items()})


def quality_of(members: Sequence[Member], topics: Topics, assignment: Assignment) -> AssignmentQuality:
    """The quality of an assignment of these topics to these members."""
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
