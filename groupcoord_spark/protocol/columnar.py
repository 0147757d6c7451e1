"""Decodes many keys, or many values of offset commits, to columns. Each row has the result that ``definition`` gives for it.

The numba kernels read rows in the layout that brokers write. ``definition`` decodes all other rows, and all rows of a small input, one at a
time, so results, doubts and errors always match ``definition``. Texts are Arrow strings.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from . import fast_path, primitives
from .definition import DecodedKey, DecodedValue, decode_key, decode_value
from .errors import DecodeError, Doubt
from .fields import ZERO_UUID, Field, Integer, Text, UuidBytes
from .messages.offsets import OFFSET_COMMIT_VALUE
from .programs import FlatPrograms, programs_of_keys, programs_of_offset_values
from .record_types import KeyType
from .slices import Mask, Slices

Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Keys as columns of one length n.

    Attributes:
        key_type: int16; -1 where the key has less than two bytes.
        group_id, topic, member_id, regular_expression: null where the type has no such field or the key does not decode.
        partition: int32; -1 where the type has no such field or the key does not decode.
        ok: bool, the key decodes.
        status: dictionary of string, the code of the DecodeError; null where ok.
        refusals: (row, DecodeError) of the keys that do not decode, by row.
        doubts: (row, Doubt), by row.
    """

    key_type: Int16s
    group_id: pa.StringArray
    topic: pa.StringArray
    partition: Int32s
    member_id: pa.StringArray
    regular_expression: pa.StringArray
    ok: Mask
    status: pa.DictionaryArray
    refusals: list[tuple[int, DecodeError]]
    doubts: list[tuple[int, Doubt]]


@dataclass(frozen=True, slots=True)
class OffsetValueColumns:
    """Values of offset commits as columns of one length n. Tombstones and values that do not decode have no value.

    Attributes:
        value_version: int16; -1 where the value has less than two bytes.
        fields: the fields of OFFSET_COMMIT_VALUE by name. Numbers have their own size; without a value, and in versions without the field,
            they are the field's default, else -1. Texts are null there; ids have Kafka's text form, null for the zero id.
        ok: bool, the value decodes or is a tombstone.
        status: dictionary of string, the code of the DecodeError; null where ok.
        refusals: (row, DecodeError) of the values that do not decode, by row.
        doubts: (row, Doubt), by row.
    """

    value_version: Int16s
    fields: Mapping[str, Int32s | Int64s | pa.StringArray]
    ok: Mask
    status: pa.DictionaryArray
    refusals: list[tuple[int, DecodeError]]
    doubts: list[tuple[int, Doubt]]


def decode_key_columns(keys: Slices) -> KeyColumns:
    """Decode keys into columns. Pass distinct keys: no key is cached from row to row."""
    n = len(keys)
    programs = programs_of_keys()
    key_type, columns, ok = _read_flat(programs, keys)
    partition = columns[programs.columns["partition"]].astype(np.int32)
    ok &= (partition >= 0) | (key_type > KeyType.OFFSET_COMMIT)  # a negative partition is a doubt
    texts = {name: _Texts(name, programs, columns, ok) for name in ("group_id", "topic", "member_id", "regular_expression")}
    single = _SingleRows[DecodedKey](n, lambda row: decode_key(keys.row(row)))
    for row in np.flatnonzero(~ok).tolist():
        decoded = single.decode(row)
        fields = {} if decoded is None else decoded.fields
        ok[row] = decoded is not None
        partition[row] = fields.get("partition", -1)
        for name, text in texts.items():
            text.put(row, fields.get(name))
    strings = {name: text.strings(keys.data, single) for name, text in texts.items()}
    return KeyColumns(
        key_type, strings["group_id"], strings["topic"], partition, strings["member_id"], strings["regular_expression"],
        ok, single.status(), single.refusals(), single.doubts(),
    )  # fmt: skip


def decode_offset_value_columns(key_type: Int16s, values: Slices) -> OffsetValueColumns:
    """Decode offset commit values into columns. ``key_type`` holds one of OFFSET_KEY_TYPES for each row."""
    n = len(values)
    programs = programs_of_offset_values()
    value_version, columns, ok = _read_flat(programs, values)
    at, fields = programs.columns, OFFSET_COMMIT_VALUE.fields
    numbers = {field.name: columns[at[field.name]] for field in fields if isinstance(field.type, Integer)}
    # a negative offset is a doubt, and so is a newer version under key type 0
    ok &= (numbers["committed_offset"] >= 0) & ((key_type == KeyType.OFFSET_COMMIT) | (value_version == 0))
    texts = {field.name: _Texts(field.name, programs, columns, ok) for field in fields if isinstance(field.type, Text)}
    ids = {field.name: _Ids(columns[at[field.name] :][:2], ok) for field in fields if isinstance(field.type, UuidBytes)}
    single = _SingleRows[DecodedValue](n, lambda row: decode_value(int(key_type[row]), values.row(row)))
    for row in np.flatnonzero(~(ok | values.is_null)).tolist():
        decoded = single.decode(row)
        of_row = {} if decoded is None else decoded.fields
        ok[row] = decoded is not None
        for name, column in numbers.items():
            column[row] = of_row.get(name, programs.absent[at[name]])
        for name, text in texts.items():
            text.put(row, of_row.get(name))
        for name, topic_id in ids.items():
            topic_id.put(row, of_row.get(name, ZERO_UUID))

    def column_of(field: Field) -> Any:
        match field.type:
            case Integer(size=size):
                return numbers[field.name].astype(f"i{size}", copy=False)
            case Text():
                return texts[field.name].strings(values.data, single)
            case _:
                return ids[field.name].strings()

    by_name = {field.name: column_of(field) for field in fields}  # before the status: texts may decode more rows one by one
    return OffsetValueColumns(value_version, by_name, ok | values.is_null, single.status(), single.refusals(), single.doubts())


