"""Tables that fit a terminal: what is shortened, in which order, and what never is.

Widths are counted in the cells of the terminal: an emoji and a Chinese letter take two.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

IDENTIFYING: Final = frozenset({"CLUSTER", "GROUP", "GROUP_ID", "TOPIC", "PARTITION", "RUN", "RUN_ID"})
"""Titles of the columns that say what a row is about: their cells are never cut, only folded: where they do not fit, or
nothing else would be left of the table."""

LEAST_SENTENCE_WIDTH: Final = 30
_LEAST_CUT_WIDTH: Final = 16
"""The fewest cells of a cut id: its beginning and its end still identify it."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_TIME_WIDTHS: Final = (20, 17, 10)
"""Widths of a time to the second, of one to the minute, and of its day."""
_TITLE_PARTS: Final = re.compile(r"[^-_ ]+[-_ ]?")


class FittedTable(NamedTuple):
    """A table that is no wider than the terminal."""

    rows: list[list[str]]
    """The lines of the titles and of each row."""
    left_out: list[str]
    """Titles of the columns that did not fit."""


def fitted_table(titles: Sequence[str], cells: Sequence[Sequence[str]], limit: int) -> FittedTable:
    """The table in at most ``limit`` cells of width.

    Sentences and titles go on below, times lose their last digits, then long ids are cut in the middle. Where that is not enough, columns
    go, the last one first. Columns of IDENTIFYING and the first one beside them, for which the table is asked, stay.
    """
    first = next((at for at, title in enumerate(titles) if title.upper() not in IDENTIFYING), None)
    columns = [_Column.of(title, [row[at] for row in cells], is_first=at == first) for at, title in enumerate(titles)]
    places = list(range(len(columns)))
    while True:
        widths = _widths([columns[at] for at in places], limit)
        dropped = next((at for at in reversed(places) if not columns[at].stays), None)
        if sum(widths) + len(widths) - 1 <= limit or dropped is None:
            break
        places.remove(dropped)
    shown = [
        _fitted_row([_title_lines(titles[at], width) for at, width in zip(places, widths, strict=True)], widths),
        *(_fitted_row([columns[at].fitted(row[at], width) for at, width in zip(places, widths, strict=True)], widths) for row in cells),
    ]
    return FittedTable(shown, [title for at, title in enumerate(titles) if at not in places])


class _Column(NamedTuple):
    """A column of a table that must fit the terminal. Widths in cells."""

    title: int
    longest_title_part: int
    longest: int
    longest_word: int
    has_texts: bool
    """Cells of several words, which may go on below."""
    has_times: bool
    identifies: bool
    stays: bool
    """Whether the table means nothing without the column."""

    @classmethod
    def of(cls, title: str, cells: Sequence[str], *, is_first: bool) -> _Column:
        """The column with this title and these cells. is_first: of those that do not identify a row."""
        identifies = title.upper() in IDENTIFYING
        has_texts = not identifies and any(" " in cell.strip() for cell in cells)
        word = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        has_times = any(map(_TIME.fullmatch, cells)) and all(cell == "-" or _TIME.fullmatch(cell) for cell in cells)
        part = max((len(part) for part in _TITLE_PARTS.findall(title)), default=1)
        longest = max(map(cell_len, cells), default=0)
        return cls(cell_len(title), part, longest, word, has_texts, has_times, identifies, identifies or has_texts or is_first)

    def floor(self, time_width: int, cut_width: int, limit: int) -> int:
        """The width to which the column may be narrowed, in a terminal of ``limit`` cells."""
        if self.has_times:
            return max(self.longest_title_part, time_width)
        if self.has_texts:
            return max(self.longest_title_part, min(self.longest, max(self.longest_word, LEAST_SENTENCE_WIDTH)))
        if self.identifies:  # a name that must be folded anyway leaves room for the other columns
            return max(self.longest_title_part, self.longest if self.longest <= limit else limit // 2)
        return max(self.longest_title_part, min(self.longest, cut_width))

    def fitted(self, cell: str, width: int) -> list[str]:
        """The lines of a cell, none wider than ``width``."""
        if cell_len(cell) <= width:
            return [cell]
        if self.has_times and _TIME.fullmatch(cell):
            second, minute, _ = _TIME_WIDTHS
            return [f"{cell[:19]}Z" if width >= second else f"{cell[:16]}Z" if width >= minute else cell[:10]]
        if self.has_texts:
            return wrapped_text(cell, width)
        return chop_cells(cell, width) if self.identifies else [cut_in_the_middle(cell, width)]


def _widths(columns: Sequence[_Column], limit: int) -> list[int]:
    """The width of each column, narrowed stage by stage until the columns fit, or cannot be narrowed further."""
    second, minute, day = _TIME_WIDTHS
    widths = [max(column.title, column.longest) for column in columns]
    total = limit - len(columns) + 1
    least = ((second, max(widths, default=0)), (minute, _LEAST_CUT_WIDTH), (day, _LEAST_CUT_WIDTH))
    stages = [[column.floor(time_width, cut_width, limit) for column in columns] for time_width, cut_width in least]
    if all(column.stays for column in columns):
        stages.append([column.longest_title_part for column in columns])
    for floors in stages:
        while sum(widths) > total:
            spare = [at for at, width in enumerate(widths) if width > floors[at]]
            if not spare:
                break
            widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _title_lines(title: str, width: int) -> list[str]:
    if cell_len(title) <= width:
        return [title]
    lines = [""]
    for part in _TITLE_PARTS.findall(title):
        if len(lines[-1]) + len(part) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
    return lines


def _fitted_row(parts: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    return [" ".join(map(padded, line, widths)).rstrip() for line in zip_longest(*parts, fillvalue="")]


def padded(text: str, width: int) -> str:
    """The text with blanks up to so many cells."""
    return text + " " * (width - cell_len(text))


def wrapped_text(text: str, width: int) -> list[str]:
    """The text as lines of at most ``width`` cells, divided between words where possible."""
    return [line.plain.rstrip() for line in Text(text).wrap(Console(width=width), width)] or [""]


def cut_in_the_middle(text: str, width: int) -> str:
    """The text, where it is too long with `…` in place of its middle: beginnings and ends of ids tell them apart."""
    if cell_len(text) <= width:
        return text
    ellipsis = "…" if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "~"
    begin, end = chop_cells(text, width // 2)[0], ""
    for letter in reversed(chop_cells(text, 1)):  # with the marks that stand on it
        if cell_len(letter + end) > (width - 1) // 2:
            break
        end = letter + end
    return f"{begin}{ellipsis}{end}"
