"""The driver's part of a run: ``begin_run`` creates tables and repairs what a dead run left, ``commit_run`` commits the workers' files.

Tables are committed one right after the other. The last commit adds one row to ``runs``, which names the version of every table. Readers go
by that row: until it is there, they see the night before.
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
    """A run that has begun, made by ``begin_run``. The workers need its ``run_id`` and ``cluster``."""

    location: Location
    cluster: str
    run_id: str
    started_at_ms: int
    finished: tuple[Run, ...]
    """The cluster's finished runs, oldest first."""

    @property
    def last_run(self) -> Run | None:
        """The newest finished run of the cluster; None where this is the first."""
        return self.finished[-1] if self.finished else None

    def previous(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The cluster's rows of a table as of its last run; no rows for a first run. Raises WarehouseError where they cannot be read."""
        declared = TABLES[table]
        wanted = list(columns) if columns is not None else list(declared.by_name)
        if self.last_run is None or table not in self.last_run.table_versions:
            return no_rows(pa.schema([declared.arrow_schema.field(name) for name in wanted]))
        return rows_at(self.location, declared, self.last_run.table_versions[table], self.cluster, wanted)


def begin_run(warehouse: str, cluster: str) -> RunStart:
    """A new run of a cluster. Afterwards every table exists, as the cluster's last finished run left it.

    What a run that died between its commits put into the tables is removed again, for this cluster only. Files of dead runs that are in no
    table are deleted when they are a day old. Raises WarehouseError where the place holds something else, is of a newer release, or cannot
    be read or written.
    """
    if not cluster:
        raise WarehouseError("A cluster's name cannot be empty. Name it with --cluster.")
    location = locate(warehouse)
    started_at_ms = time.time_ns() // 1_000_000
    exists = can_be_written(location)
    # `runs` first: it marks the directory as a warehouse, also when the process ends right after.
    for table in (RUNS, *(t for t in TABLES.values() if t is not RUNS)):
        _create(location, table, is_new=not exists)
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
    """True where a run can go on with the warehouse, False where nothing exists and one can be created. Nothing is written.

    Raises WarehouseError as ``holds_warehouse`` does, and where a table is gone, damaged, or older than a run left it.
    """
    if "%" in location.uri:
        raise WarehouseError(f"{location.uri}: the Delta writer cannot write to a path with a % in it. Name another with --warehouse.")
    if not holds_warehouse(location):
        _refuse_where_none_can_be_made(location)
        return False
    newest_versions: dict[str, int] = {}
    for run in runs_of(read_runs(location)):
        newest_versions.update({table: max(version, newest_versions.get(table, 0)) for table, version in run.table_versions.items()})
    for table in TABLES.values():
        version = newest_versions.get(table.name, 0)
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
        return  # other file systems say so only when something is written
    directory = Path(location.path)
    existing = next(parent for parent in (directory, *directory.parents) if os.path.lexists(parent))
    if not existing.is_dir():
        raise WarehouseError(f"{location.uri} cannot be made: {existing} is no directory. Name another with --warehouse.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise WarehouseError(f"{location.uri} cannot be made: nothing may be written in {existing}. Name another with --warehouse.")


@contextmanager
def discarded_on_failure(start: RunStart) -> Iterator[None]:
    """Deletes the files of the run when the block, which must not commit any of them, ends with an exception.

    The file of a worker that is still writing, and a file that cannot be deleted, stay; no table names them, and a run a day later deletes
    them.
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
    """Commits the files of a run to all tables, and then the run itself.

    Args:
        run: the row of ``runs`` as far as the caller knows it: as_of_ms, semantics, broker_version, input_kind, inputs, settings,
            records_read, records_decoded, records_quarantined, bytes_read.
        files: table name -> files. Afterwards a table that each run replaces has these files and no others of this cluster; a table that
            runs append to is not committed where it gets no file.

    Raises:
        WarehouseError: another run of the cluster finished since ``begin_run``, or a table cannot be committed. Readers stay on the night
            before, and the next run removes what this one committed.
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
            configuration = opened.metadata().configuration
            missing = {name: claim for name, claim in table.checks.items() if f"delta.constraints.{name}" not in configuration}
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

    stored, declared = columns(opened.schema().to_json()), columns(table.delta_schema)
    if stored != declared:
        different = {(name, str(kind)) for name, kind in stored} ^ {(name, str(kind)) for name, kind in declared}
        shown = ", ".join(sorted({name for name, _ in different})) or "their order"
        raise WarehouseError(
            f"Table {table.name} of {location.uri} has other columns than this release writes ({shown}). It was changed by hand, or by a"
            " pre-release: name another directory with --warehouse."
        )


def _undo_dead_runs(start: RunStart, table: Table, finished: set[str]) -> None:
    """Removes what runs of this cluster that are not in ``runs`` committed to a table. The rows of other clusters stay as they are."""
    newest = open_table(start.location, table)
    last_version = start.last_run.table_versions.get(table.name) if start.last_run else None
    later_commits = newest.version() - (last_version if last_version is not None else -1)
    commits = newest.history(later_commits) if later_commits else []
    if not any(c.get(_CLUSTER_OF_COMMIT) == start.cluster and c.get("userMetadata") not in finished for c in commits):
        return
    before = _files_of(open_table(start.location, table, last_version), start.cluster) if last_version is not None else {}
    now = _files_of(newest, start.cluster)
    try:
        added = [_added(_described(start, table, path, size)) for path, size in before.items() if path not in now]
        removed = [_removed(start, path, size) for path, size in now.items() if path not in before]
        if added or removed:
            _write(newest, table, start, [*removed, *added], "append")
    except (DeltaError, OSError) as e:
        place = f"Table {table.name} of {start.location.uri}"
        raise WarehouseError(f"{place} cannot be brought back to the last night: {first_line(e)}.") from e


def _described(start: RunStart, table: Table, path: str, size: int) -> AddedFile:
    with start.location.filesystem.open_input_file(start.location.path_in(table.name, path)) as source:
        return describe(table, start.cluster, path, size, pq.ParquetFile(source).metadata)


def _remove_orphans(start: RunStart, table: Table, finished: set[str]) -> None:
    """Deletes files of dead runs that are in no version of the table. No run takes longer than a day, so nobody writes them any more."""
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
    """Commits the files of one table; the version of the table afterwards."""
    for attempt in range(_ATTEMPTS):
        opened = open_table(start.location, table)
        replaced = table.write is WriteMode.REPLACED_BY_EACH_RUN and _files_of(opened, start.cluster)
        if not files and not replaced:
            return opened.version()
        try:
            _write(opened, table, start, [_added(f) for f in files], "overwrite" if replaced else "append")
            return open_table(start.location, table).version()
        except CommitFailedError as e:
            # Another cluster committed in between. Its rows and ours are different ones, so the same commit is tried again on top of its.
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
    """The size of each file of a cluster, by its path within the table."""
    files = pa.table(opened.get_add_actions(flatten=True)).select(["path", "size_bytes", "partition.cluster"])
    return {unquote(file["path"]): file["size_bytes"] for file in files.to_pylist() if file["partition.cluster"] == cluster}


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
    """Merges the files of ``runs``: each run adds a file with one row, and every reader opens all of them."""
    runs = open_table(start.location, RUNS)
    if len(_files_of(runs, start.cluster)) <= _RUN_FILES:
        return
    # Two runs at once, or a full disk: this run is committed all the same, and the next run tries again.
    with suppress(DeltaError):
        runs.optimize.compact(partition_filters=[("cluster", "=", start.cluster)])
