"""The client's round robin assignor (RoundRobinAssignor)."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord_spark.assignors.membership import (
    Assignment,
    Member,
    TopicPartition,
    Topics,
    assignment_of,
    static_first,
    subscribers_by_topic,
)


def roundrobin_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """All partitions of all topics by name, one each to the members in turn, static members first.

    Members that do not subscribe to a topic are passed over. A new topic goes on where the one before it stopped.
    """
    in_turn = static_first(members)
    held: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    subscribed = [frozenset(member.topics) for member in in_turn]
    turn = 0
    for topic in subscribers_by_topic(members, topics):
        for partition in range(topics[topic].partitions):
            while topic not in subscribed[turn]:
                turn = (turn + 1) % len(in_turn)
            held[in_turn[turn].member_id].append(TopicPartition(topic, partition))
            turn = (turn + 1) % len(in_turn)
    return assignment_of(held)
