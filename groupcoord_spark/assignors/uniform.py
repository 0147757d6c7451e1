"""The broker's default assignor for consumer groups (KIP-848, UniformAssignor), whether or not its members subscribe to the same topics.

Rules: docs/reference/coordinator.md, chapter 13.2.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heapreplace

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order, in_order_of_copy, slots_of_copy
from groupcoord_spark.assignors.membership import Assignment, Member, TopicPartition, Topics, assignment_of, subscribers_by_topic
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
        """Return the next member, and its size before the caller adds a partition."""
        size, place, number = self._heap[0]
        heapreplace(self._heap, (size + 1, place, number))
        return number, size


class _MostLoaded:
    """Returns the member with the most partitions among those that own a partition of the topic, again and again.

    The caller takes one partition from each returned member.
    by_size: at least one member, in ascending size. The candidates are ``_start`` to ``_end``; a member without a partition of the topic is
    swapped with the last candidate and dropped.
    """

    def __init__(self, by_size: list[int], sizes: list[int], offers: dict[int, list[int]]) -> None:
        self._by_size = by_size
        self._sizes = sizes
        self._offers = offers
        self._start = self._end = len(by_size)
        self._next = self._start - 1
        self._level = 0

    def take(self) -> tuple[int, int] | None:
        """Return the next member and its size before the caller takes a partition, or None if no member owns a partition of the topic."""
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
        """Move to the last member of the next lower size. Return False if no members are left."""
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


def uniform_assignment(members: Sequence[Member], topics: Topics, *, is_homogeneous: bool | None = None) -> Assignment:
    """Return the most balanced assignment that the subscriptions allow, keeping much of the current target assignment.

    There are two algorithms, one for groups whose members all subscribe to the same topics (including topics that do not exist). Racks are
    not considered. Topics that do not exist are left out.

    Args:
        members: in join order; ``topics`` and ``owned`` (the current target) in the order of their records.
        topics: each needs its topic id.
        is_homogeneous: the group's subscription type, which may be older than the subscriptions; None compares the subscriptions.
    """
    return uniform_from_ordered_targets([_in_broker_order(member, topics) for member in members], topics, is_homogeneous=is_homogeneous)


def uniform_from_ordered_targets(members: Sequence[Member], topics: Topics, *, is_homogeneous: bool | None = None) -> Assignment:
    """Return the uniform assignment of members whose topics and targets are in the iteration order of the broker's collections.

    That order decides which partitions a member keeps of a target that is too large.
    """
    by_id = {member.member_id: member for member in members}
    in_map_order = [by_id[member_id] for member_id in in_hash_order(by_id, hash_of_text)]
    if is_homogeneous or (is_homogeneous is None and len({frozenset(member.topics) for member in members}) <= 1):
        return assignment_of(_homogeneous(in_map_order, topics))
    return assignment_of(HeterogeneousUniform(in_map_order, topics).assignment())


def _in_broker_order(member: Member, topics: Topics) -> Member:
    """Return the member with its topics and target in the iteration order of the broker's collections.

    Kafka 4.0 to 4.3 make these collections from the member's records, whether they were loaded or just written: a HashSet of topic names;
    for the target a HashMap by topic id, filled in the order of the record, with a HashSet of partitions for each topic
    (Assignment.fromRecord).
    """
    names = dict.fromkeys(member.topics)
    targets = _by_topic(member, topics)
    in_order = in_hash_order(targets, _id_hash(topics))
    return replace(
        member,
        topics=tuple(in_hash_order(names, hash_of_text, slots_of_copy(len(names)))),
        owned=tuple(TopicPartition(topic, partition) for topic in in_order for partition in in_order_of_copy(targets[topic])),
    )


def _homogeneous(members: Sequence[Member], topics: Topics) -> dict[str, list[TopicPartition]]:
    """Let each member keep its target up to its quota, then assign the free partitions to the members below their quota.

    members: in map order, with topics and targets in the order of the broker's collections.
    """
    partitions_by_member: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    subscribed = dict.fromkeys(topic for topic in members[0].topics if topic in topics) if members else {}
    if not subscribed:
        return partitions_by_member
    targeted = {partition for member in members for partition in member.owned}
    in_order = in_hash_order(subscribed, _id_hash(topics), slots_of_copy(len(subscribed)))
    everything = [TopicPartition(topic, number) for topic in in_order for number in range(topics[topic].partitions)]
    free = [partition for partition in everything if partition not in targeted]
    quota, extras = divmod(len(everything), len(members))
    below_quota: list[tuple[str, int]] = []
    for i, member in enumerate(members):
        has_extra = extras > 0
        room = quota + (1 if has_extra else 0)
        for topic, partitions in _by_topic(member, topics).items():
            if topic in subscribed:
                target = [TopicPartition(topic, partition) for partition in partitions]
                partitions_by_member[member.member_id] += target[:room]
                free += target[room:]
                room -= min(room, len(target))
        if room > 0 and has_extra and len(members) - i > extras:
            # Enough members follow that may have to keep one partition more than the quota: this member gets no more than the quota.
            has_extra = False
            room -= 1
        if room > 0:
            below_quota.append((member.member_id, room))
        if has_extra:
            extras -= 1
    start = 0
    for member_id, room in below_quota:
        partitions_by_member[member_id] += free[start : start + room]
        start += room
    return partitions_by_member


def _by_topic(member: Member, topics: Topics) -> dict[str, list[int]]:
    """Topic -> partitions of the member's target that exist, in the given order."""
    targets: dict[str, list[int]] = {}
    for topic, partition in member.owned:
        if topic in topics and partition < topics[topic].partitions:
            targets.setdefault(topic, []).append(partition)
    return targets


def _id_hash(topics: Topics) -> Callable[[str], int]:
    return lambda topic: topic_id_of(topic, topics).java_hash()
