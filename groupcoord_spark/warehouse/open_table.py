"""A table of a warehouse at one version: its files, its transactions and its rows, as Delta's log has them. Delta through delta-rs."""

import json
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyarrow import fs

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.storage import page_checksums
from groupcoord_spark.storage.location import infos_in
from groupcoord_spark.storage.object_store import FILES_AT_ONCE
from groupcoord_spark.storage.warehouse_location import WarehouseLocation, cause_of, directory_of, sync
from groupcoord_spark.warehouse.declaration import Table, WriteMode, no_rows
from groupcoord_spark.warehouse.parts import AddedFile, run_of
from groupcoord_spark.warehouse.stored_file import Condition, checked_file, rows_of_file, text_array
from groupcoord_spark.warehouse.tables import HISTORY, RUNS
from groupcoord_spark.wording import counted

# The version of a transaction ``groupcoord.rows:<cluster>``: a number of rows and, above it, bits of the number of the run that wrote it.
_MOST_ROWS: Final = 1 << 40
_MOST_RUNS: Final = 1 << 22

Action = AddAction | RemoveAction

# The one feature of Delta's protocol that a table may have: whether its files use it is checked where they are listed.
_DELETION_VECTORS: Final = "deletionVectors"

CLUSTER_OF_COMMIT: Final = "groupcoord.cluster"
"""Key of the cluster in the metadata of a commit, which also has the run's id as ``userMetadata``."""


