"""The upkeep of a warehouse: joins small files of history, drops old runs and old history, and deletes files that no run needs.

Nothing that a kept run or a point-in-time run shows changes. The entries of Delta's logs stay: without them a version that
``runs`` names could
not be read any more.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from pyarrow import fs

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.storage.location import infos_in
from groupcoord_spark.storage.warehouse_location import WarehouseLocation, cause_of
from groupcoord_spark.warehouse import read
from groupcoord_spark.warehouse.declaration import Table
from groupcoord_spark.warehouse.open_table import OpenTable, begins_after, check_commit, open_table
from groupcoord_spark.warehouse.parts import FILE_BYTES, UPKEEP, AddedFile, PartWriter, run_of, write_part
from groupcoord_spark.warehouse.stored_file import rows_of_file
from groupcoord_spark.warehouse.tables import NIGHTLY, OFFSETS_PARTITIONS, RUNS, SURVIVING_RECORDS, TABLES
from groupcoord_spark.warehouse.write import begin_run
from groupcoord_spark.wording import command_line

KEEP_NIGHTS: Final = 30
"""Runs whose tables stay readable, if the user does not say otherwise."""

FEW_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of a table that a nightly run joins; `groupcoord maintain` joins everything."""

SORTED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "offset_commits": ("group_id", "offsets_partition", "incarnation", "record_offset"),
    "group_records": ("group_id", "offsets_partition", "incarnation", "record_offset"),
    "offset_events": ("group_id", "offsets_partition", "incarnation", "record_offset"),
    "rebalances": ("group_id", "offsets_partition", "incarnation", "record_offset"),
    "transactions": ("offsets_partition", "incarnation", "record_offset"),
    "surviving_records": ("offsets_partition", "incarnation", "run_id", "first_offset"),
    "quarantined_records": ("run_id", "offsets_partition", "record_offset"),
    "warnings": ("run_id", "offsets_partition", "record_offset"),
    "log_ends": ("topic", "partition", "run_id"),
}
"""Every append-only table except ``runs`` -> the sort columns of its compacted files.

The rows of a group (in tables without groups, of an offsets partition or a run) then lie in few row groups.
"""

