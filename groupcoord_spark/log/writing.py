"""Writes segments as a broker does: batches of magic 2, one file for each partition."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.decode.batches import CONTROL, TRANSACTIONAL
from groupcoord_spark.log.decode.compression import compress
from groupcoord_spark.protocol.primitives import write_uvarint
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_MAGIC = 2
_COORDINATOR_EPOCH = 0


class RecordToLog(NamedTuple):
    """A key, a value (None: a tombstone) and the time of the append."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one append. Their offsets begin at ``base_offset``. A transaction marker is a batch of its own, with is_control."""

    base_offset: int
    records: tuple[RecordToLog, ...]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False
    is_control: bool = False
    base_sequence: int = -1
    codec: int = 0
    """One of ``compression.CODECS``."""


def marker(control_type: int, timestamp_ms: int) -> RecordToLog:
    """Return the record of a control batch that ends a transaction: see MarkerType."""
    return RecordToLog(struct.pack(">hh", 0, control_type), struct.pack(">hi", 0, _COORDINATOR_EPOCH), timestamp_ms)


def batch_bytes(batch: Batch) -> bytes:
    """Return the bytes of a magic 2 batch with its CRC-32C. Raises ValueError for a batch without records."""
    if not batch.records:
        raise ValueError(f"the batch at offset {batch.base_offset} has no records")
    base_timestamp_ms = batch.records[0].timestamp_ms
    attributes = batch.codec | (TRANSACTIONAL if batch.is_transactional else 0) | (CONTROL if batch.is_control else 0)
    under_crc = struct.pack(
        ">hiqqqhii",
        attributes,
        len(batch.records) - 1,
        base_timestamp_ms,
        max(record.timestamp_ms for record in batch.records),
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(batch.records),
    )
    under_crc += compress(batch.codec, b"".join(_record(record, delta, base_timestamp_ms) for delta, record in enumerate(batch.records)))
    leader_epoch = 0
    head = struct.pack(">ibI", leader_epoch, _MAGIC, crc32c(under_crc))
    return struct.pack(">qi", batch.base_offset, len(head) + len(under_crc)) + head + under_crc


def write_segment(directory: Path, offsets_partition: int, batches: Iterable[Batch]) -> Path:
    """Writes the batches as the only segment of a partition. Returns the path of the segment.

    Args:
        directory: the directory of the dump.
        batches: in the order of their offsets.

    Raises:
        FileExistsError: the segment is there already.
        ValueError: without a batch.
    """
    given = list(batches)
    if not given:
        raise ValueError(f"partition {offsets_partition} has no batch")
    folder = directory / f"{OFFSETS_TOPIC}-{offsets_partition}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{given[0].base_offset:020d}.log"
    with path.open("xb") as file:
        file.writelines(map(batch_bytes, given))
    return path


def _record(record: RecordToLog, offset_delta: int, base_timestamp_ms: int) -> bytes:
    attributes = no_headers = b"\0"
    body = attributes + _varint(record.timestamp_ms - base_timestamp_ms) + _varint(offset_delta)
    body += _sized(record.key) + _sized(record.value) + no_headers
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Encode a zigzag varint of at most ten bytes."""
    return write_uvarint((number << 1) ^ (number >> 63))
