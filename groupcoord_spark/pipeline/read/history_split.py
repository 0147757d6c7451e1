"""Chunks of a log up to a point in time: which of their records the history tables have too."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np

from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.pipeline.extents import PointInTime

_BEFORE_HISTORY, _IN_HISTORY, _AFTER_HISTORY = range(3)


def split_at_history(chunks: Iterable[Chunk], point_in_time: PointInTime) -> Iterator[tuple[bool, Iterator[Chunk]]]:
    """(whether the history tables have these records too, chunks), in the order of the log, up to the point in time."""
    for place, parts in groupby(_parts(chunks, point_in_time), key=lambda part: part[0]):
        yield place == _IN_HISTORY, (chunk for _, chunk in parts)


def _parts(chunks: Iterable[Chunk], point_in_time: PointInTime) -> Iterator[tuple[int, Chunk]]:
    place = _BEFORE_HISTORY
    history_range, end = point_in_time.history_range, point_in_time.end_offset
    for chunk in chunks:
        lost = [loss for loss in chunk.lost if loss.record_offset is None or loss.record_offset < end]
        doubts = [doubt for doubt in chunk.doubts if doubt.record_offset is None or doubt.record_offset < end]
        borders = np.searchsorted(chunk.records.record_offset, [history_range.first_offset, history_range.end_offset, end]).tolist()
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
