"""One night: the order of the stages, from the inputs to the commit of the run."""

from __future__ import annotations

import gc
import heapq
import json
import pickle
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from groupcoord_spark.coordinator.authors import other_coordinator
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.errors import GroupcoordError, InputError, UsageError, WarehouseError
from groupcoord_spark.log import LogPlan, Segment
from groupcoord_spark.log.storage import shown
from groupcoord_spark.pipeline.counts import NO_KEY_TYPE, NO_VERSION, KindCount
from groupcoord_spark.pipeline.expire import ExpirationJob
from groupcoord_spark.pipeline.history import NO_HISTORY, HistoryRange
from groupcoord_spark.pipeline.history_records import HistoryPiece
from groupcoord_spark.pipeline.ingest import SHUFFLED, ReadJob, read_chunks, read_history, read_segments
from groupcoord_spark.pipeline.partition_count import likely_partition_count
from groupcoord_spark.pipeline.ranges import in_ranges
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay import REPLAYED, ReplayJob, partition_replay
from groupcoord_spark.pipeline.rows import RowPlan, pieces_of, sorted_rows
from groupcoord_spark.pipeline.state import PartitionReport
from groupcoord_spark.pipeline.until import HISTORY_SETTING, UNTIL_SETTING, Past, Until, history_pieces, past_of
from groupcoord_spark.pipeline.writers import WRITTEN, WriteJob, state_writer
from groupcoord_spark.protocol import RECORD_TYPES
from groupcoord_spark.sources.rows import ROW_SCHEMA, InputKind
from groupcoord_spark.warehouse import TABLES, AddedFile, RunStart, begin_run, commit_run, write_part
from groupcoord_spark.warehouse.read import RETENTION_SETTING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_TASK_BYTES = 256 << 20
"""A reading task's share where the input is large: long enough to pay for itself, short enough to even out."""

NO_TIMESTAMP = -1

STATE_WRITER_BYTES = 4 << 30
"""Input for which one more task writes the state tables; below it each table is one file."""


@dataclass(frozen=True, slots=True)
class Night:
    """What a run is asked to do. Times and durations in milliseconds."""

    inputs: tuple[str, ...]
    warehouse: str
    cluster: str
    as_of_ms: int
    retention_ms: int
    semantics: Semantics
    with_history: bool = True
    topic_names: Mapping[str, str] = field(default_factory=dict)
    """Topic id -> name, as the user knows them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    until: Until | None = None
    """The moment to replay to; None: the end of the log."""


@dataclass(frozen=True, slots=True)
class PastSummary:
    """What a run with --until replayed. text: the moment as it was typed.

    ended_early: partitions that end before their log does. from_history: records that came from the history tables. missing: offsets
    partition -> how many records that nobody has any more may have mattered then; its state may not be exact.
    """

    text: str
    ended_early: int
    from_history: int
    missing: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run found, for the person who started it."""

    run_id: str
    cluster: str
    warehouse: str
    as_of_ms: int
    offsets_partitions: int
    records_read: int
    records_decoded: int
    records_quarantined: int
    bytes_read: int
    quarantined_by_reason: Mapping[str, int]
    groups: int
    committed_offsets: int
    expired_offsets: int
    removed_groups: int
    warnings: int
    refusals: int
    """Warnings about records that a broker's loader would refuse or skip."""
    other_coordinator: str | None
    """A sentence where the records say that the other coordinator wrote them."""
    semantics: str
    broker_version: str
    completeness: float | None = None
    """Records read against the span of offsets that they lie in; None where there is no record."""
    input_kind: InputKind = InputKind.SEGMENTS
    lacks: tuple[str, ...] = ()
    """What the input cannot tell, in the words of ``runs``."""
    past: PastSummary | None = None


