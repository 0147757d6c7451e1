"""Rows and texts as the page carries them: columns of JSON, compressed with gzip, in base64."""

import base64
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pyarrow as pa

from groupcoord_spark.report.tables import MOST_ROWS, TABLES

Kind = Literal["text", "number", "bytes", "share", "time", "day", "truth"]

_EXACT: Final = 2**53
"""JavaScript's numbers are exact up to here; a larger one travels as a text."""


class Texts:
    """Every text of all tables once: a cell is the number of its text. The same group id stands in most tables."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number_of(self, text: str) -> int:
        """Return the index of the text in ``all``."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def all(self) -> list[str]:
        """The texts in the order of their numbers."""
        return list(self._numbers)


def packed_tables(tables: Mapping[str, pa.Table], lacks: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables as the page reads them: ``texts``, and for each table its columns and total number of rows.

    Args:
        tables: Name -> all rows; the first ``MOST_ROWS`` of them are carried.
        lacks: Name -> why the table cannot have rows, for those that cannot.
    """
    texts = Texts()
    return {
        "tables": [
            {
                "name": table.name,
                "section": table.section,
                "title": table.title,
                "about": table.about,
                "lacks": lacks.get(table.name),
                "all_rows": tables[table.name].num_rows,
                "columns": [_packed(name, column, texts) for name, column in _columns(tables[table.name].slice(0, MOST_ROWS))],
            }
            for table in TABLES
        ],
        "texts": texts.all,
    }


def packed(text: str) -> str:
    """Compress a text with gzip and encode it in base64, deterministically."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def kind_of_column(name: str, column_type: pa.DataType) -> Kind:
    """Return how a column is shown, from its type and name."""
    if pa.types.is_timestamp(column_type):
        return "time"
    if pa.types.is_date(column_type):
        return "day"
    if pa.types.is_boolean(column_type):
        return "truth"
    if pa.types.is_integer(column_type) or pa.types.is_floating(column_type):
        if name == "completeness" or "share" in name:
            return "share"
        return "bytes" if name in ("bytes", "bytes_read") else "number"
    return "text"


def _columns(rows: pa.Table) -> Sequence[tuple[str, pa.ChunkedArray]]:
    return [(name, rows[name]) for name in rows.column_names if name != "place"]


def _packed(name: str, column: pa.ChunkedArray, texts: Texts) -> dict[str, Any]:
    kind = kind_of_column(name, column.type)
    if kind == "time":
        cells = [None if value is None else value // 1000 for value in column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()]
    elif kind == "day":
        cells = column.cast(pa.int32()).to_pylist()
    elif kind == "text":
        cells = [None if value is None else texts.number_of(str(value)) for value in column.to_pylist()]
    else:
        cells = [_number(value) for value in column.to_pylist()]
    return {"name": name, "kind": kind, "cells": cells}


def _number(value: int | float | bool | None) -> int | float | str | None:
    """Return a number that survives JSON and JavaScript unchanged."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value if value is None or -_EXACT <= value <= _EXACT else str(value)


def as_json(value: Any) -> str:
    """JSON without blanks. Lone surrogates, which UTF-8 cannot have, are escaped."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
