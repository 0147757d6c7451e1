"""Uniform assignment of a group whose members subscribe to different topics (UniformHeterogeneousAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

from groupcoord_spark.assignors.membership import Member, TopicPartition, Topics, subscribers_by_topic
from groupcoord_spark.assignors.topic_ids import topic_id_of

_MOST_PASSES = 16


class HeterogeneousUniform:
    """Keeps the current target, assigns the free partitions, then moves partitions topic by topic until each topic is balanced.

    members: in map order. A member is known by its number, its index in that order. ``_sizes`` (partitions by number) and ``_owners``
    (topic -> number of the owner by partition) always change together.
    """

    def __init__(self, members: Sequence[Member], topics: Topics) -> None:
        self._members = members
        numbers = {member.member_id: number for number, member in enumerate(members)}
        subscribers = {
            topic: [numbers[member.member_id] for member in naming] for topic, naming in subscribers_by_topic(members, topics).items()
        }
        # Topics with the most partitions per subscriber come first.
        in_order = sorted(
            subscribers,
            key=lambda topic: (-topics[topic].partitions / len(subscribers[topic]), len(subscribers[topic]), topic_id_of(topic, topics)),
        )
        self._subscribers = {topic: subscribers[topic] for topic in in_order}
        self._sizes = [0] * len(members)
        self._owners: dict[str, list[int | None]] = {topic: [None] * topics[topic].partitions for topic in self._subscribers}
        self._keep_targets()
        for topic in self._subscribers:
            self._assign_free(topic)
        self._balance_all()

    def assignment(self) -> dict[str, list[TopicPartition]]:
        """Member id -> assigned partitions."""
        partitions_by_member: dict[str, list[TopicPartition]] = {member.member_id: [] for member in self._members}
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner is not None:
                    partitions_by_member[self._members[owner].member_id].append(TopicPartition(topic, partition))
        return partitions_by_member

    def _keep_targets(self) -> None:
        for number, member in enumerate(self._members):
            subscribed = frozenset(member.topics)
            for topic, partition in member.owned:
                if topic in subscribed and topic in self._owners and partition < len(self._owners[topic]):
                    self._owners[topic][partition] = number
                    self._sizes[number] += 1

    def _assign_free(self, topic: str) -> None:
        owners = self._owners[topic]
        free = [partition for partition, owner in enumerate(owners) if owner is None]
        if free:
            takers = _LeastLoaded(self._by_size(topic), self._sizes)
            for partition in free:
                number, _ = takers.take()
                owners[partition] = number
                self._sizes[number] += 1

    def _by_size(self, topic: str) -> list[int]:
        return sorted(self._subscribers[topic], key=lambda number: (self._sizes[number], number))

    def _balance_all(self) -> None:
        """Balance the topics with several subscribers in turn, until a whole pass moves nothing, and at most in 16 passes."""
        shared = [topic for topic, subscribers in self._subscribers.items() if len(subscribers) > 1]
        last_moved = None
        for _ in range(_MOST_PASSES):
            for topic in shared:
                if topic == last_moved:
                    return
                if self._balance(topic) or last_moved is None:
                    last_moved = topic

    def _balance(self, topic: str) -> bool:
        """Move partitions of the topic from the subscribers with the most to those with the fewest. Returns whether a partition moved."""
        by_size = self._by_size(topic)
        if self._sizes[by_size[-1]] - self._sizes[by_size[0]] <= 1:
            return False
        owners = self._owners[topic]
        offers: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            if owner is not None:
                offers.setdefault(owner, []).append(partition)
        givers = _MostLoaded(by_size, self._sizes, offers)
        takers = _LeastLoaded(by_size, self._sizes)
        has_moved = False
        while (giving := givers.take()) is not None:
            giver, most = giving
            taker, least = takers.take()
            if most - least <= 1:
                break
            owners[offers[giver].pop()] = taker
            self._sizes[giver] -= 1
            self._sizes[taker] += 1
            has_moved = True
        return has_moved


class _LeastLoaded:
    """Returns the member with the fewest partitions, again and again. The caller gives each returned member one partition more.

    by_size: members ascending by size, not empty. Of members with equal sizes the first in this order comes first.
    """

    def __init__(self, by_size: list[int], sizes: list[int]) -> None:
        self._heap = [(sizes[number], place, number) for place, number in enumerate(by_size)]

    def take(self) -> tuple[int, int]:
        """The next member, and its size before the caller adds a partition."""
        size, place, number = self._heap[0]
        heapreplace(self._heap, (size + 1, place, number))
        return number, size


class _MostLoaded:
    """Returns the member with the most partitions among those that own a partition of the topic, again and again.

    The caller takes one partition from each returned member.
    by_size: members ascending by size, not empty. The candidates are from ``_start`` to ``_end``; a member without a partition of the topic
    is swapped with the last candidate, and is no candidate any more.
    """

    def __init__(self, by_size: list[int], sizes: list[int], offers: dict[int, list[int]]) -> None:
        self._by_size = by_size
        self._sizes = sizes
        self._offers = offers
        self._start = self._end = len(by_size)
        self._next = self._start - 1
        self._level = 0

    def take(self) -> tuple[int, int] | None:
        """The next member, and its size before the caller takes a partition; None if no member owns a partition of the topic."""
        by_size = self._by_size
        while self._next >= self._start or self._go_down():
            member = by_size[self._next]
            if self._offers.get(member):
                self._next -= 1
                return member, self._level
            self._end -= 1
            by_size[self._next], by_size[self._end] = by_size[self._end], by_size[self._next]
            self._next -= 1
        return None

    def _go_down(self) -> bool:
        """Go to the next lower size, from its last member. False if there are no members left."""
        if self._start < self._end:
            self._level -= 1
        elif self._start > 0:
            self._level = self._sizes[self._by_size[self._start - 1]]
        else:
            return False
        while self._start > 0 and self._sizes[self._by_size[self._start - 1]] == self._level:
            self._start -= 1
        self._next = self._end - 1
        return True
