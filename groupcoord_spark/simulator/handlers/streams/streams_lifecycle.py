"""Streams groups end and come back: DeleteGroups and expiration, a classic group in place of an Empty one, loads and unloads.

Rules: docs/reference/coordinator.md, chapters 10 and 13.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from groupcoord_spark.coordinator.groups.streams import StreamsGroup as ReplayedGroup
from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.broker.broker import Broker, OffsetsPartition
from groupcoord_spark.simulator.groups.streams_group import StreamsGroup, group_tombstones
from groupcoord_spark.simulator.groups.streams_tasks import UNREVOKED
from groupcoord_spark.simulator.handlers.streams.streams_heartbeat import StreamsStep
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.records import RecordToWrite, WrittenRecord


def delete_streams_group(
    broker: Broker,
    group: StreamsGroup,
    offset_tombstones: Sequence[RecordToWrite] = (),
    undo_offsets: Callable[[], None] | None = None,
    deleted: Mapping[OffsetKey, StoredOffset] | None = None,
) -> Error:
    """Write the tombstones of an Empty group after those of its offsets, and forget the group. Returns the error of the append.

    Args:
        undo_offsets: puts the deleted offsets back, if the append fails later.
        deleted: these offsets.
    """
    partition = broker.partition_of(group.group_id)

    def undo() -> None:
        partition.streams_groups[group.group_id] = group
        if undo_offsets is not None:
            undo_offsets()

    records = [*offset_tombstones, *group_tombstones(group.group_id)]
    error = broker.append_tombstones(group.group_id, records, undo, group, deleted)
    if error is Error.NONE:
        del partition.streams_groups[group.group_id]
        StreamsGroup.cancel_timer(partition.streams_initial_delays, group.group_id)
    return error


def load_streams_group(broker: Broker, group_id: str, replayed: ReplayedGroup, records: Iterable[WrittenRecord]) -> None:
    """A streams group after the load of its partition. Sessions, and the rebalance timeouts of members that give up tasks, start now."""
    group = StreamsGroup(group_id, replayed)
    known: frozenset[str] = frozenset()
    for record in records:
        if record.key is not None and record.key.get("group_id") == group_id:
            group.note(record.key_type, record.value)
            if record.key_type == KeyType.STREAMS_GROUP_MEMBER_METADATA:
                known = known | {record.key["member_id"]} if record.value is not None else known - {record.key["member_id"]}
                group.grow(len(known))
    broker.partition_of(group_id).streams_groups[group_id] = group
    step = StreamsStep(broker, group_id)
    for member_id in group.members:
        group.note_tasks(member_id)
        step.restart_session(group, member_id)
        current = group.current_of(member_id)
        if current.state == UNREVOKED:
            step.start_rebalance_timer(group, member_id, current.epoch, group.metadata_of(member_id)["rebalance_timeout_ms"])


def unload_streams_groups(partition: OffsetsPartition) -> None:
    """Stop the timers of the streams groups of a partition that the broker loses."""
    for group in partition.streams_groups.values():
        for member_id in list(group.members):
            group.cancel_timers(member_id)
    for group_id in list(partition.streams_initial_delays):
        StreamsGroup.cancel_timer(partition.streams_initial_delays, group_id)
