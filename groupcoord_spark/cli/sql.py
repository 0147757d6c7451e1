"""``groupcoord sql``: questions in SQL to the tables and views of one run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli.options import Common, Output, ShownRun, command, common_options, shown_run_options
from groupcoord_spark.cli.render import JsonText, lines_or_blocks, moment, print_exactly, print_lines, say, terminal_json, write_records
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

    from groupcoord_spark.warehouse.sql import Engine, SnapshotInDuckDB

PROMPT, PROMPT_OF_MORE = "sql> ", "...> "


@command(epilog='Example: groupcoord sql "SELECT state, COUNT(*) AS groups FROM groups GROUP BY state"')
@click.argument("statements", metavar="[SQL]", required=False)
@click.option(
    "--print-views",
    "engine",
    type=click.Choice(["spark", "duckdb", "trino"]),
    help="Print CREATE VIEW statements, pinned to the run, to run in that engine.",
)
@click.option("--limit", "most_rows", type=click.IntRange(1), metavar="N", help="At most N rows of each statement.")
@click.option(
    "--sandbox", is_flag=True, help="Accept one SELECT over the tables and views, for statements of strangers: no files, bounded memory."
)
@shown_run_options
@common_options
def sql(common: Common, statements: str | None, engine: Engine | None, most_rows: int | None, sandbox: bool, shown_run: ShownRun) -> None:
    """Run SQL over the tables and views of a run with DuckDB.

    Without SQL the statements come from standard input; on a terminal a prompt reads them, each up to its semicolon. Without --cluster the
    tables have the rows of every cluster, each as of its own newest run. DESCRIBE TABLE and SHOW TABLES list the tables.
    """
    from groupcoord_spark.warehouse.read import open_warehouse
    from groupcoord_spark.warehouse.sql import SnapshotInDuckDB, view_statements

    warehouse = open_warehouse(common.warehouse)
    if engine is not None:
        if statements is not None:
            raise UsageError("--print-views prints statements and runs none. Leave the SQL or the option out.")
        if shown_run.run_id is not None or shown_run.look_back:
            raise UsageError("--print-views prints views of runs. Leave --run and --look-back out.")
        for view in view_statements(engine, warehouse, cluster=common.cluster, at_ms=shown_run.at_ms):
            print_exactly(f"{view};\n\n")
        return
    run = common.run(shown_run, is_said=False)[1] if shown_run.run_id is not None or shown_run.look_back else None
    snapshot = SnapshotInDuckDB(warehouse, cluster=common.cluster, at_ms=shown_run.at_ms, run=run)
    if sandbox:
        snapshot.restrict()
    if statements is None and sys.stdin.isatty():
        for typed in _typed_statements():
            try:
                _run(snapshot, typed, common, most_rows)
            except GroupcoordError as error:
                say(f"Error: {error}")
        return
    _run(snapshot, sys.stdin.read() if statements is None else statements, common, most_rows)


def _typed_statements() -> Iterator[str]:
    """Yield the statements that the user types, each up to its semicolon, until end of input, ``exit`` or ``quit``."""
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


def _run(snapshot: SnapshotInDuckDB, statements: str, common: Common, most_rows: int | None) -> None:
    """Run statements and print the rows of each. Raises UsageError if DuckDB rejects one."""
    for statement in snapshot.statements(statements):
        print_rows(snapshot, statement, common.output, most_rows=most_rows)


def print_rows(
    snapshot: SnapshotInDuckDB, statement: str, output: Output, *, most_rows: int | None = None, most_characters: int | None = None
) -> None:
    """Run a statement and print its rows.

    Args:
        most_characters: Longer values are cut before they leave DuckDB, and say so; None: values are whole.

    Raises:
        UsageError: DuckDB refuses the statement.
    """
    read = snapshot.read(statement, lambda result: _fetched(result, most_rows, most_characters))
    if read is None:
        return
    names, kinds, rows = read
    if cut := sum(_is_cut(value, most_characters) for row in rows for value in row):
        say(f"{counted(cut, 'value')} cut to {most_characters:,} characters: each ends with its length.")
    cells = [
        [value if _is_cut(value, most_characters) else _cell(value, kind, output) for value, kind in zip(row, kinds, strict=True)]
        for row in rows
    ]
    if output == "table":
        print_lines(lines_or_blocks([name.upper() for name in names], cells))
    else:
        write_records(output, _unique(names) if output == "json" else names, cells)


def _fetched(
    result: DuckDBPyRelation, most_rows: int | None, most_characters: int | None
) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
    """Return the names, the kinds and the values of the columns of a statement."""
    kinds = [_KINDS.get(str(kind.id), "text") for kind in result.types]
    columns = [_expression(f"#{number}", kind, most_characters) for number, kind in enumerate(kinds, 1)]
    limited = result if most_rows is None else result.limit(most_rows)
    return result.columns, kinds, limited.project(", ".join(columns)).fetchall()


def _expression(column: str, kind: str, most_characters: int | None) -> str:
    """Return the SQL that makes DuckDB write a column as numbers, booleans or texts that Python can represent."""
    if kind == "plain":
        return column
    text = _TEXTS[kind].format(column)
    if most_characters is None or kind == "time":
        return text
    cut = f"left({text}, {most_characters}) || '{_CUT}' || length({text})"
    return f"CASE WHEN length({text}) > {most_characters} THEN {cut} ELSE {text} END"


_CUT: Final = "… cut, characters: "
_PLAIN: Final = ("boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", "float", "double")
_KINDS: Final = {
    **dict.fromkeys(_PLAIN, "plain"),
    **dict.fromkeys(("decimal", "hugeint", "uhugeint", "bignum"), "number"),
    **dict.fromkeys(("list", "array", "struct", "tuple", "map", "union", "variant"), "nested"),
    **dict.fromkeys(("timestamp", "timestamp with time zone"), "time"),
    "blob": "bytes",
}
"""Type of DuckDB -> how its values are read. Every other type, for example INTERVAL, TIME and UUID, is read as DuckDB's text."""
_TEXTS: Final = {
    "number": "CAST({0} AS VARCHAR)",
    "text": "CAST({0} AS VARCHAR)",
    "nested": "CAST(to_json({0}) AS VARCHAR)",
    "bytes": "lower(hex({0}))",
    "time": "CASE WHEN {0} BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999' THEN CAST(epoch_ms({0}) AS VARCHAR)"
    " ELSE CAST({0} AS VARCHAR) END",
}


