"""The vocabulary of message tables: types, fields, messages and record types.

A table declares a message in all its versions. ``definition.py`` walks the table for each record, and ``programs.py`` turns it into steps
for the loops that read many records. Nothing here reads a byte.
"""

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
class TruthValue:
    """One byte; every other value than 0 is true."""


@dataclass(frozen=True, slots=True)
class FloatingPoint:
    """A big-endian number of 8 bytes, as IEEE 754 has it."""


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

    element: "Type"
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in their order, and in flexible versions a section of tagged fields after them.

    A nullable struct begins with a presence mark: an int8, or an unsigned varint inside a tagged field.
    """

    fields: "tuple[Field, ...]"
    nullable: bool = False

    def default(self) -> dict[str, Any]:
        """Return the struct that Kafka uses in place of an absent one, with the default of each field."""
        return {f.name: f.absent_value() for f in self.fields}


Type = Integer | TruthValue | FloatingPoint | UuidBytes | Text | Blob | Array | Struct

Int8 = Integer("int8", 1)
Int16 = Integer("int16", 2)
Int32 = Integer("int32", 4)
Int64 = Integer("int64", 8)
Uint16 = Integer("uint16", 2, signed=False)
Boolean = TruthValue()
Float64 = FloatingPoint()
Uuid = UuidBytes()
String = Text()
NullableString = Text(nullable=True)
Bytes = Blob()
NullableBytes = Blob(nullable=True)

ZERO_UUID = "A" * 22
"""The topic id that means "none", in Kafka's text form."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
"""The default of a field that has no default: the field must be there."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its name, its type, its meaning, and the versions that have it.

    Attributes:
        name: our name of the field, in snake case.
        meaning: a sentence for people.
        versions: the versions that have the field, in Kafka's notation: ``0+``, ``3+``, ``1``, ``0-2``.
        default: the value in messages without the field; REQUIRED: the default of its type.
        tag: the number of a tagged field, which is not written while it has its default; None: the field is not tagged.
        json: Kafka's name of the field; by default ``name`` in camel case.
        first_version, last_version: ``versions`` as numbers.
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
        """True where messages of this version have the field."""
        return self.first_version <= version <= self.last_version

    def absent_value(self) -> Any:
        """Return the value that Kafka gives to an absent field. Lists and dicts are new for each call."""
        if self.default is not REQUIRED:
            return copy.deepcopy(self.default) if isinstance(self.default, dict | list) else self.default
        match self.type:
            case Integer():
                return 0
            case TruthValue():
                return False
            case FloatingPoint():
                return 0.0
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

    Attributes:
        name: Kafka's name of the message.
        versions: the first and the last known version.
        since: for each version the release that brought it, with the KIP or issue.
        read_since: for each version but the first the first release whose loader reads it; empty where nobody compared the loaders.
        flexible_from: the first version with compact encodings and tagged sections; None: no version has them.
        dialect: the release line that alone wrote this layout, where Kafka changed a layout without a new version; else None.
    """

    name: str
    versions: tuple[int, int]
    fields: tuple[Field, ...]
    since: Mapping[int, str]
    flexible_from: int | None = None
    dialect: str | None = None
    read_since: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def is_flexible(self, version: int) -> bool:
        """True where the version has compact encodings and tagged sections."""
        return self.flexible_from is not None and version >= self.flexible_from

    def newest_version(self, release: tuple[int, ...]) -> int:
        """Return the newest version that a release reads."""
        return max((version for version, first in self.read_since.items() if release >= first), default=self.versions[0])

    def fields_of(self, version: int) -> tuple[Field, ...]:
        """Return the fields of one version, tagged fields included, in table order."""
        return tuple(f for f in self.fields if f.is_in(version))


@dataclass(frozen=True, slots=True)
class RecordType:
    """One type of record.

    Attributes:
        key_type: the int16 that its keys begin with.
        key, value: the messages.
        tombstone: what a null value means, a sentence for people.
        dialects: layouts of the value that single early releases wrote.
        dialect: the one release line that knows this type; None: every release since its first.
        read_since: the first release whose loader reads records of the type.
    """

    key_type: int
    key: Message
    value: Message
    tombstone: str
    dialects: tuple[Message, ...] = ()
    dialect: str | None = None
    read_since: tuple[int, ...] = (0, 9)
