"""The tables of ``messages/`` as programs: lists of steps by which ``loops.walk_value`` goes from field to field of a key or a value.

numba cannot walk the tables themselves, which are Python objects. Each version of each message becomes one program, and all programs of a
kind lie in one array of steps.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from groupcoord_spark.protocol.fields import Array, Blob, Field, Integer, Message, Struct, Text, Type, UuidBytes
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.primitives import LONGEST_COMPACT_TEXT

VERSIONS = 64
"""More versions than any message has."""

MARKED_FIELDS = frozenset({"topic_id", "partitions"})
"""Fields whose positions in a value ``loops.walk_value`` reports, in the order of the bytes."""

AS_VARINT = 0
"""In place of the width of a length: the length is an unsigned varint of n + 1."""

UUID_BYTES = 16
LONGEST_BLOB = 2**31 - 1


class Action(IntEnum):
    """What a step does. A step is an action and three numbers, a, b and c, which the comments explain; - means not used.

    width: bytes of a length or count, or AS_VARINT.
    """

    SKIP = 0  # a: how many bytes
    TEXT = 1  # a text or a blob. a: width; b: 1 where it may be null; c: the most bytes it may have
    NUMBERS = 2  # an array of numbers or ids. a: width; b: 1 where it may be null; c: bytes of an element
    ELEMENTS = 3  # begins an array of anything else. a: width; b: 1 where it may be null; c: the step after NEXT
    NEXT = 4  # ends an element. a: the step that begins the next element
    PRESENCE_MARK = 5  # of a nullable struct. a: width of the mark, int8 or AS_VARINT; b: -; c: the step after the struct
    TAGGED = 6  # begins a tagged section: reads how many tags there are
    NEXT_TAG = 7  # reads a tag and its size. a: how many tags are known, whose TAG steps follow; b: -; c: the step after the section
    TAG = 8  # reads nothing. a: the number of a known tag; b: -; c: the step that reads its field
    TAG_END = 9  # checks the size of the tag. a: the NEXT_TAG to go back to
    MARK = 10  # reads nothing: the position of the next field is reported
    END = 11


class Programs(NamedTuple):
    """The programs of all values.

    Attributes:
        steps: int64[n, 4]: action, a, b, c.
        begin: int64, the first step of the program of ``key_type * VERSIONS + version``; -1 where there is no program.
    """

    steps: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]


class FlatPrograms(NamedTuple):
    """Programs of messages that hold nothing but numbers, ids and texts, and the columns that their fields become.

    A program is found by the int16 that the message begins with: the type of a key, the version of a value. All columns are int64. A
    number takes one column; a text takes two, its start and its end; an id takes two, its high and its low half.

    Attributes:
        steps: int64[n, 4]: action, a, b, c.
        begin: int64, by that int16 the first step of the program; -1 where there is no program.
        fields: int64[len(begin), most fields, 3]: for each field of a program its first column (-1 beyond the last field), its width, and
            1 for a text.
        columns: the first column of each field, by the field's name.
        absent: int64, the content of each column for a message without the field: 0 for an id, else -1.
    """

    steps: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    fields: npt.NDArray[np.int64]
    columns: dict[str, int]
    absent: npt.NDArray[np.int64]


@cache
def programs_of_keys() -> FlatPrograms:
    """The programs of the keys of all types that current Kafka knows, by key type."""
    return _flat_programs(
        {key_type: (record_type.key, 0) for key_type, record_type in RECORD_TYPES.items() if record_type.dialect is None}
    )


@cache
def programs_of_offset_values() -> FlatPrograms:
    """The programs of the values of offset commits, by version. Version 0 of key type 0 has the layout of version 0 of key type 1."""
    first, last = OFFSET_COMMIT_VALUE.versions
    return _flat_programs({version: (OFFSET_COMMIT_VALUE, version) for version in range(first, last + 1)})


def _flat_programs(messages: dict[int, tuple[Message, int]]) -> FlatPrograms:
    steps: list[list[int]] = []
    begin = np.full(max(messages) + 1, -1, np.int64)
    most = max(len(message.fields) for message, _ in messages.values())
    fields = np.full((len(begin), most, 3), -1, np.int64)
    columns: dict[str, int] = {}
    absent: list[int] = []
    for first_int16, (message, version) in messages.items():
        begin[first_int16] = len(steps)
        # tagged fields lie after all others, wherever the table lists them
        fields_of_version = sorted(message.fields_of(version), key=lambda field: field.tag is not None)
        all_fields = frozenset(field.name for field in fields_of_version)
        _Program(steps, message, version, all_fields).fields(tuple(fields_of_version))
        steps.append([Action.END, 0, 0, 0])
        for place, field in enumerate(fields_of_version):
            if field.name not in columns:
                columns[field.name] = len(absent)
                absent += [-1] if isinstance(field.type, Integer) else [0, 0] if isinstance(field.type, UuidBytes) else [-1, -1]
            if isinstance(field.type, Integer | UuidBytes):
                fields[first_int16, place] = columns[field.name], _size(field.type), False
            elif isinstance(field.type, Text) and not field.type.nullable:
                fields[first_int16, place] = columns[field.name], AS_VARINT if message.is_flexible(version) else 2, True
            else:
                raise TypeError(f"{message.name}: {field.name!r} is no number, id or text")
    return FlatPrograms(np.array(steps, np.int64), begin, fields, columns, np.array(absent, np.int64))


@cache
def programs_of_values() -> Programs:
    """The programs of every version of every record type's value. A program begins after the two bytes of the version."""
    steps: list[list[int]] = []
    begin = np.full((max(RECORD_TYPES) + 1) * VERSIONS, -1, np.int64)
    for key_type, record_type in RECORD_TYPES.items():
        message = record_type.value
        for version in range(message.versions[0], message.versions[1] + 1):
            begin[key_type * VERSIONS + version] = len(steps)
            _Program(steps, message, version, MARKED_FIELDS).fields(message.fields_of(version))
            steps.append([Action.END, 0, 0, 0])
    return Programs(np.array(steps, np.int64), begin)


