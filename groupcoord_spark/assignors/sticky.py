"""The client's two sticky assignors (KIP-54 StickyAssignor, KIP-429 CooperativeStickyAssignor).

They compute the same assignment. The cooperative one moves a partition only after its owner has revoked it.
Rules: docs/reference/coordinator.md, chapter 12.3.
"""

from collections.abc import Mapping, Sequence

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.membership import Assignment, Member, TopicPartition, Topics, assignment_of, subscribers_by_topic
from groupcoord_spark.assignors.ownership_claims import previous_owners, resolve_claims
from groupcoord_spark.assignors.racks import group_racks
from groupcoord_spark.assignors.sticky_constrained import ConstrainedSticky
from groupcoord_spark.assignors.sticky_general import GeneralSticky


def sticky_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """Return the most balanced assignment that the subscriptions allow, keeping as many owners as possible.

    The rules follow 3.4 and later (racks: 3.5): a member owns the partitions that it claims, unless a member of a higher generation claims
    them.

    Args:
        members: in the order of the answer to JoinGroup, with the owned partitions of their user data.
    """
    return assignment_of(_balanced(members, topics)[0])


def cooperative_sticky_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """Return the sticky assignment without partitions that another member must revoke first.

    Such a partition has no owner after this rebalance. Its owner before revokes it and joins again, and the next rebalance assigns it.
    """
    partitions_by_member, moving = _balanced(members, topics)
    return assignment_of(
        {
            member_id: [partition for partition in partitions if partition not in moving]
            for member_id, partitions in partitions_by_member.items()
        }
    )


def _balanced(members: Sequence[Member], topics: Topics) -> tuple[Mapping[str, Sequence[TopicPartition]], set[TopicPartition]]:
    """Return the balanced assignment and the partitions in it that move between members."""
    if not members:
        return {}, set()
    by_id = {member.member_id: member for member in members}
    in_map_order = [by_id[member_id] for member_id in in_hash_order(by_id, hash_of_text)]
    subscribers = subscribers_by_topic(in_map_order, topics)
    partitions = [TopicPartition(topic, number) for topic in subscribers for number in range(topics[topic].partitions)]
    claims = resolve_claims(in_map_order, subscribers)
    racks = group_racks(in_map_order, subscribers, topics)
    if _has_equal_subscriptions(in_map_order):
        constrained = ConstrainedSticky(in_map_order, partitions, claims, racks)
        return constrained.partitions_by_member, constrained.moving
    general = GeneralSticky(in_map_order, partitions, claims, previous_owners(in_map_order), racks)
    partitions_by_member = general.partitions_by_member()
    return partitions_by_member, _moving_partitions(in_map_order, partitions_by_member)


def _has_equal_subscriptions(members: Sequence[Member]) -> bool:
    """Return whether all members subscribe to the same topics, by the assignor's own test.

    The test skips leading members without topics. Such members then receive partitions of topics that they do not subscribe to.
    """
    topics: frozenset[str] = frozenset()
    for member in members:
        if not topics:
            topics = frozenset(member.topics)
        elif topics != frozenset(member.topics):
            return False
    return True


def _moving_partitions(members: Sequence[Member], partitions_by_member: Mapping[str, Sequence[TopicPartition]]) -> set[TopicPartition]:
    """Partitions that a member gets without having claimed them, while another member has claimed them and does not get them."""
    added: set[TopicPartition] = set()
    lost: set[TopicPartition] = set()
    for member in members:
        added.update(set(partitions_by_member[member.member_id]).difference(member.owned))
        lost.update(set(member.owned).difference(partitions_by_member[member.member_id]))
    return added & lost
