"""Changes since the last run that differs, the worst first: one row for each kind, with the command that shows more."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.findings import KINDS, NEWS, Kind
from groupcoord_spark.answers.run_changes import NO_LOG, NOT_KNOWN, PARTITION_MISSING, Change, last_run_that_differs, unchanged_since
from groupcoord_spark.answers.timeline import iso
from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.warehouse.sql import SnapshotInDuckDB
from groupcoord_spark.wording import first_of

STALE_AFTER_MS: Final = 12 * 3_600_000
"""Half a day: a run that reads the same log so much later is a new run, not a repeated one."""
MOST_NAMES: Final = 20
"""News have the names of up to this many groups."""
MOST_NAMES_IN_COMMAND: Final = 3

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_FATES: Final = {
    **dict.fromkeys((NOT_KNOWN, PARTITION_MISSING, "vanished", "topic_begun_anew"), "vanished"),
    **dict.fromkeys(("expired", "expiry_due"), "expired"),
    NO_LOG: "gone",
}
"""Why a group or an offset is gone -> the second word of its kind of news; every other reason is a deletion."""

_NEW_ROWS: Final = f"""
SELECT cluster, reason, CAST(SUM(number) AS BIGINT) AS number, COUNT(DISTINCT group_id) AS group_count,
  COALESCE(list_slice(list_sort(list(DISTINCT group_id) FILTER (group_id IS NOT NULL)), 1, {MOST_NAMES}), []) AS groups,
  CASE WHEN COUNT(first_at) = COUNT(*) THEN [epoch_ms(MIN(first_at)), epoch_ms(MAX(last_at))] END AS between_ms
FROM rows_now n ANTI JOIN rows_before b ON n.cluster = b.cluster AND n.subject = b.subject AND n.group_id IS NOT DISTINCT FROM b.group_id
  AND n.reason IS NOT DISTINCT FROM b.reason
