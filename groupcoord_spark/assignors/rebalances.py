"""The rebalances that a group goes through until every partition has an owner again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from groupcoord_spark.assignors.membership import Assignment, Assignor, Member, Topics
from groupcoord_spark.assignors.quality import quality_of


@dataclass(frozen=True, slots=True)
class RebalanceSequence:
    """One assignment a rebalance, in order; the last one stays if the group converges.

    converges: False if the last assignment was one of the earlier ones already: the group would go round for ever. Partitions then lack an
    owner in each of them.
    """

    assignments: tuple[Assignment, ...]
    converges: bool


def rebalances_until_stable(assignor: Assignor, members: Sequence[Member], topics: Topics) -> RebalanceSequence:
    """What the group gets from rebalance to rebalance until nothing waits for its owner to give it up.

    Only cooperative-sticky needs more than one: what one rebalance takes from its owner, the next one hands out. After each, the members
    join again with what they then own, in a new generation.
    """
    generation = max((member.generation for member in members), default=0)
    assignments = [assignor(members, topics)]
    while quality_of(members, topics, assignments[-1]).unassigned:
        if assignments[-1] in assignments[:-1]:
            return RebalanceSequence(tuple(assignments), converges=False)
        generation += 1
        members = [replace(member, owned=assignments[-1][member.member_id], generation=generation) for member in members]
        assignments.append(assignor(members, topics))
    return RebalanceSequence(tuple(assignments), converges=True)
