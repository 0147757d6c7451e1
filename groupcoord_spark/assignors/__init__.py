"""Who reads which partition: Kafka's assignors as functions of a group's members and topics.

An assignor takes the members, in the order in which the coordinator's map took them, and the topics the cluster has, and gives what
each member is to hold. Where Kafka's answer hangs on the order of its hash maps, so does this one. The rules are those of 4.x.
"""

from __future__ import annotations

from groupcoord_spark.assignors.comparison import Comparison, MemberChange, OwnerChange, compare_assignments
from groupcoord_spark.assignors.membership import (
    NO_GENERATION,
    Assignment,
    Assignor,
    Member,
    Topic,
    TopicPartition,
    Topics,
)
from groupcoord_spark.assignors.quality import AssignmentQuality, Balance, balance_of, quality_of
from groupcoord_spark.assignors.range import range_assignment
from groupcoord_spark.assignors.rebalances import RebalanceSequence, rebalances_until_stable
from groupcoord_spark.assignors.roundrobin import roundrobin_assignment
from groupcoord_spark.assignors.server_range import server_range_assignment
from groupcoord_spark.assignors.sticky import cooperative_sticky_assignment, sticky_assignment
from groupcoord_spark.assignors.uniform import uniform_assignment, uniform_from_ordered_targets

CLIENT_ASSIGNORS: dict[str, Assignor] = {
    "range": range_assignment,
    "roundrobin": roundrobin_assignment,
    "sticky": sticky_assignment,
    "cooperative-sticky": cooperative_sticky_assignment,
}
"""By the name a classic group votes for (its protocol)."""

SERVER_ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignment, "range": server_range_assignment}
"""By the name a consumer group asks for (group.remote.assignor)."""

__all__ = [
    "CLIENT_ASSIGNORS",
    "NO_GENERATION",
    "SERVER_ASSIGNORS",
    "Assignment",
    "AssignmentQuality",
    "Assignor",
    "Balance",
    "Comparison",
    "Member",
    "MemberChange",
    "OwnerChange",
    "RebalanceSequence",
    "Topic",
    "TopicPartition",
    "Topics",
    "balance_of",
    "compare_assignments",
    "cooperative_sticky_assignment",
    "quality_of",
    "range_assignment",
    "rebalances_until_stable",
    "roundrobin_assignment",
    "server_range_assignment",
    "sticky_assignment",
    "uniform_assignment",
    "uniform_from_ordered_targets",
]
