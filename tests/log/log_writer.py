"""Writes entries of every format, right or deliberately wrong, for the tests of this room."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import lz4.frame
import pyarrow as pa
import zstandard
from crc32c import crc32c

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
T0 = 1_700_000_000_000


@dataclass(frozen=True)
class Rec:
    """A record to be written; ``headers`` are (key, value) pairs."""

    key: bytes | None = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
    value: bytes | None = b"value"
    offset_delta: int = 0
    timestamp_delta: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def varint(number: int) -> bytes:
    """Zigzag, as short as it goes."""
    raw = (number << 1) ^ (number >> 63)
    raw &= 2**64 - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def sized(text: bytes | None) -> bytes:
    return varint(-1) if text is None else varint(len(text)) + text


def record(rec: Rec) -> bytes:
    body = b"\x00" + varint(rec.timestamp_delta) + varint(rec.offset_delta) + sized(rec.key) + sized(rec.value)
    body += varint(len(rec.headers)) + b"".join(sized(key) + sized(value) for key, value in rec.headers)
    return varint(len(body)) + body


def records(*keys: bytes) -> list[Rec]:
    """Return one record per key, with the deltas that a broker gives."""
    return [Rec(key=key, offset_delta=i, timestamp_delta=i) for i, key in enumerate(keys)]


def compress(codec: int, plain: bytes) -> bytes:
    """As Kafka's clients and brokers do."""
    if codec == GZIP:
        return gzip.compress(plain, mtime=0)
    if codec == SNAPPY:
        block: bytes = pa.Codec("snappy").compress(plain, asbytes=True)
        return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        frame: bytes = lz4.frame.compress(plain, store_size=False, block_linked=False)
        return frame
    if codec == ZSTD:
        return zstandard.ZstdCompressor(write_content_size=False).compress(plain)
    return plain


def batch(
    base_offset: int,
    recs: Sequence[Rec] = (Rec(),),
    *,
    codec: int = 0,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = T0,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
    count: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """Return a record batch of magic 2. ``body`` replaces the (compressed) records; ``count`` what the header says of them."""
    if body is None:
        plain = b"".join(record(rec) for rec in recs)
        body = compress(codec, plain) if recs else plain
    if last_offset_delta is None:
        last_offset_delta = max((rec.offset_delta for rec in recs), default=0)
    if max_timestamp is None:
        max_timestamp = base_timestamp + max((rec.timestamp_delta for rec in recs), default=0) if recs else -1
    under_crc = struct.pack(
        ">HiqqqhiI",
        attributes | codec,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        (len(recs) if count is None else count) & 0xFFFFFFFF,
    )
    under_crc += body
    return struct.pack(">qiibI", base_offset, len(under_crc) + 9, leader_epoch, 2, crc32c(under_crc)) + under_crc


def marker(base_offset: int, kind: int = 1, *, producer_id: int = 4000, key: bytes | None = None, value: bytes | None = None) -> bytes:
    """Return a control batch; kind 0 aborts, 1 commits."""
    key = struct.pack(">hh", 0, kind) if key is None else key
    value = struct.pack(">hi", 0, 11) if value is None else value
    return batch(base_offset, [Rec(key, value)], attributes=0x30, producer_id=producer_id, producer_epoch=3)


def message(offset: int, key: bytes | None, value: bytes | None, *, magic: int = 1, attributes: int = 0, timestamp: int = T0) -> bytes:
    """Return a message of magic 0 or 1."""
    fields = struct.pack(">i", -1 if key is None else len(key)) + (key or b"")
    fields += struct.pack(">i", -1 if value is None else len(value)) + (value or b"")
    return raw_message(offset, fields, magic=magic, attributes=attributes, timestamp=timestamp)


def raw_message(offset: int, fields: bytes, *, magic: int = 1, attributes: int = 0, timestamp: int = T0) -> bytes:
    """Return a message whose key and value, with their lengths, are given as bytes."""
    under_crc = struct.pack(">bB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"") + fields
    return struct.pack(">qiI", offset, len(under_crc) + 4, zlib.crc32(under_crc)) + under_crc


def wrapper(
    inner: Iterable[bytes], *, offset: int, codec: int = GZIP, magic: int = 1, attributes: int = 0, timestamp: int = T0, tail: bytes = b""
) -> bytes:
    """Return a compressed message that holds ``inner`` (and ``tail``); ``offset`` belongs to the wrapper itself."""
    stream = compress(codec, b"".join(inner) + tail)
    if magic == 0 and codec == LZ4:
        stream = stream[:6] + b"\x1a" + stream[7:]
    return message(offset, None, stream, magic=magic, attributes=attributes | codec, timestamp=timestamp)


def write_segment(directory: Path, entries: Iterable[bytes], *, base_offset: int = 0, offsets_partition: int = 0) -> Path:
    """Return a segment file in a partition's directory under ``directory``."""
    folder = directory / f"__consumer_offsets-{offsets_partition}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(entries))
    return path
