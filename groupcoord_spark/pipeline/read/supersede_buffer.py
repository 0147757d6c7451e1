"""Kept records of consecutive chunks, held back while they are small, so that later records supersede earlier ones across chunks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from groupcoord_spark.pipeline.read import superseded
from groupcoord_spark.pipeline.read.superseded import ChunkKinds, Names

HELD_BYTES = 16 << 20
"""Of consecutive chunks' kept records so much is held back, for later chunks to drop from."""


ROWS_TO_REDUCE_AGAIN = 100_000


class SupersedeBuffer:
    """Kept records of consecutive chunks, held back as long as they are small: later ones supersede some of the earlier."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        # What these records are: of those that were reduced together first, then of each chunk after them.
        self._chunks: list[tuple[ChunkKinds, Names]] = []
        self._reduced_rows = 0

    def add(self, batch: pa.RecordBatch, kinds: ChunkKinds, names: Names) -> list[pa.RecordBatch]:
        """Take the next records, and what they are; if all together they are too large to be held any longer, they come back."""
        self._batches.append(batch)
        self._chunks.append((kinds, names))
        # Looking at all of them again pays once there are twice as many.
        if sum(len(kinds) for kinds, _ in self._chunks) <= max(2 * self._reduced_rows, ROWS_TO_REDUCE_AGAIN):
            return []
        self._reduce()
        return self._take() if sum(batch.nbytes for batch in self._batches) >= HELD_BYTES else []

    def rest(self) -> list[pa.RecordBatch]:
        """All that is held, reduced once more."""
        if len(self._chunks) > 1:
            self._reduce()
        return self._take()

    def _take(self) -> list[pa.RecordBatch]:
        taken = [batch for batch in self._batches if batch.num_rows]
        self._batches, self._chunks, self._reduced_rows = [], [], 0
        return taken

    def _reduce(self) -> None:
        kinds, names = superseded.joined(self._chunks)
        keep = superseded.kept(kinds)
        ends = np.cumsum([batch.num_rows for batch in self._batches])
        # each in its place, so that there is never more than one of them twice
        for place, of_batch in enumerate(np.split(keep, ends[:-1])):
            self._batches[place] = self._batches[place].filter(pa.array(of_batch))
        self._chunks = [(kinds.take(keep), names)]
        self._reduced_rows = int(np.count_nonzero(keep))
