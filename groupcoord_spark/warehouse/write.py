"""The driver's part of a run: ``begin_run`` makes the tables and mends what a dead run left, ``commit_run`` makes the workers' files rows.

Tables are committed back to back; the last act is one row in ``runs`` that names the version of every table. Readers go by that row,
so until it is there they see the night before.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyarrow import fs

from groupcoord_spark import __version__
from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.warehouse.declaration import Table, WriteMode, no_rows
from groupcoord_spark.warehouse.location import Location, directory_of, first_line, locate
from groupcoord_spark.warehouse.parts import AddedFile, describe, run_of, write_part
from groupcoord_spark.warehouse.read import SCHEMA_VERSION_PROPERTY, Run, holds_warehouse, open_table, read_runs, rows_at, runs_of
from groupcoord_spark.warehouse.tables import RUNS, SCHEMA_VERSION, TABLES

PROPERTIES: Final = {
    SCHEMA_VERSION_PROPERTY: str(SCHEMA_VERSION),
    # For 30 nights the versions that `runs` names stay readable. The log itself is never cleaned up on the way: a table that rarely changes
    # would lose the version that last night's row names.
    "delta.deletedFileRetentionDuration": "interval 30 days",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.enableExpiredLogCleanup": "false",
    # Plain readers: nothing that DuckDB, Trino or delta-rs cannot read.
    "delta.enableDeletionVectors": "false",
    "delta.checkpointInterval": "20",
}

_CLUSTER_OF_COMMIT: Final = "groupcoord.cluster"
_ATTEMPTS: Final = 5
_RUN_FILES: Final = 64
_ORPHANED_AFTER: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run that has begun. Made by ``begin_run``; the workers need its `run_id` and `cluster`."""

    location: Location
    cluster: str
    run_id: str
    started_at_ms: int
    finished: tuple[Run, ...]
    """The cluster's finished runs, oldest first."""

    @property
    def last_run(self) -> Run | None:
        """The cluster's newest finished run; None: this is the first."""
        return self.finished[-1] if self.finished else None

    def previous(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The cluster's rows of a table as of its last run; none for a first run. Raises WarehouseError when they cannot be read."""
        declared = TABLES[table]
        wanted = list(columns) if columns is not None else list(declared.by_name)
        if self.last_run is None or table not in self.last_run.table_versions:
            return no_rows(pa.schema([declared.arrow_schema.field(name) for name in wanted]))
        return rows_at(self.location, declared, self.last_run.table_versions[table], self.cluster, wanted)


def begin_run(warehouse: str, cluster: str) -> RunStart:
    """A new run of a cluster: every table is there afterwards, and as the cluster's last finished run left it.

    What a run that died between its commits put into the tables is taken out again, for this cluster alone; files of dead runs that
    never came into a table go when they are a day old.
    Raises WarehouseError when the place holds something else, is of a newer release, or cannot be read or written.
    """
    if not cluster:
        raise WarehouseError("A cluster's name cannot be empty. Name it with --cluster.")
    location = locate(warehouse)
    started_at_ms = time.time_ns() // 1_000_000
    there = can_be_written(location)
    # `runs` first: by it the directory is known as ours, also when the process ends right after.
    for table in (RUNS, *(t for t in TABLES.values() if t is not RUNS)):
        _create(location, table, is_new=not there)
    runs = runs_of(read_runs(location))
    of_cluster = [run for run in runs if run.cluster == cluster]
    run_id = f"{datetime.fromtimestamp(started_at_ms / 1000, UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
    start = RunStart(location, cluster, run_id, started_at_ms, tuple(of_cluster))
    finished = {run.run_id for run in runs}
    for table in TABLES.values():
        if table is not RUNS:
            _undo_dead_runs(start, table, finished)
            _remove_orphans(start, table, finished)
    return start


def can_be_written(location: Location) -> bool:
    """Whether a warehouse is there that a run can go on with; False: nothing is there, and one can be made. Nothing is touched.

    Raises WarehouseError as ``holds_warehouse`` does, and for a warehouse of which a table is gone, damaged, or not what a run left.
    """
    if "%" in location.uri:
        raise WarehouseError(f"{location.uri}: the Delta writer cannot write to a path with a % in it. Name another with --warehouse.")
    if not holds_warehouse(location):
        _refuse_where_none_can_be_made(location)
        return False
    promised: dict[str, int] = {}
    for run in runs_of(read_runs(location)):
        promised.update({table: max(version, promised.get(table, 0)) for table, version in run.table_versions.items()})
    for table in TABLES.values():
        version = promised.get(table.name, 0)
        if version == 0 and not DeltaTable.is_deltatable(location.table_uri(table.name)):
            continue  # nothing was ever in it, or this release is the first to have it: the run makes it
        opened = open_table(location, table)
        if opened.version() < version:
            raise WarehouseError(
                f"Table {table.name} of {location.uri} is at version {opened.version()}, and a night was written at version {version}: it"
                " was put back or made anew. Restore it, or name another directory with --warehouse."
            )
        _refuse_other_columns(location, table, opened)
    return True


def _refuse_where_none_can_be_made(location: Location) -> None:
    if not isinstance(location.filesystem, fs.LocalFileSystem):
        return  # only writing tells
    place = Path(location.path)
    there = next(each for each in (place, *place.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise WarehouseError(f"{location.uri} cannot be made: {there} is no directory. Name another with --warehouse.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise WarehouseError(f"{location.uri} cannot be made: nothing may be written in {there}. Name another with --warehouse.")


@contextmanager
def discarded_on_failure(start: RunStart) -> Iterator[None]:
    """Deletes the run's files when the block, which commits none of them, is left by an exception.

    A worker that is still writing then, or a file that cannot be deleted, leaves what no table names: a run that comes a day later deletes
    it.
    """
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for table in TABLES.values():
                directory = fs.FileSelector(start.location.path_in(table.name, directory_of(start.cluster)), allow_not_found=True)
                for file in start.location.filesystem.get_file_info(directory):
                    if run_of(file.base_name) == start.run_id:
                        start.location.filesystem.delete_file(file.path)
        raise


def commit_run(start: RunStart, run: Mapping[str, Any], files: Mapping[str, Sequence[AddedFile]]) -> Run:
    """Commits the files of a run to all tables, then the run itself.

    run: the row of ``runs`` as far as the caller knows it: as_of_ms, semantics, broker_version, input_kind, inputs, settings, records_read,
    records_decoded, records_quarantined, bytes_read.
    files: table name -> files. A table that each run replaces holds the given files and no others of this cluster afterwards; one that
    is appended to and has none gets no commit.
    Raises WarehouseError when another run of the cluster finished since ``begin_run``, or when a table cannot be committed: then the row
    in ``runs`` is missing, readers stay on the night before, and the next run takes out what this one committed.
    """
    if unknown := sorted(set(files) - (set(TABLES) - {RUNS.name})):
        raise ValueError(f"no such table to write: {unknown}")
    runs = open_table(start.location, RUNS)
    _refuse_if_overtaken(start)
    versions = {table.name: _commit_table(start, table, list(files.get(table.name, ()))) for table in TABLES.values() if table is not RUNS}
    last = start.last_run
    finished_at_ms = max(time.time_ns() // 1_000_000, last.finished_at_ms + 1 if last else 0)
    row = {
        **run,
        "cluster": start.cluster,
        "run_id": start.run_id,
        "started_at_ms": start.started_at_ms,
        "finished_at_ms": finished_at_ms,
        "version": __version__,
        "schema_version": SCHEMA_VERSION,
        "table_versions": versions,
    }
    rows = RUNS.from_rows([row])
    written = write_part(start.location.uri, RUNS, rows, start.cluster, start.run_id)
    # Two runs of one cluster that commit at the same moment both name this application: Delta lets one of them through.
    once = Transaction(f"groupcoord:{start.cluster}", finished_at_ms)
    try:
        _write(runs, RUNS, start, [_added(f) for f in written], "append", once)
    except CommitFailedError as e:
        raise _overtaken(start) from e
    except (DeltaError, OSError) as e:
        raise _not_committed(start, RUNS, e) from e
    _keep_few_files(start)
    return runs_of(rows)[0]


def _create(location: Location, table: Table, *, is_new: bool) -> None:
    uri = location.table_uri(table.name)
    for attempt in range(_ATTEMPTS):
        try:
            if is_new or not DeltaTable.is_deltatable(uri):
                opened = DeltaTable.create(
                    uri,
                    Schema.from_json(table.delta_schema),
                    # Another cluster's first run may make the same table at this moment.
                    mode="ignore",
                    partition_by=list(table.partition_columns),
                    name=table.name,
                    description=table.comment,
                    configuration=PROPERTIES,
                    raise_if_key_not_exists=False,
                )
            else:
                opened = open_table(location, table)
            held = opened.metadata().configuration
            missing = {name: claim for name, claim in table.checks.items() if f"delta.constraints.{name}" not in held}
            if missing:
                opened.alter.add_constraint(missing)
            break
        except (DeltaError, OSError) as e:
            if attempt == _ATTEMPTS - 1 or not isinstance(e, DeltaError):
                raise WarehouseError(f"{location.uri} cannot be written: table {table.name}: {first_line(e)}.") from e
    _refuse_other_columns(location, table, opened)


def _refuse_other_columns(location: Location, table: Table, opened: DeltaTable) -> None:
    def columns(schema: str) -> list[tuple[str, Any]]:
        return [(f["name"], f["type"]) for f in json.loads(schema)["fields"]]

    held, declared = columns(opened.schema().to_json()), columns(table.delta_schema)
    if held != declared:
        odd = ", ".join(sorted({name for name, _ in {(n, str(t)) for n, t in held} ^ {(n, str(t)) for n, t in declared}})) or "their order"
        raise WarehouseError(
            f"Table {table.name} of {location.uri} has other columns than this release writes ({odd}). It was changed by hand, or by a"
            " pre-release: name another directory with --warehouse."
        )


def _undo_dead_runs(start: RunStart, table: Table, finished: set[str]) -> None:
    """Takes out what runs of this cluster that are not in ``runs`` committed to a table; other clusters' rows stay as they are."""
    newest = open_table(start.location, table)
    promised = start.last_run.table_versions.get(table.name) if start.last_run else None
    since = newest.version() - (promised if promised is not None else -1)
    commits = newest.history(since) if since else []
    if not any(c.get(_CLUSTER_OF_COMMIT) == start.cluster and c.get("userMetadata") not in finished for c in commits):
        return
    before = _files_of(open_table(start.location, table, promised), start.cluster) if promised is not None else {}
    now = _files_of(newest, start.cluster)
    try:
        again = [_added(_described(start, table, path, size)) for path, size in before.items() if path not in now]
        gone = [_removed(start, path, size) for path, size in now.items() if path not in before]
        if again or gone:
            _write(newest, table, start, [*gone, *again], "append")
    except (DeltaError, OSError) as e:
        place = f"Table {table.name} of {start.location.uri}"
        raise WarehouseError(f"{place} cannot be brought back to the last night: {first_line(e)}.") from e


def _described(start: RunStart, table: Table, path: str, size: int) -> AddedFile:
    with start.location.filesystem.open_input_file(start.location.path_in(table.name, path)) as source:
        return describe(table, start.cluster, path, size, pq.ParquetFile(source).metadata)


def _remove_orphans(start: RunStart, table: Table, finished: set[str]) -> None:
    """Deletes files of dead runs that are in no version of the table. A day is longer than any run: nobody is still writing them."""
    filesystem = start.location.filesystem
    directory = fs.FileSelector(start.location.path_in(table.name, directory_of(start.cluster)), allow_not_found=True)
    old = datetime.now(UTC) - _ORPHANED_AFTER
    try:
        dead = {
            file.path: run
            for file in filesystem.get_file_info(directory)
            if (run := run_of(file.base_name)) is not None and run not in finished and file.mtime is not None and file.mtime < old
        }
        if dead:
            committed = {commit.get("userMetadata") for commit in open_table(start.location, table).history()}
            for path, run in dead.items():
                if run not in committed:
                    filesystem.delete_file(path)
    except OSError as e:
        raise WarehouseError(f"{start.location.uri} cannot be cleaned up: {first_line(e)}.") from e


def _commit_table(start: RunStart, table: Table, files: Sequence[AddedFile]) -> int:
    """The table's version afterwards."""
    for attempt in range(_ATTEMPTS):
        opened = open_table(start.location, table)
        replaced = table.write is WriteMode.REPLACED_BY_EACH_RUN and _files_of(opened, start.cluster)
        if not files and not replaced:
            return opened.version()
        try:
            _write(opened, table, start, [_added(f) for f in files], "overwrite" if replaced else "append")
            return open_table(start.location, table).version()
        except CommitFailedError as e:
            # Another cluster's commit came in between; its rows and ours do not meet, so the same again on top of it.
            if attempt == _ATTEMPTS - 1:
                raise _not_committed(start, table, e) from e
        except (DeltaError, OSError) as e:
            raise _not_committed(start, table, e) from e
    raise AssertionError("unreachable")


def _write(
    opened: DeltaTable,
    table: Table,
    start: RunStart,
    actions: Sequence[AddAction | RemoveAction],
    mode: str,
    once: Transaction | None = None,
) -> None:
    opened.create_write_transaction(
        list(actions),
        mode,
        Schema.from_json(table.delta_schema),
        partition_by=list(table.partition_columns),
        partition_filters=[("cluster", "=", start.cluster)] if mode == "overwrite" else None,
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": start.run_id, _CLUSTER_OF_COMMIT: start.cluster},
            app_transactions=[once] if once else None,
        ),
    )


def _files_of(opened: DeltaTable, cluster: str) -> dict[str, int]:
    """Path within the table -> size, of a cluster's files."""
    held = pa.table(opened.get_add_actions(flatten=True)).select(["path", "size_bytes", "partition.cluster"])
    return {unquote(f["path"]): f["size_bytes"] for f in held.to_pylist() if f["partition.cluster"] == cluster}


def _added(file: AddedFile) -> AddAction:
    return AddAction(file.path, file.size, {"cluster": file.cluster}, file.modification_time_ms, True, file.stats)


def _removed(start: RunStart, path: str, size: int) -> RemoveAction:
    return RemoveAction(path, True, time.time_ns() // 1_000_000, size, {"cluster": start.cluster})


def _refuse_if_overtaken(start: RunStart) -> None:
    runs = [run for run in runs_of(read_runs(start.location)) if run.cluster == start.cluster]
    if (runs[-1].run_id if runs else None) != (start.last_run.run_id if start.last_run else None):
        raise _overtaken(start)


def _overtaken(start: RunStart) -> WarehouseError:
    return WarehouseError(
        f"Another run of cluster {start.cluster!r} finished in {start.location.uri} while this one was at work. Its result stands,"
        " nothing of this one is visible; run it again."
    )


def _not_committed(start: RunStart, table: Table, error: BaseException) -> WarehouseError:
    return WarehouseError(
        f"Table {table.name} of {start.location.uri} cannot be committed: {first_line(error)}."
        " Readers stay on the night before; run it again."
    )


def _keep_few_files(start: RunStart) -> None:
    """Each run adds a file of one row to ``runs``, and every reader opens all of them."""
    runs = open_table(start.location, RUNS)
    if len(_files_of(runs, start.cluster)) <= _RUN_FILES:
        return
    # Two at once, or no room: this run is committed all the same, and the next one tries again.
    with suppress(DeltaError):
        runs.optimize.compact(partition_filters=[("cluster", "=", start.cluster)])
