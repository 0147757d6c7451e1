"""``groupcoord nightly``: one night's run, from a dump to the tables."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from groupcoord_spark.cli import interruption
from groupcoord_spark.cli.end_offsets import changed_at_ms, read_end_offsets
from groupcoord_spark.cli.night_summary import summary_object, summary_text
from groupcoord_spark.cli.options import Common, Duration, Moment, common_options_of_a_writer, force_option, written_time
from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.cli.render import say, write_records
from groupcoord_spark.errors import GroupcoordError, InputChangedError, UsageError
from groupcoord_spark.pipeline.accepted import ACCEPTED_WORDS, EMPTY
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from groupcoord_spark.log import LogPlan
    from groupcoord_spark.log.files.held_files import HeldFiles
    from groupcoord_spark.pipeline.extents import Until
    from groupcoord_spark.pipeline.plan.input_rows import RowPlan
    from groupcoord_spark.pipeline.run import Summary
    from groupcoord_spark.sources.rows import InputKind

DEFAULT_CLUSTER = "default"

NIGHTS_BETWEEN_UPKEEP = 10
"""After so many runs of a cluster the nightly run looks after the warehouse."""

READINGS_OF_A_LOG_IN_USE = 5
"""So often a log is read whose files are replaced meanwhile. With Kafka's default, the log cleaner rests 15 seconds after a pass."""

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")


class MomentOrOffsets(click.ParamType):  # type: ignore[type-arg]
    """TIME, or a FILE with a JSON object of end offsets by offsets partition; the command gets ``pipeline.until.Until``."""

    name = "TIME|FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from groupcoord_spark.pipeline.extents import Until

        text = str(value)
        if not Path(text).is_file():
            if text.strip() == "now" or written_time(text.strip()) is not None:
                return Until(text, time_ms=Moment().convert(text, param, ctx))
            write = "Write for example 2026-11-20T03:00:00Z, or name a JSON file of end offsets."
            self.fail(f"{text!r} is neither a time nor a file. {write}", param, ctx)
        try:
            end_offsets = json.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            self.fail(f"{text} cannot be read as JSON: {e}.", param, ctx)
        if not isinstance(end_offsets, dict) or not all(
            number.isdecimal() and type(end) is int and end >= 0 for number, end in end_offsets.items()
        ):
            example = '{"0": 1500, "7": 320}'
            self.fail(f"{text} must hold one JSON object, offsets partition -> end offset, for example {example}.", param, ctx)
        return Until(text, end_offsets={int(number): end for number, end in end_offsets.items()})


