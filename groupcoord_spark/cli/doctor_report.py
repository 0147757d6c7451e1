"""What ``groupcoord doctor`` prints: findings as paragraphs, and tables of the partitions and of the runs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from groupcoord_spark.cli.options import Common
from groupcoord_spark.cli.render import lines, moment, print_lines, printable, write_records
from groupcoord_spark.wording import command_lines, counted

if TYPE_CHECKING:
    from groupcoord_spark.answers.health_history import HealthHistory
    from groupcoord_spark.doctor import Diagnosis, Finding, PartitionVerdict

COLUMNS: Final = (
    "offsets_partition", "copy", "finding", "severity", "subject", "certainty", "summary", "remedy", "ask", "evidence",
)  # fmt: skip
COLUMNS_OF_PARTITION: Final = ("verdict", "figures")
"""The verdict on the finding's offsets partition, and the figures of the partition; null for a finding about the whole topic."""
COLUMNS_OF_RUNS: Final = ("since", "bytes_per_night", "log_bytes_by_night")
"""With --warehouse: the run since which the finding is there, null where the run does not have it; the growth of the partition."""
WIDTH: Final = 80
MOST_SHOWN: Final = 5
"""So many findings of one kind are shown."""
_COMMAND: Final = re.compile(r"kafka-[a-z-]+\.sh --.*", re.DOTALL)
"""A command that ends a sentence."""


def write_diagnosis(common: Common, diagnosis: Diagnosis, copies: int, history: HealthHistory | None) -> None:
    """Print the diagnosis of copies of a log; with a history also since when."""
    if common.output != "table":
        _write_rows(common, diagnosis, history)
        return
    print_lines(_findings(diagnosis, copies, history))
    print_lines(_partitions(diagnosis.verdicts, copies, history))
    if diagnosis.dump_ms >= 0:
        print_lines([f"Ages are measured from {moment(diagnosis.dump_ms)}."])
    if history is not None:
        print_lines(["", *_runs(history)])


def write_run(common: Common, history: HealthHistory) -> Sequence[Finding]:
    """Writes what a run found, and returns the findings."""
    diagnosis = _diagnosis_of(history)
    if common.output != "table":
        _write_rows(common, diagnosis, history)
        return diagnosis.findings
    copies = len({verdict.copy for verdict in diagnosis.verdicts})
    print_lines(_findings(diagnosis, copies, history))
    rows = []
    for verdict in diagnosis.verdicts:
        size, growth = verdict.figures["log_bytes"], history.bytes_per_night(verdict.offsets_partition)
        rows.append([verdict.offsets_partition, _number(size), _signed(growth), verdict.verdict])
    ages = f"Ages are measured from {moment(history.run.as_of_ms)}."
    print_lines([*lines(["PARTITION", "BYTES", "PER-RUN", "VERDICT"], rows), ages, "", *_runs(history)])
    return diagnosis.findings


def _diagnosis_of(history: HealthHistory) -> Diagnosis:
    """Return a run's rows as ``diagnose`` would; of a partition with a finding only its bytes are known."""
    from groupcoord_spark.doctor import FINDINGS, Finding, Severity, diagnosis_of, verdict_of

    findings, figures, copies, healthy = [], {}, {}, {}
    for row in history.rows:
        number = row["offsets_partition"]
        if row["finding"] in FINDINGS:
            texts = {name: row[name] for name in ("finding", "offsets_partition", "copy", "subject", "summary", "evidence", "certainty")}
            findings.append(Finding(severity=Severity[row["severity"].upper()], remedy=row["remedy"] or "", ask=row["ask"], **texts))
        else:
            healthy[number] = row["finding"]
        if number is not None:
            copies[number] = row["copy"]
            # A run that read no new record of a partition has the evidence of an earlier run, and the bytes of its own.
            figures[number] = {**(row["evidence"] if number in healthy else {}), "log_bytes": row["log_bytes"]}
    verdicts = []
    for number, of_partition in figures.items():
        of_number = [finding for finding in findings if finding.offsets_partition == number]
        verdicts.append(verdict_of(number, copies[number], of_number, of_partition, healthy.get(number, "healthy")))
    return diagnosis_of(-1, findings, verdicts, ())


def _write_rows(common: Common, diagnosis: Diagnosis, history: HealthHistory | None) -> None:
    names = (*COLUMNS, *COLUMNS_OF_PARTITION, *(COLUMNS_OF_RUNS if history is not None else ()))
    assert common.output != "table"
    write_records(common.output, names, [(*row, *_of_runs(row, history)) for row in _rows(diagnosis)])


def _of_runs(row: Sequence[Any], history: HealthHistory | None) -> tuple[Any, ...]:
    """Return the values of COLUMNS_OF_RUNS, or none without a history."""
    if history is None:
        return ()
    cells = dict(zip(COLUMNS, row, strict=False))
    number = cells["offsets_partition"]
    since = moment(history.since_ms(number, cells["finding"], cells["subject"]))
    if number is None:
        return since, None, None
    return since, history.bytes_per_night(number), {moment(as_of_ms): size for as_of_ms, size in history.sizes(number)}