# A point-in-time run replays these tables: a record that was in the log at the border stays, however old the record is.
_REPLAYED: Final = ("offset_commits", "group_records", "transactions")
# A point-in-time run needs to know where the log of an old run ended, for as long as there is history of that run.
_KEPT_OF_DROPPED_RUNS: Final = OFFSETS_PARTITIONS.name

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
    """Joins, drops and deletes what a cluster's runs do not need.

    Args:
        keep_nights: the tables of this number of newest runs stay readable; point-in-time runs go with the runs before which they ran.
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
        # Removes what dead runs left, and lets a run finish that commits at this moment.
        opened = begin_run(opened, cluster, spares_ms=_COMMITTING_MS).warehouse
    target = _Target(opened.location, cluster, opened.finished_runs(), now_ms or time.time_ns() // 1_000_000, dry_run)
    border_ms = None if keep_history_ms is None else target.now_ms - keep_history_ms
    done = {table.name: TableUpkeep(table.name) for table in TABLES.values()}
    for table in map(TABLES.__getitem__, SORTED_BY):
        if border_ms is not None:
            done[table.name] = replace(done[table.name], rows_dropped=_drop_rows(target, table, border_ms))
        joined, made = _join(target, table, most_bytes)
        done[table.name] = replace(done[table.name], files_joined=joined, files_made=made)
    dropped, runs = _drop_runs(target, keep_nights, border_ms)
    for table in TABLES.values():
        newest = open_table(target.location, table)
        files, size = _delete_unneeded(target, newest, runs)
        done[table.name] = replace(done[table.name], files_deleted=files, bytes_deleted=size)
        if not dry_run:
            _checkpoint(newest)
    nightly = sum(run.kind == NIGHTLY for run in dropped)
    return Upkeep(nightly, len(dropped) - nightly, tuple(done.values()))


def _checkpoint(opened: OpenTable) -> None:
    """Write a checkpoint of the table's log. Raises WarehouseError where it cannot be written."""
    try:
        opened.delta.create_checkpoint()
        opened.sync([], opened.version - 1)
    except (DeltaError, OSError) as e:
        raise WarehouseError(
            f"The log of table {opened.table.name} of {opened.location.uri} cannot be written: {cause_of(e)}. Run `groupcoord maintain`"
            " again."
        ) from e


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
    """Return the files of the cluster's finished runs, oldest run first. Files of runs that are at work are left out."""
    finished = {run.run_id: run for run in target.own_runs}
    named = ((path, file, run_of(path.rsplit("/", 1)[-1]) or "") for path, file in opened.files(target.cluster).items())
    files = [
        _TableFile(path, file.size, file.rows or 0, None if file.oldest_us is None else file.oldest_us // 1000, finished[run_id])
        for path, file, run_id in named
        if run_id in finished
    ]
    return sorted(files, key=lambda file: (file.run.finished_at_ms, file.path))


def _join(target: _Target, table: Table, most_bytes: int | None) -> tuple[int, int]:
    """Join the files of each past month, and return the number of files before and after."""
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
    """Return whether no two row groups of the file share values of the first column of the order, except at their border."""
    # Not by the statistics in the footer: to ask a damaged one for them can end the process.
    with opened.checked(opened.path_of(file.path)) as parquet:
        columns = [parquet.read_row_group(group, columns=[SORTED_BY[opened.table.name][0]])[0] for group in range(parquet.num_row_groups)]
    bounds = [pc.min_max(column).as_py() for column in columns if column.null_count < len(column)]
    return all(first["max"] <= second["min"] for first, second in pairwise(bounds))


def _rewrite(target: _Target, opened: OpenTable, files: Sequence[_TableFile], kept: "_KeptRows | None") -> list[AddedFile]:
    """Writes the rows of the files in order, without those that are not kept, and commits the new files in place of the old ones."""
    table = opened.table
    of_files = ((_rows(opened, target.cluster, file), file.run) for file in files)
    rows = pa.concat_tables(of_file if kept is None else kept.of(of_file, run) for of_file, run in of_files)
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in SORTED_BY[table.name]]))
    # The name of a finished run. A repairing run recognizes by it that the rows belong there.
    with PartWriter(target.location.uri, table, target.cluster, files[-1].run.run_id) as writer:
        for begin in range(0, rows.num_rows, table.group_rows):
            writer.write(rows.slice(begin, table.group_rows))
    _commit(target, opened, files, writer.files, is_data_change=kept is not None)
    return writer.files


def _rows(opened: OpenTable, cluster: str, file: _TableFile) -> pa.Table:
    """Return all rows of the file in the columns of the table, except for the cluster."""
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
    """(offsets partition, incarnation) -> ranges that were in the log at the border."""

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
    """Drop the rows of history older than the border that no later moment needs, and return their number."""
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
    """Return the ranges that the first run after the border found in the log, else the newest run's that has any."""
    opened = open_table(target.location, SURVIVING_RECORDS)
    run_ids = opened.rows(target.cluster, ["run_id"])["run_id"].unique().to_pylist()
    runs = [run for run in target.own_runs if run.run_id in run_ids]
    if not runs:
        return {}
    at_border = next((run for run in runs if run.finished_at_ms >= border_ms), runs[-1])
    return read.surviving_ranges(opened.rows(target.cluster, read.RANGE_COLUMNS, [("run_id", "=", at_border.run_id)]))


def _drop_runs(target: _Target, keep_nights: int, border_ms: int | None) -> tuple[list[read.Run], list[read.Run]]:
    """Take the versions of old runs out of ``runs``. Return these runs, and all runs as they are afterwards."""
    runs = [run for run in target.own_runs if run.kind == NIGHTLY]
    first_kept_ms = runs[-keep_nights].finished_at_ms if len(runs) > keep_nights else 0
    changed: dict[str, dict[str, int]] = {}
    for run in target.own_runs:
        if run.finished_at_ms < first_kept_ms:
            versions = dict(run.table_versions)
            if (border_ms is not None and run.finished_at_ms < border_ms) or (run.is_kept and SURVIVING_RECORDS.name not in versions):
                versions = {}
            versions = {name: version for name, version in versions.items() if name == _KEPT_OF_DROPPED_RUNS}
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
    _commit(target, opened, files, write_part(target.location.uri, RUNS, rows, target.cluster, UPKEEP), is_data_change=True)


