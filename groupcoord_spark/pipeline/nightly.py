"""One nightly run: the order of the stages, from the inputs to the commit of the tables."""

from __future__ import annotations

import heapq
import math
import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from groupcoord_spark.log import LogPlan, Segment
from groupcoord_spark.log.files.storage import shown
from groupcoord_spark.pipeline.division import Division
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED
from groupcoord_spark.pipeline.exchange.state_rows import REPLAYED, WRITTEN, PartitionReport
from groupcoord_spark.pipeline.expiration import ExpirationJob
from groupcoord_spark.pipeline.extents import HistoryPiece
from groupcoord_spark.pipeline.health_rows import TOPIC_HEALTH, health_rows
from groupcoord_spark.pipeline.log_directory import read_beside_the_offsets
from groupcoord_spark.pipeline.outcome import driver_rows, files_by_table, history_ends, run_row, settings_for_next_night, summary_of
from groupcoord_spark.pipeline.plan.earlier_runs import state_versions_at_history_end
from groupcoord_spark.pipeline.plan.file_ranges import split_large_segments
from groupcoord_spark.pipeline.plan.guards import judge_what_was_read
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.plan.night_plan import NightPlan, plan_night
from groupcoord_spark.pipeline.progress import Progress
from groupcoord_spark.pipeline.read.reader import ReadJob, read_chunks, read_history, read_nothing, read_segments
from groupcoord_spark.pipeline.read.rows import chunks_by_partition, sorted_rows
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob, partition_replay
from groupcoord_spark.pipeline.replay.state_files import WriteJob, state_writer
from groupcoord_spark.pipeline.run import RunRequest, Summary
from groupcoord_spark.sources.rows import ROW_SCHEMA, InputKind
from groupcoord_spark.spark.failures import own_errors
from groupcoord_spark.spark.job_progress import Expected, ProgressOfJob
from groupcoord_spark.spark.stage_names import describe_job, describe_stages
from groupcoord_spark.warehouse import TABLES, RunStart, begin_run, commit_run, discarded_on_failure, write_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_nightly(request: RunRequest, plan: LogPlan, spark: SparkSession, progress: Progress, rows: RowPlan | None = None) -> Summary:
    """Summary of a run that reads, decodes, replays, expires and writes. All tables change at once, in the commit at the end.

    Args:
        request: what the user asked for.
        plan: the segments to read; with ``rows``, what is known of the rows before they are read.
        rows: rows of an input other than segments, which are then read instead of segments.
    Raises:
        InputError, WarehouseError: an input or the warehouse cannot be used; the tables are as they were.
        BadCopyError: the input looks like a bad copy, and the request does not accept that; the tables are as they were.
    """
    start = begin_run(request.warehouse, request.cluster)
    progress.begin("read, replay and write")
    with own_errors(lambda: progress.stage), describe_job(spark, shown_run(request), "look for new records"):
        beside = read_beside_the_offsets(request, InputKind.SEGMENTS if rows is None else rows.kind, start.run_id)
        request = replace(request, topic_names=beside.topic_names, transactional_ids=beside.transactional_ids)
        planned = plan_night(request, replace(plan, doubts=(*plan.doubts, *beside.doubts)), rows, start, spark)
    reports: list[PartitionReport] = []
    if planned.reads_something:
        with discarded_on_failure(start), own_errors(lambda: progress.stage):
            reports = _run_stages(planned, start, spark, progress)
            planned = replace(planned, verdict=judge_what_was_read(planned.night, planned.verdict, reports))
    progress.end(rows=sum(report.counts.records for report in reports), bytes=sum(report.counts.bytes for report in reports))

    progress.begin("commit")
    files = files_by_table(reports)
    rows_of_driver = driver_rows(planned, reports, start.run_id)
    reads_from = {} if planned.carry_over.state is None else planned.carry_over.state.end_offsets
    newest_ms = {row["offsets_partition"]: row["newest_timestamp_ms"] for row in rows_of_driver["offsets_partitions"]}
    rows_of_driver[TOPIC_HEALTH] = health_rows(reports, planned.health_logs, reads_from, newest_ms, start, request)
    tables_of_driver = {name: TABLES[name].from_rows(table_rows) for name, table_rows in rows_of_driver.items() if table_rows}
    for table, table_rows in {**tables_of_driver, **beside.tables}.items():
        files.setdefault(table, []).extend(write_part(start.location.uri, TABLES[table], table_rows, request.cluster, start.run_id))
    summary = summary_of(planned, reports, start.run_id)
    partitions = rows_of_driver["offsets_partitions"]
    known = settings_for_next_night(planned, partitions)
    commit_run(start, run_row(request, summary, planned.points_in_time, known), files, history_ends(partitions))
    progress.end(rows=sum(added.records for files_of_table in files.values() for added in files_of_table))
    return summary


