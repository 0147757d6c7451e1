"""``groupcoord why``: why a group or a committed offset is there, has gone or never counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from groupcoord_spark.cli.names import is_pattern, matching
from groupcoord_spark.cli.options import Common, command, common_options, complete_topics, groups_option, semantics_of
from groupcoord_spark.cli.render import lines, moment, print_lines, wrapped, write_records
from groupcoord_spark.cli.timeline import WRONG_EVENTS, explain_missing_history, refuse_place, with_short_ids
from groupcoord_spark.errors import GroupcoordError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from groupcoord_spark.answers.group_history import Question
    from groupcoord_spark.answers.why import Step, Story
    from groupcoord_spark.warehouse.read import Warehouse

MOST_EVENTS: Final = 20
MOST_RECORDS: Final = 3

NAMES: Final = ("time", "event", "group", "topic", "partition", "cause", "certainty", "rule", "records", "what")


@command(epilog="Example: groupcoord why --group app-range --topic orders")
@groups_option("The group", required=True, as_words=True)
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="Only offsets of that topic.")
@click.option("--partition", type=click.IntRange(min=0), metavar="NUMBER", help="Only the offset of that partition of the topic.")
@click.option("--all", "every", is_flag=True, help="Show every event and record, not only the most relevant.")
@common_options
def why(common: Common, groups: tuple[str, ...], topic: str | None, partition: int | None, every: bool) -> None:
    """Explain why a group or committed offset exists, is gone or never counted.

    First the answer: what is there, what is gone, since when, by what and how certain that is. Then the events that bear on it, in order:
    commits and rewinds, when the group became Empty, transactions, removals with their causes, records that a broker's loader skips.
    RECORDS names the evidence: 2@46 is the record with offset 46 of partition 2 of __consumer_offsets. Causes are those of the table
    offset_events, with their certainty.
    """
    from groupcoord_spark.answers.group_history import Question
    from groupcoord_spark.answers.why import why as answer

    if partition is not None and topic is None:
        raise UsageError("--partition is given without --topic. Name the topic of the partition.")
    warehouse, run = common.run()
    cluster, rules = run.cluster, semantics_of(run)
    rows: list[tuple[object, ...]] = []
    for position, group_id in enumerate(_named_groups(groups, warehouse, cluster)):
        question = Question(cluster, group_id, topic, partition)
        story = answer(warehouse, question, rules)
        if story is None:
            if topic is not None:
                refuse_place(warehouse, question)
            explain_missing_history(warehouse, cluster, group_id)
        if common.output == "table":
            print_lines([*([""] if position else []), *_lines(story, every)])
        else:
            rows += _rows(question, story)
    if common.output != "table":
        write_records(common.output, NAMES, rows)


def _named_groups(named: Sequence[str], warehouse: Warehouse, cluster: str) -> list[str]:
    """Return the named groups, and groups of the newest run and the history that match a pattern."""
    if not any(map(is_pattern, named)):
        return list(dict.fromkeys(named))
    tables = [warehouse.read(table, cluster=cluster, columns=["group_id"]) for table in ("groups", "offset_commits", "group_records")]
    groups, missing = matching(named, {name for table in tables for name in table["group_id"].unique().to_pylist() if name is not None})
    if patterns := [name for name in missing if is_pattern(name)]:
        raise GroupcoordError(f"No group of cluster {cluster!r} matches {', '.join(map(repr, patterns))}, and none that is gone.")
    return sorted({*groups, *missing})


def _lines(story: Story, every: bool) -> list[str]:
    """Return the conclusion, and the events that bear on it as a table; with ``every`` all events."""
    from groupcoord_spark.answers.why import most_relevant

    past = [step for step in story.steps if step.event not in ("now", "expires")]
    shown = past if every else most_relevant(past, MOST_EVENTS)
    cells = [(moment(step.time_ms), step.event, _places(step, every), with_short_ids(step.what)) for step in shown]
    colours = ["red" if step.event in WRONG_EVENTS else None for step in shown]
    answer = wrapped(with_short_ids(story.conclusion))
    if not past:
        return answer
    left_out = [] if every or len(past) <= MOST_EVENTS else ["", *wrapped(f"{len(past):,} events in all: --all shows each of them.")]
    return [*answer, "", *lines(["TIME", "EVENT", "RECORDS", "WHAT"], cells, [24, 10, 10, None], colours), *left_out]


def _places(step: Step, every: bool) -> str | None:
    """Return the record offsets of the evidence; of many, the first and the last unless ``every`` is set."""
    places = list(dict.fromkeys(f"{record.offsets_partition}@{record.record_offset}" for record in step.records))
    if len(places) > MOST_RECORDS and not every:
        return f"{places[0]} … {places[-1]}"
    return " ".join(places) or None


def _rows(question: Question, story: Story) -> Iterator[tuple[object, ...]]:
    """Yield a row for each outcome, and for each step without outcomes; the last row is the conclusion."""
    for step in story.steps:
        time = moment(step.time_ms)
        for outcome in step.outcomes:
            place = question.group_id, outcome.topic, outcome.partition
            records = [record._asdict() for record in outcome.records]
            yield time, step.event, *place, outcome.cause, outcome.certainty, outcome.rule, records, step.what
        if not step.outcomes:
            records = [record._asdict() for record in step.records]
            yield time, step.event, question.group_id, None, None, None, None, None, records, step.what
    yield None, "conclusion", question.group_id, question.topic, question.partition, None, None, None, [], story.conclusion
