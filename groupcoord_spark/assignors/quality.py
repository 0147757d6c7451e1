"""What an assignment is worth: how even it is, how many partitions it moves, leaves alone or puts out of reach of a rack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupcoord_spark.assignors.membership import Assignment, Member, TopicPartition, Topics, subscribers_by_topic
from groupcoord_spark.assignors.ownership_claims import resolve_claims
from groupcoord_spark.assignors.racks import matches


@dataclass(frozen=True, slots=True)
class Balance:
    """How many partitions each member has; least, most and spread count all members, also those with few topics."""

    partitions_by_member: Mapping[str, int]

    @property
    def least(self) -> int:
        """The fewest partitions of a member; 0 without members."""
        return min(self.partitions_by_member.values(), default=0)

    @property
    def most(self) -> int:
        """The most partitions of a member; 0 without members."""
        return max(self.partitions_by_member.values(), default=0)

    @property
    def spread(self) -> int:
        """How many partitions more the most loaded member has than the least loaded one."""
        return self.most - self.least


@dataclass(frozen=True, slots=True)
class AssignmentQuality:
    """An assignment measured against the group it was made for.

    moved: partitions that are not with their rightful owner, the uncontested claimant of the highest generation, if it is there still
    and subscribes to the topic. unassigned: partitions of subscribed topics that nobody has (cooperative-sticky: to be revoked first).
    rack_misses: partitions with known racks whose holder has another one. not_subscribed: partitions of topics their holder does not name.
    """

    balance: Balance
    moved: int
    unassigned: int
    rack_misses: int
    not_subscribed: int


def balance_of(assignment: Assignment) -> Balance:
    """How even an assignment is."""
    return Balance({member_id: len(partitions) for member_id, partitions in assignment.items()})


def quality_of(members: Sequence[Member], topics: Topics, assignment: Assignment) -> AssignmentQuality:
    """The figures of an assignment of these members and topics."""
    subscribed = subscribers_by_topic(members, topics)
    held_by = {partition: member_id for member_id, partitions in assignment.items() for partition in partitions}
    return AssignmentQuality(
        balance=balance_of(assignment),
        moved=sum(held_by.get(partition) != owner for partition, owner in _rightful_owners(members, topics).items()),
        unassigned=sum(
            TopicPartition(topic, partition) not in held_by for topic in subscribed for partition in range(topics[topic].partitions)
        ),
        rack_misses=sum(
            topics[topic].racks is not None and not matches(member, topics[topic].racks_of(partition))
            for member in members
            for topic, partition in assignment[member.member_id]
            if topic in topics
        ),
        not_subscribed=sum(topic not in member.topics for member in members for topic, _ in assignment[member.member_id]),
    )


def _rightful_owners(members: Sequence[Member], topics: Topics) -> dict[TopicPartition, str]:
    owned = resolve_claims(members, topics).owned
    return {
        partition: member.member_id
        for member in members
        for partition in owned[member.member_id]
        if partition.topic in member.topics and partition.partition < topics[partition.topic].partitions
    }
