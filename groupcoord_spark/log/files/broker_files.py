"""Reads the files that a broker keeps beside the segments: checkpoints, producer snapshots and transaction indexes.

Each file is optional. A file that is damaged (cut, flipped, written for something else) is not used: a sentence says what is wrong with it.
Whether a sound file fits the segments beside it is a question of ``doctor``. Formats: org.apache.kafka.storage.internals.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from crc32c import crc32c

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.files.listing import LARGEST_OFFSET
from groupcoord_spark.log.files.storage import Location, first_line, side_by_side

OFFSETS_TOPIC: Final = "__consumer_offsets"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
META_PROPERTIES: Final = "meta.properties"
LARGEST_EPOCH: Final = 2**31 - 1

_SEGMENT = re.compile(r"([0-9]{20})\.(log|snapshot|txnindex)")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_ENTRY = "^[^ ]+ (?:0|[1-9][0-9]*) (?:0|[1-9][0-9]*)$"
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_CRC_START = 6
_PRODUCER_ENTRY = struct.Struct(">qhiqiqiq")
_ABORTED_ENTRY = struct.Struct(">hqqqq")
_SNAPSHOT_VERSION = 1
_INDEX_VERSION = 0
_CHECKPOINT_VERSION = 0


class DamagedFileError(ValueError):
    """Raised when a file beside the segments cannot be what its name says. The text is a clause without the name of the file."""


class ProducerState(NamedTuple):
    """What a broker knew of one producer when it wrote a snapshot.

    last_sequence, last_offset: -1 where the producer has written no data. coordinator_epoch: -1 for none.
    transaction_first_offset: the first offset of the open transaction; -1: the producer has none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index. last_stable_offset: of the partition when the ABORT marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SegmentSize(NamedTuple):
    """A segment file by its name. Files of 0 bytes are ordinary: cleaning leaves them, and a new active segment begins so."""

    base_offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of one partition's directory.

    Attributes:
        segments: all ``.log`` files, also empty ones, by base offset.
        snapshots: producer states by the offset in the name of the file: the state before the record at that offset.
        transaction_indexes: aborted transactions by the base offset of the segment.
        leader_epochs: (epoch, first offset); None where the file is not there or damaged.
        damages: a sentence for each file that is damaged.
        damaged_indexes: names of the damaged transaction indexes; a cleaner that reads one stops cleaning the partition.
    """

    segments: tuple[SegmentSize, ...] = ()
    snapshots: dict[int, tuple[ProducerState, ...]] = field(default_factory=dict)
    transaction_indexes: dict[int, tuple[AbortedTransaction, ...]] = field(default_factory=dict)
    leader_epochs: tuple[tuple[int, int], ...] | None = None
    damages: tuple[str, ...] = ()
    damaged_indexes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogDirectoryFiles:
    """The checkpoints of a log directory.

    offsets: name of a checkpoint -> its offset for each offsets partition, of the files that are there and sound; a running broker leaves
    some of them empty. has_cleaner_checkpoint: its file is there, sound or not; a broker makes it when it starts its cleaner. broker_id:
    from meta.properties.
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    has_cleaner_checkpoint: bool = False
    broker_id: int | None = None
    damages: tuple[str, ...] = ()


class Checkpoint(NamedTuple):
    """The offsets in a checkpoint by partition of one topic. damage: a sentence where the checkpoint is not used, else None."""

    offsets: Mapping[int, int]
    damage: str | None = None


def read_checkpoint_of(log_dir: Location, name: str, topic: str = OFFSETS_TOPIC) -> Checkpoint:
    """What the checkpoint of this name says of the partitions of a topic; no offsets where it was not copied.

    Raises InputError where it cannot be read at all.
    """
    location, damages, no_offsets = log_dir.child(name), list[str](), dict[int, int]()
    data = _bytes_of(location) if location.info().type == pafs.FileType.File else None
    offsets = _parsed(location, data or b"", partial(read_offset_checkpoint, topic=topic), damages, or_empty=no_offsets)
    return Checkpoint(offsets or no_offsets, next(iter(damages), None))


