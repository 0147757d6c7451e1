"""What the commands print: rows on stdout as Kafka's tools align them, as JSON (one object a row) or as CSV, and sentences on stderr.

Group ids, topics, hosts and metadata are texts that clients chose. No character on which a terminal acts is printed as it is: the table,
the CSV and the sentences have its escape, and JSON has a JSON escape, which keeps the value exact.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import click

from groupcoord_spark.wording import counted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NOTHING = "-"
"""What Kafka's tools print in place of a missing value."""

_IS_WIDE: Final = "groupcoord_spark.wide"
"""The key in click's ``ctx.meta`` that says that --wide was given."""
_LEFT_OUT: Final = "groupcoord_spark.left_out"
"""The key in click's ``ctx.meta`` for the titles of the columns that did not fit the terminal."""

_NOT_PLAIN_ASCII: Final = re.compile(r"[^\n -~]+")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet reads a cell that begins with one of these as a formula, or drops the character and looks at the next one."""
_NEGATIVE_NUMBER: Final = re.compile(r"-[0-9]+(\.[0-9]+)?")


def prepare_streams() -> None:
    """Makes stdout and stderr accept every text: characters that their encoding lacks are escaped, and a closed stream drops everything."""
    sys.stdout = _that_takes_every_text(sys.stdout)
    sys.stderr = _that_takes_every_text(sys.stderr)


def _that_takes_every_text(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed by whoever started the command (>&-, 2>&-)
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def printable(text: str) -> str:
    """The text with an escape (``\\x1b``, ``\\u202e``) for every character that is not printable: terminals act on some of them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(sentence: str) -> None:
    """Prints lines on stderr. A stderr that cannot be written to (its reader has gone, its disk is full) stops no work."""
    with suppress(OSError):
        print("\n".join(map(printable, sentence.split("\n"))), file=sys.stderr, flush=True)


def cell_text(value: object) -> str:
    """A value as a cell for people, in letters that stdout can take: so a column stays aligned in every encoding."""
    if value is None:
        return NOTHING
    text = printable(str(value))
    if text.isascii() or _stdout_is_unicode():
        return text
    return text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding)


def _stdout_is_unicode() -> bool:
    return codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")


def terminal_json(text: str) -> str:
    """Lines of JSON that say the same, with JSON's escape for every character that a terminal acts on or that stdout cannot take."""
    if text.isascii() and "\x7f" not in text:
        return text
    keeps_letters = _stdout_is_unicode()

    def escaped(match: re.Match[str]) -> str:
        if keeps_letters and match[0].isprintable():
            return match[0]
        return "".join(c if keeps_letters and c.isprintable() else json.dumps(c)[1:-1] for c in match[0])

    return _NOT_PLAIN_ASCII.sub(escaped, text)


def terminal_json_bytes(text: memoryview) -> bytes | memoryview:
    """``terminal_json`` of UTF-8, as UTF-8. Lines in plain ASCII are not copied."""
    import numpy as np

    return text if np.frombuffer(text, np.uint8).max(initial=0) < 0x7F else terminal_json(str(text, "utf-8")).encode()


def moment(milliseconds: int | None) -> str | None:
    """A time as ISO 8601 in UTC; one outside of the years 1 to 9999 as its milliseconds; None stays None."""
    if milliseconds is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(milliseconds)


