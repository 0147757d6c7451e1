"""``groupcoord sql``: questions in SQL to the tables and views of one night."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from groupcoord_spark.cli.options import Common, at_option, command, common_options
from groupcoord_spark.cli.render import lines_or_blocks, moment, print_lines, say, terminal_json, write_records
from groupcoord_spark.errors import GroupcoordError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from groupcoord_spark.moments import NightTime
    from groupcoord_spark.warehouse.sql import Engine, NightInDuckDB

PROMPT, PROMPT_OF_MORE = "sql> ", "...> "


@command(epilog='Example: groupcoord sql "SELECT state, COUNT(*) AS groups FROM groups GROUP BY state"')
@click.argument("statements", metavar="[SQL]", required=False)
@click.option(
    "--print-views",
    "engine",
    type=click.Choice(["spark", "duckdb", "trino"]),
    help="Print CREATE VIEW statements, pinned to the night, to run in that engine.",
)
@click.option("--limit", "most_rows", type=click.IntRange(1), metavar="N", help="At most N rows of each statement.")
@click.option(
    "--sandbox", is_flag=True, help="For statements of strangers: only those that give rows of the night; no files, and 2 GB of memory."
)
@at_option
@common_options
def sql(
    common: Common, statements: str | None, engine: Engine | None, most_rows: int | None, sandbox: bool, at_ms: NightTime | None
) -> None:
    """The rows of a SQL statement over the tables and views of a night, by DuckDB.

    Without SQL the statements come from standard input; on a terminal a prompt reads them, each up to its semicolon. Without --cluster the
    tables have the rows of every cluster, each as of its own newest night. DESCRIBE TABLE and SHOW TABLES tell what there is.
    """
    from groupcoord_spark.warehouse.read import open_warehouse
    from groupcoord_spark.warehouse.sql import NightInDuckDB, view_statements

    warehouse = open_warehouse(common.warehouse)
    if engine is not None:
        if statements is not None:
            raise UsageError("--print-views prints statements and runs none. Leave the SQL or the option out.")
        print_lines(f"{statement};\n" for statement in view_statements(engine, warehouse, cluster=common.cluster, at_ms=at_ms))
        return
    night = NightInDuckDB(warehouse, cluster=common.cluster, at_ms=at_ms)
    if sandbox:
        night.restrict()
    if statements is None and sys.stdin.isatty():
        for typed in _typed_statements():
            try:
                _run(night, typed, common, most_rows)
            except GroupcoordError as error:
                say(f"Error: {error}")
        return
    _run(night, sys.stdin.read() if statements is None else statements, common, most_rows)


def _typed_statements() -> Iterator[str]:
    """The statements that the user types, each up to its semicolon, until the end of the input, ``exit`` or ``quit``."""
    with suppress(ImportError):  # input() edits lines with it, where Python has it
        import_module("readline")
    so_far: list[str] = []
    while True:
        try:
            line = input(PROMPT_OF_MORE if so_far else PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            say("")
            so_far = []
            continue
        if not so_far and line.strip().rstrip(";").lower() in ("exit", "quit", ""):
            if line.strip():
                return
            continue
        so_far.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(so_far)
            so_far = []


def _run(night: NightInDuckDB, statements: str, common: Common, most_rows: int | None) -> None:
    """Run statements and print the rows of each. Raises UsageError for one that DuckDB refuses."""
    for statement in night.statements(statements):
        rows = night.execute(statement, most_rows)
        if rows is None:
            continue
        names = rows.column_names
        cells = zip(*(_values(column) for column in rows.columns), strict=True)
        if common.output == "table":
            print_lines(lines_or_blocks([name.upper() for name in names], [[_text(value) for value in row] for row in cells]))
        else:
            write_records(common.output, names, cells)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as JSON has them: times as ISO 8601 in UTC, bytes as hexadecimal digits."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        per_millisecond = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]
        return [None if value is None else moment(int(value // per_millisecond)) for value in column.cast(pa.int64()).to_pylist()]
    return [_plain(value) for value in column.to_pylist(maps_as_pydicts="lossy")]


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | timedelta():
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case dict():
            return {name: _plain(element) for name, element in value.items()}
        case list():
            return [_plain(element) for element in value]
        case _:
            return value


def _text(value: Any) -> Any:
    """A value as a cell for people: lists and structs as JSON, truth values as SQL writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return terminal_json(json.dumps(value, ensure_ascii=False)) if isinstance(value, list | dict) else value
