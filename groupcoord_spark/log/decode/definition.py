"""The definition of a batch: read the records of one batch, one after another. ``columnar`` reads many batches at once.

Nothing is copied: keys and values are ranges of the buffer. As for Kafka, a batch counts as a whole or not at all: after a RecordError none
of its records is used.
"""

import zlib
from typing import NamedTuple

from groupcoord_spark.log.damage import BatchError
from groupcoord_spark.log.decode.batches import CODEC_BITS, LEGACY_ATTRIBUTES, LOG_OVERHEAD, MIN_LENGTH
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.wording import counted

MIN_RECORD = 7
"""The smallest record: six bytes of body after one of length."""


class RecordError(BatchError):
    """Raised when a batch or an old message does not have the content that its format demands."""


class ByteRange(NamedTuple):
    """The range of a key or value in its buffer."""

    start: int
    end: int


class Record(NamedTuple):
    """A record of a batch of magic 2; ``key`` and ``value`` are None where null. size: in bytes, with its length."""

    offset_delta: int
    timestamp_delta: int
    key: ByteRange | None
    value: ByteRange | None
    size: int


class LegacyMessage(NamedTuple):
    """A message of magic 0 or 1. offset: as stored, relative inside a compressed message of magic 1. timestamp_ms: -1 for none."""

    offset: int
    timestamp_ms: int
    key: ByteRange | None
    value: ByteRange | None
    size: int


class InnerMessages(NamedTuple):
    """The messages inside a compressed message: their ranges, and whether the last one is cut."""

    places: list[ByteRange]
    is_cut: bool


def _malformed(detail: str) -> RecordError:
    return RecordError("record_malformed", detail)


