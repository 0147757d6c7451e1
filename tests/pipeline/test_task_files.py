"""The files of one Spark task: one for each table with a row, and none after an exception."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupcoord_spark.pipeline.exchange.task_files import TaskFiles


def transactions(*record_offsets: int) -> pa.Table:
    """Return rows of the table transactions in a reader's form."""
    count = len(record_offsets)
    return pa.table(
        {
            "offsets_partition": pa.array([0] * count, pa.int32()),
            "incarnation": pa.array([0] * count, pa.int32()),
            "record_offset": pa.array(record_offsets, pa.int64()),
            "producer_id": pa.array([7] * count, pa.int64()),
        }
    )


def parquet_files(warehouse: Path) -> list[Path]:
    return sorted(warehouse.rglob("*.parquet"))


def test_rows_of_one_table_are_in_one_file_with_its_constants(tmp_path: Path) -> None:
    with TaskFiles(str(tmp_path), "c", "run") as files:
        files.write("transactions", transactions(1, 2), result="committed")
        files.write("transactions", transactions(5), result="aborted")
        (added,) = files.written()["transactions"]
    written = pq.read_table(tmp_path / "transactions" / added.path, partitioning=None)
    assert list(zip(written["record_offset"].to_pylist(), written["result"].to_pylist(), strict=True)) == [
        (1, "committed"),
        (2, "committed"),
        (5, "aborted"),
    ]
    assert added.records == 3


def test_rows_of_a_table_with_runs_have_the_name_of_the_run(tmp_path: Path) -> None:
    lost = {"offsets_partition": pa.array([0], pa.int32()), "reason": ["value_truncated"], "detail": ["cut"]}
    with TaskFiles(str(tmp_path), "c", "this run") as files:
        files.write("quarantined_records", lost)
        (added,) = files.written()["quarantined_records"]
    assert pq.read_table(tmp_path / "quarantined_records" / added.path, partitioning=None)["run_id"].to_pylist() == ["this run"]


def test_a_table_without_rows_has_no_file(tmp_path: Path) -> None:
    with TaskFiles(str(tmp_path), "c", "run") as files:
        assert files.written() == {}
    assert parquet_files(tmp_path) == []


def test_an_exception_leaves_no_file_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the disk is full"), TaskFiles(str(tmp_path), "c", "run") as files:
        files.write("transactions", transactions(1), result="committed")
        raise OSError("the disk is full")
    assert parquet_files(tmp_path) == []
