"""The message tables compiled to field bytecode: lists of steps that ``json_loops`` follows to read a message and write its JSON.

numba cannot walk the tables themselves, which are Python objects. Each version of each message becomes one program. A step first writes a
literal, which is the text between two values, for example ``,"topic":``; then it acts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .definition import field_json
from .fields import Blob, Field, Integer, Message, Text, Type, UuidBytes
from .messages import RECORD_TYPES
from .messages.offsets import OFFSET_COMMIT_VALUE
from .programs import VERSIONS, Action, Program
from .record_types import KeyType


@dataclass(frozen=True, eq=False)
class HiddenFields:
    """The fields whose content a redacted dump replaces. Bytes always become null.

    Attributes:
        kind_of_name: text field that gets a made-up name -> number of the kind of names.
        null_text: the text field that becomes null: the name of the list that has the field, and the name of the field.
    """

    kind_of_name: Mapping[str, int]
    null_text: tuple[str, str]


class JsonPrograms(NamedTuple):
    """The programs of all keys and values that current Kafka knows. A program begins after the int16 of the type or version.

    Attributes:
        literals: uint8, the bytes of all literals.
        steps: int64[n, 6]: action, a, b, c, start and end of the literal.
        key_begin: int64, by key type the first step of the key's bytecode, or -1.
        value_begin: int64, by ``key_type * VERSIONS + version`` the same for values.
    """

    literals: npt.NDArray[np.uint8]
    steps: npt.NDArray[np.int64]
    key_begin: npt.NDArray[np.int64]
    value_begin: npt.NDArray[np.int64]


@cache
def json_programs(hidden: HiddenFields | None = None) -> JsonPrograms:
    """Compile the bytecode of all messages. ``hidden`` names the fields to redact; None redacts nothing."""
    steps: list[list[int]] = []
    literals = _Literals()
    key_begin = np.full(max(RECORD_TYPES) + 1, -1, np.int64)
    value_begin = np.full(len(key_begin) * VERSIONS, -1, np.int64)
    for key_type, record_type in RECORD_TYPES.items():
        if record_type.dialect is not None:
            continue
        key_begin[key_type] = len(steps)
        _JsonProgram(steps, literals, record_type.key, 0, hidden).write()
        for version in range(VERSIONS):
            message = record_type.value
            if key_type == KeyType.LEGACY_OFFSET_COMMIT and version > 0:
                message = OFFSET_COMMIT_VALUE
            if message.versions[0] <= version <= message.versions[1]:
                value_begin[key_type * VERSIONS + version] = len(steps)
                _JsonProgram(steps, literals, message, version, hidden).write()
    return JsonPrograms(np.frombuffer(bytes(literals.all), np.uint8), np.array(steps, np.int64), key_begin, value_begin)


class _Literals:
    """The literals of all programs, one behind another. A literal that comes again is stored once."""

    def __init__(self) -> None:
        self.all = bytearray()
        self._places: dict[str, tuple[int, int]] = {}

    def place_of(self, text: str) -> tuple[int, int]:
        """Return the start and end of a text."""
        if text not in self._places:
            start = len(self.all)
            self.all += text.encode()
            self._places[text] = start, len(self.all)
        return self._places[text]


class _JsonProgram(Program):
    """A program whose steps write JSON: each begins with a literal."""

    def __init__(self, steps: list[list[int]], literals: _Literals, message: Message, version: int, hidden: HiddenFields | None) -> None:
        super().__init__(steps, message, version)
        self._literals = literals
        self._message = message
        self._hidden = hidden
        self._field_name = ""
        self._literal = ""

    def write(self) -> None:
        """Appends the whole program."""
        self.fields(self._message.fields_of(self.version))
        self.add(Action.END)

    def add(self, action: Action, a: int = 0, b: int = 0, c: int = 0) -> list[int]:
        step = super().add(action, a, b, c)
        step += self._literals.place_of(self._literal)
        self._literal = ""
        return step

    def fields(self, fields: tuple[Field, ...]) -> None:
        untagged = [field for field in fields if field.tag is None]
        tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
        if [*untagged, *tagged] != list(fields) or (tagged and not untagged):
            raise TypeError(f"{self._message.name}: the order of the fields in JSON is not their order in the bytes")
        self._literal += "{"
        for place, field in enumerate(untagged):
            self._literal += f'{"," if place else ""}"{field.json}":'
            self.field(field)
        if self.is_flexible:
            self.tagged(tagged)
        self._literal += "}"

    def field(self, field: Field) -> None:
        outer_name, self._field_name = self._field_name, field.name
        match field.type:
            case Text() if self._hidden and field.name in self._hidden.kind_of_name:
                self.sized(Action.NAME, field.type, self._hidden.kind_of_name[field.name])
            case Text() if self._hidden and (outer_name, field.name) == self._hidden.null_text:
                self.sized(Action.HIDDEN, field.type)
            case _:
                self.value(field.type)
        self._field_name = outer_name

    def value(self, kind: Type) -> None:
        match kind:
            case Integer():
                self.add(Action.INTEGER, kind.size, not kind.signed)
            case UuidBytes():
                self.add(Action.ID)
            case Text():
                self.sized(Action.TEXT, kind)
            case Blob():
                self.sized(Action.HIDDEN if self._hidden else Action.BLOB, kind)
            case _:
                super().value(kind)

    def tag(self, field: Field) -> tuple[int, int]:
        self._literal = name = f',"{field.json}":'
        super().tag(field)
        default = json.dumps(field_json(field, field.default), separators=(",", ":"), ensure_ascii=False)
        return self._literals.place_of(name + default)

    def end_of_optional(self) -> None:
        # the text after the struct is also written for a null struct, so it must not be part of this step's literal
        self.add(Action.NOTHING)
