"""The client's round robin assignor (RoundRobinAssignor; docs/reference/coordinator.md, chapter 12.2)."""

from collections.abc import Sequence

from groupcoord_spark.assignors import membership


def roundrobin_assignment(members: Sequence[membership.Member], topics: membership.Topics) -> membership.Assignment:
    """Assign the partitions of all topics, ordered by topic name and number, to the members in turn, static members first.

    Members that do not subscribe to a topic are skipped. The first partition of a topic goes to the member after the owner of the previous
    topic's last partition.
    """
    in_turn = membership.static_first(members)
    partitions_by_member: dict[str, list[membership.TopicPartition]] = {member.member_id: [] for member in members}
    subscribed = [frozenset(member.topics) for member in in_turn]
    turn = 0
    for topic in membership.subscribers_by_topic(members, topics):
        for partition in range(topics[topic].partitions):
            while topic not in subscribed[turn]:
                turn = (turn + 1) % len(in_turn)
            partitions_by_member[in_turn[turn].member_id].append(membership.TopicPartition(topic, partition))
            turn = (turn + 1) % len(in_turn)
    return membership.assignment_of(partitions_by_member)
