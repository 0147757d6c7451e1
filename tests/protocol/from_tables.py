"""Random messages made of the field tables, and damaged bytes made of whole ones: what the property tests feed the decoders."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from groupcoord_spark.protocol import RECORD_TYPES, UNKNOWN_TAGS, encode_key, encode_value
from groupcoord_spark.protocol.fields import Array, Blob, Field, Integer, Message, RecordType, Struct, Text, Type, UuidBytes
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.primitives import uuid_text
from tests.examples import randoms

KNOWN_TYPES = [key_type for key_type, record_type in RECORD_TYPES.items() if record_type.dialect is None]


def text(rng: Random) -> str:
    match rng.randrange(3):
        case 0:
            first, last = rng.choice([(0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)])
            return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(0, 8)))
        case 1:
            return "".join(rng.choices("aä日😀", k=rng.randint(60, 140)))
        case _:
            return rng.choice(["", "g", "consumer", "x" * 126, "x" * 127])


def value_of(rng: Random, kind: Type, version: int, flexible: bool) -> Any:
    """Return a value that a field of this type can have."""
    if getattr(kind, "nullable", False) and rng.random() < 0.5:
        return None
    match kind:
        case Integer():
            return rng.choice([kind.least, -1 if kind.signed else 0, 0, 1, kind.greatest, rng.randint(kind.least, kind.greatest)])
        case UuidBytes():
            return rng.choice(["A" * 22, uuid_text(rng.randbytes(16))])
        case Text():
            return text(rng)
        case Blob():
            return rng.randbytes(rng.choice([rng.randint(0, 6), rng.randint(126, 300)]))
        case Array():
            is_long = isinstance(kind.element, Integer) and rng.random() < 0.5
            count = rng.randint(60, 130) if is_long else rng.randint(0, 3)
            return [value_of(rng, kind.element, version, flexible) for _ in range(count)]
        case Struct():
            return fields_of(rng, kind.fields, version, flexible)


def fields_of(rng: Random, fields: tuple[Field, ...], version: int, flexible: bool) -> dict[str, Any]:
    """Field values of a struct in one version, at times with tags that no table has."""
    values: dict[str, Any] = {
        field.name: field.absent_value() if field.tag is not None and rng.random() < 0.5 else value_of(rng, field.type, version, flexible)
        for field in fields
        if field.is_in(version)
    }
    if flexible and rng.random() < 0.5:
        values[UNKNOWN_TAGS] = {
            rng.randint(5, 300): rng.randbytes(rng.choice([rng.randint(0, 3), rng.randint(130, 140)])) for _ in range(rng.randint(1, 2))
        }
    return values


def layouts() -> list[tuple[RecordType, Message, int]]:
    """Return every record type with each layout of its value, in every version."""
    return [
        (record_type, message, version)
        for record_type in RECORD_TYPES.values()
        for message in (record_type.value, *record_type.dialects)
        for version in range(message.versions[0], message.versions[1] + 1)
    ]


def key(rng: Random, key_types: Sequence[int] = KNOWN_TYPES) -> bytes:
    """Return a whole key."""
    key_type = rng.choice(key_types)
    return encode_key(key_type, fields_of(rng, RECORD_TYPES[key_type].key.fields, 0, False))


def typed_value(rng: Random, key_types: Sequence[int] = KNOWN_TYPES) -> tuple[int, bytes]:
    """Return a key type with a whole value, at times one that type 0 should not have."""
    key_type = rng.choice(key_types)
    message = RECORD_TYPES[key_type].value if key_type != 0 else OFFSET_COMMIT_VALUE
    version = rng.randint(*message.versions)
    return key_type, encode_value(key_type, version, fields_of(rng, message.fields, version, message.is_flexible(version)))


def damaged(rng: Random, whole: bytes) -> bytes:
    """Return the bytes, most often as they are, else cut, longer, or with bytes changed."""
    at = rng.randint(0, len(whole))
    match rng.randint(0, 6):
        case 0:
            return whole[:at]
        case 1:
            return whole + rng.randbytes(rng.randint(1, 4))
        case 2 if at < len(whole):
            return whole[:at] + bytes([rng.choice([0, 1, 2, 0x7F, 0x80, 0xC3, 0xED, 0xFF])]) + whole[at + 1 :]
        case 3:
            return whole[:at] + rng.randbytes(rng.randint(1, 3)) + whole[at + rng.randint(0, 3) :]
        case _:
            return whole


def damaged_value(rng: Random, key_types: Sequence[int] = KNOWN_TYPES) -> tuple[int, bytes]:
    key_type, value = typed_value(rng, key_types)
    return key_type, damaged(rng, value)


typed_values = randoms.map(typed_value)
damaged_keys = randoms.map(lambda rng: damaged(rng, key(rng)))
damaged_values = randoms.map(damaged_value)
damaged_offset_values = randoms.map(lambda rng: damaged_value(rng, [0, 1]))