def first_epoch_offset(directory: Location) -> int | None:
    """Where the first leader epoch of a partition begins; None where its directory does not tell.

    A broker that moves the log start offset writes the first epoch anew with it (LeaderEpochFileCache.truncateFromStart); a copy that only
    lacks the first segments has an older one. Raises InputError where the file cannot be read at all.
    """
    location, damages = directory.child(LEADER_EPOCHS), list[str]()
    data = _bytes_of(location) if location.info().type == pafs.FileType.File else None
    epochs = _parsed(location, data or b"", read_leader_epochs, damages)
    return epochs[0][1] if epochs else None


def read_log_directory_files(log_dir: Location) -> LogDirectoryFiles:
    """The checkpoints in a broker's log directory. Raises InputError where the directory or a file cannot be read at all."""
    names = {str(info.base_name) for info in log_dir.list() if info.type == pafs.FileType.File}
    damages: list[str] = []
    no_offsets: dict[int, int] = {}
    known = [name for name in (META_PROPERTIES, CLEANER_CHECKPOINT, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS) if name in names]
    contents = dict(zip(known, side_by_side(_bytes_of, map(log_dir.child, known), log_dir.filesystem), strict=True))
    properties = contents.pop(META_PROPERTIES, None) or b""
    broker_id = re.search(rb"^(?:node|broker)\.id\s*=\s*([0-9]{1,10})\s*$", properties, re.MULTILINE)
    offsets: dict[str, dict[int, int]] = {
        name: of_partitions
        for name, data in contents.items()
        if data is not None
        and (of_partitions := _parsed(log_dir.child(name), data, read_offset_checkpoint, damages, or_empty=no_offsets)) is not None
    }
    return LogDirectoryFiles(offsets, CLEANER_CHECKPOINT in names, int(broker_id[1]) if broker_id else None, tuple(damages))


def read_segment_sizes(directory: Location) -> tuple[SegmentSize, ...]:
    """All segment files of one partition, also empty ones, by base offset. Raises InputError where the directory cannot be read."""
    named = ((_named_file(str(info.base_name)), info) for info in directory.list() if info.type == pafs.FileType.File)
    return tuple(sorted(SegmentSize(int(match[1]), int(info.size or 0)) for match, info in named if match and match[2] == "log"))


def read_partition_files(directory: Location) -> PartitionFiles:
    """The files beside the segments of one partition. Raises InputError where the directory or a file cannot be read at all."""
    segments: list[SegmentSize] = []
    beside: list[tuple[str, re.Match[str] | None]] = []
    for info in directory.list():
        name = str(info.base_name)
        if info.type != pafs.FileType.File:
            continue
        match = _named_file(name)
        if match is not None and match[2] == "log":
            segments.append(SegmentSize(int(match[1]), int(info.size or 0)))
        elif match is not None or name == LEADER_EPOCHS:
            beside.append((name, match))
    # there is a snapshot for each segment: an object store answers many requests in the time of one
    contents = side_by_side(_bytes_of, (directory.child(name) for name, _ in beside), directory.filesystem)
    snapshots: dict[int, tuple[ProducerState, ...]] = {}
    indexes: dict[int, tuple[AbortedTransaction, ...]] = {}
    leader_epochs = None
    damages: list[str] = []
    damaged_indexes: list[str] = []
    no_aborts: tuple[AbortedTransaction, ...] = ()
    for (name, match), data in zip(beside, contents, strict=True):
        location = directory.child(name)
        if data is None:
            continue
        if match is None:
            leader_epochs = _parsed(location, data, read_leader_epochs, damages)
        elif match[2] == "snapshot":
            states = _parsed(location, data, partial(read_snapshot, end_offset=int(match[1])), damages)
            if states is not None:
                snapshots[int(match[1])] = states
        else:
            base_offset = int(match[1])
            aborted = _parsed(location, data, partial(read_transaction_index, base_offset=base_offset), damages, or_empty=no_aborts)
            if aborted is None:
                damaged_indexes.append(name)
            else:
                indexes[base_offset] = aborted
    return PartitionFiles(tuple(segments), snapshots, indexes, leader_epochs, tuple(damages), tuple(damaged_indexes))


