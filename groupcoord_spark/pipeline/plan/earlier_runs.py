"""What earlier runs know of each offsets partition: how far it was read, and which incarnation of the topic the log belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupcoord_spark.log import LogPlan
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryRange, PointInTime
from groupcoord_spark.pipeline.plan.point_in_time import HISTORY_SETTING, UNTIL_SETTING
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.warehouse import RunStart
from groupcoord_spark.warehouse.tables import GROUPS


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """What earlier runs know of one offsets partition. Times are in milliseconds, -1 for none."""

    history_range: HistoryRange = NO_HISTORY
    end_offset: int = 0
    last_stable_offset: int = 0
    newest_timestamp_ms: int = NO_TIMESTAMP


def partition_histories(plan: LogPlan, start: RunStart) -> dict[int, PartitionHistory]:
    """For each offsets partition what earlier runs know of it, with the incarnation of the log that this run reads.

    Where the log begins below the end offset of the earlier run, with a record newer than every record of that run, the topic was deleted
    and created again: the incarnation is one higher, and nothing is known of it yet.
    """
    columns = [
        *("offsets_partition", "incarnation", "end_offset", "last_stable_offset", "newest_timestamp"),
        *("history_first_offset", "history_end_offset"),
    ]
    known = {}
    for row in start.previous("offsets_partitions", columns).to_pylist():
        newest = row["newest_timestamp"]
        known[row["offsets_partition"]] = PartitionHistory(
            history_range=HistoryRange(row["incarnation"], row["history_first_offset"] or 0, row["history_end_offset"] or 0),
            end_offset=row["end_offset"],
            last_stable_offset=row["last_stable_offset"],
            newest_timestamp_ms=NO_TIMESTAMP if newest is None else round(newest.timestamp() * 1000),
        )
    for partition in plan.partitions:
        before = known.get(partition.offsets_partition)
        if before is None or partition.first_offset is None or partition.first_timestamp_ms is None:
            continue
        if partition.first_offset < before.end_offset and partition.first_timestamp_ms > before.newest_timestamp_ms > NO_TIMESTAMP:
            known[partition.offsets_partition] = PartitionHistory(
                HistoryRange(before.history_range.incarnation + 1, 0, 0), 0, 0, NO_TIMESTAMP
            )
    return known


def state_versions_at_history_end(start: RunStart) -> Mapping[str, int] | None:
    """Delta version of each table after the newest run that wrote history up to the end of the log; None: no such run is kept."""
    runs = (run for run in reversed(start.finished) if run.fields["settings"] is not None)
    settings_of_runs = ((run, dict(run.fields["settings"])) for run in runs)
    # A run with --until stored the state of an earlier moment, not that at the end of the history.
    return next(
        (
            run.table_versions
            for run, settings in settings_of_runs
            if GROUPS.name in run.table_versions and settings.get(HISTORY_SETTING) == "true" and UNTIL_SETTING not in settings
        ),
        None,
    )


def appendable_range(history_range: HistoryRange, point_in_time: PointInTime | None) -> HistoryRange:
    """The range of record offsets that this run must not append to the history tables again.

    A run that ends before the history begins appends nothing at all: its records would leave a gap before the history.
    """
    if point_in_time is not None and not history_range.is_empty and point_in_time.end_offset < history_range.first_offset:
        return HistoryRange(history_range.incarnation, 0, history_range.end_offset)
    return history_range
