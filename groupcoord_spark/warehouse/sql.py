"""One run in any SQL engine: the tables and views in DuckDB, and the CREATE VIEW statements for Spark, DuckDB and Trino.

Every statement pins the run: it names the version of the table that the row of ``runs`` names, so later runs do not change what it gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from groupcoord_spark.errors import UsageError, WarehouseError
from groupcoord_spark.storage import page_checksums
from groupcoord_spark.storage.warehouse_location import WarehouseLocation
from groupcoord_spark.warehouse import sandbox
from groupcoord_spark.warehouse.declaration import Column, Table, no_rows
from groupcoord_spark.warehouse.open_table import OpenTable, unreadable
from groupcoord_spark.warehouse.tables import RUNS, TABLES
from groupcoord_spark.warehouse.view_texts import VIEWS, in_spark
from groupcoord_spark.wording import command_line

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import SparkSession

    from groupcoord_spark.moments import RunTime
    from groupcoord_spark.warehouse.read import Run, Warehouse

Rows = TypeVar("Rows")
Engine = Literal["spark", "duckdb", "trino"]

TRINO_CATALOG: Final = "delta"
TRINO_TABLES: Final = "groupcoord_tables"
TRINO_VIEWS: Final = "groupcoord"

_REPEATED: Final = frozenset(
    {
        *("cluster", "group_id", "topic", "topic_id", "run_id", "member_id", "client_id", "client_host", "metadata", "kind", "cause"),
        *("certainty", "confidence", "rule", "evidence", "group_type", "leader_id", "previous_leader_id", "protocol", "previous_protocol"),
    }
)
"""Columns with few different texts. DuckDB gets them as dictionaries: to copy the text of every row takes most of the time of a view."""
_CHECKED: Final = ds.ParquetFileFormat(
    dictionary_columns=_REPEATED, default_fragment_scan_options=ds.ParquetFragmentScanOptions(**page_checksums.VERIFIED)
)

_CONSTANT: Final = re.compile(r"/\* constant \*/ \(((?:[^()]|\([^()]*\))*)\)")
"""A subquery of a view that often gives few values. pyarrow leaves out files and row groups by constants alone, so it is asked before.
It may name the first common table expression of the view."""
_FIRST_EXPRESSION: Final = re.compile(r"(?:--[^\n]*\n)*WITH .*?\n\)", re.DOTALL)
_MOST_CONSTANTS: Final = 1000
_DAMAGED: Final = re.compile(r"reading the stream registered as '(\w+)' failed: (.*)")
"""DuckDB's words for a file of a table that pyarrow cannot read."""


_CHANGES: Final = frozenset({"ALTER", "DELETE", "DROP", "INSERT", "UPDATE"})
"""Kinds of statements that change what they name."""
_REPLACES: Final = re.compile(r'\bcreate\s+or\s+replace\s+(?:temp\w*\s+)?(?:view|table)\s+(?:\w+\.)*"?(\w+)', re.IGNORECASE)
"""A statement that puts a table or view in the place of one of that name."""
_WITHOUT_ROWS: Final = frozenset({*_CHANGES, "ATTACH", "COPY", "CREATE", "DETACH", "LOAD", "TRANSACTION", "VARIABLE_SET", "SET"})
"""Kinds of statements whose only result is a row count or a word."""


