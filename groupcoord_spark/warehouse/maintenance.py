"""The upkeep of a warehouse: joins small files of history, drops old nights and old history, and deletes files that no night needs.

Nothing that a kept night or a look-back shows changes. The entries of Delta's logs stay: without them a version that ``runs`` names could
not be read any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.warehouse import read
from groupcoord_spark.warehouse.declaration import Table
from groupcoord_spark.warehouse.location import WarehouseLocation, cause_of
from groupcoord_spark.warehouse.open_table import OpenTable, open_table
from groupcoord_spark.warehouse.parts import FILE_BYTES, AddedFile, PartWriter, run_of, write_part
from groupcoord_spark.warehouse.stored_file import rows_of_file
from groupcoord_spark.warehouse.tables import OFFSETS_PARTITIONS, RUNS, SURVIVING_RECORDS, TABLES
from groupcoord_spark.warehouse.write import begin_run

KEEP_NIGHTS: Final = 30
"""Nights whose tables stay readable, if the user does not say otherwise."""

FEW_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of a table that a nightly run joins; `groupcoord maintain` joins everything."""

SORTED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "offset_commits": ("group_id", "offsets_partition", "incarnation", "record_offset"),
    "group_records": ("group_id", "offsets_partition", "incarnation", "record_offset"),
    "rebalances": ("group_id", "offsets_partition", "incarnation", "record_offset"),
    "transactions": ("offsets_partition", "incarnation", "record_offset"),
    "surviving_records": ("offsets_partition", "incarnation", "run_id", "first_offset"),
    "quarantined_records": ("run_id", "offsets_partition", "record_offset"),
    "warnings": ("run_id", "offsets_partition", "record_offset"),
    "log_ends": ("topic", "partition", "run_id"),
}
"""Every table but ``runs`` to which nights only append -> the columns by which its joined files are sorted.

The rows of a group (in tables without groups, of an offsets partition or a run) then lie in few row groups.
"""

# A look-back replays these tables: a record that was in the log at the border stays, however old the record is.
_REPLAYED: Final = ("offset_commits", "group_records", "transactions")
# A look-back needs to know where the log of an old night ended, for as long as there is history of that night.
_KEPT_OF_DROPPED_NIGHTS: Final = OFFSETS_PARTITIONS.name

_NAME: Final = "upkeep"
"""The name of upkeep in commits and in the names of its files of ``runs``, which no run reads."""

_MOST_ROWS: Final = 8_000_000
_UNFINISHED_MS: Final = 86_400_000
_COMMITTING_MS: Final = 600_000
"""The tables of a run are committed within seconds. A run that has not finished so long after a commit is dead."""


