"""Read, decode and drop in one go: a worker's pass over its segment files.

Out of it come, without a second look at any byte: what the replay needs of the records (packed, so that one row crosses to the JVM for a
chunk of some hundred thousand records), the history and quarantine tables as Parquet files, and the counts.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.log import Chunk, Records, Segment, read_segment
from groupcoord_spark.pipeline import compact
from groupcoord_spark.pipeline.compact import ChunkKinds, Names
from groupcoord_spark.pipeline.counts import PartitionCounts
from groupcoord_spark.pipeline.decode import UNKNOWN_KEY_TYPE, DecodedChunk, decode_chunk
from groupcoord_spark.pipeline.headway import noted
from groupcoord_spark.pipeline.history import (
    NO_HISTORY,
    HistoryRange,
    Source,
    group_changes,
    rows_of_tables,
    source_of,
    write_chunk,
    write_notes,
    write_survivors,
)
from groupcoord_spark.pipeline.history_records import HistoryPiece, records_in_history
from groupcoord_spark.pipeline.notes import RowNotes
from groupcoord_spark.pipeline.rebalances import LEADER_EPOCH, REBALANCES, PartitionRebalances, RebalanceJob
from groupcoord_spark.pipeline.task_files import TaskFiles
from groupcoord_spark.pipeline.until import Past, stretches
from groupcoord_spark.protocol import offsets_partition_for
from groupcoord_spark.protocol.primitives import uuid_text
from groupcoord_spark.protocol.slices import Mask, Slices
from groupcoord_spark.warehouse import AddedFile

SHUFFLED = "cluster STRING, offsets_partition INT, first_offset BIGINT, kind STRING, payload BINARY"
"""Rows from the readers to the replay.

kind ``records``: kept records as one Arrow stream; ``group_changes``: in the same way the group records that are new to the history, with
their leader epochs, of a partition that several runs have parts of;
``report``: a pickled PieceReport.
"""

SHUFFLED_ARROW = pa.schema(
    [
        ("cluster", pa.string()),
        ("offsets_partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("kind", pa.string()),
        ("payload", pa.binary()),
    ]
)

RECORDS, GROUP_CHANGES, REPORT = "records", "group_changes", "report"
REPORT_ORDER = -1
"""Reports sort before all records of their partition."""

HELD_BYTES = 16 << 20
"""Of consecutive chunks' kept records so much is held back, for later chunks to drop from."""

PACK_BYTES = 4 << 20
"""A row's payload is cut at about this size, so that no row is large for the JVM."""

CHUNK_BYTES = 12 << 20
"""Bytes of a file in memory at a time: few enough for small workers, many enough for the same keys to come again."""

ROWS_TO_REDUCE_AGAIN = 100_000