def _delete_unneeded(target: _Target, opened: OpenTable, runs: Sequence[read.Run]) -> tuple[int, int]:
    """Delete files that neither the newest version of the table nor a run names, and return their number and bytes.

    Raises WarehouseError where a version that a run names is damaged: which files it needs is then unknown.
    """
    table = opened.table
    naming = [run for run in runs if table.name in run.table_versions]
    # There may be hundreds of dropped runs. Reading each of their versions takes long, and file names say the same.
    of_dropped = {run.run_id for run in naming if not run.is_kept}
    finished_at_ms = {run.run_id: run.finished_at_ms for run in runs}
    try:
        candidates = [
            file
            for file in _own_files(target, table)
            if run_of(file.base_name) not in of_dropped and not _may_be_committed(table, file, finished_at_ms)
        ]
        if candidates:
            needed = opened.paths_of_all_clusters()
            for version, run in {run.table_versions[table.name]: run for run in naming if run.is_kept}.items():
                if not begins_after(target.location, table, version):
                    check_commit(target.location, table, version, run.cluster, run.run_id)
                    needed |= open_table(target.location, table, version).paths_of_all_clusters()
            candidates = [file for file in candidates if file.path not in needed]
        if not target.dry_run:
            for file in candidates:
                with suppress(FileNotFoundError):  # another upkeep was faster
                    target.location.filesystem.delete_file(file.path)
    except OSError as e:
        raise WarehouseError(f"Table {table.name} of {target.location.uri} cannot be cleaned up: {cause_of(e)}.") from e
    return len(candidates), sum(file.size for file in candidates)


def _own_files(target: _Target, table: Table) -> Iterator[fs.FileInfo]:
    """Yield the files of our names in the directories of a table's clusters. A link may lead anywhere, so none is followed."""
    location = target.location
    top = location.path_in(table.name, "")[:-1]

    def is_link(path: str) -> bool:
        return location.is_local and Path(path).is_symlink()

    if is_link(top):
        return
    for directory in infos_in(location.filesystem, top):
        if directory.base_name.startswith("cluster=") and directory.type == fs.FileType.Directory and not is_link(directory.path):
            for file in infos_in(location.filesystem, directory.path):
                if file.is_file and run_of(file.base_name) is not None and not is_link(file.path):
                    yield file


def _may_be_committed(table: Table, file: fs.FileInfo, finished_at_ms: Mapping[str, int]) -> bool:
    """Return whether a run or an upkeep that is at work may have written the file, which is in no table yet. None of them takes a day."""
    if file.mtime is None:
        return True
    written_ms = file.mtime_ns // 1_000_000
    if written_ms < time.time_ns() // 1_000_000 - _UNFINISHED_MS:
        return False
    finished_ms = finished_at_ms.get(run_of(file.base_name) or "")
    # A file that is younger than the finished run in its name was made by upkeep. To `runs` a run commits after its finish.
    return finished_ms is None or (table is not RUNS and written_ms > finished_ms)


def _commit(target: _Target, opened: OpenTable, old: Sequence[_TableFile], new: Sequence[AddedFile], *, is_data_change: bool) -> None:
    try:
        opened.replace(target.cluster, {file.path: file.size for file in old}, new, UPKEEP, is_data_change=is_data_change)
    except (DeltaError, OSError) as e:
        raise WarehouseError(
            f"Table {opened.table.name} of {target.location.uri} cannot be changed: {cause_of(e)}. Run"
            f" `{command_line('maintain', warehouse=target.location.uri, cluster=target.cluster)}` again."
        ) from e
