"""The view tombstone_causes against what really happened on a broker whose every request is known."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from groupcoord_spark.warehouse import TABLES, open_warehouse
from groupcoord_spark.warehouse.views import VIEWS
from tests.conftest import GOLDEN
from tests.running import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VANISHED = GOLDEN / "vanished"

CAUSES = {
    "expired_simple": "expiry",
    "expired_empty_group": "expiry",
    "expired_unsubscribed": "expiry",
    "expired_explicit": "expiry",
    "offset_delete": "offset_delete",
    "group_delete": "delete_groups",
    "topic_delete": "topic_deletion",
    "superseded_by_conversion": "conversion",
}


def in_duckdb(warehouse: Path, cluster: str) -> duckdb.DuckDBPyConnection:
    opened, connection = open_warehouse(str(warehouse)), duckdb.connect()
    for table in TABLES:
        connection.register(table, opened.runs(cluster) if table == "runs" else opened.read(table, cluster=cluster))
    for view, query in VIEWS.items():
        connection.execute(f"CREATE VIEW {view} AS {query}")
    return connection


@pytest.fixture(scope="module")
def vanished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    warehouse = tmp_path_factory.mktemp("vanished") / "warehouse"
    read_at_ms = int((VANISHED / "oracle" / "read_at_ms.txt").read_text().split()[0])
    run(spark, warehouse, VANISHED / "logs", as_of_ms=read_at_ms, retention_ms=60_000)
    return in_duckdb(warehouse, "sample")


def told() -> dict[tuple[int, int], dict[str, Any]]:
    """Offsets partition and record offset of each tombstone of an offset or a group, and what the corpus tells of it."""
    causes = json.loads((VANISHED / "oracle" / "causes.json").read_text(encoding="utf-8"))
    return {
        (record["partition"], record["offset"]): each
        for each in causes
        for record in each["records"]
        if "tombstone" in record["what"] and "member" not in record["what"]
    }


def test_every_tombstone_has_the_cause_it_really_had(vanished: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT offsets_partition, record_offset, topic, cause FROM tombstone_causes"
    found = {(partition, record): (topic, cause) for partition, record, topic, cause in vanished.execute(query).fetchall()}
    truth = told()
    assert found.keys() == truth.keys()
    wrong: Counter[tuple[str, str]] = Counter()
    for place, (topic, cause) in found.items():
        # A group whose last offset went in another way is removed by the next cleanup: that tombstone is the cleanup's own.
        real = "expiry" if topic is None and "the clean-up" in truth[place]["evidence"] else CAUSES[truth[place]["cause"]]
        wrong[real, cause] += cause != real
    assert +wrong == Counter()


def test_evidence_is_beside_the_cause(vanished: duckdb.DuckDBPyConnection) -> None:
    columns = "group_id, cause, value_offset, due_at <= record_timestamp, group_removed, groups_at_once, offsets_spared"
    query = f"SELECT {columns} FROM tombstone_causes WHERE topic = 'visits' OR group_id = 'van-groupdel-simple' AND partition = 0"
    assert sorted(vanished.execute(query).fetchall())[:2] == [
        ("van-groupdel-simple", "delete_groups", 39, False, True, None, None),
        ("van-live-consumer", "topic_deletion", 35, False, False, 3, 0),
    ]


def test_what_is_there_expires_when_it_really_did(vanished: duckdb.DuckDBPyConnection) -> None:
    """Offsets that the cleanup took were due at its time and not more than one interval (5 s) before."""
    query = "SELECT MIN(record_timestamp - due_at), MAX(record_timestamp - due_at) FROM tombstone_causes WHERE cause = 'expiry'"
    least, most = vanished.execute(query).fetchall()[0]
    assert 0 <= least.total_seconds() <= most.total_seconds() <= 5.1
