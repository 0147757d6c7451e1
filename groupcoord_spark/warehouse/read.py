"""Reads tables as of a run: one run or another, never a mixture. Delta through delta-rs, Parquet through pyarrow; no Spark, no pandas.

Delta commits one table at a time. A reader therefore takes the versions of the tables that the newest row of ``runs`` names for its
cluster, not the newest version of each table. Readers pass over a point-in-time run (``nightly --until``) unless they
are asked for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from groupcoord_spark.errors import UsageError, WarehouseError
from groupcoord_spark.moments import Moment, RunsAgo, RunTime, milliseconds_of
from groupcoord_spark.storage.location import infos_in
from groupcoord_spark.storage.object_store import missing_bucket, no_such_bucket
from groupcoord_spark.storage.warehouse_location import WarehouseLocation, cause_of, locate
from groupcoord_spark.warehouse.declaration import Table, no_rows
from groupcoord_spark.warehouse.open_table import OpenTable, check_commit, open_table, reading, table_exists, way_out
from groupcoord_spark.warehouse.stored_file import Condition, rows_that_meet, text_array
from groupcoord_spark.warehouse.tables import FORMER_KINDS, GROUPS, NIGHTLY, POINT_IN_TIME, RUNS, SCHEMA_VERSION, TABLES
from groupcoord_spark.wording import command_line, counted, first_of

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.sql import Snapshot

SCHEMA_VERSION_PROPERTY: Final = "groupcoord.schemaVersion"

RETENTION_SETTING: Final = "offsets.retention.ms"
"""Key of ``runs.settings`` that holds the retention of the run."""

UNTIL_SETTING: Final = "until"
"""Key of ``runs.settings`` that holds the moment of --until; nightly runs do not have it."""


_CLUSTERS_AT_ONCE: Final = 8
"""Runs of so many clusters at the same time name versions of a table that are not in the order in which the runs finish."""


class TablesOfRun(NamedTuple):
    """The versions of the tables that a run left. run_id: the run, whose id is unique; versions: table -> Delta version."""

    run_id: str
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: one row of ``runs``."""

    run_id: str
    cluster: str
    kind: str
    """nightly, or point_in_time: a run with --until, which readers show only where they are asked for it."""
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
    def tables(self) -> TablesOfRun:
        """The versions of the tables that the run left, for workers."""
        return TablesOfRun(self.run_id, self.table_versions)

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

    def __init__(self, location: WarehouseLocation, tables: Mapping[str, OpenTable], earlier: Warehouse | None = None) -> None:
        """tables: those that are open at their newest version; without ``runs`` nothing was ever written.

        earlier: the warehouse as it was opened before, whose runs are not read again where none has finished since.
        """
        self.location = location
        self.tables = tables
        self._read_last: dict[str, OpenTable] = {}
        self._together: dict[str, Mapping[str, int]] = {}
        """Run -> table -> a version that other clusters' runs share (``open_together``)."""
        self._shared: dict[tuple[str, int], OpenTable] = {}
        self._checked: dict[tuple[str, str], Mapping[str, int]] = {}
        """Table and run -> the Delta transactions of the run's commit."""
        self._runs_version = tables[RUNS.name].version if RUNS.name in tables else None
        is_same = earlier is not None and earlier._runs_version == self._runs_version
        self._runs_read: dict[str, tuple[pa.Table, list[Run]]] = earlier._runs_read if earlier is not None and is_same else {}
        """Cluster -> its rows of ``runs``, of the clusters that were asked for: the cost of one does not grow with its neighbours."""

    def __repr__(self) -> str:
        runs = [self.finished_runs(cluster)[-1] for cluster in self.clusters()[:5]]
        newest = "; ".join(f"{run.cluster!r}: run {run.run_id}" for run in runs) or "no finished run"
        return f"<Warehouse {self.location.uri} of {counted(len(self.clusters()), 'cluster')}, newest runs: {newest}>"

    @cached_property
    def newest_versions(self) -> dict[str, int]:
        """Table -> the newest of its versions that one of the newest runs names, of the clusters that finished a run last."""
        named: dict[str, int] = {}
        for cluster in self._clusters_newest_first[:_CLUSTERS_AT_ONCE]:
            for run in self.finished_runs(cluster):
                named.update({table: max(version, named.get(table, 0)) for table, version in run.table_versions.items()})
        return named

    @cached_property
    def _clusters_newest_first(self) -> list[str]:
        return self.tables[RUNS.name].clusters(newest_in="finished_at") if RUNS.name in self.tables else []

    def clusters(self) -> list[str]:
        """Return the names of the clusters with a finished run, sorted."""
        return sorted(self._clusters_newest_first)

    def clusters_with_nightly_runs(self) -> list[str]:
        """Return the names of the clusters with a finished nightly run, sorted: a cluster may have point-in-time runs alone."""
        return [cluster for cluster in self.clusters() if any(run.kind == NIGHTLY for run in self.finished_runs(cluster))]

    def runs(self, cluster: str | None = None) -> pa.Table:
        """Return the rows of ``runs``, oldest first."""
        return self._rows_of_runs(cluster) if cluster is not None else in_order_of_time(map(self._rows_of_runs, self.clusters()))

    def finished_runs(self, cluster: str | None = None) -> list[Run]:
        """Return the runs of a cluster, or of all, point-in-time runs too, oldest first."""
        if cluster is None:
            runs = [run for name in self.clusters() for run in self.finished_runs(name)]
            return sorted(runs, key=lambda run: (run.finished_at_ms, run.run_id))
        self._rows_of_runs(cluster)
        return [*self._runs_read[cluster][1]]

    def _rows_of_runs(self, cluster: str) -> pa.Table:
        if cluster not in self._runs_read:
            is_there = cluster in self._clusters_newest_first
            rows = self.tables[RUNS.name].rows(cluster, list(RUNS.by_name)) if is_there else RUNS.empty()
            rows = with_present_kinds(in_order_of_time([rows]))
            self._runs_read[cluster] = rows, runs_of(rows)
        return self._runs_read[cluster][0]

    def kept_runs(self, run: Run) -> list[Run]:
        """Return the runs of the run's cluster whose tables are kept, oldest first: up to the run, or to a point-in-time run's as_of."""
        runs = [each for each in self.finished_runs(run.cluster) if each.kind == NIGHTLY and each.is_kept]
        if run.kind != NIGHTLY:
            return [each for each in runs if each.as_of_ms < run.as_of_ms]
        return [each for each in runs if each.finished_at_ms <= run.finished_at_ms]

    def run(self, cluster: str, *, at_ms: RunTime | None = None, run_id: str | None = None, look_back: bool = False) -> Run:
        """Return the newest run of a cluster; with ``at_ms`` the newest run whose as_of is not later.

        Args:
            at_ms: also RunsAgo; of several runs with one as_of the last one counts.
            look_back: the newest point-in-time run instead of the newest nightly run, with ``at_ms`` among those up to then.
            run_id: the run, also a point-in-time run, whose id begins so; ``at_ms`` and ``look_back`` then have no meaning.

        Raises WarehouseError, with the clusters or runs that there are.
        """
        finished = self.finished_runs(cluster)
        if not finished:
            clusters = first_of([*map(repr, self.clusters())], 5) or "none yet"
            raise WarehouseError(
                f"{self.location.uri} holds no run of cluster {cluster!r}; clusters there: {clusters}. Name one with --cluster."
            )
        if run_id is not None:
            return self._run_named(finished, run_id)
        kind, name = (POINT_IN_TIME, "point-in-time run") if look_back else (NIGHTLY, "run")
        runs = [run for run in finished if run.kind == kind]
        if not runs:
            newest = finished[-1]
            raise WarehouseError(
                f"{self.location.uri} holds no {name} of cluster {cluster!r}, only a {'run' if look_back else 'point-in-time run'}:"
                f" {'leave out --look-back' if look_back else f'show it with --run {newest.run_id}'}."
            )
        if at_ms is None:
            return runs[-1]
        if isinstance(at_ms, RunsAgo):
            newest_first = list({run.as_of_ms: run for run in reversed(runs)})
            if at_ms.number >= len(newest_first):
                raise WarehouseError(
                    f"{self.location.uri} holds {counted(len(newest_first), name)} of cluster {cluster!r}, so there is none"
                    f" {at_ms.number} before the newest. `{self._runs_command(cluster)}` lists all."
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

    def named_cluster(self, cluster: str | None) -> str:
        """Return the cluster, or for None the only one of the warehouse.

        Raises:
            UsageError: The warehouse has several clusters.
            WarehouseError: It has none.
        """
        clusters = self.clusters() if cluster is None else [cluster]
        if len(clusters) > 1:
            some = first_of([*map(repr, clusters)], 5)
            raise UsageError(f"{self.location.uri} holds the clusters {some}. Name one with --cluster.")
        if not clusters:
            way = command_line("nightly", "INPUT", warehouse=self.location.uri)
            raise WarehouseError(f"{self.location.uri} holds no finished run yet. Make one with `{way}`.")
        return clusters[0]

    def snapshot(self, cluster: str | None = None, *, at: Moment | None = None, run: str | None = None) -> Snapshot:
        """Return the tables and views of one run of a cluster; without ``at`` and ``run``, of the newest one.

        Args:
            cluster: Name of the cluster; None: the warehouse's only one.
            at: The newest run as of this moment or earlier.
            run: The run whose id begins with this text; it may be a point-in-time run.

        Raises:
            WarehouseError: There is no such run, or its files are gone.
            UsageError: ``at`` is not a time, or the warehouse has several clusters and none is named.
        """
        from groupcoord_spark.warehouse.sql import Snapshot

        return Snapshot(self, self.run(self.named_cluster(cluster), at_ms=None if at is None else milliseconds_of(at), run_id=run))

    def night(self, cluster: str, *, at: Moment | None = None, run: str | None = None) -> Snapshot:
        """Return the snapshot, by the name that this method had up to 1.0."""
        warnings.warn("Warehouse.night is now called Warehouse.snapshot.", DeprecationWarning, stacklevel=2)
        return self.snapshot(cluster, at=at, run=run)

    def _runs_command(self, cluster: str) -> str:
        return command_line("runs", warehouse=self.location.uri, cluster=cluster)

    def _run_named(self, finished: Sequence[Run], run_id: str) -> Run:
        """Return the run whose id begins so. Raises WarehouseError, with ids, where there is none or several."""
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
            f" `{self._runs_command(finished[-1].cluster)}` lists all."
        )

    def read(
        self,
        table: str,
        *,
        cluster: str | None = None,
        columns: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        at_ms: RunTime | None = None,
        run: Run | None = None,
    ) -> pa.Table:
        """Return rows of a table as of the newest run of ``cluster``, or as of the run ``at_ms``; of ``runs``, the runs until then.

        Args:
            cluster: None: every cluster with a run, each as of its own newest one.
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
            runs = [self.run(name, at_ms=at_ms) for name in ([cluster] if cluster is not None else self.clusters_with_nightly_runs())]
        if declared is RUNS:
            return self.runs_until(runs, where).select(wanted)
        for dropped in (run for run in runs if not run.is_kept and table not in run.table_versions):
            raise WarehouseError(
                f"Maintenance dropped the tables of run {dropped.run_id} in {self.location.uri}."
                f" `{self._runs_command(dropped.cluster)}` lists the runs that are kept."
            )
        # A run of a release that did not have the table yet has no rows of it.
        parts = [self.opened(declared, run).rows(run.cluster, wanted, where) for run in runs if table in run.table_versions]
        return pa.concat_tables([no_rows(pa.schema([declared.arrow_schema.field(name) for name in wanted])), *parts])

    def check_files(self, table: str, run: Run) -> None:
        """Raises WarehouseError where the version of a table that the run names, or a file of its cluster's rows in it, is gone."""
        declared = TABLES[table]
        for path in self.opened(declared, run).paths(run.cluster):
            with reading(self.location, declared):
                is_there = self.location.filesystem.get_file_info(path).type == fs.FileType.File
            if not is_there:
                way = way_out(self.location, declared)
                raise WarehouseError(f"A file of table {table} of {self.location.uri} is gone: {path}. {way}")

    def opened(self, table: Table, run: Run) -> OpenTable:
        """Return the table at the version that the run names; ``runs``, which names none of itself, as it was opened first.

        A table stays open at the version read last: an answer reads some tables again.
        Raises WarehouseError where the version cannot be read, or is not what the run committed.
        """
        if table is RUNS:
            return self.tables[RUNS.name]
        version = run.table_versions[table.name]
        self.check_commit(table, run)
        for already_open in (self.tables.get(table.name), self._read_last.get(table.name)):
            if already_open is not None and already_open.version == version:
                return already_open
        if (together := self._opened_together(table, run)) is not None:
            return together
        self._read_last[table.name] = open_table(self.location, table, version)
        return self._read_last[table.name]

    def open_together(self, runs: Sequence[Run]) -> None:
        """Let runs of different clusters share an open table: to open each at its own version would take most of the time of an answer."""
        newest: dict[str, int] = {}
        for run in runs:
            newest.update({table: max(version, newest.get(table, -1)) for table, version in run.table_versions.items()})
        self._together |= {run.run_id: newest for run in runs}

    def _opened_together(self, table: Table, run: Run) -> OpenTable | None:
        """Return the table at the version for all runs of ``open_together``; None if it has other rows of the cluster there."""
        version = self._together.get(run.run_id, {}).get(table.name)
        transactions = self._checked.get((table.name, run.run_id), {})
        if version is None:
            return None
        if (table.name, version) not in self._shared:
            self._shared[table.name, version] = open_table(self.location, table, version)
        shared = self._shared[table.name, version]
        finished = {each.run_id for each in self.finished_runs(run.cluster) if each.finished_at_ms <= run.finished_at_ms}
        return shared if shared.has_rows_of(run.cluster, run.run_id, finished, transactions) else None

    def check_commit(self, table: Table, run: Run) -> None:
        """Raise WarehouseError where the log of the table does not have the whole commit of the run (``open_table.check_commit``)."""
        if (table.name, run.run_id) not in self._checked and table.name in run.table_versions:
            version = run.table_versions[table.name]
            self._checked[table.name, run.run_id] = check_commit(self.location, table, version, run.cluster, run.run_id)

    def runs_until(self, runs: Sequence[Run], where: Sequence[Condition] = ()) -> pa.Table:
        """Return the rows of ``runs`` up to each of these runs, oldest first."""
        parts = []
        for run in runs:
            ends = [each.finished_at_ms <= run.finished_at_ms for each in self.finished_runs(run.cluster)]
            parts.append(self._rows_of_runs(run.cluster).filter(pa.array(ends, pa.bool_())))
        rows = in_order_of_time(parts)
        return rows.filter(rows_that_meet(rows, where)) if where else rows


