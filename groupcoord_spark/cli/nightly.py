"""``groupcoord nightly``: one run, from a dump to the tables."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli.options import Common, Duration, Moment, command, common_options_of_a_writer, force_option
from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.cli.render import say, write_records
from groupcoord_spark.cli.run_summary import command_of, summary_object, summary_text
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.moments import written_time
from groupcoord_spark.pipeline.accepted import ACCEPTED_WORDS
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.pipeline.run import Summary


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
            re.fullmatch("[0-9]{1,10}", number) and type(end) is int and end >= 0 for number, end in end_offsets.items()
        ):
            example = '{"0": 1500, "7": 320}'
            self.fail(f"{text} must hold one JSON object, offsets partition -> end offset, for example {example}.", param, ctx)
        return Until(text, end_offsets={int(number): end for number, end in end_offsets.items()})


SECTIONS: Final = {
    "What is read": ("until", "full", "up_to_high_watermark", "command_config", "topic_ids", "end_offsets", "with_end_offsets"),
    "Rules of expiration": ("as_of", "retention", "settings", "semantics", "broker_version"),
    "What is written and refused": ("accept", "strict", "no_history", "no_maintain", "publish", "metrics_file"),
}
"""Purpose -> parameters of its options, for --help. Most have the names of the arguments of ``run_nightly``."""


@command(
    epilog="Example: groupcoord nightly tests/golden/classic-modern/logs --cluster sample --as-of 2026-11-21T08:00:00Z", sections=SECTIONS
)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("--as-of", type=Moment(), help="Time that expiration is computed for. [default: now; with --until TIME that moment]")
@click.option(
    "--until",
    type=MomentOrOffsets(),
    metavar="TIME|FILE",
    help="Replay to the state of that moment, or up to the end offsets of a JSON file. [default: the end of the log]",
)
@click.option(
    "--offsets-retention",
    "retention",
    type=Duration(),
    help="How long offsets are kept. [default: offsets.retention.minutes of --settings, else that release's own: 7d since 2.0]",
)
@click.option("--settings", metavar="FILE", help="A broker's server.properties, or conf/coordinator.properties: Kafka's own keys.")
@click.option(
    "--semantics", type=click.Choice(["java", "scala"]), help="The coordinator: java is Kafka 4.x, scala 0.8.2 to 3.9. [default: java]"
)
@click.option("--broker-version", metavar="V", help="Rules of that release, for example 3.6. [default: 4.3 with java, 3.9 with scala]")
@click.option("--topic-ids", metavar="FILE", help="JSON object, topic name -> id: names for ids that the log does not reveal.")
@click.option(
    "--command-config",
    metavar="FILE",
    help="Properties of Kafka's client for a kafka:// or admin:// INPUT, as Kafka's own tools take them. Never shown.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Read every log from its beginning, not only the new records, and say whether both give the same state.",
)
@click.option(
    "--up-to-high-watermark",
    is_flag=True,
    help="Replay only to the high watermark that the broker wrote next to the logs, as 0.10 loaded; later records may vanish.",
)
@click.option(
    "--end-offsets",
    metavar="FILE",
    help="End offsets of topics for lag, as describe takes them: what kafka-get-offsets printed just before the copy was made.",
)
@click.option(
    "--with-end-offsets",
    is_flag=True,
    help="Ask the brokers of a kafka:// INPUT for the start and end offsets of all topics, for lag. Not together with --end-offsets.",
)
@click.option("--no-history", is_flag=True, help="Write no history: no table with records, and none derived from records.")
@click.option(
    "--strict",
    is_flag=True,
    help="End with 1 when a record was quarantined, or the broker's loader refuses or skips one. The tables are written all the same.",
)
@click.option(
    "--accept",
    type=click.Choice(ACCEPTED_WORDS),
    multiple=True,
    metavar="WORD",
    help=f"Go on although the input looks like a bad copy; may be given several times. WORD: {', '.join(ACCEPTED_WORDS)}.",
)
@click.option("--no-maintain", is_flag=True, help="Leave the upkeep that each tenth run does to `groupcoord maintain`.")
@click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="The summary: text for people on stderr, or one JSON object on stdout.",
)
@click.option(
    "--publish",
    metavar="DATABASE",
    help="At the end create views of every table and view, pinned to the run, in this database of Spark's metastore.",
)
@click.option(
    "--metrics",
    "metrics_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="At the end, also of a run that fails or is refused, write the figures of `groupcoord metrics` and the exit code to FILE.",
)
@force_option
@common_options_of_a_writer
def nightly(
    common: Common, inputs: tuple[str, ...], no_history: bool, strict: bool, no_maintain: bool, metrics_file: Path | None, **arguments: Any
) -> int:
    """Read a copy of a broker's __consumer_offsets, replay it as the group coordinator would, expire it, and write the Delta tables.

    INPUT is a path or URI (s3, gs, abfss, hdfs): a broker's log directory, several brokers' copies of one cluster, one __consumer_offsets-N
    directory, or its .log files; Parquet files or a Delta table in the schema of Spark's Kafka source; lines of JSON with base64 keys and
    values; kafka://HOST:PORT, the topic itself; or admin://HOST:PORT, what the brokers answer, where nobody may read the topic. Several of
    one kind may be given. The tables change at the very end, all at once. An input that looks like a bad copy (older, empty, of another
    cluster) is refused; see --accept.
    """
    from groupcoord_spark.cli.metrics import metrics_of_run
    from groupcoord_spark.pipeline.run_nightly import run_nightly
    from groupcoord_spark.warehouse.read import open_warehouse

    for text in inputs:
        if re.fullmatch(r"[A-Za-z0-9.-]+:[0-9]{1,5}", text) and not Path(text).exists():
            raise UsageError(
                f"{text} is not a file, and looks like a broker. kafka://{text} reads the topic, and admin://{text} asks the brokers where"
                " nobody may read it."
            )
    with metrics_of_run(metrics_file, common):
        with StageLines(quiet=common.quiet) as progress:
            summary = run_nightly(
                inputs,
                common.warehouse,
                cluster=common.cluster,
                history=not no_history,
                upkeep=not no_maintain,
                progress=progress,
                show_output=common.debug,
                **arguments,
            )
        if common.output == "json":
            write_records("json", *summary_object(summary))
        else:
            common.say(summary_text(summary))
        if sys.stderr.isatty() and len(open_warehouse(common.warehouse).finished_runs(summary.cluster)) == 1:
            common.say("`groupcoord completion bash` (zsh, fish) prints a shell completion script for commands, groups and topics.")
        if isinstance(summary.upkeep, str):
            say(summary.upkeep)
        if strict:
            _refuse_doubtful(summary)
    return 0


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
            f"{', '.join(problems)}, and --strict was given. The tables are written; see `{command_of(summary, 'warnings')}`."
        )
