"""All that the page shows of one run: the rows of every table, and what the run lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.findings import KINDS, Kind
from groupcoord_spark.answers.morning import Morning, morning
from groupcoord_spark.report.ownership import TIMELINES, of_groups, ownership
from groupcoord_spark.report.tables import BY_NAME, TABLES
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.warehouse.sql import SnapshotInDuckDB
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DAY_MS: Final = 86_400_000
HORIZON_MS: Final = 2 * DAY_MS
"""How long before its expiration an offset is news, as `groupcoord morning` takes it."""
MOST_RUNS: Final = 14
"""Trends cover up to this many runs."""

_OF_NEWS: Final = ("lag", "rewinds", "skips", "stalled")
"""Tables of the report with the rows of the views that news rest on."""
_SHARED: Final = ("log_completeness", "topic_readers", "group_lifetimes")
"""Views that several tables of the report read."""
_AFTER_GROUPS: Final = ("group_days", "members", "offsets", "events")
_AT_THE_END: Final = ("groups", *_AFTER_GROUPS, "owners", "owner_commits")
"""Tables that rest on other tables of the report, in this order."""


@dataclass(frozen=True, slots=True)
class CountedFinding:
    """The rows of the report's table that are of one kind. number 0: none."""

    kind: Kind
    number: int
    rows: int
    sentence: str
    """The text after the number."""
    groups: Sequence[str]
    """The first groups that the finding is about."""
    group_count: int


@dataclass(frozen=True, slots=True)
class Report:
    """What one page shows."""

    warehouse: str
    """Path or URI, for the commands that the page names."""
    run: Run
    tables: Mapping[str, pa.Table]
    """Name -> all rows, the worst first. A table has no rows if the run lacks the input for it."""
    findings: Sequence[CountedFinding]
    has_history: bool
    history_is_behind: bool
    """The history ends before the log does, because this run or an earlier one wrote no history."""
    completeness: float | None
    """Share of the log's records that the history contains; None without history."""
    has_log_ends: bool
    states: Mapping[str, int]
    """State -> groups."""
    chosen_groups: Sequence[str]
    """Groups with a timeline."""
    morning: Morning
    """Changes since the last run that differs."""
    trends: Mapping[str, Sequence[float | None]]
    """Figure -> its value in each of the last runs, the oldest first."""

    @property
    def is_of_admin_api(self) -> bool:
        """Whether brokers answered and no log was read."""
        return self.run.input_kind == InputKind.ADMIN

    def lacks(self, name: str) -> str | None:
        """Return the reason why a table cannot have rows, or None."""
        if BY_NAME[name].needs in ("log", "history") and self.is_of_admin_api:
            return "This run is from the Admin API: only the log has these rows."
        if BY_NAME[name].needs == "history" and not self.has_history:
            return "This warehouse has no history: the run was made with --no-history. Run the nightly without it to see these rows."
        if BY_NAME[name].needs == "log_ends" and not self.has_log_ends:
            return (
                "This run has no log ends, so the lag is unknown. Copy replication-offset-checkpoint with the log directory,"
                " give the nightly --end-offsets FILE, or let it ask the brokers with --with-end-offsets."
            )
        return None


