"""How Kafka writes numbers, texts and lists: one reader and one writer for each encoding.

A reader ``read_x(buf, at)`` gives the value and the position after it. It raises Underflow where the bytes end inside a part of fixed size,
and LengthBeyondEnd where a declared length is larger than the number of bytes that remain. Texts are returned as raw bytes; ``java_text``
decodes them and says whether they were UTF-8. Numbers are big endian.
"""

import base64
import codecs
import struct
from functools import lru_cache

from .errors import LengthBeyondEnd, TextTooLong, Underflow, VarintTooLong
from .fields import ZERO_UUID, Integer

COMPACT = 0
"""In place of the bytes of a length: the length is an unsigned varint of n + 1, as in flexible versions."""

LONGEST_COMPACT_TEXT = 0x7FFF
"""Kafka's readers refuse a compact string of more bytes than this."""

MOST_ELEMENTS, MOST_TAGS = 1_000_000, 10_000
"""Kafka 4.2.2 and 4.4.0 refuse arrays of more elements and sections of more tagged fields (MAX_ARRAY_LENGTH, MAX_TAGGED_FIELD_COUNT)."""

_INTEGERS = {
    (1, True): struct.Struct(">b"),
    (2, True): struct.Struct(">h"),
    (4, True): struct.Struct(">i"),
    (8, True): struct.Struct(">q"),
    (2, False): struct.Struct(">H"),
}
_FLOAT = struct.Struct(">d")


def read_integer(buf: bytes, at: int, kind: Integer) -> tuple[int, int]:
    """Read an integer of this kind at ``at``; return it with the position after it."""
    end = at + kind.size
    if end > len(buf):
        raise Underflow(f"takes {kind.size} bytes at position {at}, {_count(len(buf) - at)}")
    return int.from_bytes(buf[at:end], "big", signed=kind.signed), end


def read_integers(buf: bytes, at: int, kind: Integer, count: int) -> tuple[list[int], int]:
    """``count`` integers of this kind at ``at``, which lie within ``buf``, and the position after them."""
    return list(struct.unpack_from(f">{count}{_INTEGERS[kind.size, kind.signed].format[1:]}", buf, at)), at + count * kind.size


def read_float(buf: bytes, at: int) -> tuple[float, int]:
    """Read a float64 at ``at``; return it with the position after it."""
    if len(buf) - at < _FLOAT.size:
        raise Underflow(f"takes 8 bytes at position {at}, {_count(len(buf) - at)}")
    value: float = _FLOAT.unpack_from(buf, at)[0]
    return value, at + _FLOAT.size


def write_float(value: float) -> bytes:
    """Encode a number as float64."""
    return _FLOAT.pack(value)


