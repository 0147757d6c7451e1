"""State of each offsets partition according to earlier runs: how far it was read, sample records, and the incarnation of the topic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.log import RecordMark
from groupcoord_spark.pipeline.exchange.carried_records import LATEST_RECORDS
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryRange
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.storage.warehouse_location import may_pass
from groupcoord_spark.warehouse import Run, RunStart, Warehouse
from groupcoord_spark.warehouse.read import UNTIL_SETTING, TablesOfRun
from groupcoord_spark.warehouse.tables import OFFSETS_PARTITIONS

HISTORY_SETTING: Final = "history"
"""Key in the column ``settings`` of ``runs``: whether the run wrote history ("true")."""

BEYOND_SETTING: Final = "history.beyond.end"
"""Key in the column ``settings`` of ``runs``: "true" where the history tables have later records than the state, after an older dump."""

FIRST_RECORD, NEWEST_RECORD = "first_record", "newest_record"
_MARK_COLUMNS: Final = tuple(f"{name}_{part}" for name in (FIRST_RECORD, NEWEST_RECORD) for part in ("offset", "timestamp", "crc"))
_COLUMNS: Final = (
    *("offsets_partition", "incarnation", "first_offset", "end_offset", "last_stable_offset", "newest_timestamp"),
    *("history_first_offset", "history_end_offset"),
    *_MARK_COLUMNS,
    *("leader_epoch", "incarnation_begin"),
)


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """One offsets partition according to earlier runs. Times are in milliseconds, -1 for none.

    first_offset: where the log began in the last run; None where that run read nothing of the partition.
    first_record, newest_record: the first and the newest data record of the last run, or None.
    begin_ms: begin of the incarnation, where the rows of an input are of several; None where all rows are read.
    leader_epoch: of the record below ``end_offset``, also where compaction removed it; None where the last run did not know it.
    """

    history_range: HistoryRange = NO_HISTORY
    end_offset: int = 0
    last_stable_offset: int = 0
    newest_timestamp_ms: int = NO_TIMESTAMP
    first_offset: int | None = None
    first_record: RecordMark | None = None
    newest_record: RecordMark | None = None
    leader_epoch: int | None = None
    begin_ms: int | None = None

    @property
    def read(self) -> tuple[int, int] | None:
        """The first and the end record offset of what the runs have read of this incarnation; None: nothing."""
        ranges = [] if self.history_range.is_empty else [self.history_range[1:]]
        if self.first_offset is not None:
            ranges.append((self.first_offset, self.end_offset))
        return (min(first for first, _ in ranges), max(end for _, end in ranges)) if ranges else None


def partition_histories(start: RunStart, offsets_partitions: Iterable[int] = ()) -> dict[int, PartitionHistory]:
    """Return the state of each offsets partition according to the cluster's last run; {} for the first run.

    offsets_partitions: those that the input has. They are looked up in the history tables where the table offsets_partitions was deleted.
    Raises WarehouseError where that table was deleted, and the history tables do not say how far they go.
    """
    histories = _histories_of_rows(start.previous("offsets_partitions", _COLUMNS))
    return histories if histories or start.last_run is None else _histories_of_tables(start, offsets_partitions)


def last_setting(start: RunStart, name: str) -> str | None:
    """Return the setting from the cluster's newest run that has it, or None."""
    return next((run.settings[name] for run in reversed(start.finished) if name in run.settings), None)


def last_run_of(warehouse: Warehouse, cluster: str) -> dict[int, PartitionHistory]:
    """Return the partition histories of a cluster's last run outside of a new run; {} for a cluster with only point-in-time runs."""
    if cluster not in warehouse.clusters_with_nightly_runs():
        return {}
    return _histories_of_rows(warehouse.read("offsets_partitions", cluster=cluster, columns=_COLUMNS))


def remembered_offsets(histories: Iterable[Mapping[int, PartitionHistory]]) -> dict[int, frozenset[int]]:
    """Offsets partition -> record offsets of the records that the last runs of several clusters remember."""
    offsets: dict[int, set[int]] = {}
    for of_cluster in histories:
        for number, history in of_cluster.items():
            marks = (history.first_record, history.newest_record)
            offsets.setdefault(number, set()).update(mark.record_offset for mark in marks if mark is not None)
    return {number: frozenset(of_partition) for number, of_partition in offsets.items()}


def _histories_of_rows(rows: pa.Table) -> dict[int, PartitionHistory]:
    return {
        row["offsets_partition"]: PartitionHistory(
            history_range=HistoryRange(row["incarnation"], row["history_first_offset"] or 0, row["history_end_offset"] or 0),
            end_offset=row["end_offset"],
            last_stable_offset=row["last_stable_offset"],
            newest_timestamp_ms=row["newest_timestamp_ms"],
            first_offset=row["first_offset"],
            first_record=_mark(row, FIRST_RECORD),
            newest_record=_mark(row, NEWEST_RECORD),
            leader_epoch=row["leader_epoch"],
            begin_ms=row["incarnation_begin_ms"],
        )
        for row in OFFSETS_PARTITIONS.to_milliseconds(rows).to_pylist()
    }


def _mark(row: Mapping[str, Any], name: str) -> RecordMark | None:
    offset = row[f"{name}_offset"]
    return None if offset is None else RecordMark(offset, row[f"{name}_timestamp_ms"], row[f"{name}_crc"])


def mark_fields(name: str, mark: RecordMark | None) -> dict[str, Any]:
    """Return the columns of offsets_partitions that store a sample record. ``name`` is FIRST_RECORD or NEWEST_RECORD."""
    if mark is None:
        return {f"{name}_offset": None, f"{name}_timestamp_ms": NO_TIMESTAMP, f"{name}_crc": None}
    return {f"{name}_offset": mark.record_offset, f"{name}_timestamp_ms": mark.timestamp_ms, f"{name}_crc": mark.crc}


def _histories_of_tables(start: RunStart, offsets_partitions: Iterable[int]) -> dict[int, PartitionHistory]:
    """Derive the partition histories from the history tables, after offsets_partitions was deleted or emptied."""
    ends = {}
    numbers = list(offsets_partitions)
    for number in numbers:
        incarnation = 0
        while (end := start.history_end(number, incarnation)) is not None:
            ends[number] = (incarnation, end)
            incarnation += 1
    if not ends:
        if numbers and start.last_run is not None and start.last_run.settings.get(HISTORY_SETTING) == "true":
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


def latest_records_at_history_end(start: RunStart) -> TablesOfRun | None:
    """Return the tables of the newest run that wrote history up to the end of the log; None where its latest_records cannot be read."""
    # A run with --until, and a run over an older dump, stored the state of an earlier moment, not that at the end of the history.

    def reached_the_end(run: Run) -> bool:
        return run.settings.get(HISTORY_SETTING) == "true" and not run.settings.keys() & {UNTIL_SETTING, BEYOND_SETTING}

    newest = next((run for run in reversed(start.finished) if run.is_kept and reached_the_end(run)), None)
    if newest is None or LATEST_RECORDS not in newest.table_versions:
        return None
    try:
        start.warehouse.check_files(LATEST_RECORDS, newest)
    except WarehouseError as e:
        if may_pass(e.__cause__):
            raise
        return None  # the table was deleted, or has lost a file of the run
    return newest.tables
