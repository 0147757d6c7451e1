"""``groupcoord doctor``: why the offsets topic is large, slow or stuck, from a copy of a log directory."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli.doctor_changes import report_matrix, report_partitions, report_upgrade
from groupcoord_spark.cli.options import Common, Moment, common_options_with_output, force_option
from groupcoord_spark.cli.render import lines, moment, printable, say, write_lines, write_records
from groupcoord_spark.errors import UsageError

if TYPE_CHECKING:
    from groupcoord_spark.health import CopyFacts, Diagnosis, Finding, PartitionVerdict

COLUMNS: Final = (
    "offsets_partition", "copy", "finding", "severity", "subject", "certainty", "summary", "remedy", "ask", "evidence",
)  # fmt: skip
COLUMNS_OF_PARTITION: Final = ("verdict", "figures")
"""The verdict on the finding's offsets partition, and the figures of the partition; null for a finding about the whole topic."""
WIDTH: Final = 80
REFUSED: Final = "refused"
"""What --fail-on takes for --upgrade-to: the release refuses a record."""
_COMMAND: Final = re.compile(r"kafka-[a-z-]+\.sh --.*", re.DOTALL)
"""A command that ends a sentence."""


class FindingNames(click.ParamType):  # type: ignore[type-arg]
    """Findings separated by commas, by name or by short name, or ``sick`` or ``watch`` for all of a severity. The command gets names."""

    name = "FINDING,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        from groupcoord_spark.health import FINDINGS, Severity

        if isinstance(value, frozenset):
            return value
        short = {kind.short_name: name for name, kind in FINDINGS.items()}
        names: set[str] = set()
        for word in (word.strip() for word in str(value).split(",")):
            if word in ("sick", "watch"):
                names |= {name for name, kind in FINDINGS.items() if kind.severity >= Severity[word.upper()]}
            elif word == REFUSED or word in FINDINGS or word in short:
                names.add(short.get(word, word))
            else:
                self.fail(f"{word!r} is no finding. Write sick, watch, {REFUSED}, or some of {', '.join(short)}.", param, ctx)
        return frozenset(names)


@click.command(epilog="Example: groupcoord doctor tests/golden/classic-modern/logs")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--fail-on",
    type=FindingNames(),
    default=None,
    help="End with exit code 1 when there is such a finding: hanging,cleaner_stopped or sick.",
)
@click.option(
    "--as-of", "as_of_ms", type=Moment(), help="When the copy was made; ages are measured from then. [default: its newest record]"
)
@click.option(
    "--settings", "settings_file", metavar="FILE", help="A broker's server.properties, or the topic's configs, as lines NAME=VALUE."
)
@click.option(
    "--transaction-state",
    metavar="DIR",
    help="A copy of __transaction_state-N, or of a directory with it: the coordinator's own log, which knows its transactions.",
)
@click.option("--upgrade-to", metavar="V", help="Would the coordinator of that release load the log, and what would it read differently?")
@click.option("--matrix", is_flag=True, help="The same for every release from 0.8.2 on.")
@click.option("--broker-version", metavar="V", help="The release in use, for --upgrade-to and --matrix. [default: 4.3]")
@click.option("--partitions", type=click.IntRange(1), metavar="N", help="What N partitions of __consumer_offsets would do to the groups.")
@force_option
@common_options_with_output
def doctor(
    common: Common,
    inputs: tuple[str, ...],
    fail_on: frozenset[str] | None,
    as_of_ms: int | None,
    settings_file: str | None,
    transaction_state: str | None,
    upgrade_to: str | None,
    matrix: bool,
    broker_version: str | None,
    partitions: int | None,
) -> int:
    """What is wrong with the offsets topic, worst first, with the evidence and the command that mends it.

    INPUT is a log directory of a broker (log.dirs), a partition's directory in it, or a directory with copies of several brokers: each copy
    is judged, since each broker cleans its own. Copy the checkpoints, *.snapshot and *.txnindex too; each of them is optional. No broker
    is asked: where only the broker knows, a finding has the command that asks. The log of the transaction coordinator is read where INPUT
    has it (__transaction_state-N), and answers most of these questions.

    sick: someone must act. watch: harmless by itself. normal: ordinary. An open transaction has a certainty: certain and likely ones hang.
    """
    from groupcoord_spark.health import diagnose, read_copies, read_transaction_states
    from groupcoord_spark.log.storage import Location

    if (upgrade_to is not None) + matrix + (partitions is not None) > 1:
        raise UsageError("--upgrade-to, --matrix and --partitions are different questions. Ask one at a time.")
    if broker_version is not None and upgrade_to is None and not matrix:
        raise UsageError("--broker-version is the release that --upgrade-to and --matrix compare with. Add one of them, or leave it out.")
    if upgrade_to is not None or matrix:
        return _change_of_release(common, inputs, fail_on, upgrade_to, broker_version)
    settings, copies = _settings(settings_file), _copies(read_copies, inputs)
    if partitions is not None:
        report_partitions(common, copies, _partition_count(inputs, settings_file), partitions, inputs)
        return 0
    known = read_transaction_states((Location.of(copy.uri) for copy in copies), transaction_state)
    diagnosis = diagnose(copies, settings, known, as_of_ms=as_of_ms)
    if common.output == "table":
        write_lines(_report(diagnosis, len(copies)))
    else:
        write_records(common.output, (*COLUMNS, *COLUMNS_OF_PARTITION), list(_rows(diagnosis)))
    if not common.quiet:
        for remark in diagnosis.remarks:
            say(remark)
    failing = sorted({finding.finding for finding in diagnosis.findings} & (fail_on or frozenset()))
    if failing and not common.quiet:
        say(f"Found: {', '.join(failing)}.")
    return 1 if failing else 0


