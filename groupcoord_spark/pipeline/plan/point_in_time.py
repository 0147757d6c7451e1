"""The state at an earlier moment: where each offsets partition ends then, and which records come from the log or from the history tables.

A moment is an end offset for each offsets partition. Records below the end offset come from the history tables if these have them, because
compaction may have removed them from the log since; the others come from the log. So a partition is read in up to three parts, one after
another: the log before the history begins, the history, and the log after the history ends.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import SparkSession

from groupcoord_spark.errors import UsageError, WarehouseError
from groupcoord_spark.log import LogPlan, PartitionLog, Segment, read_segment
from groupcoord_spark.pipeline.division import in_tasks
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryPiece, HistoryRange, PointInTime, Until
from groupcoord_spark.pipeline.plan.earlier_runs import HISTORY_SETTING, PartitionHistory
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.read.history_records import first_later_in_history
from groupcoord_spark.sources.rows import TIMESTAMPS
from groupcoord_spark.warehouse import RunStart
from groupcoord_spark.warehouse.read import UNTIL_SETTING

SURVIVORS: Final = "surviving_records"


def find_points_in_time(
    until: Until, plan: LogPlan, histories: Mapping[int, PartitionHistory], start: RunStart, spark: SparkSession, rows: RowPlan | None
) -> dict[int, PointInTime]:
    """For each offsets partition of the plan, its point in time at the moment ``until``.

    rows: the rows of an input other than segments.

    Raises:
        UsageError: ``until`` names a partition that the input does not have, or an end offset beyond the end of the log; or it is a time,
            and records of the input have no timestamp.
    """
    logs = {partition.offsets_partition: partition for partition in plan.partitions}
    history_ranges = {number: history.history_range for number, history in histories.items()}
    pieces = {
        number: HistoryPiece(number, history_ranges[number], start.last_run.tables)
        for number in logs
        if start.last_run is not None and number in history_ranges and not history_ranges[number].is_empty
    }
    ends = {number: log.end_offset for number, log in logs.items()}
    if until.time_ms is not None:
        first_offsets = [_first_records_after(until.time_ms, logs, pieces, start, spark)]
        if rows is not None:
            if TIMESTAMPS in rows.lacks:
                raise UsageError(
                    f"--until {until.text} is a time, and records of this input have no timestamp. Name a file of end offsets with --until"
                    " instead."
                )
            first_offsets.append(rows.first_later_than(until.time_ms))
        for number in {number for of_source in first_offsets for number in of_source} & ends.keys():
            ends[number] = min(of_source[number] for of_source in first_offsets if number in of_source)
    else:
        ends |= _given_end_offsets(until, logs)
    ends_by_partition = _ends_of_complete_runs(start)
    points_in_time = {}
    for number, end in ends.items():
        if end >= logs[number].end_offset:
            points_in_time[number] = PointInTime(end, NO_HISTORY, end)
            continue
        piece = pieces.get(number)
        clipped = NO_HISTORY if piece is None else _clipped(piece.history_range, end)
        ends_of_runs = ends_by_partition.get((number, history_ranges[number].incarnation), []) if number in history_ranges else []
        complete_runs = [_CompleteRun(0, None, 0), *(run for run in ends_of_runs if run.end_offset <= end)]
        newest = max(complete_runs, key=lambda run: run.end_offset)
        points_in_time[number] = PointInTime(end, clipped, newest.end_offset, newest.run_id, newest.run_end_offset)
    return points_in_time


def history_pieces(points_in_time: Mapping[int, PointInTime], start: RunStart) -> list[HistoryPiece]:
    """Return the parts of the history tables to read."""
    if start.last_run is None:
        return []
    tables = start.last_run.tables
    return [
        HistoryPiece(number, point.history_range, tables, point.run_id, point.run_end_offset)
        for number, point in points_in_time.items()
        if not point.history_range.is_empty
    ]


def _clipped(history_range: HistoryRange, end_offset: int) -> HistoryRange:
    """Return the part of the range below ``end_offset``, or NO_HISTORY."""
    end = min(history_range.end_offset, end_offset)
    return HistoryRange(history_range.incarnation, history_range.first_offset, end) if history_range.first_offset < end else NO_HISTORY


def _given_end_offsets(until: Until, logs: Mapping[int, PartitionLog]) -> Mapping[int, int]:
    """Return the end offsets in ``until``. Raises UsageError for a partition that the plan lacks."""
    for number, end in sorted(until.end_offsets.items()):
        if number not in logs:
            raise UsageError(f"{until.text} names offsets partition {number}, which the input does not have. Leave it out of the file.")
        if end > logs[number].end_offset:
            raise UsageError(f"{until.text} asks for offsets partition {number} up to {end}; its log ends at {logs[number].end_offset}.")
    return until.end_offsets


def _first_records_after(
    time_ms: int, logs: Mapping[int, PartitionLog], pieces: Mapping[int, HistoryPiece], start: RunStart, spark: SparkSession
) -> dict[int, int]:
    """Return, by offsets partition, the record offset of the first record later than ``time_ms`` in the log or the history, if any."""
    sources: list[Segment | HistoryPiece] = [segment for log in logs.values() for segment in log.segments]
    sources += pieces.values()
    if not sources:
        return {}
    warehouse_uri, cluster = start.location.uri, start.cluster

    def first_later(source: Segment | HistoryPiece) -> int | None:
        if isinstance(source, Segment):
            return first_later_in_segment(source, time_ms)
        return first_later_in_history(warehouse_uri, cluster, source, time_ms)

    first_offsets: dict[int, int] = {}
    for source, offset in zip(sources, in_tasks(spark, first_later, sources), strict=True):
        if offset is not None:
            first_offsets[source.offsets_partition] = min(offset, first_offsets.get(source.offsets_partition, offset))
    return first_offsets


def first_later_in_segment(segment: Segment, time_ms: int) -> int | None:
    """Return the record offset of the segment's first record later than ``time_ms``, or None."""
    for chunk in read_segment(segment):
        later = np.flatnonzero(chunk.records.timestamp_ms > time_ms)
        if len(later):
            return int(chunk.records.record_offset[later[0]])
    return None