def read_whole_checkpoint(location: Location, damages: list[str]) -> pa.Table | None:
    """The offsets of all partitions in a checkpoint file, as ``read_checkpoint`` returns them; None where the file is empty or damaged.

    damages: gets a sentence about a damaged file. Raises InputError where the file cannot be read at all.
    """
    return _parsed(location, _bytes_of(location) or b"", read_checkpoint, damages)


Read = TypeVar("Read")


def _bytes_of(location: Location) -> bytes | None:
    """The content of a file that was in a list; None where it is gone since: a running broker removes files with their segments."""
    try:
        with location.filesystem.open_input_stream(location.path) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{location.shown}: the file cannot be read: {first_line(error)}. Check its permissions.") from error


def _parsed(
    location: Location, data: bytes, parse: Callable[[bytes], Read], damages: list[str], *, or_empty: Read | None = None
) -> Read | None:
    """What ``parse`` makes of the bytes of the file. No bytes give ``or_empty``: a running broker leaves some files empty."""
    if not data:
        return or_empty
    try:
        return parse(data)
    except DamagedFileError as error:
        damages.append(f"{location.shown} is damaged and not used: {error}.")
        return None


def read_offset_checkpoint(data: bytes, topic: str = OFFSETS_TOPIC) -> dict[int, int]:
    """Offset by partition of a topic, from the content of a checkpoint. Raises DamagedFileError."""
    offsets = read_checkpoint(data)
    of_topic = offsets.filter(pc.equal(offsets["topic"], topic))
    return dict(zip(of_topic["partition"].to_pylist(), of_topic["offset"].to_pylist(), strict=True))


def read_checkpoint(data: bytes) -> pa.Table:
    """The offsets of all partitions in a checkpoint: topic, partition and offset.

    The content is the version, the number of entries, then ``topic partition offset`` on each line. Raises DamagedFileError.
    """
    lines = pa.chunked_array([pa.array(_checkpoint_lines(data), pa.string())])
    is_entry = pc.match_substring_regex(lines, _ENTRY)
    if (first_other := pc.index(is_entry, False).as_py()) >= 0:
        raise DamagedFileError(f"the line {lines[first_other].as_py()!r} is not a topic, a partition and an offset")
    words = pc.list_flatten(pc.split_pattern(lines, " ")).combine_chunks()
    topics, partitions, offsets = (words[place::3] for place in range(3))
    try:
        entries = pa.table({"topic": topics, "partition": partitions.cast(pa.int32()), "offset": offsets.cast(pa.int64())})
    except pa.ArrowInvalid as error:
        raise DamagedFileError(f"a number in it is too large: {first_line(error)}") from None
    counts = entries.group_by(["topic", "partition"]).aggregate([([], "count_all")])
    if counts.num_rows < entries.num_rows:
        twice = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1).to_pylist()[0]
        raise DamagedFileError(f"{twice['topic']}-{twice['partition']} stands in it twice")
    return entries


def read_leader_epochs(data: bytes) -> tuple[tuple[int, int], ...]:
    """(epoch, first offset) in rising order. Raises DamagedFileError."""
    epochs: list[tuple[int, int]] = []
    for line in _checkpoint_lines(data):
        words = line.split(" ")
        if len(words) != 2 or not all(_NUMBER.fullmatch(word) for word in words):
            raise DamagedFileError(f"the line {line[:60]!r} is not a leader epoch and an offset")
        epoch, first_offset = int(words[0]), int(words[1])
        if epoch > LARGEST_EPOCH or first_offset > LARGEST_OFFSET:
            raise DamagedFileError(f"the line {line!r} has a number out of range")
        if epochs and (epoch <= epochs[-1][0] or first_offset < epochs[-1][1]):
            raise DamagedFileError(f"epoch {epoch} at offset {first_offset} follows epoch {epochs[-1][0]} at offset {epochs[-1][1]}")
        epochs.append((epoch, first_offset))
    return tuple(epochs)


