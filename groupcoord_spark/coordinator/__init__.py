"""What the group coordinator knows after each record, what it would expire and why.

The room takes decoded records of one offsets partition in offset order (``PartitionReplay``) and answers with the rows of the state tables
(``PartitionState``): offsets committed, pending and orphaned, groups of every kind with members and assignments, and a warning for each
record that a broker's loader would have refused. ``Cleanup`` says what a cleanup of offsets does at a given moment. Which broker's rules
hold is a value (``Semantics``): Kafka 4.x, or the Scala coordinators of 0.8.2 to 3.9. No bytes of batches, no clock, no files.
"""

from groupcoord_spark.coordinator.authors import other_coordinator
from groupcoord_spark.coordinator.broker_settings import BrokerSettings, DefaultAssignors, read_broker_settings
from groupcoord_spark.coordinator.expiration import Cleanup, GroupCleanup, GroupExpiry, GroupFacts, OffsetExpiry, Tombstone
from groupcoord_spark.coordinator.refusals import RULE_OF_REASON
from groupcoord_spark.coordinator.replay import PartitionReplay
from groupcoord_spark.coordinator.retention import read_duration
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics, semantics_for
from groupcoord_spark.coordinator.state import AssignmentRow, GroupRow, LoadWarning, MemberRow, OffsetRow, PartitionState
from groupcoord_spark.coordinator.transactions import StoredOffset

__all__ = [
    "JAVA",
    "RULE_OF_REASON",
    "SCALA",
    "AssignmentRow",
    "BrokerSettings",
    "Cleanup",
    "DefaultAssignors",
    "GroupCleanup",
    "GroupExpiry",
    "GroupFacts",
    "GroupRow",
    "LoadWarning",
    "MemberRow",
    "OffsetExpiry",
    "OffsetRow",
    "PartitionReplay",
    "PartitionState",
    "Semantics",
    "StoredOffset",
    "Tombstone",
    "other_coordinator",
    "read_broker_settings",
    "read_duration",
    "semantics_for",
]