class SnapshotInDuckDB:
    """A DuckDB connection with the tables and views of one run of each cluster. A table is opened when a statement first names it.

    The connection reads Parquet through pyarrow: only the columns and the row groups that a statement needs, from every file system that
    the warehouse can be on, and without an extension to download.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        *,
        cluster: str | None = None,
        at_ms: RunTime | None = None,
        run: Run | None = None,
        runs: Sequence[Run] = (),
    ) -> None:
        """cluster: its rows only; None: the rows of every cluster, each as of its own newest run. at_ms: as for ``Warehouse.read``.

        run: as of this run, which may be a point-in-time run, and of its cluster; ``cluster`` and ``at_ms`` then have no meaning. runs:
        the same for runs of different clusters. Raises WarehouseError if there is no such run.
        """
        import duckdb

        self.connection: DuckDBPyConnection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'UTC'")
        # For a statement of some seconds DuckDB draws a bar into the rows that a program reads. In Jupyter without ipywidgets it draws
        # no bar and refuses the setting.
        if self.connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
            self.connection.execute("SET enable_progress_bar = false")
        self._warehouse = warehouse
        self._runs = [run] if run is not None else list(runs) or runs_of_run(warehouse, cluster, at_ms)
        if len(self._runs) > 1:
            warehouse.open_together(self._runs)
        self._opened: set[str] = set()
        self._is_sandbox = False

    def restrict(self) -> None:
        """Accept only one SELECT over the tables and views from now on, without files and with bounded memory."""
        sandbox.restrict(self.connection)
        self._is_sandbox = True

    def statements(self, text: str) -> list[str]:
        """Split a text into its statements.

        Raises:
            UsageError: DuckDB cannot read the text, or it has several statements in a sandbox.
        """
        with self._refusals():
            statements = [statement.query for statement in self.connection.extract_statements(text)]
        if self._is_sandbox and len(statements) > 1:
            raise UsageError(f"With --sandbox one SELECT is run, and the text has {len(statements)} statements.")
        return statements

    def read(self, statement: str, fetch: Callable[[DuckDBPyRelation], Rows]) -> Rows | None:
        """Run a statement.

        A statement that names no table, for example SHOW TABLES, finds all of them.

        Args:
            fetch: Reads the rows of the statement.

        Returns:
            What ``fetch`` returns; None for a statement without rows.

        Raises:
            UsageError: The statement fails; the sentence has DuckDB's words.
        """
        with self._refusals(), sandbox.bounded_memory() if self._is_sandbox else nullcontext():
            if self._is_sandbox:
                sandbox.refuse_all_but_one_select(self.connection, statement)
            names = names_in(statement)
            parsed = self.connection.extract_statements(statement)[0]
            changed = names if parsed.type.name in _CHANGES else names_in(" ".join(_REPLACES.findall(statement)))
            if changed:
                raise UsageError(
                    f"{changed[0]} belongs to the run, and no statement changes a run."
                    " Make a table of your own under another name: CREATE TABLE mine AS SELECT ..."
                )
            for name in names or (*TABLES, *VIEWS):
                self._open(name)
            result = self.connection.sql(statement)
            if result is None or parsed.type.name in _WITHOUT_ROWS or result.columns == ["Success"]:
                return None
            return fetch(result)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn errors of DuckDB into errors of ours."""
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            if damaged := _DAMAGED.search(str(error)):
                raise unreadable(self._warehouse.location, TABLES[damaged[1]], damaged[2].rstrip(".")) from error
            raise UsageError(str(error).strip().expandtabs(4)) from None

    def rows(self, statement: str) -> pa.Table:
        """Return the rows of a statement. Raises UsageError with DuckDB's message if it fails or returns no rows."""
        rows = self.read(statement, lambda result: result.to_arrow_table())
        if rows is None:
            raise UsageError("The statement gives no rows.")
        return rows

    def keep(self, view: str) -> None:
        """Ask a view now, and let later statements and the views above it read its rows."""
        rows = self.rows(f"FROM {view}")
        self.connection.execute(f"DROP VIEW {view}")
        self.connection.register(view, rows)

    def _open(self, name: str) -> None:
        if name in self._opened:
            return
        self._opened.add(name)
        if name in VIEWS:
            for needed in names_in(VIEWS[name]):
                self._open(needed)
            self.connection.execute(f"CREATE VIEW {name} AS {_CONSTANT.sub(self._constant, VIEWS[name])}")
        elif name == RUNS.name:
            self.connection.register(name, self._warehouse.runs_until(self._runs))
        else:
            self.connection.register(name, dataset_of(self._warehouse, TABLES[name], self._runs))

    def _constant(self, found: re.Match[str]) -> str:
        """Return the texts or times that a subquery gives, as literals in brackets; the text that was found where they are many."""
        first = _FIRST_EXPRESSION.match(found.string)
        (column,) = self.connection.sql(f"{first[0] if first else ''} {found[1]}").to_arrow_table().columns
        if len(column) > _MOST_CONSTANTS:
            return found[0]
        time = "TIMESTAMPTZ " if pa.types.is_timestamp(column.type) else ""
        values = ["NULL" if value is None else time + text_literal(str(value)) for value in column.to_pylist()]
        return f"({', '.join(values) or 'SELECT NULL WHERE FALSE'})"


