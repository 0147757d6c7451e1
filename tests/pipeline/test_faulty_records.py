"""Faulty records in bulk: all of them have their rows, and equal bytes are decoded once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.log import Chunk
from groupcoord_spark.pipeline.exchange.task_files import TaskFiles
from groupcoord_spark.pipeline.read.reader import PartitionReader, ReadJob
from groupcoord_spark.pipeline.read.rows import RowPiece
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from tests.pipeline.logs import LogRecord, commit_value, offset_key, records_of

MANY = 6_000
OFFSET = offset_key()
FAULTS: dict[str, dict[str, Any]] = {
    "null keys": {"key": None, "value": b"\0\0", "code": "null_key", "rule": "R-1.7"},
    "empty keys": {"key": b"", "value": b"\0\0", "code": "key_too_short", "rule": "R-1.8"},
    "cut keys": {"key": b"\0\2\0\5g", "value": b"\0\0", "code": "key_truncated", "rule": "R-1.8"},
    "cut values": {"key": OFFSET, "value": b"\0\x03\0", "code": "value_truncated", "rule": "R-1.10"},
    "versions": {"key": OFFSET, "value": b"\0\x63abc", "code": "unknown_value_version", "rule": "R-1.9"},
}


def tables_of(warehouse: Path, log: list[LogRecord]) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """Return what a reader writes of a log, by table, and how many records it sends on to the replay."""
    job = ReadJob("c", 1, str(warehouse), "run", JAVA, True, {}, RebalanceJob(str(warehouse), "c", {}, None))
    with TaskFiles(job.warehouse_uri, job.cluster, job.run_id) as files:
        rows = list(PartitionReader(job, files, 0, {}).read([(RowPiece(0, "s"), [Chunk(records_of(log), [], [], 0)])]))
    written = {folder.name: pq.read_table(folder).to_pylist() for folder in warehouse.iterdir()}
    return written, sum(row.batch.num_rows for row in rows if row.kind == "records")


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_every_one_of_many_equal_faults_has_its_rows_and_hardly_one_is_replayed(tmp_path: Path, fault: dict[str, Any]) -> None:
    tables, sent = tables_of(tmp_path, [LogRecord(i, fault["key"], fault["value"]) for i in range(MANY)])
    for table, code in (("quarantined_records", ("reason", fault["code"])), ("warnings", ("code", fault["rule"]))):
        assert Counter(row[code[0]] for row in tables[table]) == {code[1]: MANY}
        assert {row["record_offset"] for row in tables[table]} == set(range(MANY))
    assert sent <= 1


def test_every_one_of_many_doubts_has_its_row(tmp_path: Path) -> None:
    tables, _ = tables_of(tmp_path, [LogRecord(i, OFFSET, commit_value(i) + b"x", 7, False) for i in range(MANY)])
    assert Counter(row["code"] for row in tables["warnings"]) == {"value_trailing_bytes": MANY, "transactional_mismatch": MANY}
