"""Gathers the facts of one offsets partition in one pass over the chunks of its log.

Every step works on the columns of a chunk. What is kept from chunk to chunk grows with distinct keys, groups and producers, and with the
records of open transactions, not with records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.doctor.facts import BatchFacts, FilesBeside, Ints, PartitionFacts, SegmentFacts
from groupcoord_spark.doctor.groups import (
    ABORTED,
    LIVE,
    OPEN,
    SUPERSEDED,
    SUPERSEDED_TOMBSTONE,
    TOMBSTONE,
    GroupFacts,
    sums_of_groups,
)
from groupcoord_spark.doctor.hanging_transactions import OpenTransaction
from groupcoord_spark.doctor.side_files import checked_files
from groupcoord_spark.doctor.tables import NO_COMMIT, NONE, KeyRows, KeyTable, ProducerTable
from groupcoord_spark.log import Chunk, PartitionLog, Segment, read_segment
from groupcoord_spark.log.decode.batches import CONTROL, TRANSACTIONAL
from groupcoord_spark.protocol import DecodeError, decode_key, decode_value
from groupcoord_spark.protocol.columnar import KeyColumns, decode_key_columns
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NOT_A_CONTROL_RECORD, KeyType, MarkerType
from groupcoord_spark.protocol.slices import Mask, Slices

DELETE_HORIZON: Final = 0x40
LARGE_VALUE: Final = 512
"""Values of offset commits above this many bytes are decoded for the length of their metadata."""

CHUNK_BYTES: Final = 12 << 20

_VALUES, _TOMBSTONES, _ABORTED, _OPEN = range(4)
_COMMITTED_AT, _COMMITTED_BYTES = 2, 10
"""In every version of a commit's value the committed offset stands in bytes 2 to 10."""


