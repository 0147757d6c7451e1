"""The vocabulary of message tables: types, fields, messages and record types.

A table says what a message looks like in every version; ``scalar.py`` walks it one record at a time, ``compiled.py`` makes functions of
it, and ``programs.py`` makes the steps of it by which compiled loops read many records. Nothing here reads a byte.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Integer:
    """A big-endian integer of ``size`` bytes."""

    name: str
    size: int
    signed: bool = True

    @property
    def least(self) -> int:
        """The smallest value the type can hold."""
        return -(1 << (8 * self.size - 1)) if self.signed else 0

    @property
    def greatest(self) -> int:
        """The largest value the type can hold."""
        return (1 << (8 * self.size - self.signed)) - 1


@dataclass(frozen=True, slots=True)
class UuidBytes:
    """16 bytes, decoded to Kafka's text form: 22 characters of base64url without padding. All zero means none."""


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 behind a length: int16, or unsigned varint of n + 1 in flexible versions."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes behind a length: int32, or unsigned varint of n + 1 in flexible versions."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """Elements behind a count: int32, or unsigned varint of n + 1 in flexible versions."""

    element: Type
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in order; in flexible versions a section of tagged fields follows. A nullable one has a presence mark before it."""

    fields: tuple[Field, ...]
    nullable: bool = False

    def default(self) -> dict[str, Any]:
        """The struct with each field at its default, as Kafka makes one that is absent."""
        return {f.name: f.absent_value() for f in self.fields}


Type = Integer | UuidBytes | Text | Blob | Array | Struct

Int8 = Integer("int8", 1)
Int16 = Integer("int16", 2)
Int32 = Integer("int32", 4)
Int64 = Integer("int64", 8)
Uint16 = Integer("uint16", 2, signed=False)
Uuid = UuidBytes()
String = Text()
NullableString = Text(nullable=True)
Bytes = Blob()
NullableBytes = Blob(nullable=True)

ZERO_UUID = "A" * 22
"""The id that means "none", in text form."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
"""The default of a field that has none of its own."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name here, its type, what it means, and the versions that carry it.

    ``versions`` is Kafka's notation: ``0+``, ``3+``, ``1``, ``0-2``. A field with a ``tag`` lies in the tagged section and is not
    written while it has its default. ``json`` is Kafka's own name where it is not the camel case of ours.
    """

    name: str
    type: Type
    meaning: str
    versions: str = "0+"
    default: Any = REQUIRED
    tag: int | None = None
    json: str = ""
    first_version: int = field(init=False)
    last_version: int = field(init=False)

    def __post_init__(self) -> None:
        first, to, last = self.versions.rstrip("+").partition("-")
        object.__setattr__(self, "first_version", int(first))
        object.__setattr__(self, "last_version", int(last) if to else 32767 if self.versions.endswith("+") else int(first))
        if not self.json:
            head, *tail = self.name.split("_")
            object.__setattr__(self, "json", head + "".join(part.capitalize() for part in tail))
        if self.tag is not None and self.default is REQUIRED:
            raise TypeError(f"the tagged field {self.name!r} needs a default: it may be absent")

    def is_in(self, version: int) -> bool:
        """True where messages of this version carry the field."""
        return self.first_version <= version <= self.last_version

    def absent_value(self) -> Any:
        """The value Kafka gives the field where a message does not carry it; a new object at each call."""
        if self.default is not REQUIRED:
            return copy.deepcopy(self.default)
        match self.type:
            case Integer():
                return 0
            case UuidBytes():
                return ZERO_UUID
            case Struct(nullable=False) as struct:
                return struct.default()
            case Text(nullable=True) | Blob(nullable=True) | Array(nullable=True) | Struct():
                return None
            case Text():
                return ""
            case Blob():
                return b""
            case Array():
                return []


@dataclass(frozen=True, slots=True)
class Message:
    """One message in all its versions.

    ``versions`` are the first and the last one known; from ``flexible_from`` on the compact encodings and tagged sections apply.
    ``since`` names the release (and the KIP or issue) that brought each version. ``dialect`` is the release line that alone wrote this
    layout, for layouts that Kafka changed without a new version.
    """

    name: str
    versions: tuple[int, int]
    fields: tuple[Field, ...]
    source: str
    since: Mapping[int, str]
    flexible_from: int | None = None
    dialect: str | None = None

    def is_flexible(self, version: int) -> bool:
        """True where the version uses compact encodings and tagged sections."""
        return self.flexible_from is not None and version >= self.flexible_from

    def fields_of(self, version: int) -> tuple[Field, ...]:
        """The fields that the version carries, tagged ones included, in the order of the table."""
        return tuple(f for f in self.fields if f.is_in(version))


@dataclass(frozen=True, slots=True)
class RecordType:
    """One kind of record: its key, its value, older layouts of the value, and what a null value says.

    ``dialect`` is set where the whole record type is known to that one release line only.
    """

    key_type: int
    key: Message
    value: Message
    tombstone: str
    dialects: tuple[Message, ...] = ()
    dialect: str | None = None