class _Program:
    """Appends the program of one version of a message to a list of steps."""

    def __init__(self, steps: list[list[int]], message: Message, version: int, marked_fields: frozenset[str]) -> None:
        self._steps = steps
        self._marked_fields = marked_fields
        self._version = version
        self._is_flexible = message.is_flexible(version)

    def _add(self, action: Action, a: int = 0, b: int = 0, c: int = 0) -> list[int]:
        step = [int(action), a, b, c]
        self._steps.append(step)
        return step

    def _skip(self, size: int) -> None:
        if size:
            self._add(Action.SKIP, size)

    def fields(self, fields: tuple[Field, ...]) -> None:
        fixed = 0
        for field in fields:
            if field.tag is not None:
                continue
            if isinstance(field.type, Integer | UuidBytes) and field.name not in self._marked_fields:
                fixed += _size(field.type)
                continue
            # one step skips all fields of fixed size that lie side by side
            self._skip(fixed)
            fixed = 0
            self._field(field)
        self._skip(fixed)
        if self._is_flexible:
            self._tagged([field for field in fields if field.tag is not None])

    def _field(self, field: Field) -> None:
        if field.name in self._marked_fields:
            self._add(Action.MARK)
        self.value(field.type)

    def value(self, kind: Type) -> None:
        width = AS_VARINT if self._is_flexible else 2 if isinstance(kind, Text) else 4
        match kind:
            case Integer() | UuidBytes():
                self._skip(_size(kind))
            case Text(nullable=nullable):
                self._add(Action.TEXT, width, nullable, LONGEST_COMPACT_TEXT)
            case Blob(nullable=nullable):
                self._add(Action.TEXT, width, nullable, LONGEST_BLOB)
            case Array(element=Integer() | UuidBytes() as element, nullable=nullable):
                self._add(Action.NUMBERS, width, nullable, _size(element))
            case Array(element=element, nullable=nullable):
                elements = self._add(Action.ELEMENTS, width, nullable)
                begin = len(self._steps)
                self.value(element)
                self._add(Action.NEXT, begin)
                elements[3] = len(self._steps)
            case Struct(nullable=False):
                self.fields(tuple(field for field in kind.fields if field.is_in(self._version)))
            case Struct():
                self._optional(kind, 1)

    def _optional(self, kind: Struct, width: int) -> None:
        presence_mark = self._add(Action.PRESENCE_MARK, width)
        self.value(Struct(kind.fields))
        presence_mark[3] = len(self._steps)

    def _tagged(self, known: list[Field]) -> None:
        self._add(Action.TAGGED)
        next_tag = len(self._steps)
        section = self._add(Action.NEXT_TAG, len(known))
        tags = [self._add(Action.TAG, field.tag or 0) for field in known]
        for field, tag in zip(known, tags, strict=True):
            tag[3] = len(self._steps)
            if isinstance(field.type, Struct) and field.type.nullable:
                self._optional(field.type, AS_VARINT)
            else:
                self._field(field)
            self._add(Action.TAG_END, next_tag)
        section[3] = len(self._steps)


def _size(kind: Integer | UuidBytes) -> int:
    return kind.size if isinstance(kind, Integer) else UUID_BYTES
