"""Which of many values decode, told from their tables and a few positions, without decoding one.

The job must know of every record whether it decodes (what does not supersedes nothing and goes to quarantine), but the content only of
the few that are kept. The answer here is one-sided: True is certain, False means "ask ``scalar.decode_value``", which stays the
definition. Older layouts, bytes left over, odd tagged fields and unusually long arrays are left to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from groupcoord_spark.protocol.fields import Array, Blob, Field, Integer, Message, Struct, Text, Type, UuidBytes
from groupcoord_spark.protocol.slices import Bytes, Mask, Positions, Slices

LONGEST_ARRAY = 64
"""Elements that are followed in step; a row with a longer array of anything but fixed-size elements is left to the scalar decoder."""

LONGEST_TAGGED_SECTION = 4
LONGEST_TEXT = 32767
UNKNOWN_TAG = 63
"""Above every tag that is known."""
VALUE_VERSION_BYTES = 2


def surely_decode(message: Message, version: int, values: Slices) -> Mask:
    """True for each value that ``message`` in ``version`` reads to its last byte; bool of length n.

    Every value must begin with that version (its two bytes are skipped here) and be no null.
    """
    everywhere = np.ones(len(values), np.bool_)
    walk = Walk(values.data, message.is_flexible(version), version, values.start + VALUE_VERSION_BYTES, values.end, everywhere)
    walk.fields(message.fields_of(version))
    read_whole: Mask = walk.at == walk.end
    return walk.ok & read_whole


@dataclass(slots=True)
class Walk:
    """The same field of all rows at once: ``at`` is where each row's next field begins, if the row is ``ok``.

    Places only grow, so it is enough to look once, at the end, whether each row has reached its own: until then one that is too short is
    read from its neighbours, and what is read of one that is not ``ok`` means nothing.
    """

    data: Bytes
    is_flexible: bool
    version: int
    at: Positions
    end: Positions
    ok: Mask

    def rows(self, chosen: npt.NDArray[np.int64]) -> Self:
        """The walk of some of the rows, to be taken back afterwards."""
        return replace(self, at=self.at[chosen], end=self.end[chosen], ok=self.ok[chosen])

    def take_back(self, chosen: npt.NDArray[np.int64], part: Walk) -> None:
        self.at[chosen] = part.at
        self.ok[chosen] = part.ok

    def fields(self, fields: tuple[Field, ...]) -> None:
        fixed = 0
        for field in fields:
            if field.tag is not None:
                continue
            match field.type:
                case Integer(size=size):
                    fixed += size
                case UuidBytes():
                    fixed += 16
                case kind:
                    # fields of one size beside each other are stepped over together
                    if fixed:
                        self.skip(fixed)
                        fixed = 0
                    self.value(kind)
        if fixed:
            self.skip(fixed)
        if self.is_flexible:
            self.tagged_section({field.tag: field for field in fields if field.tag is not None})

    def value(self, kind: Type) -> None:
        match kind:
            case Integer(size=size):
                self.skip(size)
            case UuidBytes():
                self.skip(16)
            case Text() | Blob():
                self.skip(self.length(nullable=kind.nullable, is_text=isinstance(kind, Text)))
            case Array():
                self.array(kind)
            case Struct(nullable=False):
                self.fields(tuple(field for field in kind.fields if field.is_in(self.version)))
            case Struct():
                self.optional_struct(kind)

    def skip(self, size: int | Positions) -> None:
        self.at = self.at + size

    def big_endian(self, size: int) -> Positions:
        """The signed integer at ``at``."""
        if len(self.data) < size:
            self.ok[:] = False
            return np.zeros(len(self.at), np.int64)
        # as if an integer began at each byte
        anywhere: npt.NDArray[Any] = np.ndarray((len(self.data) - size + 1,), f">i{size}", self.data.data, 0, (1,))
        number = anywhere[np.minimum(self.at, len(anywhere) - 1)].astype(np.int64)
        self.skip(size)
        return number

    def byte(self) -> Positions:
        """The unsigned byte at ``at``."""
        number = self.data[np.minimum(self.at, len(self.data) - 1)].astype(np.int64)
        self.skip(1)
        return number

    def unsigned_varint(self) -> Positions:
        """The unsigned varint at ``at``, of at most 31 bits."""
        if not len(self.data):
            self.ok[:] = False
            return np.zeros(len(self.at), np.int64)
        number = self.byte()
        rows = np.flatnonzero(number >= 0x80)
        if len(rows):
            number[rows] &= 0x7F
        for shift in range(7, 35, 7):
            if not len(rows):
                break
            part = self.rows(rows)
            byte = part.byte()
            self.take_back(rows, part)
            number[rows] |= (byte & 0x7F) << shift
            rows = rows[byte >= 0x80]
        self.ok[rows] = False
        # beyond 31 bits Java reads a negative number; whoever writes that is left to the scalar decoder
        self.ok &= number < 1 << 31
        return number

    def length(self, *, nullable: bool, is_text: bool) -> Positions:
        if self.is_flexible:
            length = self.unsigned_varint() - 1
            self.ok &= length <= (LONGEST_TEXT if is_text else 2**31 - 1)
        else:
            length = self.big_endian(2 if is_text else 4)
        if not nullable:
            self.ok &= length >= 0
        return np.maximum(length, 0)

    def array(self, kind: Array) -> None:
        count = self.unsigned_varint() - 1 if self.is_flexible else self.big_endian(4)
        if not kind.nullable:
            self.ok &= count >= 0
        self.ok &= count <= self.end - self.at
        count = np.where(self.ok, np.maximum(count, 0), 0)
        match kind.element:
            case Integer(size=size):
                self.skip(count * size)
            case UuidBytes():
                self.skip(count * 16)
            case element:
                self.ok &= count <= LONGEST_ARRAY
                self.elements(element, np.where(self.ok, count, 0))

    def elements(self, element: Type, count: Positions) -> None:
        for k in range(int(count.max(initial=0))):
            rows = np.flatnonzero((count > k) & self.ok)
            part = self.rows(rows)
            part.value(element)
            self.take_back(rows, part)

    def optional_struct(self, kind: Struct) -> None:
        is_there = self.big_endian(1) >= 0
        rows = np.flatnonzero(is_there & self.ok)
        part = self.rows(rows)
        part.value(Struct(kind.fields))
        self.take_back(rows, part)

    def tagged_section(self, known: dict[int | None, Field]) -> None:
        count = self.unsigned_varint()
        self.ok &= count <= LONGEST_TAGGED_SECTION
        for k in range(int(np.where(self.ok, count, 0).max(initial=0))):
            rows = np.flatnonzero((count > k) & self.ok)
            part = self.rows(rows)
            part.tagged_field(known)
            self.take_back(rows, part)

    def tagged_field(self, known: dict[int | None, Field]) -> None:
        tag, size = self.unsigned_varint(), self.unsigned_varint()
        begin = self.at
        reached = begin + size
        # unknown tags are all skipped alike
        tag = np.minimum(tag, UNKNOWN_TAG)
        for number in np.flatnonzero(np.bincount(tag[self.ok])):
            rows = np.flatnonzero((tag == number) & self.ok)
            part = self.rows(rows)
            field = known.get(int(number))
            if field is None:
                part.skip(size[rows])
            elif isinstance(field.type, Struct) and field.type.nullable:
                part.tagged_optional_struct(field.type)
            else:
                part.value(field.type)
            self.take_back(rows, part)
        self.ok &= self.at == reached  # Kafka accepts a known tag of a wrong size; the scalar decoder says so

    def tagged_optional_struct(self, kind: Struct) -> None:
        is_there = self.unsigned_varint() != 0
        rows = np.flatnonzero(is_there & self.ok)
        part = self.rows(rows)
        part.value(Struct(kind.fields))
        self.take_back(rows, part)
