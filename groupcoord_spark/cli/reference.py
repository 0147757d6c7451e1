"""The reference of the commands as Markdown, made from the declarations of the commands. ``docs/generate.py`` writes it into a page."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from groupcoord_spark.cli.commands import COMMANDS, main


def command_reference(name: str) -> str:
    """One command as Markdown: what the command does, its usage, a row for each option of its own, and an example.

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
    """The options that most commands share, as one Markdown table: option, meaning, and the commands for which the row is not true."""
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
    """Names and help text of every option. Arguments have no help text: the description of the command explains them."""
    options = (parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option))
    records = (option.get_help_record(context) for option in options)
    return [record for record in records if record is not None]


def _common_options() -> list[tuple[str, str]]:
    """The options that two commands as different as list and timeline share."""
    of_timeline = _options(*_command("timeline"))
    return [option for option in _options(*_command("list")) if option in of_timeline and "--help" not in option[0]]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heading)} |", "|" + "---|" * len(heading)]
    return lines + [f"| `{_cell(first)}` | {' | '.join(map(_escaped, rest))} |" for first, *rest in rows]


def _prose(text: str) -> str:
    """Help text with its paragraphs, each on one line."""
    return "\n\n".join(_escaped(paragraph) for paragraph in re.split(r"\n\s*\n", text.replace("\b", "")))


def _escaped(text: str) -> str:
    """The text as a Markdown reader shows it: a name that begins with underscores is not bold, and angle brackets are no HTML."""
    return re.sub(r"__[\w-]+", lambda name: f"`{name[0]}`", _cell(text)).replace("<", "&lt;").replace(">", "&gt;")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