@dataclass(frozen=True, slots=True)
class TableUpkeep:
    """What upkeep did in one table, or with ``dry_run`` would do."""

    table: str
    files_joined: int = 0
    files_made: int = 0
    rows_dropped: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What upkeep did, or with ``dry_run`` would do."""

    nights_dropped: int
    look_backs_dropped: int
    tables: tuple[TableUpkeep, ...]


def maintain(
    warehouse: str,
    cluster: str,
    *,
    keep_nights: int = KEEP_NIGHTS,
    keep_history_ms: int | None = None,
    most_bytes: int | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
) -> Upkeep:
    """Joins, drops and deletes what a cluster's nights do not need.

    Args:
        keep_nights: the tables of so many of the newest nights stay readable; look-backs go with the nights before which they ran.
        keep_history_ms: rows of history older than this are dropped, except for records that were still in the log at that time: the
            state of later moments needs them. None: all history stays.
        most_bytes: of each table no more bytes than this are joined; None: no limit.
        now_ms: the present. A month that is over is joined, the present month never.
        dry_run: nothing is changed.

    Raises:
        WarehouseError: there is no run of the cluster, or a table cannot be read or written. What was done until then stays done.
    """
    opened = read.open_warehouse(warehouse)
    opened.run(cluster)  # raises the error that lists the clusters where this one has no run
    if not dry_run:
        # Removes what dead runs left, and lets a night finish that commits at this moment.
        opened = begin_run(opened, cluster, spares_ms=_COMMITTING_MS).warehouse
    target = _Target(opened.location, cluster, opened.finished_runs(), now_ms or time.time_ns() // 1_000_000, dry_run)
    border_ms = None if keep_history_ms is None else target.now_ms - keep_history_ms
    done = {table.name: TableUpkeep(table.name) for table in TABLES.values()}
    for table in map(TABLES.__getitem__, SORTED_BY):
        if border_ms is not None:
            done[table.name] = replace(done[table.name], rows_dropped=_drop_rows(target, table, border_ms))
        joined, made = _join(target, table, most_bytes)
        done[table.name] = replace(done[table.name], files_joined=joined, files_made=made)
    dropped, runs = _drop_nights(target, keep_nights, border_ms)
    for table in TABLES.values():
        newest = open_table(target.location, table)
        files, size = _delete_unneeded(target, newest, runs)
        done[table.name] = replace(done[table.name], files_deleted=files, bytes_deleted=size)
        if not dry_run:
            newest.delta.create_checkpoint()
    nights = sum(run.kind == "night" for run in dropped)
    return Upkeep(nights, len(dropped) - nights, tuple(done.values()))


@dataclass(frozen=True, slots=True)
class _Target:
    """A warehouse, the cluster that is looked after, and every finished run of all clusters."""

    location: WarehouseLocation
    cluster: str
    runs: Sequence[read.Run]
    now_ms: int
    dry_run: bool

    @property
    def own_runs(self) -> list[read.Run]:
        return [run for run in self.runs if run.cluster == self.cluster]


@dataclass(frozen=True, slots=True)
class _TableFile:
    """A file of a table in its newest version."""

    path: str
    size: int
    rows: int
    oldest_ms: int | None
    """Smallest record timestamp; None: not known."""
    run: read.Run
    """The finished run in its name."""


def _files(target: _Target, opened: OpenTable) -> list[_TableFile]:
    """The files of the cluster's finished runs, oldest run first. Files of runs that are at work are left out."""
    finished = {run.run_id: run for run in target.own_runs}
    named = ((path, file, run_of(path.rsplit("/", 1)[-1]) or "") for path, file in opened.files(target.cluster).items())
    files = [
        _TableFile(path, file.size, file.rows or 0, None if file.oldest_us is None else file.oldest_us // 1000, finished[run_id])
        for path, file, run_id in named
        if run_id in finished
    ]
    return sorted(files, key=lambda file: (file.run.finished_at_ms, file.path))


def _join(target: _Target, table: Table, most_bytes: int | None) -> tuple[int, int]:
    """The number of files before and after those of each past month are joined."""
    opened = open_table(target.location, table)
    newest_run = target.own_runs[-1].run_id
    months: dict[tuple[int, int], list[_TableFile]] = {}
    for file in _files(target, opened):
        if _month(file.run.finished_at_ms) < _month(target.now_ms) and file.run.run_id != newest_run:
            months.setdefault(_month(file.run.finished_at_ms), []).append(file)
    joined = made = bytes_read = 0
    for files in months.values():
        for together in _bins(files):
            size = sum(file.size for file in together)
            if most_bytes is not None and bytes_read + size > most_bytes:
                continue
            if len(together) == 1 and (most_bytes is not None or _is_in_order(opened, together[0])):
                continue
            bytes_read += size
            joined += len(together)
            made += 1 if target.dry_run else len(_rewrite(target, opened, together, None))
    return joined, made


def _month(milliseconds: int) -> tuple[int, int]:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.year, moment.month


def _bins(files: Sequence[_TableFile]) -> Iterator[list[_TableFile]]:
    """Consecutive files that together make one file of FILE_BYTES at most and can be sorted in memory."""
    together: list[_TableFile] = []
    for file in files:
        size, rows = (sum(getattr(part, name) for part in (*together, file)) for name in ("size", "rows"))
        if together and (size > FILE_BYTES or rows > _MOST_ROWS):
            yield together
            together = []
        together.append(file)
    if together:
        yield together


def _is_in_order(opened: OpenTable, file: _TableFile) -> bool:
    """Whether no two row groups of the file share values of the first column of the order, except at their border."""
    # Not by the statistics in the footer: to ask a damaged one for them can end the process.
    with opened.checked(opened.path_of(file.path)) as parquet:
        columns = [parquet.read_row_group(group, columns=[SORTED_BY[opened.table.name][0]])[0] for group in range(parquet.num_row_groups)]
    bounds = [pc.min_max(column).as_py() for column in columns if column.null_count < len(column)]
    return all(first["max"] <= second["min"] for first, second in pairwise(bounds))


def _rewrite(target: _Target, opened: OpenTable, files: Sequence[_TableFile], kept: _KeptRows | None) -> list[AddedFile]:
    """Writes the rows of the files in order, without those that are not kept, and commits the new files in place of the old ones."""
    table = opened.table
    of_files = ((_rows(opened, target.cluster, file), file.run) for file in files)
    rows = pa.concat_tables(of_file if kept is None else kept.of(of_file, run) for of_file, run in of_files)
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in SORTED_BY[table.name]]))
    # The name of a finished run: a run that repairs the table knows by it that the rows belong there.
    with PartWriter(target.location.uri, table, target.cluster, files[-1].run.run_id) as writer:
        for begin in range(0, rows.num_rows, table.group_rows):
            writer.write(rows.slice(begin, table.group_rows))
    _commit(target, opened, files, writer.files, is_data_change=kept is not None)
    return writer.files


