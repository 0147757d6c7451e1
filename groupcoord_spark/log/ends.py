"""The two ends of segment files. The plan derives from them the offsets of a log without reading it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from groupcoord_spark.log.damage import CODES, DamageKind
from groupcoord_spark.log.salvage.finder import ResyncAbandonedError
from groupcoord_spark.log.salvage.order import Borders, is_in_order
from groupcoord_spark.log.segment import CHUNK_BYTES, Reading, Segment
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH

TAIL_BYTES = (1 << 16, 1 << 22)
"""How much of the end of a file is read before the whole file is: enough for usual batches, then enough for the largest ones."""


class EpochAt(NamedTuple):
    """The leader epoch of the batch that has the record offset."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a file: the offset after its last record (None: the file has no entry), and the leader epoch of its last entry.

    position: after the last entry; None where it is not known.
    """

    end_offset: int | None
    leader_epoch: int
    position: int | None = None


def checked_tail(segment: Segment, tail: Tail | None, following: Sequence[Segment]) -> tuple[Segment, Tail]:
    """Return the segment and its end. If the file reaches beyond the base of the next file, the segment lists the files that it covers.

    ``tail`` is the end according to the last bytes of the file, or None if they do not determine it.
    """
    tail = tail or tail_from_last_bytes(segment, TAIL_BYTES[1])
    if tail is None or (segment.next_base_offset is not None and (tail.end_offset or 0) > segment.next_base_offset):
        covers = tuple(replace(later, next_base_offset=None) for later in following if later.size)
        segment = replace(segment, covers=covers)
        tail = _tail_from_whole_file(segment)
        end = tail.end_offset or 0
        segment = replace(segment, covers=tuple(later for later in covers if later.base_offset < end))
    return segment, tail


def tail_from_last_bytes(segment: Segment, tail_bytes: int) -> Tail | None:
    """Return the end of a file from its last ``tail_bytes``, or None if only the whole file determines it."""
    with segment.finder(tail_bytes) as finder:
        at = max(0, segment.size - tail_bytes)
        try:
            at = finder.next_sound(at) if at else 0
        except ResyncAbandonedError:
            return None
        if at == segment.size:
            return None
        tail = Tail(None, NO_LEADER_EPOCH)
        reached = segment.base_offset
        for section in finder.sections(at):
            if section.damaged:
                if CODES[section.damaged.code].kind is DamageKind.INFO and finder.is_last:
                    continue
                return None
            entries = section.entries
            if section.repair or not is_in_order(entries, Borders(reached, None, segment.size)):
                return None
            reached = int(entries.last_offset[-1]) + 1
            epoch = int(section.headers["leader_epoch"][-1]) if entries.magic[-1] == 2 else NO_LEADER_EPOCH
            tail = Tail(reached, epoch, int(entries.position[-1] + entries.size[-1]))
        return tail


def _tail_from_whole_file(segment: Segment) -> Tail:
    """Return the end of a file from all its entries in order."""
    with segment.open() as file:
        reading = Reading(segment, file, CHUNK_BYTES)
        reading.walk()
        return Tail(*reading.end())


def first_entry_offset(segments: Sequence[Segment]) -> int | None:
    """Return the base offset of the first entry of a log, or None for a log without entries."""
    for segment in segments:
        with segment.finder(TAIL_BYTES[0]) as finder:
            for section in finder.sections():
                if len(section.entries):
                    return int(section.entries.first_offset[0])
    return None
