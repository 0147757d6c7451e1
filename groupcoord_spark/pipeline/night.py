"""A night: plan, read, replay, write, commit.

Workers open segment files themselves, because a record that crosses Java costs 3.3 microseconds of CPU, and one that a worker decodes and
drops 0.6. They send on only what the state may depend on, 1.15 of 10 million records, some hundred thousand packed in a BINARY value:
0.8 seconds of CPU, and 5.9 as rows with named columns. Rows of other inputs come from any DataFrame in any order, and only who sees all
records of an offsets partition may drop one, so their tasks pack them as they are. One exchange and one sort by (cluster, offsets
partition) and record offset follow, and one function for ``applyInPandas`` that replays a partition, for a night as for ``gc.replay``.
Files are written by workers and added by delta-rs, not by ``DataFrame.write``: a reader then sees all tables of a night or none.
"""

from __future__ import annotations

import heapq
import math
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from groupcoord_spark.log import LogPlan, Segment
from groupcoord_spark.log.files.storage import shown
from groupcoord_spark.pipeline.division import Division
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED, to_spark
from groupcoord_spark.pipeline.exchange.state_rows import COLUMNS, REPLAYED, WRITTEN, PartitionReport
from groupcoord_spark.pipeline.expiration import ExpirationJob
from groupcoord_spark.pipeline.health_rows import TOPIC_HEALTH, health_rows
from groupcoord_spark.pipeline.log_directory.beside_the_offsets import BesideTheOffsets, read_beside_the_offsets
from groupcoord_spark.pipeline.outcome import driver_rows, files_by_table, history_ends, run_row, settings_for_next_night, summary_of
from groupcoord_spark.pipeline.plan.earlier_runs import latest_records_at_history_end
from groupcoord_spark.pipeline.plan.file_ranges import split_large_segments
from groupcoord_spark.pipeline.plan.guards import judge_what_was_read
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.plan.night_plan import NightPlan, plan_night
from groupcoord_spark.pipeline.progress import Progress
from groupcoord_spark.pipeline.read.reader import ReadJob, Work, read_task
from groupcoord_spark.pipeline.read.rows import packed_rows
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob, partition_replay
from groupcoord_spark.pipeline.replay.state_files import WriteJob, state_writer
from groupcoord_spark.pipeline.run import RunRequest, Summary
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.sources.rows import UNKNOWN_PARTITION
from groupcoord_spark.spark.failures import own_errors
from groupcoord_spark.spark.job_progress import Expected, ProgressOfJob
from groupcoord_spark.spark.stage_names import UNNAMED, StageNames, describe_job, describe_stages
from groupcoord_spark.warehouse import TABLES, RunStart, Warehouse, begin_run, commit_run, discarded_on_failure, write_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITTEN_ROW_BYTES: Final = 4 << 10
"""What a row of an input other than segments counts for the number of writers: they also write its history, a million rows each."""


def run_nightly(
    request: RunRequest,
    log: LogPlan,
    spark: SparkSession,
    progress: Progress,
    rows: RowPlan | None = None,
    warehouse: Warehouse | None = None,
) -> Summary:
    """Summary of a run that reads, decodes, replays, expires and writes. All tables change at once, in the commit at the end.

    Args:
        request: what the user asked for.
        log: the segments to read; with ``rows``, what is known of the rows before they are read.
        rows: rows of an input other than segments, which are then read instead of segments.
        warehouse: that of the request, where it is open already.
    Raises:
        InputError, WarehouseError: an input or the warehouse cannot be used; the tables are as they were.
        BadCopyError: the input looks like a bad copy, and the request does not accept that; the tables are as they were.
    """
    start = begin_run(warehouse or request.warehouse, request.cluster)
    progress.begin("read, replay and write")
    with own_errors(lambda: progress.stage), describe_job(spark, shown_run(request), "look for new records"):
        planned, beside = plan(request, log, rows, start, spark)
    reports: list[PartitionReport] = []
    if planned.reads_something:
        with discarded_on_failure(start), own_errors(lambda: progress.stage):
            tasks = tasks_of(planned, spark)
            job = read_job(planned, tasks, start)
            with describe_stages(spark, shown_run(planned.request), "read", "replay", "write") as stages:
                kept = read(spark, planned, tasks, job, stages)
                replayed = replay(kept, replay_job(planned, tasks, job, start), tasks.replays, stages)
                progress.follow(ProgressOfJob(spark, tasks.expected))
                reports = write(replayed, job, planned.request, tasks.writers)
            if planned.rows is not None:
                planned.rows.source.release()
            planned = replace(planned, verdict=judge_what_was_read(planned.night, planned.verdict, reports))
    progress.end(rows=sum(report.counts.records for report in reports), bytes=sum(report.counts.bytes for report in reports))
    progress.begin("commit")
    summary, written = commit(planned, reports, beside.tables, start)
    progress.end(rows=written)
    return summary


