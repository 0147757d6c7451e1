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
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import click

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NOTHING = "-"
"""What Kafka's tools print in place of a missing value."""

FEW_ROWS: Final = 32
"""Up to this many rows are aligned row by row: describe prints a small table for each of very many groups."""

_LEAST_CUT_WIDTH: Final = 7
"""No cell is cut to fewer characters."""
_LEAST_TITLE_WIDTH: Final = 5
_LEAST_SENTENCE_WIDTH: Final = 30
_IS_WIDE: Final = "groupcoord_spark.wide"
"""The key in click's ``ctx.meta`` that says that --wide was given."""

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


def counted(number: int, noun: str) -> str:
    """``1 offset``, ``3 groups``, ``1,000 batches``: the number, and the noun in its singular or plural."""
    plural = f"{noun}es" if noun.endswith(("ch", "x", "s")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def shown(value: object) -> str:
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


def lines(
    titles: Sequence[str], rows: Iterable[Sequence[object]], least_widths: Sequence[int | None], colours: Sequence[str | None] | None = None
) -> list[str]:
    """A line of titles and one for each row, cells left-aligned under their title. On a terminal the lines fit the terminal's width.

    Args:
        titles: Of the columns.
        rows: The cells.
        least_widths: A column is as wide as its widest cell, and at least this; None: not padded (Kafka's last column).
        colours: A colour for each row that is to stand out on a terminal, None for the others; None: no row stands out.
    """
    cells = [tuple(map(shown, row)) for row in rows]
    limit = _terminal_width()
    if limit is not None:
        fitted = fitting_lines(titles, cells, limit)
        paint = colours is not None and "NO_COLOR" not in os.environ
        return [
            click.style(line, fg=colour) if paint and colour is not None else line
            for line_of_row, colour in zip(fitted, [None, *(colours or [None] * len(cells))], strict=True)
            for line in line_of_row
        ]
    widths: Iterable[int | None] = least_widths
    if 0 < len(cells) <= FEW_ROWS:
        longest = map(max, [w or 0 for w in least_widths], *[map(len, row) for row in cells])
        widths = [w if w is None else length for w, length in zip(least_widths, longest, strict=True)]
    elif cells:
        columns = zip(*cells, strict=True)
        widths = [w if w is None else max(w, max(map(len, column))) for w, column in zip(least_widths, columns, strict=True)]
    form = _form(tuple(widths))
    return [form % tuple(titles), *[form % row for row in cells]]


def show_all_columns_whole() -> None:
    """Tables of this command are as wide as their cells, also on a terminal (--wide)."""
    click.get_current_context().meta[_IS_WIDE] = True


def _terminal_width() -> int | None:
    """The columns of the terminal that tables must fit; None: stdout is no terminal, or --wide was given."""
    context = click.get_current_context(silent=True)
    if not sys.stdout.isatty() or (context is not None and context.meta.get(_IS_WIDE)):
        return None
    return shutil.get_terminal_size().columns


def fitting_lines(titles: Sequence[str], cells: Sequence[Sequence[str]], limit: int) -> list[list[str]]:
    """The lines of the titles and of each row, none longer than ``limit`` unless there are too many columns for it.

    The widest columns are narrowed first, titles only where cells alone are not enough. A cell that is too long is cut in the middle; a
    sentence in the last column goes on below.
    """
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    has_sentences = any(" " in row[-1] for row in cells)
    with_titles = [max(len(title), _LEAST_CUT_WIDTH) for title in titles]
    for least in (with_titles, [_LEAST_CUT_WIDTH] * len(titles), [_LEAST_TITLE_WIDTH] * len(titles)):
        if has_sentences:
            least[-1] = _LEAST_SENTENCE_WIDTH
        widths = _narrowed(widths, least, limit - len(widths) + 1, last_first=has_sentences)
    return [_fitted_row(row, widths, has_sentences=has_sentences) for row in (titles, *cells)]


def _narrowed(widths: Sequence[int], least: Sequence[int], total: int, *, last_first: bool) -> list[int]:
    """The widths, of which the widest are narrowed down to ``least`` until their sum is at most ``total``."""
    narrowed = list(widths)
    if last_first and sum(narrowed) > total:
        narrowed[-1] = max(min(narrowed[-1], least[-1]), narrowed[-1] - (sum(narrowed) - total))
    while sum(narrowed) > total:
        spare = [column for column, width in enumerate(narrowed) if width > least[column]]
        if not spare:
            break
        narrowed[max(spare, key=narrowed.__getitem__)] -= 1
    return narrowed


def _fitted_row(row: Sequence[str], widths: Sequence[int], *, has_sentences: bool) -> list[str]:
    *firsts, last = row
    cells = [cut_in_the_middle(cell, width).ljust(width) for cell, width in zip(firsts, widths[:-1], strict=True)]
    before = " ".join([*cells, ""])
    if not has_sentences:
        return [f"{before}{cut_in_the_middle(last, widths[-1])}".rstrip()]
    parts = textwrap.wrap(last, max(widths[-1], 1), break_on_hyphens=False) or [""]
    return [f"{before}{parts[0]}".rstrip(), *(f"{' ' * len(before)}{part}" for part in parts[1:])]


def cut_in_the_middle(text: str, width: int) -> str:
    """The text, where it is too long with `…` in place of its middle: beginnings and ends of ids tell them apart."""
    if len(text) <= width:
        return text
    ellipsis = "…" if _stdout_is_unicode() else "~"
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}{ellipsis}{text[len(text) - end :]}"


@lru_cache(maxsize=1024)
def _form(widths: tuple[int | None, ...]) -> str:
    return " ".join("%s" if width is None else f"%-{width}s" for width in widths)


def write_records(output: Literal["json", "csv"], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows for programs: JSON objects, one a line, or CSV with a line of names. What is not there is null, or empty."""
    if output == "json":
        write_lines(_json_text(dict(zip(names, row, strict=True))) for row in rows)
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


def write_lines(texts: Iterable[str]) -> None:
    """Lines on stdout."""
    whole = "\n".join(texts)
    if whole:
        sys.stdout.write(f"{whole}\n")