def read_varint(buf: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Read a zigzag int32 of at most five bytes at ``at``; return it with the position after it. Bits above the 32nd are dropped, as in
    Java.

    Raises RecordError (record_malformed) if the number does not end before ``end`` or within five bytes.
    """
    return _read_zigzag(buf, at, end, 5, 0xFFFFFFFF)


def read_varlong(buf: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Read a zigzag int64 of at most ten bytes at ``at``; return it with the position after it. Raises RecordError as ``read_varint``
    does."""
    return _read_zigzag(buf, at, end, 10, 0xFFFFFFFFFFFFFFFF)


def _read_zigzag(buf: bytes | memoryview, at: int, end: int, most: int, mask: int) -> tuple[int, int]:
    raw = shift = 0
    for here in range(at, at + most):
        if here >= end:
            raise _malformed(f"a varint at byte {at} does not end before byte {end}")
        raw |= (buf[here] & 0x7F) << shift
        if buf[here] < 0x80:
            raw &= mask
            return (raw >> 1) ^ -(raw & 1), here + 1
        shift += 7
    raise _malformed(f"a varint at byte {at} is longer than {most} bytes")


def read_bytes(buf: bytes | memoryview, at: int, end: int) -> tuple[ByteRange | None, int]:
    """Read a byte string with a varint length; return its range, or None for a negative length, and the position after it."""
    length, at = read_varint(buf, at, end)
    if length < 0:
        return None, at
    if length > end - at:
        raise _malformed(f"a field at byte {at} declares {length} bytes, {end - at} remain in its record")
    return ByteRange(at, at + length), at + length


def read_record(buf: bytes | memoryview, at: int, end: int) -> tuple[Record, int]:
    """Read a magic 2 record at ``at``; return it with the position after it. Its headers are checked and dropped.

    Raises RecordError (record_malformed) where the fields do not fill the declared body exactly.
    """
    length, body = read_varint(buf, at, end)
    if length < 0 or length > end - body:
        raise _malformed(f"a record at byte {at} declares {length} bytes, {end - body} remain")
    finish = body + length
    if length == 0:
        raise _malformed(f"the record at byte {at} has no body")
    timestamp_delta, here = read_varlong(buf, body + 1, finish)
    offset_delta, here = read_varint(buf, here, finish)
    key, here = read_bytes(buf, here, finish)
    value, here = read_bytes(buf, here, finish)
    headers, here = read_varint(buf, here, finish)
    if not 0 <= headers <= finish - here:
        raise _malformed(f"the record at byte {at} declares {headers} headers, {finish - here} bytes remain")
    for _ in range(headers):
        name, here = read_bytes(buf, here, finish)
        if name is None:
            raise _malformed(f"a header of the record at byte {at} has no key")
        _, here = read_bytes(buf, here, finish)
    if here != finish:
        raise _malformed(f"the record at byte {at} leaves {finish - here} bytes of its body unused")
    return Record(offset_delta, timestamp_delta, key, value, finish - at), finish


def read_records(buf: bytes | memoryview, at: int, end: int, count: int) -> list[Record]:
    """Read the ``count`` records that fill ``buf[at:end]``, the decompressed part of a magic 2 batch.

    Raises RecordError: record_count_invalid, record_count_impossible, record_malformed, batch_trailing_bytes.
    """
    if count < 0:
        raise RecordError("record_count_invalid", f"the batch claims {count} records")
    if count > (end - at) // MIN_RECORD:
        raise RecordError("record_count_impossible", f"the batch claims {counted(count, 'record')} in {end - at} bytes")
    records = []
    for _ in range(count):
        record, at = read_record(buf, at, end)
        records.append(record)
    if at != end:
        raise RecordError("batch_trailing_bytes", f"{end - at} bytes are left after the {count} records of the batch")
    return records


def read_message(buf: bytes | memoryview, at: int, end: int) -> LegacyMessage:
    """Read the message of magic 0 or 1 that fills ``buf[at:end]``.

    Raises RecordError (legacy_length_invalid) where key and value do not fill it exactly, or a length is below -1.
    """
    magic = buf[at + 16]
    if end - at < LOG_OVERHEAD + MIN_LENGTH[magic]:
        raise RecordError("legacy_length_invalid", f"a message of {end - at} bytes is too short for format {magic}")
    timestamp_ms = _int(buf, at + 18, 8) if magic else NO_TIMESTAMP
    key, here = _read_sized(buf, at + (26 if magic else 18), end)
    value, here = _read_sized(buf, here, end)
    if here != end:
        raise RecordError("legacy_length_invalid", f"{end - here} bytes are left after key and value of the message")
    return LegacyMessage(_int(buf, at, 8), timestamp_ms, key, value, end - at)


def _read_sized(buf: bytes | memoryview, at: int, end: int) -> tuple[ByteRange | None, int]:
    if end - at < 4:
        raise RecordError("legacy_length_invalid", f"{end - at} bytes are left for a length of four")
    length = _int(buf, at, 4)
    at += 4
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise RecordError("legacy_length_invalid", f"a field of the message declares {length} bytes, {end - at} remain")
    return ByteRange(at, at + length), at + length


def read_inner_messages(buf: bytes | memoryview, at: int, end: int) -> InnerMessages:
    """Return the ranges of the messages inside a compressed message, whose decompressed value is ``buf[at:end]``.

    Raises RecordError (wrapper_malformed) if there is no complete message, or if one is too short, compressed itself, or not in an old
    format.
    """
    places: list[ByteRange] = []
    while end - at >= LOG_OVERHEAD:
        length = _int(buf, at + 8, 4)
        if length < MIN_LENGTH[0]:
            raise RecordError("wrapper_malformed", f"the message inside at byte {at} declares {length} bytes, the least is {MIN_LENGTH[0]}")
        end_of_message = at + LOG_OVERHEAD + length
        if end_of_message > end:
            break
        if buf[at + 16] > 1:
            raise RecordError("wrapper_malformed", f"the message inside at byte {at} has format {buf[at + 16]}, not 0 or 1")
        if buf[at + LEGACY_ATTRIBUTES] & CODEC_BITS:
            raise RecordError("wrapper_malformed", f"the message inside at byte {at} is itself compressed")
        places.append(ByteRange(at, end_of_message))
        at = end_of_message
    if not places:
        raise RecordError("wrapper_malformed", "there is no whole message inside")
    return InnerMessages(places, at < end)


def inner_offset_base(buf: bytes | memoryview, inner: InnerMessages, wrapper_magic: int, wrapper_offset: int) -> int:
    """Return the number to add to the offsets of messages inside a compressed message, as Kafka's DeepRecordsIterator does.

    Magic 0: 0, the offsets are absolute. Magic 1: the compressed message has the offset of its last message; where that is 0, nothing is
    added.
    """
    if wrapper_magic == 0 or wrapper_offset == 0:
        return 0
    return wrapper_offset - _int(buf, inner.places[-1].start, 8)


def inner_checksum_fits(buf: bytes | memoryview, place: ByteRange) -> bool:
    """True where the CRC-32 of a message inside a compressed message is right. Kafka never checks it."""
    return zlib.crc32(buf[place.start + 16 : place.end]) == _int(buf, place.start + 12, 4) & 0xFFFFFFFF


def _int(buf: bytes | memoryview, at: int, size: int) -> int:
    return int.from_bytes(buf[at : at + size], "big", signed=True)