class Progress(Protocol):
    """Told of each stage when it begins and when it ends."""

    def begin(self, stage: str) -> None: ...
    def end(self, *, rows: int | None = None, bytes: int | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """What the runs before left of one offsets partition; times in milliseconds, -1 for none."""

    held: HistoryRange = NO_HISTORY
    end_offset: int = 0
    last_stable_offset: int = 0
    newest_timestamp_ms: int = NO_TIMESTAMP


def run_night(night: Night, plan: LogPlan, spark: SparkSession, progress: Progress, rows: RowPlan | None = None) -> Summary:
    """Read, decode, replay, expire and write; the tables change at the very end, all at once.

    plan: of segments, or with ``rows``, which are then read instead, what is known of them beforehand.
    Raises InputError and WarehouseError as planning, reading and writing do; the tables are then as they were.
    """
    start = begin_run(night.warehouse, night.cluster)
    segments = [segment for partition in plan.partitions for segment in partition.segments]
    histories = _histories(plan, start)
    past: Mapping[int, Past] = {}
    progress.begin("read, replay and write")
    if night.until is not None:
        with own_errors():
            past = past_of(night.until, plan, {each: history.held for each, history in histories.items()}, start, spark)
        segments = [segment for segment in segments if segment.base_offset < past[segment.offsets_partition].end_offset]
    pieces = history_pieces(past, start)
    job = ReadJob(
        cluster=night.cluster,
        partition_count=rows.partition_count if rows is not None else likely_partition_count(plan),
        warehouse_uri=start.location.uri,
        run_id=start.run_id,
        semantics=night.semantics,
        with_history=night.with_history,
        held={each: _range_to_append_to(history.held, past.get(each)) for each, history in histories.items()},
        past=past,
    )
    previous_retention_ms = None if start.last_run is None else start.last_run.retention_ms
    expiration = ExpirationJob(night.as_of_ms, night.retention_ms, night.semantics, previous_retention_ms=previous_retention_ms)
    rebalance_job = RebalanceJob(start.location.uri, night.cluster, job.held, _versions_at_end_of_history(start))
    has_work = bool(segments or pieces) or rows is not None
    reports = _run_stages(spark, segments, pieces, night, job, rows, expiration, rebalance_job) if has_work else []
    records = sum(report.counts.records for report in reports)
    progress.end(rows=records, bytes=sum(report.counts.bytes for report in reports))

    progress.begin("commit")
    files = _files(reports)
    for table, own in _driver_rows(night, plan, reports, histories, past, start.run_id).items():
        if own:
            files.setdefault(table, []).extend(
                write_part(start.location.uri, TABLES[table], TABLES[table].from_rows(own), night.cluster, start.run_id)
            )
    summary = _summary(night, plan, reports, past, start.run_id, rows)
    commit_run(start, _run_row(night, summary, past), files)
    progress.end(rows=sum(added.records for every in files.values() for added in every))
    return summary


def _run_stages(
    spark: SparkSession,
    segments: Sequence[Segment],
    pieces: Sequence[HistoryPiece],
    night: Night,
    job: ReadJob,
    rows: RowPlan | None,
    expiration: ExpirationJob,
    rebalance_job: RebalanceJob,
) -> list[PartitionReport]:
    """Everything that happens on the workers; what comes back is a report for each offsets partition."""
    parallelism = spark.sparkContext.defaultParallelism
    with own_errors():
        segments = in_ranges(segments, spark)
    tasks: list[list[Segment] | HistoryPiece] = [*(read_tasks(segments, parallelism) if segments else []), *pieces]
    writers = 1 + min(parallelism - 1, sum(segment.bytes for segment in segments) // STATE_WRITER_BYTES)
    read_partitions = {segment.offsets_partition for segment in segments} | {piece.offsets_partition for piece in pieces}
    offsets_partitions = len(read_partitions) if rows is None else len(rows.log.partitions) + 1
    replays = min(offsets_partitions, int(spark.conf.get("spark.sql.shuffle.partitions") or parallelism))
    replay_job = ReplayJob(night.semantics, expiration, writers, rebalance_job)
    write_job = WriteJob(night.cluster, job.warehouse_uri, job.run_id, dict(night.topic_names))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        # Spark's worker collects garbage after each task: what is loaded by now lives as long as the worker, and need not be walked.
        gc.freeze()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                work = tasks[task]
                yield from read_history(work, job) if isinstance(work, HistoryPiece) else read_segments(work, job)

    def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return read_chunks(pieces_of((batch.cast(ROW_SCHEMA) for batch in batches), source), job)

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
    with own_errors():
        return [report for row in written.collect() for report in pickle.loads(row.payload)]


@contextmanager
def own_errors() -> Iterator[None]:
    """What fails on the workers, as an error of ours."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        raise _own_error(failure) from failure


def _own_error(failure: Exception) -> GroupcoordError:
    """What a user reads of a failed job: the sentence of a worker where it is ours (Spark hands on its text alone), else Spark's."""
    kinds = {kind.__name__: kind for kind in (GroupcoordError, UsageError, InputError, WarehouseError)}
    found = re.findall(r"^groupcoord_spark\.errors\.(\w+): (.+)$", str(failure), re.MULTILINE)
    if found and found[-1][0] in kinds:
        return kinds[found[-1][0]](found[-1][1])
    told = [
        line.strip() for line in str(failure).splitlines() if line.strip() and not line.lstrip().startswith(("at ", ":", "File ", "..."))
    ]
    said = next(
        (line for line in reversed(told) if re.match(r"(Caused by: )?[\w.]*(Error|Exception)\b", line)), told[0] if told else repr(failure)
    )
    return GroupcoordError(
        f"A Spark job of the night failed, and the tables are as they were: {said} Run it again with --debug to see all of it."
    )


def read_tasks(segments: Sequence[Segment], parallelism: int) -> list[list[Segment]]:
    """Files shared out evenly, the largest first; the files of a task in the order of their partitions and offsets."""
    total = sum(segment.bytes for segment in segments)
    rounds = max(1, -(-total // (READ_TASK_BYTES * parallelism)))  # whole rounds: no core waits for another's last task
    count = min(len(segments), rounds * parallelism)
    shares: list[tuple[int, int, list[Segment]]] = [(0, task, []) for task in range(count)]
    for segment in sorted(segments, key=lambda each: -each.bytes):
        size, task, share = heapq.heappop(shares)
        share.append(segment)
        heapq.heappush(shares, (size + segment.bytes, task, share))
    largest_first = sorted(shares, key=lambda each: -each[0])
    return [sorted(share, key=lambda each: (each.offsets_partition, each.base_offset)) for _, _, share in largest_first]


def _histories(plan: LogPlan, start: RunStart) -> dict[int, PartitionHistory]:
    """What is known of each offsets partition from the runs before, and of which incarnation the log now read is.

    A record below the end already read, yet newer than anything read: the topic was begun anew.
    """
    columns = [
        *("offsets_partition", "incarnation", "end_offset", "last_stable_offset", "newest_timestamp"),
        *("history_first_offset", "history_end_offset"),
    ]
    known = {}
    for row in start.previous("offsets_partitions", columns).to_pylist():
        newest = row["newest_timestamp"]
        known[row["offsets_partition"]] = PartitionHistory(
            held=HistoryRange(row["incarnation"], row["history_first_offset"] or 0, row["history_end_offset"] or 0),
            end_offset=row["end_offset"],
            last_stable_offset=row["last_stable_offset"],
            newest_timestamp_ms=NO_TIMESTAMP if newest is None else round(newest.timestamp() * 1000),
        )
    for partition in plan.partitions:
        before = known.get(partition.offsets_partition)
        if before is None or partition.first_offset is None or partition.first_timestamp_ms is None:
            continue
        if partition.first_offset < before.end_offset and partition.first_timestamp_ms > before.newest_timestamp_ms > NO_TIMESTAMP:
            known[partition.offsets_partition] = PartitionHistory(HistoryRange(before.held.incarnation + 1, 0, 0), 0, 0, NO_TIMESTAMP)
    return known


def _versions_at_end_of_history(start: RunStart) -> Mapping[str, int] | None:
    """Versions of the state tables after the newest run that wrote history; None: no run has."""
    runs = (run for run in reversed(start.finished) if run.fields["settings"] is not None)
    settings = ((run, dict(run.fields["settings"])) for run in runs)
    # a run with --until has the state of an earlier moment
    return next((run.table_versions for run, of in settings if of.get(HISTORY_SETTING) == "true" and UNTIL_SETTING not in of), None)


def _files(reports: Sequence[PartitionReport]) -> dict[str, list[AddedFile]]:
    files: dict[str, list[AddedFile]] = {}
    for report in reports:
        for table, added in report.files.items():
            files.setdefault(table, []).extend(added)
    return files


def _driver_rows(
    night: Night,
    plan: LogPlan,
    reports: Sequence[PartitionReport],
    histories: Mapping[int, PartitionHistory],
    past: Mapping[int, Past],
    run_id: str,
) -> dict[str, list[dict[str, Any]]]:
    """Rows of the tables whose size does not depend on the input's."""
    by_partition = {report.offsets_partition: report for report in reports}
    ends = {partition.offsets_partition: partition.end_offset for partition in plan.partitions}
    # Partitions that this input does not hold stay known: what the history tables have of them must not be written again.
    partitions = [
        _offsets_partition_row(
            night,
            ends.get(each),
            by_partition.get(each, PartitionReport(each)),
            histories.get(each, PartitionHistory()),
            past.get(each),
        )
        for each in sorted({*ends, *histories})
    ]
    doubts = [
        {
            "run_id": run_id,
            "offsets_partition": doubt.offsets_partition,
            "record_offset": doubt.record_offset,
            "source": doubt.source,
            "position": doubt.position,
            "code": doubt.code,
            "detail": doubt.detail,
        }
        for doubt in plan.doubts
    ]
    for each, count in _missing(reports, past).items():
        detail = (
            f"State up to offset {past[each].end_offset} may not be exact: of the {past[each].end_offset - past[each].known_until} offsets"
            f" from {past[each].known_until} on, {count} have no record any more, neither in the log nor in the history."
        )
        doubts.append({"run_id": run_id, "offsets_partition": each, "code": "compacted_before_until", "detail": detail})
    if sentence := _other_coordinator(night, reports):
        doubts.append({"run_id": run_id, "code": "other_coordinator", "detail": sentence})
    return {"offsets_partitions": partitions, "decode_coverage": _coverage_rows(reports), "warnings": doubts}


def _other_coordinator(night: Night, reports: Sequence[PartitionReport]) -> str | None:
    records: Counter[tuple[int, int]] = Counter()
    for report in reports:
        records.update({kind: count.decoded for kind, count in report.counts.by_kind.items()})
    return other_coordinator(night.semantics, records)


def _missing(reports: Sequence[PartitionReport], past: Mapping[int, Past]) -> dict[int, int]:
    """Offsets partition -> offsets before the moment that have no record any more, though one may have mattered then."""
    found = {report.offsets_partition: report.found for report in reports}
    gaps = {each: place.end_offset - place.known_until - found.get(each, 0) for each, place in sorted(past.items())}
    return {each: count for each, count in gaps.items() if count > 0}


def _range_to_append_to(held: HistoryRange, past: Past | None) -> HistoryRange:
    """What counts as held: a run that ends before the history begins appends nothing, or there would be a hole between the two."""
    if past is not None and held.first_offset < held.end_offset and past.end_offset < held.first_offset:
        return HistoryRange(held.incarnation, 0, held.end_offset)
    return held


def _offsets_partition_row(
    night: Night, log_end: int | None, report: PartitionReport, before: PartitionHistory, past: Past | None
) -> dict[str, Any]:
    """log_end: None where the input does not hold the partition; its row then tells what earlier runs knew, and that nothing was read."""
    counts, held = report.counts, before.held
    end_offset = before.end_offset if log_end is None else max(log_end, counts.end_offset or 0)
    if past is not None:
        end_offset = past.end_offset
    stable = before.last_stable_offset if log_end is None else end_offset
    first, end = (held.first_offset, held.end_offset) if held.end_offset > held.first_offset else (None, None)
    if night.with_history and counts.first_offset is not None and _range_to_append_to(held, past) == held:
        first = counts.first_offset if first is None else min(first, counts.first_offset)
        end = end_offset if end is None else max(end, end_offset)
    newest = NO_TIMESTAMP if counts.newest_timestamp_ms is None else counts.newest_timestamp_ms
    return {
        "offsets_partition": report.offsets_partition,
        "incarnation": held.incarnation,
        "first_offset": counts.first_offset,
        # what earlier runs read stays read, also where this one ends before
        "end_offset": end_offset if past is None else max(end_offset, before.end_offset),
        "last_stable_offset": stable if report.first_open_offset is None else report.first_open_offset,
        "records": counts.records,
        "decoded": counts.decoded,
        "quarantined": counts.quarantined,
        "control_records": counts.control_records,
        "live_keys": report.live_keys,
        "bytes": counts.bytes,
        "newest_timestamp_ms": max(newest, before.newest_timestamp_ms),
        "history_first_offset": first,
        "history_end_offset": end,
    }


def _coverage_rows(reports: Sequence[PartitionReport]) -> list[dict[str, Any]]:
    total: dict[tuple[int, int], KindCount] = {}
    for report in reports:
        for kind, count in report.counts.by_kind.items():
            sums = total.setdefault(kind, KindCount())
            sums.records += count.records
            sums.bytes += count.bytes
            sums.decoded += count.decoded
            sums.misplaced += count.misplaced
        if report.counts.lost:
            # nobody can say what keys a damaged batch held
            total.setdefault((NO_KEY_TYPE, NO_VERSION), KindCount()).records += report.counts.lost
    return [
        {
            "key_type": key_type,
            "value_version": None if version == NO_VERSION else version,
            "key_name": RECORD_TYPES[key_type].key.name if key_type in RECORD_TYPES else None,
            "records": count.records,
            "bytes": count.bytes,
            "decoded": count.decoded,
            "quarantined": count.records - count.decoded,
            "misplaced": count.misplaced,
        }
        for (key_type, version), count in sorted(total.items())
    ]


def _summary(
    night: Night, plan: LogPlan, reports: Sequence[PartitionReport], past: Mapping[int, Past], run_id: str, rows: RowPlan | None
) -> Summary:
    reasons: Counter[str] = Counter()
    for report in reports:
        reasons.update(report.counts.reasons)
    hint = _other_coordinator(night, reports)
    missing = _missing(reports, past)
    logs = {each.offsets_partition: each for each in plan.partitions}
    return Summary(
        run_id=run_id,
        cluster=night.cluster,
        warehouse=night.warehouse,
        as_of_ms=night.as_of_ms,
        offsets_partitions=len(plan.partitions),
        records_read=sum(report.counts.records for report in reports),
        records_decoded=sum(report.counts.decoded for report in reports),
        records_quarantined=sum(report.counts.quarantined for report in reports),
        bytes_read=sum(report.counts.bytes for report in reports),
        quarantined_by_reason=dict(reasons.most_common()),
        groups=sum(report.groups for report in reports),
        committed_offsets=sum(report.offsets for report in reports),
        expired_offsets=sum(report.expired_offsets for report in reports),
        removed_groups=sum(report.removed_groups for report in reports),
        warnings=len(plan.doubts) + sum(report.warnings + report.counts.doubts for report in reports) + (hint is not None) + len(missing),
        refusals=sum(report.refusals for report in reports),
        other_coordinator=hint,
        semantics=night.semantics.name,
        broker_version=night.semantics.broker_version,
        completeness=_completeness(reports),
        input_kind=InputKind.SEGMENTS if rows is None else rows.kind,
        lacks=() if rows is None else rows.lacks,
        past=None
        if night.until is None
        else PastSummary(
            text=night.until.text,
            ended_early=sum(place.end_offset < logs[each].end_offset for each, place in past.items()),
            from_history=sum(report.from_history for report in reports),
            missing=missing,
        ),
    )


def _completeness(reports: Sequence[PartitionReport]) -> float | None:
    reached = [(each.counts.first_offset, each.counts.end_offset, each.counts.records) for each in reports]
    spans = [(end - first, records) for first, end, records in reached if first is not None and end is not None]
    span = sum(each for each, _ in spans)
    return sum(records for _, records in spans) / span if span else None


def _run_row(night: Night, summary: Summary, past: Mapping[int, Past]) -> dict[str, Any]:
    settings = {
        **night.settings,
        RETENTION_SETTING: str(night.retention_ms),
        HISTORY_SETTING: str(night.with_history).lower(),
        "input.lacks": ", ".join(summary.lacks) or "nothing",
    }
    if night.until is not None:
        settings[UNTIL_SETTING] = night.until.text
        settings[f"{UNTIL_SETTING}.end.offsets"] = json.dumps({str(each): place.end_offset for each, place in sorted(past.items())})
    return {
        "as_of_ms": night.as_of_ms,
        "semantics": summary.semantics,
        "broker_version": summary.broker_version,
        "input_kind": summary.input_kind.value,
        "inputs": [shown(each) for each in night.inputs],
        "settings": settings,
        "records_read": summary.records_read,
        "records_decoded": summary.records_decoded,
        "records_quarantined": summary.records_quarantined,
        "bytes_read": summary.bytes_read,
    }
