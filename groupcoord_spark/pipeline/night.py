"""A run: plan, read, replay, write, commit.

Workers open segment files themselves, because a record that crosses Java costs 3.3 microseconds of CPU, and one that a worker decodes and
drops 0.6. They send on only what the state may depend on, 1.15 of 10 million records, some hundred thousand packed in a BINARY value:
0.8 seconds of CPU, and 5.9 as rows with named columns. Rows of other inputs come from any DataFrame in any order, and only a task that
sees all records of an offsets partition may drop one, so their tasks pack them as they are. One exchange and one sort by (cluster, offsets
partition) and record offset follow, and one function that replays each partition, for a run as for ``gc.replay``.
Files are written by workers and added by delta-rs, not by ``DataFrame.write``: a reader then sees all tables of a run or none.
"""

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from groupcoord_spark.answers.expiration import ExpirationJob
from groupcoord_spark.log import LogPlan
from groupcoord_spark.pipeline.beside_the_offsets import BesideTheOffsets, read_beside_the_offsets
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED, to_spark
from groupcoord_spark.pipeline.exchange.state_rows import COLUMNS, REPLAYED, WRITTEN, PartitionReport
from groupcoord_spark.pipeline.health_rows import TOPIC_HEALTH, health_rows
from groupcoord_spark.pipeline.offset_events import earlier_log_starts, events_of_run, offset_event_job
from groupcoord_spark.pipeline.outcome import driver_rows, files_by_table, history_ends, run_row, settings_for_next_run, summary_of
from groupcoord_spark.pipeline.plan.guards import judge_what_was_read
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.plan.run_plan import RunPlan, plan_run
from groupcoord_spark.pipeline.plan.tasks import Tasks, tasks_of
from groupcoord_spark.pipeline.progress import Progress
from groupcoord_spark.pipeline.read.offset_events import OFFSET_EVENTS
from groupcoord_spark.pipeline.read.reader import ReadJob, read_task
from groupcoord_spark.pipeline.read.rows import packed_rows
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob, partition_replay
from groupcoord_spark.pipeline.replay.state_files import WriteJob, state_writer
from groupcoord_spark.pipeline.run import RunRequest, Summary
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.spark.failures import own_errors
from groupcoord_spark.spark.job_progress import ProgressOfJob
from groupcoord_spark.spark.stage_names import UNNAMED, StageNames, describe_job, describe_stages
from groupcoord_spark.storage.location import shown
from groupcoord_spark.warehouse import TABLES, RunStart, Warehouse, begin_run, commit_run, discarded_on_failure, write_part


