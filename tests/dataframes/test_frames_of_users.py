"""Frames as users have them: tables of their own with other names and types, streams, and things that are not frames."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from groupcoord_spark.dataframes import decode, expire, read_segments, rebalances, replay
from groupcoord_spark.dataframes.partitions import kept, replayed_frame, task_count
from groupcoord_spark.dataframes.state import named_semantics
from groupcoord_spark.errors import GroupcoordError, InputError, UsageError
from groupcoord_spark.moments import milliseconds_of, retention_of
from groupcoord_spark.pipeline.plan.input_rows import TRANSACTIONS_UNKNOWN
from groupcoord_spark.pipeline.run_nightly import run_nightly
from groupcoord_spark.sources.columns import row_batch
from groupcoord_spark.sources.frames import readable
from groupcoord_spark.spark import session
from groupcoord_spark.spark.column_functions import ColumnFunction
from tests.golden_answers import Corpus
from tests.pipeline.logs import commit_value, offset_key
from tests.running import raw, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON_MS = 1_795_262_400_000


@pytest.fixture(scope="module")
def bronze(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Provide a table of a user, with the columns of Spark's Kafka source."""
    place = str(tmp_path_factory.mktemp("bronze"))
    place_of_records = (F.col("offsets_partition").alias("partition"), F.col("record_offset").alias("offset"))
    moment = F.timestamp_millis("record_timestamp_ms").alias("timestamp")
    records = raw(spark, Corpus("classic-modern").logs).where("control_type IS NULL")
    records.select("key", "value", F.lit("__consumer_offsets").alias("topic"), *place_of_records, moment).write.mode("overwrite").parquet(
        place
    )
    return spark.read.parquet(place)


@pytest.fixture(scope="module")
def offsets_of_bronze(bronze: DataFrame) -> list[Any]:
    return sorted(replay(bronze).committed_offsets.collect())


@pytest.fixture
def spilling(spark: SparkSession) -> Iterator[None]:
    """Sorts spill after a hundred rows."""
    name = "spark.shuffle.spill.numElementsForceSpillThreshold"
    # the setting of a running context: each sort reads it from there
    spark.sparkContext._jsc.sc().conf().set(name, "100")  # type: ignore[union-attr]
    yield
    spark.sparkContext._jsc.sc().conf().remove(name)  # type: ignore[union-attr]


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("cluster", [None, "'main'", "concat('ma', 'in')"])
def test_records_keep_their_order_where_sorts_spill(spark: SparkSession, cluster: str | None) -> None:
    # A constant cluster was folded away, and Spark sorted a partition again by its number alone.
    rows = 3_000
    log = [(offset_key(f"g{offset % 7}"), commit_value(offset, 3), 0, offset) for offset in range(rows)]
    log += [(offset_key(f"g{offset % 7}"), commit_value(offset, 3), 1, offset) for offset in range(10)]
    random.Random(5).shuffle(log)
    frame = spark.createDataFrame(log, "key BINARY, value BINARY, partition INT, offset BIGINT").repartition(3)
    if cluster is not None:
        frame = frame.withColumn("cluster", F.expr(cluster))
    offsets = replay(frame).committed_offsets.where("offsets_partition = 0").select("group_id", "committed_offset").collect()
    assert dict(offsets) == {f"g{offset % 7}": offset for offset in range(rows - 7, rows)}
    assert rebalances(frame).count() == 0


def joined(frame: DataFrame) -> DataFrame:
    return frame.join(frame.select(F.col("partition").alias("number")).distinct(), F.col("partition") == F.col("number"))


@pytest.mark.parametrize("given", [lambda frame: frame, DataFrame.cache, joined], ids=["plain", "cached", "joined"])
def test_a_replay_shuffles_once_and_sorts_once(bronze: DataFrame, given: Any) -> None:
    """explain() of the replayed frame, from below: the frame, the function that packs its rows, one exchange, one sort, the replay."""
    frame = given(bronze)
    plan = replay(frame).replayed._jdf.queryExecution().executedPlan().toString()  # type: ignore[union-attr]
    below = plan[plan.index("MapInArrow") :]
    of_frame = frame._jdf.queryExecution().executedPlan().toString()
    added = [below.count(step) - of_frame.count(step) for step in ("Exchange ", "Sort [", "MapInArrow", "FlatMapGroups")]
    assert added == [1, 1, 2, 0] and "MapInArrow pack_rows(" in below
    assert re.match(r"MapInArrow replay_partitions\(cluster#", below)
    frame.unpersist()


