"""Find the files of a log: from the paths that the user names to segments that workers read independently of each other.

Planning looks at names, at both ends of each file and at a few small text files, never at a whole log.
"""

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow.fs as pafs

from groupcoord_spark.errors import BadCopyError, InputError
from groupcoord_spark.log.broker_dir.broker_files import (
    CLEANER_CHECKPOINT,
    LOG_STARTS,
    META_PROPERTIES,
    OFFSETS_TOPIC,
    PARTITION_METADATA,
    Checkpoint,
    leader_epochs_in,
    read_checkpoint_of,
    read_fields,
)
from groupcoord_spark.log.damage import PlacedDoubt
from groupcoord_spark.log.ends import TAIL_BYTES, EpochAt, Tail, checked_tail, first_entry_offset, tail_from_last_bytes
from groupcoord_spark.log.listing import KINDS, LARGEST_OFFSET, OFFSET_DIGITS, SEGMENT_NAME, listed_in_one_state
from groupcoord_spark.log.marks import first_record, record_at
from groupcoord_spark.log.segment import Segment
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH
from groupcoord_spark.storage.held_files import HeldFile, HeldFiles
from groupcoord_spark.storage.location import Location, filesystem_of, side_by_side
from groupcoord_spark.storage.object_store import FILES_AT_ONCE, is_object_store
from groupcoord_spark.wording import first_of

_DIRECTORIES_LOOKED_AT = 100
"""How many directories are listed in search of dumps further down, so that the root of a disk named by mistake is not read in full."""

_DUMPS_NAMED = 4

_SPECIAL = r"(?:\.[0-9a-f]{32}-(?:delete|future|stray))"
_PARTITION = re.compile(rf"{OFFSETS_TOPIC}-(0|[1-9][0-9]*)")
_OTHER_TOPIC = re.compile(rf"(?!{OFFSETS_TOPIC}-)([a-zA-Z0-9._-]{{1,249}})-(?:0|[1-9][0-9]*)")
_NAMED_PARTITION = re.compile(rf"{OFFSETS_TOPIC}-(0|[1-9][0-9]*){_SPECIAL}?")
_PACKED = re.compile(
    rf"([0-9]{{{OFFSET_DIGITS}}}\.log|{OFFSETS_TOPIC}-[0-9]+)"
    r"\.(?:gz|gzip|tgz|zst|zstd|lz4|bz2|xz|lzma|sz|snappy|br|zip|7z|rar|tar(?:\.[a-z0-9]+)?|tbz2?|txz|tzst|z)",
    re.IGNORECASE,
)

_LARGEST_PARTITION = 2**31 - 2
"""Kafka counts partitions in an int32."""

_BESIDE_SEGMENTS = re.compile(
    r".*\.deleted|[0-9]{20}\.(?:index|timeindex|txnindex|snapshot)(?:\.swap|\.cleaned)?|leader-epoch-checkpoint|partition\.metadata"
)


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The log of one partition of the offsets topic.

    Attributes:
        segments: its files in the order of their offsets, without empty ones.
        first_offset: the base offset of the first entry, or None for an empty log.
        end_offset: the offset after the last record.
        bytes: of all files.
        log_start_offset: where the log begins, whether or not a record is left there: from the broker's checkpoint, else from the name of
            the first file; None where the input has no files.
        end_file, end_position: base offset of the last file with records, and the position after its last batch; None where they are not
            known for certain.
        files: base offset -> bytes of each file that was listed, empty ones too; {} where the input has no files, or single ones of them.
        checkpointed_start: the log start offset that the broker wrote down; None where its checkpoint does not have it.
        newest_epoch: of the last batch; None where that has none or is not known.
        is_surveyed: the ends of all files were looked at. False where ``plan_logs`` left out files that an earlier run has read: the plan
            is then good only for a run that goes on from there.
    """

    offsets_partition: int
    directory: str
    segments: tuple[Segment, ...]
    first_offset: int | None
    end_offset: int
    bytes: int
    log_start_offset: int | None = None
    end_file: int | None = None
    end_position: int | None = None
    checkpointed_start: int | None = None
    newest_epoch: EpochAt | None = None
    is_surveyed: bool = True
    files: Mapping[int, int] = field(default_factory=dict)

    @property
    def begin(self) -> int | None:
        """Where the log starts, whether or not a record is left there; None if it is empty or the start is unknown."""
        return self.first_offset if self.log_start_offset is None else self.log_start_offset


def leader_epochs_of(log: PartitionLog) -> tuple[tuple[int, int], ...]:
    """Return (epoch, first offset) of the leader epochs in the log's checkpoint, or () without a checkpoint."""
    return leader_epochs_in(Location.of(log.segments[0].uri).parent()) if log.segments else ()


