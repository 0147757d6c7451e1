"""What the runs before left: how far each offsets partition is known, and which incarnation of it the log is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupcoord_spark.log import LogPlan
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryRange, PointInTime
from groupcoord_spark.pipeline.plan.point_in_time import HISTORY_SETTING, UNTIL_SETTING
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.warehouse import RunStart


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """What the runs before left of one offsets partition; times in milliseconds, -1 for none."""

    held: HistoryRange = NO_HISTORY
    end_offset: int = 0
    last_stable_offset: int = 0
    newest_timestamp_ms: int = NO_TIMESTAMP


def histories_of(plan: LogPlan, start: RunStart) -> dict[int, PartitionHistory]:
    """What is known of each offsets partition from the runs before, and of which incarnation the log now read is.

    A record below the end already read, yet newer than anything read: the topic was begun anew.
    """
    columns = [
        *("offsets_partition", "incarnation", "end_offset", "last_stable_offset", "newest_timestamp"),
        *("history_first_offset", "history_end_offset"),
    ]
    known = {}
    for row in start.previous("offsets_partitions", columns).to_pylist():
        newest = row["newest_timestamp"]
        known[row["offsets_partition"]] = PartitionHistory(
            held=HistoryRange(row["incarnation"], row["history_first_offset"] or 0, row["history_end_offset"] or 0),
            end_offset=row["end_offset"],
            last_stable_offset=row["last_stable_offset"],
            newest_timestamp_ms=NO_TIMESTAMP if newest is None else round(newest.timestamp() * 1000),
        )
    for partition in plan.partitions:
        before = known.get(partition.offsets_partition)
        if before is None or partition.first_offset is None or partition.first_timestamp_ms is None:
            continue
        if partition.first_offset < before.end_offset and partition.first_timestamp_ms > before.newest_timestamp_ms > NO_TIMESTAMP:
            known[partition.offsets_partition] = PartitionHistory(HistoryRange(before.held.incarnation + 1, 0, 0), 0, 0, NO_TIMESTAMP)
    return known


def versions_at_end_of_history(start: RunStart) -> Mapping[str, int] | None:
    """Versions of the state tables after the newest run that wrote history; None: no run has."""
    runs = (run for run in reversed(start.finished) if run.fields["settings"] is not None)
    settings = ((run, dict(run.fields["settings"])) for run in runs)
    # a run with --until has the state of an earlier moment
    return next((run.table_versions for run, of in settings if of.get(HISTORY_SETTING) == "true" and UNTIL_SETTING not in of), None)


def range_to_append_to(held: HistoryRange, past: PointInTime | None) -> HistoryRange:
    """What counts as held: a run that ends before the history begins appends nothing, or there would be a hole between the two."""
    if past is not None and held.first_offset < held.end_offset and past.end_offset < held.first_offset:
        return HistoryRange(held.incarnation, 0, held.end_offset)
    return held
