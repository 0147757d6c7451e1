"""Decoding functions on any DataFrame with Kafka's key and value columns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from chispa import assert_df_equality

from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.spark.udfs import decode_offsets_key, decode_offsets_value, decode_offsets_value_json, register
from tests.conftest import SAMPLE_LOGS
from tests.coordinator.records import consumer_member
from tests.golden_answers import Corpus
from tests.pipeline.logs import TOPIC_ID, classic_group_key, classic_value, commit_value, offset_key
from tests.running import raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSET = offset_key(partition=7)
GROUP = classic_group_key()
MEMBER = consumer_member("m").key
LARGEST = 2**63 - 1


def frame(spark: SparkSession, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> DataFrame:
    """In one Spark partition, so that the functions see all of it in one batch."""
    rows = [(at, key, value) for at, (key, value) in enumerate(pairs)]
    return spark.createDataFrame(rows, "at INT, key BINARY, value BINARY").coalesce(1)


def decoded(records: DataFrame, function: Any, *columns: str) -> list[dict[str, Any]]:
    return [row.found.asDict() for row in records.select("at", function(*columns).alias("found")).orderBy("at").collect()]


def test_keys_of_every_kind_side_by_side(spark: SparkSession) -> None:
    keys = [OFFSET, GROUP, MEMBER, b"\0\x63rest", b"\0\1\0\5g", b"\0", None, offset_key("", "ü", key_type=KeyType.LEGACY_OFFSET_COMMIT)]
    found = decoded(frame(spark, [(key, None) for key in keys]), decode_offsets_key, "key")
    assert [(row["key_type"], row["key_name"], row["group_id"], row["topic"], row["partition"], row["member_id"]) for row in found] == [
        (1, "OffsetCommitKey", "g", "t", 7, None),
        (2, "GroupMetadataKey", "g", None, None, None),
        (5, "ConsumerGroupMemberMetadataKey", "g", None, None, "m"),
        (99, None, None, None, None, None),
        (1, None, None, None, None, None),
        (None, None, None, None, None, None),
        (None, None, None, None, None, None),
        (0, "LegacyOffsetCommitKey", "", "ü", 0, None),
    ]
    assert [row["error"] for row in found] == [
        *(None, None, None, "unknown_key_type", "key_truncated", "key_too_short", "null_key", None),
    ]
    assert [None if row["key_json"] is None else json.loads(row["key_json"]) for row in found] == [
        {"group": "g", "topic": "t", "partition": 7},
        {"group": "g"},
        {"groupId": "g", "memberId": "m"},
        *(None, None, None, None),
        {"group": "", "topic": "ü", "partition": 0},
    ]


def test_values_of_every_kind_side_by_side(spark: SparkSession) -> None:
    pairs = [
        (OFFSET, commit_value(5, 4, leader_epoch=3, metadata="note")),
        (OFFSET, commit_value(5, 1, expire_timestamp_ms=9)),
        (OFFSET, None),
        (OFFSET, b"\0\3\0"),
        (OFFSET, b"\0\x2a"),
        (GROUP, classic_value(1, 1)),
        (None, b"\0\3"),
    ]
    found = decoded(frame(spark, pairs), decode_offsets_value, "key", "value")
    nothing = dict.fromkeys(found[0])
    assert found[0] == {
        "value_version": 4,
        "committed_offset": 5,
        "leader_epoch": 3,
        "metadata": "note",
        "commit_timestamp_ms": 1_000_005,
        "expire_timestamp_ms": None,
        "topic_id": TOPIC_ID,
        "error": None,
    }
    assert found[1] == {**found[0], "value_version": 1, "leader_epoch": None, "metadata": "", "expire_timestamp_ms": 9, "topic_id": None}
    assert found[2] == nothing
    assert found[3] == {**nothing, "value_version": 3, "error": "value_truncated"}
    assert found[4] == {**nothing, "value_version": 42, "error": "unknown_value_version"}
    assert found[5:] == [nothing, nothing]


@pytest.mark.parametrize("beside_null", [False, True])
def test_offsets_and_times_beyond_2_to_the_53_are_exact(spark: SparkSession, beside_null: bool) -> None:
    numbers = [2**53 + 1, LARGEST, -LARGEST - 1, LARGEST - 1]
    pairs = [(OFFSET, commit_value(each, 1, commit_timestamp_ms=each, expire_timestamp_ms=each)) for each in numbers]
    found = decoded(frame(spark, pairs + [(OFFSET, None), (GROUP, None)] * beside_null), decode_offsets_value, "key", "value")
    for column in ("committed_offset", "commit_timestamp_ms", "expire_timestamp_ms"):
        assert [row[column] for row in found] == numbers + [None, None] * beside_null


def test_nothing_but_nulls_and_no_rows_at_all(spark: SparkSession) -> None:
    for pairs in ([(None, None)] * 3, []):
        for function, columns in ((decode_offsets_key, ["key"]), (decode_offsets_value, ["key", "value"])):
            found = decoded(frame(spark, pairs), function, *columns)
            assert [row | {"error": None} for row in found] == [dict.fromkeys(row) for row in found]
            assert len(found) == len(pairs)


@pytest.mark.parametrize("rows", [0, 1, 30_000])
def test_no_column_of_a_large_batch_is_in_several_chunks(rows: int) -> None:
    """Spark puts the columns into a struct, which takes no column of several chunks."""
    name = "a-group-with-a-long-name-as-companies-have-them-"
    keys = pd.Series([offset_key(f"{name}{row}", f"topic-{name}") for row in range(rows)], dtype=object)
    values = pd.Series([commit_value(row, 4, metadata=name) for row in range(rows)], dtype=object)
    of_keys, of_values = decode_offsets_key.__wrapped__(keys), decode_offsets_value.__wrapped__(keys, values)
    texts = decode_offsets_value_json.__wrapped__(keys, values)
    for column in (*(frame[name] for frame in (of_keys, of_values) for name in frame), texts):
        assert isinstance(pa.Array.from_pandas(column), pa.Array)
        assert len(column) == rows
    assert list(of_keys["group_id"][-1:]) == [f"{name}{row}" for row in range(rows)][-1:]
    assert [json.loads(text)["group"] for text in of_keys["key_json"]] == [f"{name}{row}" for row in range(rows)]


def test_json_of_every_record_is_that_of_kafkas_classes(spark: SparkSession) -> None:
    corpus = Corpus("kip848")
    rows = raw(spark, corpus.logs).select(
        "offsets_partition",
        "record_offset",
        decode_offsets_key("key").getField("key_json").alias("key_json"),
        decode_offsets_value_json("key", "value").alias("value_json"),
    )
    found = {(row.offsets_partition, row.record_offset): row for row in rows.collect()}
    for record in corpus.records:
        if record["key"] and not record["control"]:
            row = found[record["partition"], record["offset"]]
            assert json.loads(row.key_json) == record["key"]["data"]
            assert (json.loads(row.value_json) if row.value_json else None) == (record["value"]["data"] if record["value"] else None)


def test_sql_knows_them_by_their_names(spark: SparkSession) -> None:
    register(spark)
    raw(spark, SAMPLE_LOGS).where("control_type IS NULL").createOrReplaceTempView("raw_records")
    in_sql = spark.sql("""
        SELECT k.group_id, k.topic, k.`partition`, v.committed_offset, v.metadata, decode_offsets_value_json(key, value) AS value_json
        FROM (SELECT *, decode_offsets_key(key) AS k, decode_offsets_value(key, value) AS v FROM raw_records)
        WHERE k.key_type = 1 AND value IS NOT NULL
    """).cache()
    stored = [record for record in Corpus("classic-modern").records if record["key"] and record["key"]["type"] == 1 and record["value"]]
    expected = [
        (
            *(r["key"]["data"][name] for name in ("group", "topic", "partition")),
            r["value"]["data"]["offset"],
            r["value"]["data"]["metadata"],
        )
        for r in stored
    ]
    told = "group_id STRING, topic STRING, `partition` INT, committed_offset BIGINT, metadata STRING"
    assert_df_equality(in_sql.drop("value_json"), spark.createDataFrame(expected, told), ignore_row_order=True, ignore_nullable=True)
    assert {json.loads(row.value_json)["offset"] for row in in_sql.collect()} == {r["value"]["data"]["offset"] for r in stored}
