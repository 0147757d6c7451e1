"""Reads tables as of a run: one night or another, never a mixture. Delta through delta-rs, Parquet through pyarrow; no Spark, no pandas.

Delta commits one table at a time. A reader therefore takes the versions of the tables that the newest row of ``runs`` names for its
cluster, not the newest version of each table. A look-back (``nightly --until``) is a run that readers pass over unless they are asked for.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import Transaction
from pyarrow import fs

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.log.files.object_store import missing_bucket, no_such_bucket
from groupcoord_spark.log.files.storage import side_by_side
from groupcoord_spark.moments import Moment, NightsAgo, NightTime, milliseconds_of
from groupcoord_spark.warehouse.declaration import Table, no_rows
from groupcoord_spark.warehouse.location import WarehouseLocation, first_line, locate
from groupcoord_spark.warehouse.tables import GROUPS, HISTORY, LOOK_BACK, NIGHT, RUNS, SCHEMA_VERSION, SURVIVING_RECORDS, TABLES
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.sql import Night

SCHEMA_VERSION_PROPERTY: Final = "groupcoord.schemaVersion"

WAREHOUSE_VARIABLE: Final = "GROUPCOORD_WAREHOUSE"
"""Names the warehouse where no option does."""

RETENTION_SETTING: Final = "offsets.retention.ms"
"""Key of ``runs.settings`` that holds the retention of the run."""

UNTIL_SETTING: Final = "until"
"""Key of ``runs.settings`` that holds the moment of --until; nights do not have it."""

Condition = tuple[str, str, Any]
"""A condition on rows: a column, one of = in < <= > >=, and a value (for ``in`` a list). NULL meets no condition."""

# The version of a transaction ``groupcoord.rows:<cluster>``: a number of rows and, above it, bits of the number of the run that wrote it.
_MOST_ROWS: Final = 1 << 40
_MOST_RUNS: Final = 1 << 22

# Opening many small files is waiting for the file system, reading one large file uses pyarrow's own threads.
_FILES_AT_ONCE: Final = 8

_COMPARISONS: Final = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: one row of ``runs``."""

    run_id: str
    cluster: str
    kind: str
    """night, or look_back: a run with --until, which readers show only where they are asked for it."""
    semantics: str
    """The coordinator whose rules were applied: java or scala."""
    broker_version: str | None
    """The release whose rules were applied, as the user wrote it."""
    input_kind: str
    """What the run read, a word of the column ``input_kind`` of ``runs``."""
    as_of_ms: int
    finished_at_ms: int
    table_versions: Mapping[str, int]
    row: pa.Table
    """The whole row, one row of all columns."""

    @property
    def fields(self) -> dict[str, Any]:
        """The whole row as Python values, its times as datetimes."""
        return dict(self.row.to_pylist()[0])

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the run. ``fields`` has them too, but its datetimes import pandas, which a read command should not pay for."""
        return dict(self.row["settings"][0].as_py())

    @property
    def is_kept(self) -> bool:
        """False where upkeep has dropped the tables of the run (``maintenance``)."""
        return GROUPS.name in self.table_versions

    @property
    def retention_ms(self) -> int | None:
        """The retention of offsets that the run applied; None where the run did not record it."""
        milliseconds = self.settings.get(RETENTION_SETTING)
        return int(milliseconds) if milliseconds is not None else None


class Warehouse:
    """A warehouse as it was when ``open_warehouse`` opened it, or ``write.open_to_write``, which opens every table."""

    def __init__(self, location: WarehouseLocation, tables: Mapping[str, DeltaTable], earlier: Warehouse | None = None) -> None:
        """tables: those that are open at their newest version; without ``runs`` nothing was ever written.

        earlier: the warehouse as it was opened before, whose runs are not read again where none has finished since.
        """
        self.location = location
        self.tables = tables
        self._read_last: dict[str, DeltaTable] = {}
        self._runs_version = tables[RUNS.name].version() if RUNS.name in tables else None
        if earlier is not None and earlier._runs_version == self._runs_version:
            self._runs: pa.Table = earlier._runs
            self._finished: list[Run] = earlier._finished
        else:
            self._runs = RUNS.empty() if self._runs_version is None else _rows_of_runs(location, tables[RUNS.name])
            self._finished = runs_of(self._runs)

    @cached_property
    def newest_versions(self) -> dict[str, int]:
        """Table -> the newest of its versions that a run names."""
        named: dict[str, int] = {}
        for run in self._finished:
            named.update({table: max(version, named.get(table, 0)) for table, version in run.table_versions.items()})
        return named

    def clusters(self) -> list[str]:
        """Names of the clusters with a finished run, sorted."""
        return sorted({run.cluster for run in self._finished})

    def clusters_with_nights(self) -> list[str]:
        """Names of the clusters with a finished night, sorted: a cluster may have look-backs alone."""
        return sorted({run.cluster for run in self._finished if run.kind == NIGHT})

    def runs(self, cluster: str | None = None) -> pa.Table:
        """The rows of ``runs``, oldest first."""
        return self._runs if cluster is None else self._runs.filter(pc.equal(self._runs["cluster"], cluster))

    def finished_runs(self, cluster: str | None = None) -> list[Run]:
        """The runs of a cluster, or of all, nights and look-backs, oldest first."""
        return [run for run in self._finished if cluster is None or run.cluster == cluster]

    def kept_nights(self, run: Run) -> list[Run]:
        """The nights of the run's cluster, up to the run, whose tables are kept, oldest first."""
        nights = [night for night in self.finished_runs(run.cluster) if night.kind == NIGHT and night.is_kept]
        return [night for night in nights if night.finished_at_ms <= run.finished_at_ms]

    def run(self, cluster: str, *, at_ms: NightTime | None = None, run_id: str | None = None, look_back: bool = False) -> Run:
        """The newest night of a cluster; with ``at_ms`` the newest night whose as_of is not later.

        Args:
            at_ms: also NightsAgo; several runs with one as_of are one night, of which the last run counts.
            look_back: the newest look-back instead of the newest night, again with ``at_ms`` among those whose as_of is not later.
            run_id: the run, night or look-back, whose id begins so; ``at_ms`` and ``look_back`` then have no meaning.

        Raises WarehouseError, with the clusters or nights that there are.
        """
        finished = self.finished_runs(cluster)
        if not finished:
            clusters = ", ".join(repr(name) for name in self.clusters()) or "none yet"
            raise WarehouseError(
                f"{self.location.uri} holds no run of cluster {cluster!r}; clusters there: {clusters}. Name one with --cluster."
            )
        if run_id is not None:
            return self._run_named(finished, run_id)
        kind, name = (LOOK_BACK, "look-back") if look_back else (NIGHT, "night")
        runs = [run for run in finished if run.kind == kind]
        if not runs:
            newest = finished[-1]
            raise WarehouseError(
                f"{self.location.uri} holds no {name} of cluster {cluster!r}, only a {'night' if look_back else 'look-back'}:"
                f" {'leave out --look-back' if look_back else f'show it with --run {newest.run_id}'}."
            )
        if at_ms is None:
            return runs[-1]
        if isinstance(at_ms, NightsAgo):
            newest_first = list({run.as_of_ms: run for run in reversed(runs)})
            if at_ms.number >= len(newest_first):
                raise WarehouseError(
                    f"{self.location.uri} holds {counted(len(newest_first), name)} of cluster {cluster!r}, so there is none"
                    f" {at_ms.number} before the newest. `groupcoord runs` lists all."
                )
            at_ms = newest_first[at_ms.number]
        not_later = [run for run in runs if run.as_of_ms <= at_ms]
        if not not_later:
            first = min(runs, key=lambda run: run.as_of_ms).fields["as_of"]
            raise WarehouseError(
                f"{self.location.uri} knows no {name} of cluster {cluster!r} that early; its first is as of {first:%Y-%m-%dT%H:%M:%SZ}."
            )
        newest_as_of_ms = max(run.as_of_ms for run in not_later)
        return [run for run in not_later if run.as_of_ms == newest_as_of_ms][-1]

    def night(self, cluster: str, *, at: Moment | None = None, run: str | None = None) -> Night:
        """The tables and views of one night of a cluster, without ``at`` and ``run`` of the newest one.

        Args:
            at: the newest night as of that moment or earlier.
            run: the run, night or look-back, whose id begins so.

        Raises:
            WarehouseError: as for ``run``.
            UsageError: ``at`` is no time.
        """
        from groupcoord_spark.warehouse.sql import Night

        return Night(self, self.run(cluster, at_ms=None if at is None else milliseconds_of(at), run_id=run))

    def _run_named(self, finished: Sequence[Run], run_id: str) -> Run:
        """The run whose id begins so. Raises WarehouseError, with ids, where there is none or several."""
        candidates = [run for run in finished if run.run_id.startswith(run_id)]
        if len(candidates) == 1:
            return candidates[0]
        if exact := [run for run in candidates if run.run_id == run_id]:
            return exact[0]
        if candidates:
            ids = ", ".join(run.run_id for run in reversed(candidates[-3:]))
            raise WarehouseError(f"{counted(len(candidates), 'run')} of cluster {finished[-1].cluster!r} begin with {run_id!r}: {ids}.")
        newest = ", ".join(run.run_id for run in reversed(finished[-3:]))
        raise WarehouseError(
            f"{self.location.uri} holds no run {run_id!r} of cluster {finished[-1].cluster!r}; its newest are {newest}."
            " `groupcoord runs` lists all."
        )

    def read(
        self,
        table: str,
        *,
        cluster: str | None = None,
        columns: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        at_ms: NightTime | None = None,
        run: Run | None = None,
    ) -> pa.Table:
        """Rows of a table as of the newest night of ``cluster``, or as of the night ``at_ms``. Of ``runs`` the runs finished by then.

        Args:
            cluster: None: every cluster with a night, each as of its own newest one.
            columns: the columns to read, in that order; None: all. A column that the release of that run did not have yet is NULL.
            where: the conditions that every row must meet. Files whose statistics contradict a condition are not opened.
            run: as of this run, and of its cluster; ``cluster`` and ``at_ms`` then have no meaning.

        Raises:
            WarehouseError: the cluster has no such run, or the files of the run are gone.
            KeyError: the table or a column is not declared.
        """
        declared = TABLES[table]
        wanted = [declared.by_name[name].name for name in columns] if columns is not None else list(declared.by_name)
        if run is not None:
            runs = [run]
        else:
            runs = [self.run(name, at_ms=at_ms) for name in ([cluster] if cluster is not None else self.clusters_with_nights())]
        if declared is RUNS:
            return self._runs_until(runs, where).select(wanted)
        for dropped in (run for run in runs if not run.is_kept and table not in run.table_versions):
            raise WarehouseError(
                f"`groupcoord maintain` dropped the tables of run {dropped.run_id} in {self.location.uri}. `groupcoord runs` lists the"
                " nights that are kept."
            )
        # A night of a release that did not have the table yet has no rows of it.
        parts = [
            _rows(self.location, self.opened(declared, run), declared, run.cluster, wanted, where)
            for run in runs
            if table in run.table_versions
        ]
        return pa.concat_tables([no_rows(pa.schema([declared.arrow_schema.field(name) for name in wanted])), *parts])

    def check_files(self, table: str, run: Run) -> None:
        """Raises WarehouseError where the version of a table that the run names, or a file of its cluster's rows in it, is gone."""
        declared = TABLES[table]
        for path in paths_of_files(self.location, declared, self.opened(declared, run), run.cluster):
            if self.location.filesystem.get_file_info(path).type != fs.FileType.File:
                way = way_out(self.location, declared)
                raise WarehouseError(f"A file of table {table} of {self.location.uri} is gone: {path}. {way}")

    def opened(self, table: Table, run: Run) -> DeltaTable:
        """The table at the version that the run names. A table stays open at the version read last: an answer reads some tables again."""
        version = run.table_versions[table.name]
        for already_open in (self.tables.get(table.name), self._read_last.get(table.name)):
            if already_open is not None and already_open.version() == version:
                return already_open
        self._read_last[table.name] = open_table(self.location, table, version)
        return self._read_last[table.name]

    def _runs_until(self, runs: Sequence[Run], where: Sequence[Condition]) -> pa.Table:
        last = {run.cluster: run.finished_at_ms for run in runs}
        rows = self._runs.filter(pa.array([run.finished_at_ms <= last.get(run.cluster, -1) for run in self._finished], pa.bool_()))
        return rows.filter(_meets(rows, where)) if where else rows


