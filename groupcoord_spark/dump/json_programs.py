"""The tables of ``protocol.messages`` as programs: lists of steps by which ``loops.write_lines`` reads a message and writes its JSON.

numba cannot walk the tables themselves, which are Python objects. Each version of each message becomes one program. A step first writes a
literal, which is the text between two values, for example ``,"topic":``; then it acts.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from groupcoord_spark.dump.redaction import HIDDEN_TEXT, KINDS, KINDS_BY_NUMBER
from groupcoord_spark.protocol import RECORD_TYPES
from groupcoord_spark.protocol.fields import Array, Blob, Field, Integer, Message, Struct, Text, Type, UuidBytes
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.primitives import LONGEST_COMPACT_TEXT
from groupcoord_spark.protocol.programs import AS_VARINT, LONGEST_BLOB, VERSIONS
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.protocol.scalar import field_json


class Action(IntEnum):
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


class Piece(IntEnum):
    """The texts of a line that are the same in all lines of an offsets partition."""

    HEAD = 0
    TIMESTAMP = 1
    NO_KEY_NO_VALUE = 2
    PRODUCER_ID = 3
    PRODUCER_EPOCH = 4
    IS_NOT_TRANSACTIONAL = 5
    IS_TRANSACTIONAL = 6
    NO_CONTROL = 7
    CONTROL_ABORT = 8
    CONTROL_COMMIT = 9
    LEADER_EPOCH = 10
    KEY_BASE64 = 11
    VALUE_BASE64 = 12
    LINE_END = 13


_PIECES: Final = {
    Piece.TIMESTAMP: ',"timestamp":',
    Piece.NO_KEY_NO_VALUE: ',"key":null,"value":null',
    Piece.PRODUCER_ID: ',"producer_id":',
    Piece.PRODUCER_EPOCH: ',"producer_epoch":',
    Piece.IS_NOT_TRANSACTIONAL: ',"is_transactional":false',
    Piece.IS_TRANSACTIONAL: ',"is_transactional":true',
    Piece.NO_CONTROL: ',"control":null',
    Piece.CONTROL_ABORT: ',"control":"ABORT"',
    Piece.CONTROL_COMMIT: ',"control":"COMMIT"',
    Piece.LEADER_EPOCH: ',"leader_epoch":',
    Piece.KEY_BASE64: ',"key_base64":',
    Piece.VALUE_BASE64: ',"value_base64":',
    Piece.LINE_END: "}\n",
}


class JsonPrograms(NamedTuple):
    """The programs of all keys and values that current Kafka knows.

    Attributes:
        literals: uint8, all literals and pieces.
        pieces: int64[n, 2], start and end in ``literals`` of each Piece but HEAD.
        steps: int64[n, 6]: action, a, b, c, start and end of the literal.
        key_begin: int64, by key type the first step of the key's program, which begins after the type; -1 where there is no program.
        value_begin: int64, by ``key_type * VERSIONS + version`` the same for values.
    """

    literals: npt.NDArray[np.uint8]
    pieces: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    key_begin: npt.NDArray[np.int64]
    value_begin: npt.NDArray[np.int64]


@cache
def json_programs(*, is_redacted: bool) -> JsonPrograms:
    """The programs of all messages. is_redacted: hosts, ids, metadata and bytes are hidden, as ``Redaction`` says."""
    steps = _Steps()
    pieces = np.zeros((len(Piece), 2), np.int64)
    for piece, text in _PIECES.items():
        pieces[piece] = steps.place_of(text)
    key_begin = np.full(max(RECORD_TYPES) + 1, -1, np.int64)
    value_begin = np.full(len(key_begin) * VERSIONS, -1, np.int64)
    for key_type, record_type in RECORD_TYPES.items():
        if record_type.dialect is not None:
            continue
        key_begin[key_type] = steps.next
        program = _Program(steps, record_type.key, 0, is_redacted=is_redacted)
        program.write(f',"key":{{"type":{key_type:d},"data":', '},"value":')
        for version in range(VERSIONS):
            message = record_type.value
            if key_type == KeyType.LEGACY_OFFSET_COMMIT and version > 0:
                message = OFFSET_COMMIT_VALUE
            if message.versions[0] <= version <= message.versions[1]:
                value_begin[key_type * VERSIONS + version] = steps.next
                program = _Program(steps, message, version, is_redacted=is_redacted)
                program.write(f'{{"version":{version},"data":', "}")
    literals = np.frombuffer(bytes(steps.literals), np.uint8)
    return JsonPrograms(literals, pieces, np.array(steps.rows, np.int64), key_begin, value_begin)


class _Steps:
    """Steps and literals of all programs. A literal that comes again is stored once."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.literals = bytearray()
        self._places: dict[str, tuple[int, int]] = {}

    @property
    def next(self) -> int:
        return len(self.rows)

    def place_of(self, text: str) -> tuple[int, int]:
        """Where a text begins and ends in ``literals``."""
        if text not in self._places:
            start = len(self.literals)
            self.literals += text.encode()
            self._places[text] = start, len(self.literals)
        return self._places[text]


