"""The tables of ``messages/`` as programs: lists of steps by which ``json_loops`` reads a message and writes its JSON.

numba cannot walk the tables themselves, which are Python objects. Each version of each message becomes one program. A step first writes a
literal, which is the text between two values, for example ``,"topic":``; then it acts.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .fields import Array, Blob, Field, Integer, Message, Struct, Text, Type, UuidBytes
from .messages import RECORD_TYPES
from .primitives import LONGEST_COMPACT_TEXT
from .programs import AS_VARINT, LONGEST_BLOB, VERSIONS
from .scalar import field_json


class JsonAction(IntEnum):
    """What a step does after its literal. A step has three numbers, a, b and c, which the comments explain; - means not used.

    width: bytes of a length or count, or AS_VARINT.
    """

    INTEGER = 0  # a: how many bytes; b: 1 for an unsigned integer
    ID = 1  # a topic id
    TEXT = 2  # a: width; b: 1 where the text may be null; c: the most bytes it may have
    BLOB = 3  # bytes. As TEXT
    ELEMENTS = 4  # begins an array. a: width; b: 1 where the array may be null; c: the step after NEXT
    NEXT = 5  # ends an element. a: the step that begins the next element
    PRESENCE_MARK = 6  # of a nullable struct. a: width of the mark, int8 or AS_VARINT; b: -; c: the step after the struct
    TAGGED = 7  # begins a tagged section: reads how many tags there are
    NEXT_TAG = 8  # reads a tag and its size. a: how many tags are known, whose TAG steps follow; b: -; c: the step after the section
    TAG = 9  # does nothing. a: the number of a known tag; b: -; c: the step that reads its field
    TAG_END = 10  # takes a field back that has its default. a: the NEXT_TAG to go back to; b, c: start and end of that text in the literals
    NOTHING = 11
    END = 12


class JsonPrograms(NamedTuple):
    """The programs of the messages of a kind.

    Attributes:
        literals: uint8, the bytes of all literals.
        steps: int64[n, 6]: action, a, b, c, start and end of the literal.
        begin: int64, for keys by key type and for values by ``key_type * VERSIONS + version`` the first step of the program, which begins
            after the int16 of the type or version; -1 where there is no program.
    """

    literals: npt.NDArray[np.uint8]
    steps: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]


@cache
def json_programs_of_keys() -> JsonPrograms:
    """The programs of the keys of all types that current Kafka knows, by key type."""
    return _programs({key_type: (record_type.key, 0) for key_type, record_type in RECORD_TYPES.items() if record_type.key.dialect is None})


@cache
def json_programs_of_values() -> JsonPrograms:
    """The programs of every version of the values that current Kafka knows, by ``key_type * VERSIONS + version``."""
    return _programs(
        {
            key_type * VERSIONS + version: (record_type.value, version)
            for key_type, record_type in RECORD_TYPES.items()
            if record_type.value.dialect is None
            for version in range(record_type.value.versions[0], record_type.value.versions[1] + 1)
        }
    )


def _programs(messages: dict[int, tuple[Message, int]]) -> JsonPrograms:
    steps = _Steps()
    begin = np.full(max(messages) + 1, -1, np.int64)
    for place, (message, version) in messages.items():
        begin[place] = len(steps.rows)
        _Program(steps, message, version).write()
    return JsonPrograms(np.frombuffer(bytes(steps.literals), np.uint8), np.array(steps.rows, np.int64), begin)


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

    def __init__(self, steps: _Steps, message: Message, version: int) -> None:
        self._steps = steps
        self._message = message
        self._version = version
        self._is_flexible = message.is_flexible(version)
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
            self._value(field.type)
        if self._is_flexible:
            self._tagged_section(tagged)
        self._literal += "}"

    def _value(self, kind: Type) -> None:
        match kind:
            case Integer():
                self._add(JsonAction.INTEGER, kind.size, not kind.signed)
            case UuidBytes():
                self._add(JsonAction.ID)
            case Text():
                self._add(JsonAction.TEXT, self._width(2), kind.nullable, LONGEST_COMPACT_TEXT)
            case Blob():
                self._add(JsonAction.BLOB, self._width(4), kind.nullable, LONGEST_BLOB)
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

    def _optional(self, kind: Struct, width: int) -> None:
        presence_mark = self._add(JsonAction.PRESENCE_MARK, width)
        self._struct(kind.fields)
        # the text after the struct is also written where there is no struct: it must not be a part of this step's literal
        self._add(JsonAction.NOTHING)
        presence_mark[3] = len(self._steps.rows)

    def _tagged_section(self, fields: list[Field]) -> None:
        self._add(JsonAction.TAGGED)
        next_tag = len(self._steps.rows)
        section = self._add(JsonAction.NEXT_TAG, len(fields))
        tags = [self._add(JsonAction.TAG, field.tag or 0) for field in fields]
        for field, tag in zip(fields, tags, strict=True):
            tag[3] = len(self._steps.rows)
            self._literal = name = f',"{field.json}":'
            if isinstance(field.type, Struct) and field.type.nullable:
                self._optional(field.type, AS_VARINT)
            else:
                self._value(field.type)
            default = json.dumps(field_json(field, field.default), separators=(",", ":"), ensure_ascii=False)
            self._add(JsonAction.TAG_END, next_tag, *self._steps.place_of(name + default))
        section[3] = len(self._steps.rows)
