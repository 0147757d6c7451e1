"""Divides large files into ranges of whole batches, so that several workers read one file side by side.

Only an undamaged file is divided: all its entries are record batches with a correct checksum, back to back, with increasing offsets. A
batch then does not depend on other batches, so the ranges give the same records as the whole file. Damage, repair and order concern a file
as a whole, so any other file is read as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from groupcoord_spark.log.damage import CODES, DamageKind
from groupcoord_spark.log.salvage.finder import ResyncAbandonedError
from groupcoord_spark.log.salvage.order import Borders, is_in_order
from groupcoord_spark.log.segment import CHUNK_BYTES, Segment

_SEARCH_WINDOW_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RangeOffsets:
    """The first and the last offset of a range without any doubt about it."""

    first_offset: int
    last_offset: int


def possible_ranges(segment: Segment, range_bytes: int) -> list[Segment]:
    """Return the file in ranges of about ``range_bytes``, or the file itself if it is too small or overlaps its neighbours.

    A range begins where a sound batch seems to begin, but the bytes of a record can look like a batch. Nothing may be read by these ranges
    before ``check_range`` has checked each of them and ``ranges_to_read`` all together. The offsets of the ranges are not known yet.
    """
    if segment.bytes < 2 * range_bytes or segment.skip_below > segment.base_offset or segment.covers:
        return [segment]
    borders = [segment.start]
    with segment.finder(_SEARCH_WINDOW_BYTES) as finder:
        for at in range(segment.start + range_bytes, segment.size - range_bytes + 1, range_bytes):
            try:
                border = finder.next_sound(max(at, borders[-1] + 1))
            except ResyncAbandonedError:
                return [segment]
            if border >= segment.size:
                break  # no batch follows, and each further search would read the whole rest again
            borders.append(border)
    return [replace(segment, start=start, size=end) for start, end in pairwise([*borders, segment.size])]


def check_range(part: Segment, *, ends_file: bool) -> RangeOffsets | None:
    """Return the offsets of the range if nothing in it is in doubt, else None.

    The batches must lead from its first byte exactly to its end, with right checksums and rising offsets. An unfinished write at the end of
    the newest file is allowed. The records inside the batches are not looked at. ends_file: the range is the last one of its file.
    """
    first: int | None = None
    reached = part.base_offset
    at = part.start
    with part.finder(CHUNK_BYTES) as finder:
        finder.is_last = is_last = ends_file and part.next_base_offset is None
        for section in finder.sections(part.start):
            entries, headers = section.entries, section.headers
            if section.damaged and is_last and CODES[section.damaged.code].kind is DamageKind.INFO:
                at = section.damaged.end
                continue
            if section.damaged or section.repair or (entries.magic != 2).any():
                return None
            # the last offset of such a batch is impossible
            if (headers["last_offset_delta"] < headers["count"] - np.int64(1)).any() or (headers["last_offset_delta"] < 0).any():
                return None
            # offsets are compared with the base of the whole file
            if int(entries.first_offset[0]) < reached or not is_in_order(
                entries, Borders(part.base_offset, part.next_base_offset, part.size)
            ):
                return None
            first = int(entries.first_offset[0]) if first is None else first
            reached = int(entries.last_offset[-1]) + 1
            at = int(entries.position[-1] + entries.size[-1])
    return RangeOffsets(first, reached - 1) if first is not None and at == part.size else None


def ranges_to_read(segment: Segment, parts: Sequence[Segment], offsets: Sequence[RangeOffsets | None]) -> list[Segment]:
    """Return the ranges to read in place of ``segment``: ``parts``, or the segment alone if one of them is in doubt."""
    known_offsets = [of_range for of_range in offsets if of_range is not None]
    if len(known_offsets) < len(parts) or any(earlier.last_offset >= later.first_offset for earlier, later in pairwise(known_offsets)):
        return [segment]
    ends = [*(of_range.first_offset for of_range in known_offsets[1:]), segment.next_base_offset]
    return [
        replace(part, base_offset=segment.base_offset if part.start == segment.start else of_range.first_offset, next_base_offset=end)
        for part, of_range, end in zip(parts, known_offsets, ends, strict=True)
    ]
