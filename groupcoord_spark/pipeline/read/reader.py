"""A worker's pass over its segments: read, decode, count, write the history files, and drop superseded records.

One pass gives the records that the replay needs (packed: one row goes to the JVM for some hundred thousand records), the Parquet files of
the history tables and of quarantined_records, and the counts.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.doctor import ChunkKeys, PartitionGatherer, segments_beside
from groupcoord_spark.log import CHUNK_BYTES, Chunk, PartitionLog, Segment, read_segment
from groupcoord_spark.pipeline.exchange.health_facts import rows_of_gatherer
from groupcoord_spark.pipeline.exchange.kept_records import (
    NEW_GROUP_RECORDS,
    OFFSET_CHANGES,
    RECORDS,
    REPORT,
    REPORT_ORDER,
    ROW_BYTES,
    PieceReport,
    ShuffledRow,
    kept_records,
    rows_of_parts,
)
from groupcoord_spark.pipeline.exchange.packing import with_column
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
from groupcoord_spark.pipeline.read.history_split import split_at_history
from groupcoord_spark.pipeline.read.offset_events import OFFSET_EVENTS, OffsetEventJob, PartChanges, PartitionOffsetEvents
from groupcoord_spark.pipeline.read.offset_table import OffsetValues
from groupcoord_spark.pipeline.read.superseded import SupersedeBuffer, kept_of_chunk
from groupcoord_spark.pipeline.rebalances import LEADER_EPOCH, REBALANCES, PartitionRebalances, RebalanceJob
from groupcoord_spark.protocol.slices import Ints
from groupcoord_spark.spark.job_progress import noted


@dataclass(frozen=True, slots=True)
class ReadJob:
    """The same for every reader of a run.

    partition_count: of ``__consumer_offsets``, for the check that a group is in its partition; None: nothing is checked. history_ranges:
    offsets partition -> the record offsets that the history tables have. rebalances: None: no rows of ``rebalances`` are made.
    offset_events: None: no rows of ``offset_events`` are made; they need ``rebalances``.
    whole_partitions: offsets partitions whose records are all in one sequence; the reader itself makes the rows of ``rebalances`` for them.
    carried_partitions: offsets partitions of which only the records are read that an earlier run has not read. until: the moment or the
    record offsets before which the records of every partition end, where no point in time was looked for. counted: offsets partition that
    is read again -> first and end record offset between which earlier runs have counted its records for decode_coverage. points_in_time:
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
    offset_events: OffsetEventJob | None = None
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
    def source(self) -> str: ...


Work = Sequence[Sequence[Segment]] | HistoryPiece | None
"""The work of one reading task: sequences of consecutive segments (or ranges of segments), each of one offsets partition; a piece of the
history; or None: no record is read, and each offsets partition that is carried over gets an empty report, so that it is replayed."""


def read_task(work: Work, job: ReadJob) -> Iterator[ShuffledRow]:
    """Yield rows of SHUFFLED for one task. Memory is bounded by one chunk and the buffer of kept records."""
    reports: dict[int, PieceReport] = {}
    with TaskFiles(job.warehouse_uri, job.cluster, job.run_id) as files:
        if work is None:
            reports |= {number: PieceReport() for number in sorted(job.carried_partitions)}
        elif isinstance(work, HistoryPiece):
            yield from PartitionReader(job, files, work.offsets_partition, reports).read_history(work)
        else:
            for sequence in work:
                pieces = ((segment, read_segment(segment, chunk_bytes=job.chunk_bytes)) for segment in sequence)
                yield from PartitionReader(job, files, sequence[0].offsets_partition, reports).read(pieces)
        yield from rows_of_reports(reports, files)


def rows_of_reports(reports: Mapping[int, PieceReport], files: TaskFiles) -> Iterator[ShuffledRow]:
    """Yield the reports of a task; the first report lists all files. The files are closed afterwards."""
    written = files.written()
    for offsets_partition, report in reports.items():
        report.files, written = written, {}
        yield ShuffledRow(offsets_partition, REPORT_ORDER, REPORT, pickle.dumps(report))


