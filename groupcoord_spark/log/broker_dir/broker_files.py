"""Read the files that a broker keeps next to the segments: properties, checkpoints, producer snapshots and transaction indexes.

Only this module opens them. Each file is optional. A file that is damaged (cut, flipped, written for something else), too large, or not a
regular file is not used, and a sentence says why. ``doctor`` checks whether a valid file fits the segments next to it. Formats:
org.apache.kafka.storage.internals.
"""

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
from groupcoord_spark.log.listing import KINDS, LARGEST_OFFSET
from groupcoord_spark.storage.location import Location, first_line, side_by_side

OFFSETS_TOPIC: Final = "__consumer_offsets"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
LARGEST_EPOCH: Final = 2**31 - 1
SIDE_FILE_BYTES: Final = 32 << 20
"""A larger side file is not read. One of this size holds 119,000 partitions with names of the greatest length, 729,000 producers, or the
986,000 aborted transactions of a segment. Parsed, it takes less than a gigabyte."""

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
    """Raised when a side file cannot be what its name says. The text is a clause without the name of the file."""


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
    some of them empty. has_cleaner_checkpoint: its file is there, valid or not; a broker makes it when it starts its cleaner. broker_id:
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
    """Return the offsets of a topic's partitions in this checkpoint; none if it was not copied.

    Raises InputError where it cannot be read at all.
    """
    location, damages, no_offsets = log_dir.child(name), list[str](), dict[int, int]()
    info = location.info()
    if info.type == pafs.FileType.NotFound:
        return Checkpoint(no_offsets)
    offsets = _read(location, info, partial(read_offset_checkpoint, topic=topic), damages, or_empty=no_offsets)
    return Checkpoint(offsets or no_offsets, next(iter(damages), None))


def leader_epochs_in(directory: Location) -> tuple[tuple[int, int], ...]:
    """Return (epoch, first offset) of the leader epochs of a partition; () where its checkpoint is missing or damaged.

    A broker that moves the log start offset rewrites the first epoch with it (LeaderEpochFileCache.truncateFromStart); a copy that only
    lacks the first segments has an older one. Raises InputError if the file cannot be read at all.
    """
    location = directory.child(LEADER_EPOCHS)
    return _read(location, location.info(), read_leader_epochs, []) or ()


def read_fields(location: Location, separator: str) -> dict[str, str]:
    """Return the fields of a text file with one field on each line, such as meta.properties; none if there is no such regular file.

    Raises InputError if the file cannot be read or has more than SIDE_FILE_BYTES.
    """
    if location.info().type != pafs.FileType.File:
        return {}
    data = _bytes_of(location) or b""
    if len(data) > SIDE_FILE_BYTES:
        raise InputError(f"{location.shown}: {_TOO_LARGE}. Copy the file again, or take it away.")
    fields = (line.partition(separator) for line in data.decode("utf-8", "replace").splitlines())
    return {name.strip(): value.strip() for name, mark, value in fields if mark}


def read_log_directory_files(log_dir: Location) -> LogDirectoryFiles:
    """Return the checkpoints in a broker's log directory. Raises InputError if the directory or a file cannot be read at all."""
    infos = {str(info.base_name): info for info in log_dir.list()}
    properties = read_fields(log_dir.child(META_PROPERTIES), "=") if META_PROPERTIES in infos else {}
    broker_id = properties.get("node.id") or properties.get("broker.id") or ""
    known = [name for name in (CLEANER_CHECKPOINT, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS) if name in infos]

    def read(name: str) -> tuple[dict[int, int] | None, list[str]]:
        damages, no_offsets = list[str](), dict[int, int]()
        return _read(log_dir.child(name), infos[name], read_offset_checkpoint, damages, or_empty=no_offsets), damages

    checkpoints = dict(zip(known, side_by_side(read, known, log_dir.filesystem), strict=True))
    return LogDirectoryFiles(
        {name: offsets for name, (offsets, _) in checkpoints.items() if offsets is not None},
        CLEANER_CHECKPOINT in infos and infos[CLEANER_CHECKPOINT].type == pafs.FileType.File,
        int(broker_id) if re.fullmatch("[0-9]{1,10}", broker_id) else None,
        tuple(damage for _, damages in checkpoints.values() for damage in damages),
    )