def steps_of(frame: DataFrame) -> list[str]:
    """Return the numbers of Python stages, exchanges and sorts of a plan, above the frames that are kept."""
    plan = frame._jdf.queryExecution().executedPlan().toString().partition("InMemoryTableScan")[0]  # type: ignore[operator]
    return [str(len(re.findall(step, plan))) for step in (r"(?:MapInArrow|ArrowEvalPython) ", r"\bExchange ", r"\bSort \[")]


def test_the_page_shows_what_explain_shows(spark: SparkSession, bronze: DataFrame) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "notebooks.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)\(.*\| (\d+ \| \d+ \| \d+) \|$", page, re.MULTILINE))
    frames = {
        "read_segments": read_segments(spark, Corpus("classic-modern").logs),
        "decode": decode(bronze),
        "replay": replayed_frame(bronze.where("offset >= 0"), named_semantics("java")),  # no plan that is kept already
        "rebalances": rebalances(bronze),
        "expire": expire(replay(bronze), as_of=NOON_MS).offsets,
    }
    assert {name: " | ".join(steps_of(frame)) for name, frame in frames.items()} == shown


def test_filters_of_decoded_records_reach_the_files(spark: SparkSession, bronze: DataFrame) -> None:
    spark.conf.set("spark.sql.maxMetadataStringLength", "1000")
    found = decode(bronze).where("record_timestamp > TIMESTAMP'2026-11-21 00:00:00' AND offset > 3 AND group_id = 'g'").select("group_id")
    plan = found._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    spark.conf.unset("spark.sql.maxMetadataStringLength")
    (pushed,) = re.findall(r"PushedFilters: \[(.*?)\], ReadSchema", plan)
    assert "GreaterThan(timestamp," in pushed and "GreaterThan(offset,3)" in pushed
    assert "decode_group_value" not in plan and "decode_error" not in plan


def test_frames_of_few_rows_start_a_python_task_for_each_core(spark: SparkSession, bronze: DataFrame) -> None:
    # Each of 8 Python tasks cost 0.4 s of CPU in a session with default settings, and a frame of a state had 16 of them.
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        state = replay(bronze)
        leaves = expire(state, as_of=NOON_MS)
        partitions = [frame.rdd.getNumPartitions() for frame in (state.quarantined_records, leaves.offsets)]
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "2")
    assert max(partitions) <= spark.sparkContext.defaultParallelism < 7


def test_a_frame_of_spark_connect_is_a_frame() -> None:
    """Before Spark 4.0 it is not an instance of pyspark.sql.DataFrame."""
    kind = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe", "columns": ["key", "value"]})
    frame = kind()
    assert readable(frame) is frame


def test_a_frame_of_a_state_is_planned_when_it_is_asked_for(bronze: DataFrame) -> None:
    state = replay(bronze)
    assert not {field.name for field in dataclasses.fields(state)} & vars(state).keys() - {"replayed"}
    assert state.groups is state.groups
    assert not hasattr(state, "group")
    of_one_group = dataclasses.replace(state, groups=state.groups.limit(1))
    assert (of_one_group.groups.count(), of_one_group.members) == (1, state.members)


def test_a_replay_without_the_columns_of_transactions_says_what_it_cannot_know(bronze: DataFrame) -> None:
    warnings = replay(bronze).warnings.where("code = 'transactions_unknown'").select("cluster", "detail").collect()
    assert [(row.cluster, row.detail) for row in warnings] == [("default", TRANSACTIONS_UNKNOWN)]
    with_transactions = bronze.withColumns(
        {"producer_id": F.lit(-1).cast("bigint"), "is_transactional": F.lit(False), "control_type": F.lit(None).cast("string")}
    )
    assert replay(with_transactions).warnings.where("code = 'transactions_unknown'").count() == 0
    nulls = {"producer_id": F.lit(None).cast("bigint"), "is_transactional": F.lit(None).cast("boolean")}
    without_values = with_transactions.withColumns(nulls)
    assert replay(without_values).warnings.where("code = 'transactions_unknown'").count() == 1


