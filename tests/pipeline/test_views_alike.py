"""Every view gives the same rows in Spark and in DuckDB, on the golden log of a broker whose every request is known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from groupcoord_spark.warehouse import TABLES, open_warehouse, view_texts
from groupcoord_spark.warehouse.view_texts import VIEWS
from tests.conftest import GOLDEN, SampleWarehouse
from tests.local_session import LocalSession
from tests.running import run
from tests.shown_rows import connect, shown_rows
from tests.warehouse.view_rows import odd_rows

CLUSTER = "sample"
LARGEST_PLAN = 450
"""Operators of the largest optimized plan of a view in Spark, which copies a step for each step that reads it: 374 of topic_recreated."""
AFTER_THE_NIGHTS_MS = 1_795_305_600_000  # 2026-11-22T00:00:00Z


def tables(warehouse: Path) -> dict[str, pa.Table]:
    opened = open_warehouse(str(warehouse))
    return {name: opened.runs(CLUSTER) if name == "runs" else opened.read(name, cluster=CLUSTER) for name in TABLES}


@pytest.fixture(scope="module")
def vanished(vanished_warehouse: Path) -> dict[str, pa.Table]:
    return tables(vanished_warehouse)


@pytest.fixture(scope="module")
def both_clusters(vanished: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Provide the tables with the rows of a second cluster, whose log is odd."""
    tables = dict(vanished)
    for name, odd in odd_rows().items():
        rows = TABLES[name].from_rows([{"cluster": "odd", **row} for row in odd])
        tables[name] = pa.concat_tables([vanished[name], rows.select(vanished[name].column_names).cast(vanished[name].schema)])
    return tables


