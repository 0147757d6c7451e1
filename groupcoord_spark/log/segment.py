"""Reads one segment file in bounded memory: first all of it is walked, then its records come in the order of their offsets."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from groupcoord_spark.log.damage import CODES, Damage, DamageKind, DamageReport, Lost, PlacedDoubt
from groupcoord_spark.log.decode.batches import HEADER, OUT_OF_RANGE, Entries, Headers, headers_at
from groupcoord_spark.log.decode.compression import Decompressor
from groupcoord_spark.log.decode.records import (
    MARKER_LOST,
    Payloads,
    Records,
    StoredRecords,
    parts_of,
    payloads_of,
    read_in_file_order,
    read_in_offset_order,
)
from groupcoord_spark.log.limits import MIB
from groupcoord_spark.log.salvage.finder import DamagedRange, EntryFinder
from groupcoord_spark.log.salvage.order import Borders, Order, put_in_order
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NOT_A_CONTROL_RECORD
from groupcoord_spark.protocol.slices import Bytes, Mask, Positions
from groupcoord_spark.storage.held_files import HeldFile
from groupcoord_spark.storage.location import PADDING, Location, SegmentFile, shown
from groupcoord_spark.storage.page_cache import page_cache_as_found
from groupcoord_spark.wording import counted

CHUNK_BYTES = 12 * MIB
"""Bytes of a segment in memory at a time. Small enough for small workers, large enough that the same keys come again in a chunk."""
CHUNKS_IN_ONE_WINDOW = 2
"""A file of at most this many chunks is held in memory and read once; a longer file is read for its entries, then for its records."""

WALKED_AT_ONCE = 2 * MIB
"""Bytes of a longer file that are searched for entries at a time: few enough to stay in the processor's cache for the checksums."""