@pytest.mark.parametrize("again", [decode, lambda frame: decode(decode(frame)), lambda frame: decode(frame).where("offset >= 0")])
def test_decoding_does_not_hide_that_the_columns_of_transactions_were_not_there(bronze: DataFrame, again: Any) -> None:
    """``decode`` gives all raw columns, and filled those in that the frame lacks: the warning was gone."""
    frame = again(bronze.withColumnRenamed("offset", "record_offset").withColumn("offset", F.lit(0)))
    assert replay(frame).warnings.where("code = 'transactions_unknown'").count() == 1
    with_transactions = bronze.withColumns(
        {"producer_id": F.lit(-1).cast("bigint"), "is_transactional": F.lit(False), "control_type": F.lit(None).cast("string")}
    )
    assert replay(decode(with_transactions)).warnings.where("code = 'transactions_unknown'").count() == 0


@pytest.mark.parametrize("function", [replay, rebalances, lambda frame: run_nightly(frame, "nowhere", spark=frame.sparkSession)])
def test_a_frame_of_other_topics_is_refused_with_their_names(bronze: DataFrame, function: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    others = bronze.withColumn("topic", F.when(F.col("offset") % 2 == 0, "orders").otherwise("src.__consumer_offsets"))
    with pytest.raises(InputError, match=r"no row of __consumer_offsets: the column topic has 'orders', 'src\.__consumer_offsets'\. Give"):
        function(others)
    assert replay(others.limit(0)).groups.count() == 0


@pytest.mark.parametrize(
    ("kind", "factor"),
    [("bigint", 1), ("bigint", 0.001), ("bigint", 1000), ("bigint", 1_000_000), ("double", 0.001), ("double", 1), ("double", 1000)],
)
def test_times_of_frames_are_read_in_the_unit_that_makes_them_plausible(spark: SparkSession, kind: str, factor: float) -> None:
    """Seconds and microseconds in a BIGINT were taken for milliseconds, without a word."""
    times = [NOON_MS, NOON_MS + (1 if kind == "double" or factor >= 1 else 1000), None, -1]
    number = int if kind == "bigint" else float
    given = [None if time is None else number(time if time < 0 else time * factor) for time in times]
    key = offset_key("g")
    frame = spark.createDataFrame(
        [(key, commit_value(1, 3), 0, offset, time) for offset, time in enumerate(given)],
        f"key BINARY, value BINARY, partition INT, offset BIGINT, timestamp {kind}",
    )
    read = [row.record_timestamp_ms for row in decode(frame).select("record_timestamp_ms", "record_offset").sort("record_offset").collect()]
    assert read == [*times[:2], -1, -1]
    (batch,) = row_batches_of(frame)
    assert batch["record_timestamp_ms"].to_pylist() == read


def row_batches_of(frame: DataFrame) -> list[Any]:
    """Return the raw rows of a frame as a run makes them."""
    columns = frame.toArrow()
    names = {"partition": "offsets_partition", "offset": "record_offset", "timestamp": "record_timestamp_ms"}
    fields = {names.get(name, name): columns[name].combine_chunks() for name in columns.column_names}
    return [row_batch(fields, columns.num_rows).rows]


def test_frames_get_the_name_of_a_cluster(bronze: DataFrame, offsets_of_bronze: list[Any]) -> None:
    offsets = replay(bronze, cluster="main").committed_offsets.collect()
    assert {row["cluster"] for row in offsets} == {"main"}
    assert sorted(row[1:] for row in offsets) == sorted(row[1:] for row in offsets_of_bronze)


def test_workers_that_cannot_import_the_package_are_one_sentence_for_every_function(
    bronze: DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = replay(bronze)

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        raise ModuleNotFoundError("No module named 'groupcoord_spark'")

    monkeypatch.setattr(session, "_unchanged", fail)
    monkeypatch.setattr(session, "_SESSIONS_WITH_PACKAGE", set())
    functions: list[Any] = [
        lambda: decode(bronze),
        lambda: replay(bronze),
        lambda: rebalances(bronze),
        lambda: expire(state, as_of="2026-11-20T00:00:00Z"),
        lambda: run_nightly(bronze, tmp_path / "w", spark=bronze.sparkSession),
    ]
    sentences = set()
    for function in functions:
        with pytest.raises(GroupcoordError) as raised:
            function()
        sentences.add(str(raised.value))
    (sentence,) = sentences
    assert sentence.startswith("Spark's Python workers cannot import what a job needs: No module named 'groupcoord_spark'. Install ")
    assert not (tmp_path / "w").exists()


def upper(frame: DataFrame) -> DataFrame:
    return frame.toDF(*(name.upper() for name in frame.columns))


def with_texts_for_numbers(frame: DataFrame) -> DataFrame:
    return frame.withColumns({name: F.col(name).cast("string") for name in ("partition", "offset")})


def twice_and_shuffled(frame: DataFrame) -> DataFrame:
    return frame.union(frame).repartition(7, "value")


def with_columns_of_the_user(frame: DataFrame) -> DataFrame:
    others = {"a.b": F.lit(1), "with`tick": F.lit(2), "source": F.struct(F.lit("x").alias("file")), "leader_epoch": F.lit("none")}
    return decode(frame.withColumns({**others, "position": F.lit("12")})).drop("position")


@pytest.mark.parametrize("changed", [upper, with_texts_for_numbers, twice_and_shuffled, with_columns_of_the_user])
def test_a_table_of_a_user_gives_the_same_state(bronze: DataFrame, offsets_of_bronze: list[Any], changed: Any) -> None:
    assert sorted(replay(changed(bronze)).committed_offsets.collect()) == offsets_of_bronze


def test_upper_case_is_understood_where_spark_tells_cases_apart(
    spark: SparkSession, bronze: DataFrame, offsets_of_bronze: list[Any]
) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert decode(upper(bronze)).where("error IS NULL").count() == bronze.count()
        assert sorted(replay(upper(bronze)).committed_offsets.collect()) == offsets_of_bronze
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_decoded_records_can_be_decoded_again(bronze: DataFrame) -> None:
    assert decode(decode(bronze)).schema == decode(bronze).schema


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda frame: frame.withColumn("position", F.struct(F.lit(1).alias("x"))), "The column position is STRUCT.*must be BIGINT"),
        (lambda frame: frame.join(frame.select("partition", "offset", "topic"), ["partition", "offset"]), "two columns 'topic'"),
        (lambda frame: "/logs", r"A DataFrame of Spark .* this is builtins\.str"),
        (lambda frame: pd.DataFrame({"key": [b""]}), r"this is pandas\.DataFrame\..*spark\.createDataFrame"),
    ],
)
def test_a_frame_that_cannot_be_read(bronze: DataFrame, made: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        decode(made(bronze))


def test_a_stream_is_decoded_and_not_replayed(spark: SparkSession, bronze: DataFrame, tmp_path: Path) -> None:
    bronze.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(bronze.schema).parquet(str(tmp_path / "in"))
    for function in (replay, rebalances):
        with pytest.raises(UsageError, match="The frame is a stream, and only `decode` takes one"):
            function(stream)
    options = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}
    query = decode(stream).select("group_id", "offset_commit").writeStream.format("parquet").options(**options)
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == bronze.count()


