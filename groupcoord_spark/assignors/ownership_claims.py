"""The owner of each partition before a sticky rebalance, from the claims of the members (KAFKA-12984, KAFKA-13715).

A member claims the partitions that its subscription lists as owned. Members of different generations may claim the same partition.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from groupcoord_spark.assignors.membership import NO_GENERATION, Member, TopicPartition


@dataclass(frozen=True, slots=True)
class ResolvedClaims:
    """The owners of partitions according to the claims of all members.

    owned: member id -> partitions that the member owns, in the member's order.
    contested: partitions that were claimed twice in one generation.
    """

    owned: dict[str, tuple[TopicPartition, ...]]
    contested: frozenset[TopicPartition]


def resolve_claims(members: Iterable[Member], topics: Container[str]) -> ResolvedClaims:
    """Resolve the owners of these topics' partitions by the rules of AbstractStickyAssignor since 3.4.

    The claim of a higher generation wins. After two claims of one generation the partition has no owner.

    Args:
        members: in map order.
    """
    owned: dict[str, dict[TopicPartition, None]] = {}
    contested: set[TopicPartition] = set()
    last_claim: dict[TopicPartition, Member] = {}
    for member in members:
        owned_by_member = owned[member.member_id] = {}
        for partition in member.owned:
            if partition.topic not in topics:
                continue
            rival = last_claim.get(partition)
            if rival is not None:
                if rival.generation > member.generation:
                    continue
                owned[rival.member_id].pop(partition, None)
            last_claim[partition] = member
            if rival is not None and rival.generation == member.generation:
                contested.add(partition)
            else:
                owned_by_member[partition] = None
    return ResolvedClaims({member_id: tuple(partitions) for member_id, partitions in owned.items()}, frozenset(contested))


def previous_owners(members: Sequence[Member]) -> dict[TopicPartition, str]:
    """Partition -> the last owner among the members that are behind the newest generation of the group.

    Of two claims of one generation the first in the order of ``members`` wins.
    """
    newest = max((member.generation for member in members), default=NO_GENERATION)
    last: dict[TopicPartition, Member] = {}
    for member in members:
        if member.generation < newest:
            for partition in member.owned:
                if partition not in last or last[partition].generation < member.generation:
                    last[partition] = member
    return {partition: member.member_id for partition, member in last.items()}
