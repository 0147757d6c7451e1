"""DuckDB in process, DuckDB over printed views and Spark over printed and published views give the rows of one run."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import jinja2
import pytest
import yaml
from pyspark.sql import SparkSession

from groupcoord_spark.errors import UsageError, WarehouseError
from groupcoord_spark.warehouse import TABLES, open_warehouse
from groupcoord_spark.warehouse.sql import SnapshotInDuckDB, names_in, publish, view_statements
from groupcoord_spark.warehouse.view_texts import VIEWS
from tests.conftest import SampleWarehouse
from tests.running import tables_of
from tests.test_documentation import ROOT
from tests.warehouse.nights import AS_OF_MS, DAY_MS, few_tables, few_views, group, night, offset

QUERIES = (
    "SELECT cluster, group_id, group_type, state, offset_count FROM groups",
    "SELECT state, COUNT(*) AS n, SUM(member_count) AS members FROM groups GROUP BY state",
    "SELECT group_id, topic, partition, committed_offset FROM committed_offsets WHERE topic = 'orders'",
    "SELECT group_id, MAX(committed_offset) AS highest, COUNT(DISTINCT topic) AS topics FROM committed_offsets GROUP BY group_id",
    "SELECT rule, blocked_by, COUNT(*) AS n FROM offset_expirations GROUP BY rule, blocked_by",
    "SELECT group_id, COUNT(*) AS n FROM groups JOIN committed_offsets USING (cluster, group_id) GROUP BY group_id",
    "SELECT group_id, topic, what, never_because, offsets FROM expiring",
    "SELECT topic, CAST(day AS DATE) AS day, SUM(offsets) AS offsets FROM expiring WHERE what = 'offsets' GROUP BY topic, day",
    "SELECT group_id, transaction_result, COUNT(*) AS n FROM offset_commits_resolved GROUP BY group_id, transaction_result",
    "SELECT group_id, CAST(day AS DATE) AS day, rebalances, members_joined, by_joining FROM rebalance_rate",
    "SELECT kind, cause, SUM(partitions_moved) AS moved FROM rebalances GROUP BY kind, cause",
    "SELECT client_id, COUNT(*) AS n FROM members LEFT JOIN assignments USING (cluster, group_id, member_id) GROUP BY client_id",
    "SELECT topic, COUNT(*) AS n FROM assignments GROUP BY topic HAVING COUNT(*) > 1",
    "SELECT group_id, ROW_NUMBER() OVER (ORDER BY offset_count DESC, group_id) AS place FROM groups",
    "SELECT group_id FROM groups WHERE group_id NOT IN (SELECT group_id FROM committed_offsets)",
    "SELECT group_id, COALESCE(metadata, '-') AS metadata FROM offset_commits WHERE is_tombstone = FALSE AND committed_offset > 3",
    "SELECT CASE WHEN group_id LIKE 'app-%' THEN 'app' ELSE 'other' END AS family, COUNT(*) AS n FROM groups GROUP BY 1",
    "SELECT offsets_partition, records, decoded, quarantined, live_keys FROM offsets_partitions",
    "SELECT kind, semantics, records_read, table_versions['groups'] IS NOT NULL AS has_groups FROM runs",
)


@pytest.fixture
def two_nights(tmp_path: Path) -> str:
    """Provide the cluster prod with two runs, and the cluster it's with one."""
    place = str(tmp_path / "w")
    night(place, "prod", {"groups": [group("early")]}, as_of_ms=AS_OF_MS)
    second = {"groups": [group("a"), group("b")], "committed_offsets": [offset("a", "orders", 0, 7)]}
    night(place, "prod", second, as_of_ms=AS_OF_MS + DAY_MS)
    night(place, "it's", {"groups": [group("c")]}, as_of_ms=AS_OF_MS)
    return place


def rows(night_in_duckdb: SnapshotInDuckDB, query: str) -> list[tuple[object, ...]]:
    found = night_in_duckdb.rows(query)
    # DuckDB's sums of integers are decimals without a fraction.
    columns = [[int(value) if isinstance(value, Decimal) else value for value in column.to_pylist()] for column in found.columns]
    return sorted(zip(*columns, strict=True), key=repr)


def with_views(place: str, **run_of: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for statement in view_statements("duckdb", open_warehouse(place), **run_of):  # type: ignore[arg-type]
        connection.execute(statement)
    return connection


def in_views(place: str, query: str, **run_of: int) -> list[tuple[object, ...]]:
    return sorted(with_views(place, **run_of).execute(query).fetchall())


def test_every_cluster_has_the_rows_of_its_own_newest_night(two_nights: str) -> None:
    opened = SnapshotInDuckDB(open_warehouse(two_nights))
    query = "SELECT cluster, group_id FROM groups"
    assert rows(opened, query) == in_views(two_nights, query) == [("it's", "c"), ("prod", "a"), ("prod", "b")]


def test_no_bar_is_drawn_between_the_rows(two_nights: str) -> None:
    # A statement of more than two seconds drew one on stdout, so JSON and CSV could not be read.
    opened = SnapshotInDuckDB(open_warehouse(two_nights))
    assert opened.connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]


