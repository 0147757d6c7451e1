"""Writes the generated parts of the reference pages: `make reference`, or `python docs/generate.py`.

A generated part stands between the lines ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->``. All text outside of such a part is
written by hand and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from groupcoord_spark.answers.quarantine_reasons import quarantine_reasons as reasons_of_the_quarantine
from groupcoord_spark.cli.commands import COMMANDS, main
from groupcoord_spark.log.damage import CODES
from groupcoord_spark.simulator.scenario import language
from groupcoord_spark.simulator.scenario.language import Verb
from groupcoord_spark.simulator.scenario.values import Key
from groupcoord_spark.sources.rows import ROW_CODES
from groupcoord_spark.warehouse.declaration import Column, Table
from groupcoord_spark.warehouse.tables import TABLES
from groupcoord_spark.warehouse.warning_codes import WARNING_CODES

REFERENCE = Path(__file__).parent / "reference"
GENERATED_PAGES = tuple(REFERENCE / name for name in ("cli.md", "scenario-language.md", "tables.md", "warning-codes.md"))

GENERATED_PART = re.compile(r"(<!-- generated: (.+?) -->\n).*?(^<!-- end of \2 -->)", re.MULTILINE | re.DOTALL)

RELATIONS = (
    ("groups", "members", "has", ("group_id",)),
    ("members", "assignments", "holds", ("group_id", "member_id")),
    ("groups", "committed_offsets", "committed", ("group_id",)),
    ("groups", "pending_offsets", "may commit", ("group_id",)),
    ("groups", "group_expirations", "expires by", ("group_id",)),
    ("committed_offsets", "offset_expirations", "expires by", ("group_id", "topic", "partition")),
    ("committed_offsets", "log_ends", "lag behind", ("topic", "partition")),
    ("groups", "share_offsets", "stands at", ("group_id",)),
    ("share_offsets", "share_batches", "has read", ("group_id", "topic_id", "partition")),
    ("committed_offsets", "mirror_checkpoints", "may start from", ("group_id", "topic", "partition")),
    ("topics", "share_offsets", "is read from", ("topic_id",)),
    ("topics", "topic_configs", "is set by", ("topic",)),
    ("groups", "group_configs", "is set by", ("group_id",)),
    ("transactional_ids", "pending_offsets", "names", ("producer_id",)),
    ("acls", "groups", "say who may read, see may_read,", ("cluster",)),
    ("groups", "rebalances", "went through", ("group_id",)),
    ("groups", "offset_commits", "wrote", ("group_id",)),
    ("groups", "group_records", "wrote", ("group_id",)),
    ("groups", "tombstones", "would get", ("group_id",)),
    ("transactions", "offset_commits", "ended", ("offsets_partition", "incarnation", "producer_id")),
    ("offsets_partitions", "groups", "keeps", ("offsets_partition",)),
    ("offsets_partitions", "orphan_offsets", "keeps", ("offsets_partition",)),
    ("offsets_partitions", "surviving_records", "had", ("offsets_partition", "incarnation")),
    ("offsets_partitions", "latest_records", "goes on from", ("offsets_partition",)),
    ("offsets_partitions", "topic_ids", "named", ("offsets_partition",)),
    ("offsets_partitions", "topic_health", "is found ill", ("offsets_partition",)),
    ("offsets_partitions", "transactions", "keeps", ("offsets_partition", "incarnation")),
    ("runs", "quarantined_records", "found", ("run_id",)),
    ("runs", "warnings", "found", ("run_id",)),
    ("runs", "surviving_records", "found", ("run_id",)),
    ("runs", "offset_events", "saw", ("run_id",)),
)
"""Left table, right table, verb, and the columns besides cluster that join the two."""

PAGES_OF_WORDS: Mapping[tuple[str, str], str] = {
    ("warnings", "code"): "warning-codes.md#codes-of-warnings",
    ("quarantined_records", "reason"): "warning-codes.md#reasons-of-the-quarantine",
    ("rebalances", "cause"): "rebalances.md#rebalances",
    ("offset_expirations", "rule"): "#rules-of-expiration-in-the-tables",
    ("group_expirations", "rule"): "#rules-of-expiration-in-the-tables",
}
"""Table and column -> the page that explains every word of the column."""

_OTHER_INPUTS = "[Other inputs](../how-to/other-inputs.md#rows-and-lines-that-are-not-used)"
_REFUSED = "[When a run is refused](../how-to/when-a-night-is-refused.md#what-goes-on-with-a-remark)"
PLACES_OF_INPUT_CODES: Mapping[str, str] = {
    **dict.fromkeys(ROW_CODES, _OTHER_INPUTS),
    "files_not_read": "[Folders](../how-to/other-inputs.md#folders)",
    "end_offsets_not_understood": "[Files of end offsets](../how-to/other-inputs.md#files-of-end-offsets)",
    "transactions_unknown": "[What a dump can know](../explanation/what-a-dump-can-know.md#what-each-kind-of-input-knows)",
    "other_coordinator": "[How to choose a release](semantics-by-release.md#how-to-choose-a-release)",
    "compacted_before_until": "[An earlier moment](../explanation/what-a-dump-can-know.md#the-state-at-an-earlier-moment)",
    **dict.fromkeys(("earlier_incarnation", "gap_since_last_night", "log_begins_late"), _REFUSED),
    **dict.fromkeys(("log_truncated", "partition_count_changed"), _REFUSED),
    **dict.fromkeys(
        ("settings_contradicted", "group_wrong_partition"), "[The partition of a group](records.md#10-the-partition-of-a-group)"
    ),
}
"""Code about an input -> the link to the page that explains the code."""


def joins() -> str:
    """Return a row for each table: its key, and the tables that are joined to it by which columns."""
    lines = ["| Table | Key | Joined to |", "|---|---|---|"]
    for table in TABLES.values():
        key = ", ".join(f"`{name}`" for name in table.primary_key if name != "cluster")
        joined = [(right, verb, columns) for left, right, verb, columns in RELATIONS if left == table.name]
        text = "; ".join(f"{verb} [`{right}`](#{right}) ({_names(columns)})" for right, verb, columns in joined)
        lines.append(f"| [`{table.name}`](#{table.name}) | {key} | {text} |")
    return "\n".join(lines)


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def tables() -> str:
    """Return every table with its columns. Words that a page of their own explains are not listed again."""
    text = tables_reference(replace(table, columns=tuple(_column(table.name, c) for c in table.columns)) for table in TABLES.values())
    return re.sub(r"(?<![`\w])__\w+", lambda name: f"`{name[0]}`", text)


def warning_codes() -> str:
    """Return a row for each code of the table warnings."""
    return _codes(WARNING_CODES)


def quarantine_reasons() -> str:
    """Return a row for each reason of the table quarantined_records."""
    return _codes(reasons_of_the_quarantine())


def tables_reference(tables: Iterable[Table]) -> str:
    """Return the tables as Markdown, for people: a section for each, a line for each column."""
    sections = []
    for table in tables:
        key = f"Key: {', '.join(table.primary_key)}. " if table.primary_key else ""
        lines = [f"### {table.name}", "", f"{table.comment} {key}Rows: {table.write.value}.", "", "| column | type | |", "|---|---|---|"]
        lines += [f"| `{c.name}` | {_in_table(c.declared)} | {_in_table(c.comment)} |" for c in table.columns]
        for column in table.columns:
            if column.meanings:
                lines += ["", f"| `{column.name}` | |", "|---|---|"]
                lines += [f"| `{word}` | {_in_table(meaning)} |" for word, meaning in column.meanings.items()]
        sections.append("\n".join(lines))
    return "\n\n".join(sections) + "\n"


def _in_table(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def command_reference(name: str) -> str:
    """Return one command as Markdown: its purpose, its usage, a row for each option of its own, and an example.

    The options of `common_options_reference` are left out, except where the command gives such an option another meaning.
    """
    command, context = _command(name)
    common = _common_options()
    own = [option for option in _options(command, context) if option not in common and "--help" not in option[0]]
    usage = " ".join(["groupcoord", name, *command.collect_usage_pieces(context)])
    lines = [_prose(command.help or ""), "", f"    {usage}"]
    if own:
        lines += ["", *_table(("Option", "Meaning"), own)]
    if command.epilog:
        lines += ["", f"Example: `{command.epilog.removeprefix('Example: ')}`"]
    return "\n".join(lines)


def common_options_reference() -> str:
    """Return the options that most commands share as a Markdown table: option, meaning, and the commands that differ."""
    rows = []
    for names, meaning in _common_options():
        exceptions = [name for name in COMMANDS if (names, meaning) not in _options(*_command(name))]
        rows.append((names, meaning, ", ".join(f"`{name}`" for name in exceptions) or "-"))
    return "\n".join(_table(("Option", "Meaning", "Not, or not in this form, for"), rows))


def _command(name: str) -> tuple[click.Command, click.Context]:
    assert isinstance(main, click.Group)
    parent = click.Context(main, info_name="groupcoord")
    command = main.get_command(parent, name)
    assert command is not None, f"there is no command {name}"
    return command, click.Context(command, info_name=name, parent=parent)


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Return names and help text of every option. Arguments have no help text: the description of the command explains them."""
    options = (parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option))
    records = (option.get_help_record(context) for option in options)
    return [record for record in records if record is not None]