@click.command(epilog="Example: groupcoord nightly tests/golden/classic-modern/logs --cluster sample --as-of 2026-11-21T08:00:00Z")
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
@click.option(
    "--command-config",
    metavar="FILE",
    help="Properties of Kafka's client for a kafka:// INPUT (security.protocol and so on), as Kafka's own tools take them. Never shown.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Read every log from its beginning, not only what is new since the last night, and say whether both give the same state.",
)
@click.option(
    "--up-to-high-watermark",
    is_flag=True,
    help="Replay only to the high watermark that the broker wrote beside the logs, as 0.10 loaded; later records may vanish.",
)
@click.option(
    "--end-offsets",
    "end_offsets_file",
    metavar="FILE",
    help="End offsets of topics for lag, as describe takes them: what kafka-get-offsets printed just before the copy was made.",
)
@click.option(
    "--with-end-offsets",
    is_flag=True,
    help="Ask the brokers of a kafka:// INPUT for the start and end offsets of all topics, for lag. Not together with --end-offsets.",
)
@click.option("--no-history", is_flag=True, help="Write no history: no offset_commits, group_records, transactions and rebalances.")
@click.option(
    "--strict",
    is_flag=True,
    help="End with 1 when a record was quarantined, or the broker's loader refuses or skips one. The tables are written all the same.",
)
@click.option(
    "--accept",
    "accepted",
    type=click.Choice(ACCEPTED_WORDS),
    multiple=True,
    metavar="WORD",
    help=f"Go on although the input looks like a bad copy; may be given several times. WORD: {', '.join(ACCEPTED_WORDS)}.",
)
@click.option("--no-maintain", is_flag=True, help="Leave the upkeep that each tenth night does to `groupcoord maintain`.")
@click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="The summary: text for people on stderr, or one JSON object on stdout.",
)
@click.option(
    "--publish",
    "database",
    metavar="DATABASE",
    help="At the end create views of every table and view, pinned to the night, in this database of Spark's metastore.",
)
@force_option
@common_options_of_a_writer
def nightly(
    common: Common,
    database: str | None,
    inputs: tuple[str, ...],
    as_of_ms: int | None,
    until: Until | None,
    retention_ms: int | None,
    settings_file: str | None,
    semantics: str | None,
    broker_version: str | None,
    topic_ids_file: str | None,
    command_config: str | None,
    full: bool,
    up_to_high_watermark: bool,
    end_offsets_file: str | None,
    with_end_offsets: bool,
    no_history: bool,
    strict: bool,
    accepted: tuple[str, ...],
    no_maintain: bool,
) -> int:
    """Read a copy of a broker's __consumer_offsets, replay it as the group coordinator would, expire it, and write the Delta tables.

    INPUT is a path or URI (s3, gs, abfss, hdfs): a broker's log directory, several brokers' copies of one cluster, one __consumer_offsets-N
    directory, or its .log files; Parquet files or a Delta table in the schema of Spark's Kafka source; lines of JSON with base64 keys and
    values; or kafka://HOST:PORT, the topic itself. Several of one kind may be given. The tables change at the very end, all at once. An
    input that looks like a bad copy (older, empty, of another cluster) is refused; see --accept.
    """
    from groupcoord_spark.coordinator.broker_settings import SETTINGS_OF_RUNS, read_broker_settings, refuse_misspelled_names
    from groupcoord_spark.coordinator.semantics import semantics_for
    from groupcoord_spark.log.files.held_files import HeldFiles
    from groupcoord_spark.pipeline.nightly import run_nightly
    from groupcoord_spark.pipeline.run import RunRequest
    from groupcoord_spark.properties import read_properties
    from groupcoord_spark.sources.inputs import kind_of
    from groupcoord_spark.sources.live import live_topic, log_extents_of
    from groupcoord_spark.sources.rows import InputKind
    from groupcoord_spark.spark.failures import own_errors
    from groupcoord_spark.spark.session import session_ends_with_block
    from groupcoord_spark.warehouse.location import locate
    from groupcoord_spark.warehouse.sql import refuse_bad_database
    from groupcoord_spark.warehouse.write import can_be_written

    if as_of_ms is None:
        as_of_ms = until.time_ms if until is not None and until.time_ms is not None else time.time_ns() // 1_000_000
    rules = semantics_for(semantics, broker_version)
    properties = read_properties(settings_file, "The settings file") if settings_file is not None else {}
    try:
        if settings_file is not None:
            refuse_misspelled_names(properties)
        broker = read_broker_settings(properties, rules)
    except UsageError as e:
        raise UsageError(f"{settings_file}: {e}") from e
    rules = rules.with_settings(properties)
    if retention_ms is None:
        retention_ms = broker.retention_ms
    topic_names = _topic_names(topic_ids_file) if topic_ids_file is not None else {}
    log_ends = read_end_offsets(end_offsets_file) if end_offsets_file is not None else {}
    kind = kind_of(inputs)
    if command_config is not None and kind is not InputKind.KAFKA:
        raise UsageError("--command-config is for Kafka's client, and no INPUT is kafka://HOST:PORT. Leave it out.")
    if up_to_high_watermark and (until is not None or kind is not InputKind.SEGMENTS):
        raise UsageError(
            "--up-to-high-watermark is for a night over a copy of a broker's log directory: not with --until, and not for other inputs."
        )
    if with_end_offsets and end_offsets_file is not None:
        raise UsageError("--end-offsets and --with-end-offsets are two samples of the same offsets. Leave one of them out.")
    if with_end_offsets and kind is not InputKind.KAFKA:
        raise UsageError("--with-end-offsets asks the brokers of a kafka:// INPUT, and there is none. Give --end-offsets FILE instead.")
    client = read_properties(command_config, "The command config file") if command_config is not None else {}
    if database is not None:
        refuse_bad_database(database)
    can_be_written(locate(common.warehouse))  # so that a warehouse that cannot be used is reported before Spark starts

    def one_night(progress: StageLines) -> tuple[SparkSession, Summary]:
        with HeldFiles() as held:
            with own_errors(lambda: progress.stage):
                spark, plan, rows = _planned(
                    kind,
                    inputs,
                    client,
                    common,
                    progress,
                    held,
                    accept_empty=EMPTY in accepted,
                    goes_on=not full and until is None,
                    up_to_high_watermark=up_to_high_watermark,
                    publishes=database is not None,
                )
                extents: Mapping[tuple[str, int], tuple[int, int]] = {}
                ends_of_logs = log_ends
                if with_end_offsets:
                    # After the end of the offsets topic is fixed: no commit of the night is newer than the sample.
                    progress.begin("ask for end offsets")
                    extents = log_extents_of(spark, live_topic(inputs, client))
                    ends_of_logs = {place: end for place, (_, end) in extents.items()}
                    progress.end(rows=len(extents))
                sampled_at_ms = time.time_ns() // 1_000_000 if end_offsets_file is None else changed_at_ms(end_offsets_file)
            night = RunRequest(
                inputs=inputs,
                warehouse=common.warehouse,
                cluster=_cluster_of(plan, common, rows),
                as_of_ms=as_of_ms,
                retention_ms=retention_ms,
                semantics=rules,
                with_history=not no_history,
                topic_names=topic_names,
                settings={name: properties[name] for name in SETTINGS_OF_RUNS if name in properties},
                default_assignors=broker.default_assignors,
                offsets_partitions=broker.offsets_partitions,
                until=until,
                accepted=frozenset(accepted),
                full=full,
                log_ends=ends_of_logs,
                log_starts={place: start for place, (start, _) in extents.items()},
                log_ends_sampled_at_ms=sampled_at_ms,
            )
            return spark, run_nightly(night, plan, spark, progress, rows)

    with StageLines(quiet=common.quiet) as progress, session_ends_with_block():
        spark, summary = _again_while_the_input_changes(one_night, progress, say_so=not common.quiet)
        if database is not None:
            _publish(spark, common, database, progress)
    if common.output == "json":
        write_records("json", *summary_object(summary, retention_ms))
    elif not common.quiet:
        say(summary_text(summary, retention_ms))
    if not no_maintain:
        _do_upkeep(common, summary.cluster)
    if strict:
        _refuse_doubtful(summary)
    return 0