def _rows(diagnosis: Diagnosis) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each finding, then one for each partition and copy without a finding."""
    verdicts = {(verdict.offsets_partition, verdict.copy): verdict for verdict in diagnosis.verdicts}
    for finding in diagnosis.findings:
        of_partition = verdicts.get((finding.offsets_partition, finding.copy)) if finding.offsets_partition is not None else None
        row = (finding.severity.word if name == "severity" else getattr(finding, name) for name in COLUMNS)
        yield (*row, *((None, None) if of_partition is None else (of_partition.verdict, of_partition.figures)))
    with_finding = {(finding.offsets_partition, finding.copy) for finding in diagnosis.findings}
    for place, verdict in verdicts.items():
        if place not in with_finding:
            yield (*place, verdict.verdict, verdict.severity.word, *[None] * 5, {}, verdict.verdict, verdict.figures)


def _findings(diagnosis: Diagnosis, copies: int, history: HealthHistory | None) -> Iterator[str]:
    """Yield a paragraph for each kind of finding, in lines of at most 80 characters if names allow it."""
    for _, of_kind in groupby(diagnosis.findings, key=lambda finding: (finding.severity, finding.finding)):
        findings = list(of_kind)
        yield from _paragraph(findings[0], copies, history) if len(findings) == 1 else _paragraph_of_kind(findings, copies, history)
    if not diagnosis.findings:
        yield "Nothing is wrong."
        yield ""


def _paragraph(finding: Finding, copies: int, history: HealthHistory | None) -> Iterator[str]:
    certainty = f" ({finding.certainty})" if finding.certainty else ""
    yield printable(f"{finding.severity.word.upper():<6} {finding.finding}{certainty}, {_place(finding)}")
    if copies > 1:
        yield printable(f"       in {finding.copy}")
    yield from _wrapped("", finding.summary)
    yield from _wrapped("Remedy: ", finding.remedy)
    if finding.ask:
        yield from _wrapped("Ask: ", finding.ask)
    if history is not None:
        yield from _wrapped("Since: ", _since(finding, history))
    yield ""


def _paragraph_of_kind(findings: Sequence[Finding], copies: int, history: HealthHistory | None) -> Iterator[str]:
    """Yield the number of several findings of one kind, the worst of them, and the remedy of the first."""
    worst = findings[0]
    of_all = f", the worst {MOST_SHOWN} here, all in JSON" if len(findings) > MOST_SHOWN else ""
    yield f"{worst.severity.word.upper():<6} {worst.finding}: {counted(len(findings), 'finding')}{of_all}"
    for finding in findings[:MOST_SHOWN]:
        certainty = f" ({finding.certainty})" if finding.certainty else ""
        copy = f" in {finding.copy}" if copies > 1 else ""
        text = printable(f"- {_place(finding).capitalize()}{certainty}{copy}: {finding.summary}")
        yield from textwrap.wrap(text, WIDTH, initial_indent=" " * 7, subsequent_indent=" " * 9, break_on_hyphens=False)
    of_first = "" if len({finding.remedy for finding in findings}) == 1 else " of the first"
    yield from _wrapped(f"Remedy{of_first}: ", worst.remedy)
    if worst.ask:
        yield from _wrapped("Ask: ", worst.ask)
    if history is not None:
        times = [history.since_ms(finding.offsets_partition, finding.finding, finding.subject) for finding in findings]
        known = [time_ms for time_ms in times if time_ms is not None]
        oldest = f"the oldest since the run of {moment(min(known))}" if known else ""
        new = f"{len(times) - len(known):,} new since the run of {moment(history.run.as_of_ms)}" if len(known) < len(times) else ""
        yield from _wrapped("Since: ", f"{', '.join(filter(None, (oldest, new)))}.")
    yield ""


def _place(finding: Finding) -> str:
    return "topic" if finding.offsets_partition is None else f"partition {finding.offsets_partition}"


def _since(finding: Finding, history: HealthHistory) -> str:
    since_ms = history.since_ms(finding.offsets_partition, finding.finding, finding.subject)
    if since_ms is None:
        return f"new, the run of {moment(history.run.as_of_ms)} did not find it."
    return f"the run of {moment(since_ms)}."


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
    for number, line in enumerate(command_lines(command[0], WIDTH - 11)):
        yield printable(f"{indent}  {'  ' * (number > 0)}{line}")


def _partitions(verdicts: Sequence[PartitionVerdict], copies: int, history: HealthHistory | None) -> list[str]:
    """Return a table of the partitions. PER-RUN refers to the copy that the runs read."""
    titles = ["PARTITION", "BYTES", *(["PER-RUN"] if history is not None else []), "SEGMENTS", "DIRTY", "MISSING", "VERDICT"]
    rows = []
    for verdict in verdicts:
        figures = verdict.figures
        ratio = figures["cleanable_ratio"]
        growth = [_signed(history.bytes_per_night(verdict.offsets_partition))] if history is not None else []
        cells = [figures["segments"], None if ratio is None else f"{ratio:.2f}", _number(figures["missing_offsets"]), verdict.verdict]
        row = [verdict.offsets_partition, _number(figures["log_bytes"]), *growth, *cells]
        rows.append([*row, verdict.copy] if copies > 1 else row)
    return lines([*titles, *(["COPY"] if copies > 1 else [])], rows)


def _runs(history: HealthHistory) -> Iterator[str]:
    """Yield a table of the bytes of all partitions, run by run, and the mean growth."""
    earlier_totals = [None, *(run.total for run in history.runs)]
    rows = [
        [moment(run.as_of_ms), _number(run.total), _signed(None if earlier_total is None else run.total - earlier_total)]
        for run, earlier_total in zip(history.runs, earlier_totals, strict=False)
    ]
    yield from lines(["RUN", "BYTES", "GROWTH"], rows)
    if (growth := history.total_per_run) is not None:
        yield f"The topic grew by {growth:,} bytes a run." if growth >= 0 else f"The topic shrank by {-growth:,} bytes a run."


def _number(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _signed(number: int | None) -> str | None:
    return None if number is None else f"{number:+,}"
