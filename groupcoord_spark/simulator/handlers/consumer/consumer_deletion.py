"""The end of consumer groups: DeleteGroups, and a classic group that takes the place of an Empty one."""

from collections.abc import Callable, Mapping, Sequence

from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.groups.clock import Clock
from groupcoord_spark.simulator.groups.consumer_group import ConsumerGroup, group_tombstones
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.records import RecordToWrite


def remove_consumer_group(
    broker: Broker,
    group: ConsumerGroup,
    offset_tombstones: Sequence[RecordToWrite] = (),
    undo_offsets: Callable[[], None] | None = None,
    deleted: Mapping[OffsetKey, StoredOffset] | None = None,
) -> Error:
    """Write the tombstones of the group after those of its offsets, and forget the group. Returns the error of the append.

    Args:
        undo_offsets: puts the deleted offsets back, if the append fails later.
        deleted: these offsets.
    """
    groups = broker.partition_of(group.group_id).consumer_groups
    run_timers_again: list[Callable[[Clock], None]] = []

    def undo() -> None:
        groups[group.group_id] = group
        for run_again in run_timers_again:
            run_again(broker.clock)
        if undo_offsets is not None:
            undo_offsets()

    records = [*offset_tombstones, *group_tombstones(group)]
    error = broker.append_tombstones(group.group_id, records, undo, group, deleted)
    if error is Error.NONE:
        run_timers_again.append(group.stop_timers())
        del groups[group.group_id]
    return error
