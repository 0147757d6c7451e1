"""The tables of ``messages/`` as programs: lists of steps by which ``json_loops`` reads a message and writes its JSON.

numba cannot walk the tables themselves, which are Python objects. Each version of each message becomes one program. A step first writes a
literal, which is the text between two values, for example ``,"topic":``; then it acts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .definition import field_json
from .fields import Array, Blob, Field, Integer, Message, Struct, Text, Type, UuidBytes
from .messages import RECORD_TYPES
from .messages.offsets import OFFSET_COMMIT_VALUE
from .primitives import LONGEST_COMPACT_TEXT
from .programs import AS_VARINT, LONGEST_BLOB, VERSIONS
from .record_types import KeyType


class JsonAction(IntEnum):
    """What a step does after its literal. A step has three numbers, a, b and c, which the comments explain; - means not used.

    width: bytes of a length or count, or AS_VARINT.
    """

    INTEGER = 0  # a: how many bytes; b: 1 for an unsigned integer
    ID = 1  # a topic id
    TEXT = 2  # a: width; b: 1 where the text may be null; c: the most bytes it may have
    NAME = 3  # a text in place of which a name is written. As TEXT; b: also twice the number of the kind of name
    BLOB = 4  # bytes. As TEXT
    HIDDEN = 5  # a text or bytes in place of which null is written. As TEXT
    ELEMENTS = 6  # begins an array. a: width; b: 1 where the array may be null; c: the step after NEXT
    NEXT = 7  # ends an element. a: the step that begins the next element
    PRESENCE_MARK = 8  # of a nullable struct. a: width of the mark, int8 or AS_VARINT; b: -; c: the step after the struct
    TAGGED = 9  # begins a tagged section: reads how many tags there are
    NEXT_TAG = 10  # reads a tag and its size. a: how many tags are known, whose TAG steps follow; b: 1 inside a tag; c: the step after
    TAG = 11  # does nothing. a: the number of a known tag; b: -; c: the step that reads its field
    TAG_END = 12  # takes a field back that has its default. a: the NEXT_TAG to go back to; b, c: the start and end of that text
    NOTHING = 13
    END = 14


@dataclass(frozen=True, eq=False)
class HiddenFields:
    """The fields whose content a redacted dump replaces. Bytes always become null.

    Attributes:
        kind_of_name: the text fields that get a name, and for each the number of its kind of names.
        null_text: the text field that becomes null: the name of the list that it is in, and its own.
    """

    kind_of_name: Mapping[str, int]
    null_text: tuple[str, str]


class JsonPrograms(NamedTuple):
    """The programs of all keys and values that current Kafka knows. A program begins after the int16 of the type or version.

    Attributes:
        literals: uint8, the bytes of all literals.
        steps: int64[n, 6]: action, a, b, c, start and end of the literal.
        key_begin: int64, by key type the first step of the key's program; -1 where there is no program.
        value_begin: int64, by ``key_type * VERSIONS + version`` the same for values.
    """

    literals: npt.NDArray[np.uint8]
    steps: npt.NDArray[np.int64]
    key_begin: npt.NDArray[np.int64]
    value_begin: npt.NDArray[np.int64]


@cache
def json_programs(hidden: HiddenFields | None = None) -> JsonPrograms:
    """The programs of all messages. hidden: the fields that are hidden; None: nothing is hidden, neither texts nor bytes."""
    steps = _Steps()
    key_begin = np.full(max(RECORD_TYPES) + 1, -1, np.int64)
    value_begin = np.full(len(key_begin) * VERSIONS, -1, np.int64)
    for key_type, record_type in RECORD_TYPES.items():
        if record_type.dialect is not None:
            continue
        key_begin[key_type] = len(steps.rows)
        _Program(steps, record_type.key, 0, hidden).write()
        for version in range(VERSIONS):
            message = record_type.value
            if key_type == KeyType.LEGACY_OFFSET_COMMIT and version > 0:
                message = OFFSET_COMMIT_VALUE
            if message.versions[0] <= version <= message.versions[1]:
                value_begin[key_type * VERSIONS + version] = len(steps.rows)
                _Program(steps, message, version, hidden).write()
    return JsonPrograms(np.frombuffer(bytes(steps.literals), np.uint8), np.array(steps.rows, np.int64), key_begin, value_begin)


class _Steps:
    """Steps and literals of all programs. A literal that comes again is stored once."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.literals = bytearray()
        self._places: dict[str, tuple[int, int]] = {}

    def place_of(self, text: str) -> tuple[int, int]:
        """Where a text begins and ends in ``literals``."""
        if text not in self._places:
            start = len(self.literals)
            self.literals += text.encode()
            self._places[text] = start, len(self.literals)
        return self._places[text]


