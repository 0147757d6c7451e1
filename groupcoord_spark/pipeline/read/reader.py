"""Read, decode and drop in one go: a worker's pass over its segment files.

Out of it come, without a second look at any byte: what the replay needs of the records (packed, so that one row crosses to the JVM for a
chunk of some hundred thousand records), the history and quarantine tables as Parquet files, and the counts.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.log import Chunk, Records, Segment, read_segment
from groupcoord_spark.pipeline.exchange.kept_records import (
    GROUP_CHANGES,
    RECORDS,
    REPORT,
    REPORT_ORDER,
    PieceReport,
    kept_records,
    shuffled_row,
    shuffled_rows,
)
from groupcoord_spark.pipeline.exchange.task_files import TaskFiles
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryPiece, HistoryRange, PointInTime
from groupcoord_spark.pipeline.read import superseded
from groupcoord_spark.pipeline.read.decode import UNKNOWN_KEY_TYPE, DecodedChunk, decode_chunk
from groupcoord_spark.pipeline.read.history_files import (
    Source,
    group_changes,
    rows_of_tables,
    source_of,
    write_chunk,
    write_notes,
    write_survivors,
)
from groupcoord_spark.pipeline.read.history_records import records_in_history
from groupcoord_spark.pipeline.read.notes import RowNotes
from groupcoord_spark.pipeline.read.stretches import stretches
from groupcoord_spark.pipeline.read.supersede_buffer import SupersedeBuffer
from groupcoord_spark.pipeline.rebalances import LEADER_EPOCH, REBALANCES, PartitionRebalances, RebalanceJob
from groupcoord_spark.protocol import offsets_partition_for
from groupcoord_spark.protocol.primitives import uuid_text
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.spark.headway import noted

CHUNK_BYTES = 12 << 20
"""Bytes of a file in memory at a time: few enough for small workers, many enough for the same keys to come again."""


@dataclass(frozen=True, slots=True)
class ReadJob:
    """What every reader of a run knows.

    partition_count: of ``__consumer_offsets``, as far as it can be known; groups are placed by it. held: what the history tables hold
    already, by offsets partition. rebalances: how these go on from the history. whole: offsets partitions whose rebalances their reader
    makes, as one run has all of their records. past: where partitions end at the moment that is asked for; empty: at the end of their logs.
    """

    cluster: str
    partition_count: int
    warehouse_uri: str
    run_id: str
    semantics: Semantics
    with_history: bool
    held: dict[int, HistoryRange]
    rebalances: RebalanceJob
    whole: frozenset[int] = frozenset()
    past: Mapping[int, PointInTime] = field(default_factory=dict)


class Piece(Protocol):
    """What chunks of consecutive records of one offsets partition are of: a segment, or rows that were put in order."""

    @property
    def offsets_partition(self) -> int: ...
    @property
    def source(self) -> str: ...


def read_segments(runs: Iterable[Sequence[Segment]], job: ReadJob) -> Iterator[pa.RecordBatch]:
    """Rows of SHUFFLED for the given files, each read once in chunks; memory is bounded by a chunk and by what is kept of it.

    runs: files or ranges of one offsets partition that follow each other without another one between them.
    """
    return read_chunks((((segment, read_segment(segment, chunk_bytes=CHUNK_BYTES)) for segment in run) for run in runs), job)


def read_chunks(runs: Iterable[Iterable[tuple[Piece, Iterable[Chunk]]]], job: ReadJob) -> Iterator[pa.RecordBatch]:
    """Rows of SHUFFLED for runs of pieces, each with its chunks. A run is of one partition, in the order of its offsets, without a gap."""
    reports: dict[int, PieceReport] = {}
    with TaskFiles(job.warehouse_uri, job.cluster, job.run_id) as task_files:
        for run in runs:
            reader = RunReader(job, task_files)
            for piece, chunks in run:
                report = reports.setdefault(piece.offsets_partition, PieceReport())
                yield from reader.read(piece, noted(chunks), report)
            yield from reader.rest()
        files = task_files.close()
    for offsets_partition, report in reports.items():
        report.files, files = files, {}
        yield shuffled_row(job.cluster, offsets_partition, REPORT_ORDER, REPORT, pickle.dumps(report))


def read_history(piece: HistoryPiece, job: ReadJob) -> Iterator[pa.RecordBatch]:
    """Rows of SHUFFLED for records that the history tables hold; they were counted and written by the runs that read them first."""
    past, report = job.past[piece.offsets_partition], PieceReport()
    with TaskFiles(job.warehouse_uri, job.cluster, job.run_id) as files:
        for records in records_in_history(job.warehouse_uri, job.cluster, piece):
            decoded = decode_chunk(records, job.semantics)
            report.topic_names |= _topic_names(decoded)
            report.from_history += len(records)
            report.found += int(np.count_nonzero(records.record_offset >= past.known_until))
            _warn(files, piece, records, decoded, decoded.refusals, report, source=None)
            kept = kept_records(records, np.flatnonzero(superseded.kept(decoded.kinds)), decoded.decodes)
            yield from shuffled_rows(job.cluster, piece.offsets_partition, RECORDS, [kept])
        report.files = files.close()
    yield shuffled_row(job.cluster, piece.offsets_partition, REPORT_ORDER, REPORT, pickle.dumps(report))


class RunReader:
    """Reads pieces of one offsets partition that follow each other, and holds back what a later one may supersede."""

    def __init__(self, job: ReadJob, files: TaskFiles) -> None:
        self._job = job
        self._files = files
        self._buffer = SupersedeBuffer()
        self._rebalances: PartitionRebalances | None = None
        self._offsets_partition = -1

    def read(self, piece: Piece, chunks: Iterable[Chunk], report: PieceReport) -> Iterator[pa.RecordBatch]:
        """Rows of SHUFFLED with what is kept of the piece and does not wait for the next.

        Of a piece that reaches beyond the moment asked for that is what lies before it and in no history table.
        """
        self._offsets_partition = piece.offsets_partition
        if self._rebalances is None and piece.offsets_partition in self._job.whole:
            self._rebalances = PartitionRebalances(self._job.rebalances, piece.offsets_partition)
        past = self._job.past.get(piece.offsets_partition)
        if past is None:
            for kind, parts in self._kept(chunks, piece, report):
                yield from self._packed(kind, parts)
            return
        for in_history, part in stretches(chunks, past):
            if in_history:
                self._look_beside_history(part, piece, past, report)
                continue
            for kind, parts in self._kept(_counted(part, past, report), piece, report):
                yield from self._packed(kind, parts)
            # What the history holds lies between this stretch and the next: nothing waits across it.
            yield from self._packed(RECORDS, self._buffer.rest())

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Rows of SHUFFLED with what is left when no piece follows."""
        if self._rebalances is not None:
            self._write(self._rebalances.finish())
        return self._packed(RECORDS, self._buffer.rest())

    def _write(self, rebalances: Iterator[pa.Table]) -> None:
        for rows in rebalances:
            self._files.write(REBALANCES, rows)

    def _packed(self, kind: str, parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return shuffled_rows(self._job.cluster, self._offsets_partition, kind, parts)

    def _kept(self, chunks: Iterable[Chunk], piece: Piece, report: PieceReport) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
        """What is kept of consecutive chunks and waits no longer; beside it, with history, all group records that are new."""
        job, files = self._job, self._files
        held = job.held.get(piece.offsets_partition, NO_HISTORY) if job.with_history else None
        for chunk in chunks:
            decoded = self._decoded(chunk, piece, report, held)
            _warn(files, piece, chunk.records, decoded, decoded.refusals, report, source=source_of(chunk, piece.source))
            if held is not None and len(changes := group_changes(chunk, decoded, held)):
                told = kept_records(chunk.records, changes, decoded.decodes)
                told = told.append_column(LEADER_EPOCH, pa.array(chunk.leader_epochs(changes)))
                if self._rebalances is None:
                    yield GROUP_CHANGES, [told]
                else:
                    self._write(self._rebalances.apply(told))
            if held is not None and not job.past:
                write_survivors(files, piece.offsets_partition, chunk.records, held.incarnation)
            rows = np.flatnonzero(superseded.kept(decoded.kinds))
            of_chunk = kept_records(chunk.records, rows, decoded.decodes)
            yield RECORDS, self._buffer.add(of_chunk, decoded.kinds.take(rows), decoded.names)

    def _look_beside_history(self, chunks: Iterable[Chunk], piece: Piece, past: PointInTime, report: PieceReport) -> None:
        """Count records that are replayed from the history tables, and warn of those that are refused and in no history table.

        Records that do not decode are in none of them. They change nothing, so nothing is kept here.
        """
        for chunk in chunks:
            decoded = self._decoded(chunk, piece, report, None)
            lacks = ~np.logical_or.reduce(list(rows_of_tables(chunk.records, decoded).values()))
            report.found += int(np.count_nonzero(lacks & (chunk.records.record_offset >= past.known_until)))
            refusals = decoded.refusals.where(lacks[decoded.refusals.row])
            _warn(self._files, piece, chunk.records, decoded, refusals, report, source=source_of(chunk, piece.source))

    def _decoded(self, chunk: Chunk, piece: Piece, report: PieceReport, held: HistoryRange | None) -> DecodedChunk:
        """The chunk decoded, counted and written: the history tables where ``held`` says what they have, and what has doubts or faults."""
        decoded = decode_chunk(chunk.records, self._job.semantics)
        report.counts.bytes += chunk.bytes
        _count(report, chunk, decoded, _is_misplaced(decoded, piece.offsets_partition, self._job.partition_count))
        write_chunk(self._files, piece.offsets_partition, piece.source, chunk, decoded, held)
        return decoded


def _warn(
    files: TaskFiles,
    piece: Piece | HistoryPiece,
    records: Records,
    decoded: DecodedChunk,
    refusals: RowNotes,
    report: PieceReport,
    *,
    source: Source,
) -> None:
    """Write and count the warnings about records that a loader refuses because of the record alone."""
    write_notes(files, piece.offsets_partition, refusals, records, decoded, source)
    report.warnings += len(refusals)
    is_refusal = [LoadWarning(None, None, *note).is_refusal for note in zip(refusals.codes, refusals.details, strict=True)]
    report.refusals += int(np.array(is_refusal, np.int64)[refusals.note].sum()) if len(refusals) else 0


def _counted(chunks: Iterator[Chunk], past: PointInTime, report: PieceReport) -> Iterator[Chunk]:
    for chunk in chunks:
        report.found += int(np.count_nonzero(chunk.records.record_offset >= past.known_until))
        yield chunk


def _count(report: PieceReport, chunk: Chunk, decoded: DecodedChunk, is_misplaced: Mask) -> None:
    records, counts = chunk.records, report.counts
    for lost in chunk.lost:
        counts.lost += 1 if lost.records is None else lost.records
        counts.reasons[lost.code] += 1 if lost.records is None else lost.records
    counts.doubts += len(chunk.doubts) + len(decoded.findings)
    counts.reasons.update({code: count for code, count in decoded.faults.counts().items() if code != UNKNOWN_KEY_TYPE})
    if not len(records):
        return
    counts.reach(int(records.record_offset[0]), int(records.record_offset[-1]) + 1)
    newest = int(records.timestamp_ms.max())
    if newest >= 0 and (counts.newest_timestamp_ms is None or newest > counts.newest_timestamp_ms):
        counts.newest_timestamp_ms = newest
    control_records = int(np.count_nonzero(decoded.kinds.is_control))
    counts.control_records += control_records
    is_data: Mask | slice = ~decoded.kinds.is_control if control_records else slice(None)
    sizes = records.key.lengths() + records.value.lengths()
    counts.count_kinds(
        decoded.stored_key_type[is_data], decoded.value_version[is_data], sizes[is_data], decoded.decodes[is_data], is_misplaced[is_data]
    )
    report.topic_names |= _topic_names(decoded)


def _is_misplaced(decoded: DecodedChunk, offsets_partition: int, partition_count: int) -> Mask:
    """Records of groups whose id hashes to another offsets partition."""
    group_ids = decoded.names.group_ids.to_pylist()
    of_group = [offsets_partition_for(group_id, partition_count) != offsets_partition for group_id in group_ids]
    misplaced: Mask = np.array([*of_group, False], np.bool_)[decoded.kinds.group_code]
    return misplaced


def _topic_names(decoded: DecodedChunk) -> dict[str, str]:
    """Topic id -> name of the offsets that carry an id, superseded ones too: they are dropped, and no later record may name it."""
    row, high, low = decoded.named_topics
    if not len(row):
        return {}
    key = decoded.key_code[row]
    last_of_key = np.full(len(decoded.keys.topic), -1, np.int64)
    last_of_key[key] = np.arange(len(row))  # of several rows of one key numpy keeps the one assigned last
    # the offsets of one key name one topic id, until the topic is made anew
    last = last_of_key[key]
    is_other = (high != high[last]) | (low != low[last])
    chosen = np.sort(np.concatenate((last_of_key[last_of_key >= 0], np.flatnonzero(is_other))))
    topics = decoded.keys.topic.take(pa.array(key[chosen])).to_pylist()
    ids = np.stack((high[chosen], low[chosen]), axis=1).astype(">i8")
    return {uuid_text(each.tobytes()): topic for each, topic in zip(ids, topics, strict=True)}
