"""Kafka's assignors, as functions from the members and topics of a group to an assignment.

An assignor takes the members, in their order in the coordinator's map, and the topics of the cluster, and returns the partitions of each
member. Ties are broken by the iteration order of Kafka's hash maps, as in Kafka. The rules follow 4.x: docs/reference/coordinator.md,
chapters 12 (client) and 13 (server).
"""

from groupcoord_spark.assignors.comparison import (
    MemberChange,
    OwnerChange,
    balance_of,
    compare_assignments,
    quality_of,
    rebalances_until_stable,
)
from groupcoord_spark.assignors.membership import NO_GENERATION, Assignment, Assignor, Member, ServerAssignor, Topic, TopicPartition, Topics
from groupcoord_spark.assignors.range import range_assignment, server_range_assignment
from groupcoord_spark.assignors.roundrobin import roundrobin_assignment
from groupcoord_spark.assignors.sticky import cooperative_sticky_assignment, sticky_assignment
from groupcoord_spark.assignors.uniform import uniform_assignment, uniform_from_ordered_targets

CLIENT_ASSIGNORS: dict[str, Assignor] = {
    "range": range_assignment,
    "roundrobin": roundrobin_assignment,
    "sticky": sticky_assignment,
    "cooperative-sticky": cooperative_sticky_assignment,
}
"""Protocol name of a classic group -> assignor."""

SERVER_ASSIGNORS: dict[str, ServerAssignor] = {"uniform": uniform_assignment, "range": server_range_assignment}
"""Name in group.remote.assignor of a consumer group's members -> assignor."""
