"""The end of consumer groups: DeleteGroups, and a classic group that takes the place of an Empty one."""

from collections.abc import Sequence

from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.consumer_group import ConsumerGroup, group_tombstones
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.records import RecordToWrite


def remove_consumer_group(broker: Broker, group: ConsumerGroup, offset_tombstones: Sequence[RecordToWrite] = ()) -> Error:
    """Write the tombstones of the group after those of its offsets, and forget the group. Returns the error of the append."""
    error, _ = broker.append(group.group_id, [*offset_tombstones, *group_tombstones(group)])
    if error is not Error.NONE:
        return broker.release.group_append_errors.get(error, error)
    for member_id in list(group.members):
        group.cancel_timers(member_id)
    del broker.partition_of(group.group_id).consumer_groups[group.group_id]
    return Error.NONE
