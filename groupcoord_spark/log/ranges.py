"""Large files in ranges of whole batches, so that several workers read one side by side.

Only a file without any doubt about it is cut: its entries are all record batches with the right checksum, one right after another, with
rising offsets. What a reader does with one of them then depends on no other, so that its ranges give what the whole file gives. Damage,
repair and order are questions about a file as a whole, and a file in which they come up is read as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from groupcoord_spark.log.damage import CODES, Kind
from groupcoord_spark.log.limits import Limits
from groupcoord_spark.log.salvage.finding import Finder, ResyncAbandonedError
from groupcoord_spark.log.salvage.order import Borders, is_in_order
from groupcoord_spark.log.segment import DEFAULT_CHUNK_BYTES, Segment
from groupcoord_spark.log.storage import Location, SegmentFile

_SEARCH_WINDOW_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Walked:
    """What the walk of a range has shown: the offsets it covers."""

    first_offset: int
    last_offset: int


def possible_ranges(segment: Segment, range_bytes: int) -> list[Segment]:
    """The file in ranges of about ``range_bytes``; only itself where it is too small, or bound up with its neighbours.

    A range begins where a sound batch seems to: bytes of a record can look like one. So nothing is read by these ranges before ``walk`` has
    been over each, and ``checked_ranges`` over what it says. Their offsets are not known yet.
    """
    if segment.size < 2 * range_bytes or segment.skip_below > segment.base_offset or segment.covers:
        return [segment]
    borders = [0]
    with SegmentFile(Location.of(segment.uri), segment.size) as file:
        finder = Finder(file, segment.base_offset, segment.next_base_offset is None, Limits(), _SEARCH_WINDOW_BYTES)
        for at in range(range_bytes, segment.size - range_bytes + 1, range_bytes):
            try:
                border = finder.next_sound(max(at, borders[-1] + 1))
            except ResyncAbandonedError:
                return [segment]
            if border < segment.size:
                borders.append(border)
    return [replace(segment, start=start, size=end) for start, end in pairwise([*borders, segment.size])]


def walk(part: Segment, *, ends_file: bool) -> Walked | None:
    """Whether the range is beyond doubt: its batches lead from its first byte exactly to its end, their checksums right, their order too.

    None where anything else is met, but for an unfinished write at the end of the newest file, which is no fault of what comes before.
    The records inside of the batches are not looked at. ends_file: the range is the last one of its file.
    """
    first: int | None = None
    reached = part.base_offset
    at = part.start
    with SegmentFile(Location.of(part.uri), part.size) as file:
        if file.size < part.size:
            return None
        is_last = ends_file and part.next_base_offset is None
        finder = Finder(file, part.base_offset, is_last, Limits(), DEFAULT_CHUNK_BYTES)
        for stretch in finder.stretches(part.start):
            entries, headers = stretch.entries, stretch.headers
            if stretch.damaged and is_last and CODES[stretch.damaged.code].kind is Kind.INFO:
                at = stretch.damaged.end
                continue
            if stretch.damaged or stretch.repair or (entries.magic != 2).any():
                return None
            # such a batch does not tell where it ends
            if (headers["last_offset_delta"] < headers["count"] - np.int64(1)).any() or (headers["last_offset_delta"] < 0).any():
                return None
            # the base of the file stays the one that no offset may be too far above
            if int(entries.first_offset[0]) < reached or not is_in_order(
                entries, Borders(part.base_offset, part.next_base_offset, part.size)
            ):
                return None
            first = int(entries.first_offset[0]) if first is None else first
            reached = int(entries.last_offset[-1]) + 1
            at = int(entries.position[-1] + entries.size[-1])
    return Walked(first, reached - 1) if first is not None and at == part.size else None


def checked_ranges(segment: Segment, parts: Sequence[Segment], walked: Sequence[Walked | None]) -> list[Segment]:
    """What is to be read instead of ``segment``: its ``parts``, or itself where the walk of one gave rise to a doubt."""
    sound = [each for each in walked if each is not None]
    if len(sound) < len(parts) or any(before.last_offset >= after.first_offset for before, after in pairwise(sound)):
        return [segment]
    ends = [*(each.first_offset for each in sound[1:]), segment.next_base_offset]
    return [
        replace(part, base_offset=segment.base_offset if part.start == 0 else found.first_offset, next_base_offset=end)
        for part, found, end in zip(parts, sound, ends, strict=True)
    ]