def test_an_earlier_night_is_pinned_with_the_runs_until_then(two_nights: str) -> None:
    opened = SnapshotInDuckDB(open_warehouse(two_nights), cluster="prod", at_ms=AS_OF_MS)
    assert rows(opened, "SELECT group_id FROM groups") == [("early",)]
    assert rows(opened, "SELECT COUNT(*) FROM runs") == [(1,)]
    for query, expected in (("SELECT group_id FROM groups WHERE cluster = 'prod'", ("early",)), ("SELECT COUNT(*) FROM runs", (2,))):
        assert in_views(two_nights, query, at_ms=AS_OF_MS) == [expected]


def test_each_table_is_the_one_that_readers_of_the_warehouse_get(sample_warehouse: SampleWarehouse) -> None:
    place = str(sample_warehouse.path)
    opened = SnapshotInDuckDB(open_warehouse(place))
    expected, views = tables_of(Path(place), but=()), with_views(place)
    for table in TABLES:
        query = f"SELECT COUNT(*) FROM {table}"
        assert rows(opened, query) == [(len(expected[table]),)] == views.execute(query).fetchall()


@pytest.fixture
def published(spark_with_delta: SparkSession, sample_warehouse: SampleWarehouse) -> Iterator[SparkSession]:
    """Provide a session whose database is the one where the run of the sample is published: the tables and views of ``QUERIES``.

    tests/test_documentation.py has Spark read every table of it.
    """
    views = [name for name in names_in(" ".join(QUERIES)) if name in VIEWS]
    assert views == ["offset_commits_resolved", "expiring", "rebalance_rate"]
    tables = [name for name in names_in(" ".join([*QUERIES, *map(VIEWS.__getitem__, views)])) if name in TABLES]
    with few_tables(tables), few_views(views):
        published = publish(spark_with_delta, open_warehouse(str(sample_warehouse.path)), "spark_catalog.published_night")
    assert published == [*tables, *views]
    assert spark_with_delta.catalog.currentDatabase() == "default"
    spark_with_delta.sql("USE spark_catalog.published_night")
    yield spark_with_delta
    spark_with_delta.sql("USE default")
    spark_with_delta.sql("DROP DATABASE published_night CASCADE")


def test_spark_gives_the_same_rows_over_published_views(published: SparkSession, sample_warehouse: SampleWarehouse) -> None:
    opened = SnapshotInDuckDB(open_warehouse(str(sample_warehouse.path)))
    for query in QUERIES:
        of_spark = [tuple(row) for row in published.sql(query).collect()]
        assert sorted(map(repr, of_spark)) == sorted(map(repr, rows(opened, query))), query


def test_the_source_and_the_model_of_dbt_are_about_tables_that_exist(sample_warehouse: SampleWarehouse) -> None:
    folder = ROOT / "conf" / "dbt"
    declared = yaml.safe_load((folder / "groupcoord.yml").read_text(encoding="utf-8"))
    (source,), (model,) = declared["sources"], declared["models"]
    opened = SnapshotInDuckDB(open_warehouse(str(sample_warehouse.path)))
    for table in source["tables"]:
        names = [*(column["name"] for column in table.get("columns", [])), *([table["loaded_at_field"]] if "freshness" in table else [])]
        opened.rows(f"SELECT {', '.join(names) or '*'} FROM {table['name']} LIMIT 1")
    text = (folder / f"{model['name']}.sql").read_text(encoding="utf-8")
    tables = {table["name"] for table in source["tables"]}
    asked: list[tuple[str, str]] = []
    query = jinja2.Template(text).render(source=lambda name, table: asked.append((name, table)) or table)
    assert {name for name, _ in asked} == {source["name"]} and {table for _, table in asked} <= tables
    names, found = [column["name"] for column in model["columns"]], opened.rows(query)
    assert set(names) <= set(found.column_names) and found.num_rows


def test_trino_reads_registered_tables_at_their_versions(two_nights: str) -> None:
    statements = list(view_statements("trino", open_warehouse(two_nights), cluster="prod"))
    versions = open_warehouse(two_nights).run("prod").table_versions
    groups = next(statement for statement in statements if statement.startswith("CREATE OR REPLACE VIEW groups AS"))
    assert groups.endswith(f"FROM delta.groupcoord_tables.groups FOR VERSION AS OF {versions['groups']} WHERE cluster = 'prod'")
    assert any(statement.startswith("CALL delta.system.register_table") and "'groups'" in statement for statement in statements)


def test_a_statement_that_duckdb_refuses_is_a_usage_error_in_its_words(two_nights: str) -> None:
    opened = SnapshotInDuckDB(open_warehouse(two_nights))
    with pytest.raises(UsageError, match="nothing does not exist"):
        opened.rows("SELECT * FROM nothing")
    with pytest.raises(UsageError, match="syntax error"):
        opened.statements("SELEC 1")


def test_a_file_that_is_gone_is_named(two_nights: str) -> None:
    opened = SnapshotInDuckDB(open_warehouse(two_nights))
    for file in Path(two_nights, "groups").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(WarehouseError, match="is gone"):
        opened.rows("SELECT * FROM groups")