KEPT = pa.schema(
    [
        ("record_offset", pa.int64()),
        ("record_timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("is_transactional", pa.bool_()),
        ("control_type", pa.int8()),
        ("decodes", pa.bool_()),
    ]
)
"""Records on their way to the replay; control_type is -1 for records that are none. decodes: what the reader found."""


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
    past: Mapping[int, Past] = field(default_factory=dict)


@dataclass(slots=True)
class PieceReport:
    """What one reader has to say of one offsets partition; the files of its whole task ride with one of them.

    warnings, refusals: rows of the table warnings about records that a loader refuses because of the record alone, and how many of them
    are refusals (LoadWarning.is_refusal). Of a moment in the past also: found, how many records lie between known_until of the partition
    and its end; from_history, how many came from the history tables.
    """

    counts: PartitionCounts = field(default_factory=PartitionCounts)
    topic_names: dict[str, str] = field(default_factory=dict)
    files: dict[str, list[AddedFile]] = field(default_factory=dict)
    warnings: int = 0
    refusals: int = 0
    found: int = 0
    from_history: int = 0


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
        yield _row(job.cluster, offsets_partition, REPORT_ORDER, REPORT, pickle.dumps(report))


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
            kept = kept_records(records, np.flatnonzero(compact.kept(decoded.kinds)), decoded.decodes)
            yield from _packed(job.cluster, piece.offsets_partition, RECORDS, [kept])
        report.files = files.close()
    yield _row(job.cluster, piece.offsets_partition, REPORT_ORDER, REPORT, pickle.dumps(report))


class Waiting:
    """Kept records of consecutive chunks, held back as long as they are small: later ones supersede some of the earlier."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        # What these records are: of those that were reduced together first, then of each chunk after them.
        self._chunks: list[tuple[ChunkKinds, Names]] = []
        self._reduced_rows = 0

    def add(self, batch: pa.RecordBatch, kinds: ChunkKinds, names: Names) -> list[pa.RecordBatch]:
        """Take the next records, and what they are; if all together they are too large to be held any longer, they come back."""
        self._batches.append(batch)
        self._chunks.append((kinds, names))
        # Looking at all of them again pays once there are twice as many.
        if sum(len(kinds) for kinds, _ in self._chunks) <= max(2 * self._reduced_rows, ROWS_TO_REDUCE_AGAIN):
            return []
        self._reduce()
        return self._take() if sum(batch.nbytes for batch in self._batches) >= HELD_BYTES else []

    def rest(self) -> list[pa.RecordBatch]:
        """All that is held, reduced once more."""
        if len(self._chunks) > 1:
            self._reduce()
        return self._take()

    def _take(self) -> list[pa.RecordBatch]:
        taken = [batch for batch in self._batches if batch.num_rows]
        self._batches, self._chunks, self._reduced_rows = [], [], 0
        return taken

    def _reduce(self) -> None:
        kinds, names = compact.joined(self._chunks)
        keep = compact.kept(kinds)
        ends = np.cumsum([batch.num_rows for batch in self._batches])
        # each in its place, so that there is never more than one of them twice
        for place, of_batch in enumerate(np.split(keep, ends[:-1])):
            self._batches[place] = self._batches[place].filter(pa.array(of_batch))
        self._chunks = [(kinds.take(keep), names)]
        self._reduced_rows = int(np.count_nonzero(keep))


class RunReader:
    """Reads pieces of one offsets partition that follow each other, and holds back what a later one may supersede."""

    def __init__(self, job: ReadJob, files: TaskFiles) -> None:
        self._job = job
        self._files = files
        self._waiting = Waiting()
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
            yield from self._packed(RECORDS, self._waiting.rest())

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Rows of SHUFFLED with what is left when no piece follows."""
        if self._rebalances is not None:
            self._write(self._rebalances.finish())
        return self._packed(RECORDS, self._waiting.rest())

    def _write(self, rebalances: Iterator[pa.Table]) -> None:
        for rows in rebalances:
            self._files.write(REBALANCES, rows)

    def _packed(self, kind: str, parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _packed(self._job.cluster, self._offsets_partition, kind, parts)

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
            rows = np.flatnonzero(compact.kept(decoded.kinds))
            of_chunk = kept_records(chunk.records, rows, decoded.decodes)
            yield RECORDS, self._waiting.add(of_chunk, decoded.kinds.take(rows), decoded.names)

    def _look_beside_history(self, chunks: Iterable[Chunk], piece: Piece, past: Past, report: PieceReport) -> None:
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


def _counted(chunks: Iterator[Chunk], past: Past, report: PieceReport) -> Iterator[Chunk]:
    for chunk in chunks:
        report.found += int(np.count_nonzero(chunk.records.record_offset >= past.known_until))
        yield chunk


def kept_records(records: Records, rows: npt.NDArray[np.int64], decodes: Mask) -> pa.RecordBatch:
    """The records at ``rows`` as KEPT; decodes: bool, one for each of ``records``."""
    columns = (
        records.record_offset[rows],
        records.timestamp_ms[rows],
        records.key.take(rows).to_arrow(),
        records.value.take(rows).to_arrow(),
        records.producer_id[rows],
        records.producer_epoch[rows],
        records.is_transactional[rows],
        records.control_type[rows],
        decodes[rows],
    )
    return pa.RecordBatch.from_arrays([pa.array(column, kind.type) for column, kind in zip(columns, KEPT, strict=True)], schema=KEPT)


def records_of_kept(batch: pa.RecordBatch) -> tuple[Records, Mask]:
    """Rows of KEPT as the log's own columns, and which of them the reader has found to decode."""
    records = records_of(batch, batch.column("control_type").to_numpy(), np.zeros(batch.num_rows, np.int64))
    return records, batch.column("decodes").to_numpy(zero_copy_only=False)


def records_of(batch: pa.RecordBatch, control_type: npt.NDArray[np.int8], position: npt.NDArray[np.int64]) -> Records:
    """Rows of KEPT or of raw rows as the log's own columns, but for the two that each of them tells in its own way."""

    def column(name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
        return values

    return Records(
        record_offset=column("record_offset"),
        timestamp_ms=column("record_timestamp_ms"),
        key=Slices.from_arrow(batch.column("key")),
        value=Slices.from_arrow(batch.column("value")),
        producer_id=column("producer_id"),
        producer_epoch=column("producer_epoch"),
        is_transactional=column("is_transactional"),
        control_type=control_type,
        position=position,
    )


def _packed(cluster: str, offsets_partition: int, kind: str, parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part in _joined(parts):
        sink = pa.BufferOutputStream()
        # a third of the bytes: what crosses to Spark costs more than packing it
        with pa.ipc.new_stream(sink, part.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_batch(part)
        yield _row(cluster, offsets_partition, part.column(0)[0].as_py(), kind, sink.getvalue().to_pybytes())


def _joined(parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same records in batches of about PACK_BYTES, unless a single one is larger."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        step = max(1, int(part.num_rows * PACK_BYTES / max(part.nbytes, PACK_BYTES)))
        for begin in range(0, part.num_rows, step):
            cut = part.slice(begin, step)
            if gathered and size + cut.nbytes > PACK_BYTES:
                yield as_one(gathered)
                gathered, size = [], 0
            gathered.append(cut)
            size += cut.nbytes
    if gathered:
        yield as_one(gathered)


def as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches, of which there is one at least; a single one is not copied."""
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def unpacked(payload: bytes) -> pa.RecordBatch:
    """The records of one row of SHUFFLED."""
    return pa.ipc.open_stream(payload).read_next_batch()


def _row(cluster: str, offsets_partition: int, first_offset: int, kind: str, payload: bytes) -> pa.RecordBatch:
    values = ([cluster], [offsets_partition], [first_offset], [kind], [payload])
    return pa.RecordBatch.from_arrays(
        [pa.array(value, of.type) for value, of in zip(values, SHUFFLED_ARROW, strict=True)], schema=SHUFFLED_ARROW
    )


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
