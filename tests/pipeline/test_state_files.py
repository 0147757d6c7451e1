"""The writers of the state tables: packed rows in, one file for each table out, with topic names filled in."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupcoord_spark.coordinator.groups.group import AssignmentRow
from groupcoord_spark.pipeline.exchange.packing import pack
from groupcoord_spark.pipeline.exchange.state_rows import PARTITION_REPORT, TOPIC_NAMES, PartitionReport, to_arrow
from groupcoord_spark.pipeline.replay.state_files import WriteJob, state_writer
from groupcoord_spark.warehouse import TABLES

ONE, TWO, THREE = ("A" * 21 + letter for letter in "AQg")


def assignment(topic_id: str | None, topic: str | None = None) -> AssignmentRow:
    return AssignmentRow("g", "m", "target", topic, topic_id, None, None, 0)


def assignments(*rows: AssignmentRow) -> tuple[str, bytes]:
    arrow = to_arrow(TABLES["assignments"], AssignmentRow._fields, rows)
    if "offsets_partition" in TABLES["assignments"].by_name:
        arrow = arrow.append_column("offsets_partition", pa.array([0] * len(rows), pa.int32()))
    return "assignments", pack(arrow)


def names(**topic_names: str) -> tuple[str, bytes]:
    return TOPIC_NAMES, pickle.dumps({{"one": ONE, "two": TWO, "three": THREE}[name]: topic for name, topic in topic_names.items()})


def written(
    tmp_path: Path, batches: Sequence[Sequence[tuple[str, bytes]]], from_user: Mapping[str, str] | None = None
) -> tuple[list[PartitionReport], list[dict[str, Any]]]:
    """(reports, rows of assignments) that a writer makes of rows (kind, payload)."""
    write = state_writer(WriteJob("c", str(tmp_path), "run", dict(from_user or {})))
    frames = [
        pa.RecordBatch.from_pydict({"place": [0] * len(rows), "kind": [kind for kind, _ in rows], "payload": [load for _, load in rows]})
        for rows in batches
    ]
    (row,) = [payload for batch in write(frames) for payload in batch.column("payload").to_pylist()]
    reports: list[PartitionReport] = pickle.loads(row)
    files = [file for report in reports for file in report.files.get("assignments", [])]
    tables = [pq.read_table(tmp_path / "assignments" / file.path, partitioning=None) for file in files]
    return reports, [row_of_table for table in tables for row_of_table in table.to_pylist()]


def test_topic_names_of_all_partitions_fill_the_rows(tmp_path: Path) -> None:
    batches = [[names(one="a"), names(two="b")], [assignments(assignment(ONE), assignment(THREE)), assignments(assignment(TWO))]]
    _, rows = written(tmp_path, batches)
    assert [(row["topic_id"], row["topic"]) for row in rows] == [(ONE, "a"), (THREE, None), (TWO, "b")]


def test_names_from_the_user_win_over_those_from_the_log(tmp_path: Path) -> None:
    _, rows = written(tmp_path, [[names(one="a"), assignments(assignment(ONE))]], {ONE: "renamed"})
    assert [row["topic"] for row in rows] == ["renamed"]


def test_a_name_in_the_row_itself_stays(tmp_path: Path) -> None:
    _, rows = written(tmp_path, [[names(one="a"), assignments(assignment(None, "t"), assignment(ONE, "u"))]])
    assert [row["topic"] for row in rows] == ["t", "u"]


def test_reports_of_partitions_come_through_after_the_report_of_the_files(tmp_path: Path) -> None:
    batches = [[(PARTITION_REPORT, pickle.dumps(PartitionReport(number, groups=number)))] for number in (4, 7)]
    reports, rows = written(tmp_path, [*batches, [assignments(assignment(ONE))]])
    assert [(report.offsets_partition, report.groups) for report in reports] == [(-1, 0), (4, 4), (7, 7)]
    assert list(reports[0].files) == ["assignments"] and len(rows) == 1


def test_a_writer_without_rows_writes_no_file(tmp_path: Path) -> None:
    reports, rows = written(tmp_path, [])
    assert [report.offsets_partition for report in reports] == [-1] and not reports[0].files and rows == []
