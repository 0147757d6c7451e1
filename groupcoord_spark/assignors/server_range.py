"""The broker's range assignor for consumer groups (KIP-848, group-coordinator's RangeAssignor).

Rules: docs/reference/coordinator.md, chapter 13.1.
"""

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


def server_range_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """Consecutive partitions of each topic for its subscribers, static members first. The first subscribers get one partition more.

    Racks and the current target assignment are not considered. Topics that do not exist are left out.
    """
    partitions_by_member: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for topic, subscribers in subscribers_by_topic(static_first(members), topics).items():
        quota, extra = divmod(topics[topic].partitions, len(subscribers))
        start = 0
        for i, member in enumerate(subscribers):
            end = start + quota + (1 if i < extra else 0)
            partitions_by_member[member.member_id] += (TopicPartition(topic, partition) for partition in range(start, end))
            start = end
    return assignment_of(partitions_by_member)