class _Program:
    """Appends the program of one version of a message to the steps."""

    def __init__(self, steps: _Steps, message: Message, version: int, *, is_redacted: bool) -> None:
        self._steps = steps
        self._message = message
        self._version = version
        self._is_flexible = message.is_flexible(version)
        self._is_redacted = is_redacted
        self._field_name = ""
        self._is_in_tag = False
        self._literal = ""

    def write(self, before: str, after: str) -> None:
        """Appends the whole program. before, after: the text around the JSON of the message."""
        self._literal = before
        self._struct(self._message.fields)
        self._literal += after
        self._add(Action.END)

    def _add(self, action: Action, a: int = 0, b: int = 0, c: int = 0) -> list[int]:
        step = [int(action), a, b, c, *self._steps.place_of(self._literal)]
        self._literal = ""
        self._steps.rows.append(step)
        return step

    def _struct(self, fields: tuple[Field, ...]) -> None:
        fields = tuple(field for field in fields if field.is_in(self._version))
        untagged = [field for field in fields if field.tag is None]
        tagged = [field for field in fields if field.tag is not None]
        if [*untagged, *tagged] != list(fields) or (tagged and not untagged):
            raise TypeError(f"{self._message.name}: a tagged field comes before an untagged one")
        comma = "{"
        for field in untagged:
            self._literal += f'{comma}"{field.json}":'
            self._field(field)
            comma = ","
        if not untagged:
            self._literal += "{"
        if self._is_flexible:
            self._tagged_section(tagged)
        self._literal += "}"

    def _field(self, field: Field) -> None:
        outer_name, self._field_name = self._field_name, field.name
        if self._is_redacted and isinstance(field.type, Text) and field.name in KINDS:
            self._sized(Action.NAME, field.type, KINDS_BY_NUMBER.index(KINDS[field.name]))
        elif self._is_redacted and isinstance(field.type, Text) and (outer_name, field.name) == HIDDEN_TEXT:
            self._sized(Action.HIDDEN, field.type)
        else:
            self._value(field.type)
        self._field_name = outer_name

    def _value(self, kind: Type) -> None:
        match kind:
            case Integer():
                self._add(Action.INTEGER, kind.size, not kind.signed)
            case UuidBytes():
                self._add(Action.ID)
            case Text():
                self._sized(Action.TEXT, kind)
            case Blob():
                self._sized(Action.HIDDEN if self._is_redacted else Action.BLOB, kind)
            case Array():
                elements = self._add(Action.ELEMENTS, self._width(4), kind.nullable)
                begin = self._steps.next
                self._value(kind.element)
                self._add(Action.NEXT, begin)
                elements[3] = self._steps.next
            case Struct(nullable=True):
                self._optional(kind, 1)
            case Struct():
                self._struct(kind.fields)

    def _width(self, width: int) -> int:
        return AS_VARINT if self._is_flexible else width

    def _sized(self, action: Action, kind: Text | Blob, kind_of_name: int = 0) -> None:
        width, longest = (2, LONGEST_COMPACT_TEXT) if isinstance(kind, Text) else (4, LONGEST_BLOB)
        self._add(action, self._width(width), kind.nullable | kind_of_name << 1, longest)

    def _optional(self, kind: Struct, width: int) -> None:
        presence_mark = self._add(Action.PRESENCE_MARK, width)
        self._struct(kind.fields)
        # the text after the struct is also written where there is no struct: it must not be a part of this step's literal
        self._add(Action.NOTHING)
        presence_mark[3] = self._steps.next

    def _tagged_section(self, fields: list[Field]) -> None:
        self._add(Action.TAGGED)
        next_tag = self._steps.next
        section = self._add(Action.NEXT_TAG, len(fields), self._is_in_tag)
        tags = [self._add(Action.TAG, field.tag or 0) for field in fields]
        self._is_in_tag, was_in_tag = True, self._is_in_tag
        for field, tag in zip(fields, tags, strict=True):
            tag[3] = self._steps.next
            name = f',"{field.json}":'
            self._literal = name
            if isinstance(field.type, Struct) and field.type.nullable:
                self._optional(field.type, AS_VARINT)
            else:
                self._field(field)
            default = json.dumps(field_json(field, field.default), separators=(",", ":"), ensure_ascii=False)
            self._add(Action.TAG_END, next_tag, *self._steps.place_of(name + default))
        self._is_in_tag = was_in_tag
        section[3] = self._steps.next
