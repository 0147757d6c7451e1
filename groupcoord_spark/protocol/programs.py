"""The message tables compiled to field bytecode: lists of steps that ``loops.walk_value`` follows through the fields of a key or value.

numba cannot walk the tables themselves, which are Python objects. Each version of each message becomes one program, and all programs of a
kind lie in one array of steps. ``json_programs`` makes those that write JSON.
"""

from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from groupcoord_spark.protocol.fields import REQUIRED, Array, Blob, Field, Integer, Message, Struct, Text, Type, UuidBytes
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.messages.classic import GROUP_METADATA_VALUE
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.primitives import COMPACT, LONGEST_COMPACT_TEXT

VERSIONS = 64
"""More versions than any message has."""

MARKED_FIELDS = frozenset({"topic_id", "partitions"})
"""Fields whose positions in a value ``loops.walk_value`` reports, in the order of the bytes."""

UUID_BYTES = 16
LONGEST_BLOB = 2**31 - 1


class Action(IntEnum):
    """What a step does. A step is an action and three numbers, a, b and c, which the comments explain; - means not used.

    width: bytes of a length or count, or COMPACT.
    """

    SKIP = 0  # a: how many bytes
    TEXT = 1  # a text or a blob. a: width; b: 1 where it may be null; c: the most bytes it may have
    NUMBERS = 2  # an array of numbers or ids. a: width; b: 1 where it may be null; c: bytes of an element
    ELEMENTS = 3  # begins an array of anything else. a: width; b: 1 where it may be null; c: the step after NEXT
    NEXT = 4  # ends an element. a: the step that begins the next element
    PRESENCE_MARK = 5  # of a nullable struct. a: width of the mark, int8 or COMPACT; b: -; c: the step after the struct
    TAGGED = 6  # begins a tagged section: reads how many tags there are
    NEXT_TAG = 7  # reads a tag and its size. a: how many tags are known, whose TAG steps follow; b: 1 inside a tag; c: the step after
    TAG = 8  # reads nothing. a: the number of a known tag; b: -; c: the step that reads its field
    TAG_END = 9  # checks the size of the tag. a: the NEXT_TAG to go back to; b, c: start and end of the JSON of the field's default
    MARK = 10  # reads nothing: the position of the next field is reported
    END = 11
    # in programs that write JSON, instead of SKIP and NUMBERS
    INTEGER = 12  # a: how many bytes; b: 1 for an unsigned integer
    ID = 13  # a topic id
    NAME = 14  # a text that is replaced by a name. As TEXT; b: also twice the number of the name's kind
    BLOB = 15  # bytes. As TEXT
    HIDDEN = 16  # a text or bytes replaced by null. As TEXT
    NOTHING = 17


class Programs(NamedTuple):
    """The programs of values.

    Attributes:
        steps: int64[n, 4]: action, a, b, c.
        begin: int64, the first step of each message's bytecode, by version or by ``key_type * VERSIONS + version``, or -1.
    """

    steps: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]


class FlatPrograms(NamedTuple):
    """Programs of messages that hold nothing but numbers, ids and texts, and the columns that their fields become.

    A program is found by the int16 that the message begins with: the type of a key, the version of a value. All columns are int64. A
    number takes one column; a text takes two, its start and its end; an id takes two, its high and its low half.

    Attributes:
        steps: int64[n, 4]: action, a, b, c.
        begin: int64, by that int16 the first step of the bytecode, or -1.
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
    """Compile the bytecode of the keys of all types in current Kafka, by key type."""
    return _flat_programs({key_type: (record_type.key, 0) for key_type, record_type in RECORD_TYPES.items() if record_type.dialect is None})


@cache
def programs_of_offset_values() -> FlatPrograms:
    """Compile the bytecode of offset commit values, by version. Version 0 of key type 0 has the layout of version 0 of key type 1."""
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
        _Walk(steps, message, version, all_fields).fields(tuple(fields_of_version))
        steps.append([Action.END, 0, 0, 0])
        for place, field in enumerate(fields_of_version):
            if field.name not in columns:
                columns[field.name] = len(absent)
                default = -1 if field.default is REQUIRED else field.default
                absent += [default] if isinstance(field.type, Integer) else [0, 0] if isinstance(field.type, UuidBytes) else [-1, -1]
            if isinstance(field.type, Integer | UuidBytes):
                fields[first_int16, place] = columns[field.name], _size(field.type), False
            elif isinstance(field.type, Text) and not field.type.nullable:
                fields[first_int16, place] = columns[field.name], COMPACT if message.is_flexible(version) else 2, True
            else:
                raise TypeError(f"{message.name}: {field.name!r} is not a number, id or text")
    return FlatPrograms(np.array(steps, np.int64), begin, fields, columns, np.array(absent, np.int64))


@cache
def programs_of_values() -> Programs:
    """Compile the bytecode of all versions of all record types' values. It starts after the two version bytes."""
    return _programs({key_type * VERSIONS: record_type.value for key_type, record_type in RECORD_TYPES.items()}, MARKED_FIELDS)