def test_a_run_for_each_micro_batch_leaves_the_state_of_one_run(spark: SparkSession, bronze: DataFrame, tmp_path: Path) -> None:
    # The second micro-batch comes twice, as after a failure between the run and the checkpoint of the stream.
    settings: dict[str, Any] = {"cluster": "main", "as_of": NOON_MS, "spark": spark}
    middle = bronze.select(F.percentile(F.col("timestamp").cast("double"), 0.5)).first()[0]  # type: ignore[index]
    parts = [bronze.where(F.col("timestamp").cast("double") <= middle), bronze.where(F.col("timestamp").cast("double") > middle)]
    runs: list[int] = []

    def run(batch: DataFrame, number: int) -> None:
        for _ in range(1 + number):
            runs.append(run_nightly(batch, tmp_path / "streamed", **settings).committed_offsets)

    for part in parts:
        part.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema(bronze.schema).parquet(str(tmp_path / "in"))
        query = stream.writeStream.foreachBatch(run).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
    run_nightly(bronze, tmp_path / "whole", **settings)
    assert len(runs) == 3 and runs[0] > 0 and runs[1] == runs[2]
    assert rows_of(tmp_path / "streamed", "committed_offsets") == rows_of(tmp_path / "whole", "committed_offsets")


def test_records_of_another_coordinator_are_a_warning_as_in_a_night(spark: SparkSession) -> None:
    state = replay(raw(spark, Corpus("era-0.9").logs), semantics="4.3")
    (found,) = state.warnings.where("code = 'other_coordinator'").collect()
    assert (found.cluster, found.offsets_partition, found.group_id) == ("default", None, None)
    assert found.detail.startswith("Brokers older than the chosen 4.3 wrote")


