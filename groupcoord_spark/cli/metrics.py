"""``groupcoord metrics``: the figures of the newest runs in OpenMetrics, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import re2
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest

from groupcoord_spark.cli.options import Common, command, common_options_of_a_writer
from groupcoord_spark.cli.render import print_exactly, refuse_unwritable, write_whole
from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.moments import now_ms
from groupcoord_spark.wording import command_line, counted

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.read import Run, Warehouse
    from groupcoord_spark.warehouse.sql import SnapshotInDuckDB

HORIZON_MS: Final = 2 * 86_400_000
"""As of ``morning``."""
MOST_GROUPS: Final = 100

_LAGS: Final = "FROM lag_by_group WHERE lag IS NOT NULL ORDER BY cluster, lag DESC, group_id"


def _of_run(value: str) -> str:
    return f"SELECT cluster, {value} FROM runs JOIN shown_run USING (cluster, run_id) ORDER BY ALL"


def _union(*queries: str) -> str:
    return " UNION ALL ".join(f"FROM ({query})" for query in queries)


def _rows_of(table: str, label: str = "", condition: str = "TRUE") -> str:
    """Return a query for the number of rows of each cluster, also of those that have none."""
    rows = f"SELECT cluster, COUNT(*) AS number FROM {table} WHERE {condition} GROUP BY cluster"
    return f"SELECT cluster,{label} COALESCE(number, 0) FROM shown_run LEFT JOIN ({rows}) USING (cluster) ORDER BY ALL"


def _of_lags(value: str) -> str:
    series = "CASE WHEN is_own THEN group_id ELSE '' END AS group, CASE WHEN is_own THEN 'group' ELSE 'rest' END AS series"
    return f"SELECT cluster, {series}, {value} AS value FROM group_lags GROUP BY ALL ORDER BY cluster, value DESC"


def _expiring_within(time: str) -> str:
    return _rows_of("offset_expirations", f" '{time}' AS within,", f"expires_at <= as_of + INTERVAL '{time}'")


_GROUPS: Final = "SELECT cluster, group_type AS type, state, {} FROM groups GROUP BY ALL ORDER BY ALL"
_REST: Final = " With series=rest: {} all other groups; --groups and --top choose those with series of their own."

GAUGES: Final[Mapping[str, tuple[str, str]]] = {
    "night_last_success_timestamp_seconds": ("When the newest run was finished, in Unix time.", _of_run("warehouse, epoch(finished_at)")),
    "night_as_of_timestamp_seconds": ("The as-of of the newest run, in Unix time.", _of_run("epoch(as_of)")),
    "newest_record_timestamp_seconds": (
        "Timestamp of the newest record in the copy that the newest run read, in Unix time.",
        "SELECT cluster, epoch(MAX(newest_timestamp)) FROM offsets_partitions GROUP BY ALL ORDER BY ALL",
    ),
    "night_duration_seconds": ("How long the newest run took.", _of_run("epoch(finished_at) - epoch(started_at)")),
    "night_records": (
        "Records that the newest run read.",
        _union(_of_run("'decoded' AS result, records_decoded"), _of_run("'quarantined', records_quarantined")),
    ),
    "night_read_bytes": ("Bytes that the newest run read.", _of_run("bytes_read")),
    "night_doubts": ("Rows of the table warnings that the newest run wrote.", _of_run("warnings")),
    "groups": ("Groups by type and state.", _GROUPS.format("COUNT(*)")),
    "members": ("Members of these groups.", _GROUPS.format("SUM(member_count)")),
    "committed_offsets": ("Committed offsets.", _rows_of("committed_offsets")),
    "pending_offsets": ("Offsets in open transactions.", _rows_of("pending_offsets")),
    "expiring_offsets": (
        "Committed offsets that expire within that time if nothing changes.",
        _union(_expiring_within("1d"), _expiring_within("7d")),
    ),
    "findings": (
        "Findings of the doctor about the offsets topic.",
        "SELECT cluster, finding, severity, COUNT(*) FROM topic_health WHERE severity <> 'normal' GROUP BY ALL ORDER BY ALL",
    ),
    "offsets_partition_size_bytes": (
        "Bytes of the segments of a partition of __consumer_offsets.",
        "SELECT cluster, offsets_partition AS partition, warehouse, MAX(log_bytes) FROM topic_health JOIN shown_run USING (cluster)"
        " WHERE log_bytes IS NOT NULL GROUP BY ALL ORDER BY ALL",
    ),
    "news": (
        "News since the last run that differs, as `groupcoord morning` lists it.",
        "SELECT cluster, what, level, warehouse, value FROM news JOIN shown_run USING (cluster)",
    ),
    "lag_rest_groups": ("Groups that the series with series=rest stand for.", _rows_of("group_lags", condition="NOT is_own")),
    "group_lag_records": (f"Records that the group has not read.{_REST.format('the sum of')}", _of_lags("SUM(lag)")),
    "group_max_lag_records": (f"The largest lag of a partition.{_REST.format('the largest of')}", _of_lags("MAX(max_lag)")),
    "group_lag_missing_partitions": (
        f"Partitions of the group without a log end: its lag is a lower bound.{_REST.format('the sum of')}",
        f"FROM ({_of_lags('SUM(partitions_without_end)')}) WHERE value > 0",
    ),
    "group_beyond_end_partitions": (
        f"Partitions with a committed offset beyond the end of the log.{_REST.format('the sum of')}",
        f"FROM ({_of_lags('SUM(beyond_end)')}) WHERE value > 0",
    ),
    "group_lag_seconds": (
        f"How long ago the next record was written.{_REST.format('the largest of')}",
        _of_lags("MAX(hours_behind) * 3600"),
    ),
    "group_lag_ratio": (
        f"The largest share of a log that is lag: near 1 the group loses records.{_REST.format('the largest of')}",
        _of_lags("MAX(share_of_log)"),
    ),
}
"""Metric without its prefix -> help, and a query over ``_snapshot``: the cluster, further labels, and last the value."""

_OF_THE_RUN: Final = {
    "nightly_exit_code": "How the last run of nightly ended, as its exit code: 0 done, 1 failed, 2 refused or called in a wrong way.",
    "nightly_last_run_timestamp_seconds": "When the last run of nightly ended, in Unix time.",
}


class RegularExpression(click.ParamType):  # type: ignore[type-arg]
    """An expression of RE2, whose time grows with the text alone; the command gets it compiled."""

    name = "REGEX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return re2.compile(value) if isinstance(value, str) else value
        except re2.error as e:
            self.fail(f"{value!r} is not a regular expression of RE2: {e.args[0] if e.args else e}.", param, ctx)


@command(epilog="Example: groupcoord metrics --out /var/lib/node_exporter/groupcoord.prom")
@click.option(
    "--out",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Replace FILE atomically. [default: stdout]",
)
@click.option(
    "--groups", "of_groups", type=RegularExpression(), metavar="REGEX", help="Series of their own only for groups whose whole name matches."
)
@click.option(
    "--top",
    type=click.IntRange(0),
    default=MOST_GROUPS,
    show_default=True,
    help="Series of their own for that many groups, those with the largest lag.",
)
@common_options_of_a_writer
def metrics(common: Common, file: Path | None, of_groups: Any, top: int) -> None:
    """Figures of the newest run of each cluster as OpenMetrics text, for the textfile collector of node_exporter.

    All metrics are gauges. Groups have lag alone: --groups and --top bound their number, and one series per cluster has the sum (of
    maximums the largest) of all other groups, with series=rest.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    warehouse = open_warehouse(common.warehouse)
    runs = [warehouse.run(name) for name in ([common.cluster] if common.cluster is not None else warehouse.clusters_with_nightly_runs())]
    if not runs:
        nightly = command_line("nightly", "INPUT", warehouse=warehouse.location.uri)
        raise GroupcoordError(f"{warehouse.location.uri} holds no run yet. Make one with `{nightly}`.")
    families = _families(warehouse, runs, of_groups, top)
    if file is None:
        print_exactly(_text(families))
        return
    write_whole(file, _text(families))
    common.say(f"{counted(len(runs), 'cluster')} in {file}.")