@cache
def programs_of_classic_groups() -> Programs:
    """Compile the bytecode of classic group values by version, with marks on the fields that ``classic_group_checks`` reads."""
    return _programs({0: GROUP_METADATA_VALUE}, frozenset({"protocol_type", "protocol", "member_id", "group_instance_id", "subscription"}))


def _programs(messages: dict[int, Message], marked_fields: frozenset[str]) -> Programs:
    """Compile the bytecode of all versions of these messages, keyed by the place in ``begin`` of each version 0."""
    steps: list[list[int]] = []
    begin = np.full(max(place + message.versions[1] for place, message in messages.items()) + 1, -1, np.int64)
    for place, message in messages.items():
        for version in range(message.versions[0], message.versions[1] + 1):
            begin[place + version] = len(steps)
            _Walk(steps, message, version, marked_fields).fields(message.fields_of(version))
            steps.append([Action.END, 0, 0, 0])
    return Programs(np.array(steps, np.int64), begin)


class Program:
    """Appends the program of one version of a message to a list of steps: what all programs have in common."""

    def __init__(self, steps: list[list[int]], message: Message, version: int) -> None:
        self.steps = steps
        self.version = version
        self.is_flexible = message.is_flexible(version)
        self._is_in_tag = False

    def add(self, action: Action, a: int = 0, b: int = 0, c: int = 0) -> list[int]:
        """Appends one step."""
        self.steps.append([int(action), a, b, c])
        return self.steps[-1]

    def fields(self, fields: tuple[Field, ...]) -> None:
        """Append the steps of a struct's fields in this version."""
        raise NotImplementedError

    def field(self, field: Field) -> None:
        """Appends the steps of one field."""
        self.value(field.type)

    def value(self, kind: Type) -> None:
        """Appends the steps of a value. Numbers, ids, texts and bytes are left to the two kinds of programs."""
        match kind:
            case Array(element=element, nullable=nullable):
                elements = self.add(Action.ELEMENTS, self.width(kind), nullable)
                begin = len(self.steps)
                self.value(element)
                self.add(Action.NEXT, begin)
                elements[3] = len(self.steps)
            case Struct(nullable=False):
                self.fields(tuple(field for field in kind.fields if field.is_in(self.version)))
            case Struct():
                self._optional(kind, 1)

    def sized(self, action: Action, kind: Text | Blob, kind_of_name: int = 0) -> None:
        """Appends the step of a text or of bytes."""
        longest = LONGEST_COMPACT_TEXT if isinstance(kind, Text) else LONGEST_BLOB
        self.add(action, self.width(kind), kind.nullable | kind_of_name << 1, longest)

    def width(self, kind: Type) -> int:
        """Return the bytes of a length or count, or COMPACT."""
        return COMPACT if self.is_flexible else 2 if isinstance(kind, Text) else 4

    def tagged(self, fields: list[Field]) -> None:
        """Appends the steps of a tagged section."""
        self.add(Action.TAGGED)
        next_tag = len(self.steps)
        section = self.add(Action.NEXT_TAG, len(fields), self._is_in_tag)
        tags = [self.add(Action.TAG, field.tag or 0) for field in fields]
        self._is_in_tag, was_in_tag = True, self._is_in_tag
        for field, tag in zip(fields, tags, strict=True):
            tag[3] = len(self.steps)
            default = self.tag(field)
            self.add(Action.TAG_END, next_tag, *default)
        self._is_in_tag = was_in_tag
        section[3] = len(self.steps)

    def tag(self, field: Field) -> tuple[int, int]:
        """Appends the steps of a tagged field. Returns where its default begins and ends among the JSON literals."""
        if isinstance(field.type, Struct) and field.type.nullable:
            self._optional(field.type, COMPACT)
        else:
            self.field(field)
        return 0, 0

    def _optional(self, kind: Struct, width: int) -> None:
        presence_mark = self.add(Action.PRESENCE_MARK, width)
        self.value(Struct(kind.fields))
        self.end_of_optional()
        presence_mark[3] = len(self.steps)

    def end_of_optional(self) -> None:
        """Appends what ends a nullable struct that is there."""


class _Walk(Program):
    """A program that skips fields, but for the marked ones, whose positions it reports."""

    def __init__(self, steps: list[list[int]], message: Message, version: int, marked_fields: frozenset[str]) -> None:
        super().__init__(steps, message, version)
        self._marked_fields = marked_fields

    def _skip(self, size: int) -> None:
        if size:
            self.add(Action.SKIP, size)

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
            self.field(field)
        self._skip(fixed)
        if self.is_flexible:
            self.tagged([field for field in fields if field.tag is not None])

    def field(self, field: Field) -> None:
        if field.name in self._marked_fields:
            self.add(Action.MARK)
        self.value(field.type)

    def value(self, kind: Type) -> None:
        match kind:
            case Integer() | UuidBytes():
                self._skip(_size(kind))
            case Text() | Blob():
                self.sized(Action.TEXT, kind)
            case Array(element=Integer() | UuidBytes() as element, nullable=nullable):
                self.add(Action.NUMBERS, self.width(kind), nullable, _size(element))
            case _:
                super().value(kind)


def _size(kind: Integer | UuidBytes) -> int:
    return kind.size if isinstance(kind, Integer) else UUID_BYTES
