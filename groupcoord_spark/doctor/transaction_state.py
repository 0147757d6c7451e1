"""Reads the log of the coordinator of transactions, where a copy of the log directory has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Segment, read_segment
from groupcoord_spark.log.files.storage import Location
from groupcoord_spark.log.partition_count import best_partition_count
from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.partitioner import partitioning_hash
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.protocol.transaction_state import TransactionState, decode_transaction_state

_PARTITION = re.compile(r"__transaction_state-(0|[1-9][0-9]{0,9})")
_SEGMENT = re.compile(r"([0-9]{20})\.log")


@dataclass(frozen=True, slots=True)
class KnownTransactions:
    """What the coordinator knew.

    Attributes:
        by_producer: the newest state with each producer id.
        newest_timestamp_ms: of all records of the log; -1 for none.
        is_complete: all partitions of the log are there and could be read, so that the coordinator knows no other producer.
    """

    by_producer: Mapping[int, TransactionState] = field(default_factory=dict)
    newest_timestamp_ms: int = -1
    is_complete: bool = False


class _Record(NamedTuple):
    """partition: of ``__transaction_state``."""

    timestamp_ms: int
    value: bytes | None
    partition: int


def read_transaction_states(log_dirs: Iterable[Location], named: str | None = None) -> KnownTransactions:
    """The states in the partitions of ``__transaction_state`` in the log directories, and in the directory that the user names.

    Raises InputError where ``named`` has no such partition, or a file cannot be read.
    """
    directories = [directory for log_dir in log_dirs for directory in _partitions_in(log_dir)]
    if named is not None:
        location = Location.of(named)
        if location.info().type != pafs.FileType.Directory:
            raise InputError(f"{location.shown}: there is no such directory.")
        of_named = [location] if _PARTITION.fullmatch(location.name) else _partitions_in(location)
        if not of_named:
            raise InputError(f"{location.shown}: no partition of __transaction_state is in it, such as __transaction_state-0.")
        directories += of_named
    records: dict[bytes, _Record] = {}
    newest, is_whole = -1, True
    for directory in {directory.path: directory for directory in directories}.values():
        newest_here, is_read = _read(directory, records)
        newest, is_whole = max(newest, newest_here), is_whole and is_read
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
    numbers = {_number(directory) for directory in directories}
    count = len(numbers)
    # no file has the number of partitions: the partitions in which the transactional ids are show it
    fits = numbers == set(range(count)) and all(number % count == partition for number, partition in placed)
    is_complete = is_whole and fits and count > 0 and best_partition_count(placed, count) == count
    return KnownTransactions(by_producer, newest, is_complete)


def _partitions_in(log_dir: Location) -> list[Location]:
    return [log_dir.child(str(info.base_name)) for info in log_dir.list() if _PARTITION.fullmatch(str(info.base_name))]


def _number(directory: Location) -> int:
    return int(directory.name.rsplit("-", 1)[1])


def _read(directory: Location, newest_records: dict[bytes, _Record]) -> tuple[int, bool]:
    """Put the newest record of each key into ``newest_records``.

    Returns the newest timestamp, and whether all of the partition could be read.
    """
    number = _number(directory)
    files = [(int(match[1]), info) for info in directory.list() if (match := _SEGMENT.fullmatch(str(info.base_name)))]
    newest, is_whole = -1, bool(files) and files[0][0] == 0  # the log is compacted, never cut: its first segment stays
    for place, (base_offset, info) in enumerate(files):
        following = files[place + 1][0] if place + 1 < len(files) else None
        for chunk in read_segment(Segment(directory.child(str(info.base_name)).uri, int(info.size), number, base_offset, following)):
            records, is_whole = chunk.records, is_whole and not chunk.lost
            newest = max(newest, int(records.timestamp_ms.max(initial=-1)))
            for row in (records.control_type == NOT_A_CONTROL_RECORD).nonzero()[0].tolist():
                key, timestamp_ms = records.key.row(row) or b"", int(records.timestamp_ms[row])
                if key not in newest_records or timestamp_ms >= newest_records[key].timestamp_ms:
                    newest_records[key] = _Record(timestamp_ms, records.value.row(row), number)
    return newest, is_whole
