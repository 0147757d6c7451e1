"""The functions on DataFrames give the tables that a run over the same log writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from groupcoord_spark.coordinator.semantics import semantics_for
from groupcoord_spark.dataframes import expire, rebalances, replay
from groupcoord_spark.warehouse import TABLES, open_warehouse
from tests.conftest import DAY_MS
from tests.golden_answers import Corpus
from tests.running import AS_OF_MS, raw, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

JAVA_CORPORA = (
    *("classic-modern", "transactions", "kip848", "share", "streams", "vanished", "compacted", "connect", "convert", "expiry", "fuzz-1"),
)
SCALA_CORPORA = ("era-0.9", "era-2.3", "era-3.9")
STATE_TABLES = (
    *("committed_offsets", "pending_offsets", "orphan_offsets", "groups", "members", "assignments", "warnings", "quarantined_records"),
)
RULE_TABLES = ("offset_expirations", "group_expirations", "tombstones")


def assert_equal(frame: DataFrame, warehouse: Path, table: str) -> None:
    """Check that the frame has the columns and rows of the run's table, without the run's id."""
    stored = open_warehouse(str(warehouse)).read(table)
    expected = stored.select([name for name in stored.column_names if name != "run_id"])
    types = [(field.name, field.dataType.simpleString()) for field in from_arrow_schema(expected.schema)]
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == types
    found = frame.toArrow().cast(expected.schema)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.mark.parametrize(("release", "names"), [("4.3", JAVA_CORPORA), ("2.8", SCALA_CORPORA)])
def test_each_frame_is_the_table_of_its_name(
    spark: SparkSession, local: LocalSession, tmp_path: Path, release: str, names: tuple[str, ...]
) -> None:
    # The logs of all corpora are one frame, each as a cluster of its own.
    rules = semantics_for(None, release)
    for name in names:
        run(local, tmp_path / "w", Corpus(name).logs, cluster=name, as_of_ms=AS_OF_MS, retention_ms=DAY_MS, semantics=rules)
    records = raw(spark, *(Corpus(name).logs for name in names), clusters=names)
    state = replay(records, semantics=release)
    leaves = expire(state, retention="1d", as_of=AS_OF_MS, semantics=release)
    frames = {table: getattr(state, table) for table in STATE_TABLES} | dict(zip(RULE_TABLES, leaves, strict=True))
    frames["rebalances"] = rebalances(records, semantics=release)
    for table, frame in frames.items():
        assert_equal(frame, tmp_path / "w", table)
    state.unpersist()


OTHER_SETTINGS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "7",
}


def test_moments_are_right_in_a_session_of_any_time_zone(spark: SparkSession, local: LocalSession, tmp_path: Path) -> None:
    # The frame is as Spark's Kafka source gives it, with a TIMESTAMP; the run reads milliseconds from the log, in UTC.
    logs = Corpus("vanished").logs
    run(local, tmp_path / "w", logs, as_of_ms=AS_OF_MS, retention_ms=DAY_MS)
    before = {name: spark.conf.get(name) for name in OTHER_SETTINGS}
    try:
        for name, value in OTHER_SETTINGS.items():
            spark.conf.set(name, value)
        place = (F.col("offsets_partition").alias("partition"), F.col("record_offset").alias("offset"))
        moment = F.timestamp_millis("record_timestamp_ms").alias("timestamp")
        others = ("cluster", "key", "value", "producer_id", "producer_epoch", "is_transactional", "control_type")
        records = raw(spark, logs, clusters=["sample"]).select(*others, *place, moment)
        state = replay(records)
        leaves = expire(state, retention="1d", as_of=AS_OF_MS)
        for frame, table in ((state.committed_offsets, "committed_offsets"), (leaves.offsets, "offset_expirations")):
            times = [column.name for column in TABLES[table].columns if column.is_time]
            found = frame.select(*(F.unix_micros(name) for name in times)).collect()
            expected = open_warehouse(str(tmp_path / "w")).read(table, columns=times)
            assert times
            assert sorted(map(repr, map(tuple, found))) == sorted(
                map(repr, zip(*(column.cast(pa.int64()).to_pylist() for column in expected.columns), strict=True))
            )
        state.unpersist()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_frames_have_the_types_and_comments_that_their_tables_declare(spark: SparkSession) -> None:
    state = replay(raw(spark, Corpus("classic-modern").logs))
    leaves = expire(state, retention="1d", as_of=AS_OF_MS)
    frames = {table: getattr(state, table) for table in STATE_TABLES} | dict(zip(RULE_TABLES, leaves, strict=True))
    for table, frame in frames.items():
        declared = [column for column in TABLES[table].columns if column.name != "run_id"]
        assert [(field.name, field.metadata.get("comment")) for field in frame.schema] == [(c.name, c.comment) for c in declared]
        assert [not field.nullable for field in frame.schema if field.name != "topic"] == [
            not column.nullable for column in declared if column.name != "topic"
        ]