def _again_while_the_input_changes(
    one_night: Callable[[StageLines], tuple[SparkSession, Summary]], progress: StageLines, *, say_so: bool
) -> tuple[SparkSession, Summary]:
    """What ``one_night`` returns.

    A broker's log cleaner replaces files of a log in use. Where the night cannot hold them open, such a log is planned and read again.
    """
    for number in range(2, READINGS_OF_A_LOG_IN_USE + 1):
        try:
            return one_night(progress)
        except InputChangedError:
            progress.end()
            if say_so:
                say(f"The log was changed while it was read, and is read again ({number} of {READINGS_OF_A_LOG_IN_USE}).")
    return one_night(progress)


def _do_upkeep(common: Common, cluster: str) -> None:
    """Each tenth night: the part of ``groupcoord maintain`` that takes seconds. The night is done; a failure is one sentence."""
    from groupcoord_spark.cli.maintain import summary_text as upkeep_text
    from groupcoord_spark.warehouse.maintenance import FEW_BYTES, maintain
    from groupcoord_spark.warehouse.read import open_warehouse

    try:
        if len(open_warehouse(common.warehouse).finished_runs(cluster)) % NIGHTS_BETWEEN_UPKEEP:
            return
        done = maintain(common.warehouse, cluster, most_bytes=FEW_BYTES)
        if not common.quiet:
            say(f"  upkeep    {upkeep_text(done, dry_run=False)}")
    except (GroupcoordError, OSError) as e:
        say(f"Upkeep could not be done, and the night is written all the same: {e}")


