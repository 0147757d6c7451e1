"""``groupcoord morning``: changes since the last run that differs, on one screen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.answers.findings import LEVELS, NEWS
from groupcoord_spark.cli.diff import runs_without_change
from groupcoord_spark.cli.options import (
    Common,
    Duration,
    ShownRun,
    Words,
    alert,
    command,
    common_options_of_a_writer,
    newest_record_text,
    shown_run_options,
)
from groupcoord_spark.cli.render import lines, moment, print_lines, say, terminal_json, terminal_width, write_records
from groupcoord_spark.wording import command_line, command_lines, counted

if TYPE_CHECKING:
    from groupcoord_spark.answers.morning import Morning, News
    from groupcoord_spark.warehouse.read import Warehouse

NAMES: Final = ("level", "what", "reason", "number", "group_count", "groups", "sentence", "command", "cluster")
LINES: Final = 10
_MOST_DUE: Final = 20
"""An alert has the sentences of so many news."""
_EMOJI: Final = {"danger": "red_circle", "warning": "large_yellow_circle", "note": "white_circle"}
_COLOURS: Final = {"danger": "red", "warning": "yellow", "note": None}


@command(epilog="Example: groupcoord morning --fail-on danger")
@click.option(
    "--horizon", "horizon_ms", type=Duration(), default="2d", show_default=True, help="How long before its expiration an offset is news."
)
@click.option(
    "--lines",
    "most_lines",
    type=click.IntRange(1),
    default=LINES,
    show_default=True,
    help="At most that many news in the table or the message.",
)
@click.option(
    "--fail-on",
    type=Words("WORDS", (*LEVELS, *NEWS)),
    metavar="WORDS",
    help="End with 3 if there is such news, for an alert: danger, warning, note, or some of WHAT.",
)
@click.option(
    "--output",
    "form",
    type=click.Choice(["table", "json", "slack"]),
    default="table",
    show_default=True,
    help="A table for people, one object for each row, or one message of Slack's for curl to send.",
)
@shown_run_options
@common_options_of_a_writer
def morning(common: Common, horizon_ms: int, most_lines: int, fail_on: frozenset[str] | None, form: str, shown_run: ShownRun) -> int:
    """Show changes since the last run that differs, worst first: of a cluster, or of all clusters where none is named.

    WORDS, separated by commas, are levels (danger: someone must act; warning: worth a look; note: good to know) and kinds of news.
    """
    from groupcoord_spark.answers.morning import mornings

    warehouse, runs = common.runs(shown_run)
    several = len(runs) > 1
    answers = mornings(warehouse, runs, horizon_ms)
    order = list(NEWS)
    news = [(answer, item) for answer in answers for item in answer.news]
    if several:
        news.sort(key=lambda one: order.index(one[1].kind))
        title = _title_of_clusters(answers)
    else:
        (answer,) = answers
        title = _title(answer, len(warehouse.clusters()) > 1)
        title += runs_without_change(warehouse, answer.since, answer.run) if answer.since else ""
    rows = [
        (
            *(item.level, item.kind, item.reason, item.number, item.group_count, item.groups),
            *(item.sentence, _command(item, answer, warehouse), answer.run.cluster),
        )
        for answer, item in news
    ]
    shown = [(f"{row[-1]}: {row[-3]}" if several else row[-3], *row) for row in rows]
    if form == "json":
        write_records("json", NAMES, rows)
    elif form == "slack":
        print_lines([terminal_json(json.dumps(_message(title, shown, most_lines), ensure_ascii=False))])
    else:
        # The command begins a line, and a shell takes its lines as they are.
        width = terminal_width()
        cells, colours = [], []
        for text, level, *_, command, _ in shown[:most_lines]:
            of_command = [command] if width is None else list(command_lines(command, width - 8))
            cells += [(level, f"{text}."), *(("", line) for line in of_command)]
            colours += [_COLOURS[level], *[None] * len(of_command)]
        if cells:
            print_lines(lines(["LEVEL", "NEWS, AND THE COMMAND THAT SHOWS MORE"], cells, [7, None], colours))
    if not common.quiet and form != "slack":
        more = f" --lines {len(rows)} shows {counted(len(rows) - most_lines, 'more kind')}." * (form == "table" and len(rows) > most_lines)
        say(f"{title}{more}")
    due = [text for text, level, kind, *_ in shown if fail_on and {level, kind} & fail_on]
    return alert("; ".join(due[:_MOST_DUE]) + f"; and {len(due) - _MOST_DUE} more" * (len(due) > _MOST_DUE))


def _title_of_clusters(answers: Sequence[Morning]) -> str:
    count, concerned = sum(len(answer.news) for answer in answers), sum(bool(answer.news) for answer in answers)
    news = f"{counted(count, 'kind')} of news in {concerned:,} of them" if count else "nothing new"
    oldest, newest = (moment(time(answer.run.as_of_ms for answer in answers)) for time in (min, max))
    return f"Runs of {counted(len(answers), 'cluster')} from {oldest} to {newest}: {news}."


def _title(answer: Morning, names_cluster: bool) -> str:
    of_cluster = f" of cluster {answer.run.cluster}" if names_cluster else ""
    since = f"since that of {moment(answer.since.as_of_ms)}" if answer.since else "in the first run"
    count = f"{counted(len(answer.news), 'kind')} of news" if answer.news else "nothing new"
    newest = answer.newest_record_ms
    age = "" if newest is None else f" The newest record of the copy is of {newest_record_text(newest, answer.run.as_of_ms)}."
    return f"Run of {moment(answer.run.as_of_ms)}{of_cluster}: {count} {since}.{age}"


def _command(item: News, answer: Morning, warehouse: Warehouse) -> str:
    """Return the command that shows more, for the warehouse and the compared runs."""
    return command_line(*item.command(answer.run, answer.since), warehouse=warehouse.location.uri, cluster=answer.run.cluster)


def _message(title: str, rows: list[tuple[Any, ...]], most_lines: int) -> dict[str, Any]:
    """Return a message for chat.postMessage or an incoming webhook. Group names are in rich text, where Slack parses no markup."""
    items = [
        {
            "type": "rich_text_section",
            "elements": [
                {"type": "emoji", "name": _EMOJI[level]},
                {"type": "text", "text": f" {text}. "},
                {"type": "text", "text": command, "style": {"code": True}},
            ],
        }
        for text, level, *_, command, _ in rows[:most_lines]
    ]
    if len(rows) > most_lines:
        items.append(
            {"type": "rich_text_section", "elements": [{"type": "text", "text": f"{counted(len(rows) - most_lines, 'line')} more."}]}
        )
    heading = {"type": "section", "text": {"type": "plain_text", "text": title, "emoji": False}}
    blocks: list[dict[str, Any]] = [heading]
    if items:
        blocks.append({"type": "rich_text", "elements": [{"type": "rich_text_list", "style": "bullet", "elements": items}]})
    return {"text": title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), "blocks": blocks}
