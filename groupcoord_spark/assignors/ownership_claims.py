"""Who holds which partition before a sticky rebalance, when members of several generations all claim some (KAFKA-12984, KAFKA-13715)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from groupcoord_spark.assignors.membership import NO_GENERATION, Member, TopicPartition


@dataclass(frozen=True, slots=True)
class ResolvedClaims:
    """What the claims of all members come to.

    owned: by member id, the partitions that are its own, in the order in which it named them.
    contested: partitions that were named twice in one generation at some moment of the reading.
    """

    owned: dict[str, tuple[TopicPartition, ...]]
    contested: frozenset[TopicPartition]


def resolve_claims(members: Iterable[Member], topics: Container[str]) -> ResolvedClaims:
    """Settle the members' claims to partitions of these topics, as AbstractStickyAssignor does since 3.4.

    The higher generation wins over a lower one. Two claims of one generation cancel each other: nobody owns the partition.
    members: in map order.
    """
    owned: dict[str, dict[TopicPartition, None]] = {}
    contested: set[TopicPartition] = set()
    last_claim: dict[TopicPartition, Member] = {}
    for member in members:
        own = owned[member.member_id] = {}
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
                own[partition] = None
    return ResolvedClaims({member_id: tuple(own) for member_id, own in owned.items()}, frozenset(contested))


def previous_owners(members: Sequence[Member]) -> dict[TopicPartition, str]:
    """For each partition claimed by members behind the group's newest generation, who of them held it last.

    The first in the given order wins among claims of one generation.
    """
    newest = max((member.generation for member in members), default=NO_GENERATION)
    last: dict[TopicPartition, Member] = {}
    for member in members:
        if member.generation < newest:
            for partition in member.owned:
                if partition not in last or last[partition].generation < member.generation:
                    last[partition] = member
    return {partition: member.member_id for partition, member in last.items()}