class Snapshot:
    """The tables and views of one run, as tables of Arrow: ``to_pandas()`` and ``spark.createDataFrame`` make frames of them."""

    def __init__(self, warehouse: Warehouse, run: Run) -> None:
        self.run = run
        self._warehouse = warehouse
        self._in_duckdb = SnapshotInDuckDB(warehouse, run=run)

    def __repr__(self) -> str:
        as_of = self.run.fields["as_of"].isoformat(timespec="seconds")
        return f"<Snapshot of cluster {self.run.cluster!r} as of {as_of}, run {self.run.run_id} of {self._warehouse.location.uri}>"

    def table(self, name: str) -> pa.Table:
        """Return the rows of a table. Raises UsageError if there is no such table."""
        if name not in TABLES:
            raise UsageError(f"There is no table {name!r}. There are: {', '.join(TABLES)}.")
        return self._warehouse.read(name, run=self.run)

    def view(self, name: str) -> pa.Table:
        """Return the rows of a view. Raises UsageError if there is no such view."""
        if name not in VIEWS:
            raise UsageError(f"There is no view {name!r}. There are: {', '.join(VIEWS)}.")
        return self.sql(f"SELECT * FROM {name}")

    def sql(self, statement: str) -> pa.Table:
        """Return the rows of a DuckDB statement. Raises UsageError with DuckDB's message if it fails or returns no rows."""
        return self._in_duckdb.rows(statement)


def names_in(text: str) -> list[str]:
    """Return the tables and views whose names occur as words of the text. Opening one needlessly costs little.

    DuckDB's own ``get_table_names`` does not help, because it rejects statements with unknown columns.
    """
    words = set(re.findall(r"\w+", text.lower()))
    return [name for name in (*TABLES, *VIEWS) if name in words]


def runs_of_run(warehouse: Warehouse, cluster: str | None, at_ms: RunTime | None) -> list[Run]:
    """Return the newest run, or the one at ``at_ms``, of one or each cluster. Raises WarehouseError if there is none."""
    if cluster is None and not warehouse.clusters_with_nightly_runs():
        raise WarehouseError(
            f"{warehouse.location.uri} holds no run yet. Run `{command_line('nightly', 'INPUT', warehouse=warehouse.location.uri)}` first."
        )
    return [warehouse.run(name, at_ms=at_ms) for name in ([cluster] if cluster is not None else warehouse.clusters_with_nightly_runs())]


def dataset_of(warehouse: Warehouse, table: Table, runs: Sequence[Run]) -> ds.Dataset | pa.Table:
    """Return the rows of these runs as a pyarrow dataset without reading files. A run without the table has no rows."""
    filesystem = warehouse.location.filesystem
    files = [
        _CHECKED.make_fragment(path, filesystem, ds.field("cluster") == run.cluster)
        for run in runs
        for path in _files(warehouse, table, run)
    ]
    if not files:
        return no_rows(table.arrow_schema)
    text = pa.dictionary(pa.int32(), pa.string())
    fields = [field.with_type(text) if field.name in _REPEATED and field.type == pa.string() else field for field in table.arrow_schema]
    return _FewAhead(files, pa.schema(fields), _CHECKED, filesystem)


