"""Tables that fit a terminal.

Widths are counted in the cells of the terminal: an emoji and a Chinese letter take two.
"""

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

IDENTIFYING: Final = frozenset({"CLUSTER", "GROUP", "GROUP_ID", "TOPIC", "RUN", "RUN_ID"})
"""Titles of the columns with names that users chose: blanks in them divide no words."""

LEAST_SENTENCE_WIDTH: Final = 30
_LEAST_CUT_WIDTH: Final = 16
"""The fewest cells of a cut id: its beginning and its end still identify it."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_SECOND: Final = 20
_MINUTE: Final = 17
"""Widths of a time to the second, and of one to the minute."""
_INDENT: Final = 2
"""Blanks before the further lines of a row."""
_TITLE_PARTS: Final = re.compile(r"[^-_ ]+[-_ ]?")


class FittedTable(NamedTuple):
    """A table no wider than the terminal."""

    rows: list[list[str]]
    """The lines of the titles and of each row."""
    lines_of_row: int
    """Into how many lines the columns are divided; longer where cells wrap."""


def fitted_table(titles: Sequence[str], cells: Sequence[Sequence[str]], limit: int) -> FittedTable:
    """Return the table in at most ``limit`` cells of width.

    Sentences and titles wrap, times lose their last digits, then long ids are cut in the middle so that different ids stay different. If
    that is not enough, the last columns of each row go to further lines.
    """
    columns = [_Column.of(title, [row[at] for row in cells]) for at, title in enumerate(titles)]
    parts = [(places, _widths([columns[at] for at in places], limit - indent), indent) for places, indent in _divided(columns, limit)]
    shown: list[list[str]] = [[] for _ in range(len(cells) + 1)]
    for places, widths, indent in parts:
        fitted = [_fitted_row([_title_lines(titles[at], width) for at, width in zip(places, widths, strict=True)], widths, indent)]
        for row in cells:
            folded = [columns[at].fitted(row[at], width) for at, width in zip(places, widths, strict=True)]
            fitted.append(_fitted_row(folded, widths, indent))
        for lines, more in zip(shown, fitted, strict=True):
            lines += more
    return FittedTable(shown, len(parts))


class _Column(NamedTuple):
    """A column of a table that must fit the terminal. Widths in cells."""

    title: int
    longest: int
    floors: tuple[int, int, int]
    """Minimum widths: with times to the second, with times to the minute and cut ids, and where that does not fit the terminal either."""
    has_texts: bool
    """Cells of several words, which wrap."""
    has_times: bool

    @classmethod
    def of(cls, title: str, cells: Sequence[str]) -> "_Column":
        """Return the column with this title and these cells."""
        part = max((len(part) for part in _TITLE_PARTS.findall(title)), default=1)
        longest = max(map(cell_len, cells), default=0)
        has_times = any(map(_TIME.fullmatch, cells)) and all(cell == "-" or _TIME.fullmatch(cell) for cell in cells)
        has_texts = title.upper() not in IDENTIFYING and any(" " in cell.strip() for cell in cells)
        if has_times:
            floors = max(part, _SECOND), max(part, _MINUTE)
        elif has_texts:
            word = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
            floors = (max(part, min(longest, max(word, LEAST_SENTENCE_WIDTH))),) * 2
        else:
            floors = max(part, longest), max(part, _width_of_cut(frozenset(cells), longest))
        return cls(cell_len(title), longest, (*floors, part), has_texts, has_times)

    def fitted(self, cell: str, width: int) -> list[str]:
        """Return the lines of a cell, none wider than ``width``."""
        if cell_len(cell) <= width:
            return [cell]
        if self.has_times and _TIME.fullmatch(cell) and width >= _MINUTE:
            return [f"{cell[:19]}Z" if width >= _SECOND else f"{cell[:16]}Z"]
        if self.has_texts:
            return wrapped_text(cell, width)
        return [cut_in_the_middle(cell, width)] if width >= self.floors[1] else chop_cells(cell, width)


def _width_of_cut(ids: Collection[str], longest: int) -> int:
    """Return a width that keeps the cut ids distinct."""
    width = _LEAST_CUT_WIDTH
    while width < longest and len({cut_in_the_middle(each, width) for each in ids}) < len(ids):
        width *= 2
    return min(width, longest)


def _divided(columns: Sequence[_Column], limit: int) -> Iterator[tuple[list[int], int]]:
    """Divide the columns into lines: places of the columns and indent of each line."""
    places: list[int] = []
    indent = used = 0
    for at, column in enumerate(columns):
        if places and used + column.floors[1] > limit:
            yield places, indent
            places, indent, used = [], _INDENT, _INDENT
        places.append(at)
        used += column.floors[1] + 1
    yield places, indent


def _widths(columns: Sequence[_Column], limit: int) -> list[int]:
    """Return the width of each column, narrowed step by step until the columns fit or reach their minimum."""
    widths = [max(column.title, column.longest) for column in columns]
    total = limit - len(columns) + 1
    for stage in range(3):
        while sum(widths) > total:
            spare = [at for at, width in enumerate(widths) if width > columns[at].floors[stage]]
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


def _fitted_row(parts: Sequence[Sequence[str]], widths: Sequence[int], indent: int) -> list[str]:
    margin = " " * indent
    return [f"{margin}{' '.join(map(padded, line, widths))}".rstrip() for line in zip_longest(*parts, fillvalue="")]


def padded(text: str, width: int) -> str:
    """Pad the text with blanks to a width."""
    return text + " " * (width - cell_len(text))


def wrapped_text(text: str, width: int) -> list[str]:
    """Wrap the text to lines of at most ``width`` cells, between words where possible."""
    return [line.plain.rstrip() for line in Text(text).wrap(Console(width=width), width)] or [""]


def cut_in_the_middle(text: str, width: int) -> str:
    """Replace the middle of a long text by `…`: starts and ends distinguish ids."""
    if cell_len(text) <= width:
        return text
    ellipsis = "…" if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "~"
    if text.isascii():
        return f"{text[: width // 2]}{ellipsis}{text[len(text) - (width - 1) // 2 :]}"
    begin, end = chop_cells(text, width // 2)[0], ""
    for letter in reversed(chop_cells(text, 1)):  # with the marks that stand on it
        if cell_len(letter + end) > (width - 1) // 2:
            break
        end = letter + end
    return f"{begin}{ellipsis}{end}"
