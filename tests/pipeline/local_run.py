"""The stages of a nightly run without Spark: the same functions, called one after another in this process."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupcoord_spark.log import Segment
from groupcoord_spark.pipeline.exchange.kept_records import to_spark
from groupcoord_spark.pipeline.exchange.state_rows import COLUMNS, PartitionReport
from groupcoord_spark.pipeline.extents import HistoryPiece
from groupcoord_spark.pipeline.outcome import files_by_table
from groupcoord_spark.pipeline.read.reader import ReadJob, read_task
from groupcoord_spark.pipeline.replay.partition import ReplayJob, partition_replay
from groupcoord_spark.pipeline.replay.state_files import WriteJob, state_writer
from tests.running import plain_rows


def run_locally(
    tasks: Sequence[Sequence[Sequence[Segment]]],
    read_job: ReadJob,
    replay_job: ReplayJob,
    *,
    pieces: Sequence[HistoryPiece] = (),
    rows_per_frame: int = 1000,
) -> list[PartitionReport]:
    """Return the reports of a run whose reading tasks are given; the files that they name are in the warehouse of ``read_job``.

    pieces: the pieces of the history tables. rows_per_frame: rows of SHUFFLED that the replay of a partition gets at a time. Topic
    names come from the log alone.
    """
    carried = frozenset() if replay_job.carried is None else frozenset(replay_job.carried.end_offsets)
    works = [*((work, read_job) for work in (*tasks, *pieces)), (None, replace(read_job, carried_partitions=carried))]
    shuffled = pa.Table.from_batches(batch for work, job in works for batch in to_spark(job.cluster, read_task(work, job)))
    to_replay = shuffled.sort_by([("offsets_partition", "ascending"), ("first_offset", "ascending")]).combine_chunks()
    replayed: list[tuple[object, ...]] = []
    for batch in partition_replay(replay_job)(to_replay.to_batches(rows_per_frame)):
        replayed += zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
    write = state_writer(WriteJob(read_job.cluster, read_job.warehouse_uri, read_job.run_id, {}))
    reports: list[PartitionReport] = []
    for writer in range(replay_job.writers):
        rows_of_writer = sorted((row[1:] for row in replayed if row[0] == writer), key=lambda row: row[0])  # type: ignore[arg-type,return-value]
        columns = zip(*rows_of_writer, strict=True) if rows_of_writer else ((), (), ())
        types = (pa.int32(), pa.string(), pa.binary())
        batch = pa.RecordBatch.from_arrays([*map(pa.array, columns, types)], ["place", "kind", "payload"])
        for written in write([batch]):
            reports += [report for payload in written.column("payload").to_pylist() for report in pickle.loads(payload)]
    return reports


def rows_of_reports(warehouse: str, reports: Sequence[PartitionReport]) -> Mapping[str, list[dict[str, Any]]]:
    """Table -> rows in the files that the reports name; a table without a file has no rows."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for table, files in files_by_table(reports).items():
        for file in files:
            rows[table] += plain_rows(table, pq.ParquetFile(f"{warehouse}/{table}/{file.path}").read())
    return rows