@pytest.fixture(scope="module")
def both_in_duckdb(both_clusters: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, rows in both_clusters.items():
        connection.register(name, rows)
    for view, query in VIEWS.items():
        connection.execute(f"CREATE VIEW {view} AS {query}")
    return connection


@pytest.fixture(scope="module")
def duck(vanished_warehouse: Path) -> duckdb.DuckDBPyConnection:
    return connect(vanished_warehouse, CLUSTER)


@pytest.fixture(scope="module")
def sample(sample_warehouse: SampleWarehouse) -> duckdb.DuckDBPyConnection:
    return connect(sample_warehouse.path, "sample")


@pytest.fixture(scope="module")
def nights(five_nights: Path) -> duckdb.DuckDBPyConnection:
    return connect(five_nights, "nights")


@pytest.fixture(scope="module")
def clusters(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """Two clusters in one warehouse: the same groups were at work in one after the other."""
    warehouse = tmp_path_factory.mktemp("clusters") / "warehouse"
    for cluster, corpus in (("old", "codec-gzip"), ("new", "codec-lz4")):
        run(local, warehouse, GOLDEN / corpus / "logs", cluster=cluster, as_of_ms=AFTER_THE_NIGHTS_MS)
    return connect(warehouse, None)


class InSpark(NamedTuple):
    """What Spark gives for each view. operators: those of its optimized plan, with the operators of the views that it reads."""

    rows: dict[str, pa.Table]
    operators: dict[str, int]


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """In one task, so that most views need no shuffle: its stages took more CPU than the rows."""
    # Spark takes no column without a chunk.
    arrays = rows if rows.num_rows else pa.table([pa.array([], f.type) for f in rows.schema], schema=rows.schema)
    return spark.createDataFrame(arrays).coalesce(1)


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession, both_clusters: dict[str, pa.Table]) -> InSpark:
    """Have each view read the rows of the views before it: Spark would repeat their plans in every view above them."""
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set("spark.sql.optimizer.excludedRules", "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation")
    for name, rows in both_clusters.items():
        frame_of(spark, rows).createOrReplaceTempView(name)
    found = InSpark({}, {})
    view_of_columns: dict[tuple[str, ...], str] = {}
    for view, query in VIEWS.items():
        rows_of_view = spark.sql(view_texts.in_spark(query))
        plan = rows_of_view._jdf.queryExecution().optimizedPlan()
        leaves = [plan.collectLeaves().apply(number) for number in range(plan.collectLeaves().size())]
        views_read = (view_of_columns.get(tuple(leaf.schema().fieldNames())) for leaf in leaves)
        own = sum("Repartition 1" not in line for line in plan.toString().splitlines())  # without the coalesce(1) of frame_of
        found.operators[view] = own + sum(found.operators[read] - 1 for read in views_read if read)
        assert tuple(rows_of_view.columns) not in view_of_columns
        view_of_columns[tuple(rows_of_view.columns)] = view
        found.rows[view] = rows_of_view.toArrow()
        frame_of(spark, found.rows[view]).createOrReplaceTempView(view)
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    spark.conf.unset("spark.sql.optimizer.excludedRules")
    for name in (*TABLES, *VIEWS):
        spark.catalog.dropTempView(name)
    return found


def comparable(types: dict[str, str]) -> str:
    """Return the columns whose values both engines hold equally; lists and intervals are left out."""
    parts = []
    for column, kind in types.items():
        if kind.startswith("TIMESTAMP"):
            parts.append(f"EPOCH_US({column})")
        elif kind in ("DOUBLE", "FLOAT") or kind.startswith("DECIMAL"):
            parts.append(f"ROUND(CAST({column} AS DOUBLE), 6)")
        elif "[" not in kind and not kind.startswith(("INTERVAL", "STRUCT", "BLOB")):
            parts.append(column)
    return ", ".join(parts)


@pytest.mark.parametrize("view", list(VIEWS))
def test_a_view_has_the_same_rows_in_both_engines(view: str, both_in_duckdb: duckdb.DuckDBPyConnection, in_spark: InSpark) -> None:
    types = {name: kind for name, kind, *_ in both_in_duckdb.execute(f"DESCRIBE {view}").fetchall()}
    in_duckdb = sorted(map(str, both_in_duckdb.view(view).project(comparable(types)).fetchall()))
    assert in_duckdb
    assert in_spark.rows[view].column_names == list(types)
    assert sorted(map(str, both_in_duckdb.from_arrow(in_spark.rows[view]).project(comparable(types)).fetchall())) == in_duckdb
    assert in_spark.operators[view] < LARGEST_PLAN


def test_rewinds_of_the_nights_are_the_three_that_were_made(nights: duckdb.DuckDBPyConnection) -> None:
    # A tool set audit-za back and export-in; pricing was set back by its only member, and loyalty began again after its removal.
    columns = "group_id, topic, partition, from_committed_offset, to_committed_offset, kind"
    assert sorted(nights.execute(f"SELECT {columns} FROM rewinds").fetchall()) == [
        ("audit-za", "orders", 0, 60, 3, "reset"),
        ("export-in", "orders", 1, 1021, 5, "reset"),
        ("loyalty", "payments", 0, 700, 10, "restarted_after_removal"),
        ("loyalty", "payments", 1, 701, 11, "restarted_after_removal"),
        ("pricing", "orders", 1, 1801, 7, "seek"),
    ]


PAGE = (GOLDEN.parents[1] / "docs" / "reference" / "views.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("view", list(SECTIONS))
def test_the_page_of_a_view_shows_its_columns(view: str, duck: duckdb.DuckDBPyConnection) -> None:
    columns = [name for name, *_ in duck.execute(f"DESCRIBE {view}").fetchall()]
    paragraph = SECTIONS[view].partition("\nColumns: ")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", paragraph) == columns


@pytest.mark.parametrize("view", [view for view, text in SECTIONS.items() if "```text" in text])
def test_the_example_of_a_view_is_what_the_query_gives(
    view: str,
    duck: duckdb.DuckDBPyConnection,
    nights: duckdb.DuckDBPyConnection,
    clusters: duckdb.DuckDBPyConnection,
    sample: duckdb.DuckDBPyConnection,
) -> None:
    where, _, example = SECTIONS[view].partition("```text\n")
    query, _, rows = example.partition("\n```")[0].partition("\n\n")
    if "On the sample:" in where:
        connection = sample
    elif "On two clusters" in where:
        connection = clusters
    else:
        connection = nights if "tests/golden/nights" in where else duck
    assert shown_rows(connection, query) == rows


def test_a_night_stores_the_log_ends_that_it_was_given(duck: duckdb.DuckDBPyConnection) -> None:
    ends = duck.execute("SELECT topic, partition, end_offset, start_offset FROM log_ends ORDER BY topic, partition").fetchall()
    assert ends == [("orders", 0, 900, None), ("orders", 1, 600, None), ("payments", 0, 2_000, None)]
    lags = duck.execute("SELECT partition, committed_offset, lag FROM lag WHERE group_id = 'van-downgraded' ORDER BY partition").fetchall()
    assert lags == [(0, 821, 79), (1, 822, -222), (2, 823, None)]
    assert duck.execute("SELECT lag FROM lag_history WHERE group_id = 'van-downgraded' ORDER BY partition").fetchall() == [(79,), (-222,)]