def log_start_was_moved(log: PartitionLog, leader_epochs: Sequence[tuple[int, int]]) -> bool:
    """Return whether the broker let the log begin where it begins, by retention or DeleteRecords.

    A broker that moves the log start offset writes it to its checkpoint, or gives it to the first leader epoch.
    """
    first_file = min(log.files, default=None)
    if first_file is None or log.log_start_offset is None:
        return False
    is_checkpointed = log.checkpointed_start is not None and log.checkpointed_start >= first_file
    return is_checkpointed or (bool(leader_epochs) and leader_epochs[0][1] == log.log_start_offset)


@dataclass(frozen=True, slots=True)
class LogPlan:
    """The logs that a run reads.

    cluster_id: from meta.properties; topic_id: from partition.metadata; None if the log has no such file.
    beyond: offsets partition -> number of offsets that are left out because they lie beyond the high watermark.
    cleaned_ends: offsets partition -> end of the broker's last cleaning at the time of the listing, if known.
    held: keeps the files open; None: readers open the files by their paths.
    """

    partitions: tuple[PartitionLog, ...]
    cluster_id: str | None
    topic_id: str | None
    doubts: tuple[PlacedDoubt, ...]
    beyond: Mapping[int, int] = field(default_factory=dict)
    cleaned_ends: Mapping[int, int] = field(default_factory=dict)
    held: HeldFiles | None = field(default=None, compare=False)

    @property
    def filesystem(self) -> Any:
        """The file system of the logs: of the first, where there are several."""
        return filesystem_of(segment.uri for log in self.partitions for segment in log.segments)


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory of one partition. log_dir: the broker's directory around it; only: the files to read, None for all."""

    offsets_partition: int
    location: Location
    log_dir: Location | None
    only: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class _LogFile:
    """A file that is part of the log."""

    location: Location
    base_offset: int
    size: int
    held: HeldFile | None


