"""The part of a log that an earlier run has not read: its files, the position where it begins, and whether a record of it is missing.

The log cleaner removes a record once a later record has the same key, and a tombstone after a while. If no record from that offset on is
missing, the earlier run and this one together have read every record. A missing record may have been the tombstone of a record that the
earlier run has read, so the whole log must be read.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.damage import CODES, DamageKind
from groupcoord_spark.log.directory import PartitionLog
from groupcoord_spark.log.segment import CHUNK_BYTES, Segment
from groupcoord_spark.storage.location import Location
from groupcoord_spark.storage.object_store import is_object_store

_FIRST_BATCH_BYTES = 1 << 16
_HEADER_BYTES = 17
"""Base offset, length, leader epoch or checksum, and magic: the length of a batch is never zero."""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Files of a log that an earlier run read and that are now gone, have another size or begin with zeros.

    ranges: (first, end) of the record offsets that each had. segments: the files that have the records of these offsets now, if any.
    log: all files.
    """

    ranges: tuple[tuple[int, int], ...]
    segments: tuple[Segment, ...]
    log: tuple[Segment, ...]


def changed_files(log: PartitionLog, files: Mapping[int, int], end_offset: int, end_position: int | None) -> ChangedFiles | None:
    """Return the files that changed since an earlier run that read the log up to ``end_offset``. None if no file has, or the run stored no
    sizes.

    The cleaner rewrites a file under its name, and merges files under the name of the first one; a damaged file or an incomplete copy looks
    the same in a listing. Only the last file may have grown. An interrupted copy may leave a file of zeros with the right size.

    Args:
        files: base offset -> bytes of the files of the earlier run. end_position: the end of the last one in that run.
    """
    if not log.files:
        return None
    zeros = {segment.base_offset for segment in log.segments if segment.base_offset < end_offset and _begins_with_zeros(segment)}
    borders = [*sorted(base for base in files if base < end_offset), end_offset]
    ranges = tuple(
        (base, end)
        for base, end in pairwise(borders)
        if base not in log.files
        or base in zeros
        or (log.files[base] != files[base] if end < end_offset else log.files[base] < min(files[base], end_position or files[base]))
    )
    segments = tuple(
        segment
        for segment in log.segments
        if any(segment.base_offset < end and (segment.next_base_offset or end) > first for first, end in ranges)
    )
    return ChangedFiles(ranges, segments, log.segments) if ranges else None


def _begins_with_zeros(segment: Segment) -> bool:
    """Return whether no batch can start at the beginning of the file. Objects of a store are complete and reading each would cost a
    request, so they are not read."""
    if is_object_store(Location.of(segment.uri).filesystem):
        return False
    with suppress(InputError), segment.open() as file:  # the reader of the file reports the error
        return segment.size > 0 and not file.read(0, min(segment.size, _HEADER_BYTES)).any()
    return False


def segments_from(log: PartitionLog, offset: int, end_file: int | None, end_position: int | None) -> tuple[Segment, ...]:
    """Return the part of the log from ``offset`` on. Files that end below it are not opened.

    Args:
        offset: where the earlier run ended; records below it are left out.
        end_file, end_position: the end of the log in the earlier run (of its PartitionLog). Reading begins at that position if the next
            batch begins there with ``offset``; else at the beginning of the file.
    """
    segments = []
    for segment in log.segments:
        if segment.next_base_offset is not None and segment.next_base_offset <= offset:
            continue
        segment = replace(segment, log_start_offset=max(segment.log_start_offset, offset))
        if segment.base_offset < offset and segment.base_offset == end_file and end_position is not None:
            # A cleaned file may have new records and by chance the size that it had.
            if segment.size == end_position and log.end_offset <= offset:
                continue
            if _batch_begins_at(segment, end_position, offset):
                segment = replace(segment, start=end_position, base_offset=offset)
        segments.append(segment)
    return tuple(segments)


def _batch_begins_at(segment: Segment, position: int, offset: int) -> bool:
    """Return whether a valid entry with this base offset starts at this position."""
    if segment.size < position:
        return False
    with segment.finder(_FIRST_BATCH_BYTES) as finder:
        section = next(finder.sections(position), None)
        if section is None or section.damaged or section.repair:
            return False
        return int(section.entries.position[0]) == position and int(section.entries.first_offset[0]) == offset


def has_every_offset(segments: tuple[Segment, ...], offset: int, end_offset: int) -> bool:
    """Return whether the segments have a record for each offset from ``offset`` up to, but not including, ``end_offset``.

    Looks at the headers of batches and their checksums, not at records. False too where damage leaves a doubt, and for compressed messages
    of format 0 and 1, whose headers do not say how many messages are inside.
    """
    reached = offset
    for segment in segments:
        with segment.finder(CHUNK_BYTES) as finder:
            for section in finder.sections(segment.start):
                if section.damaged:
                    if finder.is_last and CODES[section.damaged.code].kind is DamageKind.INFO:
                        continue
                    return False
                entries, headers = section.entries, section.headers
                first, last = entries.first_offset, entries.last_offset
                count = np.where(entries.magic == 2, headers["count"], 1)
                is_new = last >= reached
                first, last, count = first[is_new], last[is_new], count[is_new]
                if not len(first):
                    continue
                if section.repair or (count != last - first + 1).any() or (first[1:] != last[:-1] + 1).any() or int(first[0]) > reached:
                    return False
                reached = int(last[-1]) + 1
    return reached == end_offset