def open_warehouse(uri: str | PathLike[str]) -> Warehouse:
    """Open the warehouse at a path or URI.

    Raises WarehouseError if there is none, it is not one of ours, it is from a newer release, or it cannot be read.
    """
    location = locate(fspath(uri))
    if (runs := open_runs(location)) is None:
        raise WarehouseError(
            f"{location.uri} is not a warehouse: nothing is there. Make one with"
            f" `{command_line('nightly', 'INPUT', warehouse=location.uri)}`, or name another with --warehouse."
        )
    return Warehouse(location, {RUNS.name: runs})


def open_runs(location: WarehouseLocation) -> OpenTable | None:
    """Return the table ``runs`` of the warehouse of ours that is there; None where the place is empty or does not exist.

    Raises WarehouseError for anything else: a file, a directory with other files, an unreadable one, or a warehouse of a newer release.
    """
    try:
        place = location.filesystem.get_file_info(location.path)
        if place.type == fs.FileType.NotFound:
            if (bucket := missing_bucket(location.filesystem, location.path)) is not None:
                raise WarehouseError(f"{location.uri}: {no_such_bucket(bucket)}.")
            return None
        if place.type == fs.FileType.File:
            raise WarehouseError(f"{location.uri} is a file, not a warehouse directory. Name a directory with --warehouse.")
        names = [info.base_name for info in infos_in(location.filesystem, location.path)]
        if not names:
            return None
        has_runs = RUNS.name in names and table_exists(location, RUNS)
        if not has_runs and _is_being_made(location, names):
            return None
    except OSError as e:
        raise WarehouseError(f"{location.uri} cannot be read: {cause_of(e)}.") from e
    if not has_runs and any(name in names and table_exists(location, table) for name, table in TABLES.items()):
        raise WarehouseError(
            f"{location.uri} has no table runs, which names the version of every other table: it was removed, or it is damaged."
            f" {way_out(location, RUNS)}"
        )
    runs = open_table(location, RUNS) if has_runs else None
    schema_version = None if runs is None else runs.delta.metadata().configuration.get(SCHEMA_VERSION_PROPERTY)
    if schema_version is None:
        raise WarehouseError(
            f"{location.uri} holds other things and no table 'runs' of ours: it is not a warehouse, and nothing was touched."
            " Name a warehouse with --warehouse, or a new directory for `nightly`."
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
    begun = infos_in(location.filesystem, f"{location.path}/{RUNS.name}", allow_not_found=True)
    return all(f.base_name == "_delta_log" for f in begun)


def in_order_of_time(rows: Iterable[pa.Table]) -> pa.Table:
    """Return these rows of ``runs`` as one table, oldest first."""
    together = pa.concat_tables([RUNS.empty(), *rows])
    return together.take(pc.sort_indices(together, sort_keys=[("finished_at", "ascending"), ("run_id", "ascending")]))


def with_present_kinds(rows: pa.Table) -> pa.Table:
    """Return rows of ``runs`` whose ``kind`` is a present word and never NULL; the same table where it is so already."""
    if not rows["kind"].null_count and FORMER_KINDS.keys().isdisjoint(rows["kind"].unique().to_pylist()):
        return rows
    # Releases before the column wrote --until into the settings alone, and those of schema 4 had other words.
    kinds = [
        FORMER_KINDS.get(kind, kind) or (POINT_IN_TIME if UNTIL_SETTING in dict(settings) else NIGHTLY)
        for kind, settings in zip(rows["kind"].to_pylist(), rows["settings"].to_pylist(), strict=True)
    ]
    return rows.set_column(rows.schema.get_field_index("kind"), rows.schema.field("kind"), pa.chunked_array([text_array(kinds)]))


def runs_of(rows: pa.Table) -> list[Run]:
    """Return the rows as ``Run``s."""
    texts = [rows[name].to_pylist() for name in ("run_id", "cluster", "kind", "semantics", "broker_version", "input_kind")]
    times = [[time // 1000 for time in rows[name].cast(pa.int64()).to_pylist()] for name in ("as_of", "finished_at")]
    versions = map(dict, rows["table_versions"].to_pylist())
    whole_rows = [rows.slice(at, 1) for at in range(rows.num_rows)]
    return [Run(*values) for values in zip(*texts, *times, versions, whole_rows, strict=True)]


def rows_at(
    warehouse_uri: str, table: Table, tables: TablesOfRun, cluster: str, columns: Sequence[str], where: Sequence[Condition] = ()
) -> pa.Table:
    """Return a cluster's rows of a table as a run left it. Raises WarehouseError where the version or one of its files cannot be read.

    A worker asks for one offsets partition after another, and to open a table fifty times would take longer than to read it.
    """
    return _opened_once(warehouse_uri, table.name, tables.versions[table.name], cluster, tables.run_id).rows(cluster, columns, where)


@lru_cache(maxsize=8)
def _opened_once(warehouse_uri: str, table: str, version: int, cluster: str, run_id: str) -> OpenTable:
    """Open a table as a run left it. The id of the run distinguishes warehouses that were made at the same path."""
    location = locate(warehouse_uri)
    check_commit(location, TABLES[table], version, cluster, run_id)
    return open_table(location, TABLES[table], version)


RANGE_COLUMNS: Final = ("offsets_partition", "incarnation", "first_offset", "end_offset")
"""Columns of surviving_records that ``surviving_ranges`` needs."""


class SurvivingRanges(NamedTuple):
    """Ranges of record offsets whose records were in a log, of one offsets partition and incarnation, sorted."""

    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    def has(self, record_offset: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """bool: the record offset is in a range."""
        at = np.searchsorted(self.first, record_offset, "right") - 1
        is_there: npt.NDArray[np.bool_] = (at >= 0) & (record_offset < np.append(self.end, 0)[at])
        return is_there


def surviving_ranges(rows: pa.Table) -> dict[tuple[int, int], SurvivingRanges]:
    """(offsets partition, incarnation) -> contents of its log when a run read it, from rows of ``surviving_records`` of that run."""
    in_order = rows.sort_by([(name, "ascending") for name in RANGE_COLUMNS[:3]])
    numbers, incarnations, first, end = (in_order[name].to_numpy() for name in RANGE_COLUMNS)
    places = {*zip(numbers.tolist(), incarnations.tolist(), strict=True)}
    chosen = {(number, incarnation): (numbers == number) & (incarnations == incarnation) for number, incarnation in places}
    return {place: SurvivingRanges(first[is_here], end[is_here]) for place, is_here in chosen.items()}
