"""What earlier runs know of each offsets partition: how far it was read, and which incarnation of the topic the log belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.log import LogPlan
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryRange
from groupcoord_spark.pipeline.plan.point_in_time import HISTORY_SETTING
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.warehouse import RunStart
from groupcoord_spark.warehouse.read import UNTIL_SETTING
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

    Raises WarehouseError where offsets_partitions was deleted, and the history tables do not say how far they go.
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
    if not known and start.last_run is not None:
        return _histories_of_tables(plan, start)
    for partition in plan.partitions:
        before = known.get(partition.offsets_partition)
        if before is None or partition.first_offset is None or partition.first_timestamp_ms is None:
            continue
        if partition.first_offset < before.end_offset and partition.first_timestamp_ms > before.newest_timestamp_ms > NO_TIMESTAMP:
            known[partition.offsets_partition] = PartitionHistory(
                HistoryRange(before.history_range.incarnation + 1, 0, 0), 0, 0, NO_TIMESTAMP
            )
    return known


def _histories_of_tables(plan: LogPlan, start: RunStart) -> dict[int, PartitionHistory]:
    """What the history tables say themselves of each offsets partition, after offsets_partitions was deleted or was empty."""
    ends = {}
    for partition in plan.partitions:
        incarnation = 0
        while (end := start.history_end(partition.offsets_partition, incarnation)) is not None:
            ends[partition.offsets_partition] = (incarnation, end)
            incarnation += 1
    if not ends:
        if plan.partitions and start.last_run is not None and start.last_run.settings.get(HISTORY_SETTING) == "true":
            raise WarehouseError(
                f"Table offsets_partitions of {start.location.uri} is gone, and the history tables, which an older release wrote, do not"
                " say how far they go. Restore the table from a copy, or run the nightly into another directory."
            )
        return {}
    firsts: dict[tuple[int, int], int] = {}
    for row in start.previous("surviving_records", ["offsets_partition", "incarnation", "first_offset"]).to_pylist():
        place = (row["offsets_partition"], row["incarnation"])
        firsts[place] = min(row["first_offset"], firsts.get(place, row["first_offset"]))
    return {
        number: PartitionHistory(HistoryRange(incarnation, firsts.get((number, incarnation), 0), end))
        for number, (incarnation, end) in ends.items()
    }


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
