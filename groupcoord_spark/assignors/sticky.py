"""The client's two sticky assignors, which differ in when a partition moves (KIP-54 StickyAssignor, KIP-429 CooperativeStickyAssignor)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.membership import (
    Assignment,
    Member,
    TopicPartition,
    Topics,
    assignment_of,
    subscribers_by_topic,
)
from groupcoord_spark.assignors.ownership_claims import previous_owners, resolve_claims
from groupcoord_spark.assignors.racks import group_racks
from groupcoord_spark.assignors.sticky_constrained import ConstrainedSticky
from groupcoord_spark.assignors.sticky_general import GeneralSticky


def sticky_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """As balanced as the subscriptions allow, and as near to what the members own as balance allows.

    Rules of 3.4 and later (racks: 3.5): a member's claim counts unless one of a higher generation stands against it.
    members: in the order of the JoinGroup answer; what each owns is what its user data says.
    """
    return assignment_of(_balanced(members, topics)[0])


def cooperative_sticky_assignment(members: Sequence[Member], topics: Topics) -> Assignment:
    """The sticky assignment without the partitions that another member has still to give up.

    Those go to nobody in this rebalance; their owners revoke them and join again, and the next rebalance hands them out.
    """
    held, changing_hands = _balanced(members, topics)
    return assignment_of(
        {member_id: [partition for partition in partitions if partition not in changing_hands] for member_id, partitions in held.items()}
    )


def _balanced(members: Sequence[Member], topics: Topics) -> tuple[Mapping[str, Sequence[TopicPartition]], set[TopicPartition]]:
    """What each member is to hold in the end, and the partitions among it that change hands from one member to another."""
    if not members:
        return {}, set()
    by_id = {member.member_id: member for member in members}
    in_map_order = [by_id[member_id] for member_id in in_hash_order(by_id, hash_of_text)]
    subscribers = subscribers_by_topic(in_map_order, topics)
    partitions = [TopicPartition(topic, number) for topic in subscribers for number in range(topics[topic].partitions)]
    claims = resolve_claims(in_map_order, subscribers)
    racks = group_racks(in_map_order, subscribers, topics)
    if _is_constrained(in_map_order):
        constrained = ConstrainedSticky(in_map_order, partitions, claims, racks)
        return constrained.held, constrained.changing_hands
    general = GeneralSticky(in_map_order, partitions, claims, previous_owners(in_map_order), racks)
    held = general.held()
    return held, _given_before_revoked(in_map_order, held)


def _is_constrained(members: Sequence[Member]) -> bool:
    """Whether all name the same topics, as the assignor sees it: it passes over members without topics until one has some.

    So a group whose first members name nothing counts as uniform, and they get partitions of topics they never named.
    """
    named: frozenset[str] = frozenset()
    for member in members:
        if not named:
            named = frozenset(member.topics)
        elif named != frozenset(member.topics):
            return False
    return True


def _given_before_revoked(members: Sequence[Member], held: Mapping[str, Sequence[TopicPartition]]) -> set[TopicPartition]:
    """Partitions given to a member that does not say it has them, while another one says so and does not get them."""
    added: set[TopicPartition] = set()
    lost: set[TopicPartition] = set()
    for member in members:
        added.update(set(held[member.member_id]).difference(member.owned))
        lost.update(set(member.owned).difference(held[member.member_id]))
    return added & lost
