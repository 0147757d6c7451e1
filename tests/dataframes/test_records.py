"""``decode``: any frame with keys and values becomes rows with the fields of Kafka's own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from groupcoord_spark.dataframes import decode, of_groups, register, replay
from groupcoord_spark.dataframes.partitions import task_count
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol import decode_assignment, decode_subscription, decode_value
from groupcoord_spark.protocol.fields import Array, Struct, Type
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.record_types import KeyType
from tests.golden_answers import Corpus
from tests.running import raw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORPORA = ("classic-modern", "kip848", "share", "streams", "connect", "era-0.9", "transactions")


def as_in_json(kind: Type, value: Any) -> Any:
    """Return a column of a struct as Kafka's JSON has it."""
    match kind:
        case Struct(fields=fields):
            return None if value is None else {field.json: as_in_json(field.type, value[field.name]) for field in fields}
        case Array(element=element):
            return None if value is None else [as_in_json(element, each) for each in value]
        case _:
            return value


def fields_that_json_has(kind: Type, value: Any, told: Any) -> Any:
    """``value`` as in JSON, without the fields that ``told``, Kafka's JSON of one version, does not have."""
    match kind:
        case Struct(fields=fields) if told is not None:
            return {f.json: fields_that_json_has(f.type, value[f.name], told[f.json]) for f in fields if f.json in told}
        case Array(element=element) if told is not None:
            return [fields_that_json_has(element, each, of_told) for each, of_told in zip(value, told, strict=True)]
        case _:
            return as_in_json(kind, value)


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    """Provide the decoded records of all corpora, each as a cluster of its own."""
    return decode(raw(spark, *(Corpus(name).logs for name in CORPORA), clusters=CORPORA)).cache()


def test_the_struct_of_each_kind_has_the_fields_that_kafkas_classes_read(records: DataFrame) -> None:
    rows = {(row.cluster, row.offsets_partition, row.record_offset): row for row in records.collect()}
    kinds = set()
    for name in CORPORA:
        for record in Corpus(name).records:
            row = rows[name, record["partition"], record["offset"]]
            assert row.error is None
            if record["control"] or not record["key"]:
                assert (row.key_type, row.group_id, row.is_tombstone) == (None, None, None)
                continue
            key, value = record["key"], record["value"]
            fields = {"group_id": "group", "topic": "topic", "partition": "partition"} if key["type"] < 2 else {}
            assert all(row[column] == key["data"][field] for column, field in fields.items())
            assert (row.key_type, row.is_tombstone) == (key["type"], value is None)
            filled = [kind.name.lower() for kind in KeyType if kind > 1 and row[kind.name.lower()] is not None]
            if value is None:
                assert filled == [] and row.offset_commit is None and row.value_version is None
            elif key["type"] < 2:
                assert filled == []
                commit = row.offset_commit
                assert (commit.committed_offset, commit.metadata) == (value["data"]["offset"], value["data"]["metadata"])
            else:
                assert filled == [KeyType(key["type"]).name.lower()]
                assert row.value_version == value["version"]
                message = RECORD_TYPES[key["type"]].value
                if key["type"] != KeyType.GROUP_METADATA:
                    found = fields_that_json_has(Struct(message.fields), row[filled[0]], value["data"])
                    assert found == value["data"]
            kinds.add(key["type"])
    assert len(kinds) > 15


def test_members_of_classic_groups_have_subscription_and_assignment_as_structs(records: DataFrame) -> None:
    rows = records.where("group_metadata IS NOT NULL").select("value", "group_metadata", "cluster").collect()
    members = consumers = 0
    for row in rows:
        stored = decode_value(KeyType.GROUP_METADATA, bytes(row.value))
        assert stored is not None
        for member, of_record in zip(row.group_metadata.members, stored.fields["members"], strict=True):
            members += 1
            assert member.client_id == of_record["client_id"]
            if row.group_metadata.protocol_type != "consumer":
                assert (member.subscription, member.assignment) == (None, None)
                continue
            consumers += 1
            subscription, assignment = decode_subscription(of_record["subscription"]), decode_assignment(of_record["assignment"])
            assert subscription is not None
            assert tuple(member.subscription.topics) == subscription.topics
            partitions = {} if assignment is None else assignment.partitions
            assert {each.topic: tuple(each.partitions) for each in member.assignment} == partitions
    assert 0 < consumers < members


