"""Logs of the tests as other tools would have exported them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupcoord_spark.log import plan_logs, read_segment
from groupcoord_spark.sources.rows import RAW_SCHEMA
from groupcoord_spark.sources.segments import raw_batches


def raw_rows(logs: Path, cluster: str = "default") -> pa.Table:
    """Return all records of a log in the raw schema, as the source ``consumer_offsets`` gives them."""
    batches = [
        batch
        for partition in plan_logs([str(logs)]).partitions
        for segment in partition.segments
        for chunk in read_segment(segment)
        for batch in raw_batches(chunk, segment, cluster)
    ]
    return pa.Table.from_batches(batches, RAW_SCHEMA)


def of_sparks_kafka_source(raw: pa.Table) -> pa.Table:
    """Return the same as Spark's Kafka source gives it: no markers, and nothing of producers."""
    data = raw.filter(raw["control_type"].is_null())
    n = data.num_rows
    return pa.table(
        {
            "key": data["key"],
            "value": data["value"],
            "topic": pa.repeat("__consumer_offsets", n),
            "partition": data["offsets_partition"],
            "offset": data["record_offset"],
            "timestamp": data["record_timestamp_ms"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), n),
            "headers": pa.nulls(n, pa.list_(pa.string())),
        }
    )


def write_parquet(directory: Path, table: pa.Table, *, files: int = 1) -> Path:
    """Return a folder of Parquet as Spark leaves one; the rows of the files take turns, so that no file is in the order of a log."""
    directory.mkdir(parents=True)
    (directory / "_SUCCESS").touch()
    for number in range(files):
        rows = table if files == 1 else table.take(list(range(number, table.num_rows, files)))
        pq.write_table(rows, directory / f"part-{number:05}.snappy.parquet")
    return directory


def lines(records: Iterable[dict[str, Any]]) -> bytes:
    """Return one JSON object a line."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def text64(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode()


def kcat_lines(raw: pa.Table) -> Iterator[bytes]:
    """Yield what ``kcat -J`` prints: control characters, quotes and backslashes escaped, every other byte as it is."""

    def text(value: bytes | None) -> bytes:
        if value is None:
            return b"null"
        return (
            b'"'
            + b"".join(b"\\u%04X" % each if each < 32 else b"\\" + bytes([each]) if each in b'"\\' else bytes([each]) for each in value)
            + b'"'
        )

    for row in raw.filter(raw["control_type"].is_null()).to_pylist():
        yield b'{"topic":"__consumer_offsets","partition":%d,"offset":%d,"tstype":"create","ts":%d,"broker":1,"key":%s,"payload":%s}\n' % (
            row["offsets_partition"],
            row["record_offset"],
            row["record_timestamp_ms"],
            text(row["key"]),
            text(row["value"]),
        )
