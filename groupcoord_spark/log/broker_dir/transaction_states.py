"""Read the log of the coordinator of transactions, where a copy of the log directory has it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.broker_dir.internal_logs import read_logs
from groupcoord_spark.log.broker_dir.log_directories import LogDirectories, LogDirectory
from groupcoord_spark.log.partition_count import best_partition_count
from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.partitioner import partitioning_hash
from groupcoord_spark.protocol.transaction_state import TransactionState, decode_transaction_state
from groupcoord_spark.storage.location import Location

TRANSACTION_TOPIC: Final = "__transaction_state"


@dataclass(frozen=True, slots=True)
class KnownTransactions:
    """What the coordinator knew.

    Attributes:
        by_producer: the newest state with each producer id.
        newest_timestamp_ms: of all records of the log; -1 for none.
        is_complete: all partitions of the log are there and could be read, so that the coordinator knows no other producer.
        damages: a sentence about each file that is not read.
    """

    by_producer: Mapping[int, TransactionState] = field(default_factory=dict)
    newest_timestamp_ms: int = -1
    is_complete: bool = False
    damages: tuple[str, ...] = ()


class _Record(NamedTuple):
    """partition: of ``__transaction_state``."""

    timestamp_ms: int
    value: bytes | None
    partition: int


def read_transaction_states(log_dirs: Iterable[Location], named: str | None = None) -> KnownTransactions:
    """Read the states in the partitions of ``__transaction_state``.

    Args:
        log_dirs: log directories of brokers.
        named: a directory with such partitions, or one of them, that the user names.
    Raises:
        InputError: ``named`` has no such partition, or a directory cannot be listed.
    """
    directories = [LogDirectory.listed(log_dir) for log_dir in log_dirs]
    if named is not None:
        directories.append(_named_directory(Location.of(named)))
    return transaction_states_in(LogDirectories(directories))


def _named_directory(location: Location) -> LogDirectory:
    if location.info().type != pafs.FileType.Directory:
        raise InputError(f"{location.shown}: there is no such directory.")
    topic, _, number = location.name.rpartition("-")
    if topic == TRANSACTION_TOPIC and number.isdecimal():
        return LogDirectory(location.parent(), {}, {(TRANSACTION_TOPIC, int(number)): location})
    directory = LogDirectory.listed(location)
    if not any(name == TRANSACTION_TOPIC for name, _ in directory.partitions):
        raise InputError(f"{location.shown}: no partition of {TRANSACTION_TOPIC} is in it, such as {TRANSACTION_TOPIC}-0.")
    return directory


def transaction_states_in(directories: LogDirectories) -> KnownTransactions:
    """Read the states in the partitions of ``__transaction_state``.

    A sentence about each file that is not read is added to the damages of the directories.
    """
    numbers = {number for directory in directories.directories for topic, number in directory.partitions if topic == TRANSACTION_TOPIC}
    known_damages = len(directories.damages)
    records: dict[bytes, _Record] = {}
    newest, first_files = -1, set[int]()
    for log, rows in read_logs(directories, TRANSACTION_TOPIC):
        if min(log.files, default=None) == 0:  # the log is compacted, never cut: its first segment stays
            first_files.add(log.offsets_partition)
        for row in rows:
            if not isinstance(row, int):
                newest, key = max(newest, row.timestamp_ms), row.key or b""
                if key not in records or row.timestamp_ms >= records[key].timestamp_ms:
                    records[key] = _Record(row.timestamp_ms, row.value, log.offsets_partition)
    damages = tuple(damage.sentence for damage in directories.damages[known_damages:])
    is_whole = first_files == numbers and not damages
    by_producer: dict[int, TransactionState] = {}
    placed: list[tuple[int, int]] = []
    for key, record in sorted(records.items(), key=lambda item: item[1].timestamp_ms):
        try:
            transactional_id, state = decode_transaction_state(key, record.value)
        except DecodeError:
            is_whole = False
            continue
        placed.append((partitioning_hash(transactional_id), record.partition))
        if state is not None:
            by_producer[state.producer_id] = state
    count = len(numbers)
    # No file has the partition count, so it is derived from the partitions of the transactional ids.
    fits = numbers == set(range(count)) and all(number % count == partition for number, partition in placed)
    is_complete = is_whole and fits and count > 0 and best_partition_count(placed, count) == count
    return KnownTransactions(by_producer, newest, is_complete, damages)