@dataclass(frozen=True, slots=True)
class _Listing:
    """Contents of a partition's directory.

    files: those that are the log, in the order of their offsets. has_files: the directory has files of any kind. tails: by place of the
    file, the end of each file that was looked at, None where its last bytes give no sure answer.
    """

    directory: _Directory
    files: list[_LogFile]
    has_files: bool
    doubts: list[PlacedDoubt]
    has_metadata: bool
    tails: dict[int, Tail | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Replica:
    log: PartitionLog
    location: Location
    leader_epoch: int
    log_dir: Location | None
    doubts: list[PlacedDoubt] = field(default_factory=list)


def no_ends(cluster_id: str | None) -> Mapping[int, int]:
    """Return the ends that earlier runs have read, without an earlier run: none."""
    return {}


def plan_logs(
    inputs: Sequence[str],
    known_ends: Callable[[str | None], Mapping[int, int]] = no_ends,
    *,
    held: HeldFiles | None = None,
    wanted: Container[int] | None = None,
) -> LogPlan:
    """Plan which logs to read from paths and URIs of one cluster.

    Each input is a broker's log directory, a directory of one partition, a directory of log directories (copies of several brokers), or a
    segment. If several inputs have the same partition, the replica with the highest last leader epoch is read, and among equals the one
    with the highest end offset.

    Args:
        known_ends: from the cluster id (None where meta.properties is not there) to the end offset of each offsets partition that an
            earlier run has read. Files that end below it are not opened, but for the first one of each partition.
        held: keeps the files of local logs open as they are when they are listed, for a log that a broker uses; None: nothing does.
        wanted: the offsets partitions to plan; None: all.
    Raises:
        InputError: an input is missing, cannot be read, or is not a log of the offsets topic.
        BadCopyError: an input is a folder of many dumps, or the inputs are of several clusters.
    """
    directories: dict[str, _Directory] = {}
    doubts: list[PlacedDoubt] = []
    for given in inputs:
        for directory in _directories_of(Location.of(given), doubts):
            place = f"{directory.location.filesystem.type_name}:{directory.location.path}"
            earlier = directories.get(place)
            if earlier and earlier.only is not None:
                only = earlier.only | directory.only if directory.only is not None else None
                directory = replace(directory, only=only)
            elif earlier:
                continue
            directories[place] = directory
    if not directories:
        raise InputError("No input is given. Name a log directory, a directory of a partition or a segment file.")
    with_directory = {directory.offsets_partition for directory in directories.values()}
    doubts = [doubt for doubt in doubts if doubt.code != "partition_set_aside" or doubt.offsets_partition not in with_directory]
    log_dirs = {directory.log_dir.path: directory.log_dir for directory in directories.values() if directory.log_dir}
    cluster_id = _cluster_of(log_dirs.values())
    ends = known_ends(cluster_id)
    directories = {place: directory for place, directory in directories.items() if wanted is None or directory.offsets_partition in wanted}
    log_starts = {path: read_checkpoint_of(log_dir, LOG_STARTS) for path, log_dir in log_dirs.items()}
    # Before the partitions are listed: the log of a running broker then has all that its cleaner has seen.
    cleaned_ends = {path: read_checkpoint_of(log_dir, CLEANER_CHECKPOINT).offsets for path, log_dir in log_dirs.items()}
    planned = _planned_directories(list(directories.values()), ends, log_starts, held)
    cleaned_end_of: dict[int, int] = {}
    partitions: list[PartitionLog] = []
    copies: list[tuple[PartitionLog, PartitionLog]] = []
    for number, replicas in _by_partition(replica for replica, _ in planned).items():
        chosen = _newest(replicas)
        copies += [(chosen.log, replica.log) for replica in replicas if replica is not chosen]
        partitions.append(chosen.log)
        if chosen.log_dir is not None and number in cleaned_ends[chosen.log_dir.path]:
            cleaned_end_of[number] = cleaned_ends[chosen.log_dir.path][number]
        doubts += chosen.doubts
        if len(replicas) > 1:
            doubts.append(_replica_doubt(chosen, [replica for replica in replicas if replica is not chosen]))
    of_copies = filesystem_of(segment.uri for log, _ in copies for segment in log.segments)
    side_by_side(lambda logs: _refuse_other_log(*logs), copies, of_copies, FILES_AT_ONCE)
    by_partition = sorted(planned, key=lambda of_directory: of_directory[0].log.offsets_partition)
    topic_id = next((topic_id for _, topic_id in by_partition if topic_id), None)
    return LogPlan(tuple(partitions), cluster_id, topic_id, tuple(doubts), cleaned_ends=cleaned_end_of, held=held)


def _planned_directories(
    directories: Sequence[_Directory], known_ends: Mapping[int, int], log_starts: Mapping[str, Checkpoint], held: HeldFiles | None
) -> list[tuple[_Replica, str | None]]:
    """Plan the log in each directory, and return it with its topic id. log_starts: by path of the log directory.

    See plan_logs for the other arguments.

    All directories are listed side by side, then the ends of all files are read side by side: object stores and mounts answer slowly.
    """
    slowest = max((directory.location.filesystem for directory in directories), key=is_object_store, default=pafs.LocalFileSystem())

    def listing_of(directory: _Directory) -> _Listing:
        return _files_of(directory, known_ends.get(directory.offsets_partition, 0), held)

    listed = side_by_side(listing_of, directories, slowest)
    without_segments = [of_directory.directory.location for of_directory in listed if of_directory.has_files]
    if without_segments and not any(of_directory.files for of_directory in listed):
        raise InputError(
            f"{without_segments[0].shown}: none of its files is a segment (a segment has the name of its first offset, such as"
            " 00000000000000000000.log), and no other partition has a segment. A broker keeps at least one segment for each partition: copy"
            " the segments too."
        )
    to_look_at = [
        (of_directory, place, segment)
        for of_directory in listed
        for place, segment in _files_to_look_at(of_directory, known_ends.get(of_directory.directory.offsets_partition, 0))
    ]

    def look_at_end(of_directory: _Listing, place: int, segment: Segment) -> None:
        of_directory.tails[place] = tail_from_last_bytes(segment, TAIL_BYTES[0])

    side_by_side(lambda end: look_at_end(*end), to_look_at, slowest)
    # where a file is damaged, all of it is read here: few at a time, for each takes memory
    return side_by_side(lambda of_directory: _plan_believed(of_directory, log_starts), listed, slowest, FILES_AT_ONCE)


def plan_other_topic(topic: str, directories: Iterable[Location]) -> list[tuple[PartitionLog, list[PlacedDoubt]]]:
    """Plan the logs of another internal topic of Kafka by partition, from the directories of its partitions.

    Of several replicas of a partition one is read, by the rule of ``plan_logs``. ``offsets_partition`` is the number of the partition.

    Returns:
        Each log with doubts about segments and checkpoints that are not read.
    Raises:
        InputError: A directory or a file cannot be read.
    """
    partitions = [_Directory(int(location.name.rpartition("-")[2]), location, location.parent()) for location in directories]
    log_dirs = {partition.location.parent().path: partition.location.parent() for partition in partitions}
    log_starts = {path: read_checkpoint_of(log_dir, LOG_STARTS, topic) for path, log_dir in log_dirs.items()}
    replicas_of = _by_partition(replica for replica, _ in _planned_directories(partitions, {}, log_starts, None))
    # A broker keeps other files next to the segments of these topics, such as quorum-state.
    return [
        (newest.log, [doubt for doubt in newest.doubts if doubt.code != "unknown_file" or SEGMENT_NAME.search(doubt.source)])
        for newest in map(_newest, replicas_of.values())
    ]


def _by_partition(replicas: Iterable[_Replica]) -> dict[int, list[_Replica]]:
    """Group the replicas by partition."""
    by_partition: dict[int, list[_Replica]] = {}
    for replica in sorted(replicas, key=lambda replica: replica.log.offsets_partition):
        by_partition.setdefault(replica.log.offsets_partition, []).append(replica)
    for replicas in by_partition.values():
        for replica in replicas if len(replicas) > 1 else ():
            # A leader that has not written a record yet has its epoch in the checkpoint alone.
            newest = (epoch for epoch, _ in leader_epochs_in(replica.location)[-1:])
            replica.leader_epoch = max(replica.leader_epoch, *newest, NO_LEADER_EPOCH)
    return by_partition


def _newest(replicas: Iterable[_Replica]) -> _Replica:
    """Return the replica to read: by the greatest last leader epoch, then by the greatest end offset."""
    return max(replicas, key=lambda replica: (replica.leader_epoch, replica.log.end_offset))


def plan_copies(inputs: Sequence[str], *, held: HeldFiles | None = None) -> list[tuple[Location, LogPlan]]:
    """(log directory, plan of its logs) for each log directory among the inputs: every copy of a partition is read, none is chosen.

    held: as ``plan_logs`` takes it. Raises InputError as ``plan_logs`` does.
    """
    log_dirs: dict[str, Location] = {}
    inputs_of: dict[str, list[str]] = {}
    for given in inputs:
        for directory in _directories_of(Location.of(given), []):
            log_dir = directory.log_dir or directory.location.parent()
            log_dirs.setdefault(log_dir.uri, log_dir)
            files = [directory.location.uri] if directory.only is None else [directory.location.child(name).uri for name in directory.only]
            inputs_of.setdefault(log_dir.uri, []).extend(files)
    _cluster_of(log_dirs.values())
    return [(log_dir, plan_logs(inputs_of[uri], held=held)) for uri, log_dir in log_dirs.items()]


def _directories_of(location: Location, doubts: list[PlacedDoubt]) -> list[_Directory]:
    """Return the partition directories in an input. Doubts about impossible partition names are added to ``doubts``."""
    info = location.info()
    if info.type == pafs.FileType.NotFound:
        raise InputError(f"{location.shown}: there is no such file or directory.")
    if info.type == pafs.FileType.File:
        return [_directory_of_segment(location)]
    named = _NAMED_PARTITION.fullmatch(location.name)
    if named:
        return [_Directory(_checked_partition(location, named[1]), location, location.parent())]
    children = location.list()
    if not children:
        raise InputError(f"{location.shown}: the directory is empty. Name one that holds {OFFSETS_TOPIC}-0, {OFFSETS_TOPIC}-1 and so on.")
    directories = _partitions_in(location, children, doubts)
    if directories:
        return directories
    _refuse_packed(location, children)
    volumes = volumes_below(location)
    if volumes:
        directories = [directory for volume in volumes for directory in _partitions_in(volume, volume.list(), doubts)]
    else:
        directories = _partitions_below(location, children, doubts)
    if directories:
        return directories
    if any(SEGMENT_NAME.fullmatch(str(child.base_name)) for child in children):
        raise InputError(f"{location.shown}: {_NAME_LOST.format('the directory is not called so')}")
    if doubts:
        raise InputError(f"{location.shown}: no partition of {OFFSETS_TOPIC} is in it. {doubts[0].detail}")
    names = (_OTHER_TOPIC.fullmatch(str(child.base_name)) for child in children if child.type == pafs.FileType.Directory)
    topics = {named[1] for named in names if named is not None}
    of_others = f" It has partitions of other topics ({first_of(sorted(topics))})." if topics else ""
    raise InputError(
        f"{location.shown}: no partition of {OFFSETS_TOPIC} is in it.{of_others} Name a log directory of a broker (log.dirs), "
        f"one with directories such as {OFFSETS_TOPIC}-0."
    )


_NAME_LOST = (
    "segments tell their partition only by the name of their directory, and {}. Keep the name " + OFFSETS_TOPIC + "-N when copying them."
)


def _directory_of_segment(location: Location) -> _Directory:
    if not re.fullmatch(r"[0-9]{20}\.log", location.name):
        raise InputError(
            f"{location.shown}: this is not a segment of a log. A segment has the name of its first offset: 00000000000000000000.log."
        )
    named = _NAMED_PARTITION.fullmatch(location.parent().name)
    if not named:
        raise InputError(f"{location.shown}: {_NAME_LOST.format('this one is not called so')}")
    number = _checked_partition(location.parent(), named[1])
    if int(location.name[:OFFSET_DIGITS]) > LARGEST_OFFSET:
        raise InputError(f"{location.shown}: this is not a segment of a log: no record can have the offset in its name.")
    return _Directory(number, location.parent(), location.parent().parent(), frozenset([location.name]))


def _checked_partition(directory: Location, number: str) -> int:
    if int(number) > _LARGEST_PARTITION:
        raise InputError(
            f"{directory.shown}: a topic cannot have a partition of this number. Partitions are called 0 to {_LARGEST_PARTITION}."
        )
    return int(number)


def _partitions_in(location: Location, children: Sequence[pafs.FileInfo], doubts: list[PlacedDoubt]) -> list[_Directory]:
    directories = []
    for child in children:
        name = str(child.base_name)
        named = _PARTITION.fullmatch(name)
        if not named:
            if (set_aside := _NAMED_PARTITION.fullmatch(name)) is not None:
                doubts.append(_set_aside(location.child(name), int(set_aside[1])))
            continue
        _refuse_lost_link(location, child)
        if child.type == pafs.FileType.Directory and int(named[1]) <= _LARGEST_PARTITION:
            directories.append(_Directory(int(named[1]), location.child(name), location))
        else:
            why = "a topic cannot have a partition of this number" if child.type == pafs.FileType.Directory else "it is not a directory"
            doubts.append(PlacedDoubt("unknown_file", f"{name!r} is not read: {why}.", location.child(name).shown, None, 0, 0, None))
    if directories:
        _refuse_packed(location, children)
    return directories


def _set_aside(directory: Location, number: int) -> PlacedDoubt:
    what = {
        "delete": "the broker is deleting it",
        "future": "the broker is still filling it, to move the partition to this volume",
        "stray": "the partition is not assigned to the broker any more",
    }[directory.name.rpartition("-")[2]]
    detail = (
        f"{directory.name!r} is not read: {what}, and the input has no other directory of partition {number}. Give this directory as an"
        " INPUT of its own to read it."
    )
    return PlacedDoubt("partition_set_aside", detail, directory.shown, number, 0, 0, None)


def _refuse_packed(directory: Location, children: Iterable[pafs.FileInfo]) -> None:
    """Raises InputError for a packed segment or partition that does not also lie there unpacked: its records would be missing."""
    names = {str(child.base_name) for child in children}
    packed = sorted(name for name in names if (match := _PACKED.fullmatch(name)) and match[1] not in names)
    if packed:
        more = "" if len(packed) == 1 else f", and so are {len(packed) - 1} more beside it"
        raise InputError(
            f"{directory.child(packed[0]).shown}: this file is packed{more}. Unpack it first: segments are read as the broker wrote them."
        )


def _partitions_below(location: Location, children: Iterable[pafs.FileInfo], doubts: list[PlacedDoubt]) -> list[_Directory]:
    """Return the partitions in the log directories among ``children``.

    A directory that cannot be listed matters only where no other one has a partition: then InputError is raised.
    """
    directories: list[_Directory] = []
    unreadable: list[InputError] = []
    for child in children:
        if child.type == pafs.FileType.Directory:
            inner = location.child(str(child.base_name))
            try:
                directories += _partitions_in(inner, inner.list(), doubts)
            except InputError as error:
                unreadable.append(error)
    if unreadable and not directories:
        raise unreadable[0]
    return directories


@dataclass(frozen=True, slots=True)
class _LogDirectory:
    """A broker's log directory that a search has found. path, level: below the directory where the search began."""

    path: str
    level: int
    location: Location
    partitions: frozenset[int]
    has_meta_properties: bool


def log_directories_below(location: Location, levels: int) -> list[str]:
    """Return the relative paths, sorted, of the directories with partitions of the offsets topic ``levels`` or more below ``location``."""
    found, _ = _search(location)
    return sorted(directory.path for directory in found if directory.level >= levels and directory.partitions)


def _search(location: Location) -> tuple[list[_LogDirectory], bool]:
    """Return the log directories in and below ``location``, and whether all directories were searched.

    Nothing is searched below a log directory, nor in directories of tables such as ``date=2026-11-20`` and ``_delta_log``.
    Directories that cannot be listed are left out.
    """
    found: list[_LogDirectory] = []
    waiting: list[tuple[str, Location, int]] = [("", location, 0)]
    for _ in range(_DIRECTORIES_LOOKED_AT):
        if not waiting:
            break
        path, directory, level = waiting.pop(0)
        try:
            infos = directory.list()
        except InputError:
            continue
        children = [str(child.base_name) for child in infos if child.type == pafs.FileType.Directory]
        partitions = frozenset(int(named[1]) for named in map(_PARTITION.fullmatch, children) if named)
        has_meta_properties = any(child.base_name == META_PROPERTIES and child.type == pafs.FileType.File for child in infos)
        if partitions or has_meta_properties:
            found.append(_LogDirectory(path, level, directory, partitions, has_meta_properties))
            continue
        inner = [name for name in children if not name.startswith("_") and "=" not in name]
        waiting += [(f"{path}/{name}".lstrip("/"), directory.child(name), level + 1) for name in inner]
    return found, not waiting


def volumes_below(location: Location) -> list[Location]:
    """Return the volumes of one broker below ``location`` if a log directory lies two or more levels below.

    Empty if all log directories lie one level below: they may belong to several brokers.

    Raises:
        BadCopyError: The log directories do not, or not provably, belong to one broker.
    """
    found, is_complete = _search(location)
    with_partitions = [directory for directory in found if directory.partitions]
    if not any(directory.level >= 2 for directory in with_partitions):
        return []
    owners = {_owner_of(directory.location) if directory.has_meta_properties else (None, None) for directory in with_partitions}
    numbers = [number for directory in with_partitions for number in directory.partitions]
    is_disjoint = len(set(numbers)) == len(numbers)
    is_one_broker = len(with_partitions) == 1 or (is_disjoint and len(owners) == 1 and all(next(iter(owners))))
    if is_complete and is_one_broker:
        owner = next(iter(owners))
        others = (directory for directory in found if not directory.partitions)
        return [directory.location for directory in (*with_partitions, *(each for each in others if _owner_of(each.location) == owner))]
    paths = [directory.path for directory in sorted(with_partitions, key=lambda directory: (directory.level >= 2, directory.path))]
    raise BadCopyError(
        f"{location.shown}: this is a folder of many dumps: {first_of(paths, _DUMPS_NAMED)}. Name one dump, or give each of these"
        " directories as an INPUT if they were copied at one time from brokers of one cluster, or from the volumes of one broker."
    )


def _owner_of(log_dir: Location) -> tuple[str | None, str | None]:
    """Return the ids of the cluster and of the broker in meta.properties; None for what it does not have."""
    properties = read_fields(log_dir.child(META_PROPERTIES), "=")
    return properties.get("cluster.id") or None, properties.get("node.id") or properties.get("broker.id") or None


def _refuse_lost_link(directory: Location, info: pafs.FileInfo) -> None:
    if info.type == pafs.FileType.NotFound:
        shown = directory.child(str(info.base_name)).shown
        raise InputError(f"{shown}: this link leads nowhere. Copy the files that links lead to (cp -rL), or take the link away.")


def _cluster_of(log_dirs: Iterable[Location]) -> str | None:
    """Return the cluster id in meta.properties. Raises BadCopyError where the log directories are of several clusters."""
    log_dir_of: dict[str, Location] = {}
    for log_dir in log_dirs:
        cluster_id, _ = _owner_of(log_dir)
        if cluster_id is not None:
            log_dir_of.setdefault(cluster_id, log_dir)
    if len(log_dir_of) > 1:
        (first, first_dir), (second, second_dir) = list(log_dir_of.items())[:2]
        raise BadCopyError(
            f"{first_dir.shown} is of cluster {first!r} and {second_dir.shown} of cluster {second!r}. Read one cluster at a time."
        )
    return next(iter(log_dir_of), None)


def _refuse_other_log(log: PartitionLog, replica: PartitionLog) -> None:
    """Raises BadCopyError where the first record of ``replica`` is another record in ``log``: the two are not of one partition."""
    first = first_record(replica.segments)
    at_its_offset = record_at(log.segments, first.record_offset) if first is not None else None
    if first is not None and at_its_offset is not None and not at_its_offset.is_same(first):
        raise BadCopyError(
            f"{log.directory} and {replica.directory} are not copies of one partition: at offset {first.record_offset} they have different"
            " records. Read one cluster at a time, from copies made at one time."
        )


def _plan_believed(listed: _Listing, log_starts: Mapping[str, Checkpoint]) -> tuple[_Replica, str | None]:
    """Plan the log of one partition, and return it with its topic id. Its log start offset counts only where the log can begin there.

    Records below the log start offset are not read: a wrong one would lose them silently. log_starts: by path of the log directory.
    """
    directory = listed.directory
    starts = log_starts[directory.log_dir.path] if directory.log_dir else Checkpoint({})
    checkpoint, detail = starts.offsets.get(directory.offsets_partition), starts.damage
    replica, topic_id = _plan_partition(listed, checkpoint)
    end = replica.log.end_offset
    if checkpoint is not None and checkpoint > end and directory.only is None:
        detail = f"{LOG_STARTS} names offset {checkpoint}, and the segments end at {end}: it is of a later moment, and is not used."
        replica, topic_id = _plan_partition(listed, None)
    if detail is not None and directory.log_dir is not None:
        source = directory.log_dir.child(LOG_STARTS).shown
        replica.doubts.append(PlacedDoubt("log_start_not_used", detail, source, directory.offsets_partition, 0, 0, None))
    return replica, topic_id


def _files_to_look_at(listed: _Listing, known_end: int) -> Iterator[tuple[int, Segment]]:
    """(place among the files, segment) for each file whose end must be looked at: it has bytes, and may reach beyond ``known_end``."""
    for place, segment in enumerate(_segments_of(listed)):
        if segment.size and not (segment.next_base_offset is not None and segment.next_base_offset <= known_end):
            yield place, segment


def _segments_of(listed: _Listing) -> list[Segment]:
    """Return a segment for each file, regardless of the ends of earlier files."""
    number, files = listed.directory.offsets_partition, listed.files
    ends = [*(file.base_offset for file in files[1:]), None]
    return [
        Segment(file.location.uri, file.size, number, file.base_offset, end, file_size=None if end is None else file.size, held=file.held)
        for file, end in zip(files, ends, strict=False)
    ]


def _plan_partition(listed: _Listing, checkpoint: int | None) -> tuple[_Replica, str | None]:
    """Plan the log of one partition, and return it with its topic id. checkpoint: its log start offset in the checkpoint, if known."""
    directory, files = listed.directory, listed.files
    segments: list[Segment] = []
    reached = 0
    leader_epoch = NO_LEADER_EPOCH
    end_file = end_position = None
    is_surveyed = True
    all_segments = _segments_of(listed)
    for place, whole in enumerate(all_segments):
        skip_below = reached if reached > whole.base_offset else 0
        segment = replace(whole, skip_below=skip_below, log_start_offset=checkpoint or 0)
        if not segment.size:
            continue
        if place not in listed.tails:
            segments.append(segment)
            reached, is_surveyed = max(reached, segment.next_base_offset or 0), False
            continue
        segment, tail = checked_tail(segment, listed.tails[place], all_segments[place + 1 :])
        segments.append(segment)
        if tail.end_offset is not None:
            is_newest = tail.end_offset > reached and tail.position is not None
            end_file, end_position = (segment.base_offset, tail.position) if is_newest else (None, None)
            reached = max(reached, tail.end_offset)
            leader_epoch = tail.leader_epoch
    end_offset = max([reached, *(file.base_offset for file in files)])
    log = PartitionLog(
        directory.offsets_partition,
        directory.location.shown,
        tuple(segments),
        first_entry_offset(segments),
        end_offset,
        sum(segment.size for segment in segments),
        _log_start(directory, files, checkpoint),
        end_file,
        end_position,
        checkpoint,
        EpochAt(leader_epoch, reached - 1) if leader_epoch != NO_LEADER_EPOCH else None,
        is_surveyed,
        {} if directory.only is not None else {file.base_offset: file.size for file in files},
    )
    log_dir = directory.log_dir if directory.only is None else None
    return _Replica(log, directory.location, leader_epoch, log_dir, listed.doubts), _topic_id_of(listed)


def _topic_id_of(listed: _Listing) -> str | None:
    """Return the topic id in ``partition.metadata`` (since 2.8); None without that file."""
    location = listed.directory.location.child(PARTITION_METADATA)
    return (read_fields(location, ":").get("topic_id") or None) if listed.has_metadata else None


def _log_start(directory: _Directory, files: Sequence[_LogFile], checkpoint: int | None) -> int | None:
    """Return the start of the log; if the user named single files, the base offset of the first."""
    first_file = files[0].base_offset if files else None
    if checkpoint is None or (directory.only is not None and first_file is not None and first_file > checkpoint):
        return first_file
    return checkpoint


def _files_of(directory: _Directory, known_end: int, held: HeldFiles | None) -> _Listing:
    """List the files of the log, by Kafka's own rule for a cleaning that was not finished.

    known_end: the end offset that an earlier run has read. held: holds the files that a run may open which goes on from there.
    """
    location = directory.location
    doubts: list[PlacedDoubt] = []
    has_metadata = False
    plain: list[_LogFile] = []
    swaps: list[_LogFile] = []
    cleaned: list[int] = []
    infos, held_files = listed_in_one_state(location, held, partial(_names_to_hold, directory, known_end))
    if directory.only is None:
        _refuse_packed(location, infos)
    for info in infos:
        name = str(info.base_name)
        has_metadata |= name == PARTITION_METADATA and info.type == pafs.FileType.File
        if directory.only is not None and name not in directory.only:
            continue
        segment = SEGMENT_NAME.fullmatch(name)
        if segment:
            _refuse_lost_link(location, info)
        has_offset = segment is not None and int(segment[1]) <= LARGEST_OFFSET
        if segment and has_offset and info.type == pafs.FileType.File:
            file = _LogFile(location.child(name), int(segment[1]), int(info.size or 0), held_files.get(name))
            if segment[2] is None:
                plain.append(file)
            elif segment[2] == ".swap":
                swaps.append(file)
            else:
                cleaned.append(file.base_offset)
        elif segment or info.type != pafs.FileType.File or not _BESIDE_SEGMENTS.fullmatch(name):
            detail = f"{name!r} is {KINDS[info.type]} that Kafka does not make next to segments; it is not read."
            if segment and not has_offset:
                detail = f"{name!r} is called by an offset that no record can have; it is not read."
            doubts.append(PlacedDoubt("unknown_file", detail, location.child(name).shown, directory.offsets_partition, 0, 0, None))
    # LogLoader.recoverSwapAndCleanedFiles: a swap file at or above a cleaned one is of a split that was not finished
    swaps = [file for file in swaps if not cleaned or file.base_offset < min(cleaned)]
    if swaps:
        low = min(file.base_offset for file in swaps)
        high = max(_end_of(file, directory.offsets_partition) for file in swaps)
        plain = [file for file in plain if not low <= file.base_offset < high]
    files = sorted(plain + swaps, key=lambda file: file.base_offset)
    return _Listing(directory, files, bool(infos), doubts, has_metadata)


def _names_to_hold(directory: _Directory, known_end: int, names: Collection[str]) -> list[str]:
    """Return the first segment, and segments that reach ``known_end``: an incremental run looks for the newest record before it."""
    wanted = names if directory.only is None else directory.only.intersection(names)
    files = sorted(name for name in wanted if SEGMENT_NAME.fullmatch(name) and not name.endswith(".cleaned"))
    ends = [*(int(name[:OFFSET_DIGITS]) for name in files[1:]), None]
    return [name for place, (name, end) in enumerate(zip(files, ends, strict=False)) if place == 0 or end is None or end >= known_end]


def _end_of(file: _LogFile, number: int) -> int:
    """Return the offset after the last record of a single file, or its base offset if it has no record."""
    segment = Segment(file.location.uri, file.size, number, file.base_offset, held=file.held)
    if not file.size:
        return file.base_offset
    _, tail = checked_tail(segment, tail_from_last_bytes(segment, TAIL_BYTES[0]), [])
    return file.base_offset if tail.end_offset is None else tail.end_offset


def _replica_doubt(chosen: _Replica, others: Sequence[_Replica]) -> PlacedDoubt:
    log = chosen.log
    not_read = ", ".join(f"{replica.log.directory} (epoch {replica.leader_epoch}, end {replica.log.end_offset})" for replica in others)
    detail = (
        f"Partition {log.offsets_partition} is read from {log.directory}, whose last leader epoch is {chosen.leader_epoch} "
        f"and whose end offset is {log.end_offset}; not read: {not_read}."
    )
    return PlacedDoubt("replica_chosen", detail, log.directory, log.offsets_partition, 0, 0, None)
