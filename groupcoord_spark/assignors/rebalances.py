"""The rebalances of a group until every partition has an owner again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from groupcoord_spark.assignors.membership import Assignment, Assignor, Member, Topics
from groupcoord_spark.assignors.quality import quality_of


@dataclass(frozen=True, slots=True)
class RebalanceSequence:
    """The assignments of consecutive rebalances.

    converges: True if the last assignment is final. False if the last assignment is equal to an earlier one, so that the group would
    rebalance without end; then each of the assignments leaves partitions without an owner.
    """

    assignments: tuple[Assignment, ...]
    converges: bool


def rebalances_until_stable(assignor: Assignor, members: Sequence[Member], topics: Topics) -> RebalanceSequence:
    """The assignments of the rebalances until every partition of a subscribed topic has an owner.

    Only cooperative-sticky needs more than one rebalance: a partition that its owner revokes in one rebalance is assigned in the next.
    After each rebalance the members join again with the partitions that they own then, in a new generation.
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
