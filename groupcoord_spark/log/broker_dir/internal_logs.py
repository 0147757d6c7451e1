"""Read the logs of Kafka's other internal topics: the cluster's metadata, the states of transactions and of share groups."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Chunk, PartitionLog, Records, read_segment
from groupcoord_spark.log.broker_dir.log_directories import LogDirectories
from groupcoord_spark.log.damage import PlacedDoubt
from groupcoord_spark.log.directory import plan_other_topic
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.storage.location import Location

_BEYOND: Final = 2**63 - 1
"""Marks damaged bytes at the end of a file, whose offsets nobody knows."""


class Row(NamedTuple):
    """A record other than a control record."""

    key: bytes | None
    value: bytes | None
    record_offset: int
    timestamp_ms: int


def read_logs(
    directories: LogDirectories, topic: str, is_wanted: Callable[[Records], Mask] | None = None
) -> Iterator[tuple[PartitionLog, Iterator[Row | int]]]:
    """Yield each log of a topic with its rows and gaps in the order of offsets. Of several replicas one is read.

    What cannot be read is left out, and a sentence about it is added to the damages of the directories.

    Args:
        is_wanted: from the records of a chunk to the mask of those to return; None: all of them.
    """
    for log, doubts in _planned(directories, topic):
        for doubt in doubts:
            directories.damage(doubt.source, f"{log.directory}: {doubt.detail}")
        yield log, rows_and_gaps(_chunks(log, directories), is_wanted)


def _planned(directories: LogDirectories, topic: str) -> list[tuple[PartitionLog, list[PlacedDoubt]]]:
    """Plan the logs of a topic. A partition whose directory cannot be read costs itself alone."""
    partitions = directories.partitions_of(topic)
    with suppress(InputError):
        return plan_other_topic(topic, partitions)
    planned: list[tuple[PartitionLog, list[PlacedDoubt]]] = []
    replicas_of: dict[str, list[Location]] = {}
    for partition in partitions:
        replicas_of.setdefault(partition.name, []).append(partition)
    for name, replicas in replicas_of.items():
        try:
            planned += plan_other_topic(topic, replicas)
        except InputError as error:
            directories.damage(name, str(error))
    return planned


def _chunks(log: PartitionLog, directories: LogDirectories) -> Iterator[Chunk]:
    for segment in log.segments:
        try:
            for chunk in read_segment(segment):
                for lost in chunk.lost:
                    directories.damage(lost.source, f"{lost.source} is damaged at byte {lost.position:,}: {lost.detail}")
                yield chunk
        except InputError as error:
            directories.damage(log.directory, str(error))


def rows_and_gaps(chunks: Iterable[Chunk], is_wanted: Callable[[Records], Mask] | None = None) -> Iterator[Row | int]:
    """Yield the records of a log that is never compacted; an integer stands for missing records below this offset.

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
