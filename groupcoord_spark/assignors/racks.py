"""Racks of members and partitions: which members can read a partition from a replica in their own rack (KIP-881)."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from groupcoord_spark.assignors.membership import Member, TopicPartition, Topics


def is_in_rack(member: Member, racks: Collection[str]) -> bool:
    """Return whether the member has no rack or is in one of these racks."""
    return not member.rack or member.rack in racks


def racks_matter(member_racks: Collection[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Return whether an assignor considers racks: a member shares a rack with a partition, and not all partitions have all racks."""
    every_rack = frozenset[str]().union(*partition_racks)
    return not every_rack.isdisjoint(member_racks) and any(racks != every_rack for racks in partition_racks)


@dataclass(frozen=True, slots=True)
class GroupRacks:
    """The racks of the members of a group and of their partitions, for the sticky assignors.

    matter: False if the assignor does not consider racks; then no partition mismatches.
    """

    matter: bool
    member_racks: tuple[str, ...]
    racks_by_partition: dict[TopicPartition, frozenset[str]]

    def mismatch(self, member: Member, partition: TopicPartition) -> bool:
        """Return whether the member has a rack that holds no replica of the partition."""
        return self.matter and not is_in_rack(member, self.racks_by_partition.get(partition, frozenset()))


def group_racks(members: Iterable[Member], subscribed: Iterable[str], topics: Topics) -> GroupRacks:
    """Return the racks of these members and of all partitions of the subscribed topics."""
    member_racks = tuple(member.rack for member in members if member.rack)
    racks_by_partition = {
        TopicPartition(topic, partition): topics[topic].racks_of(partition)
        for topic in subscribed
        for partition in range(topics[topic].partitions)
    }
    return GroupRacks(racks_matter(member_racks, list(racks_by_partition.values())), member_racks, racks_by_partition)
