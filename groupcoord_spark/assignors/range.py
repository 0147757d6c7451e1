"""The client's range assignor: consecutive partitions, topic by topic (RangeAssignor; racks since 3.5, KIP-881)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groupcoord_spark.assignors.membership import (
    Assignment,
    Member,
    Topic,
    TopicPartition,
    Topics,
    assignment_of,
    static_first,
    subscribers_by_topic,
)
from groupcoord_spark.assignors.racks import matches, racks_matter


class _Shares:
    """One topic being shared out: which partitions are free, and how many each subscriber may still take."""

    def __init__(self, topic: Topic, subscribers: list[Member]) -> None:
        self.topic = topic
        self.subscribers = subscribers
        self.taken: dict[str, list[int]] = {member.member_id: [] for member in subscribers}
        self.free = dict.fromkeys(range(topic.partitions))
        self.quota, self.extra = divmod(topic.partitions, len(subscribers))
        self.has_member_racks = any(member.rack for member in subscribers)
        self.is_rack_aware = racks_matter(
            [member.rack for member in subscribers if member.rack], [topic.racks_of(partition) for partition in self.free]
        )

    def room(self, member: Member) -> int:
        """How many partitions the member may still take; the first ones to come get one more while there are extra ones."""
        return max(0, self.quota + (1 if self.extra > 0 else 0) - len(self.taken[member.member_id]))

    def take(self, member: Member, partitions: Iterable[int]) -> None:
        taken = self.taken[member.member_id]
        for partition in partitions:
            del self.free[partition]
            taken.append(partition)
        if len(taken) > self.quota:
            self.extra -= 1

    def take_first(self, member: Member, *, in_its_rack: bool) -> None:
        """Give the member the first free partitions, as many as it has room for."""
        room = self.room(member)
        first: list[int] = []
        for partition in self.free:
            if len(first) == room:
                break
            if not in_its_rack or matches(member, self.topic.racks_of(partition)):
                first.append(partition)
        if first:
            self.take(member, first)


def range_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """Consecutive partitions of each topic for its subscribers, static members first; the first ones get one more.

    Where racks matter to a topic, partitions go first to members of their replicas' racks, the same number of topics that are
    partitioned and subscribed alike to the same member, and what is left as above.
    """
    shares = {
        topic: _Shares(topics[topic], subscribers) for topic, subscribers in subscribers_by_topic(static_first(members), topics).items()
    }
    if any(share.is_rack_aware for share in shares.values()):
        for alike in _partitioned_alike(shares.values()):
            _share_by_rack(alike)
    held: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for topic, share in shares.items():
        for member in share.subscribers:
            share.take_first(member, in_its_rack=False)
            held[member.member_id] += (TopicPartition(topic, partition) for partition in share.taken[member.member_id])
    return assignment_of(held)


def _partitioned_alike(shares: Iterable[_Shares]) -> list[list[_Shares]]:
    """The topics that have the same subscribers and number of partitions, each with its like; those without member racks left out."""
    alike: dict[tuple[frozenset[str], int], list[_Shares]] = {}
    for share in shares:
        if share.has_member_racks:
            alike.setdefault((frozenset(share.taken), share.topic.partitions), []).append(share)
    return list(alike.values())


def _share_by_rack(alike: list[_Shares]) -> None:
    first = alike[0]
    if len(alike) == 1:
        if first.is_rack_aware:
            for member in first.subscribers:
                first.take_first(member, in_its_rack=True)
        return
    for partition in range(first.topic.partitions):
        for member in first.subscribers:
            if all(share.room(member) > 0 and matches(member, share.topic.racks_of(partition)) for share in alike):
                for share in alike:
                    share.take(member, [partition])
                break
