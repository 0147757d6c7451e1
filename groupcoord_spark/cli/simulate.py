"""``groupcoord simulate``: a scenario of members and requests, played against the coordinator of a release."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from groupcoord_spark.cli.options import DirectoryToWrite, command
from groupcoord_spark.cli.render import cell_text, lines, print_lines, print_text, say, terminal_json, write_records
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.log.writing import Batch
    from groupcoord_spark.simulator import WrittenRecord
    from groupcoord_spark.simulator.scenario import Scenario, TimelineRow

Output = Literal["table", "json", "csv"]
_NAMES = ("id", "at_ms", "kind", "who", "what", "answer", "state", "generation", "records")


@command("simulate", epilog="Example: groupcoord simulate a-member-crashes")
@click.argument("scenario", required=False)
@click.option("--list", "lists", is_flag=True, help="Name the scenarios that are shipped.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of scenario files, for an editor.")
@click.option("--explain", is_flag=True, help="Print the scenario and the settings that matter, instead of playing it.")
@click.option("--semantics", type=click.Choice(["java", "scala"]), help="The coordinator: that of 4.x, or that of 3.9.")
@click.option("--broker-version", metavar="V", help="The release. [default: the scenario's, else 4.3 (java) or 3.9 (scala)]")
@click.option(
    "--compare",
    "compared",
    metavar="V,V...",
    help="Play the scenario against these releases, for example 2.3,2.8,4.3, and show where they differ.",
)
@click.option("--heartbeats", is_flag=True, help="Show also heartbeats that change nothing and retention checks that find nothing.")
@click.option("--segments", type=DirectoryToWrite(), metavar="DIR", help="Write the records as log segments.")
@click.option("--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="For people or programs.")
@click.option("--quiet", is_flag=True, help="No remarks on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def simulate(
    scenario: str | None,
    lists: bool,
    schema: bool,
    explain: bool,
    semantics: str | None,
    broker_version: str | None,
    compared: str | None,
    heartbeats: bool,
    segments: Path | None,
    output: Output,
    quiet: bool,
    debug: bool,
) -> None:
    """Simulate the group coordinator's answers and records for SCENARIO.

    One line for each request, with the answer if it came at once, each answer that came later, each timer, and what members'
    applications do and hear. Times are seconds since the start. STATE, GENERATION and RECORDS are those after the event.
    """
    from groupcoord_spark.simulator import release_for
    from groupcoord_spark.simulator.scenario import explained_settings, json_schema, play, read_scenario, scenario_text, shipped_scenarios
    from groupcoord_spark.simulator.scenario.as_json import row_json

    if schema:
        if scenario is not None or lists or explain or segments is not None:
            raise click.UsageError("--schema prints the schema and plays nothing: leave the rest out.")
        print_text(json.dumps(json_schema(), indent=2))
        return
    if lists:
        if scenario is not None or explain or segments is not None:
            raise click.UsageError("--list names the scenarios and plays none: leave the rest out.")
        titles = [(name, read_scenario(text, name).title) for name, text in shipped_scenarios().items()]
        if output == "table":
            print_lines(f"{name:<26} {cell_text(title)}" for name, title in titles)
        else:
            write_records(output, ("scenario", "title"), titles)
        return
    if scenario is None:
        raise click.UsageError("Name a scenario: a file, or one of those that --list shows.")
    text = scenario_text(scenario)
    chosen_scenario = read_scenario(text, scenario)
    release = broker_version if broker_version is not None or semantics is not None else chosen_scenario.broker_version
    if explain:
        settings = explained_settings(chosen_scenario, release_for(semantics, release))
        print_text(f"{text.rstrip()}\n")
        print_lines(line.rstrip() for line in lines(["WHO", "SETTING", "VALUE", "MEANING"], settings, [8, 20, 8, None]))
        return
    if compared is not None:
        if semantics is not None or broker_version is not None or segments is not None or heartbeats:
            raise click.UsageError("--compare names the releases itself and writes no segments: leave the other options out.")
        _compare(chosen_scenario, compared.split(","), output, quiet)
        return
    outcome = play(chosen_scenario, release_for(semantics, release))
    written = _write_segments(segments, outcome.records) if segments is not None else 0
    rows = [row for row in outcome.rows if heartbeats or not row.is_routine]
    if output == "table":
        print_lines(_table(rows))
    elif output == "json":
        print_lines(terminal_json(json.dumps(row_json(row), ensure_ascii=False)) for row in rows)
    else:
        write_records(output, _NAMES, map(_values, rows))
    if segments is not None and not quiet:
        say(f"{counted(len(outcome.records), 'record')} in {counted(written, 'segment')} under {segments}")


def _compare(scenario: Scenario, releases: list[str], output: Output, quiet: bool) -> None:
    from groupcoord_spark.simulator.scenario.comparison import compare

    releases = [release.strip() for release in releases]
    if len(set(releases)) < 2:
        raise click.UsageError("--compare wants two releases or more, for example 2.3,4.3.")
    rows = compare(scenario, releases)
    different = [row for row in rows if len(row.alike(releases)) > 1]
    if output == "table":
        cells = []
        for row in different:
            for same, outcome in row.alike(releases):
                happens: tuple[str, ...] = ("", "(does not happen)", "", "", "")
                if outcome is not None:
                    happens = (f"{outcome.at_ms / 1000:.3f}", *map(_shown, outcome[1:]))
                cells.append((happens[0], row.id, ", ".join(same), *happens[1:]))
        titles = ["TIME", "EVENT", "RELEASE", "ANSWER", "STATE", "GENERATION", "RECORDS"]
        print_lines(line.rstrip() for line in lines(titles, cells, [8, 20, 7, 10, 10, 10, None]))
        if not quiet:
            say(f"{len(rows) - len(different)} of {counted(len(rows), 'event')} are the same in {', '.join(releases)}.")
        return
    by_release = [{release: outcome._asdict() for release, outcome in row.by_release.items()} for row in different]
    compared = [(row.id, row.who, row.what, outcomes) for row, outcomes in zip(different, by_release, strict=True)]
    write_records(output, ("id", "who", "what", "releases"), compared)


def _values(row: TimelineRow) -> tuple[Any, ...]:
    return row.id, row.at_ms, row.kind, row.who, row.what, row.answer, row.state, row.generation, _record_text(row.records)


def _table(rows: Iterable[TimelineRow]) -> list[str]:
    titles = ["TIME", "WHO", "WHAT", "ANSWER", "STATE", "GENERATION", "RECORDS"]
    cells = [
        (f"{row.at_ms / 1000:.3f}", row.who, _mark(row), *map(_shown, (row.answer, row.state, row.generation)), _record_text(row.records))
        for row in rows
    ]
    return [line.rstrip() for line in lines(titles, cells, [8, 8, 20, 10, 10, 10, None])]


def _mark(row: TimelineRow) -> str:
    """Format what happened, indented or marked unless it is a request."""
    return {"answer": "  answer to ", "timer": "* ", "action": "* ", "application": "- "}.get(row.kind, "") + row.what


def _shown(value: object) -> str:
    """Return the value as a cell, empty for None, as most cells of a timeline are."""
    return "" if value is None else str(value)


def _record_text(records: Iterable[WrittenRecord]) -> str:
    from groupcoord_spark.simulator.scenario.timeline_text import record_text

    return "; ".join(map(record_text, records))


def _write_segments(directory: Path, records: Iterable[WrittenRecord]) -> int:
    """Write the records as a dump with one segment for each partition; return their number."""
    from groupcoord_spark.log.writing import write_segment

    by_partition: dict[int, list[WrittenRecord]] = {}
    for record in records:
        by_partition.setdefault(record.offsets_partition, []).append(record)
    for number, of_partition in by_partition.items():
        try:
            write_segment(directory, number, _batches(of_partition))
        except FileExistsError as e:
            raise UsageError(f"{e.filename} is there already. Name an empty or new directory with --segments.") from e
        except OSError as e:
            raise GroupcoordError(f"{directory} cannot be written: {e.strerror}.") from e
    return len(by_partition)


def _batches(records: Iterable[WrittenRecord]) -> Iterator[Batch]:
    from groupcoord_spark.log.writing import Batch, RecordToLog, marker
    from groupcoord_spark.protocol.record_types import MarkerType

    for _, together in groupby(records, key=attrgetter("batch")):
        of_batch = list(together)
        first = of_batch[0]
        yield Batch(
            first.record_offset,
            tuple(
                RecordToLog(record.key_bytes, record.value_bytes, record.timestamp_ms)
                if record.control is None
                else marker(MarkerType[record.control], record.timestamp_ms)
                for record in of_batch
            ),
            first.producer_id,
            first.producer_epoch,
            first.is_transactional,
            is_control=first.control is not None,
        )