def gather(warehouse: Warehouse, run: Run, group_ids: Sequence[str] = ()) -> Report:
    """Gather the report of a run or a point-in-time run.

    group_ids: Groups whose timelines are shown; none: the first groups of the table groups.
    Raises WarehouseError where a table of the run cannot be read.
    """
    snapshot = SnapshotInDuckDB(warehouse, run=run)
    snapshot.connection.register(
        "night", pa.table({"run_id": [run.run_id], "as_of": pa.array([run.as_of_ms * 1000], pa.timestamp("us", "UTC"))})
    )
    for view in _SHARED:
        snapshot.keep(view)
    tables: dict[str, pa.Table] = {}

    def show(name: str, rows: pa.Table) -> None:
        tables[name] = rows
        snapshot.connection.register(f"shown_{name}", rows)

    for table in TABLES:
        if table.name not in _AT_THE_END:
            show(table.name, snapshot.rows(table.query))
    show("groups", snapshot.rows(BY_NAME["groups"].query))
    for name in _AFTER_GROUPS:
        show(name, snapshot.rows(BY_NAME[name].query))
    chosen, owners = ownership(snapshot, list(group_ids) or tables["groups"]["group_id"].slice(0, TIMELINES).to_pylist())
    show("owners", owners)
    show("owner_commits", snapshot.rows(of_groups(BY_NAME["owner_commits"].query, chosen)))
    partitions = tables["completeness"]
    ends = [partitions[name].to_pylist() for name in ("history_end_offset", "end_offset", "completeness")]
    has_history = any(end is not None for end in ends[0])
    states = tables["groups"]["state"].value_counts().to_pylist()
    return Report(
        warehouse.location.uri,
        run,
        tables,
        [_finding(snapshot.connection, kind, tables[kind.table].column_names) for kind in KINDS.values() if kind.table],
        has_history,
        has_history and any(end > (history or 0) for history, end, _ in zip(*ends, strict=True)),
        _weighted(partitions) if has_history else None,
        tables["lag"].num_rows > 0 or tables["lag_history"].num_rows > 0,
        {state["values"]: state["counts"] for state in sorted(states, key=lambda state: -state["counts"])},
        chosen,
        morning(warehouse, run, HORIZON_MS, snapshot, {name: tables[name] for name in _OF_NEWS}),
        _trends(warehouse, run, tables["lag_history"]),
    )


def _finding(connection: DuckDBPyConnection, kind: Kind, columns: Sequence[str]) -> CountedFinding:
    number = f"COALESCE(SUM({kind.sums}), 0)" if kind.sums else "COUNT(*)"
    has_groups = "group_id" in columns
    group_ids = "COUNT(DISTINCT group_id), list_slice(list_sort(list(DISTINCT group_id)), 1, 3)" if has_groups else "0, []"
    where = " AND ".join(f"{column} {comparison} ?" for column, comparison, _ in kind.where) or "TRUE"
    query = f"SELECT CAST({number} AS BIGINT), COUNT(*), {group_ids} FROM shown_{kind.table} WHERE {where}"
    # fetchone would leave a result open, and `morning` then uses the connection.
    ((number, rows, group_count, groups),) = connection.execute(query, [value for _, _, value in kind.where]).fetchall()
    of_groups = f" of {counted(group_count, 'group')}" if number != 1 and group_count and not kind.noun.startswith("group") else ""
    return CountedFinding(kind, number, rows, kind.clause(number, of_groups), groups or [], group_count)


def _trends(warehouse: Warehouse, run: Run, lag_history: pa.Table) -> dict[str, list[float | None]]:
    """Return the values of each figure in the last runs and in the run, oldest first."""
    trends: dict[str, list[float | None]] = {name: [] for name in ("groups", "offsets", "expiring", "bytes")}
    samples = lag_history.group_by("sampled_at").aggregate([("lag", "sum")]).sort_by("sampled_at")
    trends["lag"] = samples["lag_sum"].to_pylist()[-MOST_RUNS:]
    earlier = [each for each in warehouse.kept_runs(run) if each.run_id != run.run_id]
    for each in [*earlier, run][-MOST_RUNS:]:
        expiries = warehouse.read("offset_expirations", columns=["expires_at"], run=each)["expires_at"]
        soon = pa.scalar((each.as_of_ms + 7 * DAY_MS) * 1000, pa.timestamp("us", "UTC"))
        trends["groups"].append(each.row["groups"][0].as_py())
        trends["offsets"].append(len(expiries))
        trends["expiring"].append(pc.sum(pc.less_equal(expiries.cast(soon.type), soon)).as_py() or 0)
        trends["bytes"].append(pc.sum(warehouse.read("offsets_partitions", columns=["bytes"], run=each)["bytes"]).as_py() or 0)
    return trends


def _weighted(partitions: pa.Table) -> float | None:
    """Return the record share over all offsets partitions, or None if none of them has a record."""
    ends = partitions["end_offset"]
    of_all = pc.sum(ends).as_py()
    if not of_all:
        return None
    return float(pc.sum(pc.multiply(pc.fill_null(partitions["completeness"], 0.0), pc.cast(ends, pa.float64()))).as_py() / of_all)
