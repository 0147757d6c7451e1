"""Run the package in the Spark of the Python that starts this, and print one line of JSON: part -> digest of its rows, or what failed.

``tests/platforms/matrix.py`` starts it in an environment of each platform. It needs no package of the tests.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterable
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import groupcoord_spark as gc
from groupcoord_spark.spark.session import delta_settings

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
CORPORA = ("classic-modern", "transactions", "kip848", "share")
AS_OF, RETENTION = 1_795_250_000_000, "1d"
STATE_TABLES = ("committed_offsets", "pending_offsets", "groups", "members", "assignments", "warnings", "quarantined_records")
RULE_TABLES = ("offset_expirations", "group_expirations", "tombstones")


def plain(value: Any) -> Any:
    """Return a value of a frame or of a table in one form."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(plain({name: value for name, value in row.items() if name != "run_id"}).items())) for row in rows)


def rows_of(frame: DataFrame) -> list[str]:
    return in_order(row.asDict(recursive=True) for row in frame.collect())


class Conformance:
    """The parts, in their order. Each returns rows, which are the same on every platform."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.warehouse = place / "warehouse"
        self.place = place

    @cached_property
    def records(self) -> DataFrame:
        frames = [gc.read_segments(self.spark, GOLDEN / name / "logs", cluster=name) for name in CORPORA]
        return reduce(DataFrame.union, frames)

    @cached_property
    def written(self) -> dict[str, list[str]]:
        for name in CORPORA:
            logs = GOLDEN / name / "logs"
            gc.run_nightly(str(logs), str(self.warehouse), cluster=name, as_of=AS_OF, retention=RETENTION, spark=self.spark)
        warehouse = gc.open_warehouse(str(self.warehouse))
        tables = (*STATE_TABLES, *RULE_TABLES, "rebalances", "offset_commits")
        return {table: in_order(warehouse.read(table).to_pylist()) for table in tables}

    def nightly(self) -> Any:
        return self.written

    def frames(self) -> Any:
        state = gc.replay(self.records)
        leaves = gc.expire(state, retention=RETENTION, as_of=AS_OF)
        frames = {table: getattr(state, table) for table in STATE_TABLES} | dict(zip(RULE_TABLES, leaves, strict=True))
        frames["rebalances"] = gc.rebalances(self.records)
        for table, frame in frames.items():
            assert rows_of(frame) == self.written[table], f"gc's frame {table} is not the table"
        return rows_of(gc.decode(self.records))

    def kafka_columns(self) -> Any:
        """Return a frame as Spark's Kafka source gives it, with timestamps and with milliseconds as text, in a run and as a state."""
        place = (F.col("offsets_partition").alias("partition"), F.col("record_offset").alias("offset"))
        topic = F.lit("__consumer_offsets").alias("topic")
        moment = F.timestamp_millis("record_timestamp_ms").alias("timestamp")
        frame = self.records.where("control_type IS NULL AND cluster = 'classic-modern'").select("key", "value", topic, *place, moment)
        gc.run_nightly(frame, str(self.place / "of_frame"), cluster="main", as_of=AS_OF, spark=self.spark)
        offsets = in_order(gc.open_warehouse(str(self.place / "of_frame")).read("committed_offsets").to_pylist())
        assert rows_of(gc.replay(frame, cluster="main").committed_offsets) == offsets
        texts = frame.withColumns({name: F.col(name).cast("string") for name in ("partition", "offset")})
        in_seconds = texts.withColumn("timestamp", F.col("timestamp").cast("double"))
        of_seconds, of_texts = (rows_of(gc.decode(each).drop("timestamp")) for each in (in_seconds, texts))
        assert of_seconds == of_texts, "seconds are not read as timestamps are"
        return offsets

    def spilling_sort(self) -> Any:
        count, spilled = 3_000, "spark.shuffle.spill.numElementsForceSpillThreshold"
        key = b"\0\1\0\2g%d\0\1t\0\0\0\0"
        value = b"\0\3%s\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0"
        log = [(key % (offset % 7), value % offset.to_bytes(8, "big"), 0, offset) for offset in range(count)]
        random.Random(5).shuffle(log)
        frame = self.spark.createDataFrame(log, "key BINARY, value BINARY, partition INT, offset BIGINT").repartition(3)
        conf = self.spark.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
        conf.set(spilled, "100")
        try:
            found = dict(gc.replay(frame, cluster="main").committed_offsets.select("group_id", "committed_offset").collect())
        finally:
            conf.remove(spilled)
        assert found == {f"g{offset % 7}": offset for offset in range(count - 7, count)}
        return sorted(found.items())

    def source(self) -> Any:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            gc.register(self.spark)
        logs = GOLDEN / "classic-modern" / "logs"
        if not hasattr(self.spark, "dataSource"):
            assert any("gc.read_segments(spark, path)" in str(warning.message) for warning in told)
            return rows_of(gc.read_segments(self.spark, logs))
        return rows_of(self.spark.read.format("consumer_offsets").load(str(logs)))

    def stream(self) -> Any:
        """Micro-batches in foreachBatch leave what one run over all records leaves."""
        bronze, options = str(self.place / "bronze"), {"checkpointLocation": str(self.place / "checkpoint")}
        frame = self.records.where("cluster = 'classic-modern'")
        borders = frame.select(F.expr("percentile(record_timestamp_ms, array(0.3, 0.6))").alias("times")).first()["times"]  # type: ignore[index]

        def run(batch: DataFrame, number: int) -> None:
            gc.run_nightly(batch, str(self.place / "streamed"), cluster="classic-modern", as_of=AS_OF, retention=RETENTION)

        is_later = sum((F.col("record_timestamp_ms") > border).cast("int") for border in borders)
        for number in range(3):
            frame.where(is_later == number).coalesce(1).write.mode("append").parquet(bronze)
            stream = self.spark.readStream.schema(frame.schema).parquet(bronze)
            stream.writeStream.foreachBatch(run).options(**options).trigger(availableNow=True).start().awaitTermination()
        streamed = gc.open_warehouse(str(self.place / "streamed"))
        offsets = in_order(streamed.read("committed_offsets").to_pylist())
        assert len(streamed.runs()) == 3 and offsets, "a run for each micro-batch"
        assert offsets == [row for row in self.written["committed_offsets"] if "'classic-modern'" in row]
        return offsets

    def delta(self) -> Any:
        return rows_of(self.spark.read.format("delta").load(str(self.warehouse / "committed_offsets")))

    def spark_submit(self) -> Any:
        """``jobs/nightly.py`` with the package as a zip."""
        package, warehouse = self.place / "groupcoord_spark.zip", self.place / "submitted"
        with zipfile.ZipFile(package, "w") as archive:
            for path in (ROOT / "groupcoord_spark").rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    archive.write(path, path.relative_to(ROOT))
        command = [
            *(str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--properties-file", str(ROOT / "conf" / "spark-local.conf")),
            *("--master", "local[1]", "--py-files", str(package), str(ROOT / "jobs" / "nightly.py"), str(GOLDEN / CORPORA[0] / "logs")),
            *("--warehouse", str(warehouse), "--cluster", CORPORA[0], "--as-of", str(AS_OF), "--offsets-retention", RETENTION),
        ]
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PYSPARK_", "SPARK_"))}
        variables |= {"PYSPARK_PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        ended = subprocess.run(command, cwd=self.place, env=variables, capture_output=True, text=True, check=False, timeout=300)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return in_order(gc.open_warehouse(str(warehouse)).read("committed_offsets").to_pylist())


PARTS: tuple[Callable[[Conformance], Any], ...] = (
    *(Conformance.nightly, Conformance.frames, Conformance.kafka_columns, Conformance.spilling_sort, Conformance.source),
    *(Conformance.stream, Conformance.delta, Conformance.spark_submit),
)


def main(wanted: list[str]) -> None:
    os.environ |= {"TZ": "UTC", "PYSPARK_PYTHON": sys.executable}
    time.tzset()
    results = {}
    with tempfile.TemporaryDirectory() as place:
        # A session of the user, as on a platform: the package has its own settings and its own worker daemon only in sessions it starts.
        settings = {"spark.driver.host": "localhost", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **delta_settings()}
        spark = SparkSession.builder.master("local[2]").config(map={**settings}).getOrCreate()
        conformance = Conformance(spark, Path(place))
        for part in PARTS:
            if wanted and part.__name__ not in wanted:
                continue
            begin = time.monotonic()
            try:
                results[part.__name__] = hashlib.sha256(repr(part(conformance)).encode()).hexdigest()[:8]
            except Exception as failure:
                traceback.print_exc()
                results[part.__name__] = f"failed: {type(failure).__name__}"
            print(f"{part.__name__} {results[part.__name__]} {time.monotonic() - begin:.1f} s", file=sys.stderr)
        java = spark.sparkContext._jvm.System.getProperty("java.version")  # type: ignore[union-attr]
        versions = {"spark": spark.version, "python": ".".join(map(str, sys.version_info[:2])), "java": java}
    print(json.dumps({**versions, **results}))


if __name__ == "__main__":
    main(sys.argv[1:])
