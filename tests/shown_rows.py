"""Rows of a query as the pages of the documentation show them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from groupcoord_spark.warehouse import TABLES, open_warehouse
from groupcoord_spark.warehouse.view_texts import VIEWS


def connect(warehouse: Path, cluster: str | None) -> duckdb.DuckDBPyConnection:
    """DuckDB with every table and view of a cluster's newest run, in UTC; cluster None: of all clusters."""
    opened, connection = open_warehouse(str(warehouse)), duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        connection.register(table, opened.runs(cluster) if table == "runs" else opened.read(table, cluster=cluster))
    for view, query in VIEWS.items():
        connection.execute(f"CREATE VIEW {view} AS {query}")
    return connection


def shown_rows(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return the rows as aligned text under a line of column names; NULL is a minus sign."""
    answer = connection.sql(query).to_arrow_table()
    rows = [[_cell(value) for value in row.values()] for row in answer.to_pylist()]
    widths = [max(map(len, column)) for column in zip(answer.column_names, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [answer.column_names, *rows]
    )


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-" if value is None else "''" if value == "" else str(value)
