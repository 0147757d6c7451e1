"""The facts of a partition while its chunks are added in the order of the log."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from groupcoord_spark.doctor.facts import BatchFacts, FilesBeside, PartitionFacts, SegmentFacts
from groupcoord_spark.doctor.gather import record_loop as loop
from groupcoord_spark.doctor.gather.batches import Holes, add_batches, add_timestamps
from groupcoord_spark.doctor.gather.counts import ChunkKeys, RecordCounts
from groupcoord_spark.doctor.gather.group_table import NONE
from groupcoord_spark.doctor.gather.open_records import (
    Fates,
    FirstMarkers,
    decided,
    fates_of,
    markers_of,
    open_after,
    open_records,
    open_transactions,
)
from groupcoord_spark.doctor.gather.producer_table import ProducerTable
from groupcoord_spark.doctor.hanging_transactions import OpenTransaction
from groupcoord_spark.doctor.side_files import checked_files
from groupcoord_spark.log import CHUNK_BYTES, Chunk, PartitionLog, Records, Segment, log_start_was_moved, read_segment
from groupcoord_spark.protocol.slices import Ints


def gather_partition(log: PartitionLog, files: FilesBeside, *, chunk_bytes: int = CHUNK_BYTES) -> PartitionFacts:
    """Gather the statistics of one partition from its segments. Raises InputError if a file cannot be read at all."""
    gatherer = PartitionGatherer(log, files)
    for segment in log.segments:
        for chunk in read_segment(segment, chunk_bytes=chunk_bytes):
            gatherer.add(chunk, segment, ChunkKeys.of(chunk.records))
    return gatherer.facts()


class PartitionGatherer:
    """The facts of a partition while its chunks are added in the order of the log."""

    def __init__(self, log: PartitionLog, files: FilesBeside) -> None:
        self._log = log
        self._files = files
        sizes = {file.base_offset: file.bytes for file in files.partition.segments}
        sizes |= {segment.base_offset: sizes.get(segment.base_offset, 0) or segment.size for segment in log.segments}
        self._segments = [SegmentFacts(base, size) for base, size in sorted(sizes.items())]
        self._bases = np.array([segment.base_offset for segment in self._segments], np.int64)
        self._batches = BatchFacts()
        self._counts = RecordCounts()
        self._producers = ProducerTable()
        self._open: list[pa.Table] = []
        self._first_markers: dict[int, tuple[int, bool]] = {}
        """Producer id -> type of its first marker, and whether the marker is in the active segment."""
        self._holes = Holes()
        self._records = 0
        self._lost = 0
        self._first_lost = ""

    def add(self, chunk: Chunk, segment: Segment, keys: ChunkKeys) -> None:
        """Add the records and batches of a chunk of ``segment``. ``keys`` are the keys of its records."""
        place = max(int(np.searchsorted(self._bases, segment.base_offset, "right")) - 1, 0)
        of_segment = self._segments[place]
        if chunk.lost and not self._lost:
            self._first_lost = f"{chunk.lost[0].source}, byte {chunk.lost[0].position:,}: {chunk.lost[0].detail}"
        self._lost += len(chunk.lost)
        batches_before, bytes_before = self._batches.batches, self._batches.bytes
        add_batches(chunk, self._batches, of_segment, self._producers)
        missing = np.full(len(chunk.entries), NONE)
        if len(chunk.records):
            self._records += len(chunk.records)
            add_timestamps(chunk, of_segment)
            is_active = of_segment is self._segments[-1]  # the cleaner never takes the last one
            markers = markers_of(chunk.records)
            if len(markers):
                self._producers.add_markers(of_segment.base_offset, chunk.records.take(markers))
                self._decide_open(self._note_first_markers(chunk.records.take(markers), is_active=is_active))
            fates = fates_of(chunk.records, markers)
            key_of_code = self._counts.keys.numbers(keys.distinct, keys.columns, self._counts.groups)
            missing = self._counts.add(chunk, keys, key_of_code, fates, is_active=is_active)
            self._add_value_bytes(chunk.records.record_offset, chunk.record_size, fates)
            if len(waiting := np.flatnonzero(fates == loop.WAITING)):
                self._open.append(open_records(chunk, waiting, key_of_code[keys.code[waiting]], batches_before, bytes_before))
        self._holes.add(chunk, missing)

    @property
    def first_offset(self) -> int:
        """The first offset that was added; -1 for none."""
        return self._holes.first_offset

    def fit(self, files: FilesBeside) -> None:
        """Set the side files that ``facts`` compares with the segments."""
        self._files = files

    def absorb(self, later: "PartitionGatherer") -> None:
        """Add the statistics of another gatherer of the same log, whose records follow the records of this one."""
        self._decide_open(later._first_markers)
        key_numbers = self._counts.absorb(later._counts)
        self._open += [open_after(part, self._batches.batches, self._batches.bytes, key_numbers) for part in later._open]
        of_base = {segment.base_offset: segment for segment in self._segments}
        for segment in later._segments:
            if segment.batches:
                of_base[segment.base_offset].add(segment)
        self._holes.absorb(later._holes)
        self._records += later._records
        self._first_lost = self._first_lost or later._first_lost
        self._lost += later._lost
        self._batches.add(later._batches)
        self._producers.absorb(later._producers)
        for producer_id, marker in later._first_markers.items():
            self._first_markers.setdefault(producer_id, marker)

    def facts(self, *, with_groups: bool = True) -> PartitionFacts:
        """Return the collected statistics after the last chunk. with_groups: False: only sums over the groups, not each of them."""
        transactions = self._open_transactions()
        keys = self._counts.keys.decided()
        last_offset, last_bytes = keys[:, loop.LAST_OFFSET], keys[:, loop.LAST_BYTES]
        log, log_dir, first_offset, next_offset = self._log, self._files.log_dir, self._holes.first_offset, self._holes.next_offset
        number = log.offsets_partition
        by_segment = self._producers.by_segment()
        log_end = max(log.end_offset, next_offset)
        bases = [segment.base_offset for segment in self._segments]
        newest = max((segment.newest_timestamp_ms for segment in self._segments), default=NONE)
        start = log.log_start_offset or 0
        reached = next_offset if first_offset >= 0 else start
        holes = self._holes.holes + int(first_offset > start) + int(log_end > reached)
        hole_end = self._holes.gap_end if self._holes.gap_end >= 0 or first_offset <= start else first_offset
        missing = max(log_end - start - self._records, 0)
        checked = checked_files(self._files, number, log.directory, bases, log_end, by_segment, newest, transactions, hole_end=hole_end)
        last_stable = min([log_end, *(transaction.first_offset for transaction in checked.transactions)])
        checkpoint = checked.checkpoint
        self._batches.record_bytes = int(self._counts.totals[loop.RECORD_BYTES])
        for segment, size in zip(self._segments, self._by_segment(last_offset, last_bytes), strict=True):
            segment.last_value_bytes = size
        of_keys = keys, min(1.0, self._batches.bytes / max(self._batches.record_bytes, 1))
        groups, sums = self._counts.groups.facts(*of_keys) if with_groups else {}, self._counts.groups.sums(*of_keys)
        return PartitionFacts(
            number, log.directory, tuple(self._segments), start, log_end, last_stable, self._records, missing,
            holes, hole_end, newest, self._batches, groups, sums, self._producers.facts(),
            checked.transactions, int(self._counts.totals[loop.ENDED_BYTES] - keys[:, loop.CLOSED_BYTES].sum()), len(keys),
            int(np.count_nonzero(last_offset >= (checkpoint or 0))),
            checkpoint, log_dir.has_cleaner_checkpoint, checked.high_watermark, self._files.partition.damaged_indexes,
            bool(min(log.files, default=0)) and not log_start_was_moved(log, self._files.partition.leader_epochs or ()),
            (*self._unread(), *checked.damages),
        )  # fmt: skip

    def _note_first_markers(self, markers: Records, *, is_active: bool) -> FirstMarkers:
        """Return the first marker of each producer among these."""
        rows = np.unique(markers.producer_id, return_index=True)[1]
        kinds = zip(markers.producer_id[rows].tolist(), markers.control_type[rows].tolist(), strict=True)
        first_markers = {producer_id: (kind, is_active) for producer_id, kind in kinds}
        self._first_markers = first_markers | self._first_markers
        return first_markers

    def _decide_open(self, first_markers: FirstMarkers) -> None:
        """Decide the waiting records by the first marker of their producer that follows."""
        if not self._open:
            return
        records = pa.concat_tables(self._open)
        fates, in_active = decided(records, first_markers)
        for is_active in (False, True):
            rows = (fates != loop.WAITING) & (in_active == is_active)
            if rows.any():
                self._add_waiting(records.filter(pa.array(rows)), fates[rows], is_active=is_active)
        is_waiting = fates == loop.WAITING
        self._open = [records.filter(pa.array(is_waiting))] if is_waiting.any() else []

    def _add_waiting(self, records: pa.Table, fates: Fates, *, is_active: bool) -> None:
        self._counts.add_waiting(records, fates, is_active=is_active)
        self._add_value_bytes(records["record_offset"].to_numpy(), records["size"].to_numpy(), fates)

    def _add_value_bytes(self, record_offset: Ints, size: Ints, fates: Fates) -> None:
        """Add the bytes of decided records to the segments in whose range they lie."""
        for segment, segment_bytes in zip(self._segments, self._by_segment(record_offset, size * (fates == loop.DECIDED)), strict=True):
            segment.value_bytes += segment_bytes

    def _by_segment(self, record_offset: Ints, size: Ints) -> list[int]:
        """Return the sum of record bytes in the range of each segment."""
        place = np.maximum(np.searchsorted(self._bases, record_offset, "right") - 1, 0)
        return [int(total) for total in np.bincount(place, size, len(self._segments))]

    def _unread(self) -> list[str]:
        """Return a sentence about the unreadable places of the log; their records are not counted."""
        if not self._lost:
            return []
        number = "A place" if self._lost == 1 else f"{self._lost} places"
        cannot = "cannot be read, and its records are" if self._lost == 1 else "cannot be read, and their records are"
        return [f"{number} of partition {self._log.offsets_partition} {cannot} in no figure. The first is in {self._first_lost}"]

    def _open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Return the transactions without a marker by first offset. Their records count as open."""
        if not self._open:
            return ()
        records = pa.concat_tables(self._open)
        self._add_waiting(records, np.full(len(records), loop.OPEN, np.int16), is_active=True)
        transactions = open_transactions(
            records, self._counts.keys.keys(), self._producers.marker_epochs(), self._batches.batches, self._batches.bytes
        )
        return tuple(
            replace(transaction, is_cleaned_behind=not self._lost and self._holes.gap_end > self._next_base(transaction.first_offset))
            for transaction in transactions
        )

    def _next_base(self, record_offset: int) -> int:
        """Return the base offset of the segment after the record's, or a value beyond every offset for the last segment."""
        place = int(np.searchsorted(self._bases, record_offset, "right"))
        return int(self._bases[place]) if place < len(self._bases) else 2**63 - 1
