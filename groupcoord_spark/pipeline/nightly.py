"""One night: the order of the stages, from the inputs to the commit of the run."""

from __future__ import annotations

import heapq
import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from groupcoord_spark.log import LogPlan, Segment
from groupcoord_spark.log.storage import shown
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED
from groupcoord_spark.pipeline.exchange.state_rows import REPLAYED, WRITTEN, PartitionReport
from groupcoord_spark.pipeline.expiration import ExpirationJob
from groupcoord_spark.pipeline.extents import HistoryPiece, PointInTime
from groupcoord_spark.pipeline.outcome import contradiction, driver_rows, files_of, run_row, summary_of
from groupcoord_spark.pipeline.plan.earlier_runs import histories_of, range_to_append_to, versions_at_end_of_history
from groupcoord_spark.pipeline.plan.file_ranges import in_ranges
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.plan.partition_count import likely_partition_count
from groupcoord_spark.pipeline.plan.point_in_time import history_pieces, points_in_time_of
from groupcoord_spark.pipeline.read.reader import ReadJob, read_chunks, read_history, read_segments
from groupcoord_spark.pipeline.read.rows import pieces_of, sorted_rows
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob, partition_replay
from groupcoord_spark.pipeline.replay.state_files import WriteJob, state_writer
from groupcoord_spark.pipeline.run import RunRequest, Summary
from groupcoord_spark.sources.rows import ROW_SCHEMA
from groupcoord_spark.spark.failures import own_errors
from groupcoord_spark.spark.headway import Expected, Headway, HeadwayOfJob
from groupcoord_spark.warehouse import TABLES, begin_run, commit_run, discarded_on_failure, write_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_TASK_BYTES = 512 << 20
"""A reading task's share where the input is large: long enough for records to supersede others, short enough to even out."""

RUNS_FOR_A_CORE = 4
"""At least, where a partition has several files: so that its share evens out."""

STATE_WRITER_BYTES = 4 << 30
"""Input for which one more task writes the state tables; below it each table is one file."""


class Progress(Protocol):
    """Told of each stage when it begins and when it ends."""

    @property
    def stage(self) -> str | None:
        """The stage that has begun and not ended."""

    def begin(self, stage: str) -> None: ...
    def follow(self, headway: Callable[[], Headway]) -> None:
        """The stage takes long, and ``headway`` tells how far it is whenever it is called, also from another thread."""

    def end(self, *, rows: int | None = None, bytes: int | None = None) -> None: ...


def run_nightly(night: RunRequest, plan: LogPlan, spark: SparkSession, progress: Progress, rows: RowPlan | None = None) -> Summary:
    """Read, decode, replay, expire and write; the tables change at the very end, all at once.

    plan: of segments, or with ``rows``, which are then read instead, what is known of them beforehand.
    Raises InputError and WarehouseError as planning, reading and writing do; the tables are then as they were.
    """
    start = begin_run(night.warehouse, night.cluster)
    segments = [segment for partition in plan.partitions for segment in partition.segments]
    histories = histories_of(plan, start)
    past: Mapping[int, PointInTime] = {}
    progress.begin("read, replay and write")
    if night.until is not None:
        with own_errors(lambda: progress.stage):
            past = points_in_time_of(night.until, plan, {each: history.held for each, history in histories.items()}, start, spark)
        segments = [segment for segment in segments if segment.base_offset < past[segment.offsets_partition].end_offset]
    pieces = history_pieces(past, start)
    held = {each: range_to_append_to(history.held, past.get(each)) for each, history in histories.items()}
    job = ReadJob(
        cluster=night.cluster,
        partition_count=_partition_count(night, plan, rows),
        warehouse_uri=start.location.uri,
        run_id=start.run_id,
        semantics=night.semantics,
        with_history=night.with_history,
        held=held,
        rebalances=RebalanceJob(start.location.uri, night.cluster, held, versions_at_end_of_history(start)),
        past=past,
    )
    previous_retention_ms = None if start.last_run is None else start.last_run.retention_ms
    expiration = ExpirationJob(night.as_of_ms, night.retention_ms, night.semantics, previous_retention_ms=previous_retention_ms)
    has_work = bool(segments or pieces) or rows is not None
    reports: list[PartitionReport] = []
    if has_work:
        with discarded_on_failure(start), own_errors(lambda: progress.stage):
            reports = _run_stages(spark, segments, pieces, night, job, rows, expiration, progress)
    records = sum(report.counts.records for report in reports)
    progress.end(rows=records, bytes=sum(report.counts.bytes for report in reports))

    progress.begin("commit")
    files = files_of(reports)
    for table, own in driver_rows(night, plan, reports, histories, past, start.run_id).items():
        if own:
            files.setdefault(table, []).extend(
                write_part(start.location.uri, TABLES[table], TABLES[table].from_rows(own), night.cluster, start.run_id)
            )
    summary = summary_of(night, plan, reports, past, start.run_id, rows)
    commit_run(start, run_row(night, summary, past), files)
    progress.end(rows=sum(added.records for every in files.values() for added in every))
    return summary


def _partition_count(night: RunRequest, plan: LogPlan, rows: RowPlan | None) -> int:
    """Partitions of ``__consumer_offsets``: as the settings say, unless the log has more, else as the groups in the log suggest."""
    if night.offsets_partitions is not None and contradiction(night, plan) is None:
        return night.offsets_partitions
    return rows.partition_count if rows is not None else likely_partition_count(plan)