class _Program:
    """Appends the program of one version of a message to the steps."""

    def __init__(self, steps: _Steps, message: Message, version: int, hidden: HiddenFields | None) -> None:
        self._steps = steps
        self._message = message
        self._version = version
        self._is_flexible = message.is_flexible(version)
        self._hidden = hidden
        self._field_name = ""
        self._is_in_tag = False
        self._literal = ""

    def write(self) -> None:
        """Appends the whole program."""
        self._struct(self._message.fields)
        self._add(JsonAction.END)

    def _add(self, action: JsonAction, a: int = 0, b: int = 0, c: int = 0) -> list[int]:
        step = [int(action), a, b, c, *self._steps.place_of(self._literal)]
        self._literal = ""
        self._steps.rows.append(step)
        return step

    def _struct(self, fields: tuple[Field, ...]) -> None:
        fields = tuple(field for field in fields if field.is_in(self._version))
        untagged = [field for field in fields if field.tag is None]
        tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
        if [*untagged, *tagged] != list(fields) or (tagged and not untagged):
            raise TypeError(f"{self._message.name}: the order of the fields in JSON is not their order in the bytes")
        self._literal += "{"
        for place, field in enumerate(untagged):
            self._literal += f'{"," if place else ""}"{field.json}":'
            self._field(field)
        if self._is_flexible:
            self._tagged_section(tagged)
        self._literal += "}"

    def _field(self, field: Field) -> None:
        outer_name, self._field_name = self._field_name, field.name
        match field.type:
            case Text() if self._hidden and field.name in self._hidden.kind_of_name:
                self._sized(JsonAction.NAME, field.type, self._hidden.kind_of_name[field.name])
            case Text() if self._hidden and (outer_name, field.name) == self._hidden.null_text:
                self._sized(JsonAction.HIDDEN, field.type)
            case _:
                self._value(field.type)
        self._field_name = outer_name

    def _value(self, kind: Type) -> None:
        match kind:
            case Integer():
                self._add(JsonAction.INTEGER, kind.size, not kind.signed)
            case UuidBytes():
                self._add(JsonAction.ID)
            case Text():
                self._sized(JsonAction.TEXT, kind)
            case Blob():
                self._sized(JsonAction.HIDDEN if self._hidden else JsonAction.BLOB, kind)
            case Array():
                elements = self._add(JsonAction.ELEMENTS, self._width(4), kind.nullable)
                begin = len(self._steps.rows)
                self._value(kind.element)
                self._add(JsonAction.NEXT, begin)
                elements[3] = len(self._steps.rows)
            case Struct(nullable=True):
                self._optional(kind, 1)
            case Struct():
                self._struct(kind.fields)

    def _width(self, width: int) -> int:
        return AS_VARINT if self._is_flexible else width

    def _sized(self, action: JsonAction, kind: Text | Blob, kind_of_name: int = 0) -> None:
        width, longest = (2, LONGEST_COMPACT_TEXT) if isinstance(kind, Text) else (4, LONGEST_BLOB)
        self._add(action, self._width(width), kind.nullable | kind_of_name << 1, longest)

    def _optional(self, kind: Struct, width: int) -> None:
        presence_mark = self._add(JsonAction.PRESENCE_MARK, width)
        self._struct(kind.fields)
        # the text after the struct is also written where there is no struct: it must not be a part of this step's literal
        self._add(JsonAction.NOTHING)
        presence_mark[3] = len(self._steps.rows)

    def _tagged_section(self, fields: list[Field]) -> None:
        self._add(JsonAction.TAGGED)
        next_tag = len(self._steps.rows)
        section = self._add(JsonAction.NEXT_TAG, len(fields), self._is_in_tag)
        tags = [self._add(JsonAction.TAG, field.tag or 0) for field in fields]
        self._is_in_tag, was_in_tag = True, self._is_in_tag
        for field, tag in zip(fields, tags, strict=True):
            tag[3] = len(self._steps.rows)
            self._literal = name = f',"{field.json}":'
            if isinstance(field.type, Struct) and field.type.nullable:
                self._optional(field.type, AS_VARINT)
            else:
                self._field(field)
            default = json.dumps(field_json(field, field.default), separators=(",", ":"), ensure_ascii=False)
            self._add(JsonAction.TAG_END, next_tag, *self._steps.place_of(name + default))
        self._is_in_tag = was_in_tag
        section[3] = len(self._steps.rows)
