"""Every view gives the same rows in Spark and in DuckDB, on the golden log of a broker whose every request is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from groupcoord_spark.warehouse import TABLES, open_warehouse
from groupcoord_spark.warehouse.views import VIEWS
from tests.conftest import GOLDEN
from tests.running import run

CLUSTER = "sample"


def tables(warehouse: Path) -> dict[str, pa.Table]:
    opened = open_warehouse(str(warehouse))
    return {name: opened.runs(CLUSTER) if name == "runs" else opened.read(name, cluster=CLUSTER) for name in TABLES}


@pytest.fixture(scope="module")
def vanished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    warehouse = tmp_path_factory.mktemp("alike") / "warehouse"
    read_at_ms = int((GOLDEN / "vanished" / "oracle" / "read_at_ms.txt").read_text().split()[0])
    run(spark, warehouse, GOLDEN / "vanished" / "logs", as_of_ms=read_at_ms, retention_ms=60_000)
    return tables(warehouse)


@pytest.fixture(scope="module")
def duck(vanished: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, rows in vanished.items():
        connection.register(name, rows)
    for view, query in VIEWS.items():
        connection.execute(f"CREATE VIEW {view} AS {query}")
    return connection


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession, vanished: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    place = tmp_path_factory.mktemp("tables")
    for name, rows in vanished.items():
        pq.write_table(rows, place / f"{name}.parquet")
        spark.read.parquet(str(place / f"{name}.parquet")).createOrReplaceTempView(name)
    for view, query in VIEWS.items():
        spark.sql(query).createOrReplaceTempView(view)
    yield spark
    for name in (*TABLES, *VIEWS):
        spark.catalog.dropTempView(name)


def texts(columns: list[str], types: dict[str, str]) -> str:
    """Columns as text that both engines write alike; lists and intervals are left out."""
    parts = []
    for column in columns:
        kind = types[column].upper()
        if kind.startswith("TIMESTAMP"):
            parts += [f"CAST(EXTRACT(HOUR FROM {column}) * 60 + EXTRACT(MINUTE FROM {column}) AS INT)"]
        elif kind in ("DOUBLE", "FLOAT") or kind.startswith("DECIMAL"):
            parts.append(f"ROUND(CAST({column} AS DOUBLE), 6)")
        elif "[" not in kind and not kind.startswith(("ARRAY", "INTERVAL", "STRUCT", "BLOB", "BINARY")):
            parts.append(column)
    return ", ".join(parts)


@pytest.mark.parametrize("view", list(VIEWS))
def test_a_view_has_the_same_rows_in_both_engines(view: str, duck: duckdb.DuckDBPyConnection, in_spark: SparkSession) -> None:
    types = {name: kind for name, kind, *_ in duck.execute(f"DESCRIBE {view}").fetchall()}
    selected = texts(list(types), types)
    in_duckdb = sorted(map(str, duck.execute(f"SELECT {selected} FROM {view}").fetchall()))
    assert in_spark.table(view).columns == list(types)
    assert sorted(str(tuple(row)) for row in in_spark.sql(f"SELECT {selected} FROM {view}").collect()) == in_duckdb