class _FlatRows(NamedTuple):
    """leading: int16[n], -1 where a row has less than two bytes. columns: int64[width, n]. is_read: bool[n], the columns have the row."""

    leading: Int16s
    columns: Int64s
    is_read: Mask


def _read_flat(programs: FlatPrograms, rows: Slices) -> _FlatRows:
    """Read the rows that the kernels can read into numeric columns. For a small input, read only the leading int16 of each row."""
    n = len(rows)
    flat = _FlatRows(np.full(n, -1, np.int16), np.repeat(programs.absent[:, np.newaxis], n, axis=1), np.zeros(n, np.bool_))
    if loops := fast_path.loops_for(n):
        stack, positions = np.empty(loops.DEEPEST, np.int64), np.empty(programs.fields.shape[1], np.int64)
        buffer = (rows.data, rows.start, rows.end, rows.is_null)
        loops.read_flat(*buffer, programs.steps, programs.begin, programs.fields, stack, positions, *flat)
    else:
        flat.leading[:] = rows.leading_int16()
    return flat


Decoded = TypeVar("Decoded", DecodedKey, DecodedValue)


class _SingleRows(Generic[Decoded]):
    """Decodes single rows, each at most once, and keeps their results and errors."""

    def __init__(self, rows: int, decode: Callable[[int], Decoded | None]) -> None:
        self._rows = rows
        self._decode: Callable[[int], Decoded | None] = decode
        self.decoded: dict[int, Decoded | None] = {}
        self.refused: dict[int, DecodeError] = {}

    def decode(self, row: int) -> Decoded | None:
        """Return the decoded row, or None for a tombstone or a row that does not decode."""
        if row not in self.decoded:
            try:
                self.decoded[row] = self._decode(row)
            except DecodeError as refusal:
                self.decoded[row] = None
                self.refused[row] = refusal.without_frames()
        return self.decoded[row]

    def refusals(self) -> list[tuple[int, DecodeError]]:
        return sorted(self.refused.items())

    def doubts(self) -> list[tuple[int, Doubt]]:
        return [(row, doubt) for row, decoded in sorted(self.decoded.items()) if decoded is not None for doubt in decoded.doubts]

    def status(self) -> pa.DictionaryArray:
        codes = sorted({refusal.code for refusal in self.refused.values()})
        indices = np.full(self._rows, -1, np.int8)
        for row, refusal in self.refused.items():
            indices[row] = codes.index(refusal.code)
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), pa.array(codes, pa.string()))


class _Texts:
    """A column of texts, most of them as places in the buffer, some decoded one by one."""

    def __init__(self, name: str, programs: FlatPrograms, columns: Int64s, is_read: Mask) -> None:
        self.name = name
        self.start, self.end = columns[programs.columns[name] :][:2]
        self.is_null = ~is_read | (self.start < 0)
        self.single: dict[int, str] = {}

    def put(self, row: int, text: str | None) -> None:
        """Sets the text of one row."""
        self.is_null[row] = True
        if text is not None:
            self.single[row] = text

    def strings(self, data: npt.NDArray[np.uint8], rows: _SingleRows[Decoded]) -> pa.StringArray:
        """Return the column as Arrow strings. Rows with invalid UTF-8 are decoded one at a time, which replaces bytes and adds a doubt."""
        if self.is_null.all() and not self.single:
            return pa.nulls(len(self.is_null), pa.string())
        strings = self._cut_out(data)
        try:
            strings = strings.cast(pa.string())
        except pa.ArrowInvalid:
            for row in _rows_not_utf8(strings):
                decoded = rows.decode(row)
                self.put(row, None if decoded is None else decoded.fields[self.name])
            strings = self._cut_out(data).cast(pa.string())
        if self.single:
            mask = np.zeros(len(self.start), np.bool_)
            mask[list(self.single)] = True
            replacements = pa.array([self.single[row] for row in sorted(self.single)], pa.string())
            strings = pc.replace_with_mask(strings, pa.array(mask), replacements)
        return strings

    def _cut_out(self, data: npt.NDArray[np.uint8]) -> pa.BinaryArray:
        start, end = (np.where(self.is_null, 0, places) for places in (self.start, self.end))
        return Slices(data, start, end, self.is_null).to_arrow()


def _rows_not_utf8(texts: pa.BinaryArray) -> Iterator[int]:
    slices = Slices.from_arrow(texts)
    beyond_ascii = np.flatnonzero(slices.data >= 0x80)
    for row in np.unique(np.searchsorted(slices.start, beyond_ascii, "right") - 1).tolist():
        raw = slices.row(row)
        if raw is not None and not primitives.java_text(raw)[1]:
            yield row


class _Ids:
    """A column of topic ids as two numbers each. The zero id means none."""

    def __init__(self, halves: Int64s, is_read: Mask) -> None:
        self.halves = np.array(np.where(is_read, halves, 0).T, ">i8", order="C")

    def put(self, row: int, topic_id: str) -> None:
        """Sets the id of one row, given in Kafka's text form."""
        self.halves[row] = np.frombuffer(primitives.uuid_bytes(topic_id), ">i8")

    def strings(self) -> pa.StringArray:
        """Return the column in Kafka's text form, with nulls for missing values."""
        present = pa.array((self.halves[:, 0] | self.halves[:, 1]) != 0)
        buffers = [present.buffers()[1], pa.py_buffer(self.halves)]
        encoded = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(self.halves), buffers).dictionary_encode()
        texts = pa.array([primitives.uuid_text(topic_id) for topic_id in encoded.dictionary.to_pylist()], pa.string())
        return texts.take(encoded.indices)
