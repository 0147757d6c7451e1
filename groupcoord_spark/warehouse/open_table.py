"""A table of a warehouse at one version: its files, its transactions and its rows, as Delta's log has them. Delta through delta-rs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyarrow import fs

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.log.files.object_store import FILES_AT_ONCE
from groupcoord_spark.log.files.storage import infos_in
from groupcoord_spark.warehouse.declaration import Table, no_rows
from groupcoord_spark.warehouse.location import WarehouseLocation, cause_of, directory_of
from groupcoord_spark.warehouse.parts import run_of
from groupcoord_spark.warehouse.stored_file import Condition, checked_file, rows_of_file
from groupcoord_spark.warehouse.tables import HISTORY, RUNS
from groupcoord_spark.wording import counted

# The version of a transaction ``groupcoord.rows:<cluster>``: a number of rows and, above it, bits of the number of the run that wrote it.
_MOST_ROWS: Final = 1 << 40
_MOST_RUNS: Final = 1 << 22

Action = AddAction | RemoveAction


class StoredFile(NamedTuple):
    """What Delta's log says of a file; a field is None where the log lacks the value.

    oldest_us: the smallest record timestamp, in microseconds.
    """

    size: int
    rows: int | None
    oldest_us: int | None


class OpenTable:
    """A table, open at one version.

    The files and transactions that were asked for are kept until the next commit or ``refresh``: delta-rs reads the log of the table for
    each question. A commit that was made here is read when somebody asks the table for more than its version: few do.
    """

    def __init__(self, location: WarehouseLocation, table: Table, delta: DeltaTable) -> None:
        self.location = location
        self.table = table
        self._delta = delta
        self._files: dict[str, Mapping[str, StoredFile]] = {}
        self._transactions: dict[str, int | None] = {}
        self._unread_version: int | None = None

    @property
    def delta(self) -> DeltaTable:
        """delta-rs's table. A commit that was made here is read first; raises DeltaError or OSError where it cannot be read."""
        if self._unread_version:
            self.refresh()
        return self._delta

    @property
    def version(self) -> int:
        """The version at which the table is open, also where a commit that was made here has not been read yet."""
        return self._unread_version or self._delta.version()

    @property
    def stored_columns(self) -> set[str]:
        """The names of the columns of this version; an older release had fewer than the table has now."""
        return {field.name for field in self.delta.schema().fields}

    def refresh(self) -> None:
        """Goes on to the newest version. Raises DeltaError or OSError where a newer commit cannot be read."""
        self._delta.update_incremental()
        self._files, self._transactions, self._unread_version = {}, {}, None

    def files(self, cluster: str) -> Mapping[str, StoredFile]:
        """The files of a cluster, by their path within the table.

        Files lie one directory deep. Raises WarehouseError where a file of the cluster lies elsewhere, as one with ``../`` in its path
        does, and where the log gives a file in the directory of one cluster to another cluster, as one flipped bit does.
        """
        if cluster not in self._files:
            self._files[cluster] = self._checked_files(cluster)
        return self._files[cluster]

    def _checked_files(self, cluster: str) -> dict[str, StoredFile]:
        # Not ``pa.table``, which imports pandas.
        listed = pa.RecordBatchReader.from_stream(self.delta.get_add_actions(flatten=True)).read_all()
        oldest = listed["min.record_timestamp"].cast(pa.int64()) if "min.record_timestamp" in listed.column_names else pa.nulls(len(listed))
        columns = [*(listed[name] for name in ("partition.cluster", "path", "size_bytes", "num_records")), oldest]
        files: dict[str, StoredFile] = {}
        own_directory = directory_of(cluster)
        for named_cluster, quoted_path, *says in zip(*(column.to_pylist() for column in columns), strict=True):
            path = unquote(quoted_path)
            directory, _, name = path.rpartition("/")
            if named_cluster != cluster and directory != own_directory:
                continue  # a file of another cluster: its damage is told to readers of that cluster
            if "/" in directory or directory in ("", ".", ".."):
                sentence = f"The log of table {self.table.name} of {self.location.uri} names a file outside of it: {path}."
                raise WarehouseError(f"{sentence} {way_out(self.location, self.table)}")
            # Long names of clusters may share a directory.
            if run_of(name) is not None and directory != directory_of(named_cluster):
                why = f"its log names {path} as a file of cluster {named_cluster!r}: a file of {self.path_of('_delta_log')} is damaged"
                raise unreadable(self.location, self.table, why)
            if named_cluster == cluster:
                files[path] = StoredFile(*says)
        return files

    def transaction(self, application: str) -> int | None:
        """The version of the last transaction of a Delta application; None: there is none."""
        if application not in self._transactions:
            self._transactions[application] = self.delta.transaction_version(application)
        return self._transactions[application]

    def last_run(self, cluster: str) -> int:
        """The number of the cluster's last run in the table; 0: no run has written one."""
        return self.transaction(f"groupcoord:{cluster}") or 0

    def check_number_of_rows(self, cluster: str) -> None:
        """Raises WarehouseError where the table has another number of rows of a cluster than its last commit left there.

        Delta ignores an action of its log that it does not know: one flipped bit hides a file that was added, or brings a removed file
        back.
        """
        written = self.transaction(f"groupcoord.rows:{cluster}")
        files = self.files(cluster).values()
        if written is None or any(file.rows is None for file in files):
            return
        run, rows = divmod(written, _MOST_ROWS)
        named_rows = sum(file.rows or 0 for file in files)
        # A run of an older release says nothing of its rows, also where one of this release came before it.
        if named_rows != rows and run == self.last_run(cluster) % _MOST_RUNS:
            why = f"its log names files with {counted(named_rows, 'row')} of cluster {cluster!r}, and {rows:,} were written"
            raise unreadable(self.location, self.table, f"{why}: a file of {self.path_of('_delta_log')} is damaged")

    def commit(
        self,
        cluster: str,
        actions: Sequence[Action],
        metadata: dict[str, str],
        *,
        run: int | None,
        transactions: Sequence[Transaction] = (),
        replaces: bool = False,
    ) -> None:
        """Adds and removes files of a cluster in one commit, and goes on to the new version. Raises DeltaError or OSError.

        metadata: entries for the metadata of the commit. run: the number of the run (``last_run``); the commit then also records how many
        rows the cluster has after the commit (``check_number_of_rows``); None: the commit records no number of rows. transactions: of
        Delta applications, in the same commit. replaces: all other files of the cluster are removed.
        """
        present = self.files(cluster)
        overwrites = replaces and bool(present)
        rows = [] if run is None else self._transaction_of_rows(cluster, run, {} if overwrites else present, actions)
        self.delta.create_write_transaction(
            list(actions),
            "overwrite" if overwrites else "append",
            self.table.delta_schema,
            partition_by=list(self.table.partition_columns),
            partition_filters=[("cluster", "=", cluster)] if overwrites else None,
            commit_properties=CommitProperties(custom_metadata=metadata, app_transactions=[*rows, *transactions]),
        )
        self._files, self._transactions, self._unread_version = {}, {}, self._delta.version() + 1
        later = self.path_of(f"_delta_log/{self._unread_version + 1:020}.json")
        if self.location.filesystem.get_file_info(later).type != fs.FileType.NotFound:
            self.refresh()  # another cluster committed too, before or after

    @staticmethod
    def _transaction_of_rows(cluster: str, run: int, present: Mapping[str, StoredFile], actions: Sequence[Action]) -> list[Transaction]:
        """The number of the cluster's rows after a commit, as a transaction; none where the log lacks the number of rows of a file."""
        rows = {path: file.rows for path, file in present.items()}
        for action in actions:
            if isinstance(action, AddAction):
                rows[action.path] = json.loads(action.stats)["numRecords"]
            else:
                rows.pop(action.path, None)
        numbers = [number for number in rows.values() if number is not None]
        version = run % _MOST_RUNS * _MOST_ROWS + sum(numbers)
        return [Transaction(f"groupcoord.rows:{cluster}", version)] if len(numbers) == len(rows) else []

    def path_of(self, path: str) -> str:
        """A path within the table, for example of ``files``, as a path in the warehouse's file system."""
        return self.location.path_in(self.table.name, path)

    def paths(self, cluster: str, where: Sequence[Condition] = ()) -> list[str]:
        """The paths, in the warehouse's file system, of a cluster's files that may have rows of the conditions.

        Raises WarehouseError as ``files`` does, and where the log has other files than were written (``check_number_of_rows``).
        """
        try:
            self.check_number_of_rows(cluster)
            files = list(self.files(cluster))
            stored = self.stored_columns
            in_log = [(name, how, value) for name, how, value in where if name in stored]
            # To delta-rs an empty text in a condition means NULL; Kafka has groups of that name.
            for_files = [(name, how, value) for name, how, value in in_log if "" not in (value if how == "in" else [value])]
            if for_files:
                uris = self.delta.file_uris(file_pruning_predicate=[("cluster", "=", cluster), *for_files])
                chosen = {uri.rpartition("/")[2] for uri in uris}
                files = [path for path in files if path.rpartition("/")[2] in chosen]
        except (DeltaError, OSError) as e:
            raise unreadable(self.location, self.table, cause_of(e)) from e
        return [self.path_of(path) for path in files]

    def rows(self, cluster: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        """A cluster's rows that meet the conditions. Raises WarehouseError where a file cannot be read."""
        schema = pa.schema([self.table.arrow_schema.field(name) for name in columns])

        def of_file(path: str) -> pa.Table:
            with self.checked(path) as file:
                return rows_of_file(file, cluster, schema, where)

        # pyarrow reads a file without Python's lock: threads pay on a disk too
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            return pa.concat_tables([no_rows(schema), *pool.map(of_file, self.paths(cluster, where))])

    @contextmanager
    def checked(self, path: str) -> Iterator[pq.ParquetFile]:
        """The open file, as ``checked_file`` does. Raises WarehouseError where it cannot be opened, or read within the block.

        path: in the warehouse's file system.
        """
        name, uri = self.table.name, self.location.uri
        try:
            # delta-rs's own file system would bring its threads along, which at times outlive the interpreter
            with self.location.filesystem.open_input_file(path) as source:
                yield checked_file(source, path, self.table)
        except FileNotFoundError as e:
            raise WarehouseError(
                f"A file of table {name} of {uri} is gone: {cause_of(e)}."
                " After a vacuum, nights older than the retention of deleted files cannot be read. Where a file was removed by hand:"
                f" {way_out(self.location, self.table)}"
            ) from e
        except KeyError as e:
            raise WarehouseError(
                f"Table {name} of {uri} lacks a column that this release reads: {cause_of(e)}. It was written by a"
                " pre-release: run the nightly into another directory."
            ) from e
        except (OSError, pa.ArrowException) as e:
            raise unreadable(self.location, self.table, cause_of(e)) from e


def table_exists(location: WarehouseLocation, table: Table) -> bool:
    """Whether there is a Delta table, at whatever version. Raises WarehouseError where that cannot be found out."""
    try:
        return DeltaTable.is_deltatable(location.table_uri(table.name))
    except (DeltaError, OSError) as e:
        raise unreadable(location, table, cause_of(e)) from e


def open_table(location: WarehouseLocation, table: Table, version: int | None = None) -> OpenTable:
    """A table at a version, or at its newest one. Raises WarehouseError where it does not exist or cannot be read."""
    try:
        return OpenTable(location, table, DeltaTable(location.table_uri(table.name), version=version))
    except (DeltaError, OSError, ValueError) as e:
        if version is not None and begins_after(location, table, version):
            raise WarehouseError(
                f"Table {table.name} of {location.uri} was deleted and made anew after this night, whose rows of it are gone: version"
                f" {version} does not exist any more. Newer nights can be read."
            ) from e
        if isinstance(e, TableNotFoundError):
            raise WarehouseError(
                f"{location.uri} has no table {table.name}: it was removed, or the warehouse is damaged. {way_out(location, table)}"
            ) from e
        raise unreadable(location, table, cause_of(e), "" if version is None else f" at version {version}") from e
    except BaseException as e:
        # The Rust below delta-rs panics at some damages of a checkpoint. Its error is no Exception, and has no name to import.
        if type(e).__name__ != "PanicException":
            raise
        raise unreadable(location, table, f"a checkpoint in {location.path_in(table.name, '_delta_log')} is damaged") from e


def begins_after(location: WarehouseLocation, table: Table, version: int) -> bool:
    """True where the log of a table begins above a version, because the table was deleted and a later run made it anew."""
    try:
        log = infos_in(location.filesystem, location.path_in(table.name, "_delta_log"), allow_not_found=True)
    except OSError:
        return False
    numbers = [int(number) for file in log if (number := file.base_name.split(".")[0]).isdecimal()]
    return bool(numbers) and min(numbers) > version


def unreadable(location: WarehouseLocation, table: Table, why: str, at_version: str = "") -> WarehouseError:
    """The error of a table that cannot be read. at_version: words that name a version of the table."""
    return WarehouseError(f"Table {table.name} of {location.uri} cannot be read{at_version}: {why}. {way_out(location, table)}")


def way_out(location: WarehouseLocation, table: Table) -> str:
    """How to go on where a table is gone or damaged, in a sentence."""
    if table in HISTORY or table is RUNS:
        return "Restore it from a copy, or run the nightly into another directory."
    return (
        f"Restore it from a copy, or delete the directory {location.table_uri(table.name)}: the next nightly then writes the table anew,"
        " and its earlier nights are lost."
    )