def open_warehouse(uri: str | PathLike[str]) -> Warehouse:
    """The warehouse at a path or URI.

    Raises WarehouseError where there is none, or where it is not one of ours, is of a newer release or cannot be read.
    """
    location = locate(fspath(uri))
    if (runs := open_runs(location)) is None:
        raise WarehouseError(
            f"{location.uri} is no warehouse: nothing is there. Make one with `groupcoord nightly`, or name another with --warehouse."
        )
    return Warehouse(location, {RUNS.name: runs})


def find_warehouse(start: Path | None = None) -> str:
    """The warehouse that GROUPCOORD_WAREHOUSE names, else the nearest directory ``warehouse`` in a directory or one above it.

    start: the directory; None: the current one, which for a notebook is the notebook's own. Raises WarehouseError where there is none.
    """
    named = os.environ.get(WAREHOUSE_VARIABLE)
    if named:
        return named
    directory = (start or Path.cwd()).resolve()
    for parent in (directory, *directory.parents):
        warehouse = parent / "warehouse"
        if (warehouse / RUNS.name).is_dir() and open_runs(locate(str(warehouse))) is not None:
            return str(warehouse)
    raise WarehouseError(
        f"There is no warehouse in a directory 'warehouse' of {directory} or above."
        f" Run `make nightly`, or set {WAREHOUSE_VARIABLE} to its path."
    )


