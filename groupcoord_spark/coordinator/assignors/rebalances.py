"""The rebalances that a group goes through until every partition has an owner again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groupcoord_spark.coordinator.assignors.figures import figures_of
from groupcoord_spark.coordinator.assignors.membership import Assignment, Assignor, Member, Topics


def rebalances(assignor: Assignor, members: Sequence[Member], topics: Topics) -> tuple[Assignment, ...]:
    """The assignment of each rebalance, the last one being the one that stays.

    Only cooperative-sticky needs more than one: what one rebalance takes from its owner, the next one hands out. After each, the members
    join again with what they then own, in a new generation.
    """
    generation = max((member.generation for member in members), default=0)
    assignments = [assignor(members, topics)]
    while figures_of(members, topics, assignments[-1]).unassigned:
        generation += 1
        members = [replace(member, owned=assignments[-1][member.member_id], generation=generation) for member in members]
        assignments.append(assignor(members, topics))
    return tuple(assignments)