def _named_file(name: str) -> re.Match[str] | None:
    """The match of _SEGMENT where a file of this name can belong to a log."""
    match = _SEGMENT.fullmatch(name)
    return match if match is not None and int(match[1]) <= LARGEST_OFFSET else None


def _checkpoint_lines(data: bytes) -> Sequence[str]:
    """The entries of a checkpoint after its version and its count."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise DamagedFileError("it is not text") from None
    if not text.endswith("\n"):
        raise DamagedFileError("its last line is cut off")
    lines = text[:-1].split("\n")
    if lines[0] != str(_CHECKPOINT_VERSION):
        raise DamagedFileError(f"its version is {lines[0][:20]!r} instead of {_CHECKPOINT_VERSION}")
    if len(lines) < 2 or not _NUMBER.fullmatch(lines[1]):
        raise DamagedFileError("it has no count of entries")
    if len(lines) - 2 != int(lines[1]):
        raise DamagedFileError(f"it says that it has {lines[1]} entries, and {len(lines) - 2} are there")
    return lines[2:]


def read_snapshot(data: bytes, end_offset: int) -> tuple[ProducerState, ...]:
    """The producer states in a snapshot, by producer id as stored.

    end_offset: from the name of the file; the snapshot has the state before that offset. Raises DamagedFileError.
    """
    if len(data) < _SNAPSHOT_HEADER.size:
        raise DamagedFileError(f"it has {len(data)} bytes, too few for the header of a snapshot")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise DamagedFileError(f"its version is {version} instead of {_SNAPSHOT_VERSION}")
    if crc32c(data[_SNAPSHOT_CRC_START:]) != crc:
        raise DamagedFileError("its checksum does not fit")
    if count < 0 or _SNAPSHOT_HEADER.size + count * _PRODUCER_ENTRY.size != len(data):
        raise DamagedFileError(f"it says that it has {count} producers, which is not what {len(data)} bytes hold")
    states = tuple(ProducerState(*entry) for entry in _PRODUCER_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :]))
    for state in states:
        if state.last_offset >= end_offset or state.transaction_first_offset >= end_offset:
            raise DamagedFileError(f"producer {state.producer_id} has written at or after offset {end_offset}, where the snapshot ends")
    return states


def read_transaction_index(data: bytes, base_offset: int) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions in the index of a segment, in the order of their markers.

    base_offset: of the segment. Raises DamagedFileError.
    """
    if len(data) % _ABORTED_ENTRY.size:
        raise DamagedFileError(f"it has {len(data)} bytes, which is no multiple of the {_ABORTED_ENTRY.size} bytes of an entry")
    aborted: list[AbortedTransaction] = []
    for number, (version, *entry) in enumerate(_ABORTED_ENTRY.iter_unpack(data)):
        transaction = AbortedTransaction(*entry)
        if version != _INDEX_VERSION:
            raise DamagedFileError(f"the version of entry {number} is {version} instead of {_INDEX_VERSION}")
        if not 0 <= transaction.first_offset <= transaction.last_offset or transaction.producer_id < 0:
            raise DamagedFileError(
                f"entry {number} says that producer {transaction.producer_id} wrote from offset {transaction.first_offset} to"
                f" {transaction.last_offset}"
            )
        if transaction.last_offset < base_offset or not 0 <= transaction.last_stable_offset <= transaction.last_offset + 1:
            raise DamagedFileError(
                f"entry {number} ends at offset {transaction.last_offset} with the last stable offset {transaction.last_stable_offset},"
                f" in the index of the segment at {base_offset}"
            )
        if aborted and transaction.last_offset <= aborted[-1].last_offset:
            raise DamagedFileError(f"entry {number} ends at offset {transaction.last_offset}, not after the entry before it")
        aborted.append(transaction)
    return tuple(aborted)