class StoredFile(NamedTuple):
    """A file as described by Delta's log; a field is None if the log lacks the value.

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
        self._listing: pa.Table | None = None
        self._transactions: dict[str, int | None] = {}
        self._unread_version: int | None = None
        self._refuse_other_protocols()

    @property
    def delta(self) -> DeltaTable:
        """The table as delta-rs opened it, after a commit that was made here. Raises WarehouseError where that cannot be read."""
        if self._unread_version:
            self.refresh()
        return self._delta

    @property
    def version(self) -> int:
        """Return the open version of the table, also if a commit by this process has not been read yet."""
        return self._unread_version or self._delta.version()

    @property
    def stored_columns(self) -> set[str]:
        """The names of the columns of this version; an older release had fewer than the table has now."""
        return {field.name for field in self.delta.schema().fields}

    def refresh(self) -> None:
        """Go on to the newest version. Raises WarehouseError where a newer commit cannot be read."""
        with reading(self.location, self.table):
            self._delta.update_incremental()
        self._forget(unread_version=None)
        self._refuse_other_protocols()

    def _forget(self, unread_version: int | None) -> None:
        self._files, self._listing, self._transactions = {}, None, {}
        self._unread_version = unread_version

    def _refuse_other_protocols(self) -> None:
        """Raise WarehouseError where its Parquet files alone do not have its rows, because of a table feature.

        Every reader opens tables here, so this is the one check of Delta's protocol.
        """
        protocol = self._delta.protocol()
        features = set(protocol.reader_features or ()) - {_DELETION_VECTORS}
        if self._delta.metadata().configuration.get("delta.columnMapping.mode", "none") == "none":
            features.discard("columnMapping")
        elif protocol.min_reader_version == 2:
            features.add("columnMapping")
        if features or protocol.min_reader_version > 3:
            named = ", ".join(sorted(features)) or f"of reader version {protocol.min_reader_version}"
            why = f"another program enabled Delta features that this release does not read ({named})"
            raise unreadable(self.location, self.table, why)

    def _refuse_deletion_vectors(self, files: Mapping[str, StoredFile]) -> None:
        """Raise WarehouseError where a deletion vector marks rows of one of the files as deleted."""
        if _DELETION_VECTORS not in (self._delta.protocol().reader_features or ()):
            return
        with reading(self.location, self.table):
            marked = pa.table(self._delta.deletion_vectors())["filepath"].to_pylist()
        names = {unquote(path).rpartition("/")[2] for path in marked}
        if any(path.rpartition("/")[2] in names for path in files):
            uri = self.location.table_uri(self.table.name).replace("`", "``")
            raise WarehouseError(
                f"Table {self.table.name} of {self.location.uri} has deletion vectors, which this release does not read: another program"
                f" deleted rows. Run REORG TABLE delta.`{uri}` APPLY (PURGE) in Spark, and then the nightly."
            )

    def files(self, cluster: str) -> Mapping[str, StoredFile]:
        """Return the files of a cluster, by their path within the table.

        Files lie one directory deep. Raises WarehouseError where a file of the cluster lies elsewhere, as one with ``../`` in its path
        does, and where the log gives a file in the directory of one cluster to another cluster, as one flipped bit does.
        """
        if cluster not in self._files:
            self._files[cluster] = self._checked_files(cluster)
        return self._files[cluster]

    def clusters(self, newest_in: str) -> list[str]:
        """Return the clusters with files in the table, first those whose files have the greatest values of a column by Delta's log.

        Clusters for which the log has no greatest value come before all others.
        """
        listed, column = self._listed(), f"max.{newest_in}"
        values = listed[column].cast(pa.int64()) if column in listed.column_names else pa.nulls(len(listed), pa.int64())
        greatest: dict[str, float] = {}
        for cluster, value in zip(listed["partition.cluster"].to_pylist(), values.to_pylist(), strict=True):
            greatest[cluster] = max(greatest.get(cluster, -inf), inf if value is None else value)
        return sorted(greatest, key=lambda cluster: (-greatest[cluster], cluster))

    def _listed(self) -> pa.Table:
        """Return the files of the table as delta-rs lists them."""
        if self._listing is None:
            delta = self.delta
            with reading(self.location, self.table):
                actions = delta.get_add_actions(flatten=True)
                if hasattr(pa.RecordBatchReader, "from_stream"):
                    self._listing = pa.RecordBatchReader.from_stream(actions).read_all()
                else:  # pyarrow 14
                    self._listing = pa.table(actions)  # imports pandas
        return self._listing

    def _entries(self, cluster: str) -> Iterator[tuple[str, str, StoredFile]]:
        """Yield cluster, path and description of each file that the log gives to a cluster, or that lies in its directory."""
        listed, directory = self._listed(), directory_of(cluster)
        is_own = pc.is_in(listed["partition.cluster"].cast(pa.string()), value_set=text_array([cluster]))  # `pc.equal` would import pandas
        for written in {directory, quote(directory, safe="=")}:  # delta-rs quotes a path again
            is_own = pc.or_(is_own, pc.starts_with(listed["path"], pattern=f"{written}/"))
        own = listed.filter(is_own)
        oldest = own["min.record_timestamp"].cast(pa.int64()) if "min.record_timestamp" in own.column_names else pa.nulls(len(own))
        columns = [*(own[name] for name in ("partition.cluster", "path", "size_bytes", "num_records")), oldest]
        for named_cluster, path, *says in zip(*(column.to_pylist() for column in columns), strict=True):
            yield named_cluster, unquote(path), StoredFile(*says)

    def _checked_files(self, cluster: str) -> dict[str, StoredFile]:
        files: dict[str, StoredFile] = {}
        for named_cluster, path, file in self._entries(cluster):
            directory, _, name = path.rpartition("/")
            if "/" in directory or directory in ("", ".", ".."):
                sentence = f"The log of table {self.table.name} of {self.location.uri} names a file outside of it: {path}."
                raise WarehouseError(f"{sentence} {way_out(self.location, self.table)}")
            # Long names of clusters may share a directory.
            if run_of(name) is not None and directory != directory_of(named_cluster):
                why = f"its log names {path} as a file of cluster {named_cluster!r}: a file of {self.path_of('_delta_log')} is damaged"
                raise unreadable(self.location, self.table, why)
            if named_cluster == cluster:
                files[path] = file
        self._refuse_deletion_vectors(files)
        return files

    def transaction(self, application: str) -> int | None:
        """Return the version of the last transaction of a Delta application; None: there is none."""
        if application not in self._transactions:
            delta = self.delta
            with reading(self.location, self.table):
                self._transactions[application] = delta.transaction_version(application)
        return self._transactions[application]

    def last_run(self, cluster: str) -> int:
        """Return the number of the cluster's last run in the table; 0: no run has written one."""
        return self.transaction(f"groupcoord:{cluster}") or 0

    def check_number_of_rows(self, cluster: str) -> None:
        """Raise WarehouseError where the table has another number of rows of a cluster than its last commit left there.

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

    def has_rows_of(self, cluster: str, run_id: str, finished: Collection[str], transactions: Mapping[str, int]) -> bool:
        """Return whether this version has the rows of a cluster as an earlier commit of one of its runs left them.

        Args:
            run_id: The run.
            finished: The cluster's runs up to this run.
            transactions: Those of the commit (``check_commit``), which has the number of its rows.
        """
        application = f"groupcoord.rows:{cluster}"
        files = self.files(cluster)
        makers = {run_of(path.rpartition("/")[2]) for path in files}
        expected = {run_id} if self.table.write is WriteMode.REPLACED_BY_EACH_RUN else {*finished}
        rows = sum(-1 if file.rows is None else file.rows for file in files.values())
        if not makers <= expected or transactions.get(application, -1) % _MOST_ROWS != rows:
            return False
        # The log at this version need not be asked for the numbers that the commit has.
        self._transactions |= {application: transactions[application], f"groupcoord:{cluster}": transactions.get(f"groupcoord:{cluster}")}
        return True

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
        """Add and remove files of a cluster in one commit, and go on to the new version. Raises DeltaError or OSError.

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
        made = self._delta.version() + 1
        self._forget(unread_version=made)
        later = path_of_entry(self.location, self.table, made + 1)
        if self.location.filesystem.get_file_info(later).type != fs.FileType.NotFound:
            self.refresh()  # another cluster committed too, before or after

    def replace(self, cluster: str, old: Mapping[str, int], new: Sequence[AddedFile], name: str, *, is_data_change: bool) -> None:
        """Replace files of a cluster by others in one commit, which is on the disk afterwards. Raises DeltaError or OSError.

        old: path within the table -> size. name: the name of the commit. is_data_change: whether the rows are not the same afterwards.
        """
        partition: dict[str, str | None] = {"cluster": cluster}
        now_ms = time.time_ns() // 1_000_000
        removed = [RemoveAction(path, is_data_change, now_ms, size, partition) for path, size in old.items()]
        added = [AddAction(file.path, file.size, partition, file.modification_time_ms, is_data_change, file.stats) for file in new]
        # `runs` keeps its number of rows here, and a run may add one now.
        run = self.last_run(cluster) if is_data_change and self.table is not RUNS else None
        version = self.version
        self.sync([file.path for file in new], version)
        self.commit(cluster, [*removed, *added], {"userMetadata": name}, run=run)
        self.sync([], version)

    def sync(self, files: Iterable[str], above: int) -> None:
        """Write files of the table, and the entries of its log above a version, to the disk of this machine. Raises OSError."""
        sync(self.location, self.to_sync(files, above))

    def to_sync(self, files: Iterable[str], above: int) -> list[str]:
        """Return the paths of files of the table, of the entries of its log above a version, and of their directories."""
        if not self.location.is_local:
            return []
        log = self.path_of("_delta_log")
        with os.scandir(log) as entries:
            numbered = [(entry.path, entry.name.partition(".")[0]) for entry in entries if entry.is_file()]
        new = [path for path, number in numbered if not number.isdecimal() or int(number) > above]
        paths = [self.path_of(path) for path in files]
        directories = [*(path.rpartition("/")[0] for path in paths), log, self.path_of(""), self.location.path]
        return [*paths, *new, *directories]

    @staticmethod
    def _transaction_of_rows(cluster: str, run: int, present: Mapping[str, StoredFile], actions: Sequence[Action]) -> list[Transaction]:
        """Return the number of rows of the cluster after a commit, as a transaction; [] where the log lacks the number of a file."""
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
        """Return a path within the table, for example of ``files``, as a path in the warehouse's file system."""
        return self.location.path_in(self.table.name, path)

    def paths_of_all_clusters(self) -> set[str]:
        """Return the paths of the table's files in the warehouse's file system, of every cluster."""
        listed = self._listed()
        return {self.path_of(unquote(path)) for path in listed["path"].to_pylist()}

    def paths(self, cluster: str, where: Sequence[Condition] = ()) -> list[str]:
        """Return the paths, in the warehouse's file system, of a cluster's files that may have rows of the conditions.

        Raises WarehouseError as ``files`` does, and where the log has other files than were written (``check_number_of_rows``).
        """
        self.check_number_of_rows(cluster)
        files = list(self.files(cluster))
        stored = self.stored_columns
        in_log = [(name, how, value) for name, how, value in where if name in stored]
        # To delta-rs an empty text in a condition means NULL; Kafka has groups of that name.
        for_files = [(name, how, value) for name, how, value in in_log if "" not in (value if how == "in" else [value])]
        if for_files:
            with reading(self.location, self.table):
                uris = self._delta.file_uris(file_pruning_predicate=[("cluster", "=", cluster), *for_files])
            chosen = {uri.rpartition("/")[2] for uri in uris}
            files = [path for path in files if path.rpartition("/")[2] in chosen]
        return [self.path_of(path) for path in files]

    def rows(self, cluster: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        """Return a cluster's rows that meet the conditions. Raises WarehouseError where a file cannot be read."""
        return self.rows_in(self.paths(cluster, where), cluster, columns, where)

    def rows_in(self, paths: Sequence[str], cluster: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        """Return the rows in these files, which a commit may still have to name. Raises WarehouseError where one cannot be read."""
        schema = pa.schema([self.table.arrow_schema.field(name) for name in columns])

        def of_file(path: str) -> pa.Table:
            with self.checked(path) as file:
                return rows_of_file(file, cluster, schema, where)

        if len(paths) < 2:
            return pa.concat_tables([no_rows(schema), *map(of_file, paths)])
        # pyarrow reads a file without Python's lock: threads pay on a disk too
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            return pa.concat_tables([no_rows(schema), *pool.map(of_file, paths)])

    @contextmanager
    def checked(self, path: str) -> Iterator[pq.ParquetFile]:
        """Open a file, as ``checked_file`` does. Raises WarehouseError where it cannot be opened, or read within the block.

        path: in the warehouse's file system.
        """
        name, uri = self.table.name, self.location.uri
        try:
            refuse_irregular(self.location, path)
            # delta-rs's own file system would bring its threads along, which at times outlive the interpreter
            with self.location.filesystem.open_input_file(path) as source:
                yield checked_file(source, path, self.table)
        except FileNotFoundError as e:
            raise WarehouseError(
                f"A file of table {name} of {uri} is gone: {cause_of(e)}."
                " After a vacuum, runs older than the retention of deleted files cannot be read. Where a file was removed by hand:"
                f" {way_out(self.location, self.table)}"
            ) from e
        except KeyError as e:
            raise WarehouseError(
                f"Table {name} of {uri} lacks a column that this release reads: {cause_of(e)}. It was written by a"
                " pre-release: run the nightly into another directory."
            ) from e
        except (OSError, pa.ArrowException) as e:
            why = cause_of(e)
            raise unreadable(self.location, self.table, why if path in why else f"{path}: {why}") from e


def table_exists(location: WarehouseLocation, table: Table) -> bool:
    """Return whether there is a Delta table, at whatever version. Raises WarehouseError where that cannot be found out."""
    with reading(location, table):
        return DeltaTable.is_deltatable(location.table_uri(table.name))


def open_table(location: WarehouseLocation, table: Table, version: int | None = None) -> OpenTable:
    """Open a table at a version, or at its newest one. Raises WarehouseError where it does not exist or cannot be read."""
    at_version = "" if version is None else f" at version {version}"
    try:
        with reading(location, table, at_version):
            _refuse_irregular_log(location, table)
            delta = DeltaTable(location.table_uri(table.name), version=version)
    except WarehouseError as e:
        if damaged := damaged_checkpoints(location, table):
            raise WarehouseError(
                f"Table {table.name} of {location.uri} cannot be read{at_version}: {damaged[0]} is damaged. The log does not need it: run"
                " the nightly, which deletes it."
            ) from e
        if version is not None and begins_after(location, table, version):
            raise WarehouseError(
                f"Table {table.name} of {location.uri} was deleted and created again after this run, whose rows of it are gone: version"
                f" {version} does not exist any more. Newer runs can be read."
            ) from e
        if isinstance(e.__cause__, TableNotFoundError):
            raise WarehouseError(
                f"{location.uri} has no table {table.name}: it was removed, or the warehouse is damaged. {way_out(location, table)}"
            ) from e
        raise
    return OpenTable(location, table, delta)


@contextmanager
def reading(location: WarehouseLocation, table: Table, at_version: str = "") -> Iterator[None]:
    """Raise WarehouseError, a sentence about the table, where delta-rs or the file system fails within the block.

    at_version: words that name a version of the table.
    """
    try:
        yield
    except (DeltaError, OSError, ValueError, pa.ArrowException) as e:
        raise unreadable(location, table, cause_of(e), at_version) from e
    except BaseException as e:
        # delta-rs panics on some damaged checkpoints. Its error is not an Exception and has no name to import.
        if type(e).__name__ != "PanicException":
            raise
        raise unreadable(location, table, f"a checkpoint in {location.path_in(table.name, '_delta_log')} is damaged") from e


def _refuse_irregular_log(location: WarehouseLocation, table: Table) -> None:
    """Raise OSError where the log of a table of this machine has an irregular file.

    delta-rs would wait for a FIFO. It passes over a directory or a dangling link in place of an entry, and then no run could commit.
    """
    if location.is_local:
        with suppress(FileNotFoundError), os.scandir(location.path_in(table.name, "_delta_log")) as entries:
            for entry in entries:
                if not entry.is_file() and not (entry.is_dir() and not entry.name.endswith(".json")):
                    raise OSError(f"{entry.path} is not a regular file")


def damaged_checkpoints(location: WarehouseLocation, table: Table) -> list[str]:
    """Return the paths of unreadable checkpoints of a table of this machine, with the pointer to them.

    A power cut leaves such files while a run commits. The list is empty where the log needs a checkpoint, because it lacks older entries.
    """
    log = location.path_in(table.name, "_delta_log")
    try:
        infos = infos_in(location.filesystem, log, allow_not_found=True) if location.is_local else []
    except OSError:
        return []
    names = {info.base_name for info in infos if info.is_file}  # to open a FIFO may take for ever
    versions = sorted(int(name[:-5]) for name in names if re.fullmatch(r"\d{20}\.json", name))
    if not versions or versions != [*range(len(versions))]:
        return []
    checkpoints = {name for name in names if re.fullmatch(r"\d{20}\.checkpoint.*\.parquet", name)}
    damaged = {name for name in checkpoints if not _is_readable(f"{log}/{name}")}
    pointer = "_last_checkpoint"
    if damaged or (pointer in names and not checkpoints):
        damaged |= {pointer} & names
    return sorted(f"{log}/{name}" for name in damaged)


def _is_readable(path: str) -> bool:
    """Return whether a file is Parquet that can be read to its end."""
    try:
        pq.ParquetFile(path, **page_checksums.VERIFIED).read()
    except (OSError, pa.ArrowException):
        return False
    return True


def refuse_irregular(location: WarehouseLocation, path: str) -> None:
    """Raise OSError where a path of this machine is a FIFO, a socket or a device: to open one may take for ever."""
    if location.is_local and not stat.S_ISREG(mode := Path(path).stat().st_mode) and not stat.S_ISDIR(mode):
        raise OSError(f"{path} is not a regular file")


def check_commit(location: WarehouseLocation, table: Table, version: int, cluster: str, run_id: str) -> Mapping[str, int]:
    """Return the transactions of a run's commit by Delta application; none where a checkpoint has replaced the entry.

    Raises WarehouseError where the log of a table does not have the whole commit of a run at the version that the run names.

    Delta takes an entry of its log without bytes, as a power cut, a full disk or a copy that broke off leaves it, for a commit that changes
    nothing: the version would then have the rows of an earlier run.
    """
    at_version = f" at version {version}"
    for number in range(version, -1, -1):
        path = path_of_entry(location, table, number)
        with reading(location, table, at_version):
            try:
                commit, transactions = commit_at(location, path)
            except FileNotFoundError:
                return {}  # a checkpoint has the version, or it cannot be opened
        is_of_run = commit is not None and commit.get("userMetadata") == run_id
        # The transaction of the cluster is the last line of the entry. The first release wrote none.
        if is_of_run and (f"groupcoord:{cluster}" in transactions or not open_table(location, table, version).last_run(cluster)):
            return transactions
        if is_of_run or commit is None:
            raise unreadable(location, table, f"{path} is empty or cut off", at_version)
        if commit.get(CLUSTER_OF_COMMIT) == cluster:
            why = f"{path} is the commit of run {commit.get('userMetadata')}, and not of run {run_id}"
            raise unreadable(location, table, why, at_version)
        # Another cluster committed at the same moment, and the run names the version after both commits.
    return {}


def path_of_entry(location: WarehouseLocation, table: Table, version: int) -> str:
    """Return the path of the entry of a table's log that made a version."""
    return location.path_in(table.name, f"_delta_log/{version:020}.json")


def commit_at(location: WarehouseLocation, path: str) -> tuple[Mapping[str, object] | None, dict[str, int]]:
    """Return the commitInfo of an entry of a log and its transactions by application; (None, {}) for an entry that is not whole.

    Raises OSError where the entry does not exist or cannot be read.
    """
    refuse_irregular(location, path)
    with location.filesystem.open_input_file(path) as file:
        entry = file.read()
    try:
        actions = [dict(json.loads(line)) for line in entry.splitlines()]
        transactions = {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
        return dict(next(action["commitInfo"] for action in actions if "commitInfo" in action)), transactions
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError):
        return None, {}


def begins_after(location: WarehouseLocation, table: Table, version: int) -> bool:
    """Return whether the log of a table starts above a version, because the table was deleted and created again by a later run."""
    try:
        log = infos_in(location.filesystem, location.path_in(table.name, "_delta_log"), allow_not_found=True)
    except OSError:
        return False
    numbers = [int(number) for file in log if (number := file.base_name.split(".")[0]).isdecimal()]
    return bool(numbers) and min(numbers) > version


def unreadable(location: WarehouseLocation, table: Table, why: str, at_version: str = "") -> WarehouseError:
    """Return the error of a table that cannot be read. at_version: words that name a version of the table."""
    is_denied = re.search(r"permission denied|errno 13", why, re.IGNORECASE)
    remedy = "Let this user read its files." if is_denied else way_out(location, table)
    return WarehouseError(f"Table {table.name} of {location.uri} cannot be read{at_version}: {why}. {remedy}")


def way_out(location: WarehouseLocation, table: Table) -> str:
    """Return how to go on where a table is gone or damaged, in a sentence."""
    if table in HISTORY or table is RUNS:
        return "Restore it from a copy, or run the nightly into another directory."
    return (
        f"Restore it from a copy, or delete the directory {location.table_uri(table.name)}: the next nightly then writes the table again,"
        " and its earlier runs are lost."
    )