def _publish(spark: SparkSession, common: Common, database: str, progress: StageLines) -> None:
    """Create the views of the night in the metastore. Raises GroupcoordError where Spark cannot; the night is written all the same."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from groupcoord_spark.warehouse.location import first_line
    from groupcoord_spark.warehouse.read import open_warehouse
    from groupcoord_spark.warehouse.sql import publish

    progress.begin("publish")
    try:
        views = publish(spark, open_warehouse(common.warehouse), database)
    except (PySparkException, Py4JError) as error:
        raise GroupcoordError(
            f"The night is written, but Spark could not create its views in the database {database!r}: {first_line(error)}"
            " Mend that, and run the nightly again, or run what `groupcoord sql --print-views spark` prints."
        ) from error
    progress.end(rows=len(views))


def _planned(
    kind: InputKind,
    inputs: tuple[str, ...],
    client: dict[str, str],
    common: Common,
    progress: StageLines,
    held: HeldFiles,
    *,
    accept_empty: bool,
    goes_on: bool,
    up_to_high_watermark: bool,
    publishes: bool,
) -> tuple[SparkSession, LogPlan, RowPlan | None]:
    """Spark, and what there is to read, by the kind of input.

    held: holds local segments open. goes_on: the run may go on from the last night.
    """
    import pyspark
    from pyspark.errors import PySparkException

    from groupcoord_spark.log import cut_at_high_watermarks, plan_logs
    from groupcoord_spark.log.directory import no_ends
    from groupcoord_spark.pipeline.plan.input_rows import plan_file_rows
    from groupcoord_spark.pipeline.plan.live_rows import plan_live_rows
    from groupcoord_spark.pipeline.read.rows import plan_files
    from groupcoord_spark.sources.live import FALLBACK_VERSION, KAFKA_CONNECTOR, live_topic
    from groupcoord_spark.sources.rows import InputKind
    from groupcoord_spark.spark.session import metastore_settings, session
    from groupcoord_spark.spark.stage_names import describe_job

    def started(**settings: str) -> SparkSession:
        progress.begin("start Spark")
        return session_of(settings)

    def session_of(settings: dict[str, str]) -> SparkSession:
        if publishes:
            settings = metastore_settings(settings)
        spark = session(show_output=common.debug, settings=settings)
        interruption.take_signals_back()
        progress.end()
        return spark

    def started_with_connector() -> SparkSession:
        """With the connector of Spark's own version, or with another where that one is not to be had."""
        try:
            return started(**{"spark.jars.packages": f"{KAFKA_CONNECTOR}:{pyspark.__version__}"})
        except (GroupcoordError, PySparkException):
            # Any other error comes again when Spark is started, and is reported then.
            progress.begin("with an older connector")
            return session_of({"spark.jars.packages": f"{KAFKA_CONNECTOR}:{FALLBACK_VERSION}"})

    if kind is InputKind.KAFKA:
        topic = live_topic(inputs, client)
        spark = started_with_connector()
        progress.begin("read the topic")
        with describe_job(spark, "nightly", "read the topic"):
            rows = plan_live_rows(spark, topic, common.warehouse, cluster=common.cluster, goes_on=goes_on)
        progress.end(rows=rows.rows)
        return spark, rows.log, rows
    progress.begin("plan")
    if kind is InputKind.SEGMENTS:
        known_ends = partial(_known_ends, common) if goes_on and not up_to_high_watermark else no_ends
        plan = plan_logs(inputs, known_ends, held=held)
        if up_to_high_watermark:
            plan = cut_at_high_watermarks(plan)
        progress.end(bytes=sum(partition.bytes for partition in plan.partitions))
        _cluster_of(plan, common, None)  # so that a missing --cluster is reported before Spark starts
        return started(), plan, None
    files = plan_files(kind, inputs)
    progress.end(bytes=files.bytes)
    spark = started()
    progress.begin("look at the rows")
    with describe_job(spark, "nightly", "look at the rows"):
        rows = plan_file_rows(spark, files, common.warehouse, cluster=common.cluster, goes_on=goes_on, accept_empty=accept_empty)
    progress.end(rows=rows.rows)
    return spark, rows.log, rows