def _change_of_release(
    common: Common, inputs: tuple[str, ...], fail_on: frozenset[str] | None, upgrade_to: str | None, broker_version: str | None
) -> int:
    from groupcoord_spark.coordinator.semantics import semantics_for

    _refuse_other_inputs(inputs)
    in_use = semantics_for(broker_version=broker_version)
    if upgrade_to is None:
        return int(report_matrix(common, inputs, in_use))
    is_refused = report_upgrade(common, inputs, in_use, semantics_for(broker_version=upgrade_to))
    return int(is_refused and REFUSED in (fail_on or ()))


def _partition_count(inputs: tuple[str, ...], settings_file: str | None) -> int:
    """The number of offsets partitions now: from the settings, else from where the groups are."""
    from groupcoord_spark.coordinator.broker_settings import read_broker_settings
    from groupcoord_spark.coordinator.semantics import JAVA
    from groupcoord_spark.log import plan_logs
    from groupcoord_spark.pipeline.plan.partition_count import likely_partition_count
    from groupcoord_spark.properties import read_properties

    properties = read_properties(settings_file, "The settings file") if settings_file is not None else {}
    return read_broker_settings(properties, JAVA).offsets_partitions or likely_partition_count(plan_logs(inputs))


def _refuse_other_inputs(inputs: tuple[str, ...]) -> None:
    from groupcoord_spark.sources.inputs import kind_of
    from groupcoord_spark.sources.rows import InputKind

    if kind_of(inputs) is not InputKind.SEGMENTS:
        raise UsageError("doctor reads a copy of a broker's log directory: only segments show batches, transactions and what was cleaned.")


def _copies(read: Any, inputs: tuple[str, ...]) -> list[CopyFacts]:
    _refuse_other_inputs(inputs)
    copies: list[CopyFacts] = read(inputs)
    return copies


