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
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TextIO

import click

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NOTHING = "-"
"""What Kafka's tools print in place of a missing value."""

FEW_ROWS: Final = 32
"""Up to this many rows are aligned row by row: describe prints a small table for each of very many groups."""

_NO_SHORT_CELL: Final = 16
"""Cells of up to so many characters are whole as long as titles can be cut."""
_FEW_CHARACTERS: Final = 10
"""Cells of up to so many characters are whole, and times have hour and minute, as long as longer cells can be cut."""
_LEAST_CUT_WIDTH: Final = 7
"""No cell is cut to fewer characters."""
_LEAST_TITLE_WIDTH: Final = 5
_COLUMN_OF_A_TABLE: Final = 12
"""A table whose columns would have fewer characters each on the average cannot be read."""
_LEAST_SENTENCE_WIDTH: Final = 30
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_TIME_WIDTHS: Final = (20, 17, 10)
"""Widths of a time to the second, of one to the minute, and of its day."""
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


def lines_or_blocks(titles: Sequence[str], rows: Iterable[Sequence[object]], least_widths: Sequence[int | None]) -> list[str]:
    """As ``lines``; where so many columns cannot fit the terminal, a block of lines for each row, with a line for each column."""
    limit, cells = _terminal_width(), [tuple(map(shown, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    if limit is None or not cells or sum(widths) + len(widths) - 1 <= limit or len(titles) * _COLUMN_OF_A_TABLE <= limit:
        return lines(titles, cells, least_widths)
    margin = max(map(len, titles)) + 2
    blocks: list[str] = []
    for row in cells:
        for title, cell in zip(titles, row, strict=True):
            parts = textwrap.wrap(cell, max(limit - margin, _LEAST_SENTENCE_WIDTH)) or [""]
            blocks += [f"{title.ljust(margin)}{parts[0]}".rstrip(), *(f"{' ' * margin}{part}" for part in parts[1:])]
        blocks.append("")
    return blocks[:-1]


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

    Texts of several words go on below. Then the longest cells are cut in the middle, then titles, and short cells only where nothing else
    is enough. Of a time its last digits go first.
    """
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    has_sentences = any(" " in row[-1] for row in cells)
    by_column: Iterable[Sequence[str]] = zip(*cells, strict=True) if cells else [()] * len(titles)
    columns = [_Column.of(title, column) for title, column in zip(titles, by_column, strict=True)]
    stages = (
        [max(column.title, column.least(_NO_SHORT_CELL, _TIME_WIDTHS[0])) for column in columns],
        [max(_LEAST_TITLE_WIDTH, column.least(_NO_SHORT_CELL, _TIME_WIDTHS[1])) for column in columns],
        [column.least(_FEW_CHARACTERS, _TIME_WIDTHS[1]) for column in columns],
        [column.least(_LEAST_CUT_WIDTH, _TIME_WIDTHS[2]) for column in columns],
        [_LEAST_TITLE_WIDTH] * len(titles),
    )
    for least in stages:
        if has_sentences:
            least[-1] = _LEAST_SENTENCE_WIDTH
        widths = _narrowed(widths, least, limit - len(widths) + 1, last_first=has_sentences)
    return [_fitted_row(row, widths, columns) for row in (titles, *cells)]


class _Column(NamedTuple):
    """What is known of a column of a table that must fit."""

    title: int
    """The width of the title."""
    longest: int
    """The width of the widest cell."""
    longest_word: int
    has_texts: bool
    """Cells of several words, which may go on below."""
    has_times: bool

    @classmethod
    def of(cls, title: str, cells: Sequence[str]) -> _Column:
        """The column with this title and these cells."""
        has_texts = any(" " in cell.strip() for cell in cells)
        word = max((len(word) for cell in cells for word in cell.split()), default=0) if has_texts else 0
        has_times = any(map(_TIME.fullmatch, cells)) and all(cell == NOTHING or _TIME.fullmatch(cell) for cell in cells)
        return cls(len(title), max(map(len, cells), default=0), word, has_texts, has_times)

    def least(self, cell: int, time: int) -> int:
        """The width to which the column may be narrowed, where other cells may be cut to ``cell`` characters and times to ``time``."""
        if self.has_times:
            return time
        return max(_LEAST_TITLE_WIDTH, min(cell, self.longest_word if self.has_texts else self.longest))


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


def _fitted_row(row: Sequence[str], widths: Sequence[int], columns: Sequence[_Column]) -> list[str]:
    parts = [_fitted_cell(cell, max(width, 1), column) for cell, width, column in zip(row, widths, columns, strict=True)]
    return [
        " ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in zip_longest(*parts, fillvalue="")
    ]


def _fitted_cell(cell: str, width: int, column: _Column) -> list[str]:
    if len(cell) <= width:
        return [cell]
    if column.has_times and _TIME.fullmatch(cell):
        return [_short_time(cell, width)]
    if column.has_texts and " " in cell.strip():
        words = " ".join(cut_in_the_middle(word, width) for word in cell.split(" "))
        return textwrap.wrap(words, width, break_on_hyphens=False) or [""]
    return [cut_in_the_middle(cell, width)]


def _short_time(time: str, width: int) -> str:
    """A time to the second, to the minute, or its day."""
    second, minute, day = _TIME_WIDTHS
    if width >= second:
        return f"{time[:19]}Z"
    if width >= minute:
        return f"{time[:16]}Z"
    return time[:10] if width >= day else cut_in_the_middle(time, width)


def wrapped(text: str) -> list[str]:
    """A sentence as lines that fit the terminal; as one line where stdout is no terminal, and with --wide."""
    limit = _terminal_width()
    return [text] if limit is None else textwrap.wrap(text, limit, break_on_hyphens=False) or [""]


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
