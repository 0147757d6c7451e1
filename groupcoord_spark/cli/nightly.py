"""``groupcoord nightly``: one night's run, from a dump to the tables."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from groupcoord_spark.cli.options import Common, Duration, Moment, common_options
from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.errors import GroupcoordError, UsageError

if TYPE_CHECKING:
    from groupcoord_spark.log import LogPlan
    from groupcoord_spark.pipeline.nightly import PastSummary, Summary
    from groupcoord_spark.pipeline.until import Until

DEFAULT_CLUSTER = "default"


class MomentOrOffsets(click.ParamType):  # type: ignore[type-arg]
    """TIME, or a FILE with a JSON object of end offsets by offsets partition; the command gets ``pipeline.until.Until``."""

    name = "TIME|FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from groupcoord_spark.pipeline.until import Until

        text = str(value)
        if not Path(text).is_file():
            try:
                return Until(text, time_ms=Moment().convert(text, param, ctx))
            except click.BadParameter:
                write = "Write for example 2026-11-20T03:00:00Z, or name a JSON file of end offsets."
                self.fail(f"{text!r} is neither a time nor a file. {write}", param, ctx)
        try:
            told = json.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            self.fail(f"{text} cannot be read as JSON: {e}.", param, ctx)
        if not isinstance(told, dict) or not all(each.isdecimal() and type(end) is int and end >= 0 for each, end in told.items()):
            example = '{"0": 1500, "7": 320}'
            self.fail(f"{text} must hold one JSON object, offsets partition -> end offset, for example {example}.", param, ctx)
        return Until(text, end_offsets={int(each): end for each, end in told.items()})


@click.command(
    epilog="Example: groupcoord nightly tests/golden/classic-modern/logs --cluster sample --as-of 2026-11-21T08:00:00Z"
)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--as-of", "as_of_ms", type=Moment(), help="The now of the rules of expiration. [default: now; with --until TIME that moment]"
)
@click.option(
    "--until",
    type=MomentOrOffsets(),
    metavar="TIME|FILE",
    help="Replay to the state of that moment, or up to the end offsets of a JSON file. [default: the end of the log]",
)
@click.option(
    "--offsets-retention",
    "retention_ms",
    type=Duration(),
    help="How long offsets are kept. [default: offsets.retention.minutes of --settings, else that release's own: 7d since 2.0]",
)
@click.option(
    "--settings", "settings_file", metavar="FILE", help="A broker's server.properties, or conf/coordinator.properties: Kafka's own keys."
)
@click.option(
    "--semantics", type=click.Choice(["java", "scala"]), help="The coordinator: java is Kafka 4.x, scala 0.8.2 to 3.9. [default: java]"
)
@click.option("--broker-version", metavar="V", help="Rules of that release, for example 3.6. [default: 4.3 with java, 3.9 with scala]")
@click.option(
    "--topic-ids", "topic_ids_file", metavar="FILE", help="JSON object, topic name -> id: names for ids that the log does not reveal."
)
@click.option("--no-history", is_flag=True, help="Write state and rules only, not offset_commits, group_records and transactions.")
@click.option(
    "--strict",
    is_flag=True,
    help="End with 1 when a record was quarantined, or the broker's loader refuses or skips one. The tables are written all the same.",
)
@common_options
def nightly(
    common: Common,
    inputs: tuple[str, ...],
    as_of_ms: int | None,
    until: Until | None,
    retention_ms: int | None,
    settings_file: str | None,
    semantics: str | None,
    broker_version: str | None,
    topic_ids_file: str | None,
    no_history: bool,
    strict: bool,
) -> int:
    """Read a copy of a broker's __consumer_offsets, replay it as the group coordinator would, expire it, and write the Delta tables.

    INPUT is a path or URI (file, s3, gs, hdfs): a broker's log directory, several brokers' copies of one cluster, one __consumer_offsets-N
    directory, or its .log files. Several may be given. The tables change at the very end, all at once.
    """
    from groupcoord_spark.coordinator.retention import read_settings
    from groupcoord_spark.coordinator.semantics import semantics_for
    from groupcoord_spark.log import plan_logs
    from groupcoord_spark.pipeline.nightly import Night, run_night
    from groupcoord_spark.pipeline.session import session

    if common.cluster == "":
        raise UsageError("--cluster is given without a name. Name the Kafka cluster, or leave the option out.")
    if as_of_ms is None:
        as_of_ms = until.time_ms if until is not None and until.time_ms is not None else time.time_ns() // 1_000_000
    rules = semantics_for(semantics, broker_version)
    properties = _properties(settings_file) if settings_file is not None else {}
    if retention_ms is None:
        retention_ms = read_settings(properties, rules).retention_ms
    topic_names = _topic_names(topic_ids_file) if topic_ids_file is not None else {}
    with StageLines(quiet=common.quiet) as progress:
        progress.begin("plan")
        plan = plan_logs(inputs)
        progress.end(bytes=sum(partition.bytes for partition in plan.partitions))
        night = Night(
            inputs=inputs,
            warehouse=common.warehouse,
            cluster=common.cluster or _cluster_of(plan, common.warehouse),
            as_of_ms=as_of_ms,
            retention_ms=retention_ms,
            semantics=rules,
            with_history=not no_history,
            topic_names=topic_names,
            until=until,
            settings={"offsets.retention.ms": str(retention_ms)},
        )
        progress.begin("start Spark")
        spark = session(show_output=common.debug)
        progress.end()
        summary = run_night(night, plan, spark, progress)
    if not common.quiet:
        click.echo(summary_text(summary, retention_ms), err=True)
    if strict:
        _refuse_doubtful(summary)
    return 0


def _refuse_doubtful(summary: Summary) -> None:
    """Raises GroupcoordError, one sentence, for a run that lost records, or read some that the broker would not have loaded."""
    found, where = [], []
    if summary.records_quarantined:
        found.append(f"{summary.records_quarantined:,} of {summary.records_read:,} records were quarantined")
        where.append("quarantined_records")
    if summary.refusals:
        found.append(f"the loader of Kafka {summary.broker_version} refuses or skips {summary.refusals:,}")
        where.append("warnings")
    if found:
        raise GroupcoordError(
            f"{', '.join(found)}, and --strict was given. The tables are written; see {' and '.join(where)} of run {summary.run_id}."
        )


def summary_text(summary: Summary, retention_ms: int) -> str:
    """What the run found, in a few lines for a person."""
    lines = [
        "",
        f"Cluster {summary.cluster!r} in {summary.warehouse}, run {summary.run_id}",
        f"  records   {summary.records_read:,} read = {summary.records_decoded:,} decoded + {summary.records_quarantined:,} quarantined"
        f" ({summary.offsets_partitions} offsets partitions, {summary.bytes_read / 1e6:,.1f} MB)",
        f"  state     {summary.groups:,} groups, {summary.committed_offsets:,} committed offsets",
        f"  cleanup   as of {_moment(summary.as_of_ms)} with retention {_duration(retention_ms)}:"
        f" {summary.expired_offsets:,} offsets expired, {summary.removed_groups:,} groups removed"
        f" ({summary.semantics} {summary.broker_version})",
    ]
    if summary.past is not None:
        lines += _lines_about(summary.past)
    if summary.quarantined_by_reason:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in summary.quarantined_by_reason.items())
        lines.append(f"  lost      {reasons}: see quarantined_records")
    if summary.warnings:
        lines.append(f"  doubts    {summary.warnings:,}: see warnings")
    if summary.other_coordinator:
        lines.append(f"  hint      {summary.other_coordinator}")
    return "\n".join(lines)


def _lines_about(past: PastSummary) -> list[str]:
    lines = [
        f"  until     {past.text}: {past.ended_early:,} offsets partitions end before their logs;"
        f" {past.from_history:,} records taken from the history"
    ]
    if past.missing:
        told = ", ".join(str(each) for each in past.missing)
        lines.append(
            f"  unknown   offsets partitions {told} may not be exact: {sum(past.missing.values()):,} offsets before that moment have no"
            " record any more, neither in the log nor in the history: see warnings"
        )
    return lines


def _moment(milliseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _duration(milliseconds: int) -> str:
    """The largest unit that says it exactly, as --offsets-retention takes it."""
    return next(
        f"{milliseconds // size}{unit}"
        for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
        if milliseconds % size == 0
    )


def _cluster_of(plan: LogPlan, warehouse: str) -> str:
    """The cluster.id beside the dump, else the warehouse's only cluster, else ``default``."""
    from groupcoord_spark.warehouse.location import locate
    from groupcoord_spark.warehouse.read import holds_warehouse, open_warehouse

    if plan.cluster_id is not None:
        return plan.cluster_id
    known = open_warehouse(warehouse).clusters() if holds_warehouse(locate(warehouse)) else []
    if len(known) > 1:
        raise UsageError(f"{warehouse} holds the clusters {', '.join(map(repr, known))}. Say with --cluster which one this dump is of.")
    return known[0] if known else DEFAULT_CLUSTER


def _text_of(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{what} {path} cannot be read: {e.strerror if isinstance(e, OSError) else 'it is not UTF-8 text'}.") from e


def _properties(path: str) -> dict[str, str]:
    """``name=value`` lines of a properties file; comments and empty lines left out."""
    pairs = (
        line.partition("=") for line in _text_of(path, "The settings file").splitlines() if line.strip() and line.lstrip()[0] not in "#!"
    )
    return {name.strip(): value.strip() for name, _, value in pairs}


def _topic_names(path: str) -> dict[str, str]:
    """Topic id -> name, from a JSON object of names and ids."""
    try:
        ids = json.loads(_text_of(path, "The topic ids file"))
    except json.JSONDecodeError as e:
        raise UsageError(f"The topic ids file {path} is not JSON: {e}.") from e
    if not isinstance(ids, dict) or not all(isinstance(each, str) for each in ids.values()):
        raise UsageError(f'The topic ids file {path} must hold one JSON object, topic name -> id, for example {{"orders": "AZx9…"}}.')
    return {topic_id: name for name, topic_id in ids.items()}