def _read_job(planned: NightPlan, start: RunStart) -> ReadJob:
    request, carried = planned.request, planned.carry_over.state
    versions = state_versions_at_history_end(start)
    return ReadJob(
        cluster=request.cluster,
        partition_count=planned.partition_count,
        warehouse_uri=start.location.uri,
        run_id=start.run_id,
        semantics=request.semantics,
        with_history=request.writes_history,
        history_ranges=planned.history_ranges,
        rebalances=RebalanceJob(start.location.uri, request.cluster, planned.history_ranges, versions),
        points_in_time=planned.points_in_time,
        counted=planned.carry_over.counted,
        carried_partitions=frozenset() if carried is None else frozenset(carried.end_offsets),
        health_logs=planned.health_logs,
    )


def _run_stages(planned: NightPlan, start: RunStart, spark: SparkSession, progress: Progress) -> list[PartitionReport]:
    """A report for each offsets partition, after the workers have read, replayed and written everything."""
    request, rows, pieces, carry_over = planned.request, planned.rows, planned.history, planned.carry_over
    job = _read_job(planned, start)
    previous_retention_ms = None if start.last_run is None else start.last_run.retention_ms
    expiration = ExpirationJob(request.as_of_ms, request.retention_ms, request.semantics, previous_retention_ms=previous_retention_ms)
    division = Division.of(spark)
    with describe_job(spark, shown_run(request), "split large segments"):
        segments = split_large_segments(planned.segments, spark, division)
    segment_tasks = read_tasks(segments, division) if segments else []
    carried = carry_over.state
    carried_partitions = [] if carried is None else sorted(carried.end_offsets)
    tasks: list[list[list[Segment]] | HistoryPiece | None] = [*segment_tasks, *pieces, *([None] if carried_partitions else [])]
    if job.with_history and not job.points_in_time:
        job = replace(job, whole_partitions=partitions_in_one_sequence(segment_tasks))
    read_partitions = {segment.offsets_partition for segment in segments} | {piece.offsets_partition for piece in pieces}
    if rows is not None:
        read_partitions |= {-1, *(log.offsets_partition for log in rows.log.partitions)}
    offsets_partitions = len(read_partitions.union(carried_partitions))
    writers = division.writers(_bytes(segments), offsets_partitions)
    replays = division.replays(offsets_partitions, int(spark.conf.get("spark.sql.shuffle.partitions") or division.cores))
    replay_job = ReplayJob(
        request.semantics,
        expiration,
        writers,
        job.rebalances,
        request.default_assignors,
        carried=carried,
        compared=carry_over.compared,
        remembered=carry_over.remembered,
        writes_latest=request.until is None,
        health_logs=job.health_logs,
    )
    write_job = WriteJob(request.cluster, job.warehouse_uri, job.run_id, dict(request.topic_names), dict(request.transactional_ids))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                work = tasks[task]
                if work is None:
                    yield from read_nothing(carried_partitions, job)
                else:
                    yield from read_history(work, job) if isinstance(work, HistoryPiece) else read_segments(work, job)

    def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return read_chunks(([piece] for piece in chunks_by_partition((batch.cast(ROW_SCHEMA) for batch in batches), source)), job)

    source = ", ".join(map(shown, request.inputs))
    with describe_stages(spark, shown_run(request), "read", "replay", "write") as stages:
        replay = stages.groups_followed_by("write", partition_replay(replay_job))
        frames = [spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(stages.followed_by("replay", read), SHUFFLED)] if tasks else []
        if rows is not None:
            new_rows = rows.frame_from({} if carried is None else carried.end_offsets)
            frames.append(sorted_rows(new_rows).mapInArrow(stages.followed_by("replay", read_rows), SHUFFLED))
        kept = reduce(lambda one, other: one.union(other), frames)
        # Rows of one offsets partition must reach the replay in the order of their record offsets. groupBy sorts by a prefix of these
        # columns, so Spark keeps this order and does not sort again.
        sorted_rows_to_replay = kept.repartition(replays, "cluster", "offsets_partition").sortWithinPartitions(
            "cluster", "offsets_partition", "first_offset"
        )
        replayed = sorted_rows_to_replay.groupBy("cluster", "offsets_partition").applyInPandas(replay, REPLAYED)
        written = replayed.repartition(writers, "writer").sortWithinPartitions("place").mapInArrow(state_writer(write_job), WRITTEN)
        expected = None if rows is not None else Expected(_bytes(segments), len(tasks), replays + writers)
        progress.follow(ProgressOfJob(spark, expected))
        reports = [report for row in written.collect() for report in pickle.loads(row.payload)]
    if rows is not None:
        rows.release()
    return reports


