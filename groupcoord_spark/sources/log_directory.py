"""Finds what lies in brokers' log directories beside ``__consumer_offsets``: checkpoints, and the other logs that Kafka keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Chunk, PartitionLog, Records, read_segment
from groupcoord_spark.log.directory import plan_other_topic
from groupcoord_spark.log.files.broker_files import HIGH_WATERMARKS, LOG_STARTS, META_PROPERTIES, read_whole_checkpoint
from groupcoord_spark.log.files.listing import SEGMENT_NAME
from groupcoord_spark.log.files.object_store import is_object_store
from groupcoord_spark.log.files.storage import Location
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.protocol.slices import Mask

_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_SIGNS: Final = frozenset({HIGH_WATERMARKS, LOG_STARTS, META_PROPERTIES})
"""Files that only a log directory has."""

_BEYOND: Final = 2**63 - 1
"""Marks damaged bytes at the end of a file, whose offsets nobody knows."""

LOG_END_COLUMNS: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("start_offset", pa.int64()),
        pa.field("end_offset", pa.int64()),
        pa.field("written_at_ms", pa.int64()),
    ]
)


class DamagedFile(NamedTuple):
    """A file or directory that is not used. source: its path or URI as it may be printed. sentence: what is wrong with it."""

    source: str
    sentence: str


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A broker's log directory.

    files: name -> pyarrow's FileInfo of each file in it. partitions: topic and partition -> the directory of the partition.
    """

    location: Location
    files: Mapping[str, Any]
    partitions: Mapping[tuple[str, int], Location]

    def partitions_of(self, topic: str) -> list[tuple[int, Location]]:
        """The partitions of a topic that the directory has, in their order."""
        return sorted(((number, place) for (name, number), place in self.partitions.items() if name == topic), key=lambda pair: pair[0])


def names_beside_partitions(directories: Iterable[LogDirectory]) -> dict[str, str]:
    """Topic id -> name, from ``partition.metadata`` (since 2.8) of one partition of each topic; a file that cannot be read names nothing.

    For a broker's own directories without the cluster's metadata. Object stores are not asked: each topic would cost a request.
    """
    names = {}
    for directory in directories:
        if is_object_store(directory.location.filesystem):
            continue
        for topic, place in {topic: place for (topic, _), place in directory.partitions.items()}.items():
            with suppress(InputError, OSError, ValueError):
                fields = dict(line.split(": ", 1) for line in place.child("partition.metadata").read_text().splitlines() if ": " in line)
                if "topic_id" in fields:
                    names[fields["topic_id"]] = topic
    return names


def find_log_directories(inputs: Sequence[str]) -> list[LogDirectory]:
    """The log directories that the inputs of segments are or lie in: one for each broker's copy, also for one without the offsets topic.

    Raises InputError where a directory cannot be listed.
    """
    directories: dict[str, LogDirectory] = {}
    for given in inputs:
        location = Location.of(given)
        if location.info().type == pafs.FileType.File:
            location = location.parent()
        if _PARTITION.fullmatch(location.name) and any(SEGMENT_NAME.fullmatch(str(info.base_name)) for info in location.list()):
            location = location.parent()
        listed = _listed(location)
        of_input = [listed] if _is_log_directory(listed) else [_listed(child) for child in _directories_in(location)]
        directories.update({directory.location.uri: directory for directory in of_input if _is_log_directory(directory)})
    return list(directories.values())


def _directories_in(location: Location) -> list[Location]:
    return [location.child(str(info.base_name)) for info in location.list() if info.type == pafs.FileType.Directory]


def _listed(location: Location) -> LogDirectory:
    files: dict[str, Any] = {}
    partitions: dict[tuple[str, int], Location] = {}
    for info in location.list():
        name = str(info.base_name)
        if info.type == pafs.FileType.File:
            files[name] = info
        elif info.type == pafs.FileType.Directory and (match := _PARTITION.fullmatch(name)):
            partitions[match[1], int(match[2])] = location.child(name)
    return LogDirectory(location, files, partitions)


def _is_log_directory(directory: LogDirectory) -> bool:
    return bool(_SIGNS & directory.files.keys()) or any(topic.startswith("__") for topic, _ in directory.partitions)


