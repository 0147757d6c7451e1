"""Uniform assignment of a group whose members name different topics (UniformHeterogeneousAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord_spark.assignors.membership import Member, TopicPartition, Topics, subscribers_by_topic
from groupcoord_spark.assignors.topic_ids import topic_id_of

_MOST_PASSES = 16


class HeterogeneousUniform:
    """Keeps the target so far, hands out what is free, then moves partitions topic by topic until each topic is level.

    members: in map order, in which they are numbered; sizes and owners change together.
    """

    def __init__(self, members: Sequence[Member], topics: Topics) -> None:
        self._members = members
        numbers = {member.member_id: number for number, member in enumerate(members)}
        subscribers = {
            topic: [numbers[member.member_id] for member in naming] for topic, naming in subscribers_by_topic(members, topics).items()
        }
        # the topics that weigh most on their subscribers come first
        in_order = sorted(
            subscribers,
            key=lambda topic: (-topics[topic].partitions / len(subscribers[topic]), len(subscribers[topic]), topic_id_of(topic, topics)),
        )
        self._subscribers = {topic: subscribers[topic] for topic in in_order}
        self._sizes = [0] * len(members)
        self._owners: dict[str, list[int | None]] = {topic: [None] * topics[topic].partitions for topic in self._subscribers}
        self._keep_targets()
        for topic in self._subscribers:
            self._hand_out_free(topic)
        self._level_all()

    def held(self) -> dict[str, list[TopicPartition]]:
        """By member id, what it gets."""
        held: dict[str, list[TopicPartition]] = {member.member_id: [] for member in self._members}
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner is not None:
                    held[self._members[owner].member_id].append(TopicPartition(topic, partition))
        return held

    def _keep_targets(self) -> None:
        for number, member in enumerate(self._members):
            subscribed = frozenset(member.topics)
            for topic, partition in member.owned:
                if topic in subscribed and topic in self._owners and partition < len(self._owners[topic]):
                    self._owners[topic][partition] = number
                    self._sizes[number] += 1

    def _hand_out_free(self, topic: str) -> None:
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

    def _level_all(self) -> None:
        """Level the topics with several subscribers in turn, until a whole turn moves nothing, or 16 turns are over."""
        shared = [topic for topic, subscribers in self._subscribers.items() if len(subscribers) > 1]
        last_moved = None
        for _ in range(_MOST_PASSES):
            for topic in shared:
                if topic == last_moved:
                    return
                if self._level(topic) or last_moved is None:
                    last_moved = topic

    def _level(self, topic: str) -> bool:
        """Move partitions of the topic from its most to its least loaded subscribers; whether any moved."""
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
    """Names the least loaded members again and again, each supposed to grow by one when it is named.

    by_size: members ascending by size, not empty. Those named so far lie in front of ``_end`` and are all of one level when ``_next``
    comes round.
    """

    def __init__(self, by_size: list[int], sizes: list[int]) -> None:
        self._by_size = by_size
        self._sizes = sizes
        self._level = sizes[by_size[0]] - 1
        self._end = self._next = 0

    def take(self) -> tuple[int, int]:
        """The next member and the size it has."""
        if self._next == self._end:
            self._level += 1
            while self._end < len(self._by_size) and self._sizes[self._by_size[self._end]] == self._level:
                self._end += 1
            self._next = 0
        self._next += 1
        return self._by_size[self._next - 1], self._level


class _MostLoaded:
    """Names the most loaded members that have something to offer, each supposed to shrink by one when it is named.

    by_size: members ascending by size, not empty. Those that may be named lie from ``_start`` to ``_end``; who has nothing to offer
    changes place with the last of them and is out.
    """

    def __init__(self, by_size: list[int], sizes: list[int], offers: dict[int, list[int]]) -> None:
        self._by_size = by_size
        self._sizes = sizes
        self._offers = offers
        self._start = self._end = len(by_size)
        self._next = self._start - 1
        self._level = 0

    def take(self) -> tuple[int, int] | None:
        """The next member and the size it has; None if nobody has anything to offer."""
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
        """Begin with the next level from its right end; False if nobody is left."""
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
