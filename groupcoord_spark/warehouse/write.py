"""The driver's part of a run: ``begin_run`` creates tables and repairs what a dead run left, ``commit_run`` commits the workers' files.

Tables are committed one right after the other. The last commit adds one row to ``runs``, which names the version of every table. Readers go
by that row: until it is there, they see the last run.

Of two runs of one cluster at the same time, one finishes and the other changes no table for good. Every commit carries a Delta application
transaction ``groupcoord:<cluster>``. Between runs its version is the same in all tables, ``runs`` included; a run raises it by one, table
after table in the same order. Delta refuses a commit where a transaction of the same application came in between, and ``_commit`` refuses
the rest, so that the slower run ends at its first commit. Tables with different versions show a run that is not finished: ``begin_run``
then removes what that run committed, and raises the version everywhere, so that the unfinished run can commit nothing more, even if it is
still alive.

A point-in-time run is committed like a run, and then every table is put back to the last run before ``runs`` gets its row: the rows of a
point-in-time run are in the versions that its row names, and nowhere else.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import Field
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyarrow import fs

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.storage.location import infos_in, side_by_side
from groupcoord_spark.storage.warehouse_location import WarehouseLocation, cause_of, directory_of, locate, sync
from groupcoord_spark.version import __version__
from groupcoord_spark.warehouse import read
from groupcoord_spark.warehouse.declaration import Table, WriteMode, no_rows
from groupcoord_spark.warehouse.open_table import (
    CLUSTER_OF_COMMIT,
    Action,
    OpenTable,
    StoredFile,
    begins_after,
    commit_at,
    damaged_checkpoints,
    open_table,
    path_of_entry,
    reading,
    table_exists,
    way_out,
)
from groupcoord_spark.warehouse.parts import UPKEEP, AddedFile, added_file_of, run_of, write_part
from groupcoord_spark.warehouse.read import Warehouse
from groupcoord_spark.warehouse.tables import (
    GROUPS,
    HISTORY,
    NIGHTLY,
    OFFSET_COMMITS,
    POINT_IN_TIME,
    RUNS,
    SCHEMA_VERSION,
    TABLES,
    WARNINGS,
)

PROPERTIES: Final = {
    read.SCHEMA_VERSION_PROPERTY: str(SCHEMA_VERSION),
    # For 30 runs the versions that `runs` names stay readable. The log itself is never cleaned up on the way: a table that rarely changes
    # would lose the version that last run's row names.
    "delta.deletedFileRetentionDuration": "interval 30 days",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.enableExpiredLogCleanup": "false",
    # Plain readers: no feature that DuckDB, Trino or delta-rs cannot read.
    "delta.enableDeletionVectors": "false",
    "delta.checkpointInterval": "20",
}

_ATTEMPTS: Final = 5
_RUN_FILES: Final = 16


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run that has begun, made by ``begin_run``. The workers need its ``run_id`` and ``cluster``.

    warehouse: with every table as ``begin_run`` left it. finished: the cluster's finished runs, point-in-time runs too, oldest first.
    transaction: version of the application transaction in all of these tables; the commits of this run have the next one.
    """

    warehouse: Warehouse
    cluster: str
    run_id: str
    started_at_ms: int
    finished: Sequence[read.Run]
    transaction: int

    @property
    def location(self) -> WarehouseLocation:
        """The place of the warehouse."""
        return self.warehouse.location

    @property
    def clock_went_back(self) -> str | None:
        """A sentence where this run began before the newest run of the cluster had finished, by the clocks of their machines."""
        newest_ms = self.finished[-1].finished_at_ms if self.finished else 0
        if self.started_at_ms >= newest_ms:
            return None
        began, finished = (f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" for ms in (self.started_at_ms, newest_ms))
        return f"By the clock of this machine the run began at {began}, before the newest run had finished ({finished}): set the clock."

    @property
    def last_run(self) -> read.Run | None:
        """The newest finished run of the cluster; None where this is the first."""
        return next((run for run in reversed(self.finished) if run.kind == NIGHTLY), None)

    def previous(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the cluster's rows of a table as of its last run; no rows for a first run, and of a table that was deleted since.

        Raises WarehouseError where they cannot be read.
        """
        declared, last_run = TABLES[table], self.last_run
        if last_run is not None and table in last_run.table_versions:
            try:
                return self.warehouse.read(table, columns=columns, run=last_run)
            except WarehouseError:
                if not begins_after(self.location, declared, last_run.table_versions[table]):
                    raise
        return no_rows(pa.schema([declared.arrow_schema.field(name) for name in columns or declared.by_name]))

    def history_end(self, offsets_partition: int, incarnation: int) -> int | None:
        """Return the record offset below which the history tables contain the records of a partition.

        None where the tables do not record it: no run of this release has written history yet.
        """
        application = history_application(self.cluster, offsets_partition, incarnation)
        return self.warehouse.tables[OFFSET_COMMITS.name].transaction(application)


def history_application(cluster: str, offsets_partition: int, incarnation: int) -> str:
    """Return the Delta application whose transaction version in a history table is the end offset of the partition's history."""
    # The slashes of a cluster's name are quoted, so that no other cluster and partition have this name.
    return f"{quote(cluster, safe=' ')}/{offsets_partition}/{incarnation}"


def begin_run(warehouse: str | Warehouse, cluster: str, *, spares_ms: int = 0) -> RunStart:
    """Begin a run of a cluster. Afterwards every table exists, with all columns of this release, as the cluster's last run left it.

    What a run that is not in ``runs`` put into the tables is removed, for this cluster only; if that run is still alive, it fails at its
    next commit. Files of dead runs that are in no table stay until the next upkeep. Raises WarehouseError where the place holds something
    else, is of a newer release, or cannot be read or written.

    Args:
        warehouse: its place, or as it was opened before (``open_to_write``).
        spares_ms: a run whose last commit is younger than this is taken to be at work, and nothing is removed.
    """
    if not cluster:
        raise WarehouseError("A cluster's name cannot be empty. Name it with --cluster.")
    for _ in range(_ATTEMPTS):
        warehouse = _prepared(open_to_write(warehouse))
        # After the runs are read: what finished before has a time before, unless the clock went back.
        started_at_ms = time.time_ns() // 1_000_000
        run_id = _new_run_id(started_at_ms)
        transactions = {name: table.last_run(cluster) for name, table in warehouse.tables.items()}
        transaction = transactions[RUNS.name]
        start = RunStart(warehouse, cluster, run_id, started_at_ms, warehouse.finished_runs(cluster), transaction)
        _refuse_older_runs(start, max(transactions.values()))
        _refuse_lost_commits(start)
        _refuse_damaged_history(start)
        unfinished = {*transactions.values()} != {transaction}
        if spares_ms and _last_commit_ms(start) > started_at_ms - spares_ms:
            return start
        if unfinished or any(_strays(start, table) for name, table in start.warehouse.tables.items() if name != RUNS.name):
            try:
                start = _healed(start)
            except _OvertakenError:
                continue  # a run finished, or began and repaired, at this moment: look at its tables
        return start
    raise _overtaken(start)


def _new_run_id(started_at_ms: int) -> str:
    """Return an id for a run: when it begins, to the second, and a random part. Ids sort by time."""
    return f"{datetime.fromtimestamp(started_at_ms / 1000, UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


def open_to_write(warehouse: str | Warehouse) -> Warehouse:
    """Open each table that a run can go on with; the warehouse has no tables where none exists and one can be created.

    Nothing is written, and only damaged checkpoints that a log does not need are deleted. Raises WarehouseError as ``open_runs`` does,
    where a table is gone that no run can write again, is damaged, or is older than a run left it, and where nothing may be written.

    ``warehouse`` is its place, or the warehouse as opened before, so that only new commits of its tables except ``runs`` are read.
    """
    earlier = warehouse if isinstance(warehouse, Warehouse) else None
    location = locate(warehouse) if isinstance(warehouse, str) else warehouse.location
    if "%" in location.uri:
        raise WarehouseError(f"{location.uri}: the Delta writer cannot write to a path with a % in it. Name another with --warehouse.")
    try:
        return _open_to_write(location, earlier)
    except WarehouseError:
        repaired = [table for table in TABLES.values() if _delete_damaged_checkpoints(location, table)]
        if not repaired:
            raise
    return _open_to_write(location, earlier)


def _delete_damaged_checkpoints(location: WarehouseLocation, table: Table) -> bool:
    """Delete the checkpoints of a table that a power cut left damaged and its log does not need. Return whether there was one."""
    damaged = damaged_checkpoints(location, table)
    try:
        for path in damaged:
            Path(path).unlink()
    except OSError as e:
        raise WarehouseError(f"Table {table.name} of {location.uri} cannot be repaired: {cause_of(e)}. Delete {path} by hand.") from e
    return bool(damaged)


def _open_to_write(location: WarehouseLocation, earlier: Warehouse | None) -> Warehouse:
    runs = read.open_runs(location)
    if runs is None:
        _refuse_where_none_can_be_made(location)
        return Warehouse(location, {})
    # A run that finishes now changes the tables that are opened after `runs`; a repairing run commits to this `runs` first.
    opened = Warehouse(location, {RUNS.name: runs}, earlier)
    tables = {**({} if earlier is None else earlier.tables), RUNS.name: runs}

    def to_write(table: Table) -> OpenTable | None:
        return _opened_to_write(location, table, tables.get(table.name), opened.newest_versions.get(table.name, 0))

    listed = zip(TABLES, side_by_side(to_write, TABLES.values(), location.filesystem), strict=True)
    return Warehouse(location, {name: table for name, table in listed if table is not None}, opened)


def _opened_to_write(location: WarehouseLocation, table: Table, opened: OpenTable | None, named_version: int) -> OpenTable | None:
    """Return the table, which a run named at ``named_version``; None where the run that begins makes it.

    opened: the table as it was opened before; None: it was not.
    Raises WarehouseError where the table is gone and no run can write its rows again, and where it is damaged or older than that.
    """
    if not table_exists(location, table):
        if named_version and (table in HISTORY or table is RUNS):
            open_table(location, table)  # says that it is gone
        return None  # nothing was ever in it, this release is the first to have it, or it can do without its earlier rows
    if opened is None:
        opened = open_table(location, table)
    elif table is not RUNS:
        opened.refresh()
    if opened.version < named_version:
        raise WarehouseError(
            f"Table {table.name} of {location.uri} is at version {opened.version}, and a run was written at version {named_version}: it"
            f" was restored or created again. {way_out(location, table)}"
        )
    _missing_columns(opened)
    directory = f"{location.path}/{table.name}/_delta_log"
    if isinstance(location.filesystem, fs.LocalFileSystem) and not os.access(directory, os.W_OK | os.X_OK):
        raise WarehouseError(f"{location.uri} cannot be written: nothing may be written in {directory}. Name another with --warehouse.")
    return opened


def _refuse_where_none_can_be_made(location: WarehouseLocation) -> None:
    if not isinstance(location.filesystem, fs.LocalFileSystem):
        return  # other file systems say so only when something is written
    directory = Path(location.path)
    existing = next(parent for parent in (directory, *directory.parents) if os.path.lexists(parent))
    if not existing.is_dir():
        raise WarehouseError(f"{location.uri} cannot be made: {existing} is not a directory. Name another with --warehouse.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise WarehouseError(f"{location.uri} cannot be made: nothing may be written in {existing}. Name another with --warehouse.")


@contextmanager
def discarded_on_failure(start: RunStart) -> Iterator[None]:
    """Deletes the files of the run when the block, which must not commit any of them, ends with an exception.

    The file of a worker that is still writing, and a file that cannot be deleted, stay; no table names them, and upkeep deletes them when
    they are a day old.
    """
    try:
        yield
    except BaseException:
        _delete_files(start)
        raise


def _delete_files(start: RunStart, but: Iterable[AddedFile] = ()) -> None:
    """Deletes the files of the run except for ``but``. No table may name a deleted one."""
    kept = {file.path.rpartition("/")[2] for file in but}
    filesystem = start.location.filesystem

    def delete_of(table: Table) -> None:
        directory = start.location.path_in(table.name, directory_of(start.cluster))
        with suppress(OSError):
            for file in infos_in(filesystem, directory, allow_not_found=True):
                if run_of(file.base_name) == start.run_id and file.base_name not in kept:
                    filesystem.delete_file(file.path)

    side_by_side(delete_of, TABLES.values(), start.location.filesystem)


def commit_run(
    start: RunStart,
    run: Mapping[str, Any],
    files: Mapping[str, Sequence[AddedFile]],
    history_ends: Mapping[tuple[int, int], int] = MappingProxyType({}),
) -> read.Run:
    """Commits the files of a run to all tables, and then the run itself.

    Args:
        run: the row of ``runs`` as far as the caller knows it: kind (nightly where it is missing), as_of_ms, semantics, broker_version,
            input_kind, inputs, settings, records_read, records_decoded, records_quarantined, bytes_read.
        files: table name -> files. Afterwards a table that each run replaces has these files and no others of this cluster. After a
            point-in-time run every table has the files of the last run again; its own are in the versions that its row names.
        history_ends: (offsets partition, incarnation) -> the record offset below which the history tables now have the records. Each
            history table gets them in the commit of its rows.

    Raises:
        WarehouseError: another run of the cluster committed since ``begin_run``, or a table cannot be committed. Readers stay on the run
            before, and the next run removes what this one committed.
    """
    if unknown := sorted(set(files) - (set(TABLES) - {RUNS.name})):
        raise ValueError(f"no such table to write: {unknown}")
    row: dict[str, Any] = {"kind": NIGHTLY, **run}
    # A task whose executor was lost has run again elsewhere: what it wrote the first time is in no report.
    _delete_files(start, but=(file for of_table in files.values() for file in of_table))
    ends = [
        Transaction(history_application(start.cluster, partition, incarnation), end)
        for (partition, incarnation), end in history_ends.items()
    ]
    tables = [table for table in TABLES.values() if table is not RUNS]
    committed: dict[str, OpenTable] = {}
    versions: dict[str, int] = {}
    try:
        for table in tables:
            committed[table.name] = _commit_table(start, table, files.get(table.name, ()), ends if table in HISTORY else ())
            versions[table.name] = committed[table.name].version
    except _OvertakenError:
        if not versions:
            _delete_files(start)
        raise
    if row["kind"] == POINT_IN_TIME:
        for table in tables:
            if files.get(table.name) or table.write is not WriteMode.APPENDED:
                _commit(start, committed[table.name], _actions_to_last_run, expected=start.transaction + 1)
    last_run = start.finished[-1] if start.finished else None
    row |= {
        "cluster": start.cluster,
        "run_id": start.run_id,
        "started_at_ms": start.started_at_ms,
        "finished_at_ms": max(time.time_ns() // 1_000_000, last_run.finished_at_ms + 1 if last_run else 0),
        "version": __version__,
        "schema_version": SCHEMA_VERSION,
        "table_versions": versions,
        **{name: sum(file.records for file in files.get(name, ())) for name in (GROUPS.name, WARNINGS.name)},
    }
    rows = RUNS.from_rows([row])
    of_runs = write_part(start.location.uri, RUNS, rows, start.cluster, start.run_id)
    _sync(start, {**files, RUNS.name: of_runs})
    runs = _commit_table(start, RUNS, of_runs)
    # This run is committed, whatever happens from now on, and the next run tries again.
    with suppress(DeltaError, OSError, WarehouseError):
        runs.sync([], runs.version - 1)
        _keep_few_files(start, runs)
    return read.runs_of(rows)[0]


def _sync(start: RunStart, files: Mapping[str, Sequence[AddedFile]]) -> None:
    """Write what the row of ``runs`` will name to the disk of this machine: a power cut then leaves the run whole, or takes it back.

    Each run did so before it finished, so that entries up to a version that a run names are on the disk, whichever cluster made them.
    """
    synced = start.warehouse.newest_versions
    try:
        paths = [
            path
            for name, table in start.warehouse.tables.items()
            for path in table.to_sync([file.path for file in files.get(name, ())], synced.get(name, -1))
        ]
        sync(start.location, paths)
    except OSError as e:
        raise WarehouseError(
            f"{start.location.uri} cannot be written to the disk: {cause_of(e)}. Readers stay on the last run; run it again."
        ) from e


def _prepared(warehouse: Warehouse) -> Warehouse:
    """Create missing tables, and add the columns that the tables of an older release lack."""
    location = warehouse.location

    def prepared(table: Table) -> OpenTable:
        opened = warehouse.tables.get(table.name)
        if opened is None:
            opened = _in_attempts(location, table, lambda: _created(location, table, warehouse.newest_versions.get(table.name, 0)))
        if _missing_columns(opened) or _missing_checks(opened) or _never_null(opened):
            opened = _in_attempts(location, table, lambda: _completed(location, table))
        return opened

    # `runs` first: it marks the directory as a warehouse, also when the process ends right after.
    other_tables = [table for table in TABLES.values() if table is not RUNS]
    tables = {RUNS.name: prepared(RUNS)}
    tables |= zip((table.name for table in other_tables), side_by_side(prepared, other_tables, location.filesystem), strict=True)
    # The older release, which reads the version from `runs`, goes on until all is done, and so does an upgrade that died half-way.
    for table in (*(t for t in TABLES.values() if t is not RUNS), RUNS):
        opened = tables[table.name]
        if opened.delta.metadata().configuration.get(read.SCHEMA_VERSION_PROPERTY) != PROPERTIES[read.SCHEMA_VERSION_PROPERTY]:
            if table is RUNS:
                _in_attempts(location, RUNS, lambda: _with_present_kinds(location))
            tables[table.name] = _in_attempts(location, table, lambda t=table: _with_schema_version(location, t))  # type: ignore[misc]
    return Warehouse(location, tables, warehouse)


def _in_attempts(location: WarehouseLocation, table: Table, prepare: Callable[[], OpenTable]) -> OpenTable:
    """Call ``prepare``, and again where a run of another cluster changes the table at this moment."""
    for attempt in range(_ATTEMPTS):
        try:
            return prepare()
        except (DeltaError, OSError) as e:
            if attempt == _ATTEMPTS - 1 or not isinstance(e, DeltaError):
                raise WarehouseError(f"{location.uri} cannot be written: table {table.name}: {cause_of(e)}.") from e
    raise AssertionError("unreachable")


def _created(location: WarehouseLocation, table: Table, named_version: int) -> OpenTable:
    created = DeltaTable.create(
        location.table_uri(table.name),
        table.delta_schema,
        # Another cluster's first run may make the same table at this moment.
        mode="ignore",
        partition_by=list(table.partition_columns),
        name=table.name,
        description=table.comment,
        configuration=PROPERTIES,
        raise_if_key_not_exists=False,
    )
    if named_version:
        _skip_versions(location, table, created, named_version)
        return open_table(location, table)  # the first one still refers to entries of the log that are deleted
    return OpenTable(location, table, created)


def _completed(location: WarehouseLocation, table: Table) -> OpenTable:
    """Add the columns and checks that the table lacks, and allow NULL where this release writes it."""
    opened = open_table(location, table)
    for name in table.former_checks:
        if _has_check(opened, name):
            opened.delta.alter.drop_constraint(name)
    for column in _never_null(opened):
        opened.delta.alter.drop_column_not_null(column)
    if missing_columns := _missing_columns(opened):
        opened.delta.alter.add_columns(missing_columns)
    if missing_checks := _missing_checks(opened):
        opened.delta.alter.add_constraint(missing_checks)
    return opened


def _with_present_kinds(location: WarehouseLocation) -> OpenTable:
    """Write the rows of ``runs`` again whose kind is of an older release."""
    opened = open_table(location, RUNS)
    for cluster in sorted({values["cluster"] for values in opened.delta.partitions()}):
        rows = opened.rows(cluster, list(RUNS.by_name))
        present = read.with_present_kinds(rows)
        if present is not rows:
            old = {path: file.size for path, file in opened.files(cluster).items()}
            opened.replace(cluster, old, write_part(location.uri, RUNS, present, cluster, UPKEEP), UPKEEP, is_data_change=True)
            opened = open_table(location, RUNS)
    return opened


def _with_schema_version(location: WarehouseLocation, table: Table) -> OpenTable:
    opened = open_table(location, table)
    opened.delta.alter.set_table_properties(
        {read.SCHEMA_VERSION_PROPERTY: PROPERTIES[read.SCHEMA_VERSION_PROPERTY]}, raise_if_not_exists=False
    )
    return opened


def _skip_versions(location: WarehouseLocation, table: Table, opened: DeltaTable, named_version: int) -> None:
    """Move the log of a table that was created again above the versions that ``runs`` names.

    An earlier run of this table then cannot be read. Without this it would show rows of a later run, which has the same number.
    """
    while opened.version() <= named_version:
        opened.create_write_transaction([], "append", opened.schema(), partition_by=list(table.partition_columns))
        opened.update_incremental()
    opened.create_checkpoint()
    for file in infos_in(location.filesystem, location.path_in(table.name, "_delta_log")):
        number = file.base_name.split(".")[0]
        if number.isdecimal() and int(number) <= named_version:
            location.filesystem.delete_file(file.path)


def _missing_columns(opened: OpenTable) -> list[Field]:
    """Return the declared columns that the table lacks, all of them after its last one. Raises WarehouseError for any other difference."""
    fields = opened.table.delta_schema.fields
    stored, declared = ([(field.name, str(field.type)) for field in of] for of in (opened.delta.schema().fields, fields))
    if stored != declared[: len(stored)]:
        different = {*stored} ^ {*declared}
        shown = ", ".join(sorted({name for name, _ in different})) or "their order"
        raise WarehouseError(
            f"Table {opened.table.name} of {opened.location.uri} has other columns than this release writes ({shown}). It was changed by"
            " hand, or by a pre-release: name another directory with --warehouse."
        )
    return fields[len(stored) :]


def _missing_checks(opened: OpenTable) -> dict[str, str]:
    return {name: claim for name, claim in opened.table.checks.items() if not _has_check(opened, name)}


def _has_check(opened: OpenTable, name: str) -> bool:
    return f"delta.constraints.{name}" in opened.delta.metadata().configuration


def _never_null(opened: OpenTable) -> list[str]:
    """Return the columns that an older release declared NOT NULL and this one does not."""
    return [field.name for field in opened.delta.schema().fields if not field.nullable and opened.table.by_name[field.name].nullable]


def _last_commit_ms(start: RunStart) -> int:
    """Return the time of the last commit of the cluster's unfinished run, by its machine's clock, or 0."""
    ahead = [table for table in start.warehouse.tables.values() if table.last_run(start.cluster) > start.transaction]
    times = [0]
    for table in ahead:
        with reading(start.location, table.table):
            times += [commit["timestamp"] for commit in table.delta.history(1)]
    return max(times)


def _refuse_older_runs(start: RunStart, newest_transaction: int) -> None:
    """Raise WarehouseError if runs finished that ``runs`` does not contain, because a repair would remove them from the tables."""
    # An unfinished run is one version ahead of `runs`.
    if newest_transaction > start.transaction + 1:
        raise WarehouseError(
            f"Table runs of {start.location.uri} is older than the other tables: it was restored or created again, and lacks finished runs"
            f" of cluster {start.cluster!r}. {way_out(start.location, RUNS)}"
        )


def _refuse_lost_commits(start: RunStart) -> None:
    """Raise WarehouseError where the log of a table has lost the commit of the last run."""
    if (last_run := start.last_run) is not None:
        side_by_side(lambda table: start.warehouse.check_commit(table, last_run), TABLES.values(), start.location.filesystem)


def _refuse_damaged_history(start: RunStart) -> None:
    """Raises WarehouseError where the log of a table of history is damaged: to commit to it would hide that."""
    for table in TABLES.values():
        if table.write is WriteMode.APPENDED and table is not RUNS:
            try:
                start.warehouse.tables[table.name].check_number_of_rows(start.cluster)
            except WarehouseError:
                if start.last_run is None or table.name not in start.last_run.table_versions:
                    raise
                # Somebody may have deleted rows since, with other tools.
                start.warehouse.opened(table, start.last_run).check_number_of_rows(start.cluster)


def _strays(start: RunStart, opened: OpenTable) -> dict[str, int]:
    """Return the size of each file, by its path, that does not belong in the newest version of a table: its run is not in ``runs``.

    The same are the files of a point-in-time run of an older release, which did not put the tables back to the last run.
    """
    files = opened.files(start.cluster)
    last_run = start.last_run
    finished_ids = {run.run_id for run in start.finished if last_run is not None and run.finished_at_ms <= last_run.finished_at_ms}
    strays = {path for path in files if (run := run_of(path.rsplit("/", 1)[1])) is not None and run not in finished_ids}
    # The rows of old runs may have been dropped from `runs`, and their history stays: the last run had it. Releases that wrote no
    # transaction dropped no rows.
    if strays and opened.last_run(start.cluster):
        strays -= _files_of_last_run(start, opened).keys()
    return {path: files[path].size for path in strays}


def _files_of_last_run(start: RunStart, opened: OpenTable) -> Mapping[str, StoredFile]:
    """Return the files of the cluster that the last run left in a table; {} for a first run and a table created since."""
    version = start.last_run.table_versions.get(opened.table.name) if start.last_run else None
    if version is None or begins_after(start.location, opened.table, version):
        return {}
    return open_table(start.location, opened.table, version).files(start.cluster)


def _healed(start: RunStart) -> RunStart:
    """Put all tables back to the last run, after which no unfinished run can commit any more, and return the start of the run.

    Raises _OvertakenError where another run of the cluster commits to ``runs`` meanwhile.
    """
    # Two above: one above is the unfinished run's.
    raised = start.transaction + 2
    # `runs` first, in the version that was read: afterwards no other run can finish, and the tables do not change any more.
    opened = start.warehouse.tables
    tables = {RUNS.name: _commit(start, opened[RUNS.name], lambda *_: [], expected=start.transaction, transaction=raised)}
    for table in TABLES.values():
        if table is not RUNS:
            tables[table.name] = _commit(start, opened[table.name], _actions_to_last_run, expected=None, transaction=raised)
    return replace(start, warehouse=Warehouse(start.location, tables, start.warehouse), transaction=raised)


def _actions_to_last_run(start: RunStart, opened: OpenTable) -> list[Action]:
    """Return the actions that put the files of the cluster back to the last run. The rows of other clusters stay as they are."""
    if opened.table.write is WriteMode.APPENDED:
        return [_removed(start, path, size) for path, size in _strays(start, opened).items()]
    present_files = opened.files(start.cluster)
    files_of_last_run = _files_of_last_run(start, opened)
    added = [_added(_described(start, opened, path, file.size)) for path, file in files_of_last_run.items() if path not in present_files]
    return [*(_removed(start, path, file.size) for path, file in present_files.items() if path not in files_of_last_run), *added]


def _described(start: RunStart, opened: OpenTable, path: str, size: int) -> AddedFile:
    with opened.checked(opened.path_of(path)) as file:
        return added_file_of(opened.table, start.cluster, path, size, file.metadata)


def _commit_table(start: RunStart, table: Table, files: Sequence[AddedFile], transactions: Sequence[Transaction] = ()) -> OpenTable:
    """Commits the files of a run to one table; the table afterwards. A table without files gets a commit too, with the transaction."""
    opened, replaces = start.warehouse.tables[table.name], table.write is WriteMode.REPLACED_BY_EACH_RUN
    added: list[Action] = [_added(file) for file in files]
    return _commit(start, opened, lambda *_: added, expected=start.transaction, replaces=replaces, transactions=transactions)


def _commit(
    start: RunStart,
    opened: OpenTable,
    actions: Callable[[RunStart, OpenTable], list[Action]],
    *,
    expected: int | None,
    transaction: int | None = None,
    replaces: bool = False,
    transactions: Sequence[Transaction] = (),
) -> OpenTable:
    """Commits to one table; the table afterwards.

    actions: files to add and to remove, given the table that the commit is made on. expected: version of the cluster's transaction that the
    table must have, else _OvertakenError is raised; None: any. transaction: its version from now on; None: that of this run. replaces: all
    other files of the cluster are removed. transactions: further transactions of the same commit.
    """
    application = f"groupcoord:{start.cluster}"
    own_transaction = Transaction(application, start.transaction + 1 if transaction is None else transaction)
    for attempt in range(_ATTEMPTS):
        version = opened.version
        try:
            # Delta compares with later commits only: it would also take a version that the table has already, or a lower one.
            if expected is not None and opened.last_run(start.cluster) != expected:
                raise _overtaken(start)
            opened.commit(
                start.cluster,
                actions(start, opened),
                {"userMetadata": start.run_id, CLUSTER_OF_COMMIT: start.cluster},
                run=own_transaction.version,
                transactions=[*transactions, own_transaction],  # the last line: an entry that has it is whole
                replaces=replaces,
            )
            return opened
        except _OvertakenError:
            raise
        except (DeltaError, OSError, WarehouseError) as e:
            if _has_commit_above(start, opened.table, version):
                return open_table(start.location, opened.table)
            if isinstance(e, WarehouseError):
                raise
            if attempt == _ATTEMPTS - 1 or not isinstance(e, CommitFailedError):
                raise WarehouseError(
                    f"Table {opened.table.name} of {start.location.uri} cannot be committed: {cause_of(e)}."
                    " Readers stay on the last run; run it again."
                ) from e
            # Another cluster committed in between. The two commits change different rows, so this one is tried again on top.
            opened = open_table(start.location, opened.table)
    raise AssertionError("unreachable")


def _has_commit_above(start: RunStart, table: Table, version: int) -> bool:
    """Return whether this run made a version above ``version``: delta-rs reads a table after its commit, and that alone may fail."""
    with suppress(OSError):  # there is no further entry
        while True:
            version += 1
            commit, _ = commit_at(start.location, path_of_entry(start.location, table, version))
            if commit is not None and commit.get("userMetadata") == start.run_id:
                return True
    return False


def _added(file: AddedFile) -> AddAction:
    return AddAction(file.path, file.size, {"cluster": file.cluster}, file.modification_time_ms, True, file.stats)


def _removed(start: RunStart, path: str, size: int) -> RemoveAction:
    return RemoveAction(path, True, time.time_ns() // 1_000_000, size, {"cluster": start.cluster})


class _OvertakenError(WarehouseError):
    """Raised when another run of the cluster committed to a table since this one began."""


def _overtaken(start: RunStart) -> _OvertakenError:
    return _OvertakenError(
        f"Another run of cluster {start.cluster!r} wrote to {start.location.uri} while this one was at work. Nothing of this one is"
        " visible. Run it again when no other is at work."
    )


def _keep_few_files(start: RunStart, runs: OpenTable) -> None:
    """Merge the files of ``runs``: each run adds a file with one row, and every reader opens all of them."""
    files = runs.files(start.cluster)
    if len(files) > _RUN_FILES:
        merged = write_part(start.location.uri, RUNS, runs.rows(start.cluster, list(RUNS.by_name)), start.cluster, start.run_id)
        runs.replace(start.cluster, {path: file.size for path, file in files.items()}, merged, start.run_id, is_data_change=False)