def _common_options() -> list[tuple[str, str]]:
    """Return the options that two commands as different as list and timeline share."""
    of_timeline = _options(*_command("timeline"))
    return [option for option in _options(*_command("list")) if option in of_timeline and "--help" not in option[0]]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heading)} |", "|" + "---|" * len(heading)]
    return lines + [f"| `{_cell(first)}` | {' | '.join(map(_escaped, rest))} |" for first, *rest in rows]


def _prose(text: str) -> str:
    """Help text with its paragraphs, each on one line."""
    return "\n\n".join(_escaped(paragraph) for paragraph in re.split(r"\n\s*\n", text.replace("\b", "")))


def _escaped(text: str) -> str:
    """Escape a text for Markdown: leading underscores would be bold, angle brackets HTML."""
    return re.sub(r"__[\w-]+", lambda name: f"`{name[0]}`", _cell(text)).replace("<", "&lt;").replace(">", "&gt;")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def scenario_reference() -> Mapping[str, Callable[[], str]]:
    """Map the name of a part of the reference page -> the function that makes its Markdown."""
    return {
        "keys of a scenario": lambda: _keys_table(language.FILE_KEYS),
        "keys of broker": lambda: _keys_table(language.BROKER_KEYS),
        "settings of a member": lambda: _keys_table(language.MEMBER_SETTINGS),
        "settings of the broker": lambda: _keys_table(language.BROKER_SETTINGS),
        "steps of members": lambda: _verbs_table(language.MEMBER_VERBS),
        "steps of the broker": lambda: _verbs_table(language.BROKER_VERBS),
        "keys of append": lambda: _keys_table(language.APPEND_KEYS),
        "requests by hand": _requests_table,
    }


