"""``gc.read_segments`` and ``spark.read.format("consumer_offsets")``: raw records as Spark rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from groupcoord_spark.dataframes import read_segments, register
from groupcoord_spark.sources.segments import tasks_of
from tests.conftest import GOLDEN, SAMPLE_LOGS
from tests.golden_answers import Corpus
from tests.log.reading import read_logs
from tests.pipeline.segment_files import batch_of, write_log
from tests.pipeline.test_nightly import commit, commits
from tests.running import batches_of_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def raw(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    register(spark)
    return spark.read.format("consumer_offsets").options(**options).load(str(path))


def rows_of(path: Path, **options: str) -> list[dict[str, Any]]:
    """Return the rows of the source, read in this process."""
    return [row for batch in batches_of_source(path, **options) for row in batch.to_pylist()]


def test_both_frames_have_the_rows_of_the_log_and_few_tasks_for_small_files(spark: SparkSession) -> None:
    logs = GOLDEN / "fuzz-1" / "logs"
    frame, of_function = raw(spark, logs, cluster="mine"), read_segments(spark, logs, cluster="mine")
    assert of_function.schema == frame.schema
    assert sorted(map(repr, of_function.collect())) == sorted(map(repr, frame.collect()))
    assert frame.rdd.getNumPartitions() == of_function.rdd.getNumPartitions() == 1
    assert ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in frame.schema.fields) == (
        "cluster STRING, offsets_partition INT, record_offset BIGINT, record_timestamp_ms BIGINT, key BINARY, value BINARY, "
        "producer_id BIGINT, producer_epoch SMALLINT, is_transactional BOOLEAN, control_type STRING, source STRING, position BIGINT, "
        "leader_epoch INT"
    )
    assert sorted(map(repr, (row.asDict() for row in frame.collect()))) == sorted(map(repr, rows_of(logs, cluster="mine")))


def test_large_files_are_tasks_of_their_own() -> None:
    logs = [str(GOLDEN / "fuzz-1" / "logs")]
    files = sum(path.stat().st_size > 0 for path in Path(logs[0]).rglob("*.log"))
    assert len(tasks_of(logs, task_bytes=1)) == files > 2
    (one,) = tasks_of(logs)
    assert len(one.segments) == files


def test_on_spark_3_5_a_warning_names_the_function(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(type(spark), "dataSource")
    with pytest.warns(UserWarning, match=r"needs Spark 4\.0\. gc\.read_segments\(spark, path\) gives the same frame"):
        register(spark)


@pytest.mark.parametrize("name", ["classic-modern", "transactions", "codec-zstd", "mixed-magic"])
def test_rows_are_the_records_that_kafkas_classes_read(name: str) -> None:
    corpus = Corpus(name)
    rows = {(row["offsets_partition"], row["record_offset"]): row for row in rows_of(corpus.logs)}
    assert len(rows) == len(corpus.records)
    for record in corpus.records:
        row = rows[record["partition"], record["offset"]]
        told = (
            row["record_timestamp_ms"],
            None if row["value"] is None else row["value"].hex(),
            row["producer_id"],
            row["producer_epoch"],
            row["is_transactional"],
            row["control_type"],
        )
        expected = (
            *(record["timestamp"], record["value_hex"], record["producer_id"], record["producer_epoch"]),
            *(record["transactional"], record["control"]),
        )
        assert told == expected
        assert (None if row["key"] is None else row["key"].hex()) == record["key_hex"]


def test_rows_tell_the_batch_they_come_from(tmp_path: Path) -> None:
    first, second = write_log(tmp_path, commits(0, 20), segments=2, largest_batch=5)
    one_batch = len(batch_of(commits(0, 5)))
    rows = sorted((row["record_offset"], row["source"], row["position"]) for row in rows_of(tmp_path))
    files = [(first, 0), (first, one_batch), (second, 0), (second, one_batch)]
    assert rows == [(each, str(files[each // 5][0]), files[each // 5][1]) for each in range(20)]


def test_positions_are_those_the_log_reader_tells() -> None:
    expected = [(row.record_offset, row.position) for row in read_logs(SAMPLE_LOGS).rows]
    assert sorted((row["record_offset"], row["position"]) for row in rows_of(SAMPLE_LOGS)) == sorted(expected)


def test_the_cluster_is_the_one_given_else_that_of_meta_properties_else_default(tmp_path: Path) -> None:
    write_log(tmp_path, [commit(0)])
    assert [row["cluster"] for row in rows_of(tmp_path)] == ["default"]
    (tmp_path / "meta.properties").write_text("cluster.id=abc123\n")
    assert [row["cluster"] for row in rows_of(tmp_path)] == ["abc123"]
    assert [row["cluster"] for row in rows_of(tmp_path, cluster="mine")] == ["mine"]


def test_damaged_bytes_are_left_out_and_the_rest_is_read(tmp_path: Path) -> None:
    (path,) = write_log(tmp_path, commits(0, 15), largest_batch=5)
    stored = bytearray(path.read_bytes())
    stored[len(batch_of(commits(0, 5))) + 70] ^= 0xFF
    path.write_bytes(stored)
    assert sorted(row["record_offset"] for row in rows_of(tmp_path)) == [*range(5), *range(10, 15)]


def test_a_path_that_is_not_there_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=f"{tmp_path}/none: there is no such file or directory"):
        raw(spark, tmp_path / "none").collect()


def test_without_a_path_it_says_how_to_give_one(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match='The source "consumer_offsets" needs a path'):
        spark.read.format("consumer_offsets").load().collect()
