"""Harm done to real entries on purpose: to the bytes of a file, to batches whose checksum is right, to single keys and values.

What ``tests.log.damages`` does leaves checksums wrong, so most of it ends at the batch. Here the checksum is made right again: a broker
with a fault of its own, or somebody who means it, writes such batches.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crc32c import crc32c

from groupcoord_spark.log.decode.compression import Decompressor
from tests.log.damages import KINDS as HARMS
from tests.log.damages import harm
from tests.log.log_writer import GZIP, SNAPPY, ZSTD, compress, message, sized, varint

HEADER = 61
LIMITS = {"BATCH_BYTES": 1 << 20, "DECOMPRESSED_FLOOR": 1 << 20, "DECOMPRESSED_CAP": 1 << 22}
"""Smaller than those of ``log.limits``, so that a bomb is small too and memory can be bounded tightly."""

MAY_MISPLACE = {"bit of an offset flipped", "false offset", "two swapped", "neighbours swapped"}
EVIL_SHORTS = (0, 1, -1, -2, 32767, -32768, 255, 4, 24)
EVIL_INTS = (0, -1, -2, 2**31 - 1, -(2**31), 65536, 2**24)
EVIL_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x08",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80",
)
BAD_TEXT = (b"\xc0\x80", b"\xed\xa0\x80", b"\xff\xfe", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x00", "\U0001f600".encode())


@dataclass(frozen=True)
class Mutation:
    """A damaged file, and the entries that must be left of it.

    untouched: entries whose bytes are all there. spared: how many of these may miss records all the same, because the damage makes the
    true order of offsets doubtful, or because a later record claims the offset of one of theirs: then that is read, as a broker would.
    touched_records: places (entry, how manieth) of records that were changed in entries which are otherwise whole; None: nothing is
    promised of the entries that are not untouched.
    """

    data: bytes
    untouched: frozenset[int]
    spared: int = 0
    touched_records: frozenset[tuple[int, int]] | None = None


@dataclass(frozen=True)
class Written:
    """A record as a batch holds it; headers as bytes, with their count."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: bytes

    def encoded(self) -> bytes:
        body = b"\0" + varint(self.timestamp_delta) + varint(self.offset_delta) + sized(self.key) + sized(self.value) + self.headers
        return varint(len(body)) + body


def magic_of(entry: bytes) -> int:
    return entry[16]


def sealed(entry: bytes) -> bytes:
    """Return the entry with a length and a checksum that are right."""
    body = bytearray(entry)
    struct.pack_into(">i", body, 8, len(body) - 12)
    if magic_of(entry) == 2:
        struct.pack_into(">I", body, 17, crc32c(bytes(body[21:])))
    else:
        struct.pack_into(">I", body, 12, zlib.crc32(bytes(body[16:])))
    return bytes(body)


def payload_of(entry: bytes) -> bytes:
    """Return the records of a batch, decompressed."""
    codec = entry[22] & 7
    return Decompressor().decompress(codec, entry[HEADER:], magic=2) if codec else entry[HEADER:]


def with_payload(entry: bytes, payload: bytes, codec: int | None = None) -> bytes:
    """Return the batch with other records, in its own codec unless another is given."""
    codec = entry[22] & 7 if codec is None else codec
    attributes = entry[22] & ~7 | codec
    packed = compress(codec, payload) if codec else payload
    return sealed(entry[:22] + bytes([attributes]) + entry[23:HEADER] + packed)


def written_in(entry: bytes) -> list[Written]:
    """Return the records of a batch that is whole."""
    data, at = payload_of(entry), 0
    found: list[Written] = []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)

    def text() -> bytes | None:
        nonlocal at
        size = number()
        at += max(size, 0)
        return None if size < 0 else data[at - size : at]

    while at < len(data):
        size = number()
        end = at + size
        at += 1
        found.append(Written(number(), number(), text(), text(), b""))
        found[-1] = replace(found[-1], headers=data[at:end])
        at = end
    return found


def _joined(entries: Sequence[bytes], i: int, entry: bytes, spared: int = 0) -> Mutation:
    data = b"".join([*entries[:i], entry, *entries[i + 1 :]])
    return Mutation(data, frozenset(range(len(entries))) - {i}, spared)


def _some_batch(rng: random.Random, entries: Sequence[bytes]) -> int | None:
    """Return one entry of magic 2 that holds records."""
    batches = [i for i, entry in enumerate(entries) if magic_of(entry) == 2 and len(entry) > HEADER]
    return rng.choice(batches) if batches else None


