"""``groupcoord metrics``: the figures of the newest nights in OpenMetrics, for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import re2
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest

from groupcoord_spark.cli.options import Common, command, common_options_of_a_writer
from groupcoord_spark.cli.render import say
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.moments import now_ms
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.read import Run, Warehouse

HORIZON_MS: Final = 2 * 86_400_000
"""As of ``morning``."""
MOST_GROUPS: Final = 100

_LAG: Final = """
SELECT group_id, CAST(SUM(GREATEST(lag, 0)) AS BIGINT) AS lag, MAX(GREATEST(lag, 0)) AS max_lag, MAX(hours_behind) * 3600 AS seconds_behind,
  MAX(share_of_log) AS share_of_log
FROM lag GROUP BY group_id HAVING COUNT(lag) > 0
UNION ALL
SELECT group_id, CAST(SUM(lag) AS BIGINT), MAX(lag), NULL, NULL FROM share_lag GROUP BY group_id HAVING COUNT(lag) > 0
ORDER BY lag DESC, group_id
"""
_EXPIRING: Final = """
SELECT COUNT(*) FILTER (expires_at <= as_of + INTERVAL 1 DAY) AS "1d", COUNT(*) FILTER (expires_at <= as_of + INTERVAL 7 DAY) AS "7d"
FROM offset_expirations
"""


class RegularExpression(click.ParamType):  # type: ignore[type-arg]
    """An expression of RE2, whose time grows with the text alone; the command gets it compiled."""

    name = "REGEX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return re2.compile(value) if isinstance(value, str) else value
        except re2.error as e:
            self.fail(f"{value!r} is no regular expression of RE2: {e.args[0] if e.args else e}.", param, ctx)


@command(epilog="Example: groupcoord metrics --out /var/lib/node_exporter/groupcoord.prom")
@click.option(
    "--out",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE, by renaming a file beside it. [default: stdout]",
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
    """Figures of the newest night of each cluster as OpenMetrics text, for the textfile collector of node_exporter.

    All metrics are gauges. Groups have lag alone: --groups and --top bound their number, and one series per cluster has the sum (of
    maximums the largest) of all other groups, with series=rest.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    warehouse = open_warehouse(common.warehouse)
    runs = [warehouse.run(name) for name in ([common.cluster] if common.cluster is not None else warehouse.clusters_with_nights())]
    if not runs:
        raise GroupcoordError(f"{warehouse.location.uri} holds no night yet. Make one with `groupcoord nightly`.")
    families = _families(warehouse, runs, of_groups, top)
    if file is None:
        click.echo(_text(families), nl=False)
        return
    _write(file, families)
    if not common.quiet:
        say(f"{counted(len(runs), 'cluster')} in {file}.")


@contextmanager
def metrics_of_run(file: Path | None, common: Common) -> Iterator[None]:
    """Writes the metrics of a cluster when the run within ends; a run that fails or is refused adds its exit code. file: None: nothing.

    Raises UsageError, before the run, where the directory of the file is not there.
    """
    if file is not None and not file.absolute().parent.is_dir():
        raise UsageError(f"{file} cannot be written: there is no directory {file.absolute().parent}. Name another file.")
    try:
        yield
    except GroupcoordError as e:
        if file is not None:
            with suppress(GroupcoordError):
                _write(file, _families_after_run(common, e.exit_code))
        raise
    if file is not None:
        _write(file, _families_after_run(common, 0))


def _families_after_run(common: Common, exit_code: int) -> list[GaugeMetricFamily]:
    from groupcoord_spark.warehouse.read import open_warehouse

    families: list[GaugeMetricFamily] = []
    cluster = common.cluster or ""
    try:
        warehouse = open_warehouse(common.warehouse)
        newest = max((warehouse.run(name) for name in warehouse.clusters_with_nights()), key=lambda run: run.finished_at_ms)
        run = newest if common.cluster is None else warehouse.run(common.cluster)
        cluster, families = run.cluster, _families(warehouse, [run], None, MOST_GROUPS)
    except (GroupcoordError, ValueError):  # a refused run may be the first one, or the warehouse the reason
        if exit_code == 0:
            raise
    ended = "How the last run of nightly ended, as its exit code: 0 done, 1 failed, 2 refused or called in a wrong way."
    for name, unit, help_text, value in (
        ("nightly_exit_code", "", ended, exit_code),
        ("nightly_last_run_timestamp", "seconds", "When the last run of nightly ended, in Unix time.", now_ms() / 1000),
    ):
        families.append(_gauge(name, help_text, ["cluster"], unit))
        families[-1].add_metric([cluster], value)
    return families