def _rows(opened: OpenTable, cluster: str, file: _TableFile) -> pa.Table:
    """All rows of the file in the columns of the table, except for the cluster."""
    with opened.checked(opened.path_of(file.path)) as parquet:
        return rows_of_file(parquet, cluster, opened.table.file_schema, ())


@dataclass(frozen=True, slots=True)
class _KeptRows:
    """Which rows of a table of history stay."""

    table: Table
    border_ms: int
    finished_at_ms: Mapping[str, int]
    """Run -> when it finished."""
    survivors: Mapping[tuple[int, int], read.SurvivingRanges]
    """(offsets partition, incarnation) -> what was in the log at the border."""

    def of(self, rows: pa.Table, run: read.Run) -> pa.Table:
        if "record_timestamp" in rows.column_names:
            # A record without a timestamp is as old as the run that read it first.
            written_ms = pc.fill_null(pc.divide(rows["record_timestamp"].cast(pa.int64()), 1000), run.finished_at_ms)
            stays = pc.greater_equal(written_ms, self.border_ms).to_numpy()
        else:
            stays = np.array(
                [self.finished_at_ms.get(name, run.finished_at_ms) >= self.border_ms for name in rows["run_id"].to_pylist()], bool
            )
        if self.table.name in _REPLAYED:
            stays = stays | self._were_in_the_log(rows)
        return rows.filter(pa.array(stays))

    def _were_in_the_log(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        survived = np.zeros(len(rows), np.bool_)
        numbers, incarnations, offsets = (rows[name].to_numpy() for name in ("offsets_partition", "incarnation", "record_offset"))
        for (number, incarnation), ranges in self.survivors.items():
            row_numbers = np.flatnonzero((numbers == number) & (incarnations == incarnation))
            survived[row_numbers] = ranges.has(offsets[row_numbers])
        return survived


def _drop_rows(target: _Target, table: Table, border_ms: int) -> int:
    """The number of rows of history that were dropped: those older than the border that no later moment needs."""
    opened = open_table(target.location, table)
    finished_at_ms = {run.run_id: run.finished_at_ms for run in target.own_runs}
    # The rows of the newest run stay, whatever their age: they describe the log as it is.
    finished_at_ms[target.own_runs[-1].run_id] = target.now_ms
    survivors = _survivors(target, border_ms) if table.name in _REPLAYED else {}
    kept = _KeptRows(table, border_ms, finished_at_ms, survivors)
    dropped = 0
    for file in _files(target, opened):
        oldest_ms = file.oldest_ms if file.oldest_ms is not None else min(finished_at_ms.values())
        if oldest_ms >= border_ms:
            continue
        rows_kept = kept.of(_rows(opened, target.cluster, file), file.run).num_rows
        if rows_kept < file.rows:
            dropped += file.rows - rows_kept
            if not target.dry_run:
                _rewrite(target, opened, [file], kept)
    return dropped


def _survivors(target: _Target, border_ms: int) -> dict[tuple[int, int], read.SurvivingRanges]:
    """The ranges that the first run after the border found in the log, or else the newest run that has any; empty where no run has."""
    opened = open_table(target.location, SURVIVING_RECORDS)
    run_ids = opened.rows(target.cluster, ["run_id"])["run_id"].unique().to_pylist()
    runs = [run for run in target.own_runs if run.run_id in run_ids]
    if not runs:
        return {}
    at_border = next((run for run in runs if run.finished_at_ms >= border_ms), runs[-1])
    return read.surviving_ranges(target.location.uri, opened.version, target.cluster, at_border.run_id)


def _drop_nights(target: _Target, keep_nights: int, border_ms: int | None) -> tuple[list[read.Run], list[read.Run]]:
    """The runs whose versions are taken out of ``runs``, and all runs as they are afterwards."""
    nights = [run for run in target.own_runs if run.kind == "night"]
    first_kept_ms = nights[-keep_nights].finished_at_ms if len(nights) > keep_nights else 0
    changed: dict[str, dict[str, int]] = {}
    for run in target.own_runs:
        if run.finished_at_ms < first_kept_ms:
            versions = dict(run.table_versions)
            if (border_ms is not None and run.finished_at_ms < border_ms) or (run.is_kept and SURVIVING_RECORDS.name not in versions):
                versions = {}
            versions = {name: version for name, version in versions.items() if name == _KEPT_OF_DROPPED_NIGHTS}
            if versions != dict(run.table_versions):
                changed[run.run_id] = versions
    dropped = [run for run in target.own_runs if run.run_id in changed and run.is_kept]
    if changed and not target.dry_run:
        _write_versions(target, changed)
    return dropped, [replace(run, table_versions=changed.get(run.run_id, run.table_versions)) for run in target.runs]


def _write_versions(target: _Target, changed: Mapping[str, Mapping[str, int]]) -> None:
    opened = open_table(target.location, RUNS)
    rows = opened.rows(target.cluster, list(RUNS.by_name))
    versions: list[Any] = [
        list(changed[run_id].items()) if run_id in changed else stored
        for run_id, stored in zip(rows["run_id"].to_pylist(), rows["table_versions"].to_pylist(), strict=True)
    ]
    name = "table_versions"
    rows = rows.set_column(rows.column_names.index(name), RUNS.arrow_schema.field(name), pa.array(versions, RUNS.by_name[name].arrow_type))
    # The run in the name of a file of `runs` does not matter: all rows are of finished runs.
    newest = target.own_runs[-1]
    files = [_TableFile(path, file.size, 0, None, newest) for path, file in opened.files(target.cluster).items()]
    _commit(target, opened, files, write_part(target.location.uri, RUNS, rows, target.cluster, _NAME), is_data_change=True)


def _delete_unneeded(target: _Target, opened: OpenTable, runs: Sequence[read.Run]) -> tuple[int, int]:
    """The number and bytes of the deleted files: those that neither the newest version of the table nor a run names."""
    table = opened.table
    naming = [run for run in runs if table.name in run.table_versions]
    # There may be hundreds of dropped nights. Reading each of their versions takes long, and file names say the same.
    versions = sorted({run.table_versions[table.name] for run in naming if run.is_kept})
    of_dropped = {run.run_id for run in naming if not run.is_kept}
    finished_at_ms = {run.run_id: run.finished_at_ms for run in runs}
    filesystem = target.location.filesystem
    count = size = 0
    try:
        unneeded = opened.delta.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=versions)
        # A file that was removed, added and removed again is listed twice.
        for file in filesystem.get_file_info([target.location.path_in(table.name, path) for path in dict.fromkeys(unneeded)]):
            if not file.is_file or run_of(file.base_name) in of_dropped or _may_be_committed(table, file, finished_at_ms):
                continue
            count, size = count + 1, size + file.size
            if not target.dry_run:
                with suppress(FileNotFoundError):  # another upkeep was faster
                    filesystem.delete_file(file.path)
    except (DeltaError, OSError) as e:
        raise WarehouseError(f"Table {table.name} of {target.location.uri} cannot be cleaned up: {cause_of(e)}.") from e
    return count, size


