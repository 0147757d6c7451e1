"""The broker's default assignor for consumer groups (KIP-848, group-coordinator's UniformAssignor)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groupcoord_spark.coordinator.assignors.membership import (
    Assignment,
    Member,
    TopicPartition,
    Topics,
    assignment_of,
)
from groupcoord_spark.coordinator.assignors.topic_ids import topic_id_of
from groupcoord_spark.coordinator.assignors.uniform_heterogeneous import HeterogeneousUniform
from groupcoord_spark.coordinator.java_maps import hash_of_text, in_hash_order, slots_after_puts, slots_of_copy


def uniform_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """As balanced as the subscriptions allow, and near to the target so far, which is what each member owns.

    The subscriptions choose between two algorithms: whether all members name the same topics, unknown ones included.
    It does not look at racks. Names the cluster lacks are left out; the others need their topic id.
    members: in the order in which they joined.
    """
    by_id = {member.member_id: member for member in members}
    in_map_order = [by_id[member_id] for member_id in in_hash_order(by_id, hash_of_text)]
    if len({frozenset(member.topics) for member in members}) <= 1:
        return assignment_of(_homogeneous(in_map_order, topics))
    return assignment_of(HeterogeneousUniform(in_map_order, topics).held())


def _homogeneous(members: Sequence[Member], topics: Topics) -> dict[str, list[TopicPartition]]:
    """Let each member keep of its target what its share holds, and fill the others up from what is free.

    members: in map order.
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
        for of_topic in _targets_by_topic(member, topics):
            if of_topic[0].topic in subscribed:
                held[member.member_id] += of_topic[:room]
                free += of_topic[room:]
                room -= min(room, len(of_topic))
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


def _targets_by_topic(member: Member, topics: Topics) -> list[list[TopicPartition]]:
    """What the member's target holds of each topic, in the order given, the topics in hash order of their ids.

    The broker's map of a target takes new topics in front of those in the same slot (HashMap.computeIfAbsent), and grows one key later.
    """
    targets: dict[str, list[TopicPartition]] = {}
    for partition in member.owned:
        if partition.topic in topics and partition.partition < topics[partition.topic].partitions:
            targets.setdefault(partition.topic, []).append(partition)
    newest_first = reversed(targets)
    return [targets[topic] for topic in in_hash_order(newest_first, _id_hash(topics), slots_after_puts(len(targets) - 1))]


def _id_hash(topics: Topics) -> Callable[[str], int]:
    return lambda topic: topic_id_of(topic, topics).java_hash()