@contextmanager
def metrics_of_run(file: Path | None, common: Common) -> Iterator[None]:
    """Write the metrics of a cluster and the exit code when the run within ends, also if it fails or is refused.

    Raises UsageError, before the run, if the file cannot be written. None writes nothing.
    """
    if file is not None:
        refuse_unwritable(file)
    try:
        yield
    except GroupcoordError as e:
        if file is not None:
            with suppress(GroupcoordError):
                write_whole(file, _text(_families_after_run(common, e.exit_code)))
        raise
    if file is not None:
        write_whole(file, _text(_families_after_run(common, 0)))


def _families_after_run(common: Common, exit_code: int) -> list[GaugeMetricFamily]:
    from groupcoord_spark.warehouse.read import open_warehouse

    families: list[GaugeMetricFamily] = []
    cluster = common.cluster or ""
    try:
        warehouse = open_warehouse(common.warehouse)
        newest = [warehouse.run(name) for name in warehouse.clusters_with_nightly_runs() if common.cluster in (None, name)]
        for run in sorted(newest, key=lambda run: run.finished_at_ms)[-1:]:  # none after a first run that was a point-in-time run
            cluster, families = run.cluster, _families(warehouse, [run], None, MOST_GROUPS)
    except GroupcoordError:  # a refused run may be the first one, or the warehouse the reason
        if exit_code == 0:
            raise
    for (name, help_text), value in zip(_OF_THE_RUN.items(), (exit_code, now_ms() / 1000), strict=True):
        families.append(_family(name, help_text))
        families[-1].add_metric([cluster], value)
    return families


