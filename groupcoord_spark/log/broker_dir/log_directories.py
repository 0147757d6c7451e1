"""Find brokers' log directories, and read their checkpoints and directories for every topic."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.broker_dir import broker_files
from groupcoord_spark.log.directory import volumes_below
from groupcoord_spark.log.listing import SEGMENT_NAME
from groupcoord_spark.storage.location import Location, shown
from groupcoord_spark.storage.object_store import is_object_store

_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_SIGNS: Final = frozenset({broker_files.HIGH_WATERMARKS, broker_files.LOG_STARTS, broker_files.META_PROPERTIES})
"""Files that only a log directory has."""

LOG_END_COLUMNS: Final = pa.schema(
    {"topic": pa.string(), "partition": pa.int32(), **dict.fromkeys(("start_offset", "end_offset", "written_at_ms"), pa.int64())}
)


class DamagedFile(NamedTuple):
    """A file or directory that is not used. source: its path or URI as it may be printed. sentence: the fault."""

    source: str
    sentence: str


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A directory as it was listed: a broker's log directory, or a directory to search for log directories.

    infos: name -> pyarrow's FileInfo of everything in it. partitions: topic and partition -> the directory of the partition.
    """

    location: Location
    infos: Mapping[str, Any]
    partitions: Mapping[tuple[str, int], Location]

    @classmethod
    def listed(cls, location: Location) -> Self:
        """List the directory. Raises InputError if that fails."""
        infos = {str(info.base_name): info for info in location.list()}
        names = (_PARTITION.fullmatch(name) for name, info in infos.items() if info.type == pafs.FileType.Directory)
        return cls(location, infos, {(name[1], int(name[2])): location.child(name[0]) for name in names if name is not None})

    @property
    def is_partition(self) -> bool:
        """The directory itself is the directory of a partition."""
        return _PARTITION.fullmatch(self.location.name) is not None and any(map(SEGMENT_NAME.fullmatch, self.infos))

    @property
    def is_log_directory(self) -> bool:
        """A broker keeps its logs in the directory."""
        files = (name for name, info in self.infos.items() if info.type == pafs.FileType.File)
        return not _SIGNS.isdisjoint(files) or any(topic.startswith("__") for topic, _ in self.partitions)


