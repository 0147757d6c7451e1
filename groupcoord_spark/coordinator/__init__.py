"""The rules of Kafka's group coordinator in plain Python: state after each record, and what expires when and why.

``PartitionReplay`` takes the decoded records of one offsets partition in the order of their offsets. ``PartitionState`` has the rows of the
state tables: committed, pending and orphan offsets, groups of every type with members and assignments, and a warning for each record that a
broker's loader would refuse. ``Cleanup`` computes what the coordinator's cleanup removes at a given time. ``Semantics`` has the differences
between broker releases: Kafka 4.x, and the Scala coordinators of 0.8.2 to 3.9. Nothing here reads bytes of batches, files or the clock.
"""

from groupcoord_spark.coordinator.broker_settings import BrokerSettings, DefaultAssignors, read_broker_settings
from groupcoord_spark.coordinator.expiration import Cleanup, GroupCleanup, GroupFacts
from groupcoord_spark.coordinator.replay import PartitionReplay
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics, semantics_for
from groupcoord_spark.coordinator.state import GroupRow, PartitionState
from groupcoord_spark.coordinator.transactions import StoredOffset
from groupcoord_spark.moments import read_duration