def read_segment_sizes(directory: Location) -> tuple[SegmentSize, ...]:
    """Return all segment files of one partition, including empty ones, by base offset. Raises InputError if the directory cannot be
    read."""
    named = ((_named_file(str(info.base_name)), info) for info in directory.list() if info.type == pafs.FileType.File)
    return tuple(sorted(SegmentSize(int(match[1]), int(info.size or 0)) for match, info in named if match and match[2] == "log"))


def read_partition_files(directory: Location) -> PartitionFiles:
    """Read the files next to one partition's segments. Raises InputError if the directory or a file cannot be read at all."""
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


def read_whole_checkpoint(location: Location, info: pafs.FileInfo, damages: list[str]) -> pa.Table | None:
    """Return the offsets of all partitions in a checkpoint file, as ``read_checkpoint`` does; None if the file is empty or damaged.

    Args:
        info: of the file, from a list of its directory.
        damages: gets a sentence about a damaged file.
    Raises:
        InputError: The file cannot be read at all.
    """
    return _read(location, info, read_checkpoint, damages)


Read = TypeVar("Read")

_TOO_LARGE: Final = f"it has more than {SIDE_FILE_BYTES:,} bytes, which no such file needs"


def _bytes_of(location: Location) -> bytes | None:
    """Return the content of a listed regular file up to one byte more than SIDE_FILE_BYTES.

    None: the file is gone since it was listed. A running broker removes files with their segments.
    """
    try:
        with location.filesystem.open_input_stream(location.path) as stream:
            return bytes(stream.read(SIDE_FILE_BYTES + 1))
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{location.shown}: the file cannot be read: {first_line(error)}. Check its permissions.") from error


def _read(
    location: Location, info: pafs.FileInfo, parse: Callable[[bytes], Read], damages: list[str], *, or_empty: Read | None = None
) -> Read | None:
    """Read and parse a file that is there. See ``_parsed`` for the arguments."""
    if info.type != pafs.FileType.File:
        damages.append(f"{location.shown} is {KINDS[info.type]} and not used.")
        return None
    data = _bytes_of(location)
    return None if data is None else _parsed(location, data, parse, damages, or_empty=or_empty)


def _parsed(
    location: Location, data: bytes, parse: Callable[[bytes], Read], damages: list[str], *, or_empty: Read | None = None
) -> Read | None:
    """Return the parsed bytes of a file, or None and a sentence in ``damages`` if the file is damaged or too large.

    No bytes give ``or_empty``: a running broker leaves some files empty.
    """
    if not data:
        return or_empty
    try:
        if len(data) > SIDE_FILE_BYTES:
            raise DamagedFileError(_TOO_LARGE)
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
    """Return the offsets of all partitions in a checkpoint: topic, partition and offset.

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
    """Return the match of _SEGMENT if a file of this name can belong to a log."""
    match = _SEGMENT.fullmatch(name)
    return match if match is not None and int(match[1]) <= LARGEST_OFFSET else None


def _checkpoint_lines(data: bytes) -> Sequence[str]:
    """Return the entries of a checkpoint after its version and count."""
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
    """Return the producer states in a snapshot, by producer id as stored.

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
    """Return the aborted transactions in a segment's index, in the order of their markers.

    base_offset: of the segment. Raises DamagedFileError.
    """
    if len(data) % _ABORTED_ENTRY.size:
        raise DamagedFileError(f"it has {len(data)} bytes, which is not a multiple of the {_ABORTED_ENTRY.size} bytes of an entry")
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
