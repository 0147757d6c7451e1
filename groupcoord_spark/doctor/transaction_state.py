"""Reads the log of the coordinator of transactions, where a copy of the log directory has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Segment, read_segment
from groupcoord_spark.log.files.storage import Location
from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.protocol.transaction_state import TransactionState, decode_transaction_state

_PARTITION = re.compile(r"__transaction_state-(0|[1-9][0-9]{0,9})")
_SEGMENT = re.compile(r"([0-9]{20})\.log")


@dataclass(frozen=True, slots=True)
class KnownTransactions:
    """What the coordinator knew.

    by_producer: the newest state with each producer id. newest_timestamp_ms: of all records of the log; -1 for none.
    """

    by_producer: Mapping[int, TransactionState] = field(default_factory=dict)
    newest_timestamp_ms: int = -1


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
    records: dict[bytes, tuple[int, bytes | None]] = {}
    newest = -1
    for directory in {directory.path: directory for directory in directories}.values():
        newest = max(newest, _read(directory, records))
    by_producer: dict[int, TransactionState] = {}
    for key, (_, value) in sorted(records.items(), key=lambda record: record[1][0]):
        with suppress(DecodeError):
            _, state = decode_transaction_state(key, value)
            if state is not None:
                by_producer[state.producer_id] = state
    return KnownTransactions(by_producer, newest)


def _partitions_in(log_dir: Location) -> list[Location]:
    return [log_dir.child(str(info.base_name)) for info in log_dir.list() if _PARTITION.fullmatch(str(info.base_name))]


def _read(directory: Location, newest_records: dict[bytes, tuple[int, bytes | None]]) -> int:
    """Put timestamp and value of the newest record of each key into ``newest_records``, and return the newest timestamp."""
    number = int(directory.name.rsplit("-", 1)[1])
    files = [(int(match[1]), info) for info in directory.list() if (match := _SEGMENT.fullmatch(str(info.base_name))) and info.size]
    newest = -1
    for place, (base_offset, info) in enumerate(files):
        following = files[place + 1][0] if place + 1 < len(files) else None
        for chunk in read_segment(Segment(directory.child(str(info.base_name)).uri, int(info.size), number, base_offset, following)):
            records = chunk.records
            newest = max(newest, int(records.timestamp_ms.max(initial=-1)))
            for row in (records.control_type == NOT_A_CONTROL_RECORD).nonzero()[0].tolist():
                key, timestamp_ms = records.key.row(row) or b"", int(records.timestamp_ms[row])
                if timestamp_ms >= newest_records.get(key, (-1, None))[0]:
                    newest_records[key] = (timestamp_ms, records.value.row(row))
    return newest
