"""Random messages made of the field tables, and damaged bytes made of whole ones: what the property tests feed the decoders."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from groupcoord_spark.protocol import RECORD_TYPES, UNKNOWN_TAGS, encode_key, encode_value
from groupcoord_spark.protocol.fields import Array, Blob, Field, Integer, Message, RecordType, Struct, Text, Type, UuidBytes
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.primitives import uuid_text

KNOWN_TYPES = [key_type for key_type, record_type in RECORD_TYPES.items() if record_type.dialect is None]

TEXTS = st.one_of(
    st.text(max_size=8), st.text(alphabet="aä日😀", min_size=60, max_size=140), st.sampled_from(["", "g", "consumer", "x" * 126, "x" * 127])
)


def values_of(kind: Type, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    """Values that a field of this type can have."""
    match kind:
        case Integer():
            telling = st.sampled_from([kind.least, -1 if kind.signed else 0, 0, 1, kind.greatest])
            plain: st.SearchStrategy[Any] = telling | st.integers(kind.least, kind.greatest)
        case UuidBytes():
            plain = st.binary(min_size=16, max_size=16).map(uuid_text) | st.just("A" * 22)
        case Text():
            plain = TEXTS
        case Blob():
            plain = st.binary(max_size=6) | st.binary(min_size=126, max_size=300)
        case Array():
            plain = st.lists(values_of(kind.element, version, flexible), max_size=3)
            if isinstance(kind.element, Integer):
                plain = plain | st.lists(values_of(kind.element, version, flexible), min_size=60, max_size=130)
        case Struct():
            plain = fields_of(kind.fields, version, flexible)
    return st.none() | plain if getattr(kind, "nullable", False) else plain


def fields_of(fields: tuple[Field, ...], version: int, flexible: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Field values of a struct in one version, at times with tags that no table knows."""
    known = st.fixed_dictionaries(
        {
            field.name: values_of(field.type, version, flexible) | st.builds(field.absent_value)
            if field.tag is not None
            else values_of(field.type, version, flexible)
            for field in fields
            if field.is_in(version)
        }
    )
    if not flexible:
        return known
    unknown = st.dictionaries(st.integers(5, 300), st.binary(max_size=3) | st.binary(min_size=130, max_size=140), min_size=1, max_size=2)
    return known | st.builds(lambda fields, tags: {**fields, UNKNOWN_TAGS: tags}, known, unknown)


def layouts() -> list[tuple[RecordType, Message, int]]:
    """Every record type with each layout of its value, in every version."""
    return [
        (record_type, message, version)
        for record_type in RECORD_TYPES.values()
        for message in (record_type.value, *record_type.dialects)
        for version in range(message.versions[0], message.versions[1] + 1)
    ]


@st.composite
def keys(draw: st.DrawFn, key_types: list[int] = KNOWN_TYPES) -> bytes:
    """Whole keys."""
    key_type = draw(st.sampled_from(key_types))
    return encode_key(key_type, draw(_key_fields(key_type)))


@cache
def _key_fields(key_type: int) -> st.SearchStrategy[dict[str, Any]]:
    return fields_of(RECORD_TYPES[key_type].key.fields, 0, False)


@st.composite
def typed_values(draw: st.DrawFn, key_types: list[int] = KNOWN_TYPES) -> tuple[int, bytes]:
    """Key types with whole values, those that type 0 should not have among them."""
    key_type = draw(st.sampled_from(key_types))
    message = RECORD_TYPES[key_type].value if key_type != 0 else OFFSET_COMMIT_VALUE
    version = draw(st.integers(*message.versions))
    return key_type, encode_value(key_type, version, draw(_value_fields(key_type, version)))


@cache
def _value_fields(key_type: int, version: int) -> st.SearchStrategy[dict[str, Any]]:
    message = RECORD_TYPES[key_type].value if key_type != 0 else OFFSET_COMMIT_VALUE
    return fields_of(message.fields, version, message.is_flexible(version))


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes, most often as they are, else cut, longer, or with bytes changed."""
    match draw(st.integers(0, 6)):
        case 0:
            return whole[: draw(st.integers(0, len(whole)))]
        case 1:
            return whole + draw(st.binary(min_size=1, max_size=4))
        case 2 if whole:
            at = draw(st.integers(0, len(whole) - 1))
            return whole[:at] + bytes([draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xC3, 0xED, 0xFF]))]) + whole[at + 1 :]
        case 3:
            at = draw(st.integers(0, len(whole)))
            return whole[:at] + draw(st.binary(min_size=1, max_size=3)) + whole[at + draw(st.integers(0, 3)) :]
        case _:
            return whole


damaged_keys = keys().flatmap(damaged)
damaged_values = typed_values().flatmap(lambda typed: st.tuples(st.just(typed[0]), damaged(typed[1])))
damaged_offset_values = typed_values([0, 1]).flatmap(lambda typed: st.tuples(st.just(typed[0]), damaged(typed[1])))