def _settings(path: str | None) -> Any:
    from groupcoord_spark.coordinator.broker_settings import refuse_misspelled_names
    from groupcoord_spark.health import HealthSettings, read_health_settings
    from groupcoord_spark.health.settings import SETTING_NAMES
    from groupcoord_spark.properties import read_properties

    if path is None:
        return HealthSettings()
    properties = read_properties(path, "The settings file")
    try:
        if not SETTING_NAMES & properties.keys():
            refuse_misspelled_names(properties)
        return read_health_settings(properties)
    except UsageError as e:
        raise UsageError(f"{path}: {e}") from e


def _rows(diagnosis: Diagnosis) -> Iterator[tuple[Any, ...]]:
    """A row for each finding, then one for each partition and copy without a finding."""
    verdicts = {(each.offsets_partition, each.copy): each for each in diagnosis.verdicts}
    for finding in diagnosis.findings:
        of_partition = verdicts.get((finding.offsets_partition, finding.copy)) if finding.offsets_partition is not None else None
        row = (finding.severity.word if name == "severity" else getattr(finding, name) for name in COLUMNS)
        yield (*row, *((None, None) if of_partition is None else (of_partition.verdict, of_partition.figures)))
    with_finding = {(finding.offsets_partition, finding.copy) for finding in diagnosis.findings}
    for place, each in verdicts.items():
        if place not in with_finding:
            yield (*place, each.verdict, each.severity.word, *[None] * 5, {}, each.verdict, each.figures)


def _report(diagnosis: Diagnosis, copies: int) -> Iterator[str]:
    """The findings as paragraphs, then a table of the partitions; lines of at most 80 characters where names allow it."""
    for finding in diagnosis.findings:
        yield from _paragraph(finding, copies)
    if not diagnosis.findings:
        yield "Nothing is wrong."
        yield ""
    yield from _partitions(diagnosis.verdicts, copies)
    if diagnosis.dump_ms >= 0:
        yield f"Ages are measured from {moment(diagnosis.dump_ms)}."


def _paragraph(finding: Finding, copies: int) -> Iterator[str]:
    place = "topic" if finding.offsets_partition is None else f"partition {finding.offsets_partition}"
    certainty = f" ({finding.certainty})" if finding.certainty else ""
    yield printable(f"{finding.severity.word.upper():<6} {finding.finding}{certainty}, {place}")
    if copies > 1:
        yield printable(f"       in {finding.copy}")
    yield from _wrapped("", finding.summary)
    yield from _wrapped("Remedy: ", finding.remedy)
    if finding.ask:
        yield from _wrapped("Ask: ", finding.ask)
    yield ""


def _wrapped(title: str, text: str) -> Iterator[str]:
    """Lines of a sentence; a command at the end of it begins a line, and goes on after a backslash, so that it can be copied."""
    indent = " " * 7
    command = _COMMAND.search(text)
    sentence = text if command is None else text[: command.start()]
    yield from textwrap.wrap(
        printable(f"{title}{sentence}"), WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    if command is None:
        return
    # an option stays on one line with its value
    words = textwrap.wrap(re.sub(r"(?<= )(--\S+) (?!--)", "\\1\0", command[0]), WIDTH - 13, break_on_hyphens=False, break_long_words=False)
    for place, part in enumerate(words):
        end = " \\" if place < len(words) - 1 else ""
        yield printable(f"{indent}  {'  ' if place else ''}{part}".replace("\0", " ")) + end


def _partitions(verdicts: Sequence[PartitionVerdict], copies: int) -> Iterator[str]:
    titles = ["PARTITION", "BYTES", "SEGMENTS", "DIRTY", "MISSING", "VERDICT", *(["COPY"] if copies > 1 else [])]
    rows = []
    for each in verdicts:
        figures = each.figures
        ratio = figures["cleanable_ratio"]
        dirty = None if ratio is None else f"{ratio:.2f}"
        row = [
            each.offsets_partition,
            f"{figures['log_bytes']:,}",
            figures["segments"],
            dirty,
            f"{figures['missing_offsets']:,}",
            each.verdict,
        ]
        rows.append([*row, each.copy] if copies > 1 else row)
    yield from lines(titles, rows, [*map(len, titles[:-1]), None])