def _text(families: Iterable[GaugeMetricFamily]) -> str:
    class Collected:
        def collect(self) -> Iterable[GaugeMetricFamily]:
            return families

    text: bytes = generate_latest(Collected())  # type: ignore[no-untyped-call]
    return text.decode()


def _families(warehouse: Warehouse, runs: Sequence[Run], of_groups: Any, top: int) -> list[GaugeMetricFamily]:
    """Return every metric with the samples of all clusters."""
    families = []
    snapshot = _snapshot(warehouse, runs, of_groups, top)
    for name, (help_text, query) in GAUGES.items():
        rows = snapshot.rows(query)
        families.append(_family(name, help_text, rows.column_names[1:-1]))
        for *labels, value in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if value is not None:
                families[-1].add_metric([*map(str, labels)], float(value))
    return families


def _family(name: str, help_text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    unit = name.rpartition("_")[2]
    unit = unit if unit in ("seconds", "bytes", "ratio") else ""
    return GaugeMetricFamily(f"groupcoord_{name}", help_text, labels=("cluster", *labels), unit=unit)


def _snapshot(warehouse: Warehouse, runs: Sequence[Run], of_groups: Any, top: int) -> SnapshotInDuckDB:
    """Return the runs with three more tables: shown_run, news, and group_lags, where ``is_own`` marks groups with their own series."""
    import pyarrow as pa

    from groupcoord_spark.answers.findings import NEWS
    from groupcoord_spark.answers.morning import mornings
    from groupcoord_spark.warehouse.sql import SnapshotInDuckDB

    snapshot = SnapshotInDuckDB(warehouse, runs=runs)
    news = []
    for answer in mornings(warehouse, runs, HORIZON_MS, snapshot):
        numbers = dict.fromkeys(NEWS, 0)
        for item in answer.news:
            numbers[item.kind] += item.number
        cluster = answer.run.cluster
        news += [{"cluster": cluster, "what": what, "level": NEWS[what].level, "value": value} for what, value in numbers.items()]
    lags = snapshot.rows(_LAGS)
    own = dict.fromkeys((run.cluster for run in runs), 0)
    is_own = []
    for cluster, group_id in zip(lags["cluster"].to_pylist(), lags["group_id"].to_pylist(), strict=True):
        is_own.append(own[cluster] < top and (of_groups is None or of_groups.fullmatch(group_id) is not None))
        own[cluster] += is_own[-1]
    shown = [{"cluster": run.cluster, "run_id": run.run_id, "warehouse": warehouse.location.uri} for run in runs]
    snapshot.connection.register("shown_run", pa.Table.from_pylist(shown))
    snapshot.connection.register("news", pa.Table.from_pylist(news))
    snapshot.connection.register("group_lags", lags.append_column("is_own", pa.array(is_own, pa.bool_())))
    return snapshot