def test_expire_takes_a_state(bronze: DataFrame) -> None:
    with pytest.raises(UsageError, match=r"expire\(replay\(records\), ...\).*type DataFrame"):
        expire(bronze, as_of=NOON_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "moment",
    [
        *(NOON_MS, np.int64(NOON_MS), "2026-11-21T12:00:00Z", "2026-11-21T13:00:00+01:00", " 2026-11-21 12:00 "),
        *(dt.datetime(2026, 11, 21, 12), dt.datetime(2026, 11, 21, 14, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
    ],
)
def test_a_moment_is_written_in_many_ways(moment: Any) -> None:
    assert milliseconds_of(moment) == NOON_MS


def test_a_day_begins_in_utc() -> None:
    assert milliseconds_of(dt.date(2026, 11, 21)) == milliseconds_of("2026-11-21") == NOON_MS - 43_200_000


@pytest.mark.parametrize("moment", ["yesterday", None, 1.5, True, np.datetime64("2026-11-21")])
def test_what_is_no_moment(moment: Any) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        milliseconds_of(moment)


def test_a_retention_is_a_text_a_timedelta_or_milliseconds() -> None:
    assert retention_of("36h") == retention_of(dt.timedelta(hours=36)) == retention_of(129_600_000) == 129_600_000
    for wrong in (-1, True, None, dt.timedelta(days=-1), dt.timedelta(days=4_000_000)):
        with pytest.raises(UsageError, match="retention"):
            retention_of(wrong)  # type: ignore[arg-type]


def test_a_release_may_be_a_number() -> None:
    assert named_semantics(3.6) == named_semantics("3.6")  # type: ignore[arg-type]


def test_until_by_offsets_takes_whole_numbers(bronze: DataFrame) -> None:
    with pytest.raises(UsageError, match="two whole numbers, for example"):
        replay(bronze, until={"0": 5})  # type: ignore[dict-item]


def test_serverless_compute_keeps_no_frame(bronze: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(frame: DataFrame, level: Any) -> DataFrame:
        raise PySparkException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute. SQLSTATE: 0A000")

    monkeypatch.setattr(type(bronze), "persist", refused)
    assert kept(bronze) is bronze


def test_without_the_number_of_cores_there_is_a_task_for_each_offsets_partition() -> None:
    # A session of Spark Connect has no sparkContext, and 200 shuffle partitions.

    class Remote:
        conf: ClassVar = {"spark.sql.shuffle.partitions": "200"}

        @property
        def sparkContext(self) -> Any:  # noqa: N802
            raise PySparkAttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED]")

    assert task_count(Remote()) == 50  # type: ignore[arg-type]


def test_a_function_of_columns_is_made_anew_for_another_kind_of_session(monkeypatch: pytest.MonkeyPatch) -> None:
    # The real thing needs packages of Spark Connect, which the tests do not install.
    from pyspark.sql.types import StringType

    from groupcoord_spark.spark import column_functions

    made: list[bool] = []
    monkeypatch.setattr(column_functions, "pandas_udf", lambda function, returns: made.append(column_functions.is_remote()) or object())
    function = ColumnFunction(lambda key: key, StringType())
    for remote in (False, True, False):
        monkeypatch.setattr(column_functions, "is_remote", lambda remote=remote: remote)
        assert function.udf is function.udf
    assert made == [False, True]