def _keys_table(keys: Iterable[Key]) -> str:
    rows = [f"| `{key.name}` | {key.kind.words} | {key.meaning} | {_without(key)} |" for key in keys]
    return "\n".join(["| Key | Value | Meaning | Without the key |", "|---|---|---|---|", *rows])


def _without(key: Key) -> str:
    return "the key is required" if key.is_required else key.without


def _verbs_table(verbs: Sequence[Verb]) -> str:
    rows = []
    for verb in verbs:
        options = "<br>".join(f"`{key.name}`: {key.kind.words}. {key.meaning} {_default_sentence(key)}".rstrip() for key in verb.options)
        rows.append(f"| `{verb.name}` | {verb.meaning} | {options} |")
    return "\n".join(["| Verb | What happens | Options |", "|---|---|---|", *rows])


def _default_sentence(key: Key) -> str:
    if key.is_required:
        return "Required."
    return f"Without it: {key.without}." if key.without else ""


def _requests_table() -> str:
    rows = []
    for name, form in language.REQUESTS.items():
        of_fields = "<br>".join(
            f"`{field.name}`: {field.kind.words}{f', {field.versions}' if field.versions else ''}"
            f"{' (required)' if field.is_required else f'; without it {field.without}'}"
            for field in form.fields
        )
        rows.append(f"| `{name}` | {of_fields} |")
    return "\n".join(["| Request | Fields in `with` |", "|---|---|", *rows])


def parts() -> Mapping[str, Callable[[], str]]:
    """Map the name of every generated part -> the function that makes its text."""
    return {
        "common options": common_options_reference,
        **{f"command {name}": partial(command_reference, name) for name in COMMANDS},
        "joins": joins,
        "tables": tables,
        "warning codes": warning_codes,
        "quarantine reasons": quarantine_reasons,
        **scenario_reference(),
    }


def with_generated_parts(page: str) -> str:
    """Return the text of a page with every generated part renewed."""
    makers = parts()
    return GENERATED_PART.sub(lambda part: f"{part[1]}\n{makers[part[2]]().strip()}\n\n{part[3]}", page)


def _column(table: str, column: Column) -> Column:
    page = PAGES_OF_WORDS.get((table, column.name))
    return column if page is None else replace(column, sentence=f"{column.sentence} [All of them]({page}).", words=(), meanings={})


def _codes(meanings: Mapping[str, str]) -> str:
    rows = [f'| <a id="{code.lower()}"></a>`{code}` | {meaning} | {_place(code)} |' for code, meaning in meanings.items()]
    return "\n".join(["| Code | Meaning | Rule |", "|---|---|---|", *rows])


def _place(code: str) -> str:
    if code.startswith("R-"):
        return f"[{code}](replay-rules.md#{code.lower()})"
    if code in PLACES_OF_INPUT_CODES:
        return PLACES_OF_INPUT_CODES[code]
    if code in CODES:
        return "[Damaged files](record-batches.md#74-codes)"
    return "[Bad input](records.md#9-bad-input)"


if __name__ == "__main__":
    for path in GENERATED_PAGES:
        path.write_text(with_generated_parts(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"written: {path}")
