"""``groupcoord timeline``: a group's life in order, from the history tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn

import click

from groupcoord_spark.cli.names import did_you_mean
from groupcoord_spark.cli.options import Common, Moment, command, common_options, complete_groups, complete_topics, semantics_of
from groupcoord_spark.cli.render import moment, second
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.wording import command_line, first_of

if TYPE_CHECKING:
    from groupcoord_spark.answers.group_history import Question
    from groupcoord_spark.answers.timeline import Event
    from groupcoord_spark.warehouse import Condition, Warehouse

_UUID: Final = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")

WRONG_EVENTS: Final = frozenset(
    {"rewind", "transaction", "offsets_removed", "group_removed", "gone", "warning", "quarantined", "share_reset", "share_removed"}
)
"""Events that are shown in red: an offset went back or away, commits that do not count, records that a broker does not take."""

NAMES: Final = ("time", "until", "event", "offsets_partition", "record_offset", "generation", "what", "facts")


@command(epilog="Example: groupcoord timeline --group app-range")
@click.argument("word", metavar="[GROUP]", required=False, shell_complete=complete_groups)
@click.option("--group", "group_id", metavar="GROUP", shell_complete=complete_groups, help="The group.")
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="Of the commits and removals only those of that topic.")
@click.option("--from", "--since", "from_ms", type=Moment(is_border=True), help="Only events of that moment and later.")
@click.option("--to", "to_ms", type=Moment(is_border=True), help="Only events before that moment.")
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Only so many events or lines, the last ones.")
@click.option("--all", "every", is_flag=True, help="Show every event in the table, also those that repeat.")
@common_options
def timeline(
    common: Common,
    word: str | None,
    group_id: str | None,
    topic: str | None,
    from_ms: int | None,
    to_ms: int | None,
    last: int | None,
    every: bool,
) -> None:
    """Show a group's life: commits, rewinds, rebalances, removals, expirations.

    A stretch of commits ends with another event, or after an hour without a commit; commits in a transaction count from the end of the
    transaction on. Generations in which nothing changed are one line. Causes are those of the table offset_events. What compaction took
    away before the first run with history is in no table.
    """
    from groupcoord_spark.answers.group_history import Question
    from groupcoord_spark.answers.timeline import folded

    if (word is None) == (group_id is None):
        raise click.UsageError("Name one group.")
    named = word if group_id is None else group_id
    assert named is not None
    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise UsageError("--to is not after --from: no event lies between them.")
    warehouse, run = common.run()
    events = _events(warehouse, Question(run.cluster, named, topic, from_ms=from_ms, to_ms=to_ms))
    shown = [event for _, event in events]
    shown = shown if every else list(folded(shown))
    if last is not None:
        events, shown = events[-last:], shown[-last:]
    common.show(
        NAMES,
        ((moment(event.time_ms), moment(event.until_ms), event.event, place, *event[3:]) for place, event in events),
        titles=["TIME", "EVENT", "GENERATION", "WHAT"],
        cells=((moment(event.time_ms), event.event, event.generation, with_short_ids(event.what)) for event in shown),
        least_widths=[24, 10, 10, None],
        colours=["red" if event.event in WRONG_EVENTS else None for event in shown],
    )


def _events(warehouse: Warehouse, question: Question) -> list[tuple[int | None, Event]]:
    """Return events with their offsets partition, in order. Raises GroupcoordError for an unknown group."""
    from groupcoord_spark.answers.group_history import expiry_events, group_history, rows_of, share_events
    from groupcoord_spark.answers.timeline import Event, is_within
    from groupcoord_spark.answers.why import departure_steps

    run = warehouse.run(question.cluster)
    histories = group_history(warehouse, question, semantics_of(run))
    of_share = [event for event in share_events(warehouse, question) if is_within(event.time_ms, question.from_ms, question.to_ms)]
    if question.topic is not None and not of_share and not any(history.commits.num_rows for history in histories):
        refuse_place(warehouse, question)
    if not histories and not of_share:
        explain_missing_history(warehouse, question.cluster, question.group_id)
    events: list[tuple[int | None, Event]] = [
        (history.place.offsets_partition, event) for history in histories for event in history.events(question, run.retention_ms)
    ]
    if of_share:
        events = sorted([*events, *((None, event) for event in of_share)], key=lambda placed: placed[1].time_ms or 0)
    if not events:
        where = f"cluster {question.cluster!r} of {warehouse.location.uri}"
        raise GroupcoordError(f"No record of group {question.group_id!r} lies between --from and --to in {where}.")
    if question.to_ms is None:
        if not rows_of(warehouse, question, "groups", ["group_id"]).num_rows:
            gone = departure_steps(warehouse, question)
            events += [(None, Event(step.time_ms, None, "gone", None, None, step.what, {})) for step in gone]
        events += [(None, event) for event in expiry_events(warehouse, question)]
    return events


def explain_missing_history(warehouse: Warehouse, cluster: str, group_id: str) -> NoReturn:
    """Raises GroupcoordError with the reason why the history tables have no record of a group."""
    where = f"cluster {cluster!r} of {warehouse.location.uri}"
    from groupcoord_spark.answers.run_changes import REASONS, departure_of
    from groupcoord_spark.sources.inputs import InputKind

    is_of_admin_api = warehouse.run(cluster).input_kind == InputKind.ADMIN
    if warehouse.read("groups", cluster=cluster, columns=["group_id"], where=[("group_id", "=", group_id)]).num_rows:
        how = "are from the Admin API, and only the log has a history" if is_of_admin_api else "were run with --no-history"
        raise GroupcoordError(f"The history tables have no record of group {group_id!r} in {where}: its runs {how}.")
    last_run, run_without, departure = departure_of(warehouse, warehouse.run(cluster), group_id)
    if departure:
        runs = f"in the run of {second(last_run.as_of_ms)} and is gone in that of {second(run_without.as_of_ms)}"
        raise GroupcoordError(f"Group {group_id!r} was in {where} {runs}. {REASONS[str(departure[0].why)]}")
    group_ids = warehouse.read("groups", cluster=cluster, columns=["group_id"])["group_id"].to_pylist()
    clusters = [name for name in warehouse.clusters_with_nightly_runs() if name != cluster and _knows(warehouse, name, group_id)]
    near = f" It is in cluster {first_of([*map(repr, clusters)], 5)}: --cluster." if clusters else did_you_mean([group_id], group_ids)
    listed = command_line("list", warehouse=warehouse.location.uri, cluster=cluster)
    raise GroupcoordError(f"Group {group_id!r} is in no record of {where}.{near} `{listed}` names those that exist.")


def refuse_place(warehouse: Warehouse, question: Question) -> None:
    """Raises GroupcoordError where the history has the group, and the group never committed an offset of the topic or the partition."""
    which = f"topic {question.topic!r}" if question.partition is None else f"partition {question.partition} of topic {question.topic!r}"
    of_group: list[Condition] = [("group_id", "=", question.group_id)]
    topics = set(warehouse.read("offset_commits", cluster=question.cluster, columns=["topic"], where=of_group)["topic"].to_pylist())
    if topics or warehouse.read("group_records", cluster=question.cluster, columns=["group_id"], where=of_group).num_rows:
        near = "" if question.topic in topics else did_you_mean([question.topic or ""], topics)
        raise GroupcoordError(f"Group {question.group_id!r} never committed an offset of {which}, as far as the tables know.{near}")


def _knows(warehouse: Warehouse, cluster: str, group_id: str) -> bool:
    """Return whether the cluster's newest run has the group, or its history has a commit of it."""
    where: list[Condition] = [("group_id", "=", group_id)]
    tables = ("groups", "offset_commits")
    return any(warehouse.read(table, cluster=cluster, columns=["group_id"], where=where).num_rows for table in tables)


def with_short_ids(text: str) -> str:
    """Shorten the UUID at the end of member ids to its first characters, which distinguish them."""
    return _UUID.sub(r"\1…", text)