def plan(
    request: RunRequest, log: LogPlan, rows: RowPlan | None, start: RunStart, spark: SparkSession
) -> tuple[NightPlan, BesideTheOffsets]:
    """What the run reads and what it takes over from the last night, and what stands in the input beside the offsets topic."""
    beside = read_beside_the_offsets(request, InputKind.SEGMENTS if rows is None else rows.source.kind, start.run_id)
    request = replace(
        request,
        topic_names=beside.topic_names,
        transactional_ids=beside.transactional_ids,
        delete_retention=beside.delete_retention or request.delete_retention,
    )
    return plan_night(request, replace(log, doubts=(*log.doubts, *beside.doubts)), rows, start, spark), beside


def read(spark: SparkSession, planned: NightPlan, tasks: Tasks, job: ReadJob, stages: StageNames) -> DataFrame:
    """A frame of SHUFFLED: the kept records of segments and of the history, packed, and the raw rows of other inputs, packed."""

    def read_tasks(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from to_spark(job.cluster, read_task(tasks.reading[task], job))

    frames = []
    if count := len(tasks.reading):
        frames.append(spark.range(0, count, 1, count).mapInArrow(stages.followed_by("replay", read_tasks), SHUFFLED))
    if planned.rows is not None:
        read_before = {} if planned.carry_over.state is None else planned.carry_over.state.end_offsets
        frames.append(planned.rows.packed_from(read_before, stages.followed_by("replay", packed_rows(planned.request.cluster))))
    return reduce(lambda one, other: one.union(other), frames)


def replay(kept: DataFrame, job: ReplayJob, tasks: int, stages: StageNames = UNNAMED) -> DataFrame:
    """A frame of REPLAYED: the rows of the tables, from a frame of SHUFFLED.

    The rows of a group come in the order of the one sort. Spark would sort again, by the key alone, and lose that order where it spills, if
    it knew that a column of the key is constant. It cannot know: the columns come out of a function, also where a frame has one cluster.
    """
    place = ("cluster", "offsets_partition")
    of_places = kept.repartition(tasks, *place).sortWithinPartitions(*place, "first_offset").groupBy(*place)
    return of_places.applyInPandas(stages.followed_by("write", partition_replay(job)), REPLAYED)


def write(replayed: DataFrame, job: ReadJob, request: RunRequest, writers: int) -> list[PartitionReport]:
    """A report for each offsets partition, after the workers have read, replayed and written everything."""
    to_write = WriteJob(job.cluster, job.warehouse_uri, job.run_id, dict(request.topic_names), dict(request.transactional_ids))
    rows = replayed.select(*COLUMNS).repartition(writers, "writer").sortWithinPartitions("place")
    written = rows.mapInArrow(state_writer(to_write), WRITTEN).collect()
    return [report for row in written for report in pickle.loads(row.payload)]


def commit(planned: NightPlan, reports: Sequence[PartitionReport], beside: Mapping[str, pa.Table], start: RunStart) -> tuple[Summary, int]:
    """The summary, and the number of rows in the files that are now part of the tables. beside: rows that are from other topics."""
    request, files = planned.request, files_by_table(reports)
    rows_of_driver = driver_rows(planned, reports, start.run_id)
    reads_from = {} if planned.carry_over.state is None else planned.carry_over.state.end_offsets
    newest_ms = {row["offsets_partition"]: row["newest_timestamp_ms"] for row in rows_of_driver["offsets_partitions"]}
    rows_of_driver[TOPIC_HEALTH] = health_rows(reports, planned.health_logs, reads_from, newest_ms, start, request)
    tables_of_driver = {name: TABLES[name].from_rows(table_rows) for name, table_rows in rows_of_driver.items() if table_rows}
    for table, table_rows in {**tables_of_driver, **beside}.items():
        files.setdefault(table, []).extend(write_part(start.location.uri, TABLES[table], table_rows, request.cluster, start.run_id))
    summary = summary_of(planned, reports, start.run_id, len(rows_of_driver["warnings"]))
    partitions = rows_of_driver["offsets_partitions"]
    settings = settings_for_next_night(planned, partitions)
    commit_run(start, run_row(request, summary, planned.points_in_time, settings), files, history_ends(partitions))
    return summary, sum(added.records for files_of_table in files.values() for added in files_of_table)


@dataclass(frozen=True, slots=True)
class Tasks:
    """Into which tasks a run is divided.

    reading: for each reading task its work. whole_partitions: offsets partitions whose segments are all in one sequence. replays, writers:
    numbers of tasks. expected: the work of the run; None: it is not known.
    """

    reading: Sequence[Work]
    whole_partitions: frozenset[int]
    replays: int
    writers: int
    expected: Expected | None


def tasks_of(planned: NightPlan, spark: SparkSession) -> Tasks:
    """The tasks of a run, by the bytes to read and the cores that there are."""
    division = Division.of(spark)
    with describe_job(spark, shown_run(planned.request), "split large segments"):
        segments = split_large_segments(planned.segments, spark, division)
    of_segments = read_tasks(segments, division) if segments else []
    carried = planned.carry_over.state
    partitions = {segment.offsets_partition for segment in segments} | {piece.offsets_partition for piece in planned.history}
    partitions |= set() if carried is None else set(carried.end_offsets)
    written_bytes = _bytes(segments)
    if planned.rows is not None:
        partitions |= {UNKNOWN_PARTITION, *(log.offsets_partition for log in planned.rows.log.partitions)}
        written_bytes += planned.rows.rows * WRITTEN_ROW_BYTES
    reading = [*of_segments, *planned.history, *([None] if carried is not None and carried.end_offsets else [])]
    replays = division.replays(len(partitions), int(spark.conf.get("spark.sql.shuffle.partitions") or division.cores))
    writers = division.writers(written_bytes, len(partitions))
    expected = None if planned.rows is not None else Expected(_bytes(segments), len(reading), replays + writers)
    return Tasks(reading, partitions_in_one_sequence(of_segments), replays, writers, expected)


def read_job(planned: NightPlan, tasks: Tasks, start: RunStart) -> ReadJob:
    """What every reader of the run needs to know."""
    request, carried = planned.request, planned.carry_over.state
    rebalances = RebalanceJob(start.location.uri, request.cluster, planned.history_ranges, latest_records_at_history_end(start))
    return ReadJob(
        cluster=request.cluster,
        partition_count=planned.partition_count.number,
        warehouse_uri=start.location.uri,
        run_id=start.run_id,
        semantics=request.semantics,
        with_history=request.writes_history,
        history_ranges=planned.history_ranges,
        rebalances=rebalances if request.writes_history else None,
        whole_partitions=tasks.whole_partitions,
        points_in_time=planned.points_in_time,
        counted=planned.carry_over.counted,
        carried_partitions=frozenset() if carried is None else frozenset(carried.end_offsets),
        health_logs=planned.health_logs,
    )


def replay_job(planned: NightPlan, tasks: Tasks, read: ReadJob, start: RunStart) -> ReplayJob:
    """What the replay of every offsets partition needs to know."""
    request, carry_over = planned.request, planned.carry_over
    previous_retention_ms = None if start.last_run is None else start.last_run.retention_ms
    return ReplayJob(
        request.semantics,
        ExpirationJob(request.as_of_ms, request.retention_ms, request.semantics, previous_retention_ms=previous_retention_ms),
        tasks.writers,
        read.rebalances or RebalanceJob(read.warehouse_uri, request.cluster, planned.history_ranges, None),
        None if planned.rows is None else read,
        ", ".join(map(shown, request.inputs)),
        request.default_assignors,
        carried=carry_over.state,
        changed=carry_over.changed,
        compared=carry_over.compared,
        remembered=carry_over.remembered,
        writes_latest=request.until is None,
        health_logs=read.health_logs,
    )


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
    in_order = sorted(segments, key=lambda segment: (segment.offsets_partition, segment.base_offset))
    return [list(of_partition) for _, of_partition in groupby(in_order, key=lambda segment: segment.offsets_partition)]


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