def _payload_bytes(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation:
    """Some bytes after the header, compressed or not, are others."""
    i = rng.randrange(len(entries))
    entry = bytearray(entries[i])
    first = HEADER if magic_of(entry) == 2 else 17
    for _ in range(rng.randint(1, 4)):
        if len(entry) > first:
            entry[rng.randrange(first, len(entry))] = rng.randrange(256)
    return _joined(entries, i, sealed(bytes(entry)), spared=1)


def _record_bytes(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation | None:
    """Change bytes of the records themselves, under whichever codec."""
    i = _some_batch(rng, entries)
    if i is None:
        return None
    payload = bytearray(payload_of(entries[i]))
    kind = rng.randrange(4)
    at = rng.randrange(len(payload))
    if kind == 0:
        payload[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        payload[at:at] = rng.choice(EVIL_VARINTS)
    elif kind == 2:
        del payload[at : at + rng.randint(1, 30)]
    else:
        payload[at : at + 5] = rng.choice(EVIL_VARINTS)
    return _joined(entries, i, with_payload(entries[i], bytes(payload), rng.choice([None, 0, 1, 2, 3, 4])), spared=1)


def _false_count(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation | None:
    i = _some_batch(rng, entries)
    if i is None:
        return None
    (count,) = struct.unpack_from(">i", entries[i], 57)
    lie = rng.choice([*EVIL_INTS, count + 1, count - 1, 10**6, 10**9])
    return _joined(entries, i, sealed(entries[i][:57] + struct.pack(">i", lie) + entries[i][61:]), spared=1)


def _false_last_delta(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation | None:
    i = _some_batch(rng, entries)
    if i is None:
        return None
    lie = rng.choice([*EVIL_INTS, rng.randrange(100)])
    return _joined(entries, i, sealed(entries[i][:23] + struct.pack(">i", lie) + entries[i][27:]), spared=1)


def _false_attributes(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation:
    i = rng.randrange(len(entries))
    at = 22 if magic_of(entries[i]) == 2 else 17
    entry = entries[i][:at] + bytes([entries[i][at] ^ 1 << rng.randrange(8)]) + entries[i][at + 1 :]
    return _joined(entries, i, sealed(entry), spared=1)


def _false_times_and_producer(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation | None:
    i = _some_batch(rng, entries)
    if i is None:
        return None
    at, form, values = rng.choice(
        [
            (27, ">q", (-(2**63), 2**63 - 1, -1, 253_402_300_800_000)),
            (35, ">q", (-(2**63), 2**63 - 1, -1)),
            (43, ">q", (-2, 0, 2**63 - 1, -(2**63))),
            (51, ">h", (-2, 32767)),
            (53, ">i", (-2, 2**31 - 1)),
        ]
    )
    entry = bytearray(entries[i])
    struct.pack_into(form, entry, at, rng.choice(values))
    return _joined(entries, i, sealed(bytes(entry)))


def _other_length(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation:
    """Cut or lengthen an entry, with a length and checksum that agree."""
    i = rng.randrange(len(entries))
    least = HEADER if magic_of(entries[i]) == 2 else 26
    entry = entries[i][: rng.randint(least, max(least, len(entries[i])))] if rng.random() < 0.6 else entries[i] + rng.randbytes(40)
    return _joined(entries, i, sealed(entry), spared=1)


def _random_payload(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation:
    i = rng.randrange(len(entries))
    head = entries[i][: HEADER if magic_of(entries[i]) == 2 else 18]
    return _joined(entries, i, sealed(head + rng.randbytes(rng.randint(8, 400))), spared=1)


def _recompressed(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation | None:
    """Return the same records under another codec: nothing is lost."""
    i = _some_batch(rng, entries)
    if i is None:
        return None
    mutation = _joined(entries, i, with_payload(entries[i], payload_of(entries[i]), rng.randint(0, 4)))
    return replace(mutation, touched_records=frozenset())


def _bomb(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation:
    """Return a batch or an old message of few bytes that decompresses to more than the limit, or just below it."""
    i = rng.randrange(len(entries))
    size = rng.choice([LIMITS["DECOMPRESSED_FLOOR"] - 1000, LIMITS["DECOMPRESSED_FLOOR"] + 1, 1 << 23])
    codec = rng.choice([GZIP, SNAPPY, ZSTD])
    if magic_of(entries[i]) == 2:
        count = rng.choice([1, 10**6, 2**31 - 1])
        head = entries[i][:57] + struct.pack(">i", count)
        return _joined(entries, i, with_payload(head, bytes(size), codec), spared=1)
    (offset,) = struct.unpack_from(">q", entries[i])
    codec = rng.choice([GZIP, SNAPPY])
    return _joined(entries, i, message(offset, None, compress(codec, bytes(size)), magic=magic_of(entries[i]), attributes=codec), spared=1)


def _splice(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation:
    """Sound entries of another file lie between."""
    foreign = rng.choice(sources)
    first = rng.randrange(len(foreign))
    taken = foreign[first : first + rng.randint(1, max(1, len(entries) // 3))]
    at = rng.randrange(len(entries) + 1)
    return Mutation(b"".join([*entries[:at], *taken, *entries[at:]]), frozenset(range(len(entries))), spared=len(taken))


def _altered(rng: random.Random, content: bytes | None, others: Sequence[bytes | None]) -> bytes | None:
    """Return a key or value that is not as its writer meant it."""
    kind = rng.randrange(11)
    if kind == 0:
        return rng.choice([None, b"", b"\0", b"\0\1"])
    if kind == 1:
        return rng.choice(list(others))
    data = bytearray(content or b"")
    at = rng.randrange(len(data) + 1)
    if kind == 2:
        del data[at:]
    elif kind == 3:
        data += rng.randbytes(rng.randint(1, 9))
    elif kind == 4:
        data[0:2] = struct.pack(">h", rng.choice([*EVIL_SHORTS, *range(-1, 25)]))
    elif kind == 5:
        data[at : at + 2] = struct.pack(">h", rng.choice([*EVIL_SHORTS, len(data) - at, len(data) - at - 2]))
    elif kind == 6:
        data[at : at + 4] = struct.pack(">i", rng.choice([*EVIL_INTS, len(data) - at, len(data) - at - 4]))
    elif kind == 7:
        data[at : at + 1] = rng.choice(EVIL_VARINTS)
    elif kind == 8:
        text = rng.choice(BAD_TEXT)
        data[at : at + len(text)] = text
    elif kind == 9:
        data[at:at] = rng.randbytes(rng.randint(1, 6))
    elif data:
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _key_or_value(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation | None:
    """Replace one key or value of a batch; lengths and checksum are right, so every other record is untouched."""
    i = _some_batch(rng, entries)
    if i is None:
        return None
    records = written_in(entries[i])
    others = [content for record in records for content in (record.key, record.value)]
    n = rng.randrange(len(records))
    record = records[n]
    if rng.random() < 0.3:
        record = replace(record, key=_altered(rng, record.key, others))
    else:
        record = replace(record, value=_altered(rng, record.value, others))
    records[n] = record
    mutation = _joined(entries, i, with_payload(entries[i], b"".join(each.encoded() for each in records)))
    return replace(mutation, touched_records=frozenset({(i, n)}))


def _false_deltas(rng: random.Random, entries: Sequence[bytes], sources: Sequence[Sequence[bytes]]) -> Mutation | None:
    """Return a record claims another offset or time inside of its batch; where it takes the offset of another one, the later is read."""
    i = _some_batch(rng, entries)
    if i is None:
        return None
    records = written_in(entries[i])
    n = rng.randrange(len(records))
    lie = rng.choice([*EVIL_INTS, 1, 2, 3])
    records[n] = replace(records[n], **({"offset_delta": lie} if rng.random() < 0.6 else {"timestamp_delta": lie * 2**30}))
    return _joined(entries, i, with_payload(entries[i], b"".join(each.encoded() for each in records)), spared=1)


Mutate = Callable[[random.Random, Sequence[bytes], Sequence[Sequence[bytes]]], Mutation | None]

SEALED: dict[str, Mutate] = {
    "payload bytes, checksum right": _payload_bytes,
    "record bytes, checksum right": _record_bytes,
    "false count": _false_count,
    "false last offset delta": _false_last_delta,
    "false attributes": _false_attributes,
    "false times and producer": _false_times_and_producer,
    "other length, checksum right": _other_length,
    "random payload, checksum right": _random_payload,
    "recompressed": _recompressed,
    "bomb": _bomb,
    "splice": _splice,
    "key or value": _key_or_value,
    "false deltas": _false_deltas,
}
KINDS = [*HARMS, *SEALED, *["key or value"] * 12, *["record bytes, checksum right"] * 4]
"""Kinds by how often they come; keys and values have the most forms."""


def mutate(rng: random.Random, entries: list[bytes], sources: Sequence[Sequence[bytes]]) -> tuple[str, Mutation]:
    """Return a kind of mutation that these entries allow, and the file after it. sources: entries of other files."""
    while True:
        kind = rng.choice(KINDS)
        if kind in HARMS:
            if len(entries) > 1:
                harmed = harm(rng, kind, entries)
                return kind, Mutation(harmed.data, harmed.untouched, len(entries) if kind in MAY_MISPLACE else 1)
            continue
        mutation = SEALED[kind](rng, entries, sources)
        if mutation is not None:
            return kind, mutation