def open_runs(location: WarehouseLocation) -> DeltaTable | None:
    """The table ``runs`` of the warehouse of ours that is there; None where the place is empty or does not exist.

    Raises WarehouseError for anything else: a file, a directory with other files, one that cannot be read, a warehouse of a newer release.
    """
    try:
        place = location.filesystem.get_file_info(location.path)
        if place.type == fs.FileType.NotFound:
            if (bucket := missing_bucket(location.filesystem, location.path)) is not None:
                raise WarehouseError(f"{location.uri}: {no_such_bucket(bucket)}.")
            return None
        if place.type == fs.FileType.File:
            raise WarehouseError(f"{location.uri} is a file, not a warehouse directory. Name a directory with --warehouse.")
        names = [info.base_name for info in location.filesystem.get_file_info(fs.FileSelector(location.path))]
        if not names:
            return None
        has_runs = RUNS.name in names and table_exists(location, RUNS)
        if not has_runs and _is_being_made(location, names):
            return None
    except OSError as e:
        raise WarehouseError(f"{location.uri} cannot be read: {first_line(e)}.") from e
    if not has_runs and any(name in names and table_exists(location, table) for name, table in TABLES.items()):
        raise WarehouseError(
            f"{location.uri} has no table runs, which names the version of every other table: it was removed, or it is damaged."
            f" {way_out(location, RUNS)}"
        )
    runs = open_table(location, RUNS) if has_runs else None
    schema_version = None if runs is None else runs.metadata().configuration.get(SCHEMA_VERSION_PROPERTY)
    if schema_version is None:
        raise WarehouseError(
            f"{location.uri} holds other things and no table 'runs' of ours: it is no warehouse, and nothing was touched."
            " Name an empty or new directory with --warehouse."
        )
    if not schema_version.isdecimal() or int(schema_version) > SCHEMA_VERSION:
        raise WarehouseError(
            f"{location.uri} was written by a newer release (tables of version {schema_version}, this release knows {SCHEMA_VERSION})."
            " Upgrade groupcoord-spark, or name another directory with --warehouse."
        )
    return runs