def _known_ends(common: Common, cluster_id: str | None) -> Mapping[int, int]:
    from groupcoord_spark.pipeline.plan.carry_over import ends_of_last_night

    return ends_of_last_night(common.warehouse, common.cluster or cluster_id)


def _refuse_doubtful(summary: Summary) -> None:
    """Raises GroupcoordError, one sentence, for a run that lost records, or read some that the broker would not have loaded."""
    problems = []
    if summary.records_quarantined:
        verb = "was" if summary.records_read == 1 else "were"
        problems.append(f"{summary.records_quarantined:,} of {counted(summary.records_read, 'record')} {verb} quarantined")
    if summary.refusals:
        problems.append(f"the loader of Kafka {summary.broker_version} refuses or skips {summary.refusals:,}")
    if problems:
        raise GroupcoordError(
            f"{', '.join(problems)}, and --strict was given. The tables are written; see `groupcoord warnings --run {summary.run_id}`."
        )


def _cluster_of(plan: LogPlan, common: Common, rows: RowPlan | None) -> str:
    """The cluster that is named, else the one that the input names, else the warehouse's only cluster, else ``default``.

    The warehouse's only cluster is taken if the input has records that the cluster's last night has seen. Raises UsageError otherwise.
    """
    from groupcoord_spark.pipeline.plan.earlier_runs import last_night_of, remembered_offsets
    from groupcoord_spark.pipeline.plan.evidence import evidence_of_segments
    from groupcoord_spark.pipeline.plan.guards import belongs_to
    from groupcoord_spark.warehouse.location import locate
    from groupcoord_spark.warehouse.read import holds_warehouse, open_warehouse

    named = common.cluster or plan.cluster_id
    if named is not None:
        return named
    warehouse = open_warehouse(common.warehouse) if holds_warehouse(locate(common.warehouse)) else None
    known = [] if warehouse is None else warehouse.clusters()
    if warehouse is None or not known:
        return DEFAULT_CLUSTER
    if len(known) > 1:
        names = ", ".join(map(repr, known))
        raise UsageError(f"{common.warehouse} holds the clusters {names}. Say with --cluster which one this dump is of.")
    if not warehouse.clusters_with_nights():
        return known[0]  # it only has look-backs: there is no good night that another cluster's dump could replace
    last_night = last_night_of(warehouse, known[0])
    evidence = evidence_of_segments(plan, remembered_offsets([last_night])) if rows is None else rows.evidence
    if not belongs_to(last_night, evidence):
        raise UsageError(
            f"{common.warehouse} holds the cluster {known[0]!r}, and nothing shows that this dump is of that cluster: there is no"
            " meta.properties, and the records that the last night remembers are not in it. Say with --cluster which one this dump is of."
        )
    return known[0]


def _topic_names(path: str) -> dict[str, str]:
    """Topic id -> name, from a JSON object of names and ids."""
    try:
        ids = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise UsageError(f"The topic ids file {path} cannot be read: {why}.") from e
    except json.JSONDecodeError as e:
        raise UsageError(f"The topic ids file {path} is not JSON: {e}.") from e
    if not isinstance(ids, dict) or not all(isinstance(topic_id, str) for topic_id in ids.values()):
        raise UsageError(f'The topic ids file {path} must hold one JSON object, topic name -> id, for example {{"orders": "AZx9…"}}.')
    for name, topic_id in ids.items():
        if not _TOPIC_ID.fullmatch(topic_id):
            raise UsageError(
                f"The topic ids file {path} gives {name!r} the id {topic_id!r}, and ids have 22 letters, digits, - and _, as"
                " `kafka-topics --describe` prints them."
            )
    return {topic_id: name for name, topic_id in ids.items()}
