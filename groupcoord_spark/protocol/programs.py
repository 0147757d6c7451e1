"""The tables of ``messages/`` as lists of steps, by which the loops follow the bytes of a key or a value from field to field."""

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
"""More than any message has."""

NOTED = frozenset({"topic_id", "partitions"})
"""Fields of any value whose positions are noted, in the order in which they come."""

AS_VARINT = 0
UUID_BYTES = 16
LONGEST_BLOB = 2**31 - 1


class Do(IntEnum):
    """What a step does; its three numbers are named behind it. Lengths take ``width`` bytes, AS_VARINT: an unsigned varint of n + 1."""

    SKIP = 0  # bytes
    TEXT = 1  # width, whether it may be null, the most there may be
    NUMBERS = 2  # width, whether it may be null, bytes of an element
    ELEMENTS = 3  # width, whether it may be null, the step after NEXT
    NEXT = 4  # the step that begins an element
    IF_THERE = 5  # width of the mark (int8 or AS_VARINT), -, the step if it is absent
    TAGGED = 6
    NEXT_TAG = 7  # how many tags are known, each with a TAG right behind this step, -, the step after the section
    TAG = 8  # the tag, -, the step that reads it
    TAG_END = 9  # the NEXT_TAG to go back to
    NOTE = 10  # reads nothing: the position of the field that follows is noted
    END = 11


class Programs(NamedTuple):
    """steps: int64[n, 4]. begin: int64, where the program of ``key_type * VERSIONS + version`` begins; -1 where there is none."""

    steps: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]


class FlatPrograms(NamedTuple):
    """How messages of numbers, ids and texts become columns of numbers, by the int16 that they begin with: a key's type, a value's version.

    steps: int64[n, 4]. begin: int64, where the program for that int16 begins; -1: there is none. fields: int64[begin, most fields, 3], for
    each field of a program its column, its width and whether it is a text; the column is -1 beyond the last field. A number takes one
    column. A text takes two, its start and its end, and so does an id, for its high and its low half. columns: the first column of each
    field. absent: int64, one for each column, what stands in it for a message without the field: 0 for an id, else -1.
    """

    steps: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    fields: npt.NDArray[np.int64]
    columns: dict[str, int]
    absent: npt.NDArray[np.int64]


@cache
def programs_of_keys() -> FlatPrograms:
    """The programs for the keys of all types that Kafka of today knows, by type."""
    return _flat_programs({key_type: (each.key, 0) for key_type, each in RECORD_TYPES.items() if each.dialect is None})


@cache
def programs_of_offset_values() -> FlatPrograms:
    """The programs for the values of offset commits, by version. Key types 0 and 1 have the same layouts."""
    first, last = OFFSET_COMMIT_VALUE.versions
    return _flat_programs({version: (OFFSET_COMMIT_VALUE, version) for version in range(first, last + 1)})


def _flat_programs(messages: dict[int, tuple[Message, int]]) -> FlatPrograms:
    steps: list[list[int]] = []
    begin = np.full(max(messages) + 1, -1, np.int64)
    most = max(len(message.fields) for message, _ in messages.values())
    fields = np.full((len(begin), most, 3), -1, np.int64)
    columns: dict[str, int] = {}
    absent: list[int] = []
    for which, (message, version) in messages.items():
        begin[which] = len(steps)
        # a tagged field comes last, wherever the table lists it
        of_version = sorted(message.fields_of(version), key=lambda field: field.tag is not None)
        _Program(steps, message, version, noted=frozenset(field.name for field in of_version)).fields(tuple(of_version))
        steps.append([Do.END, 0, 0, 0])
        for place, field in enumerate(of_version):
            if field.name not in columns:
                columns[field.name] = len(absent)
                absent += [-1] if isinstance(field.type, Integer) else [0, 0] if isinstance(field.type, UuidBytes) else [-1, -1]
            if isinstance(field.type, Integer | UuidBytes):
                fields[which, place] = columns[field.name], _size(field.type), False
            elif isinstance(field.type, Text) and not field.type.nullable:
                fields[which, place] = columns[field.name], AS_VARINT if message.is_flexible(version) else 2, True
            else:
                raise TypeError(f"{message.name}: {field.name!r} is no number, id or text")
    return FlatPrograms(np.array(steps, np.int64), begin, fields, columns, np.array(absent, np.int64))