def _is_being_made(location: WarehouseLocation, names: Sequence[str]) -> bool:
    """True where nothing exists but the beginning of ``runs``, the first table to be created: another run is at work, or one died here."""
    if names != [RUNS.name]:
        return False
    begun = location.filesystem.get_file_info(fs.FileSelector(f"{location.path}/{RUNS.name}", allow_not_found=True))
    return all(f.base_name == "_delta_log" for f in begun)


def table_exists(location: WarehouseLocation, table: Table) -> bool:
    """Whether there is a Delta table, at whatever version. Raises WarehouseError where that cannot be found out."""
    try:
        return DeltaTable.is_deltatable(location.table_uri(table.name))
    except (DeltaError, OSError) as e:
        raise unreadable(location, table, first_line(e)) from e


def open_table(location: WarehouseLocation, table: Table, version: int | None = None) -> DeltaTable:
    """A table at a version, or at its newest one. Raises WarehouseError where it does not exist or cannot be read."""
    try:
        return DeltaTable(location.table_uri(table.name), version=version)
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
        raise unreadable(location, table, first_line(e), "" if version is None else f" at version {version}") from e
    except BaseException as e:
        # The Rust below delta-rs panics at some damages of a checkpoint. Its error is no Exception, and has no name to import.
        if type(e).__name__ != "PanicException":
            raise
        raise unreadable(location, table, f"a checkpoint in {location.path_in(table.name, '_delta_log')} is damaged") from e