def read_log_ends(directories: Iterable[LogDirectory], damages: list[DamagedFile]) -> pa.Table:
    """Where the log of each partition ends (its high watermark) and begins, as the brokers' checkpoints say: LOG_END_COLUMNS.

    Where several brokers have a partition, the highest high watermark counts. ``written_at_ms``: when the broker wrote its checkpoint, by
    the time of the file. ``start_offset``: from the checkpoint of log start offsets, else from the name of the partition's first segment;
    NULL where the copy has neither. damages: gets a sentence about each checkpoint that is damaged.
    """
    ends = [of_broker for directory in directories if (of_broker := _log_ends_of_broker(directory, damages)) is not None]
    if len(ends) < 2:
        return ends[0] if ends else LOG_END_COLUMNS.empty_table()
    order = [("topic", "ascending"), ("partition", "ascending"), ("end_offset", "descending"), ("written_at_ms", "descending")]
    rows = pa.concat_tables(ends).sort_by(order)
    values = LOG_END_COLUMNS.names[2:]
    highest = rows.group_by(["topic", "partition"], use_threads=False).aggregate(
        [(name, "first", pc.ScalarAggregateOptions(skip_nulls=False)) for name in values]
    )
    return highest.rename_columns({f"{name}_first": name for name in values}).select(LOG_END_COLUMNS.names)


def _log_ends_of_broker(directory: LogDirectory, damages: list[DamagedFile]) -> pa.Table | None:
    ends = _checkpoint(directory, HIGH_WATERMARKS, damages)
    if ends is None:
        return None
    # The plan of the offsets topic tells of a damaged checkpoint of log start offsets.
    starts = _checkpoint(directory, LOG_STARTS, [])
    start_of = {place: start for place in directory.partitions if (start := _first_segment(directory, place)) is not None}
    if starts is not None:
        places = zip(starts["topic"].to_pylist(), starts["partition"].to_pylist(), strict=True)
        start_of.update(zip(places, starts["offset"].to_pylist(), strict=True))
    start_offsets: list[int | None] = [None] * ends.num_rows
    if start_of:
        places = zip(ends["topic"].to_pylist(), ends["partition"].to_pylist(), strict=True)
        start_offsets = [start_of.get(place) for place in places]
    start_column = pa.array(start_offsets, pa.int64())
    # A start beyond the end is of another moment.
    start_column = pc.if_else(pc.less_equal(start_column, ends["offset"]), start_column, pa.scalar(None, pa.int64()))
    written_at_ms = directory.files[HIGH_WATERMARKS].mtime_ns // 1_000_000
    columns = [ends["topic"], ends["partition"], start_column, ends["offset"], pa.repeat(written_at_ms, ends.num_rows)]
    return pa.table(columns, schema=LOG_END_COLUMNS)


def read_other_topic(
    directories: Iterable[LogDirectory], topic: str, damages: list[DamagedFile]
) -> Iterator[tuple[PartitionLog, Iterator[Chunk]]]:
    """The logs of another topic that Kafka keeps for itself, each with its chunks in the order of offsets; of several replicas one.

    damages: gets a sentence about what cannot be read; nothing of it is read then.
    """
    places = [place for directory in directories for _, place in directory.partitions_of(topic)]
    try:
        logs = plan_other_topic(topic, places)
    except InputError as error:
        damages.append(DamagedFile(topic, str(error)))
        return
    for log in logs:
        yield log, _chunks(log, damages)


def _chunks(log: PartitionLog, damages: list[DamagedFile]) -> Iterator[Chunk]:
    for segment in log.segments:
        for chunk in read_segment(segment):
            for lost in chunk.lost:
                damages.append(DamagedFile(lost.source, f"{lost.source} is damaged at byte {lost.position:,}: {lost.detail}"))
            yield chunk


class Row(NamedTuple):
    """A record that is no control record."""

    key: bytes | None
    value: bytes | None
    record_offset: int
    timestamp_ms: int


def rows_and_gaps(chunks: Iterable[Chunk], is_wanted: Callable[[Records], Mask] | None = None) -> Iterator[Row | int]:
    """The records of a log that is never compacted.

    An integer stands for missing records below this offset: bytes are damaged, or a file was not copied.

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


def _checkpoint(directory: LogDirectory, name: str, damages: list[DamagedFile]) -> pa.Table | None:
    if name not in directory.files:
        return None
    location, sentences = directory.location.child(name), list[str]()
    try:
        offsets = read_whole_checkpoint(location, sentences)
    except InputError as error:
        offsets, sentences = None, [str(error)]
    damages += [DamagedFile(location.shown, sentence) for sentence in sentences]
    return offsets


def _first_segment(directory: LogDirectory, place: tuple[str, int]) -> int | None:
    """The base offset of the partition's first segment, by the names of its files; None where it has none, or names are slow to list."""
    if is_object_store(directory.location.filesystem):
        return None
    try:
        names = (SEGMENT_NAME.fullmatch(str(info.base_name)) for info in directory.partitions[place].list())
    except InputError:
        return None
    return min((int(match[1]) for match in names if match and match[2] is None), default=None)