def _write(file: Path, families: Iterable[GaugeMetricFamily]) -> None:
    """Writes a file that no reader sees half written. Raises UsageError where that is not possible."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(_text(families), encoding="utf-8")
        beside.replace(file)
    except OSError as e:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UsageError(f"{file} cannot be written: {e.strerror}. Name another file.") from e


def _text(families: Iterable[GaugeMetricFamily]) -> str:
    class Collected:
        def collect(self) -> Iterable[GaugeMetricFamily]:
            return families

    text: bytes = generate_latest(Collected())  # type: ignore[no-untyped-call]
    return text.decode()


def _gauge(name: str, help_text: str, labels: Sequence[str], unit: str = "") -> GaugeMetricFamily:
    return GaugeMetricFamily(f"groupcoord_{name}", help_text, labels=labels, unit=unit)


def _families(warehouse: Warehouse, runs: Sequence[Run], of_groups: Any, top: int) -> list[GaugeMetricFamily]:
    """Every metric, with the samples of all clusters."""
    families: dict[tuple[str, str], GaugeMetricFamily] = {}
    for run in runs:
        for name, unit, help_text, labels, value in _samples(warehouse, run, of_groups, top):
            names = ("cluster", *labels)
            family = families.setdefault((name, unit), _gauge(name, help_text, names, unit))
            if value is not None:
                family.add_metric([run.cluster, *map(str, labels.values())], value)
    return list(families.values())


Sample = tuple[str, str, str, dict[str, Any], float | None]
"""Name without prefix and unit, unit, help, labels but for the cluster, value; None: the metric has no sample."""


def _samples(warehouse: Warehouse, run: Run, of_groups: Any, top: int) -> Iterator[Sample]:
    from groupcoord_spark.answers.morning import KINDS, morning
    from groupcoord_spark.warehouse.sql import NightInDuckDB

    night = NightInDuckDB(warehouse, run=run)

    def rows(statement: str) -> list[dict[str, Any]]:
        found = night.execute(statement)
        assert found is not None  # every statement is a SELECT
        return list(found.to_pylist())

    started_ms = run.row["started_at"].cast("int64")[0].as_py() / 1000
    yield "night_last_success_timestamp", "seconds", "When the newest night was finished, in Unix time.", {}, run.finished_at_ms / 1000
    yield "night_as_of_timestamp", "seconds", "The moment as of which the newest night is, in Unix time.", {}, run.as_of_ms / 1000
    yield "night_duration", "seconds", "How long the newest night took.", {}, (run.finished_at_ms - started_ms) / 1000
    for result in ("decoded", "quarantined"):
        yield "night_records", "", "Records that the newest night read.", {"result": result}, run.row[f"records_{result}"][0].as_py()
    yield "night_read", "bytes", "Bytes that the newest night read.", {}, run.row["bytes_read"][0].as_py()
    yield "night_doubts", "", "Rows of the table warnings that the newest night wrote.", {}, run.row["warnings"][0].as_py()
    for row in rows(
        "SELECT group_type, state, COUNT(*) AS groups, SUM(member_count)::BIGINT AS members FROM groups GROUP BY ALL ORDER BY ALL"
    ):
        kind = {"type": row["group_type"], "state": row["state"]}
        yield "groups", "", "Groups by type and state.", kind, row["groups"]
        yield "members", "", "Members of the groups of a type and state.", kind, row["members"]
    for table in ("committed_offsets", "pending_offsets"):
        yield table, "", f"Rows of the table {table}.", {}, rows(f"SELECT COUNT(*) AS number FROM {table}")[0]["number"]
    for within, count in rows(_EXPIRING)[0].items():
        yield "expiring_offsets", "", "Committed offsets that expire within that time if nothing changes.", {"within": within}, count
    for row in rows("SELECT finding, severity, COUNT(*) AS number FROM topic_health WHERE severity <> 'normal' GROUP BY ALL ORDER BY ALL"):
        labels = {"finding": row["finding"], "severity": row["severity"]}
        yield "findings", "", "Findings of the doctor about the offsets topic.", labels, row["number"]
    for row in rows("SELECT offsets_partition AS partition, MAX(log_bytes) AS size FROM topic_health GROUP BY ALL ORDER BY ALL"):
        if row["partition"] is not None:
            labels = {"partition": row["partition"]}
            yield "offsets_partition_size", "bytes", "Bytes of the segments of a partition of __consumer_offsets.", labels, row["size"]
    numbers = dict.fromkeys(KINDS, 0)
    for one in morning(warehouse, run, HORIZON_MS).news:
        numbers[one.kind] += one.number
    for what, number in numbers.items():
        help_text = "What is new since the last night that differs, as `groupcoord morning` lists it."
        yield "news", "", help_text, {"what": what, "level": KINDS[what].level}, number
    yield from _lags(rows(_LAG), of_groups, top)


def _lags(lags: Sequence[dict[str, Any]], of_groups: Any, top: int) -> Iterator[Sample]:
    """The lag of the groups that have series of their own, and of all others together. ``lags``: the largest lag first."""
    chosen = [row for row in lags if of_groups is None or of_groups.fullmatch(row["group_id"])][:top]
    names = {row["group_id"] for row in chosen}
    rest = [row for row in lags if row["group_id"] not in names]
    said = " With series=rest: {} all other groups; --groups and --top choose those with series of their own."
    yield "lag_rest_groups", "", "Groups that the series with series=rest stand for.", {}, len(rest)
    for name, unit, column, merge, help_text in (
        ("group_lag", "records", "lag", sum, "Records that the group has not read, of all of its partitions." + said.format("the sum of")),
        ("group_max_lag", "records", "max_lag", max, "The largest lag of a partition of the group." + said.format("the largest of")),
        (
            "group_lag",
            "seconds",
            "seconds_behind",
            max,
            "How long ago the next record to read was written." + said.format("the largest of"),
        ),
        (
            "group_lag",
            "ratio",
            "share_of_log",
            max,
            "The largest share that the lag of a partition has of all records in its log: near 1 the group loses data."
            + said.format("the largest of"),
        ),
    ):
        for row in chosen:
            yield name, unit, help_text, {"group": row["group_id"], "series": "group"}, row[column]
        values = [row[column] for row in rest if row[column] is not None]
        yield name, unit, help_text, {"group": "", "series": "rest"}, merge(values) if values else None
