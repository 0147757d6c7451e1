"""Rows on stdout: as Kafka's tools align them, as JSON (one object a row), or as CSV."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NOTHING = "-"
"""What Kafka's tools print for what is not there."""

FEW_ROWS: Final = 32
"""So many are looked through row by row: describe prints a table for each of very many groups, and each has few rows."""


def shown(value: object) -> str:
    """A value as a cell for people. Text of the topic is untrusted: what would move a terminal's cursor is spelled out."""
    if value is None:
        return NOTHING
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def moment(milliseconds: int | None) -> str | None:
    """A time as ISO 8601 in UTC; one outside of the years 1 to 9999 as its milliseconds; None stays None."""
    if milliseconds is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(milliseconds)


def lines(titles: Sequence[str], rows: Iterable[Sequence[object]], least_widths: Sequence[int | None]) -> list[str]:
    """A line of titles and one for each row, cells left-aligned under their title.

    least_widths: a column is as wide as its widest cell, and at least this; None: not padded (Kafka's last column).
    """
    cells = [tuple(map(shown, row)) for row in rows]
    widths: Iterable[int | None] = least_widths
    if 0 < len(cells) <= FEW_ROWS:
        longest = map(max, [w or 0 for w in least_widths], *[map(len, row) for row in cells])
        widths = [w if w is None else length for w, length in zip(least_widths, longest, strict=True)]
    elif cells:
        columns = zip(*cells, strict=True)
        widths = [w if w is None else max(w, max(map(len, column))) for w, column in zip(least_widths, columns, strict=True)]
    form = _form(tuple(widths))
    return [form % tuple(titles), *[form % row for row in cells]]


@lru_cache(maxsize=1024)
def _form(widths: tuple[int | None, ...]) -> str:
    return " ".join("%s" if width is None else f"%-{width}s" for width in widths)


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
