"""What all requests share: settings, the rules of the release, the log with its appends, offsets partitions, and steps of groups."""

from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.broker.coordinator_checks import coordinator_error
from groupcoord_spark.simulator.broker.offsets_partition import OffsetsPartition