def _may_be_committed(table: Table, file: fs.FileInfo, finished_at_ms: Mapping[str, int]) -> bool:
    """Whether a run or an upkeep that is at work may have written the file, which is in no table yet. None of them takes a day."""
    if file.mtime is None:
        return True
    written_ms = file.mtime_ns // 1_000_000
    if written_ms < time.time_ns() // 1_000_000 - _UNFINISHED_MS:
        return False
    finished_ms = finished_at_ms.get(run_of(file.base_name) or "")
    # A file that is younger than the finished run in its name was made by upkeep. To `runs` a run commits after its finish.
    return finished_ms is None or (table is not RUNS and written_ms > finished_ms)


def _commit(target: _Target, opened: OpenTable, old: Sequence[_TableFile], new: Sequence[AddedFile], *, is_data_change: bool) -> None:
    now_ms = time.time_ns() // 1_000_000
    partition: dict[str, str | None] = {"cluster": target.cluster}
    removed = [RemoveAction(file.path, is_data_change, now_ms, file.size, partition) for file in old]
    added = [AddAction(file.path, file.size, partition, file.modification_time_ms, is_data_change, file.stats) for file in new]
    # `runs` keeps its number of rows here, and a run may add one now.
    run = opened.last_run(target.cluster) if is_data_change and opened.table is not RUNS else None
    try:
        opened.commit(target.cluster, [*removed, *added], {"userMetadata": _NAME}, run=run)
    except (DeltaError, OSError) as e:
        raise WarehouseError(
            f"Table {opened.table.name} of {target.location.uri} cannot be changed: {cause_of(e)}. Run `groupcoord maintain` again."
        ) from e