def test_a_frame_of_the_kafka_source_gives_the_same_state(spark: SparkSession) -> None:
    as_read = raw(spark, Corpus("classic-modern").logs)
    of_kafka = as_read.where("control_type IS NULL").select(
        "key",
        "value",
        F.lit("__consumer_offsets").alias("topic"),
        F.col("offsets_partition").alias("partition"),
        F.col("record_offset").alias("offset"),
        F.timestamp_millis("record_timestamp_ms").alias("timestamp"),
        F.lit(0).alias("timestampType"),
        F.lit("bronze").alias("ingested_by"),
    )
    other_topic = of_kafka.limit(3).withColumn("topic", F.lit("orders"))
    found = decode(of_kafka.union(other_topic))
    assert found.columns[-4:] == ["offset", "timestamp", "timestampType", "ingested_by"]
    assert found.where("timestamp IS DISTINCT FROM record_timestamp OR offset <> record_offset").isEmpty()
    assert sorted(replay(found).committed_offsets.collect()) == sorted(replay(as_read).committed_offsets.collect())


def test_records_of_some_groups_give_the_state_of_these_groups(spark: SparkSession, records: DataFrame) -> None:
    of_corpus = records.where("cluster = 'transactions'")
    whole = replay(of_corpus)
    chosen = [row.group_id for row in whole.groups.orderBy("group_id").limit(2).collect()]
    some = replay(of_groups(of_corpus, *chosen))
    for table in ("committed_offsets", "pending_offsets", "groups"):
        of_chosen = getattr(whole, table).where(F.col("group_id").isin(chosen))
        assert sorted(getattr(some, table).collect()) == sorted(of_chosen.collect())


def test_until_cuts_each_partition_at_its_first_later_record(spark: SparkSession) -> None:
    as_read = raw(spark, Corpus("classic-modern").logs)
    times = sorted(row.record_timestamp_ms for row in as_read.collect())
    middle = times[len(times) // 2]
    later = as_read.where(F.col("record_timestamp_ms") > middle).groupBy("offsets_partition").agg(F.min("record_offset").alias("end"))
    first_later = {row.offsets_partition: row.end for row in later.collect()}
    by_time, by_offsets = replay(as_read, until=middle), replay(as_read, until=first_later)
    found = sorted(by_time.committed_offsets.collect())
    assert found == sorted(by_offsets.committed_offsets.collect())
    assert 0 < len(found) < replay(as_read).committed_offsets.count()


def test_sql_knows_the_functions(spark: SparkSession) -> None:
    register(spark)
    rows = [(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3\0"), (b"\0\1\0", None)]
    spark.createDataFrame(rows, "key BINARY, value BINARY").createOrReplaceTempView("two")
    errors = spark.sql("SELECT decode_error(key, value).code AS code FROM two").collect()
    assert [row.code for row in errors] == ["value_truncated", "key_truncated"]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (["value"], "The frame has no column 'key'"),
        (["hex(key) AS key", "value"], "The column key is STRING. It must be BINARY"),
        (["key", "value", "1 AS group_id"], "The frame already has a column 'group_id'"),
        (["key", "value", "'noon' AS timestamp"], "The column timestamp is STRING. It must be a TIMESTAMP"),
    ],
)
def test_a_frame_that_cannot_be_decoded(spark: SparkSession, columns: list[str], sentence: str) -> None:
    frame = spark.createDataFrame([], "key BINARY, value BINARY").selectExpr(*columns)
    with pytest.raises(UsageError, match=sentence):
        decode(frame)


def test_keys_and_values_alone_decode(spark: SparkSession, records: DataFrame) -> None:
    # A bronze table that a consumer wrote without the place of its records.
    of_corpus = records.where("cluster = 'share' AND control_type IS NULL").cache()
    found = decode(of_corpus.select("key", "value"))
    times = ("record_timestamp_ms", "record_timestamp")
    unknown = ("offsets_partition", "record_offset", *times, "producer_id", "producer_epoch", "leader_epoch", "position")
    known = [name for name in found.columns if name not in (*unknown, "cluster", "source", "is_transactional")]
    # The metadata shows which columns decode filled in.
    assert [(field.name, field.dataType) for field in found.schema] == [(field.name, field.dataType) for field in records.schema]
    assert sorted(map(repr, found.select(known).collect())) == sorted(map(repr, of_corpus.select(known).collect()))


def test_databricks_may_leave_the_number_of_tasks_to_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = task_count(spark)
    monkeypatch.setattr(type(spark.conf), "get", lambda conf, name: "auto")
    assert task_count(spark) >= expected > 0


def test_a_column_has_a_comment(records: DataFrame) -> None:
    commented = {field.name: field.metadata.get("comment") for field in records.schema}
    assert {"key_type", "group_id", "topic", "partition", "member_id", "value_version", "offset_commit", "error"} <= {
        name for name, comment in commented.items() if comment
    }
    assert all(field.metadata.get("comment") for field in records.schema["offset_commit"].dataType)  # type: ignore[attr-defined]


def test_a_replay_needs_the_place_of_each_record(spark: SparkSession) -> None:
    keys_and_values = spark.createDataFrame([], "key BINARY, value BINARY")
    assert decode(keys_and_values).where("error IS NOT NULL").count() == 0
    with pytest.raises(UsageError, match="no column 'partition' and no column 'offset'"):
        replay(keys_and_values)