class _FewAhead(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset that reads two batches of two files ahead.

    DuckDB takes batches more slowly than pyarrow reads them. By default pyarrow keeps up to 16 batches of four files for each scan, and a
    view over the history scans a table more than once. pyarrow's own pool also keeps memory that it no longer needs.
    """

    def scanner(self, **options: Any) -> ds.Scanner:
        """Return a scanner, as DuckDB asks for one."""
        return super().scanner(batch_readahead=2, fragment_readahead=2, memory_pool=pa.system_memory_pool(), **options)


def _files(warehouse: Warehouse, table: Table, run: Run) -> list[str]:
    """Return the paths of a run's files within the file system of the warehouse."""
    if table is not RUNS and table.name not in run.table_versions:
        return []
    opened = warehouse.opened(table, run)
    paths = opened.paths(run.cluster)
    for path in paths:
        with opened.checked(path):
            pass  # DuckDB would read NULL where a column has another name
    return paths


def view_statements(
    engine: Engine, warehouse: Warehouse, *, cluster: str | None = None, at_ms: RunTime | None = None, run: Run | None = None
) -> Iterator[str]:
    """Yield the statements that create a view for each table, pinned to a run, and each view over them, without final semicolons.

    Spark needs Delta on its class path. DuckDB reads the files of the run and needs no extension for a local warehouse. Trino needs a
    catalog ``delta`` with Delta Lake's connector, where ``delta.register-table-procedure.enabled`` is true. In Spark and Trino a column
    that a table did not have yet at the run is NULL.

    Args:
        cluster: its rows only; None: the rows of every cluster, each as of its own newest run.
        at_ms: the run, as for ``Warehouse.read``.
        run: as of this run, which may be a point-in-time run, and of its cluster; ``cluster`` and ``at_ms`` then have no meaning.

    Raises:
        WarehouseError: there is no such run.
    """
    if engine == "trino":
        yield f"CREATE SCHEMA IF NOT EXISTS {TRINO_CATALOG}.{TRINO_TABLES}"
        yield f"CREATE SCHEMA IF NOT EXISTS {TRINO_CATALOG}.{TRINO_VIEWS}"
        for name in TABLES:
            yield (
                f"CALL {TRINO_CATALOG}.system.register_table(schema_name => '{TRINO_TABLES}', table_name => '{name}',"
                f" table_location => {text_literal(warehouse.location.table_uri(name))})"
            )
        yield f"USE {TRINO_CATALOG}.{TRINO_VIEWS}"
    for name, query in view_queries(engine, warehouse, cluster=cluster, at_ms=at_ms, run=run):
        yield f"CREATE OR REPLACE VIEW {name} AS\n{query}"


def view_queries(
    engine: Engine, warehouse: Warehouse, *, cluster: str | None, at_ms: RunTime | None, run: Run | None
) -> Iterator[tuple[str, str]]:
    """Yield name and query of each view of ``view_statements``, in an order that satisfies their dependencies."""
    runs = [run] if run is not None else runs_of_run(warehouse, cluster, at_ms)
    for table in TABLES.values():
        yield table.name, "\nUNION ALL\n".join(_selects(engine, warehouse, table, runs))
    for name, query in VIEWS.items():
        yield name, in_spark(query) if engine == "spark" else query


def publish(spark: SparkSession, warehouse: Warehouse, database: str) -> list[str]:
    """Creates or replaces the views of the newest run of each cluster in a database of the session's metastore. Returns their names.

    database: ``database``, or ``catalog.schema``. It is created if it does not exist. The session needs Delta on its class path
    (``delta_settings``).
    Raises UsageError for a name that Spark does not take.
    """
    refuse_bad_database(database)
    current_database = f"`{spark.catalog.currentCatalog()}`.`{spark.catalog.currentDatabase()}`"
    quoted = ".".join(f"`{name}`" for name in database.split("."))
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted}")
    spark.sql(f"USE {quoted}")  # a view keeps the database that the names in its query are looked up in
    try:
        for statement in view_statements("spark", warehouse):
            spark.sql(statement)
    finally:
        spark.sql(f"USE {current_database}")
    return [*TABLES, *VIEWS]