def shown_run(request: RunRequest) -> str:
    """The run as Spark's UI shows it, before the name of each stage."""
    return f"nightly {request.cluster}"


def read_tasks(segments: Sequence[Segment], division: Division) -> list[list[list[Segment]]]:
    """For each reading task its sequences of consecutive segments of one offsets partition; tasks are about equal, the largest first.

    A sequence is as long as equal tasks allow, because a reader drops a record only if its successor is in the same sequence.
    """
    total = _bytes(segments)
    count, most_bytes = division.reading_tasks(total), division.sequence_bytes(total)
    sequences = [sequence for log in _by_partition(segments) for sequence in _sequences(log, most_bytes)]
    shares: list[tuple[int, int, list[list[Segment]]]] = [(0, task, []) for task in range(min(len(sequences), count))]
    for sequence in sorted(sequences, key=lambda sequence: -_bytes(sequence)):
        size, task, share = heapq.heappop(shares)
        share.append(sequence)
        heapq.heappush(shares, (size + _bytes(sequence), task, share))
    largest_first = sorted(shares, key=lambda share: -share[0])
    return [sorted(share, key=lambda sequence: (sequence[0].offsets_partition, sequence[0].base_offset)) for _, _, share in largest_first]


def partitions_in_one_sequence(tasks: Iterable[Iterable[Sequence[Segment]]]) -> frozenset[int]:
    """Offsets partitions whose segments are all in one sequence."""
    sequences = Counter(sequence[0].offsets_partition for task in tasks for sequence in task)
    return frozenset(offsets_partition for offsets_partition, count in sequences.items() if count == 1)


def _by_partition(segments: Sequence[Segment]) -> list[list[Segment]]:
    """The segments of each offsets partition, by base offset."""
    partitions: dict[int, list[Segment]] = {}
    for segment in sorted(segments, key=lambda segment: (segment.offsets_partition, segment.base_offset)):
        partitions.setdefault(segment.offsets_partition, []).append(segment)
    return list(partitions.values())


def _sequences(segments: Sequence[Segment], most_bytes: float) -> list[list[Segment]]:
    """The segments of one offsets partition in sequences of about equal size, of about ``most_bytes`` at most."""
    wanted = _bytes(segments) / max(1, math.ceil(_bytes(segments) / max(most_bytes, 1)))
    sequences: list[list[Segment]] = [[]]
    for segment in segments:
        if _bytes(sequences[-1]) + segment.bytes / 2 > wanted and sequences[-1]:
            sequences.append([])
        sequences[-1].append(segment)
    return sequences


def _bytes(segments: Iterable[Segment]) -> int:
    return sum(segment.bytes for segment in segments)