GROUP BY cluster, reason ORDER BY number DESC, reason
"""


class News(NamedTuple):
    """All news of one kind, and of one reason where the kind has reasons."""

    level: str
    kind: str
    reason: str | None
    number: int
    group_count: int
    """0: no group is concerned, or none is known."""
    groups: Sequence[str]
    """The names of up to MOST_NAMES of these groups."""
    between_ms: Sequence[int] | None = None
    """The first and the last time of the rows behind the news; None: a row has none, or none is known."""

    @property
    def sentence(self) -> str:
        """``3 committed offsets lower than before (seek): a, b and 1 more``."""
        of_groups = f": {first_of(self.groups, count=self.group_count)}" if self.groups else ""
        return f"{self.number:,} {self.clause}{of_groups}"

    @property
    def clause(self) -> str:
        """The sentence without the number and the groups."""
        return f"{KINDS[self.kind].clause(self.number)}{f' ({self.reason})' if self.reason else ''}"

    def command(self, run: Run, since: Run | None) -> list[str]:
        """Return the words of the command that shows more, without those that choose a warehouse and a cluster.

        Args:
            run, since: The runs that are compared.
        """
        kind, of_run = KINDS[self.kind], ["--run", run.run_id]
        has_all_names = self.group_count == len(self.groups) <= MOST_NAMES_IN_COMMAND
        of_groups = [word for name in self.groups for word in ("--group", name)] if has_all_names else []
        between = ["--from", _as_of(since or run), "--to", _as_of(run), *of_groups]
        match kind.command:
            case "diff":
                return ["diff", "--only", "gone", *between]
            case "sql" if self.kind == "rewound" and self.reason is None:  # not from the view
                return ["diff", "--only", "rewound", *between]
            case "sql":
                return ["sql", kind.statement(self.groups if has_all_names else (), self.reason, self._between()), *of_run]
            case "warnings":
                # Not `warnings`: a later run over the same copy has the news of the run before, and that command shows one run.
                table, column = ("warnings", "code") if self.kind == "doubt" else ("quarantined_records", "reason")
                return ["sql", f"from {table} where {column} = '{self.reason}'", *of_run]
            case "runs":
                return ["runs"]
        return [kind.command, *of_run]

    def _between(self) -> tuple[str, str] | None:
        """Return the first and the last time as SQL takes them, or None where a clock was that far off that no text stands for its time."""
        if self.between_ms is None:
            return None
        try:
            first, last = map(_to_the_millisecond, self.between_ms)
        except OverflowError:
            return None
        return first, last


def _as_of(run: Run) -> str:
    """Return the time of a run as --from and --to take it."""
    return _to_the_millisecond(run.as_of_ms)


def _to_the_millisecond(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Morning(NamedTuple):
    """Changes in a run."""

    run: Run
    since: Run | None
    """The run to compare with: the last one that differs, or the run before where the copy is the same as half a day ago. None: the first
    run, in which everything is new."""
    news: Sequence[News]
    """The worst first."""
    newest_record_ms: int | None
    """Time of the newest record of the copy; None: not known."""
    same_copy_since: Run | None
    """The first of the runs that read the same log as this one; None: the last run read another."""
    gone_groups: Mapping[str, str]
    """Each group that is gone since then -> a key of ``run_changes.REASONS``."""


def morning(
    warehouse: Warehouse, run: Run, horizon_ms: int, snapshot: SnapshotInDuckDB | None = None, views: Mapping[str, pa.Table] | None = None
) -> Morning:
    """Return the changes in a run since the last run that differs: see ``mornings``.

    views: rows of views of the run that are known already.
    """
    return mornings(warehouse, [run], horizon_ms, snapshot, views)[0]


def mornings(
    warehouse: Warehouse,
    runs: Sequence[Run],
    horizon_ms: int,
    snapshot: SnapshotInDuckDB | None = None,
    views: Mapping[str, pa.Table] | None = None,
) -> list[Morning]:
    """Return the changes in runs of different clusters, each since the last run that differs.

    Every view is asked once, for all clusters: the plan of a query takes longer than the rows of a small cluster.

    Args:
        warehouse, runs: the runs.
        horizon_ms: how long before its expiration an offset is news, once.
        snapshot: of these runs, where one is open already.
        views: rows of views of the only run that are known already.
    Raises:
        WarehouseError: the tables of a run cannot be read.
    """
    compared = [_Compared.of(warehouse, run) for run in runs]
    of_cluster: dict[str, list[News]] = {each.run.cluster: list(_departures(each.changes)) for each in compared}
    known = {
        name: rows.append_column("cluster", pa.array([runs[0].cluster] * len(rows), pa.string())) for name, rows in (views or {}).items()
    }
    shown = _NewsRows(snapshot or SnapshotInDuckDB(warehouse, runs=runs), horizon_ms, known)
    earlier_runs = [each.since for each in compared if each.since is not None]
    earlier = _NewsRows(SnapshotInDuckDB(warehouse, runs=earlier_runs), horizon_ms, {}) if earlier_runs else None
    for name, kind in NEWS.items():
        # Most kinds have no rows in most runs, and the views over the history take most of the time: the last run comes second.
        if (kind.query or kind.subject) and (rows := shown.of(kind)).num_rows:
            shown.connection.register("rows_now", rows)
            shown.connection.register("rows_before", rows.slice(0, 0) if earlier is None else earlier.of(kind))
            new = shown.connection.sql(_NEW_ROWS).to_arrow_table()
            for cluster, *row in zip(*(column.to_pylist() for column in new.columns), strict=True):
                of_cluster[cluster].append(News(kind.level, name, *row))
    return [each.with_news(warehouse, of_cluster[each.run.cluster]) for each in compared]


class _Compared(NamedTuple):
    """A run and the run that it is compared with."""

    run: Run
    since: Run | None
    changes: Sequence[Change]
    same_copy_since: Run | None
    is_stale: bool
    """The copy is that of half a day ago."""

    @classmethod
    def of(cls, warehouse: Warehouse, run: Run) -> "_Compared":
        since, changes = last_run_that_differs(warehouse, run) or (None, [])
        same_copy_since = unchanged_since(warehouse, run)
        is_stale = same_copy_since is not None and run.as_of_ms - same_copy_since.as_of_ms >= STALE_AFTER_MS
        if is_stale:  # what the first run over this copy had is not new under another date
            since, changes = [each for each in warehouse.kept_runs(run) if each.run_id != run.run_id][-1], []
        return cls(run, since, changes, same_copy_since, is_stale)

    def with_news(self, warehouse: Warehouse, news: list[News]) -> Morning:
        """Return the result. news: what the tables of the run have and those of the earlier run lack."""
        run, changes, same_copy_since = self.run, self.changes, self.same_copy_since
        if not any(item.kind in ("two_writers", "rewound") for item in news):  # a run without history has no row of offset_events
            news += _of_changes({("rewound", None): [change for change in changes if change.change == "offset_rewound"]})
        if self.is_stale and same_copy_since is not None:
            reason = f"since the run of {iso(same_copy_since.as_of_ms)}"
            news.append(News(KINDS["copy_unchanged"].level, "copy_unchanged", reason, 1, 0, ()))
        order = list(KINDS)
        newest = pc.max(warehouse.read("offsets_partitions", columns=["newest_timestamp"], run=run)["newest_timestamp"]).as_py()
        newest_ms = None if newest is None else round(newest.timestamp() * 1000)
        gone = {change.group_id: change.why or NOT_KNOWN for change in changes if change.change == "group_gone"}
        return Morning(run, self.since, sorted(news, key=lambda item: order.index(item.kind)), newest_ms, same_copy_since, gone)


class _NewsRows:
    """The rows of the kinds of news in runs of different clusters. A view is asked once, however many kinds rest on it."""

    def __init__(self, snapshot: SnapshotInDuckDB, horizon_ms: int, views: dict[str, pa.Table]) -> None:
        self.connection = snapshot.connection
        self._run = snapshot
        self._horizon_ms = horizon_ms
        self._views = views

    def of(self, kind: Kind) -> pa.Table:
        """Return cluster, subject, group_id, reason, number, first_at and last_at."""
        if not kind.subject:
            query = kind.query.replace("$horizon_ms", str(self._horizon_ms))
            return self._run.rows(query if kind.at else f"SELECT *, NULL AS first_at, NULL AS last_at FROM ({query})")
        if kind.table not in self._views:
            self._views[kind.table] = self._run.rows(f"FROM {kind.table}")
        self.connection.register("rows_of_view", self._views[kind.table])
        return self.connection.sql(kind.query_of_view).to_arrow_table()


def _departures(changes: Sequence[Change]) -> Iterator[News]:
    """Yield the groups that are gone, and the offsets of the remaining groups that are gone, by reason."""
    gone = {change.group_id for change in changes if change.change == "group_gone"}
    by_kind: dict[tuple[str, str | None], list[Change]] = defaultdict(list)
    for change in changes:
        if change.change == "group_gone" or (change.change == "offset_gone" and change.group_id not in gone):
            by_kind[f"{change.change.partition('_')[0]}_{_FATES.get(change.why or NOT_KNOWN, 'deleted')}", change.why].append(change)
    yield from _of_changes(by_kind)


def _of_changes(by_kind: Mapping[tuple[str, str | None], Sequence[Change]]) -> Iterator[News]:
    for (kind, reason), changes in by_kind.items():
        groups = sorted({change.group_id for change in changes})
        if changes:
            yield News(KINDS[kind].level, kind, reason, len(changes), len(groups), groups[:MOST_NAMES])
