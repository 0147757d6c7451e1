"""A few records and batches that identify a log across copies: the first and the newest record, and records at given offsets.

Each needs one batch. Compaction rewrites files and batches and removes records, but a remaining record keeps its offset, timestamp, key and
value. Control records do not count here: markers of different clusters can be equal, and not every input has them.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from crc32c import crc32c

from groupcoord_spark.log.decode.batches import CONTROL
from groupcoord_spark.log.decode.records import Records
from groupcoord_spark.log.ends import TAIL_BYTES, EpochAt
from groupcoord_spark.log.salvage.finder import FileSection, ResyncAbandonedError
from groupcoord_spark.log.segment import Segment, read_segment
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP, NOT_A_CONTROL_RECORD

_WINDOW_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RecordMark:
    """What identifies a record among the records of other logs. timestamp_ms: NO_TIMESTAMP for none. crc: ``record_crc``."""

    record_offset: int
    timestamp_ms: int
    crc: int

    def is_same(self, other: "RecordMark") -> bool:
        """Return whether both describe the same record. Timestamps are compared only if both records have one."""
        timestamps_fit = NO_TIMESTAMP in (self.timestamp_ms, other.timestamp_ms) or self.timestamp_ms == other.timestamp_ms
        return self.record_offset == other.record_offset and self.crc == other.crc and timestamps_fit


def record_crc(key: bytes | None, value: bytes | None) -> int:
    """CRC-32C of both lengths (4 bytes each, -1 for null), the key and the value."""
    lengths = struct.pack(">ii", -1 if key is None else len(key), -1 if value is None else len(value))
    return int(crc32c(value or b"", crc32c(key or b"", crc32c(lengths))))


def first_record(segments: Sequence[Segment]) -> RecordMark | None:
    """Return the first record of a log, or None if the starts of its files have none. ``segments`` are all files in offset order."""
    for segment in segments:
        for batch in _data_batches(segment, 0, TAIL_BYTES[-1]):
            marks = _marks_of_batch(segment, *batch)
            if marks:
                return marks[0]
    return None


def newest_record(segments: Sequence[Segment]) -> RecordMark | None:
    """Return the record with the highest offset of a log, or None if the ends of its files have none."""
    for segment in reversed(segments):
        for tail_bytes in TAIL_BYTES:
            begin = max(0, segment.size - tail_bytes)
            for batch in reversed(list(_data_batches(segment, begin, tail_bytes))):
                marks = _marks_of_batch(segment, *batch)
                if marks:
                    return marks[-1]
            if begin == 0:
                break
    return None


def record_at(segments: Sequence[Segment], record_offset: int) -> RecordMark | None:
    """Return the record at an offset, or None if it is missing or can only be found by reading the whole file."""
    # Only a copy made during a cleaning has the same offsets in several files.
    files_overlap = any(segment.covers or segment.skip_below for segment in segments)
    for segment in reversed([segment for segment in segments if segment.base_offset <= record_offset]):
        for position, end in _batches_at(segment, record_offset):
            for mark in _marks_of_batch(segment, position, end):
                if mark.record_offset == record_offset:
                    return mark
        if not files_overlap:
            break
    return None


def epoch_below(segments: Sequence[Segment], record_offset: int) -> EpochAt | None:
    """Return the leader epoch of the last batch that begins below an offset; None where no such batch has an epoch."""
    for segment in reversed([segment for segment in segments if segment.base_offset < record_offset]):
        found = None
        for section in _sections_near(segment, record_offset):
            entries = section.entries
            for i in np.flatnonzero((entries.first_offset < record_offset) & (entries.magic == 2))[-1:]:
                found = EpochAt(int(section.headers["leader_epoch"][i]), min(int(entries.last_offset[i]), record_offset - 1))
        if found is not None:
            return found if found.epoch >= 0 else None
    return None


def marks_of(records: Records) -> list[RecordMark]:
    """Return the sample records among ``records``, without control records."""
    rows = np.flatnonzero(records.control_type == NOT_A_CONTROL_RECORD).tolist()
    return [
        RecordMark(
            int(records.record_offset[row]), int(records.timestamp_ms[row]), record_crc(records.key.row(row), records.value.row(row))
        )
        for row in rows
    ]


def _marks_of_batch(segment: Segment, position: int, end: int) -> list[RecordMark]:
    """Return the sample records of one batch in offset order."""
    batch = replace(segment, start=position, size=end, covers=())
    return [mark for chunk in read_segment(batch) for mark in marks_of(chunk.records)]


def _data_batches(segment: Segment, begin: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Position and end of the batches with data records whose position is among ``most_bytes`` bytes from ``begin`` on."""
    with segment.finder(_WINDOW_BYTES) as finder:
        try:
            at = finder.next_sound(begin) if begin else 0
        except ResyncAbandonedError:
            return
        for section in finder.sections(at):
            entries, headers = section.entries, section.headers
            for i in range(len(entries)):
                if int(entries.position[i]) >= begin + most_bytes:
                    return
                if entries.magic[i] < 2 or (headers["count"][i] > 0 and not headers["attributes"][i] & CONTROL):
                    yield int(entries.position[i]), int(entries.position[i] + entries.size[i])
            if section.damaged and section.damaged.position >= begin + most_bytes:
                return


def _batches_at(segment: Segment, record_offset: int) -> Iterator[tuple[int, int]]:
    """Position and end of the batches whose offsets include ``record_offset``."""
    for section in _sections_near(segment, record_offset):
        entries = section.entries
        for i in np.flatnonzero((entries.first_offset <= record_offset) & (record_offset <= entries.last_offset)):
            yield int(entries.position[i]), int(entries.position[i] + entries.size[i])


def _sections_near(segment: Segment, record_offset: int) -> Iterator[FileSection]:
    """Sound sections from a batch at or below ``record_offset`` up to the first one above: by bisection, as batches lie in offset order."""
    with segment.finder(_WINDOW_BYTES) as finder:
        low, high = segment.start, segment.size
        try:
            while high - low > _WINDOW_BYTES:
                middle = (low + high) // 2
                search = replace(finder)  # a finder bounds the effort of all its searches together
                at = search.next_sound(middle)
                section = next(search.sections(at), None) if at < high else None
                if section is not None and len(section.entries) and int(section.entries.first_offset[0]) <= record_offset:
                    low = at
                else:
                    high = middle
        except ResyncAbandonedError:
            return
        for section in finder.sections(low):
            if section.damaged:
                if section.damaged.position >= high:
                    return
                continue
            yield section
            if int(section.entries.first_offset[0]) > record_offset:
                return
