"""Rows on stdout: as Kafka's tools align them, as JSON (one object a row), or as CSV."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

NOTHING = "-"
"""What Kafka's tools print for what is not there."""


def shown(value: object) -> str:
    """A value as a cell for people. Text of the topic is untrusted: what would move a terminal's cursor is spelled out."""
    text = NOTHING if value is None else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def lines(titles: Sequence[str], rows: Iterable[Sequence[object]], least_widths: Sequence[int | None]) -> list[str]:
    """A line of titles and one for each row, cells left-aligned under their title.

    least_widths: a column is as wide as its widest cell, and at least this; None: not padded (Kafka's last column).
    """
    cells = [[shown(value) for value in row] for row in rows]
    return aligned(titles, cells, [None if w is None else max([w, *map(len, column)]) for w, column in _columns(least_widths, cells)])


def aligned(titles: Sequence[str], cells: Iterable[Sequence[str]], widths: Sequence[int | None]) -> list[str]:
    """The same for cells that are text already, each column of a fixed width that longer cells overrun."""
    form = " ".join("%s" if width is None else f"%-{width}s" for width in widths)
    return [form % tuple(titles), *(form % tuple(row) for row in cells)]


def write_records(output: Literal["json", "csv"], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows for programs: JSON objects, one a line, or CSV with a line of names. What is not there is null, or empty."""
    if output == "json":
        write_lines(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    sys.stdout.write(text.getvalue())


def write_lines(texts: Iterable[str]) -> None:
    """Lines on stdout."""
    whole = "\n".join(texts)
    if whole:
        sys.stdout.write(f"{whole}\n")


def _columns(widths: Sequence[int | None], cells: Sequence[Sequence[str]]) -> Iterable[tuple[int | None, Sequence[str]]]:
    return ((width, [row[at] for row in cells]) for at, width in enumerate(widths))
