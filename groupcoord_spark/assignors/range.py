"""The range assignors of client and broker: consecutive partitions, topic by topic.

Client: RangeAssignor, with racks since 3.5 (KIP-881). Broker: group-coordinator's RangeAssignor for consumer groups (KIP-848).
Rules: docs/reference/coordinator.md, chapters 12.1 and 13.1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from groupcoord_spark.assignors import membership
from groupcoord_spark.assignors.racks import is_in_rack, racks_matter


class _TopicState:
    """One topic during the assignment (Kafka: TopicAssignmentState): its free partitions, and those that each subscriber has.

    quota: partitions for each subscriber. extra: how many subscribers may still take one more than ``quota``.
    """

    def __init__(self, topic: membership.Topic, subscribers: list[membership.Member]) -> None:
        self.topic = topic
        self.subscribers = subscribers
        self.taken: dict[str, list[int]] = {member.member_id: [] for member in subscribers}
        self.free = dict.fromkeys(range(topic.partitions))
        self.quota, self.extra = divmod(topic.partitions, len(subscribers))
        self.has_member_racks = any(member.rack for member in subscribers)
        self.is_rack_aware = racks_matter(
            [member.rack for member in subscribers if member.rack], [topic.racks_of(partition) for partition in self.free]
        )

    def room(self, member: membership.Member) -> int:
        """Return how many more partitions the member may take: one above the quota while ``extra`` is above 0."""
        return max(0, self.quota + (1 if self.extra > 0 else 0) - len(self.taken[member.member_id]))

    def take(self, member: membership.Member, partitions: Iterable[int]) -> None:
        taken = self.taken[member.member_id]
        for partition in partitions:
            del self.free[partition]
            taken.append(partition)
        if len(taken) > self.quota:
            self.extra -= 1

    def take_first(self, member: membership.Member, *, in_its_rack: bool) -> None:
        """Assign the first free partitions to the member, as many as it may still take."""
        room = self.room(member)
        first: list[int] = []
        for partition in self.free:
            if len(first) == room:
                break
            if not in_its_rack or is_in_rack(member, self.topic.racks_of(partition)):
                first.append(partition)
        if first:
            self.take(member, first)


def range_assignment(members: Sequence[membership.Member], topics: membership.Topics) -> membership.Assignment:
    """Consecutive partitions of each topic for its subscribers, static members first. The first subscribers get one partition more.

    If racks matter to a topic, its partitions are first assigned to members in a rack of their replicas. Topics with the same number of
    partitions and the same subscribers are then assigned together, so that one member gets the same partition numbers of all of them.
    The remaining partitions are assigned without racks.
    """
    states = {
        topic: _TopicState(topics[topic], subscribers)
        for topic, subscribers in membership.subscribers_by_topic(membership.static_first(members), topics).items()
    }
    if any(state.is_rack_aware for state in states.values()):
        for copartitioned in _copartitioned_topics(states.values()):
            _assign_by_rack(copartitioned)
    partitions_by_member: dict[str, list[membership.TopicPartition]] = {member.member_id: [] for member in members}
    for topic, state in states.items():
        for member in state.subscribers:
            state.take_first(member, in_its_rack=False)
            partitions_by_member[member.member_id] += (
                membership.TopicPartition(topic, partition) for partition in state.taken[member.member_id]
            )
    return membership.assignment_of(partitions_by_member)


def _copartitioned_topics(states: Iterable[_TopicState]) -> list[list[_TopicState]]:
    """Lists of topics with the same subscribers and the same number of partitions. Topics whose subscribers have no racks are left out."""
    copartitioned: dict[tuple[frozenset[str], int], list[_TopicState]] = {}
    for state in states:
        if state.has_member_racks:
            copartitioned.setdefault((frozenset(state.taken), state.topic.partitions), []).append(state)
    return list(copartitioned.values())


def _assign_by_rack(copartitioned: list[_TopicState]) -> None:
    first = copartitioned[0]
    if len(copartitioned) == 1:
        if first.is_rack_aware:
            for member in first.subscribers:
                first.take_first(member, in_its_rack=True)
        return
    for partition in range(first.topic.partitions):
        for member in first.subscribers:
            if all(state.room(member) > 0 and is_in_rack(member, state.topic.racks_of(partition)) for state in copartitioned):
                for state in copartitioned:
                    state.take(member, [partition])
                break


def server_range_assignment(
    members: Sequence[membership.Member], topics: membership.Topics, *, is_homogeneous: bool | None = None
) -> membership.Assignment:
    """Consecutive partitions of each topic for its subscribers, static members first. The first subscribers get one partition more.

    Racks and the current target assignment are not considered. Topics that do not exist are left out. In a group whose subscription type is
    homogeneous (``is_homogeneous``), all members get the topics of the first one.
    """
    if is_homogeneous and members:
        first = membership.static_first(members)[0]
        members = [replace(member, topics=first.topics) for member in members]
    partitions_by_member: dict[str, list[membership.TopicPartition]] = {member.member_id: [] for member in members}
    for topic, subscribers in membership.subscribers_by_topic(membership.static_first(members), topics).items():
        quota, extra = divmod(topics[topic].partitions, len(subscribers))
        start = 0
        for i, member in enumerate(subscribers):
            end = start + quota + (1 if i < extra else 0)
            partitions_by_member[member.member_id] += (membership.TopicPartition(topic, partition) for partition in range(start, end))
            start = end
    return membership.assignment_of(partitions_by_member)