@dataclass(frozen=True, slots=True)
class LogDirectories:
    """The log directories of an input, one for each broker's copy.

    damages: a sentence about each file that cannot be used. The reader of a file adds its sentence.
    """

    directories: Sequence[LogDirectory] = ()
    damages: list[DamagedFile] = field(default_factory=list)

    def damage(self, source: str, sentence: str) -> None:
        """Add a sentence about a file that cannot be used."""
        self.damages.append(DamagedFile(source, sentence))

    @classmethod
    def of(cls, locations: Iterable[Location]) -> Self:
        """List log directories. Raises InputError if one cannot be listed."""
        return cls([LogDirectory.listed(location) for location in locations])

    def partitions_of(self, topic: str) -> list[Location]:
        """Return the directories of a topic's partitions by number, one log directory after the other."""
        of_directories = (sorted(directory.partitions.items(), key=lambda partition: partition[0]) for directory in self.directories)
        return [location for partitions in of_directories for (name, _), location in partitions if name == topic]

    def topic_names(self) -> dict[str, str]:
        """Topic id -> name, from ``partition.metadata`` (since 2.8) of one partition of each topic.

        For a broker's own directories without the cluster's metadata. A file that cannot be read names no topic. Object stores are not
        asked: each topic would cost a request.
        """
        names = {}
        for directory in self.directories:
            if is_object_store(directory.location.filesystem):
                continue
            for topic, location in {topic: location for (topic, _), location in directory.partitions.items()}.items():
                with suppress(InputError):
                    if topic_id := broker_files.read_fields(location.child(broker_files.PARTITION_METADATA), ":").get("topic_id"):
                        names[topic_id] = topic
        return names

    def log_ends(self) -> pa.Table:
        """Return the end (high watermark) and the start of each partition's log from the brokers' checkpoints: LOG_END_COLUMNS.

        Where several brokers have a partition, the highest high watermark counts. ``written_at_ms``: when the broker wrote its checkpoint,
        by the time of the file. ``start_offset``: from the checkpoint of log start offsets, else from the name of the partition's first
        segment; NULL where the copy has neither.
        """
        of_brokers = ((directory, self._checkpoint(directory, broker_files.HIGH_WATERMARKS)) for directory in self.directories)
        ends = [self._with_starts(directory, of_broker) for directory, of_broker in of_brokers if of_broker is not None]
        if len(ends) < 2:
            return ends[0] if ends else LOG_END_COLUMNS.empty_table()
        order = [("topic", "ascending"), ("partition", "ascending"), ("end_offset", "descending"), ("written_at_ms", "descending")]
        rows = pa.concat_tables(ends).sort_by(order)
        values = LOG_END_COLUMNS.names[2:]
        highest = rows.group_by(["topic", "partition"], use_threads=False).aggregate(
            [(name, "first", pc.ScalarAggregateOptions(skip_nulls=False)) for name in values]
        )
        return highest.select(["topic", "partition", *(f"{name}_first" for name in values)]).rename_columns(LOG_END_COLUMNS.names)

    def _checkpoint(self, directory: LogDirectory, name: str) -> pa.Table | None:
        """Return the offsets in a checkpoint by topic and partition, or None if the checkpoint is not used."""
        if name not in directory.infos:
            return None
        location, sentences = directory.location.child(name), list[str]()
        try:
            offsets = broker_files.read_whole_checkpoint(location, directory.infos[name], sentences)
        except InputError as error:
            offsets, sentences = None, [str(error)]
        self.damages.extend(DamagedFile(location.shown, sentence) for sentence in sentences)
        return offsets

    def _with_starts(self, directory: LogDirectory, ends: pa.Table) -> pa.Table:
        """Return one broker's rows of LOG_END_COLUMNS. ends: its high watermarks."""
        # The plan of the offsets topic already reports a damaged checkpoint of log start offsets.
        starts = LogDirectories()._checkpoint(directory, broker_files.LOG_STARTS)
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
        written_at_ms = directory.infos[broker_files.HIGH_WATERMARKS].mtime_ns // 1_000_000
        columns = [ends["topic"], ends["partition"], start_column, ends["offset"], pa.repeat(written_at_ms, ends.num_rows)]
        return pa.table(columns, schema=LOG_END_COLUMNS)


def find_log_directories(inputs: Sequence[str]) -> LogDirectories:
    """Return the log directories around or among the inputs of segments, also without the offsets topic.

    Where a directory cannot be listed, none is used, and a sentence says so.
    """
    found: dict[str, LogDirectory] = {}
    try:
        for given in inputs:
            location = Location.of(given)
            directory = LogDirectory.listed(location.parent() if location.info().type == pafs.FileType.File else location)
            if directory.is_partition:
                directory = LogDirectory.listed(directory.location.parent())
            of_input = [directory] if directory.is_log_directory else _log_directories_in(directory)
            found.update({of_broker.location.uri: of_broker for of_broker in of_input if of_broker.is_log_directory})
    except InputError as error:
        return LogDirectories(damages=[DamagedFile(", ".join(map(shown, inputs)), str(error))])
    return LogDirectories(list(found.values()))


def _log_directories_in(directory: LogDirectory) -> list[LogDirectory]:
    """List the volumes of a broker below the directory, else each directory in it."""
    names = [name for name, info in directory.infos.items() if info.type == pafs.FileType.Directory]
    return [LogDirectory.listed(inner) for inner in volumes_below(directory.location) or map(directory.location.child, names)]


def _first_segment(directory: LogDirectory, place: tuple[str, int]) -> int | None:
    """Return the base offset of the partition's first segment by the names of its files; None without a file or on an object store."""
    if is_object_store(directory.location.filesystem):
        return None
    try:
        files = (info for info in directory.partitions[place].list() if info.type == pafs.FileType.File)
        names = (SEGMENT_NAME.fullmatch(str(info.base_name)) for info in files)
    except InputError:
        return None
    return min((int(match[1]) for match in names if match and match[2] is None), default=None)