_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a partition, or a range of its batches, with what a worker must know of the neighbouring files.

    Attributes:
        uri: absolute path or URI.
        size: bytes of the file when the work was planned; what a live file has grown since is not read. A range ends here.
        base_offset: the number in the name of the file; of a range, its first offset.
        next_base_offset: the same of the next file or range; None for the last file.
        skip_below: records below this offset are in an earlier file, which is newer.
        log_start_offset: records below this offset are deleted.
        covers: the later files whose offsets this file reaches into: a copy made during a cleaning has both the merged file and the files
            that it replaces.
        start: the position where reading begins.
        file_size: bytes of the whole file when the work was planned, if it was finished then; None: it may grow while it is read.
        held: the same file, which the planning process keeps open; None: it does not.
    """

    uri: str
    size: int
    offsets_partition: int
    base_offset: int
    next_base_offset: int | None = None
    skip_below: int = 0
    log_start_offset: int = 0
    covers: "tuple[Segment, ...]" = ()
    start: int = 0
    file_size: int | None = None
    held: HeldFile | None = None

    @property
    def bytes(self) -> int:
        """How many bytes are read."""
        return self.size - self.start

    @property
    def source(self) -> str:
        """The URI as it may be printed and stored: without user and password."""
        return shown(self.uri)

    def open(self) -> SegmentFile:
        """Open the file up to the planned end. Raises InputError and InputChangedError as SegmentFile does."""
        return SegmentFile(Location.of(self.uri), self.size, self.file_size, self.held)

    @contextmanager
    def finder(self, window_bytes: int) -> Iterator[EntryFinder]:
        """Finds the entries of the file, which is open for the block. Raises as ``open`` does."""
        with self.open() as file:
            yield EntryFinder(file, self.base_offset, self.next_base_offset is None, window_bytes)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one file, with the lost and doubtful places among them.

    Attributes:
        bytes: how much of the file the chunk accounts for.
        entries, headers: the batches of the records, also those without records; empty where the batches are not known.
        batch, record_size: the index of each record's batch among these, and the bytes of the record, uncompressed; empty where the
            batches are not known.
        record_leader_epoch: the leader epoch of each record, where the records come from rows; None: the batches have it.
        sources: the source of each record, where the records come from several; None: all are from the one file.
        below_log_start: the number of records of the file below the log start offset; they are not among the records.
    """

    records: Records
    lost: list[Lost]
    doubts: list[PlacedDoubt]
    bytes: int
    entries: Entries = field(default_factory=Entries.none)
    headers: Headers = field(default_factory=lambda: np.zeros(0, HEADER))
    batch: Positions = field(default_factory=lambda: np.zeros(0, np.int64))
    record_size: Positions = field(default_factory=lambda: np.zeros(0, np.int64))
    record_leader_epoch: npt.NDArray[np.int32] | None = None
    sources: Sequence[str] | None = None
    below_log_start: int = 0

    def part(self, rows: npt.NDArray[np.int64], lost: list[Lost], doubts: list[PlacedDoubt], size: int) -> "Chunk":
        """Return some of the records with the lost and doubtful places among them."""
        return replace(
            self,
            records=self.records.take(rows),
            lost=lost,
            doubts=doubts,
            bytes=size,
            batch=self.batch[rows] if len(self.batch) else self.batch,
            record_size=self.record_size[rows] if len(self.batch) else self.record_size,
            record_leader_epoch=None if self.record_leader_epoch is None else self.record_leader_epoch[rows],
            sources=None if self.sources is None else [self.sources[row] for row in rows.tolist()],
        )

    def leader_epochs(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the leader epoch of each record's batch, or -1 if unknown."""
        if self.record_leader_epoch is not None:
            return self.record_leader_epoch[rows]
        if not len(self.batch):
            return np.full(len(rows), NO_LEADER_EPOCH, np.int32)
        of_batch = np.where(self.entries.magic == 2, self.headers["leader_epoch"], NO_LEADER_EPOCH)
        return of_batch[self.batch[rows]].astype(np.int32)


def read_segment(segment: Segment, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Yield all records of one file in offset order, in chunks of about ``chunk_bytes``; a single batch may be larger.

    A file with any bytes has at least one chunk, and the bytes of the chunks add up to its size. Damage is reported in the chunks. Raises
    InputError where the file cannot be read at all.
    """
    with segment.open() as file, page_cache_as_found(file.location, file.data_ranges(segment.start, segment.size)):
        reading = Reading(segment, file, chunk_bytes)
        reading.walk()
        yield from reading.chunks()


class Reading:
    """Reads one file: call ``walk`` first, then ``chunks``."""

    def __init__(self, segment: Segment, file: SegmentFile, chunk_bytes: int) -> None:
        self._segment = segment
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._report = DamageReport(segment.source, segment.offsets_partition)
        self._decompressor = Decompressor()
        self._window: Bytes | None = None
        self._headers: Headers | None = None
        self._entries = Entries.none()
        self._order = Order(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @property
    def kept(self) -> Entries:
        """The entries that are used, in the order of their offsets. After ``walk``."""
        return self._entries.take(self._order.kept)

    def end(self) -> tuple[int | None, int]:
        """Return the offset after the last record (None if no entry is used) and the leader epoch of the last entry. Call after
        ``walk``."""
        kept = self.kept
        if len(kept) == 0:
            return None, NO_LEADER_EPOCH
        start = int(kept.position[-1])
        header = self._file.read(start, start + int(kept.size[-1]))
        epoch = int(headers_at(header, np.zeros(1, np.int64))["leader_epoch"][0]) if kept.magic[-1] == 2 else NO_LEADER_EPOCH
        return int(kept.last_offset.max()) + 1, epoch

    def walk(self) -> None:
        """Finds all entries of the file, decides which are used, and reports all damage to entries."""
        segment, file = self._segment, self._file
        is_one_window = file.size <= CHUNKS_IN_ONE_WINDOW * self._chunk_bytes
        window_bytes = file.size if is_one_window else min(WALKED_AT_ONCE, self._chunk_bytes)
        finder = EntryFinder(file, segment.base_offset, segment.next_base_offset is None, window_bytes)
        parts: list[Entries] = []
        headers: list[Headers] = []
        damaged: list[DamagedRange] = []
        for section in finder.sections(segment.start):
            if section.damaged:
                damaged.append(section.damaged)
                continue
            if section.repair:
                position, size = int(section.entries.position[0]), int(section.entries.size[0])
                first_offset = int(section.entries.first_offset[0])
                self._report.add([Damage("batch_header_repaired", position, size, first_offset, section.repair)])
            parts.append(section.entries)
            if is_one_window:
                headers.append(section.headers)
        self._entries = Entries.concat(parts) if parts else Entries.none()
        if is_one_window:
            self._window = finder.whole_window()
            self._headers = np.concatenate(headers) if headers else None
        borders = Borders(segment.base_offset, segment.next_base_offset, file.size)
        self._order = put_in_order(self._entries, borders, self._is_in_later_file, self._same_bytes)
        self._report.add(self._order.damages)
        if damaged:
            in_file = self._entries.take(np.sort(self._order.kept))
            self._report.add(self._damage_of(damaged_range, in_file) for damaged_range in damaged)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records in offset order, with all damage."""
        segment, report = self._segment, self._report
        left = self._file.size - segment.start
        skip_below = max(segment.skip_below, segment.log_start_offset)
        left_out = entries_read = 0
        end_of_last = _LEAST
        for payloads in self._payloads(self._order.kept):
            stored, skipped = read_in_offset_order(payloads, skip_below)
            left_out += skipped
            size = int(payloads.entries.size.sum())
            left -= size
            entries_read += len(payloads.entries)
            entries, headers = payloads.entries, payloads.headers
            del payloads
            report.add(stored.damages)
            stored, displaced = self._within(stored, entries, end_of_last, entries_read)
            report.add(displaced)
            ends = [int(entries.last_offset[-1]), *stored.records.record_offset[-1:].tolist()]
            end_of_last = min(max(ends) + 1, _MOST)
            yield Chunk(stored.records, *report.take(), size, entries, headers, stored.batch, stored.size)
        report.add(self._without_place())
        is_overlap = segment.skip_below > segment.log_start_offset
        if left_out and is_overlap:
            detail = f"{counted(left_out, 'record')} below offset {segment.skip_below} skipped: a newer file before it covers them."
            report.add([Damage("segment_overlap", 0, 0, segment.base_offset, detail, left_out)])
        report.close()
        lost, doubts = report.take()
        if left or lost or doubts or left_out:
            yield Chunk(Records.none(), lost, doubts, left, below_log_start=0 if is_overlap else left_out)

    def _within(self, stored: StoredRecords, entries: Entries, lowest: int, entries_read: int) -> tuple[StoredRecords, Iterable[Damage]]:
        """Return the records between the last offset of the earlier chunks and the first of the later ones, so that chunks are in order.

        All others claim offsets outside of their own batch (record_offset_out_of_batch), and are lost.

        Args:
            lowest: the end offset of the earlier chunks.
            entries_read: how many entries the earlier chunks and this one have.
        """
        segment, kept = self._segment, self._order.kept
        if lowest == _LEAST and int(entries.first_offset[0]) >= segment.base_offset:
            lowest = segment.base_offset
        records = stored.records
        offsets = records.record_offset
        first, end = int(np.searchsorted(offsets, lowest)), len(records)
        if entries_read < len(kept):
            end = int(np.searchsorted(offsets, self._entries.first_offset[kept[entries_read]]))
        elif segment.next_base_offset is not None:
            end = int(np.searchsorted(offsets, max(segment.next_base_offset, min(int(entries.last_offset[-1]) + 1, _MOST))))
        if end - first == len(records):
            return stored, ()
        displaced = [*range(first), *range(end, len(records))]
        where = "outside of its own batch and where the records of others lie"
        return stored.take(np.arange(first, end)), _lost_records(stored, entries, displaced, where)

    def _payloads(self, rows: Positions) -> Iterator[Payloads]:
        """Yield the entries of ``rows``, in that order, with their decompressed records, in pieces of about a chunk."""
        if len(rows) == 0:
            return
        is_all = len(rows) == len(self._entries) and bool((rows[1:] > rows[:-1]).all())
        entries = self._entries if is_all else self._entries.take(rows)
        if self._window is not None and self._headers is not None:
            headers = self._headers if is_all else self._headers[rows]
            yield from payloads_of(self._window, entries.position, entries, headers, self._decompressor, self._chunk_bytes)
            return
        for part in map(entries.take, parts_of(entries.size, self._chunk_bytes)):
            window, at = self._read_together(part)
            yield from payloads_of(window, at, part, headers_at(window, at), self._decompressor, self._chunk_bytes)

    def _read_together(self, entries: Entries) -> tuple[Bytes, Positions]:
        """Return the bytes of some entries in one buffer, and the start of each entry in it."""
        start = entries.position
        end = start + entries.size
        if (start[1:] >= end[:-1]).all() and int(end[-1] - start[0]) <= 2 * int(entries.size.sum()):
            return self._file.read(int(start[0]), int(end[-1])), start - start[0]
        at = np.cumsum(entries.size) - entries.size
        buffer = np.zeros(int(entries.size.sum()) + PADDING, np.uint8)
        run = 0
        for i in range(1, len(entries) + 1):
            if i == len(entries) or start[i] != end[i - 1]:
                size = int(end[i - 1] - start[run])
                buffer[int(at[run]) : int(at[run]) + size] = self._file.read(int(start[run]), int(end[i - 1]))[:size]
                run = i
        return buffer, at

    def _same_bytes(self, entry: int, twin: int) -> bool:
        size = int(self._entries.size[entry])
        start, start_of_twin = (int(self._entries.position[i]) for i in (entry, twin))
        return bool((self._file.read(start, start + size) == self._file.read(start_of_twin, start_of_twin + size)).all())

    def _is_in_later_file(self, rows: Positions) -> Mask:
        """True for entries with a record (offset, key and value) that a later file has too, and for empty entries that a later file has."""
        confirmed = np.zeros(len(rows), np.bool_)
        if not self._segment.covers:
            return confirmed
        entries = self._entries.take(rows)
        owner_of: dict[int, int] = {}
        offsets: list[Positions] = []
        done = 0
        for payloads in self._payloads(rows):
            stored = read_in_file_order(payloads)
            offsets.append(stored.records.record_offset)
            for fingerprint, i in zip(_fingerprints(stored.records), stored.batch.tolist(), strict=True):
                owner_of[fingerprint] = done + i
            done += len(payloads.entries)
        sought = np.concatenate(offsets)
        holds_none = np.ones(len(rows), np.bool_)
        holds_none[list(owner_of.values())] = False
        ranges = {(int(entries.first_offset[i]), int(entries.last_offset[i])): i for i in np.flatnonzero(holds_none).tolist()}
        for later in self._segment.covers:
            with later.open() as file:
                reading = Reading(later, file, self._chunk_bytes)
                reading.walk()
                kept = reading.kept
                for pair in zip(kept.first_offset.tolist(), kept.last_offset.tolist(), strict=True):
                    if pair in ranges:
                        confirmed[ranges[pair]] = True
                for chunk in reading.chunks():
                    records = chunk.records
                    for fingerprint in _fingerprints(records.take(np.isin(records.record_offset, sought))):
                        if fingerprint in owner_of:
                            confirmed[owner_of[fingerprint]] = True
        return confirmed

    def _without_place(self) -> Iterator[Damage]:
        """Report valid entries without a known place as lost: each record, and each entry without records."""
        entries, invalid = self._entries, self._order.invalid
        is_wrapper_below_its_messages = entries.moved_by[invalid] == OUT_OF_RANGE
        for i in invalid[is_wrapper_below_its_messages].tolist():
            detail = "The offset of a compressed message is below that of the last message inside; its neighbours tell no better one."
            yield Damage("wrapper_malformed", int(entries.position[i]), int(entries.size[i]), None, detail)
        for payloads in self._payloads(invalid[~is_wrapper_below_its_messages]):
            stored, entries = read_in_file_order(payloads), payloads.entries
            yield from stored.damages
            kept = np.flatnonzero(stored.keep).tolist()
            yield from _lost_records(stored, entries, kept, "in an entry whose base offset contradicts its neighbours")
            has_rows = np.zeros(len(entries), np.bool_)
            has_rows[stored.batch] = True
            has_rows[stored.lost] = True
            for i in np.flatnonzero(~has_rows).tolist():
                first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
                detail = f"The entry claims offsets {first} to {last}, which contradict its neighbours; it holds no record."
                yield Damage("base_offset_invalid", int(entries.position[i]), int(entries.size[i]), None, detail, 0)

    def _damage_of(self, damaged: DamagedRange, kept: Entries) -> Damage:
        """Return a damaged range with the offsets that may be missing because of it. ``kept``: the used entries in file order."""
        size = damaged.end - damaged.position
        if CODES[damaged.code].kind is DamageKind.INFO:
            return Damage(damaged.code, damaged.position, size, None, damaged.sentence)
        detail = f"{damaged.sentence} {size} bytes are not used; {self._missing_offsets(damaged, kept)}."
        if damaged.has_control_batch:
            detail += MARKER_LOST
        return Damage(damaged.code, damaged.position, size, None, detail, damaged.records)

    def _missing_offsets(self, damaged: DamagedRange, kept: Entries) -> str:
        at = int(np.searchsorted(kept.position, damaged.position))
        low = int(kept.last_offset[at - 1]) + 1 if at else self._segment.base_offset
        high = int(kept.first_offset[at]) if at < len(kept) else self._segment.next_base_offset
        if high is None:
            return f"what they held would have begun at offset {low}"
        return f"offsets {low} to {high - 1} are missing between their neighbours" if low < high else "no offset is missing around them"


def _fingerprints(records: Records) -> list[int]:
    return [hash((offset, records.key.row(i), records.value.row(i))) for i, offset in enumerate(records.record_offset.tolist())]


def _lost_records(stored: StoredRecords, entries: Entries, rows: Iterable[int], where: str) -> Iterator[Damage]:
    """Some of the records as lost. where: a clause about the offset that a record claims."""
    records = stored.records
    for row in rows:
        marker = "" if records.control_type[row] == NOT_A_CONTROL_RECORD else MARKER_LOST
        detail = f"The record claims offset {records.record_offset[row]}, {where}.{marker}"
        place = int(records.position[row]), int(entries.size[stored.batch[row]]), None
        yield Damage("base_offset_invalid", *place, detail, 1, records.key.row(row), records.value.row(row), of_record=True)
