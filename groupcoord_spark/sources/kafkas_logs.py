"""Reads the logs beside ``__consumer_offsets`` that Kafka keeps for itself and never compacts: the cluster's metadata and share groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Chunk, PartitionLog, Records, read_segment
from groupcoord_spark.log.directory import plan_other_topic
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.sources.log_directory import LogDirectories

_BEYOND: Final = 2**63 - 1
"""Marks damaged bytes at the end of a file, whose offsets nobody knows."""


class Row(NamedTuple):
    """A record that is no control record."""

    key: bytes | None
    value: bytes | None
    record_offset: int
    timestamp_ms: int


def read_logs(
    directories: LogDirectories, topic: str, is_wanted: Callable[[Records], Mask] | None = None
) -> Iterator[tuple[PartitionLog, Iterator[Row | int]]]:
    """The logs of a topic, each with its rows and gaps in the order of offsets; of several replicas one.

    is_wanted: the mask of the records of a chunk to return; None: all of them. What cannot be read is among the damages of the directories,
    and nothing of it is returned.
    """
    try:
        logs = plan_other_topic(topic, directories.partitions_of(topic))
    except InputError as error:
        directories.damage(topic, str(error))
        return
    for log in logs:
        yield log, rows_and_gaps(_chunks(log, directories), is_wanted)


def _chunks(log: PartitionLog, directories: LogDirectories) -> Iterator[Chunk]:
    for segment in log.segments:
        for chunk in read_segment(segment):
            for lost in chunk.lost:
                directories.damage(lost.source, f"{lost.source} is damaged at byte {lost.position:,}: {lost.detail}")
            yield chunk


def rows_and_gaps(chunks: Iterable[Chunk], is_wanted: Callable[[Records], Mask] | None = None) -> Iterator[Row | int]:
    """The records of a log that is never compacted; an integer stands for missing records below this offset.

    Records are missing where bytes are damaged, or a file was not copied.

    is_wanted: the mask of the records of a chunk to return; None: all of them.
    """
    next_offset: int | None = None
    for chunk in chunks:
        records, lost = chunk.records, np.array([lost.position for lost in chunk.lost], np.int64)
        # Rows before which records are missing.
        gaps = np.searchsorted(records.position, lost).tolist()
        if len(records):
            offset_before = records.record_offset[0] - 1 if next_offset is None else next_offset - 1
            gaps += np.flatnonzero(np.diff(records.record_offset, prepend=offset_before) > 1).tolist()
            next_offset = int(records.record_offset[-1]) + 1
        chosen = records.control_type == NOT_A_CONTROL_RECORD
        if is_wanted is not None:
            chosen &= is_wanted(records)
        wanted = records.take(chosen)
        texts = (wanted.key.to_arrow().to_pylist(), wanted.value.to_arrow().to_pylist())
        rows = map(Row._make, zip(*texts, wanted.record_offset.tolist(), wanted.timestamp_ms.tolist(), strict=True))
        numbers, before_gap = np.flatnonzero(chosen), 0
        for gap in sorted(gaps):
            rows_before = int(np.searchsorted(numbers, gap))
            yield from islice(rows, rows_before - before_gap)
            before_gap = rows_before
            yield int(records.record_offset[gap]) if gap < len(records) else _BEYOND
        yield from rows