def gather_partition(log: PartitionLog, files: FilesBeside, *, chunk_bytes: int = CHUNK_BYTES) -> PartitionFacts:
    """The facts of one partition, read from its segments. Raises InputError where a file cannot be read at all."""
    gatherer = PartitionGatherer(log, files)
    for segment in log.segments:
        for chunk in read_segment(segment, chunk_bytes=chunk_bytes):
            gatherer.add(chunk, segment)
    return gatherer.facts()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Data records as columns of one length: those of a chunk, after those of transactions that were open before it.

    code: int64, the place of the key among the distinct keys; -1 for a null key. committed: NO_COMMIT where the record is no commit.
    batch: a number for each batch, rising with its place in the log. batches_through, bytes_through: of the log up to the record's batch.
    """

    code: Ints
    record_offset: Ints
    timestamp_ms: Ints
    producer_id: Ints
    producer_epoch: Ints
    is_transactional: Mask
    is_tombstone: Mask
    size: Ints
    committed: Ints
    batch: Ints
    batch_bytes: Ints
    bytes_through: Ints

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: npt.NDArray[Any]) -> _Rows:
        return _Rows(*(getattr(self, name)[rows] for name in _Rows.__slots__))

    def after(self, earlier: _Rows) -> _Rows:
        """The earlier rows, then these."""
        return _Rows(*(np.concatenate((getattr(earlier, name), getattr(self, name))) for name in _Rows.__slots__))


class _Groups:
    """Numbers and facts of the groups. Facts of many groups are columns by group number, which grow with the groups."""

    def __init__(self) -> None:
        self._number_of: dict[str, int] = {}
        self.counts = np.zeros((0, 2, 4, 2), np.int64)
        """By group, offsets (0) or others (1), kind of record, and [records, bytes]."""
        self.sums = np.zeros((0, 5), np.int64)
        """By group: batch bytes, batches, commits, repeated commits, transactional records."""
        self.most_records = np.zeros(0, np.int64)
        self.span = np.zeros((0, 2), np.int64)
        self.large: dict[int, int] = {}

    def numbers(self, group_ids: list[str | None]) -> Ints:
        """The number of each group; -1 for None."""
        numbers = [NONE if group_id is None else self._number_of.setdefault(group_id, len(self._number_of)) for group_id in group_ids]
        new = len(self._number_of) - len(self.sums)
        if new > 0:
            new = max(new, len(self.sums))
            self.counts = np.concatenate((self.counts, np.zeros((new, 2, 4, 2), np.int64)))
            self.sums = np.concatenate((self.sums, np.zeros((new, 5), np.int64)))
            self.most_records = np.concatenate((self.most_records, np.zeros(new, np.int64)))
            self.span = np.concatenate((self.span, np.tile(np.array([2**63 - 1, -1]), (new, 1))))
        return np.array(numbers, np.int64)

    def names(self) -> list[str]:
        return list(self._number_of)

    def absorb(self, other: _Groups) -> Ints:
        """Add the facts of other groups, and return the numbers that these groups have here, by their number there."""
        numbers = self.numbers([*other.names()])
        known = len(numbers)
        self.counts[numbers] += other.counts[:known]
        self.sums[numbers] += other.sums[:known]
        self.most_records[numbers] = np.maximum(self.most_records[numbers], other.most_records[:known])
        self.span[numbers, 0] = np.minimum(self.span[numbers, 0], other.span[:known, 0])
        self.span[numbers, 1] = np.maximum(self.span[numbers, 1], other.span[:known, 1])
        for number, size in other.large.items():
            self.large[int(numbers[number])] = max(self.large.get(int(numbers[number]), 0), size)
        return numbers


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
        self._groups = _Groups()
        self._keys = KeyTable(self._count_repeats)
        """Of records that were decided before the active segment begins."""
        self._active_keys = KeyTable(self._count_repeats)
        self._producers = ProducerTable()
        self._open: _Rows | None = None
        self._open_keys: pa.BinaryArray = pa.array([], pa.binary())
        self._first_markers: dict[int, tuple[int, bool]] = {}
        """Producer id -> type of its first marker, and whether the marker is in the active segment."""
        self._records = self._holes = 0
        self._first_offset = self._next_offset = NONE
        self._bytes = 0
        self._lost = 0
        self._first_lost = ""
        self._closed_bytes = 0
        """Bytes of the records that were decided before the active segment begins, aborted ones included."""
        self._gap_end = NONE

    def add(self, chunk: Chunk, segment: Segment) -> None:
        """Add the records and batches of a chunk of ``segment``."""
        place = max(int(np.searchsorted(self._bases, segment.base_offset, "right")) - 1, 0)
        of_segment = self._segments[place]
        if chunk.lost and not self._lost:
            self._first_lost = f"{chunk.lost[0].source}, byte {chunk.lost[0].position:,}: {chunk.lost[0].detail}"
        self._lost += len(chunk.lost)
        records = chunk.records
        bytes_before = self._bytes
        batch_of_record = self._batch_of_records(chunk)
        self._count_holes(chunk, batch_of_record)
        self._add_batches(chunk, of_segment)
        if not len(records):
            return
        self._records += len(records)
        of_segment.records += len(records)
        if of_segment.first_offset is None:
            of_segment.first_offset = int(records.record_offset[0])
        timestamps = records.timestamp_ms
        newest = int(timestamps.max())
        oldest = int(timestamps.min())
        if oldest < 0 <= newest:
            oldest = int(timestamps[timestamps >= 0].min())
        if oldest >= 0 and not 0 <= of_segment.oldest_timestamp_ms <= oldest:
            of_segment.oldest_timestamp_ms = oldest
        of_segment.newest_timestamp_ms = max(of_segment.newest_timestamp_ms, newest)
        self._add_records(chunk, of_segment, batch_of_record, bytes_before)

    @property
    def first_offset(self) -> int:
        """The first offset that was added; -1 for none."""
        return self._first_offset

    def fit(self, files: FilesBeside) -> None:
        """From now on these are the files beside the segments, which ``facts`` compares with the segments."""
        self._files = files

    def absorb(self, later: PartitionGatherer) -> None:
        """Add what another gatherer has seen of the same log: records that follow those of this one."""
        self._decide_open(later._first_markers)
        self._absorb_open(later)
        of_base = {segment.base_offset: segment for segment in self._segments}
        for theirs in later._segments:
            if theirs.batches:
                of_base[theirs.base_offset].add(theirs)
        if later._first_offset >= 0:
            if self._first_offset < 0:
                self._first_offset = self._next_offset = later._first_offset
            if later._first_offset > self._next_offset:
                self._holes += 1
                self._gap_end = later._first_offset
            self._next_offset = max(self._next_offset, later._next_offset)
        self._gap_end = max(self._gap_end, later._gap_end)
        self._holes += later._holes
        self._records += later._records
        self._first_lost = self._first_lost or later._first_lost
        self._lost += later._lost
        self._bytes += later._bytes
        self._closed_bytes += later._closed_bytes
        self._batches.add(later._batches)
        numbers = self._groups.absorb(later._groups)
        self._keys.absorb(later._keys, numbers)
        self._active_keys.absorb(later._active_keys, numbers)
        self._producers.absorb(later._producers)
        for producer_id, marker in later._first_markers.items():
            self._first_markers.setdefault(producer_id, marker)

    def _decide_open(self, first_markers: Mapping[int, tuple[int, bool]]) -> None:
        """Decide the records of open transactions by the first marker of their producer that follows."""
        rows = self._open
        if rows is None:
            return
        group_of_key, is_offset_key = self._groups_of_keys(decode_key_columns(Slices.from_arrow(self._open_keys)))
        is_open = np.ones(len(rows), np.bool_)
        for producer_id in np.unique(rows.producer_id).tolist():
            if producer_id not in first_markers:
                continue
            kind, is_active = first_markers[producer_id]
            of_producer = rows.producer_id == producer_id
            is_open &= ~of_producer
            if kind == MarkerType.ABORT:
                self._count(rows, of_producer, _ABORTED, group_of_key, is_offset_key)
                self._closed_bytes += 0 if is_active else int(rows.size[of_producer].sum())
            else:
                self._add_decided(rows.take(of_producer), self._open_keys, group_of_key, is_offset_key, None, is_active=is_active)
        self._open = rows.take(is_open) if is_open.any() else None

    def _absorb_open(self, later: PartitionGatherer) -> None:
        if later._open is None:
            return
        batches, size = self._batches.batches, self._bytes
        theirs = replace(later._open, batch=later._open.batch + batches, bytes_through=later._open.bytes_through + size)
        if self._open is None:
            self._open, self._open_keys = theirs, later._open_keys
            return
        waiting = len(self._open_keys)
        theirs = replace(theirs, code=np.where(theirs.code >= 0, theirs.code + waiting, NONE))
        self._open = theirs.after(self._open)
        self._open_keys = pa.concat_arrays([self._open_keys, later._open_keys])

    def _count_holes(self, chunk: Chunk, batch: Ints) -> None:
        """Count runs of missing offsets: between two batches, and inside of each batch."""
        entries, offsets = chunk.entries, chunk.records.record_offset
        if not len(entries):
            return
        if self._first_offset < 0:
            self._first_offset = self._next_offset = int(entries.first_offset[0])
        ends = np.concatenate(([self._next_offset], entries.last_offset[:-1] + 1))
        is_gap = entries.first_offset > ends
        inside = np.ones(len(entries), np.int64)  # of a batch without records: all of it is missing
        if len(offsets):
            same_batch = batch[1:] == batch[:-1]
            firsts = np.concatenate(([True], ~same_batch))
            lasts = np.concatenate((~same_batch, [True]))
            inside[batch[firsts]] = 0
            inside[batch[firsts]] += offsets[firsts] > entries.first_offset[batch[firsts]]
            inside[batch[lasts]] += offsets[lasts] < entries.last_offset[batch[lasts]]
            jumps = np.flatnonzero(same_batch & (np.diff(offsets) > 1))
            inside += np.bincount(batch[jumps], minlength=len(entries))
        self._holes += int(np.count_nonzero(is_gap)) + int(inside.sum())
        if is_gap.any():
            self._gap_end = int(entries.first_offset[is_gap][-1])
        if inside.any():
            self._gap_end = max(self._gap_end, int(entries.last_offset[inside > 0][-1]))
        self._next_offset = max(self._next_offset, int(entries.last_offset.max()) + 1)

    def _batch_of_records(self, chunk: Chunk) -> Ints:
        """The index of each record's batch among the batches of the chunk."""
        position = chunk.records.position
        if not len(position):
            return np.zeros(0, np.int64)
        is_first = np.concatenate(([True], position[1:] != position[:-1]))
        firsts = np.flatnonzero(is_first)
        in_file = np.argsort(chunk.entries.position, kind="stable")
        batch: Ints = in_file[np.searchsorted(chunk.entries.position[in_file], position[firsts])]
        return np.asarray(np.repeat(batch, np.diff(np.append(firsts, len(position)))))

    def _add_batches(self, chunk: Chunk, of_segment: SegmentFacts) -> None:
        entries, headers, facts = chunk.entries, chunk.headers, self._batches
        if not len(entries):
            return
        facts.batches += len(entries)
        size = int(entries.size.sum())
        facts.bytes += size
        self._bytes += size
        of_segment.batches += len(entries)
        of_segment.next_offset = max(of_segment.next_offset or 0, int(entries.last_offset.max()) + 1)
        largest = int(entries.size.argmax())
        if entries.size[largest] > facts.largest_batch_bytes:
            facts.largest_batch_bytes, facts.largest_batch_offset = int(entries.size[largest]), int(entries.first_offset[largest])
        attributes = np.where(entries.magic == 2, headers["attributes"], 0)
        is_control = attributes & CONTROL != 0
        is_empty = (headers["count"] == 0) & (entries.magic == 2)
        facts.control_batches += int(np.count_nonzero(is_control))
        facts.control_bytes += int(entries.size[is_control].sum())
        is_empty_data = is_empty & ~is_control
        facts.empty_data_batches += int(np.count_nonzero(is_empty_data))
        facts.empty_data_bytes += int(entries.size[is_empty_data].sum())
        is_transactional = attributes & TRANSACTIONAL != 0
        facts.transactional_batches_with_records += int(np.count_nonzero(is_transactional & ~is_control & ~is_empty))
        has_horizon = attributes & DELETE_HORIZON != 0
        if has_horizon.any():
            facts.data_horizons_ms += headers["base_timestamp"][has_horizon & ~is_control & ~is_empty].tolist()
            facts.marker_horizons_ms += headers["base_timestamp"][has_horizon & is_control].tolist()
        data = np.flatnonzero((entries.magic == 2) & ~is_control & (headers["producer_id"] != NO_PRODUCER_ID))
        if len(data):
            none = np.full(len(data), NONE)
            columns = dict.fromkeys(("marker_offset", "marker_timestamp_ms", "marker_epoch", "marker_type"), none)
            columns |= {
                "producer_id": headers["producer_id"][data].astype(np.int64),
                "highest_epoch": headers["producer_epoch"][data].astype(np.int64),
                "last_data_offset": entries.last_offset[data],
                "markers": np.zeros(len(data), np.int64),
            }
            self._producers.add(of_segment.base_offset, columns)

    def _add_records(self, chunk: Chunk, of_segment: SegmentFacts, batch: Ints, bytes_before: int) -> None:
        records, entries = chunk.records, chunk.entries
        is_control = records.control_type != NOT_A_CONTROL_RECORD
        code, distinct = records.distinct_keys()
        size = _record_sizes(chunk, batch)
        rows = _Rows(
            code,
            records.record_offset,
            records.timestamp_ms,
            records.producer_id,
            records.producer_epoch.astype(np.int64),
            records.is_transactional,
            records.value.is_null,
            size,
            _committed_offsets(records.value),
            batch + (self._batches.batches - len(entries)),
            entries.size[batch],
            bytes_before + np.cumsum(entries.size)[batch],
        )
        markers = np.flatnonzero(is_control & ((records.control_type == MarkerType.ABORT) | (records.control_type == MarkerType.COMMIT)))
        data = np.flatnonzero(~is_control) if is_control.any() else None
        if data is not None:
            rows = rows.take(data)
        self._batches.record_bytes += int(rows.size.sum())
        keys = decode_key_columns(Slices.from_arrow(distinct))
        self._add_groups(chunk, keys, rows, records.value if data is None else records.value.take(data))
        if self._open is not None:
            waiting = len(self._open_keys)
            codes, distinct = Slices.from_arrow(pa.concat_arrays([self._open_keys, distinct])).distinct()
            earlier = _Rows(codes[self._open.code], *(getattr(self._open, name) for name in _Rows.__slots__[1:]))
            later_code = np.append(codes[waiting:], NONE)[rows.code]
            rows = _Rows(later_code, *(getattr(rows, name) for name in _Rows.__slots__[1:])).after(earlier)
            keys = decode_key_columns(Slices.from_arrow(distinct))
            self._open = None
        group_of_key, is_offset_key = self._groups_of_keys(keys)
        decided = None
        if rows.is_transactional.any() or len(markers):
            fate = self._fates(rows, records.record_offset[markers], records.producer_id[markers], records.control_type[markers])
            is_aborted = fate == _ABORTED
            self._count(rows, is_aborted, _ABORTED, group_of_key, is_offset_key)
            if not self._is_active(of_segment):
                self._closed_bytes += int(rows.size[is_aborted].sum())
            if len(open_rows := np.flatnonzero(fate == _OPEN)):
                self._open = rows.take(open_rows)
                codes = self._open.code
                used = np.unique(codes[codes >= 0])
                self._open_keys = distinct.take(pa.array(used))
                place = np.full(len(distinct) + 1, NONE)
                place[used] = np.arange(len(used))
                self._open = _Rows(place[codes], *(getattr(self._open, name) for name in _Rows.__slots__[1:]))
            decided = np.flatnonzero(fate == _VALUES)
        if len(markers):
            self._add_markers(chunk, markers, of_segment)
        rows = rows if decided is None else rows.take(decided)
        self._add_decided(rows, distinct, group_of_key, is_offset_key, of_segment, is_active=self._is_active(of_segment))

    def _add_markers(self, chunk: Chunk, markers: Ints, of_segment: SegmentFacts) -> None:
        records = chunk.records
        is_active = self._is_active(of_segment)
        first_of_producer = np.unique(records.producer_id[markers], return_index=True)[1]
        for row in markers[first_of_producer].tolist():
            self._first_markers.setdefault(int(records.producer_id[row]), (int(records.control_type[row]), is_active))
        epochs = records.producer_epoch[markers].astype(np.int64)
        none = np.full(len(markers), NONE)
        self._producers.add(
            of_segment.base_offset,
            {
                "producer_id": records.producer_id[markers],
                "marker_offset": records.record_offset[markers],
                "marker_timestamp_ms": records.timestamp_ms[markers],
                "marker_epoch": epochs,
                "marker_type": records.control_type[markers].astype(np.int64),
                "highest_epoch": none,
                "markers": np.ones(len(markers), np.int64),
                "last_data_offset": none,
            },
        )

    def _fates(self, rows: _Rows, marker_offset: Ints, marker_producer: Ints, marker_type: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """For each row _VALUES (not in a transaction, or committed), _ABORTED or _OPEN: by the next marker of its producer."""
        fate = np.full(len(rows), _VALUES, np.int8)
        staged = np.flatnonzero(rows.is_transactional)
        if not len(staged):
            return fate
        offset = np.concatenate((rows.record_offset[staged], marker_offset))
        producer = np.concatenate((rows.producer_id[staged], marker_producer))
        outcome = np.concatenate((np.full(len(staged), NONE, np.int8), marker_type))
        order = np.lexsort((offset, producer))
        marker_place = np.where(outcome[order] >= 0, np.arange(len(order)), len(order))
        following = np.minimum.accumulate(marker_place[::-1])[::-1]
        ended = following < len(order)
        at = np.where(ended, following, 0)
        ended &= producer[order][at] == producer[order]
        of_next = np.where(ended, np.where(outcome[order][at] == MarkerType.ABORT, _ABORTED, _VALUES), _OPEN)
        result = np.empty(len(order), np.int8)
        result[order] = of_next
        fate[staged] = result[: len(staged)]
        return fate

    def _groups_of_keys(self, keys: KeyColumns) -> tuple[Ints, Mask]:
        """The group number and whether the key is of an offset, by distinct key; the last row is for records without a key."""
        encoded = keys.group_id.dictionary_encode()
        numbers = self._groups.numbers(encoded.dictionary.to_pylist())
        code = encoded.indices.fill_null(NONE).to_numpy(zero_copy_only=False).astype(np.int64)
        is_offset = (keys.key_type >= 0) & (keys.key_type < KeyType.GROUP_METADATA)
        return np.append(np.append(numbers, NONE)[code], NONE), np.append(is_offset, False)

    def _count(self, rows: _Rows, which: Mask | slice, kind: int, group_of_key: Ints, is_offset_key: Mask) -> None:
        code, size = rows.code[which], rows.size[which]
        cell = group_of_key[code] * 2 + ~is_offset_key[code]
        known = cell >= 0
        if not known.all():
            cell, size = cell[known], size[known]
        cells = 2 * len(self._groups.sums)
        counts = self._groups.counts.reshape(cells, 4, 2)
        counts[:, kind, 0] += np.bincount(cell, minlength=cells)
        counts[:, kind, 1] += np.bincount(cell, size, cells).astype(np.int64)

    def _add_groups(self, chunk: Chunk, keys: KeyColumns, rows: _Rows, values: Slices) -> None:
        """Counts by group that do not depend on the fate of a record."""
        group_of_key, is_offset_key = self._groups_of_keys(keys)
        groups, sums = self._groups, self._groups.sums
        group, is_offset = group_of_key[rows.code], is_offset_key[rows.code]
        is_commit = is_offset & ~rows.is_tombstone & (group >= 0)
        sums[:, 2] += np.bincount(group[is_commit], minlength=len(sums))
        if rows.is_transactional.any():
            sums[:, 4] += np.bincount(group[rows.is_transactional & (group >= 0)], minlength=len(sums))
        known = np.flatnonzero(group >= 0)
        if not len(known):
            return
        timestamps = rows.timestamp_ms[known]
        np.minimum.at(groups.span[:, 0], group[known], timestamps)
        np.maximum.at(groups.span[:, 1], group[known], timestamps)
        begins = np.flatnonzero(np.concatenate(([True], rows.batch[1:] != rows.batch[:-1])))
        lengths = np.diff(np.append(begins, len(rows)))
        of_batch = group[begins]
        begins, lengths, of_batch = begins[of_batch >= 0], lengths[of_batch >= 0], of_batch[of_batch >= 0]
        sums[:, 0] += np.bincount(of_batch, rows.batch_bytes[begins], len(sums)).astype(np.int64)
        sums[:, 1] += np.bincount(of_batch, minlength=len(sums))
        np.maximum.at(groups.most_records, of_batch, lengths)
        long_values = np.flatnonzero(is_commit & (values.lengths() > LARGE_VALUE))
        if len(long_values):
            self._measure_metadata(chunk, keys, rows, values, long_values, group)

    def _measure_metadata(self, chunk: Chunk, keys: KeyColumns, rows: _Rows, values: Slices, long_values: Ints, group: Ints) -> None:
        """Sets the length of the longest metadata of groups with long values: the longest value of each group and chunk is decoded."""
        lengths = values.lengths()[long_values]
        order = np.lexsort((lengths, group[long_values]))
        ordered = long_values[order]
        is_last = np.concatenate((group[ordered][1:] != group[ordered][:-1], [True]))
        for row in ordered[is_last].tolist():
            try:
                decoded = decode_value(int(keys.key_type[rows.code[row]]), values.row(row))
            except DecodeError:
                continue
            if decoded is not None and (metadata := decoded.fields.get("metadata")):
                number = int(group[row])
                self._groups.large[number] = max(self._groups.large.get(number, 0), len(metadata.encode()))

    def _add_decided(
        self,
        rows: _Rows,
        distinct: pa.BinaryArray,
        group_of_key: Ints,
        is_offset_key: Mask,
        of_segment: SegmentFacts | None,
        *,
        is_active: bool,
    ) -> None:
        """Add records of no transaction and of committed ones: counts by group, bytes by segment, and the last record of each key.

        of_segment: where nearly all of the rows are, or None. is_active: the rows were decided in the active segment.
        """
        if rows.is_tombstone.any():
            self._count(rows, ~rows.is_tombstone, _VALUES, group_of_key, is_offset_key)
            self._count(rows, rows.is_tombstone, _TOMBSTONES, group_of_key, is_offset_key)
        else:
            self._count(rows, slice(None), _VALUES, group_of_key, is_offset_key)
        if not len(rows):
            return
        if not is_active:
            self._closed_bytes += int(rows.size.sum())
        if not (rows.record_offset[1:] > rows.record_offset[:-1]).all():
            rows = rows.take(np.argsort(rows.record_offset, kind="stable"))
        if of_segment is not None and int(rows.record_offset[0]) >= of_segment.base_offset:
            of_segment.value_bytes += int(rows.size.sum())
        else:
            place = np.maximum(np.searchsorted(self._bases, rows.record_offset, "right") - 1, 0)
            for number, size in enumerate(np.bincount(place, rows.size, len(self._segments)).tolist()):
                self._segments[number].value_bytes += int(size)
        if (rows.code < 0).any():
            rows = rows.take(rows.code >= 0)
        last = np.full(len(distinct), NONE)
        last[rows.code] = np.arange(len(rows))
        used = np.flatnonzero(last >= 0)
        if not len(used):
            return
        last = last[used]
        first_committed, last_committed = np.full(len(distinct), NO_COMMIT), np.full(len(distinct), NO_COMMIT)
        commits = np.flatnonzero(is_offset_key[rows.code] & (rows.committed != NO_COMMIT))
        if len(commits):
            commits = commits[np.argsort(rows.code[commits], kind="stable")]
            code, committed = rows.code[commits], rows.committed[commits]
            same_key = code[1:] == code[:-1]
            self._count_repeats(group_of_key[code[1:][same_key & (committed[1:] == committed[:-1])]])
            borders = np.concatenate(([True], ~same_key, [True]))
            first_committed[code[borders[:-1]]] = committed[borders[:-1]]
            last_committed[code[borders[1:]]] = committed[borders[1:]]
        keys = distinct if len(used) == len(distinct) else distinct.take(pa.array(used))
        (self._active_keys if is_active else self._keys).add(
            KeyRows(
                keys,
                group_of_key[used],
                is_offset_key[used],
                rows.record_offset[last],
                rows.size[last],
                rows.is_tombstone[last],
                first_committed[used],
                last_committed[used],
            )
        )

    def _count_repeats(self, groups: Ints) -> None:
        sums = self._groups.sums
        sums[:, 3] += np.bincount(groups[groups >= 0], minlength=len(sums))

    def _is_active(self, segment: SegmentFacts) -> bool:
        """True where the segment is the last one, which the cleaner never takes."""
        return segment is self._segments[-1]

    def facts(self) -> PartitionFacts:
        """The facts, after the last chunk."""
        closed_keys = self._keys.merged()
        closed_removable_bytes = self._closed_bytes - (0 if closed_keys is None else int(closed_keys.last_bytes.sum()))
        log, log_dir = self._log, self._files.log_dir
        number = log.offsets_partition
        all_keys = KeyTable(self._count_repeats)
        if self._open is not None:
            open_keys = self._groups_of_keys(decode_key_columns(Slices.from_arrow(self._open_keys)))
            self._count(self._open, slice(None), _OPEN, *open_keys)
        for rows in (closed_keys, self._active_keys.merged()):
            if rows is not None:
                all_keys.add(rows)
        keys = all_keys.merged()
        by_segment = self._producers.by_segment()
        producers = self._producers.facts()
        log_end = max(log.end_offset, self._next_offset)
        transactions = self._open_transactions(by_segment)
        bases = [segment.base_offset for segment in self._segments]
        newest = max((segment.newest_timestamp_ms for segment in self._segments), default=NONE)
        start = log.log_start_offset or 0
        reached = self._next_offset if self._first_offset >= 0 else start
        holes = self._holes + int(self._first_offset > start) + int(log_end > reached)
        hole_end = self._gap_end if self._gap_end >= 0 or self._first_offset <= start else self._first_offset
        missing = max(log_end - start - self._records, 0)
        checked = checked_files(self._files, number, log.directory, bases, log_end, by_segment, newest, transactions, hole_end=hole_end)
        transactions = checked.transactions
        last_stable = min([log_end, *(transaction.first_offset for transaction in transactions)])
        checkpoint = checked.checkpoint
        if keys is not None:
            place = np.maximum(np.searchsorted(self._bases, keys.last_offset, "right") - 1, 0)
            for segment, size in zip(self._segments, np.bincount(place, keys.last_bytes, len(self._segments)).tolist(), strict=True):
                segment.last_value_bytes = int(size)
        groups = self._group_facts(keys)
        return PartitionFacts(
            number, log.directory, tuple(self._segments), start, log_end, last_stable, self._records, missing,
            holes, hole_end, newest, self._batches, groups, sums_of_groups(list(groups.values())), producers, transactions,
            closed_removable_bytes, 0 if keys is None else len(keys),
            0 if keys is None else int(np.count_nonzero(keys.last_offset >= (checkpoint or 0))), checkpoint, log_dir.has_cleaner_checkpoint,
            checked.high_watermark, self._files.partition.damaged_indexes, (*self._unread(), *checked.damages),
        )  # fmt: skip

    def _unread(self) -> list[str]:
        """A sentence about the places of the log that cannot be read; their records are in no figure."""
        if not self._lost:
            return []
        number = "A place" if self._lost == 1 else f"{self._lost} places"
        cannot = "cannot be read, and its records are" if self._lost == 1 else "cannot be read, and their records are"
        return [f"{number} of partition {self._log.offsets_partition} {cannot} in no figure. The first is in {self._first_lost}"]

    def _open_transactions(self, by_segment: dict[str, Ints]) -> tuple[OpenTransaction, ...]:
        """The transactions without a marker, by their first offset."""
        rows = self._open
        if rows is None:
            return ()
        keys = [_offset_of_key(key) for key in self._open_keys.to_pylist()]
        transactions = []
        for producer_id in np.unique(rows.producer_id).tolist():
            of_producer = rows.take(rows.producer_id == producer_id)
            first = int(of_producer.record_offset.argmin())
            pending = dict.fromkeys(keys[code] for code in of_producer.code.tolist() if code >= 0)
            _, one_of_batch = np.unique(of_producer.batch, return_index=True)
            of_markers = by_segment["producer_id"] == producer_id
            begins = int(of_producer.record_offset[first])
            transactions.append(
                OpenTransaction(
                    producer_id,
                    int(of_producer.producer_epoch[first]),
                    begins,
                    int(of_producer.record_offset.max()),
                    int(of_producer.timestamp_ms.min()),
                    int(of_producer.timestamp_ms.max()),
                    len(of_producer),
                    len(one_of_batch),
                    int(of_producer.batch_bytes[one_of_batch].sum()),
                    int(by_segment["marker_epoch"][of_markers].max(initial=NO_PRODUCER_EPOCH)),
                    self._batches.batches - 1 - int(of_producer.batch[first]),
                    self._bytes - int(of_producer.bytes_through[first]),
                    tuple(offset for offset in pending if offset is not None),
                    is_cleaned_behind=not self._lost and self._gap_end > self._next_base(begins),
                )
            )
        return tuple(sorted(transactions, key=lambda transaction: transaction.first_offset))

    def _next_base(self, record_offset: int) -> int:
        """The base offset of the segment after that of the record; beyond every offset where there is none."""
        place = int(np.searchsorted(self._bases, record_offset, "right"))
        return int(self._bases[place]) if place < len(self._bases) else 2**63 - 1

    def _group_facts(self, keys: KeyRows | None) -> dict[str, GroupFacts]:
        names, groups = self._groups.names(), self._groups
        last = np.zeros((len(groups.sums), 2, 2, 2), np.int64)
        offset_keys = np.zeros(len(groups.sums), np.int64)
        if keys is not None:
            known = np.flatnonzero(keys.group >= 0)
            cell = (keys.group[known] * 2 + ~keys.is_offset[known]) * 2 + keys.last_is_tombstone[known]
            flat = last.reshape(-1, 2)
            flat[:, 0] = np.bincount(cell, minlength=len(flat))
            flat[:, 1] = np.bincount(cell, keys.last_bytes[known], len(flat)).astype(np.int64)
            offset_keys = np.bincount(keys.group[known][keys.is_offset[known]], minlength=len(groups.sums))
        facts = {}
        for number, name in enumerate(names):
            fates: list[dict[str, list[int]]] = [{}, {}]
            for of_kind in (0, 1):
                counts, lasts = groups.counts[number, of_kind], last[number, of_kind]
                by_fate = {
                    LIVE: lasts[0],
                    SUPERSEDED: counts[_VALUES] - lasts[0],
                    TOMBSTONE: lasts[1],
                    SUPERSEDED_TOMBSTONE: counts[_TOMBSTONES] - lasts[1],
                    ABORTED: counts[_ABORTED],
                    OPEN: counts[_OPEN],
                }
                fates[of_kind] = {fate: pair.tolist() for fate, pair in by_fate.items() if pair[0]}
            batch_bytes, batches, commits, repeated, transactional = groups.sums[number].tolist()
            oldest, newest = groups.span[number].tolist()
            facts[name] = GroupFacts(
                name, fates[0], fates[1], batch_bytes, batches, int(groups.most_records[number]), commits, repeated,
                int(offset_keys[number]), transactional, groups.large.get(number, 0), oldest, newest,
            )  # fmt: skip
        return facts


def _offset_of_key(key: bytes) -> tuple[str, str, int] | None:
    try:
        fields = decode_key(key).fields
    except DecodeError:
        return None
    return (fields["group_id"], fields["topic"], fields["partition"]) if "topic" in fields else None


def _committed_offsets(values: Slices) -> Ints:
    """The committed offset in each value of a commit; NO_COMMIT for values that are too short. Other values give any number."""
    is_long = values.lengths() >= _COMMITTED_BYTES
    numbers = np.ndarray((max(len(values.data) - 7, 0),), ">i8", values.data.data, 0, (1,))
    if is_long.all():
        return numbers[values.start + _COMMITTED_AT].astype(np.int64)
    committed = np.full(len(values), NO_COMMIT)
    committed[is_long] = numbers[values.start[is_long] + _COMMITTED_AT]
    return committed


_LEGACY_OVERHEAD = (26, 34)
"""Bytes of a message of magic 0 and 1 beside its key and value, with offset and length."""


def _record_sizes(chunk: Chunk, batch: Ints) -> Ints:
    """Bytes of each record as Kafka counts them: uncompressed, with its length field, and without headers, which the topic never has."""
    records, entries = chunk.records, chunk.entries
    key_length, value_length = records.key.lengths(), records.value.lengths()
    if (entries.magic == 2).all():
        return _modern_sizes(chunk, batch, key_length, value_length)
    is_modern = entries.magic[batch] == 2
    overhead = np.array(_LEGACY_OVERHEAD)[np.minimum(entries.magic, 1)][batch]
    sizes = overhead + key_length + value_length
    return np.where(is_modern, _modern_sizes(chunk, batch, key_length, value_length), sizes) if is_modern.any() else sizes


def _modern_sizes(chunk: Chunk, batch: Ints, key_length: Ints, value_length: Ints) -> Ints:
    records, headers = chunk.records, chunk.headers
    timestamp_delta = records.timestamp_ms - headers["base_timestamp"].astype(np.int64)[batch]
    offset_delta = records.record_offset - chunk.entries.first_offset[batch]
    body = 2 + _varint_size(timestamp_delta) + _varint_size(offset_delta) + key_length + value_length
    body += _varint_size(np.where(records.key.is_null, -1, key_length)) + _varint_size(np.where(records.value.is_null, -1, value_length))
    return body + _varint_size(body)


def _varint_size(numbers: Ints) -> Ints:
    """Bytes of each number as a zigzag varint."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    size = np.ones(len(numbers), np.int64)
    most, bits = int(zigzag.max(initial=0)), 7
    while most >> bits:
        size += zigzag >= np.uint64(1 << bits)
        bits += 7
    return size
