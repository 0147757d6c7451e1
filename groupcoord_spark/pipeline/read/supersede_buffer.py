"""A buffer of kept records: a record of a later chunk can still supersede a record of an earlier chunk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from groupcoord_spark.pipeline.read import superseded
from groupcoord_spark.pipeline.read.superseded import ChunkKinds, CodeNames

BUFFER_BYTES = 16 << 20
"""Size at which the buffer gives its records back."""
LEAST_ROWS_TO_FILTER = 100_000
"""Below so many rows the buffer is not filtered again: it would save less than it costs."""


class SupersedeBuffer:
    """The kept records of consecutive chunks of one offsets partition, without those that a later chunk supersedes."""

    def __init__(self, *, buffer_bytes: int = BUFFER_BYTES, least_rows_to_filter: int = LEAST_ROWS_TO_FILTER) -> None:
        self._buffer_bytes = buffer_bytes
        self._least_rows_to_filter = least_rows_to_filter
        self._batches: list[pa.RecordBatch] = []
        # First the records that were filtered together, then each chunk after them.
        self._chunks: list[tuple[ChunkKinds, CodeNames]] = []
        self._filtered_rows = 0

    def add(self, batch: pa.RecordBatch, kinds: ChunkKinds, names: CodeNames) -> list[pa.RecordBatch]:
        """The records that leave the buffer, mostly none; all of them once they have the size of the buffer."""
        self._batches.append(batch)
        self._chunks.append((kinds, names))
        # Filtering all records again pays once there are twice as many.
        if sum(len(kinds) for kinds, _ in self._chunks) <= max(2 * self._filtered_rows, self._least_rows_to_filter):
            return []
        self._filter()
        return self._take_all() if sum(batch.nbytes for batch in self._batches) >= self._buffer_bytes else []

    def flush(self) -> list[pa.RecordBatch]:
        """All records of the buffer, filtered once more."""
        if len(self._chunks) > 1:
            self._filter()
        return self._take_all()

    def _take_all(self) -> list[pa.RecordBatch]:
        taken = [batch for batch in self._batches if batch.num_rows]
        self._batches, self._chunks, self._filtered_rows = [], [], 0
        return taken

    def _filter(self) -> None:
        kinds, names = superseded.concatenated(self._chunks)
        is_kept = superseded.needed_for_replay(kinds)
        ends = np.cumsum([batch.num_rows for batch in self._batches])
        # filter in place: at most one batch exists in two copies at a time
        for place, of_batch in enumerate(np.split(is_kept, ends[:-1])):
            self._batches[place] = self._batches[place].filter(pa.array(of_batch))
        self._chunks = [(kinds.take(is_kept), names)]
        self._filtered_rows = int(np.count_nonzero(is_kept))