Packable = tuple[str, list[pa.RecordBatch]]
"""The kind of rows of SHUFFLED, and the batches to pack into these rows: kept records, or rows of the table that the kind names."""


class PartitionReader:
    """The reader of consecutive pieces of one offsets partition, with the records that a later piece may supersede."""

    def __init__(self, job: ReadJob, files: TaskFiles, offsets_partition: int, reports: dict[int, PieceReport]) -> None:
        """files: where rows of tables go. reports: offsets partition -> the report of the task."""
        self._job = job
        self._files = files
        self._offsets_partition = offsets_partition
        self._report = reports.setdefault(offsets_partition, PieceReport())
        self._point_in_time = job.points_in_time.get(offsets_partition)
        self._known_range = job.history_ranges.get(offsets_partition, NO_HISTORY)
        self._buffer = SupersedeBuffer()
        is_whole = offsets_partition in job.whole_partitions
        self._events: PartitionOffsetEvents | None = None
        self._changes: PartChanges | None = None
        self._rebalances: PartitionRebalances | None = None
        if job.rebalances is not None and job.offset_events is not None and is_whole:
            self._events = PartitionOffsetEvents(job.offset_events, job.rebalances, offsets_partition)
        elif job.rebalances is not None and job.offset_events is not None:
            self._changes = PartChanges(job.offset_events, self._known_range)
        if job.rebalances is not None and is_whole:
            self._rebalances = PartitionRebalances(job.rebalances, offsets_partition, self._events)
        self._health_log = job.health_logs.get(offsets_partition)
        self._gatherer = None if self._health_log is None else PartitionGatherer(self._health_log, segments_beside(self._health_log))

    def read(self, pieces: Iterable[tuple[Piece, Iterable[Chunk]]]) -> Iterator[ShuffledRow]:
        """Yield rows of SHUFFLED: kept records as they leave the buffer (the last ones after the last piece), rows without files of their
        own, and health statistics.

        With a point in time: only records before that point, and only records that the history tables do not have.
        """
        for kind, parts in self._parts(pieces):
            yield from rows_of_parts(self._offsets_partition, kind, parts, self._job.row_bytes)
            for table, rows in self._files.taken():
                yield from rows_of_parts(self._offsets_partition, table, rows.combine_chunks().to_batches(), self._job.row_bytes)
        if self._gatherer is not None and self._health_log is not None:
            yield from rows_of_gatherer(self._health_log, self._gatherer, is_whole=self._offsets_partition in self._job.whole_partitions)

    def read_history(self, piece: HistoryPiece) -> Iterator[ShuffledRow]:
        """Yield rows of SHUFFLED for records of the history tables. An earlier run has counted them and written their history."""
        for records in records_in_history(self._job.warehouse_uri, self._job.cluster, piece):
            self._count_after_complete(records.record_offset)
            self._report.records_from_history += len(records)
            decoded = decode_chunk(records, self._job.semantics)
            self._report.topic_names |= decoded.topic_names()
            self._warn(decoded, decoded.refusals, source=None)
            _, kept = kept_of_chunk(decoded)
            yield from rows_of_parts(self._offsets_partition, RECORDS, [kept], self._job.row_bytes)

    def _parts(self, pieces: Iterable[tuple[Piece, Iterable[Chunk]]]) -> Iterator[Packable]:
        for piece, chunks in ((piece, noted(chunks)) for piece, chunks in pieces):
            if self._point_in_time is None:
                yield from self._kept(chunks, piece)
                continue
            for in_history, part in split_at_history(chunks, self._point_in_time):
                if in_history:
                    self._check_records_of_history(part, piece)
                else:
                    yield from self._kept(part, piece)
                    # The records of the history come between this part and the next: no later part may supersede a record of the buffer.
                    yield RECORDS, self._buffer.flush()
        for rows in self._rebalances.finish() if self._rebalances is not None else ():
            self._files.write(REBALANCES, rows)
        if self._events is not None:
            for rows in self._events.finish():
                self._files.write(OFFSET_EVENTS, rows)
            self._report.offset_questions = self._events.questions()
        if self._changes is not None:
            yield OFFSET_CHANGES, list(self._changes.finish())
        yield RECORDS, self._buffer.flush()

    def _kept(self, chunks: Iterable[Chunk], piece: Piece) -> Iterator[Packable]:
        """Yield the kept records that leave the buffer, and with history also the group records that are new to it."""
        for chunk in chunks:
            self._count_after_complete(chunk.records.record_offset)
            decoded, values = self._decoded(chunk, piece, self._known_range if self._job.with_history else None)
            if self._gatherer is not None and isinstance(piece, Segment):
                self._gatherer.add(chunk, piece, ChunkKeys(decoded.key_code, decoded.names.keys, decoded.keys))
            self._warn(decoded, decoded.refusals, source=source_of(chunk, piece.source))
            if self._changes is not None and values is not None and (changes := self._changes.take_chunk(decoded, values)) is not None:
                yield OFFSET_CHANGES, [changes]
            if self._events is not None and self._rebalances is not None and values is not None:
                if (first_new := self._events.first_new(decoded.records)) is not None:
                    self._rebalances.reach(first_new)
                self._events.take_chunk(decoded, values)
            if self._job.rebalances is not None and len(new_rows := new_group_records(decoded, self._known_range)):
                new_records = kept_records(chunk.records, new_rows, decoded.decodes)
                new_records = with_column(new_records, LEADER_EPOCH, pa.array(chunk.leader_epochs(new_rows)))
                if self._rebalances is None:
                    yield NEW_GROUP_RECORDS, [new_records]
                else:
                    for rebalances in self._rebalances.apply(new_records):
                        self._files.write(REBALANCES, rebalances)
            for events in self._events.end_chunk() if self._events is not None else ():
                self._files.write(OFFSET_EVENTS, events)
            yield RECORDS, self._buffer.add(decoded)

    def _check_records_of_history(self, chunks: Iterable[Chunk], piece: Piece) -> None:
        """Count the chunks' records, and write the warnings about refused records that have no row in the history tables.

        The records with a row are replayed from the history tables. The others do not decode and change nothing, so nothing is kept here.
        """
        for chunk in chunks:
            decoded, _ = self._decoded(chunk, piece, None)
            has_no_row = ~np.logical_or.reduce(list(rows_of_tables(decoded).values()))
            self._count_after_complete(chunk.records.record_offset[has_no_row])
            refusals = decoded.refusals.where(has_no_row[decoded.refusals.row])
            self._warn(decoded, refusals, source=source_of(chunk, piece.source))

    def _decoded(self, chunk: Chunk, piece: Piece, history_range: HistoryRange | None) -> tuple[DecodedChunk, OffsetValues | None]:
        """Return the decoded chunk and ``write_chunk``'s result; count its records, and write its faults, doubts and history.

        history_range: the record offsets that the history tables have; None: no history is written.
        """
        job, report, offsets_partition = self._job, self._report, self._offsets_partition
        decoded = decode_chunk(chunk.records, job.semantics)
        report.topic_names |= decoded.topic_names()
        count_chunk(report.counts, chunk, decoded, offsets_partition, job.partition_count, job.counted.get(offsets_partition))
        values = write_chunk(self._files, offsets_partition, piece.source, chunk, decoded, history_range)
        is_whole = offsets_partition not in job.carried_partitions
        if history_range is not None and not job.points_in_time and is_whole:
            write_survivors(self._files, offsets_partition, chunk.records, history_range.incarnation)
        return decoded, values

    def _count_after_complete(self, record_offset: Ints) -> None:
        """Count the records from ``complete_until`` of the point in time on."""
        if self._point_in_time is not None:
            self._report.records_after_complete += int(np.count_nonzero(record_offset >= self._point_in_time.complete_until))

    def _warn(self, decoded: DecodedChunk, refusals: RowNotes, *, source: Source) -> None:
        """Write and count the warnings about records that a broker's loader refuses in any state."""
        write_notes(self._files, self._offsets_partition, refusals, decoded, source)
        self._report.warnings += len(refusals)
        is_refusal = [LoadWarning(None, None, *note).is_refusal for note in zip(refusals.codes, refusals.details, strict=True)]
        self._report.refusals += int(np.array(is_refusal, np.int64)[refusals.note].sum()) if len(refusals) else 0