class _CompleteRun(NamedTuple):
    """A run after which the history has every record that counts, up to ``end_offset`` of an offsets partition.

    ``run_id`` is the run itself or the full run that it continues, which read the log from its beginning to ``run_end_offset``.
    """

    end_offset: int
    run_id: str | None
    run_end_offset: int


def _ends_of_complete_runs(start: RunStart) -> dict[tuple[int, int], list[_CompleteRun]]:
    """(offsets partition, incarnation) -> the runs that wrote history up to the end of the log.

    A run that went on from the runs before has read each record since: no record is missing after the end of the run that read the whole
    log. Runs whose table version was removed from the warehouse are left out, and so are runs that go on from them.
    """
    ends: dict[tuple[int, int], list[_CompleteRun]] = {}
    for run in start.finished if start.last_run is not None else []:
        settings = run.settings
        if settings.get(HISTORY_SETTING) != "true" or UNTIL_SETTING in settings or "offsets_partitions" not in run.table_versions:
            continue
        if run.is_kept and SURVIVORS not in run.table_versions:  # of a dropped run only a release that wrote survivors keeps its ends
            continue
        columns = ["offsets_partition", "incarnation", "first_offset", "end_offset", "read_from"]
        try:
            rows = start.warehouse.read("offsets_partitions", run=run, columns=columns).to_pylist()
        except WarehouseError:
            continue
        for row in rows:
            if row["first_offset"] is None:
                continue
            of_partition = ends.setdefault((row["offsets_partition"], row["incarnation"]), [])
            if row["read_from"] is None:
                of_partition.append(_CompleteRun(row["end_offset"], run.run_id, row["end_offset"]))
            else:
                # The earlier run that ended where this run started.
                predecessors = [complete_run for complete_run in of_partition if complete_run.end_offset == row["read_from"]]
                of_partition += [complete_run._replace(end_offset=row["end_offset"]) for complete_run in predecessors[-1:]]
    return ends