def _is_cut(value: Any, most_characters: int | None) -> bool:
    return most_characters is not None and isinstance(value, str) and len(value) > most_characters


def _cell(value: Any, kind: str, output: Output) -> Any:
    """Return a value as a cell of the output: times as ISO 8601 in UTC, lists and structs as JSON."""
    match kind, value:
        case _, None:
            return None
        case "plain", float() if not isfinite(value):
            return {inf: "Infinity", -inf: "-Infinity"}.get(value, "NaN")
        case "plain", bool() if output == "table":
            return "true" if value else "false"
        case "time", str():
            return moment(int(value)) if value.lstrip("-").isdigit() else value  # a year that ISO 8601 lacks
        case (("number" | "nested"), str()) if output != "table":
            return _json(value, kind, output)
        case "nested", str():
            return terminal_json(value)
    return value


def _json(text: str, kind: str, output: Output) -> Any:
    """Return DuckDB's JSON of a value as JSON or as a cell of CSV. What JSON lacks is a text: NaN, Infinity."""
    if kind == "number":
        return JsonText(text) if output == "json" else text
    if output == "json" and "NaN" not in text and "Infinity" not in text:
        return JsonText(text)
    value = json.loads(text, parse_constant=str)
    return value if output == "csv" else JsonText(json.dumps(value, ensure_ascii=False))


def _unique(names: Sequence[str]) -> list[str]:
    """Return unique names: a second ``a`` becomes ``a_1``."""
    unique: list[str] = []
    for name in names:
        is_first, number = name not in unique, 0
        candidate = name
        while not is_first and candidate in {*names, *unique}:
            number += 1
            candidate = f"{name}_{number}"
        unique.append(candidate)
    return unique
