"""A file's chunks up to an earlier moment, cut where the history tables begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np

from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.pipeline.extents import PointInTime


def stretches(chunks: Iterable[Chunk], past: PointInTime) -> Iterator[tuple[bool, Iterator[Chunk]]]:
    """A file's chunks up to the moment, cut where the history begins and ends: (whether the history has them too, the chunks)."""
    for place, parts in groupby(_parts(chunks, past), key=lambda each: each[0]):
        yield place == _IN_HISTORY, (chunk for _, chunk in parts)


_BEFORE_HISTORY, _IN_HISTORY, _AFTER_HISTORY = range(3)


def _parts(chunks: Iterable[Chunk], past: PointInTime) -> Iterator[tuple[int, Chunk]]:
    place = _BEFORE_HISTORY
    held, end = past.from_history, past.end_offset
    for chunk in chunks:
        lost = [each for each in chunk.lost if each.record_offset is None or each.record_offset < end]
        doubts = [each for each in chunk.doubts if each.record_offset is None or each.record_offset < end]
        borders = np.searchsorted(chunk.records.record_offset, [held.first_offset, held.end_offset, end]).tolist()
        size = chunk.bytes
        for here, first, last in zip((_BEFORE_HISTORY, _IN_HISTORY, _AFTER_HISTORY), (0, *borders), borders, strict=False):
            if last > first:
                place = here
                yield place, chunk.part(np.arange(first, last), lost, doubts, size)
                lost, doubts, size = [], [], 0
        if lost or doubts:
            yield place, Chunk(Records.none(), lost, doubts, size)
        if borders[-1] < len(chunk.records):
            return