def begins_after(location: WarehouseLocation, table: Table, version: int) -> bool:
    """True where the log of a table begins above a version, because the table was deleted and a later run made it anew."""
    try:
        log = location.filesystem.get_file_info(fs.FileSelector(location.path_in(table.name, "_delta_log"), allow_not_found=True))
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


def _rows_of_runs(location: WarehouseLocation, opened: DeltaTable) -> pa.Table:
    """All rows of ``runs``, oldest first; ``kind`` is never NULL."""
    clusters = {values["cluster"] for values in opened.partitions()}
    rows = pa.concat_tables([RUNS.empty(), *(_rows(location, opened, RUNS, name, list(RUNS.by_name), ()) for name in sorted(clusters))])
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("finished_at", "ascending"), ("run_id", "ascending")]))
    if not rows["kind"].null_count:
        return rows
    # Releases before the column wrote --until into the settings alone.
    kinds = [
        kind or (LOOK_BACK if UNTIL_SETTING in dict(settings) else NIGHT)
        for kind, settings in zip(rows["kind"].to_pylist(), rows["settings"].to_pylist(), strict=True)
    ]
    return rows.set_column(rows.schema.get_field_index("kind"), rows.schema.field("kind"), pa.chunked_array([_texts(kinds)]))


def runs_of(rows: pa.Table) -> list[Run]:
    """The rows as ``Run``s."""
    texts = [rows[name].to_pylist() for name in ("run_id", "cluster", "kind", "semantics", "broker_version", "input_kind")]
    times = [[time // 1000 for time in rows[name].cast(pa.int64()).to_pylist()] for name in ("as_of", "finished_at")]
    versions = map(dict, rows["table_versions"].to_pylist())
    whole_rows = [rows.slice(at, 1) for at in range(rows.num_rows)]
    return [Run(*values) for values in zip(*texts, *times, versions, whole_rows, strict=True)]


def rows_at(
    location: WarehouseLocation, table: Table, version: int, cluster: str, columns: Sequence[str], where: Sequence[Condition] = ()
) -> pa.Table:
    """A cluster's rows of a table at one version. Raises WarehouseError where the version or one of its files cannot be read.

    A worker asks for one offsets partition after another, and to open a table fifty times would take longer than to read it.
    """
    return _rows(location, _opened_once(location.uri, table.name, version), table, cluster, columns, where)


@lru_cache(maxsize=8)
def _opened_once(warehouse_uri: str, table: str, version: int) -> DeltaTable:
    return open_table(locate(warehouse_uri), TABLES[table], version)


class SurvivingRanges(NamedTuple):
    """Ranges of record offsets whose records were in a log, of one offsets partition and incarnation, sorted."""

    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    def has(self, record_offset: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """bool: the record offset is in a range."""
        at = np.searchsorted(self.first, record_offset, "right") - 1
        is_there: npt.NDArray[np.bool_] = (at >= 0) & (record_offset < np.append(self.end, 0)[at])
        return is_there


def surviving_ranges(
    location: WarehouseLocation, version: int, cluster: str, run_id: str, where: Sequence[Condition] = ()
) -> dict[tuple[int, int], SurvivingRanges]:
    """(offsets partition, incarnation) -> what was in its log when a run read it, from a version of ``surviving_records``."""
    columns = ["offsets_partition", "incarnation", "first_offset", "end_offset"]
    rows = rows_at(location, SURVIVING_RECORDS, version, cluster, columns, [("run_id", "=", run_id), *where])
    in_order = rows.sort_by([(name, "ascending") for name in columns[:3]])
    numbers, incarnations, first, end = (column.to_numpy() for column in in_order.columns)
    places = {*zip(numbers.tolist(), incarnations.tolist(), strict=True)}
    chosen = {(number, incarnation): (numbers == number) & (incarnations == incarnation) for number, incarnation in places}
    return {place: SurvivingRanges(first[is_here], end[is_here]) for place, is_here in chosen.items()}


def _rows(
    location: WarehouseLocation, opened: DeltaTable, table: Table, cluster: str, columns: Sequence[str], where: Sequence[Condition]
) -> pa.Table:
    schema = pa.schema([table.arrow_schema.field(name) for name in columns])

    def of_file(path: str) -> pa.Table:
        with checked(location, table, path) as file:
            return rows_of_file(file, cluster, schema, where)

    parts = side_by_side(of_file, paths_of_files(location, table, opened, cluster, where), _FILES_AT_ONCE)
    return pa.concat_tables([no_rows(schema), *parts])


@contextmanager
def checked(location: WarehouseLocation, table: Table, path: str) -> Iterator[pq.ParquetFile]:
    """The open file of a table, as ``checked_file`` does. Raises WarehouseError where it cannot be opened, or read within the block."""
    try:
        # delta-rs's own file system would bring its threads along, which at times outlive the interpreter
        with location.filesystem.open_input_file(path) as source:
            yield checked_file(source, path, table)
    except FileNotFoundError as e:
        raise WarehouseError(
            f"A file of table {table.name} of {location.uri} is gone: {first_line(e)}."
            " After a vacuum, nights older than the retention of deleted files cannot be read. Where a file was removed by hand:"
            f" {way_out(location, table)}"
        ) from e
    except KeyError as e:
        raise WarehouseError(
            f"Table {table.name} of {location.uri} lacks a column that this release reads: {first_line(e)}. It was written by a"
            " pre-release: run the nightly into another directory."
        ) from e
    except (OSError, pa.ArrowException) as e:
        raise unreadable(location, table, first_line(e)) from e


class StoredFile(NamedTuple):
    """What Delta's log says of a file; None: the log does not say that.

    oldest_us: the smallest record timestamp, in microseconds.
    """

    size: int
    rows: int | None
    oldest_us: int | None


def files_of(opened: DeltaTable, cluster: str) -> dict[str, StoredFile]:
    """The files of a cluster, by their path within the table."""
    # Not ``pa.table``, which imports pandas.
    files = pa.RecordBatchReader.from_stream(opened.get_add_actions(flatten=True)).read_all()
    oldest = files["min.record_timestamp"].cast(pa.int64()) if "min.record_timestamp" in files.column_names else pa.nulls(len(files))
    columns = [*(files[name] for name in ("partition.cluster", "path", "size_bytes", "num_records")), oldest]
    listed = zip(*(column.to_pylist() for column in columns), strict=True)
    return {unquote(path): StoredFile(*says) for named_cluster, path, *says in listed if named_cluster == cluster}


def transaction_of(opened: DeltaTable, cluster: str) -> int:
    """The number of the cluster's last run in a table; 0: no run has written one."""
    return opened.transaction_version(f"groupcoord:{cluster}") or 0


def transaction_of_rows(cluster: str, run: int, rows: int) -> Transaction:
    """The number of the cluster's rows that a commit leaves in a table. run: the number of the run (``transaction_of``)."""
    return Transaction(f"groupcoord.rows:{cluster}", run % _MOST_RUNS * _MOST_ROWS + rows)


def check_number_of_rows(location: WarehouseLocation, table: Table, opened: DeltaTable, cluster: str) -> None:
    """Raises WarehouseError where a table has another number of rows of a cluster than its last commit left there.

    Delta ignores an action of its log that it does not know: one flipped bit hides a file that was added, or brings a removed file back.
    """
    written = opened.transaction_version(f"groupcoord.rows:{cluster}")
    files = files_of(opened, cluster).values()
    if written is None or any(file.rows is None for file in files):
        return
    run, rows = divmod(written, _MOST_ROWS)
    named_rows = sum(file.rows or 0 for file in files)
    # A run of an older release says nothing of its rows, also where one of this release came before it.
    if named_rows != rows and run == transaction_of(opened, cluster) % _MOST_RUNS:
        why = f"its log names files with {counted(named_rows, 'row')} of cluster {cluster!r}, and {rows:,} were written"
        raise unreadable(location, table, f"{why}: a file of {location.path_in(table.name, '_delta_log')} is damaged")


def paths_of_files(
    location: WarehouseLocation, table: Table, opened: DeltaTable, cluster: str, where: Sequence[Condition] = ()
) -> list[str]:
    """The paths of a cluster's files that may have rows of the conditions, in the warehouse's file system. Files lie one directory deep.

    Raises:
        WarehouseError: the table's log names a file that lies elsewhere, as one with ``../`` in its path does; or has other files than were
            written (``check_number_of_rows``).
    """
    try:
        check_number_of_rows(location, table, opened, cluster)
        stored = {field.name for field in opened.schema().fields}
        # To delta-rs an empty text in a condition means NULL; Kafka has groups of that name.
        for_files = [(name, how, value) for name, how, value in where if name in stored and "" not in (value if how == "in" else [value])]
        uris = opened.file_uris(file_pruning_predicate=[("cluster", "=", cluster), *for_files])
    except (DeltaError, OSError) as e:
        raise unreadable(location, table, first_line(e)) from e
    paths = []
    for uri in uris:
        root, partition, name = uri.rsplit("/", 2)
        if not opened.table_uri.rstrip("/").endswith(root):
            sentence = f"The log of table {table.name} of {location.uri} names a file outside of it: {uri}."
            raise WarehouseError(f"{sentence} {way_out(location, table)}")
        paths.append(location.path_in(table.name, f"{partition}/{name}"))
    return paths


def checked_file(source: pa.NativeFile, path: str, table: Table) -> pq.ParquetFile:
    """The open file as Parquet, whose columns are all of the table. A later read of a page that does not fit its checksum raises OSError.

    Only pages have checksums, and those of older releases have none. A footer has none either: with one flipped bit in the name of a column
    the file would have another column, and NULL in its place; with a flipped bit in the type, microseconds would be nanoseconds.

    path: of the file, for the sentence. Raises OSError where the file has a column that the table does not have, one of another type, or
    one whose name is no text, and where the rows of its row groups are not as many as those of the file.
    """
    try:
        file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
        columns = file.schema_arrow
    except UnicodeDecodeError:
        raise OSError(f"{path} is damaged: the name of one of its columns is no text") from None
    types = dict(zip(table.arrow_schema.names, table.arrow_schema.types, strict=True))
    for column in columns:
        if column.name not in types:
            raise OSError(f"{path} is damaged: it has a column {column.name!r}, which the table does not have")
        # Spark's OPTIMIZE writes times without a zone: of times only the unit counts. delta-rs writes texts as string_view.
        stored, declared = (getattr(kind, "unit", kind) for kind in (column.type, types[column.name]))
        if stored != declared and str(stored).replace("_view", "") != str(declared):
            raise OSError(f"{path} is damaged: its column {column.name!r} is of another type than in the table")
    if file.metadata.num_rows != sum(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)):
        raise OSError(f"{path} is damaged: the rows of its groups are not as many as the rows of the file")
    return file


def rows_of_file(file: pq.ParquetFile, cluster: str, schema: pa.Schema, where: Sequence[Condition]) -> pa.Table:
    """The rows of a file that meet the conditions. Columns without a condition are read only for row groups where a row is left.

    A column that the file lacks, since a later release added it, is NULL. Raises KeyError where it must not be NULL.
    """
    in_file = set(file.schema_arrow.names)
    if missing := [field.name for field in schema if field.name not in in_file and not field.nullable and field.name != "cluster"]:
        raise KeyError(missing[0])
    if any(name not in in_file for name, _, _ in where):
        return no_rows(schema)
    stored = [name for name in schema.names if name in in_file]
    parts: list[pa.Table] = []
    for group in range(file.num_row_groups):
        mask = None
        if where:
            tested = file.read_row_group(group, columns=list({name for name, _, _ in where}))
            mask = _meets(tested, where)
            if not pc.any(mask).as_py():
                continue
        rows = file.read_row_group(group, columns=stored) if stored else None
        count = file.metadata.row_group(group).num_rows
        columns = [
            rows[field.name] if rows is not None and field.name in in_file else _column_of(field, cluster, count) for field in schema
        ]
        part = pa.table(columns, names=schema.names).cast(schema)
        parts.append(part if mask is None else part.filter(mask))
    return pa.concat_tables([no_rows(schema), *parts])


def _column_of(field: pa.Field, cluster: str, count: int) -> pa.Array:
    """A column that a file does not have: the cluster's name, or NULL."""
    if field.name != "cluster":
        return pa.nulls(count, field.type)
    return _texts([cluster]).take(pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))]))


def _meets(rows: pa.Table, where: Sequence[Condition]) -> pa.ChunkedArray:
    all_met: pa.ChunkedArray | None = None
    for name, comparison, value in where:
        column = rows[name]
        if pa.types.is_string(column.type) and comparison in ("=", "in"):
            mask = pc.is_in(column, _texts([value] if comparison == "=" else value))
        elif comparison == "in":
            mask = pc.is_in(column, pa.array(list(value), column.type))
        else:
            mask = pc.fill_null(_COMPARISONS[comparison](column, pa.scalar(value, column.type)), False)
        all_met = mask if all_met is None else pc.and_(all_met, mask)
    return all_met


def _texts(values: Sequence[str]) -> pa.StringArray:
    """As ``pa.array(values)``, which imports pandas: a third of the time that a read command takes."""
    encoded = [value.encode() for value in values]
    ends = accumulate((len(text) for text in encoded), initial=0)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(encoded)))