def read_uvarint(buf: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint at ``at`` as Java does; return it with the position after it.

    Seven bits a byte, the low ones first, at most five bytes. Forms longer than necessary are accepted. Java keeps the number in an int:
    2**31 and above are negative, here too.
    """
    if at < len(buf) and buf[at] < 0x80:
        return buf[at], at + 1
    value = 0
    for i in range(5):
        if at + i >= len(buf):
            raise Underflow(f"takes a varint at position {at}, {_count(len(buf) - at)}")
        byte = buf[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return value - (1 << 32) if value >= 1 << 31 else value, at + i + 1
    raise VarintTooLong(f"the varint at position {at} goes on after 5 bytes")


def read_uuid(buf: bytes, at: int) -> tuple[str, int]:
    """Read a UUID at ``at``; return it in Kafka's text form with the position after it."""
    if len(buf) - at < 16:
        raise Underflow(f"takes 16 bytes at position {at}, {_count(len(buf) - at)}")
    return uuid_text(buf[at : at + 16]), at + 16


def read_length(buf: bytes, at: int, size: int) -> tuple[int | None, int]:
    """Read a length or count (None if negative); return it with the position after it. ``size`` is its number of bytes, or COMPACT."""
    if size == COMPACT:
        stored, at = read_uvarint(buf, at)
        # -2**31 - 1 wraps around to the largest int in Java, which then lies beyond any end
        length = 0x7FFFFFFF if stored == -0x80000000 else stored - 1
        return (None if length < 0 else length), at
    if len(buf) - at < size:
        raise Underflow(f"takes a length of {size} bytes at position {at}, {_count(len(buf) - at)}")
    length = _INTEGERS[size, True].unpack_from(buf, at)[0]
    return (None if length < 0 else length), at + size


def read_string(buf: bytes, at: int, size: int = 2) -> tuple[bytes | None, int]:
    """Read the bytes of a text after its length, or None for null; return them with the position after them. ``size``: see ``read_length``.

    Raises TextTooLong for a compact length above 32767, even if enough bytes follow.
    """
    length, next_at = read_length(buf, at, size)
    if length is not None and length > LONGEST_COMPACT_TEXT:
        raise TextTooLong(f"declares {length} bytes of text at position {at}, more than Kafka reads ({LONGEST_COMPACT_TEXT})")
    return _take(buf, next_at, length)


def read_bytes(buf: bytes, at: int, size: int = 4) -> tuple[bytes | None, int]:
    """Read bytes after their length, or None for null; return them with the position after them. ``size``: see ``read_length``."""
    length, at = read_length(buf, at, size)
    return _take(buf, at, length)


def read_count(buf: bytes, at: int, size: int = 4) -> tuple[int | None, int]:
    """Read the count of an array, or None for null; return it with the position after it. Raises LengthBeyondEnd if it exceeds the bytes
    left."""
    count, at = read_length(buf, at, size)
    if count is not None and count > len(buf) - at:
        raise LengthBeyondEnd(f"declares {count} elements at position {at}, {_count(len(buf) - at, 'bytes ')}")
    return count, at


def _take(buf: bytes, at: int, length: int | None) -> tuple[bytes | None, int]:
    if length is None:
        return None, at
    if length > len(buf) - at:
        raise LengthBeyondEnd(f"declares {length} bytes at position {at}, {_count(len(buf) - at)}")
    return buf[at : at + length], at + length


def _count(remaining: int, unit: str = "") -> str:
    return f"{max(remaining, 0)} {unit}remain"


def java_text(raw: bytes) -> tuple[str, bool]:
    """Decode bytes as Java does; return the text, and True if the bytes are valid UTF-8.

    Each part that is not UTF-8 becomes U+FFFD, divided into parts as Java does: as Python's ``replace``, but an encoded surrogate
    (``ed a0 80``) is one part.
    """
    try:
        return raw.decode("utf-8"), True
    except UnicodeDecodeError:
        return raw.decode("utf-8", "java_replace"), False


def _java_replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    raw, at = error.object, error.start
    if raw[at] == 0xED and at + 1 < len(raw) and 0xA0 <= raw[at + 1] <= 0xBF:
        has_third = at + 2 < len(raw) and 0x80 <= raw[at + 2] <= 0xBF
        return "\ufffd", at + 2 + has_third
    return "\ufffd", error.end


codecs.register_error("java_replace", _java_replace)


@lru_cache(maxsize=1 << 14)
def uuid_text(raw: bytes) -> str:
    """Kafka's text form of 16 bytes: base64url without padding, 22 characters."""
    return base64.urlsafe_b64encode(raw)[:22].decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of an id in Kafka's text form. Raises ValueError unless it is 22 characters of base64url."""
    raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    if len(raw) != 16 or len(text) != len(ZERO_UUID):
        raise ValueError(f"{text!r} is not an id of 22 characters in base64url")
    return raw


def write_integer(value: int, kind: Integer) -> bytes:
    """Encode an integer in its fixed size. Raises ValueError if it does not fit."""
    if not kind.least <= value <= kind.greatest:
        raise ValueError(f"{value} does not fit into {kind.name}")
    return _INTEGERS[kind.size, kind.signed].pack(value)


def write_uvarint(value: int) -> bytes:
    """Encode a number as the shortest unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_length(length: int | None, size: int) -> bytes:
    """Encode a length or count; None encodes null. ``size`` is its number of bytes, or COMPACT. Raises ValueError if it does not fit."""
    if size == COMPACT:
        return write_uvarint(0 if length is None else length + 1)
    if length is not None and length >= 1 << (8 * size - 1):
        raise ValueError(f"a length of {length} does not fit into {size} bytes")
    return _INTEGERS[size, True].pack(-1 if length is None else length)