def refuse_bad_database(database: str) -> None:
    """Raises UsageError for a name of a database that Spark does not take."""
    if not re.fullmatch(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?", database):
        raise UsageError(
            f"{database!r} is not a name of a database: Spark takes letters, digits and _. Write for example kafka_offsets, or with the"
            " catalog main.kafka_offsets."
        )


def _selects(engine: Engine, warehouse: Warehouse, table: Table, runs: Sequence[Run]) -> list[str]:
    """Return a SELECT for each run, or one without rows."""
    selects = []
    for run in runs:
        version = run.table_versions.get(table.name)
        if version is None and table is not RUNS:
            continue  # a run of a release that did not have the table yet
        pinned = "" if version is None else f" VERSION AS OF {version}"
        condition = f"cluster = {_spark_text(run.cluster) if engine == 'spark' else text_literal(run.cluster)}"
        if table is RUNS:  # no version of this table belongs to the run: the run has the runs up to its own
            kind = "TIMESTAMPTZ" if engine == "duckdb" else "TIMESTAMP"
            condition += f" AND finished_at <= {kind} '{_utc(run.finished_at_ms)}'"
        if engine == "spark":
            path = warehouse.location.table_uri(table.name).replace("`", "``")
            selects.append(f"SELECT {_columns(engine, warehouse.opened(table, run))} FROM delta.`{path}`{pinned} WHERE {condition}")
        elif engine == "trino":
            source = f"{TRINO_CATALOG}.{TRINO_TABLES}.{table.name}{' FOR' * bool(pinned)}{pinned}"
            selects.append(f"SELECT {_columns(engine, warehouse.opened(table, run))} FROM {source} WHERE {condition}")
        elif files := _files(warehouse, table, run):
            stored = ", ".join(f'"{name}"' for name in table.by_name if name != "cluster")
            listed = ", ".join(text_literal(_with_scheme(warehouse.location, file)) for file in files)
            source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
            selects.append(f"SELECT * FROM (SELECT {text_literal(run.cluster)} AS cluster, {stored} FROM {source}) WHERE {condition}")
    return selects or [f"SELECT {', '.join(_null(engine, column) for column in table.columns)} WHERE 1 = 0"]


def _columns(engine: Engine, opened: OpenTable) -> str:
    """Return the columns of the table, with NULL for those that a later release added to this version."""
    quote, stored = "`" if engine == "spark" else '"', opened.stored_columns
    return ", ".join(f"{quote}{c.name}{quote}" if c.name in stored else _null(engine, c) for c in opened.table.columns)


def _utc(milliseconds: int) -> str:
    """Format a time as a literal that all three engines accept."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime(f"%Y-%m-%d %H:%M:%S.{milliseconds % 1000:03d} UTC")


def _null(engine: Engine, column: Column) -> str:
    return f"CAST(NULL AS {_type(engine, column.sql_type)}) AS {column.name}"


def _type(engine: Engine, sql_type: str) -> str:
    if engine == "spark":
        return sql_type
    names = {
        "STRING": "VARCHAR",
        "BINARY": "VARBINARY" if engine == "trino" else "BLOB",
        "TIMESTAMP": "TIMESTAMP(6) WITH TIME ZONE" if engine == "trino" else "TIMESTAMPTZ",
        "INT": "INTEGER",
        "ARRAY<STRING>": "ARRAY(VARCHAR)" if engine == "trino" else "VARCHAR[]",
        "MAP<STRING, STRING>": "MAP(VARCHAR, VARCHAR)",
        "MAP<STRING, BIGINT>": "MAP(VARCHAR, BIGINT)",
        "ARRAY<STRUCT<column: STRING, milliseconds: BIGINT>>": 'ARRAY(ROW("column" VARCHAR, milliseconds BIGINT))'
        if engine == "trino"
        else 'STRUCT("column" VARCHAR, milliseconds BIGINT)[]',
    }
    return names.get(sql_type, sql_type)


def _with_scheme(location: WarehouseLocation, path: str) -> str:
    scheme, mark, _ = location.uri.partition("://")
    return f"{scheme}://{path}" if mark else path


def text_literal(text: str) -> str:
    """Return a text as a literal of DuckDB and Trino."""
    return "'" + text.replace("'", "''") + "'"


def _spark_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
