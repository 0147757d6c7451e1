"""The broker's default assignor for consumer groups (KIP-848, group-coordinator's UniformAssignor)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order, in_order_of_copy, slots_of_copy
from groupcoord_spark.assignors.membership import (
    Assignment,
    Member,
    TopicPartition,
    Topics,
    assignment_of,
)
from groupcoord_spark.assignors.topic_ids import topic_id_of
from groupcoord_spark.assignors.uniform_heterogeneous import HeterogeneousUniform


def uniform_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """As balanced as the subscriptions allow, and near to the target so far, which is what each member owns.

    The subscriptions choose between two algorithms: whether all members name the same topics, unknown ones included.
    It does not look at racks. Names the cluster lacks are left out; the others need their topic id.
    members: in the order in which they joined, with topics and target as their records list them.
    """
    return uniform_from_ordered_targets([_as_the_broker_walks_it(member, topics) for member in members], topics)


def uniform_from_ordered_targets(members: Sequence[Member], topics: Topics) -> Assignment:
    """The uniform assignment of members whose topics and targets stand in the order in which the assignor walks them.

    That order decides which partitions a member keeps of a target that is too large.
    """
    by_id = {member.member_id: member for member in members}
    in_map_order = [by_id[member_id] for member_id in in_hash_order(by_id, hash_of_text)]
    if len({frozenset(member.topics) for member in members}) <= 1:
        return assignment_of(_homogeneous(in_map_order, topics))
    return assignment_of(HeterogeneousUniform(in_map_order, topics).held())


def _as_the_broker_walks_it(member: Member, topics: Topics) -> Member:
    """The member with topics and target in the order of the collections in which the broker keeps them.

    Kafka 4.0 to 4.3 make these collections of the member's records, those read from the log as well as those just written: topics in a
    HashSet of names; the target in a HashMap by topic id, filled in the order of the record, with a HashSet of the partitions of each
    topic (Assignment.fromRecord).
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
    """Let each member keep of its target what its share holds, and fill the others up from what is free.

    members: in map order, their topics and targets as the assignor walks them.
    """
    held: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    subscribed = dict.fromkeys(topic for topic in members[0].topics if topic in topics) if members else {}
    if not subscribed:
        return held
    targeted = {partition for member in members for partition in member.owned}
    in_order = in_hash_order(subscribed, _id_hash(topics), slots_of_copy(len(subscribed)))
    everything = [TopicPartition(topic, number) for topic in in_order for number in range(topics[topic].partitions)]
    free = [partition for partition in everything if partition not in targeted]
    share, extras = divmod(len(everything), len(members))
    wanting: list[tuple[str, int]] = []
    for i, member in enumerate(members):
        has_extra = extras > 0
        room = share + (1 if has_extra else 0)
        for topic, partitions in _by_topic(member, topics).items():
            if topic in subscribed:
                target = [TopicPartition(topic, partition) for partition in partitions]
                held[member.member_id] += target[:room]
                free += target[room:]
                room -= min(room, len(target))
        if room > 0 and has_extra and len(members) - i > extras:
            # members are left that may have to keep an extra one: this one can do without
            has_extra = False
            room -= 1
        if room > 0:
            wanting.append((member.member_id, room))
        if has_extra:
            extras -= 1
    start = 0
    for member_id, room in wanting:
        held[member_id] += free[start : start + room]
        start += room
    return held


def _by_topic(member: Member, topics: Topics) -> dict[str, list[int]]:
    """The partitions of the member's target that exist, by topic, in the order given."""
    targets: dict[str, list[int]] = {}
    for topic, partition in member.owned:
        if topic in topics and partition < topics[topic].partitions:
            targets.setdefault(topic, []).append(partition)
    return targets


def _id_hash(topics: Topics) -> Callable[[str], int]:
    return lambda topic: topic_id_of(topic, topics).java_hash()
