"""A worker's pass over its segments: read, decode, count, write the history files, and drop superseded records.

One pass gives the records that the replay needs (packed: one row goes to the JVM for some hundred thousand records), the Parquet files of
the history tables and of quarantined_records, and the counts.
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
from groupcoord_spark.doctor import ChunkKeys, PartitionGatherer, segments_beside
from groupcoord_spark.log import CHUNK_BYTES, Chunk, PartitionLog, Records, Segment, read_segment
from groupcoord_spark.pipeline.exchange.health_facts import rows_of_gatherer
from groupcoord_spark.pipeline.exchange.kept_records import (
    NEW_GROUP_RECORDS,
    RECORDS,
    REPORT,
    REPORT_ORDER,
    ROW_BYTES,
    PieceReport,
    ShuffledRow,
    kept_records,
    rows_of_parts,
)
from groupcoord_spark.pipeline.exchange.task_files import TaskFiles
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryPiece, HistoryRange, PointInTime, Until
from groupcoord_spark.pipeline.read.counting import count_chunk
from groupcoord_spark.pipeline.read.decode import DecodedChunk, RowNotes, decode_chunk
from groupcoord_spark.pipeline.read.history_files import (
    Source,
    new_group_records,
    rows_of_tables,
    source_of,
    write_chunk,
    write_notes,
    write_survivors,
)
from groupcoord_spark.pipeline.read.history_records import records_in_history
from groupcoord_spark.pipeline.read.history_split import count_after_complete, split_at_history
from groupcoord_spark.pipeline.read.superseded import SupersedeBuffer, kept_of_chunk
from groupcoord_spark.pipeline.rebalances import LEADER_EPOCH, REBALANCES, PartitionRebalances, RebalanceJob
from groupcoord_spark.spark.job_progress import noted


@dataclass(frozen=True, slots=True)
class ReadJob:
    """The same for every reader of a run.

    partition_count: of ``__consumer_offsets``, for the check that a group is in its partition; None: nothing is checked. history_ranges:
    offsets partition -> the record offsets that the history tables have. rebalances: None: no rows of ``rebalances`` are made.
    whole_partitions: offsets partitions whose records are all in one sequence; the reader itself makes the rows of ``rebalances`` for them.
    carried_partitions: offsets partitions of which only the records are read that an earlier run has not read. until: the moment or the
    record offsets before which the records of every partition end, where no point in time was looked for. counted: offsets partition that
    is read again -> first and end record offset between which earlier nights have counted its records for decode_coverage. points_in_time:
    offsets partition -> its point in time; empty: all partitions are read to the end of their logs. health_logs: offsets partition -> its
    log, where facts about its health are gathered. chunk_bytes: bytes of a segment in memory at a time. row_bytes: bytes of records in one
    row of SHUFFLED.
    """

    cluster: str
    partition_count: int | None
    warehouse_uri: str
    run_id: str
    semantics: Semantics
    with_history: bool
    history_ranges: Mapping[int, HistoryRange]
    rebalances: RebalanceJob | None
    whole_partitions: frozenset[int] = frozenset()
    carried_partitions: frozenset[int] = frozenset()
    counted: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    points_in_time: Mapping[int, PointInTime] = field(default_factory=dict)
    health_logs: Mapping[int, PartitionLog] = field(default_factory=dict)
    until: Until | None = None
    chunk_bytes: int = CHUNK_BYTES
    row_bytes: int = ROW_BYTES


class Piece(Protocol):
    """The origin of chunks of one offsets partition: a segment, or sorted rows of another input."""

    @property
    def offsets_partition(self) -> int: ...
    @property
    def source(self) -> str: ...


Work = Sequence[Sequence[Segment]] | HistoryPiece | None
"""The work of one reading task: sequences of consecutive segments (or ranges of segments), each of one offsets partition; a piece of the
history; or None: no record is read, and each offsets partition that is carried over gets an empty report, so that it is replayed."""


def read_task(work: Work, job: ReadJob) -> Iterator[ShuffledRow]:
    """Rows of SHUFFLED for the work of one task. Memory is bounded by one chunk and the kept records of the buffer."""
    with TaskFiles(job.warehouse_uri, job.cluster, job.run_id) as files:
        if work is None:
            yield from _reports({number: PieceReport() for number in sorted(job.carried_partitions)}, files)
        elif isinstance(work, HistoryPiece):
            yield from _read_history(work, job, files)
        else:
            pieces = (((segment, read_segment(segment, chunk_bytes=job.chunk_bytes)) for segment in sequence) for sequence in work)
            yield from read_chunks(pieces, job, files)


def _read_history(piece: HistoryPiece, job: ReadJob, files: TaskFiles) -> Iterator[ShuffledRow]:
    """Rows of SHUFFLED for records of the history tables. An earlier run has counted these records and written their history."""
    point_in_time, report = job.points_in_time[piece.offsets_partition], PieceReport()
    for records in records_in_history(job.warehouse_uri, job.cluster, piece):
        decoded = decode_chunk(records, job.semantics)
        report.topic_names |= decoded.topic_names()
        report.records_from_history += len(records)
        report.records_after_complete += int(np.count_nonzero(records.record_offset >= point_in_time.complete_until))
        _warn(files, piece, records, decoded, decoded.refusals, report, source=None)
        _, kept = kept_of_chunk(records, decoded.decodes, decoded.kinds)
        yield from rows_of_parts(piece.offsets_partition, RECORDS, [kept], job.row_bytes)
    yield from _reports({piece.offsets_partition: report}, files)


def read_chunks(sequences: Iterable[Iterable[tuple[Piece, Iterable[Chunk]]]], job: ReadJob, files: TaskFiles) -> Iterator[ShuffledRow]:
    """Rows of SHUFFLED for sequences of pieces with their chunks: in a sequence, consecutive pieces of one offsets partition.

    files: where rows of tables go.
    """
    reports: dict[int, PieceReport] = {}
    for sequence in sequences:
        reader = SequenceReader(job, files, reports)
        for kind, parts in reader.read(sequence):
            yield from rows_of_parts(reader.offsets_partition, kind, parts, job.row_bytes)
        yield from reader.facts()
    yield from _reports(reports, files)


def _reports(reports: Mapping[int, PieceReport], files: TaskFiles) -> Iterator[ShuffledRow]:
    """The reports of a task, of which the first names all files; nothing more can be written to the files."""
    written = files.written()
    for offsets_partition, report in reports.items():
        report.files, written = written, {}
        yield ShuffledRow(offsets_partition, REPORT_ORDER, REPORT, pickle.dumps(report))


Packable = tuple[str, list[pa.RecordBatch]]
"""The kind of rows of SHUFFLED, and the batches to pack into these rows: kept records, or rows of the table that the kind names."""


class SequenceReader:
    """The reader of one sequence of pieces, with the records that a later piece may supersede.

    offsets_partition: of the piece that was read last. reports: offsets partition -> the report of the task.
    """

    def __init__(self, job: ReadJob, files: TaskFiles, reports: dict[int, PieceReport]) -> None:
        self.offsets_partition = -1
        self._job = job
        self._files = files
        self._reports = reports
        self._buffer = SupersedeBuffer()
        self._rebalances: PartitionRebalances | None = None
        self._gatherer: PartitionGatherer | None = None

    def read(self, sequence: Iterable[tuple[Piece, Iterable[Chunk]]]) -> Iterator[Packable]:
        """The kept records as they leave the buffer, the last of them after the last piece, and rows that have no files of their own.

        With a point in time: only records before that point, and only records that the history tables do not have.
        """
        for piece, chunks in sequence:
            self.offsets_partition = piece.offsets_partition
            for kept in self._piece(piece, noted(chunks), self._reports.setdefault(piece.offsets_partition, PieceReport())):
                yield kept
                yield from self._rows_of_tables()
        if self._rebalances is not None:
            for rows in self._rebalances.finish():
                self._files.write(REBALANCES, rows)
        yield RECORDS, self._buffer.flush()
        yield from self._rows_of_tables()

    def facts(self) -> Iterator[ShuffledRow]:
        """Rows of SHUFFLED for what the sequence says of the topic's health."""
        if self._gatherer is not None:
            log, is_whole = self._job.health_logs[self.offsets_partition], self.offsets_partition in self._job.whole_partitions
            yield from rows_of_gatherer(log, self._gatherer, is_whole=is_whole)

    def _piece(self, piece: Piece, chunks: Iterable[Chunk], report: PieceReport) -> Iterator[Packable]:
        of_rebalances = self._job.rebalances
        if self._rebalances is None and of_rebalances is not None and piece.offsets_partition in self._job.whole_partitions:
            self._rebalances = PartitionRebalances(of_rebalances, piece.offsets_partition)
        health_log = self._job.health_logs.get(piece.offsets_partition)
        if health_log is not None and self._gatherer is None:
            self._gatherer = PartitionGatherer(health_log, segments_beside(health_log))
        point_in_time = self._job.points_in_time.get(piece.offsets_partition)
        if point_in_time is None:
            yield from self._kept(chunks, piece, report)
            return
        for in_history, part in split_at_history(chunks, point_in_time):
            if in_history:
                self._check_records_of_history(part, piece, point_in_time, report)
                continue
            yield from self._kept(count_after_complete(part, point_in_time, report), piece, report)
            # The records of the history come between this part and the next, so no later part may supersede a record of the buffer.
            yield RECORDS, self._buffer.flush()

    def _rows_of_tables(self) -> Iterator[Packable]:
        return ((table, rows.combine_chunks().to_batches()) for table, rows in self._files.taken())

    def _kept(self, chunks: Iterable[Chunk], piece: Piece, report: PieceReport) -> Iterator[Packable]:
        """The kept records that leave the buffer, and with history also the group records that are new to the history."""
        job, files = self._job, self._files
        known_range = job.history_ranges.get(piece.offsets_partition, NO_HISTORY)
        history_range = known_range if job.with_history else None
        for chunk in chunks:
            decoded = self._decoded(chunk, piece, report, history_range)
            if self._gatherer is not None and isinstance(piece, Segment):
                self._gatherer.add(chunk, piece, ChunkKeys(decoded.key_code, decoded.names.keys, decoded.keys))
            _warn(files, piece, chunk.records, decoded, decoded.refusals, report, source=source_of(chunk, piece.source))
            if job.rebalances is not None and len(new_rows := new_group_records(chunk, decoded, known_range)):
                new_records = kept_records(chunk.records, new_rows, decoded.decodes)
                new_records = new_records.append_column(LEADER_EPOCH, pa.array(chunk.leader_epochs(new_rows)))
                if self._rebalances is None:
                    yield NEW_GROUP_RECORDS, [new_records]
                else:
                    for rebalances in self._rebalances.apply(new_records):
                        files.write(REBALANCES, rebalances)
            yield RECORDS, self._buffer.add(chunk.records, decoded.decodes, decoded.kinds, decoded.names)

    def _check_records_of_history(self, chunks: Iterable[Chunk], piece: Piece, point_in_time: PointInTime, report: PieceReport) -> None:
        """Count the chunks' records, and write the warnings about refused records that have no row in the history tables.

        The records with a row are replayed from the history tables. The others do not decode and change nothing, so nothing is kept here.
        """
        for chunk in chunks:
            decoded = self._decoded(chunk, piece, report, None)
            has_no_row = ~np.logical_or.reduce(list(rows_of_tables(chunk.records, decoded).values()))
            report.records_after_complete += int(
                np.count_nonzero(has_no_row & (chunk.records.record_offset >= point_in_time.complete_until))
            )
            refusals = decoded.refusals.where(has_no_row[decoded.refusals.row])
            _warn(self._files, piece, chunk.records, decoded, refusals, report, source=source_of(chunk, piece.source))

    def _decoded(self, chunk: Chunk, piece: Piece, report: PieceReport, history_range: HistoryRange | None) -> DecodedChunk:
        """The decoded chunk, after its records are counted, and its faults, doubts and history rows are written.

        history_range: the record offsets that the history tables have; None: no history is written.
        """
        job, offsets_partition = self._job, piece.offsets_partition
        decoded = decode_chunk(chunk.records, job.semantics)
        report.topic_names |= decoded.topic_names()
        count_chunk(report.counts, chunk, decoded, offsets_partition, job.partition_count, job.counted.get(offsets_partition))
        write_chunk(self._files, offsets_partition, piece.source, chunk, decoded, history_range)
        is_whole = offsets_partition not in job.carried_partitions
        if history_range is not None and not job.points_in_time and is_whole:
            write_survivors(self._files, offsets_partition, chunk.records, history_range.incarnation)
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
    """Write and count the warnings about records that a broker's loader refuses in any state."""
    write_notes(files, piece.offsets_partition, refusals, records, decoded, source)
    report.warnings += len(refusals)
    is_refusal = [LoadWarning(None, None, *note).is_refusal for note in zip(refusals.codes, refusals.details, strict=True)]
    report.refusals += int(np.array(is_refusal, np.int64)[refusals.note].sum()) if len(refusals) else 0
