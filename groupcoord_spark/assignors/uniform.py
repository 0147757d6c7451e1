"""The broker's default assignor for consumer groups (KIP-848, UniformAssignor with UniformHomogeneousAssignmentBuilder).

Rules: docs/reference/coordinator.md, chapter 13.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order, in_order_of_copy, slots_of_copy
from groupcoord_spark.assignors.membership import Assignment, Member, TopicPartition, Topics, assignment_of
from groupcoord_spark.assignors.topic_ids import topic_id_of
from groupcoord_spark.assignors.uniform_heterogeneous import HeterogeneousUniform


def uniform_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """The assignment that is as balanced as the subscriptions allow, and keeps much of the current target assignment.

    There are two algorithms, one for groups whose members all subscribe to the same topics (including topics that do not exist). Racks are
    not considered. Topics that do not exist are left out.

    Args:
        members: in the order in which they joined; ``topics`` and ``owned`` (the current target) in the order of their records.
        topics: each needs its topic id.
    """
    return uniform_from_ordered_targets([_in_broker_order(member, topics) for member in members], topics)


def uniform_from_ordered_targets(members: Sequence[Member], topics: Topics) -> Assignment:
    """The uniform assignment of members whose topics and targets are in the iteration order of the broker's collections.

    That order decides which partitions a member keeps of a target that is too large.
    """
    by_id = {member.member_id: member for member in members}
    in_map_order = [by_id[member_id] for member_id in in_hash_order(by_id, hash_of_text)]
    if len({frozenset(member.topics) for member in members}) <= 1:
        return assignment_of(_homogeneous(in_map_order, topics))
    return assignment_of(HeterogeneousUniform(in_map_order, topics).assignment())


def _in_broker_order(member: Member, topics: Topics) -> Member:
    """The member with its topics and its target in the iteration order of the broker's collections.

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
