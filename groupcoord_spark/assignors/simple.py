"""The broker's assignor of share groups (KIP-932, group-coordinator's SimpleAssignor): several members may have the same partition.

Rules: docs/reference/coordinator.md, chapter 13.6.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil
from operator import itemgetter
from typing import Final

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order, in_order_of_copy
from groupcoord_spark.assignors.topic_ids import parse_topic_id

Partition = tuple[str, int]
"""(topic id, partition)"""
Targets = dict[str, dict[str, list[int]]]
"""Member id -> topic id -> partitions. A topic may have an empty list: the broker writes such a topic too."""

_UINT32: Final = 0xFFFFFFFF


def simple_assignment(
    subscriptions: Mapping[str, Collection[str]],
    current: Mapping[str, Mapping[str, Sequence[int]]],
    assignable: Mapping[str, Sequence[int]],
    *,
    is_homogeneous: bool,
) -> Targets:
    """Return the target assignment of a share group.

    Every partition gets as many members as are needed for each member to have one, and members keep what they have. If all members
    subscribe to the same topics, their shares are even over all partitions, else over each topic.

    Args:
        subscriptions: member id -> ids of the topics that exist and that the member subscribes to, the topics in the order of a HashSet
            of their names.
        current: member id -> its target assignment until now.
        assignable: topic id -> partitions whose share state is there, for all subscribed topics.
        is_homogeneous: whether all members name the same topics, those that do not exist included.
    """
    members = in_hash_order(subscriptions, hash_of_text)
    targets: Targets = {
        member: {topic: in_order_of_copy(numbers) for topic, numbers in current.get(member, {}).items()} for member in members
    }
    topics = list(dict.fromkeys(topic for member in members for topic in subscriptions[member]))
    if not topics:
        return {member: {} for member in members}
    if is_homogeneous:
        for owned in targets.values():
            for topic in set(owned) - set(topics):
                del owned[topic]
        _share(members, dict(enumerate(members)), targets, [(topic, number) for topic in topics for number in assignable.get(topic, ())])
        return _sorted(targets)
    for topic in in_hash_order(topics, _hash_of_topic):
        subscribers = {index: member for index, member in enumerate(members) if topic in subscriptions[member]}
        _share(members, subscribers, targets, [(topic, number) for number in assignable.get(topic, ())], only=topic)
    return _sorted(targets)


def _sorted(targets: Targets) -> Targets:
    return {member: {topic: sorted(numbers) for topic, numbers in of.items()} for member, of in targets.items()}


def _share(
    members: Sequence[str], subscribers: Mapping[int, str], targets: Targets, partitions: Sequence[Partition], only: str | None = None
) -> None:
    """Share partitions among the subscribers. only: the topic that alone is looked at; None: all topics."""
    sharing = -(-len(subscribers) // len(partitions)) if partitions else 0
    share = sharing * len(partitions) / len(subscribers)
    desired = {index: ceil(share * (at + 1)) - ceil(share * at) for at, index in enumerate(subscribers)}
    hash_of = _hash_of_partition if only is None else itemgetter(1)
    owned: dict[int, list[Partition]] = {}
    owners: dict[Partition, list[int]] = {}
    for index, member in enumerate(members):
        topics = in_hash_order(targets[member], _hash_of_topic) if only is None else [only] if only in targets[member] else []
        owned[index] = [(topic, number) for topic in topics for number in targets[member][topic]]
        for partition in owned[index]:
            owners.setdefault(partition, []).append(index)

    def give_up(index: int, partition: Partition) -> None:
        topic, number = partition
        targets[members[index]][topic].remove(number)
        owned[index].remove(partition)

    owners = {partition: in_hash_order(indexes, int) for partition, indexes in owners.items()}
    for index in list(owned):
        surplus = max(len(owned[index]) - desired.get(index, 0), 0)
        for partition in in_hash_order(owned[index], hash_of)[:surplus]:
            owners[partition].remove(index)
            give_up(index, partition)
    for partition, indexes in owners.items():
        while len(indexes) > sharing:
            give_up(indexes.pop(0), partition)
    for partition in partitions:
        owners.setdefault(partition, [])
    # Java's computeIfAbsent puts a key before the others of its slot.
    ordered = in_hash_order(reversed(owners), hash_of, _slots_for(len(partitions), len(owners)))
    unfilled = [index for index in subscribers if len(owned[index]) < desired[index]]
    _give_missing([(partition, owners[partition]) for partition in ordered], unfilled, owned, desired, sharing)
    for index in subscribers:
        of_member = targets[members[index]]
        for topic, number in owned[index]:
            if number not in of_member.setdefault(topic, []):
                of_member[topic].append(number)


def _give_missing(
    partitions: Iterable[tuple[Partition, list[int]]],
    unfilled: list[int],
    owned: Mapping[int, list[Partition]],
    desired: Mapping[int, int],
    sharing: int,
) -> None:
    """Give each partition with too few members to the next unfilled members, round by round."""
    at, has_given = 0, False
    for partition, indexes in partitions:
        missing = sharing - len(indexes)
        while missing > 0:
            if at >= len(unfilled):
                if not has_given:
                    break
                at, has_given = 0, False
                if not unfilled:
                    return
            index = unfilled[at]
            if index in indexes:
                at += 1
                continue
            indexes.append(index)
            owned[index].append(partition)
            missing -= 1
            has_given = True
            if len(owned[index]) >= desired[index]:
                del unfilled[at]
            else:
                at += 1
        if not unfilled:
            return


def _slots_for(expected: int, keys: int) -> int:
    """Return the slots of a HashMap created for ``expected`` keys after ``keys`` puts."""
    slots = 1
    while slots < int((expected + 1) / 0.75 + 1):
        slots *= 2
    while keys > slots * 3 // 4:
        slots *= 2
    return slots


def _hash_of_topic(topic_id: str) -> int:
    return parse_topic_id(topic_id).java_hash()


def _hash_of_partition(partition: Partition) -> int:
    return (31 * _hash_of_topic(partition[0]) + partition[1]) & _UINT32