def second(milliseconds: int) -> str:
    """A time to the second as ISO 8601 in UTC."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="seconds").replace("+00:00", "Z")


def lines(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    least_widths: Sequence[int | None] | None = None,
    colours: Sequence[str | None] | None = None,
) -> list[str]:
    """A line of titles and one for each row, cells left-aligned under their title. On a terminal the lines fit the terminal's width.

    Args:
        least_widths: A column is as wide as its widest cell, and at least this, or None: not padded (Kafka's last column). None for all:
            as wide as the title, and the last one not padded.
        colours: A colour for each row that is to stand out on a terminal, None for the others; None: no row stands out.
    """
    cells = [tuple(map(cell_text, row)) for row in rows]
    limit = _terminal_width()
    if limit is not None:
        from groupcoord_spark.cli.terminal import fitted_table

        table = fitted_table(titles, cells, limit)
        _say_at_the_end_what_is_left_out(table.left_out)
        paint = colours is not None and "NO_COLOR" not in os.environ
        return [
            click.style(line, fg=colour) if paint and colour is not None else line
            for lines_of_row, colour in zip(table.rows, [None, *(colours or [None] * len(cells))], strict=True)
            for line in lines_of_row
        ]
    widths: Sequence[int | None] = least_widths if least_widths is not None else [*map(len, titles[:-1]), None]
    if cells:
        columns = zip(*cells, strict=True)
        widths = [w if w is None else max(w, max(map(len, column))) for w, column in zip(widths, columns, strict=True)]
    form = _form(tuple(widths))
    return [form % tuple(titles), *[form % row for row in cells]]


def lines_or_blocks(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """As ``lines``; where so many columns cannot fit the terminal, a block of lines for each row, with a line for each column."""
    limit, cells = _terminal_width(), [tuple(map(cell_text, row)) for row in rows]
    if limit is None:
        return lines(titles, cells)
    from groupcoord_spark.cli.terminal import LEAST_SENTENCE_WIDTH, fitted_table, wrapped_text

    table = fitted_table(titles, cells, limit)
    if not table.left_out or not cells:
        return [line for row in table.rows for line in row]
    margin = max(map(len, titles)) + 2
    blocks: list[str] = []
    for row in cells:
        for title, cell in zip(titles, row, strict=True):
            line, *more_lines = wrapped_text(cell, max(limit - margin, LEAST_SENTENCE_WIDTH))
            blocks += [f"{title.ljust(margin)}{line}".rstrip(), *(f"{' ' * margin}{part}" for part in more_lines)]
        blocks.append("")
    return blocks[:-1]


def show_all_columns_whole() -> None:
    """Tables of this command are as wide as their cells, also on a terminal (--wide)."""
    click.get_current_context().meta[_IS_WIDE] = True


def _say_at_the_end_what_is_left_out(titles: Sequence[str]) -> None:
    """Says once, when the command ends, which columns its tables lack."""
    context = click.get_current_context(silent=True)
    if context is None or not titles:
        return
    if _LEFT_OUT not in context.meta:
        left_out: dict[str, None] = {}
        context.meta[_LEFT_OUT] = left_out
        context.call_on_close(lambda: say(f"--wide shows {counted(len(left_out), 'more column')}: {', '.join(left_out)}."))
    context.meta[_LEFT_OUT].update(dict.fromkeys(titles))


def _terminal_width() -> int | None:
    """The columns of the terminal that tables must fit; None: stdout is no terminal, or --wide was given."""
    context = click.get_current_context(silent=True)
    if not sys.stdout.isatty() or (context is not None and context.meta.get(_IS_WIDE)):
        return None
    return shutil.get_terminal_size().columns


def wrapped(text: str) -> list[str]:
    """A sentence as lines that fit the terminal; as one line where stdout is no terminal, and with --wide."""
    limit = _terminal_width()
    if limit is None:
        return [text]
    from groupcoord_spark.cli.terminal import wrapped_text

    return wrapped_text(text, limit)


@lru_cache(maxsize=1024)
def _form(widths: tuple[int | None, ...]) -> str:
    return " ".join("%s" if width is None else f"%-{width}s" for width in widths)


def write_records(output: Literal["json", "csv"], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows for programs: JSON objects, one a line, or CSV with a line of names. What is not there is null, or empty."""
    if output == "json":
        print_lines(_json_text(dict(zip(names, row, strict=True))) for row in rows)
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    sys.stdout.write(text.getvalue())


def _json_text(value: object) -> str:
    return terminal_json(json.dumps(value, ensure_ascii=False))


def _csv_cell(value: Any) -> Any:
    """A value as a cell of CSV: true or false, a list with commas, an object as JSON.

    A text that a spreadsheet would run as a formula begins with a quote sign, as OWASP advises; numbers stay numbers.
    """
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return _json_text(value)
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    is_formula = text.startswith(_FORMULA) and not _NEGATIVE_NUMBER.fullmatch(text)
    return f"'{printable(text)}" if is_formula else printable(text)


def print_lines(texts: Iterable[str]) -> None:
    """Lines on stdout."""
    whole = "\n".join(texts)
    if whole:
        sys.stdout.write(f"{whole}\n")
