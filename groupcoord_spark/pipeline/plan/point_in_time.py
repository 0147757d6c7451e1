"""The state as of an earlier moment: where each offsets partition ends then, and which of its records come from where.

A moment is an end offset for each partition. Records below it that the history tables hold are replayed from there, as compaction may
have taken them from the log since; the others come from the log. So a partition falls into up to three stretches, one after another:
the log before the history begins, the history, and the log after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from groupcoord_spark.errors import UsageError, WarehouseError
from groupcoord_spark.log import LogPlan, PartitionLog, Segment, read_segment
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryPiece, HistoryRange, PointInTime, Until
from groupcoord_spark.pipeline.read.history_records import first_later_in_history
from groupcoord_spark.warehouse import TABLES, RunStart, open_warehouse
from groupcoord_spark.warehouse.read import rows_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNTIL_SETTING: Final = "until"
HISTORY_SETTING: Final = "history"
"""Keys in ``settings`` of ``runs``: the moment that was asked for, and whether history was written ("true")."""

SURVIVORS: Final = "surviving_records"

_FOUND: Final = "offsets_partition INT, record_offset BIGINT"
_FOUND_ARROW: Final = pa.schema([("offsets_partition", pa.int32()), ("record_offset", pa.int64())])


def points_in_time_of(
    until: Until, plan: LogPlan, held: Mapping[int, HistoryRange], start: RunStart, spark: SparkSession
) -> dict[int, PointInTime]:
    """Where each partition of the plan ends at that moment.

    Raises UsageError for a partition that the input does not have, or an end beyond that of its log.
    """
    logs = {partition.offsets_partition: partition for partition in plan.partitions}
    pieces = {
        each: HistoryPiece(each, held[each], start.last_run.table_versions)
        for each in logs
        if start.last_run is not None and each in held and held[each].end_offset > held[each].first_offset
    }
    ends = {each: log.end_offset for each, log in logs.items()}
    if until.time_ms is not None:
        ends |= _first_later(until.time_ms, logs, pieces, start, spark)
    else:
        ends |= _checked(until, logs)
    exact = _ends_of_nights(start)
    found = {}
    for each, end in ends.items():
        if end >= logs[each].end_offset:
            found[each] = PointInTime(end, NO_HISTORY, end)
            continue
        piece = pieces.get(each)
        clipped = NO_HISTORY if piece is None else _clipped(piece.held, end)
        nights = exact.get((each, held[each].incarnation), []) if each in held else []
        known_until, night = max(((at, run_id) for at, run_id in nights if at <= end), default=(0, None), key=lambda known: known[0])
        found[each] = PointInTime(end, clipped, known_until, night)
    return found


def history_pieces(past: Mapping[int, PointInTime], start: RunStart) -> list[HistoryPiece]:
    """What is to be read of the history tables."""
    if start.last_run is None:
        return []
    versions = start.last_run.table_versions
    return [
        HistoryPiece(each, place.from_history, versions, place.night, place.known_until)
        for each, place in past.items()
        if place.from_history.end_offset > place.from_history.first_offset
    ]


def _clipped(held: HistoryRange, end_offset: int) -> HistoryRange:
    end = min(held.end_offset, end_offset)
    return HistoryRange(held.incarnation, held.first_offset, end) if held.first_offset < end else NO_HISTORY


def _checked(until: Until, logs: Mapping[int, PartitionLog]) -> Mapping[int, int]:
    for each, end in sorted(until.end_offsets.items()):
        if each not in logs:
            raise UsageError(f"{until.text} names offsets partition {each}, which the input does not have. Leave it out of the file.")
        if end > logs[each].end_offset:
            raise UsageError(f"{until.text} asks for offsets partition {each} up to {end}; its log ends at {logs[each].end_offset}.")
    return until.end_offsets


def _first_later(
    time_ms: int, logs: Mapping[int, PartitionLog], pieces: Mapping[int, HistoryPiece], start: RunStart, spark: SparkSession
) -> dict[int, int]:
    """Offset of each partition's first record with a later timestamp, in the log or in the history; partitions without one are absent."""
    places: list[Segment | HistoryPiece] = [segment for log in logs.values() for segment in log.segments]
    places += pieces.values()
    if not places:
        return {}
    warehouse_uri, cluster = start.location.uri, start.cluster

    def look(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                where = places[place]
                if isinstance(where, Segment):
                    offset = first_later_in_file(where, time_ms)
                else:
                    offset = first_later_in_history(warehouse_uri, cluster, where, time_ms)
                if offset is not None:
                    row = {"offsets_partition": where.offsets_partition, "record_offset": offset}
                    yield pa.RecordBatch.from_pylist([row], schema=_FOUND_ARROW)

    found: dict[int, int] = {}
    for row in spark.range(0, len(places), 1, len(places)).mapInArrow(look, _FOUND).collect():
        each, offset = row.offsets_partition, row.record_offset
        found[each] = min(offset, found.get(each, offset))
    return found


def first_later_in_file(segment: Segment, time_ms: int) -> int | None:
    """Offset of the file's first record with a timestamp later than ``time_ms``; None: there is none."""
    for chunk in read_segment(segment):
        later = np.flatnonzero(chunk.records.timestamp_ms > time_ms)
        if len(later):
            return int(chunk.records.record_offset[later[0]])
    return None


def _ends_of_nights(start: RunStart) -> dict[tuple[int, int], list[tuple[int, str]]]:
    """(offsets partition, incarnation) -> where its log ended when a run read it whole and wrote its history, and which run that was.

    Runs whose tables are gone count as not there.
    """
    ends: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for run in open_warehouse(start.location.uri).finished_runs(start.cluster) if start.last_run is not None else []:
        settings = run.settings
        if settings.get(HISTORY_SETTING) != "true" or UNTIL_SETTING in settings or SURVIVORS not in run.table_versions:
            continue
        columns = ["offsets_partition", "incarnation", "first_offset", "end_offset"]
        try:
            rows = rows_at(
                start.location, TABLES["offsets_partitions"], run.table_versions["offsets_partitions"], start.cluster, columns
            ).to_pylist()
        except WarehouseError:
            continue
        for row in rows:
            if row["first_offset"] is not None:
                ends.setdefault((row["offsets_partition"], row["incarnation"]), []).append((row["end_offset"], run.run_id))
    return ends
