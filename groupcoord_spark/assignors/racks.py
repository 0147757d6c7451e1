"""Which members may read a partition from a replica in their own rack (KIP-881)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from groupcoord_spark.assignors.membership import Member, TopicPartition, Topics


def matches(member: Member, racks: Collection[str]) -> bool:
    """Whether a member has no rack, or one of these."""
    return not member.rack or member.rack in racks


def racks_matter(member_racks: Collection[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Whether an assignor looks at racks at all: some member can match, and not every partition has all the racks."""
    every_rack = frozenset[str]().union(*partition_racks)
    return not every_rack.isdisjoint(member_racks) and any(racks != every_rack for racks in partition_racks)


@dataclass(frozen=True, slots=True)
class GroupRacks:
    """The racks of a whole group: what the sticky assignors go by.

    matter: False if racks are not looked at; then nothing mismatches.
    """

    matter: bool
    of_members: tuple[str, ...]
    of_partitions: dict[TopicPartition, frozenset[str]]

    def mismatch(self, member: Member, partition: TopicPartition) -> bool:
        """Whether the member has a rack, and no replica of the partition is in it."""
        return self.matter and not matches(member, self.of_partitions.get(partition, frozenset()))


def group_racks(members: Iterable[Member], subscribed: Iterable[str], topics: Topics) -> GroupRacks:
    """The racks of these members and of all partitions of the subscribed topics."""
    of_members = tuple(member.rack for member in members if member.rack)
    of_partitions = {
        TopicPartition(topic, partition): topics[topic].racks_of(partition)
        for topic in subscribed
        for partition in range(topics[topic].partitions)
    }
    return GroupRacks(racks_matter(of_members, list(of_partitions.values())), of_members, of_partitions)