def run_stages(
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
        log: the segments to read; with ``rows``, the log as planned from the rows.
        rows: rows of an input other than segments, which are then read instead of segments.
        warehouse: the request's warehouse if it is open already.
    Raises:
        InputError, WarehouseError: an input or the warehouse cannot be used; the tables are as they were.
        BadCopyError: the input looks like a bad copy, and the request does not accept that; the tables are as they were.
    """
    start = begin_run(warehouse or request.warehouse, request.cluster)
    progress.begin("read, replay and write")
    run = f"nightly {request.cluster}"
    """The run as Spark's UI shows it, before the name of each stage."""
    with own_errors(lambda: progress.stage), describe_job(spark, run, "look for new records"):
        planned, beside = plan(request, log, rows, start, spark)
    reports: list[PartitionReport] = []
    if planned.reads_something:
        with discarded_on_failure(start), own_errors(lambda: progress.stage):
            tasks = tasks_of(planned, spark, run)
            to_read = read_job(planned, tasks, start, beside.tables)
            to_replay = replay_job(planned, tasks, to_read, start)
            progress.follow(ProgressOfJob(spark, tasks.expected))
            with describe_stages(spark, run, "read", "replay", "write") as stages:
                kept = read(spark, planned, tasks, to_read, stages)
                reports = write(replay(kept, to_replay, tasks.replays, stages), to_read, planned, tasks.writers)
            if planned.rows is not None:
                planned.rows.source.release()
            planned = replace(planned, verdict=judge_what_was_read(planned.run, planned.verdict, reports))
    progress.end(rows=sum(report.counts.records for report in reports), bytes=sum(report.counts.bytes for report in reports))
    progress.begin("commit")
    summary, written = commit(planned, reports, beside.tables, start)
    progress.end(rows=written)
    return summary


def plan(request: RunRequest, log: LogPlan, rows: RowPlan | None, start: RunStart, spark: SparkSession) -> tuple[RunPlan, BesideTheOffsets]:
    """Plan what the run reads and takes over from the last run, and read the input's other contents."""
    beside = read_beside_the_offsets(request, InputKind.SEGMENTS if rows is None else rows.source.kind, start.run_id)
    request = replace(
        request,
        topic_names=beside.topic_names,
        transactional_ids=beside.transactional_ids,
        delete_retention=beside.delete_retention or request.delete_retention,
        known_offsets_partitions=beside.offsets_partitions,
    )
    return plan_run(request, replace(log, doubts=(*log.doubts, *beside.doubts)), rows, start, spark), beside


def read(spark: SparkSession, planned: RunPlan, tasks: Tasks, job: ReadJob, stages: StageNames) -> DataFrame:
    """Return a frame of SHUFFLED: packed kept records of segments and of the history, and packed raw rows of other inputs."""

    def read_tasks(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from to_spark(job.cluster, read_task(tasks.reading[task], job))

    of_tasks, of_rows = (stages.followed_by("replay", function) for function in (read_tasks, packed_rows(planned.request.cluster)))
    frames = []
    if count := len(tasks.reading):
        frames.append(spark.range(0, count, 1, count).mapInArrow(of_tasks, SHUFFLED))
    if planned.rows is not None:
        frames.append(planned.rows.packed_from(planned.carry_over.reads_from, of_rows))
    return reduce(lambda one, other: one.union(other), frames)


def replay(kept: DataFrame, job: ReplayJob, tasks: int, stages: StageNames = UNNAMED) -> DataFrame:
    """Return a frame of REPLAYED, the rows of the tables, from a frame of SHUFFLED.

    The function divides the sorted rows into offsets partitions itself: before Spark 4.1 ``applyInPandas`` needs all rows of a group in
    memory. With an explicit number of tasks adaptive execution neither joins nor splits them.
    """
    place = ("cluster", "offsets_partition")
    sorted_rows = kept.repartition(tasks, *place).sortWithinPartitions(*place, "first_offset")
    return sorted_rows.mapInArrow(stages.followed_by("write", partition_replay(job)), REPLAYED)


def write(replayed: DataFrame, job: ReadJob, planned: RunPlan, writers: int) -> list[PartitionReport]:
    """Return a report for each offsets partition, after the workers have read, replayed and written everything."""
    names = dict(planned.request.topic_names), dict(planned.request.transactional_ids)
    to_write = WriteJob(job.cluster, job.warehouse_uri, job.run_id, *names, planned.partition_count)
    rows = replayed.select(*COLUMNS).repartition(writers, "writer").sortWithinPartitions("place")
    written = rows.mapInArrow(state_writer(to_write), WRITTEN).collect()
    return [report for row in written for report in pickle.loads(row.payload)]


def commit(planned: RunPlan, reports: Sequence[PartitionReport], beside: Mapping[str, pa.Table], start: RunStart) -> tuple[Summary, int]:
    """Commit the run. Return the summary and the number of rows added to the tables. ``beside`` holds rows from other topics."""
    request, files = planned.request, files_by_table(reports)
    rows_of_driver = driver_rows(planned, reports, start.run_id)
    if sentence := start.clock_went_back:
        rows_of_driver["warnings"].append({"run_id": start.run_id, "code": "clock_went_back", "detail": sentence})
    newest_ms = {row["offsets_partition"]: row["newest_timestamp_ms"] for row in rows_of_driver["offsets_partitions"]}
    rows_of_driver[TOPIC_HEALTH] = health_rows(reports, planned.health_logs, planned.carry_over.reads_from, newest_ms, start, request)
    tables_of_driver = {name: TABLES[name].from_rows(table_rows) for name, table_rows in rows_of_driver.items() if table_rows}
    job = offset_event_job(request, beside, start)
    if events := list(events_of_run(reports, job, planned.history_ranges, newest_ms, files, start)):
        tables_of_driver[OFFSET_EVENTS] = TABLES[OFFSET_EVENTS].from_milliseconds(pa.concat_tables(events))
    for table, table_rows in (*tables_of_driver.items(), *((name, rows) for name, rows in beside.items() if rows.num_rows)):
        files.setdefault(table, []).extend(write_part(start.location.uri, TABLES[table], table_rows, request.cluster, start.run_id))
    summary = summary_of(planned, reports, start.run_id, rows_of_driver)
    partitions = rows_of_driver["offsets_partitions"]
    settings = settings_for_next_run(planned, partitions, reports)
    commit_run(start, run_row(request, summary, planned.points_in_time, settings), files, history_ends(partitions))
    return summary, sum(added.records for files_of_table in files.values() for added in files_of_table)


def read_job(planned: RunPlan, tasks: Tasks, start: RunStart, beside: Mapping[str, pa.Table]) -> ReadJob:
    """Return the job of the run's readers. beside: rows that are from other topics."""
    request = planned.request
    rebalances = RebalanceJob(start.location.uri, request.cluster, planned.history_ranges, planned.tables_at_history_end)
    return ReadJob(
        cluster=request.cluster,
        partition_count=planned.partition_count.number,
        warehouse_uri=start.location.uri,
        run_id=start.run_id,
        semantics=request.semantics,
        with_history=request.writes_history,
        history_ranges=planned.history_ranges,
        rebalances=rebalances if request.writes_history else None,
        offset_events=offset_event_job(request, beside, start),
        whole_partitions=tasks.whole_partitions,
        points_in_time=planned.points_in_time,
        counted=planned.carry_over.counted,
        carried_partitions=frozenset(planned.carry_over.reads_from),
        health_logs=planned.health_logs,
    )


def replay_job(planned: RunPlan, tasks: Tasks, read: ReadJob, start: RunStart) -> ReplayJob:
    """Return the parameters of the replay of every offsets partition."""
    request, carry_over = planned.request, planned.carry_over
    previous_retention_ms = None if start.last_run is None else start.last_run.retention_ms
    return ReplayJob(
        request.semantics,
        ExpirationJob(request.as_of_ms, request.retention_ms, request.semantics, previous_retention_ms=previous_retention_ms),
        tasks.writers,
        read.rebalances or RebalanceJob(read.warehouse_uri, request.cluster, planned.history_ranges, None),
        read.offset_events,
        None if planned.rows is None else read,
        ", ".join(map(shown, request.inputs)),
        request.default_assignors,
        carried=carry_over.state,
        changed=carry_over.changed,
        compared=carry_over.compared,
        remembered=carry_over.remembered,
        writes_latest=request.until is None,
        health_logs=read.health_logs,
        lost_before=earlier_log_starts(read.offset_events, start),
    )