@cache
def programs_of_values() -> Programs:
    """The steps for each version of each record type's value, without the two bytes of its version."""
    steps: list[list[int]] = []
    begin = np.full((max(RECORD_TYPES) + 1) * VERSIONS, -1, np.int64)
    for key_type, record_type in RECORD_TYPES.items():
        message = record_type.value
        for version in range(message.versions[0], message.versions[1] + 1):
            begin[key_type * VERSIONS + version] = len(steps)
            _Program(steps, message, version, NOTED).fields(message.fields_of(version))
            steps.append([Do.END, 0, 0, 0])
    return Programs(np.array(steps, np.int64), begin)


class _Program:
    """Appends the steps of one version of a message to those there are."""

    def __init__(self, steps: list[list[int]], message: Message, version: int, noted: frozenset[str]) -> None:
        self._steps = steps
        self._noted = noted
        self._version = version
        self._is_flexible = message.is_flexible(version)

    def _add(self, do: Do, a: int = 0, b: int = 0, c: int = 0) -> list[int]:
        step = [int(do), a, b, c]
        self._steps.append(step)
        return step

    def _skip(self, size: int) -> None:
        if size:
            self._add(Do.SKIP, size)

    def fields(self, fields: tuple[Field, ...]) -> None:
        fixed = 0
        for field in fields:
            if field.tag is not None:
                continue
            if isinstance(field.type, Integer | UuidBytes) and field.name not in self._noted:
                fixed += _size(field.type)
                continue
            # fields of one size beside each other are stepped over together
            self._skip(fixed)
            fixed = 0
            self._field(field)
        self._skip(fixed)
        if self._is_flexible:
            self._tagged([field for field in fields if field.tag is not None])

    def _field(self, field: Field) -> None:
        if field.name in self._noted:
            self._add(Do.NOTE)
        self.value(field.type)

    def value(self, kind: Type) -> None:
        width = AS_VARINT if self._is_flexible else 2 if isinstance(kind, Text) else 4
        match kind:
            case Integer() | UuidBytes():
                self._skip(_size(kind))
            case Text(nullable=nullable):
                self._add(Do.TEXT, width, nullable, LONGEST_COMPACT_TEXT)
            case Blob(nullable=nullable):
                self._add(Do.TEXT, width, nullable, LONGEST_BLOB)
            case Array(element=Integer() | UuidBytes() as element, nullable=nullable):
                self._add(Do.NUMBERS, width, nullable, _size(element))
            case Array(element=element, nullable=nullable):
                elements = self._add(Do.ELEMENTS, width, nullable)
                begin = len(self._steps)
                self.value(element)
                self._add(Do.NEXT, begin)
                elements[3] = len(self._steps)
            case Struct(nullable=False):
                self.fields(tuple(field for field in kind.fields if field.is_in(self._version)))
            case Struct():
                self._optional(kind, 1)

    def _optional(self, kind: Struct, width: int) -> None:
        if_there = self._add(Do.IF_THERE, width)
        self.value(Struct(kind.fields))
        if_there[3] = len(self._steps)

    def _tagged(self, known: list[Field]) -> None:
        self._add(Do.TAGGED)
        next_tag = len(self._steps)
        section = self._add(Do.NEXT_TAG, len(known))
        tags = [self._add(Do.TAG, field.tag or 0) for field in known]
        for field, tag in zip(known, tags, strict=True):
            tag[3] = len(self._steps)
            if isinstance(field.type, Struct) and field.type.nullable:
                self._optional(field.type, AS_VARINT)
            else:
                self._field(field)
            self._add(Do.TAG_END, next_tag)
        section[3] = len(self._steps)


def _size(kind: Integer | UuidBytes) -> int:
    return kind.size if isinstance(kind, Integer) else UUID_BYTES