def _run_stages(
    spark: SparkSession,
    segments: Sequence[Segment],
    pieces: Sequence[HistoryPiece],
    night: RunRequest,
    job: ReadJob,
    rows: RowPlan | None,
    expiration: ExpirationJob,
    progress: Progress,
) -> list[PartitionReport]:
    """Everything that happens on the workers; what comes back is a report for each offsets partition."""
    parallelism = spark.sparkContext.defaultParallelism
    segments = in_ranges(segments, spark)
    of_segments = read_tasks(segments, parallelism) if segments else []
    tasks: list[list[list[Segment]] | HistoryPiece] = [*of_segments, *pieces]
    if job.with_history and not job.past:
        job = replace(job, whole=in_one_run(of_segments))
    writers = 1 + min(parallelism - 1, sum(segment.bytes for segment in segments) // STATE_WRITER_BYTES)
    read_partitions = {segment.offsets_partition for segment in segments} | {piece.offsets_partition for piece in pieces}
    offsets_partitions = len(read_partitions) if rows is None else len(rows.log.partitions) + 1
    replays = min(offsets_partitions, int(spark.conf.get("spark.sql.shuffle.partitions") or parallelism))
    replay_job = ReplayJob(night.semantics, expiration, writers, job.rebalances, night.default_assignors)
    write_job = WriteJob(night.cluster, job.warehouse_uri, job.run_id, dict(night.topic_names))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                work = tasks[task]
                yield from read_history(work, job) if isinstance(work, HistoryPiece) else read_segments(work, job)

    def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return read_chunks(([piece] for piece in pieces_of((batch.cast(ROW_SCHEMA) for batch in batches), source)), job)

    source = ", ".join(map(shown, night.inputs))
    if rows is None:
        kept = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, SHUFFLED)
    else:
        kept = sorted_rows(rows.frame).mapInArrow(read_rows, SHUFFLED)
    # Rows of one partition reach its replay in the order of their offsets: the grouping keeps this sorting, as it needs a prefix of it.
    in_order = kept.repartition(replays, "cluster", "offsets_partition").sortWithinPartitions(
        "cluster", "offsets_partition", "first_offset"
    )
    replayed = in_order.groupBy("cluster", "offsets_partition").applyInPandas(partition_replay(replay_job), REPLAYED)
    written = replayed.repartition(writers, "writer").sortWithinPartitions("place").mapInArrow(state_writer(write_job), WRITTEN)
    expected = None if rows is not None else Expected(_bytes(segments), len(tasks), replays + writers)
    progress.follow(HeadwayOfJob(spark, expected))
    reports = [report for row in written.collect() for report in pickle.loads(row.payload)]
    if rows is not None:
        rows.frame.unpersist()
    return reports


def read_tasks(segments: Sequence[Segment], parallelism: int) -> list[list[list[Segment]]]:
    """Runs of consecutive files of one partition, shared out evenly, the largest first.

    A run is as long as evenness allows: what a file's records supersede in the one before is dropped in the worker.
    """
    total = _bytes(segments)
    most_bytes = min(READ_TASK_BYTES, total / (RUNS_FOR_A_CORE * parallelism))
    rounds = max(1, -(-total // (READ_TASK_BYTES * parallelism)))  # whole rounds: no core waits for another's last task
    count = rounds * parallelism
    runs = [run for of_partition in _by_partition(segments) for run in _runs(of_partition, most_bytes)]
    shares: list[tuple[int, int, list[list[Segment]]]] = [(0, task, []) for task in range(min(len(runs), count))]
    for run in sorted(runs, key=lambda run: -_bytes(run)):
        size, task, share = heapq.heappop(shares)
        share.append(run)
        heapq.heappush(shares, (size + _bytes(run), task, share))
    largest_first = sorted(shares, key=lambda each: -each[0])
    return [sorted(share, key=lambda run: (run[0].offsets_partition, run[0].base_offset)) for _, _, share in largest_first]


def in_one_run(tasks: Iterable[Iterable[Sequence[Segment]]]) -> frozenset[int]:
    """Offsets partitions of which one run has all files."""
    runs = Counter(run[0].offsets_partition for task in tasks for run in task)
    return frozenset(offsets_partition for offsets_partition, count in runs.items() if count == 1)


def _by_partition(segments: Sequence[Segment]) -> list[list[Segment]]:
    partitions: dict[int, list[Segment]] = {}
    for segment in sorted(segments, key=lambda each: (each.offsets_partition, each.base_offset)):
        partitions.setdefault(segment.offsets_partition, []).append(segment)
    return list(partitions.values())


def _runs(segments: Sequence[Segment], most_bytes: float) -> list[list[Segment]]:
    """The files of one partition, in their order, in runs of about equal size and of about ``most_bytes`` at most."""
    wanted = _bytes(segments) / max(1, math.ceil(_bytes(segments) / max(most_bytes, 1)))
    runs: list[list[Segment]] = [[]]
    for segment in segments:
        if _bytes(runs[-1]) + segment.bytes / 2 > wanted and runs[-1]:
            runs.append([])
        runs[-1].append(segment)
    return runs


def _bytes(segments: Iterable[Segment]) -> int:
    return sum(segment.bytes for segment in segments)
