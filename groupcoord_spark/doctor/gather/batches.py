"""What the batches of a chunk add to the facts of a segment and of the whole log, and the offsets that no record has."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from groupcoord_spark.doctor.facts import BatchFacts, SegmentFacts
from groupcoord_spark.doctor.gather.group_table import NONE
from groupcoord_spark.doctor.gather.producer_table import ProducerTable
from groupcoord_spark.log import Chunk
from groupcoord_spark.log.decode.batches import CONTROL, TRANSACTIONAL
from groupcoord_spark.protocol.record_types import NO_PRODUCER_ID
from groupcoord_spark.protocol.slices import Ints

DELETE_HORIZON: Final = 0x40


def add_batches(chunk: Chunk, facts: BatchFacts, of_segment: SegmentFacts, producers: ProducerTable) -> None:
    """Add the batches of a chunk of the segment."""
    entries, headers = chunk.entries, chunk.headers
    if not len(entries):
        return
    facts.batches += len(entries)
    facts.bytes += int(entries.size.sum())
    of_segment.batches += len(entries)
    of_segment.next_offset = max(of_segment.next_offset or 0, int(entries.last_offset.max()) + 1)
    largest = int(entries.size.argmax())
    if entries.size[largest] > facts.largest_batch_bytes:
        facts.largest_batch_bytes, facts.largest_batch_offset = int(entries.size[largest]), int(entries.first_offset[largest])
    is_modern = entries.magic == 2
    attributes = np.where(is_modern, headers["attributes"], 0)
    is_control = attributes & CONTROL != 0
    is_empty = (headers["count"] == 0) & is_modern
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
    data = np.flatnonzero(is_modern & ~is_control & (headers["producer_id"] != NO_PRODUCER_ID))
    if len(data):
        producers.add_data(of_segment.base_offset, headers[data], entries.last_offset[data])


def add_timestamps(chunk: Chunk, of_segment: SegmentFacts) -> None:
    """Add the number, the first offset and the timestamps of the records of a chunk of the segment; there is at least one."""
    of_segment.records += len(chunk.records)
    if of_segment.first_offset is None:
        of_segment.first_offset = int(chunk.records.record_offset[0])
    timestamps = chunk.records.timestamp_ms
    oldest, newest = int(timestamps.min()), int(timestamps.max())
    if oldest < 0 <= newest:
        oldest = int(timestamps[timestamps >= 0].min())
    if oldest >= 0 and not 0 <= of_segment.oldest_timestamp_ms <= oldest:
        of_segment.oldest_timestamp_ms = oldest
    of_segment.newest_timestamp_ms = max(of_segment.newest_timestamp_ms, newest)


@dataclass(slots=True)
class Holes:
    """Runs of offsets without a record, between the first offset of the log and the next one after its last batch; -1 for none.

    gap_end: where the last run ends.
    """

    holes: int = 0
    first_offset: int = NONE
    next_offset: int = NONE
    gap_end: int = NONE

    def add(self, chunk: Chunk, missing: Ints) -> None:
        """Add the runs between the batches of a chunk, and inside of them. missing: runs in each batch; -1: it has no record."""
        entries = chunk.entries
        if not len(entries):
            return
        if self.first_offset < 0:
            self.first_offset = self.next_offset = int(entries.first_offset[0])
        is_gap = entries.first_offset > np.concatenate(([self.next_offset], entries.last_offset[:-1] + 1))
        inside = np.abs(missing)  # a batch without records is one run
        self.holes += int(np.count_nonzero(is_gap)) + int(inside.sum())
        if is_gap.any():
            self.gap_end = int(entries.first_offset[is_gap][-1])
        if inside.any():
            self.gap_end = max(self.gap_end, int(entries.last_offset[inside > 0][-1]))
        self.next_offset = max(self.next_offset, int(entries.last_offset.max()) + 1)

    def absorb(self, later: "Holes") -> None:
        """Add the runs of the part of the log that follows."""
        if later.first_offset >= 0:
            if self.first_offset < 0:
                self.first_offset = self.next_offset = later.first_offset
            if later.first_offset > self.next_offset:
                self.holes += 1
                self.gap_end = later.first_offset
            self.next_offset = max(self.next_offset, later.next_offset)
        self.gap_end = max(self.gap_end, later.gap_end)
        self.holes += later.holes
