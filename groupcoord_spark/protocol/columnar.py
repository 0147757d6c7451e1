"""Columns of many keys and values at once, cut out of one buffer by position: ``scalar`` at speed.

The tables of ``messages/`` are walked field by field for all rows together, with no Python per row, as long as the rows look like what
brokers write. Every other row is read by itself and put in its place, so that results, findings and refusals are those of ``scalar``.
Texts come out as Arrow strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from . import primitives
from .compiled import decode_key, decode_value
from .errors import DecodeError, Finding
from .fields import ZERO_UUID, Field, Integer, Text, UuidBytes
from .messages import RECORD_TYPES
from .messages.offsets import OFFSET_COMMIT_VALUE
from .scalar import DecodedKey, DecodedValue
from .slices import Mask, Positions, Slices

Rows = npt.NDArray[np.intp]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

_BLOCK = 16384


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Keys as columns of one length.

    key_type: -1 where there are no two bytes to read it from. group_id, topic, member_id, regular_expression: null where the type has
    none or the key is refused. partition: -1 likewise. ok: the key decodes. status: dictionary of string, the code of the refusal, null
    where ok. refusals and findings: by row, ascending.
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
    findings: list[tuple[int, Finding]]


@dataclass(frozen=True, slots=True)
class OffsetValueColumns:
    """Offset commits as columns of one length; tombstones and refused rows have null texts, and -1 in the numbers.

    value_version: -1 where there are no two bytes to read it from. leader_epoch and expire_timestamp_ms: -1 for none. topic_id: Kafka's
    text form, null where none is recorded. ok: a commit, or a tombstone. status: dictionary of string, the code of the refusal, null where
    ok. refusals and findings: by row, ascending.
    """

    value_version: Int16s
    committed_offset: Int64s
    leader_epoch: Int32s
    metadata: pa.StringArray
    commit_timestamp_ms: Int64s
    expire_timestamp_ms: Int64s
    topic_id: pa.StringArray
    ok: Mask
    status: pa.DictionaryArray
    refusals: list[tuple[int, DecodeError]]
    findings: list[tuple[int, Finding]]


def decode_key_columns(keys: Slices) -> KeyColumns:
    """Every key as ``decode_key`` reads it, in columns. Made for distinct keys, and fast on a million of them."""
    n = len(keys)
    view = View(keys.data)
    key_type = leading_int16(view, keys)
    partition = np.full(n, -1, np.int32)
    ok = np.zeros(n, np.bool_)
    texts = {name: _Texts(name, n) for name in ("group_id", "topic", "member_id", "regular_expression")}
    for each, record_type in RECORD_TYPES.items():
        if record_type.dialect is not None:
            continue
        for rows in _blocks(key_type == each):
            walk = _walk(view, record_type.key.fields, keys.start[rows] + 2, keys.end[rows], flexible=False)
            usual = walk.fits & (walk.at == walk.end)
            if "partition" in walk.places:
                numbers = view.int32(walk.places["partition"])
                usual &= numbers >= 0
                partition[rows] = np.where(usual, numbers, -1)
            ok[rows] = usual
            for name in texts.keys() & walk.lengths.keys():
                texts[name].cut(rows, usual, walk.places[name], walk.lengths[name])
    single = _SingleRows[DecodedKey](n, lambda row: decode_key(keys.row(row)))
    for row in np.flatnonzero(~ok).tolist():
        decoded = single.decode(row)
        if decoded is not None:
            ok[row] = True
            partition[row] = decoded.fields.get("partition", -1)
            for name, text in texts.items():
                text.put(row, decoded.fields.get(name))
    strings = {name: text.strings(keys.data, single) for name, text in texts.items()}
    return KeyColumns(
        key_type, strings["group_id"], strings["topic"], partition, strings["member_id"], strings["regular_expression"],
        ok, single.status(), single.refusals(), single.findings(),
    )  # fmt: skip


def decode_offset_value_columns(key_type: Int16s, values: Slices) -> OffsetValueColumns:
    """Every value of an offset commit as ``decode_value`` reads it, in columns. key_type: 0 or 1 in each row."""
    n = len(values)
    view = View(values.data)
    numbers: dict[str, npt.NDArray[Any]] = {
        "committed_offset": np.full(n, -1, np.int64),
        "leader_epoch": np.full(n, -1, np.int32),
        "commit_timestamp_ms": np.full(n, -1, np.int64),
        "expire_timestamp_ms": np.full(n, -1, np.int64),
    }
    metadata, topic_ids = _Texts("metadata", n), _Ids(n)
    ok = values.is_null.copy()
    value_version = leading_int16(view, values)
    for rows, walk in walk_offset_values(view, value_version, values):
        usual = walk.fits & (walk.at == walk.end) & ((key_type[rows] == 1) | (walk.version == 0))
        offsets = view.int64(walk.places["committed_offset"])
        usual &= offsets >= 0
        ok[rows] = usual
        for name, column in numbers.items():
            if name in walk.places:
                read = view.int32 if column.dtype == np.int32 else view.int64
                column[rows] = np.where(usual, read(walk.places[name]) if name != "committed_offset" else offsets, -1)
        metadata.cut(rows, usual, walk.places["metadata"], walk.lengths["metadata"])
        if "topic_id" in walk.places:
            topic_ids.cut(view, rows, usual & walk.has_tag, walk.places["topic_id"])
    single = _SingleRows[DecodedValue](n, lambda row: decode_value(int(key_type[row]), values.row(row)))
    for row in np.flatnonzero(~ok).tolist():
        decoded = single.decode(row)
        if decoded is not None:
            ok[row] = True
            for name, column in numbers.items():
                column[row] = decoded.fields.get(name, -1)
            metadata.put(row, decoded.fields["metadata"])
            topic_ids.put(row, decoded.fields.get("topic_id", ZERO_UUID))
    notes = metadata.strings(values.data, single)
    return OffsetValueColumns(
        value_version, numbers["committed_offset"], numbers["leader_epoch"], notes,
        numbers["commit_timestamp_ms"], numbers["expire_timestamp_ms"], topic_ids.strings(),
        ok, single.status(), single.refusals(), single.findings(),
    )  # fmt: skip


class View:
    """Big-endian integers at any places of a buffer. A place from which the buffer ends too early gives a number without meaning."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        # the longest integer must fit in somewhere
        self.data = data if len(data) >= 8 else np.concatenate([data, np.zeros(8 - len(data), np.uint8)])

    def uint8(self, places: Positions) -> npt.NDArray[np.uint8]:
        """The byte at each place."""
        return self.data[np.minimum(places, len(self.data) - 1)]

    def int16(self, places: Positions) -> Int16s:
        """The two bytes at each place."""
        return self.uint8(places).astype(np.int16) << 8 | self.uint8(places + 1)

    def int32(self, places: Positions) -> Int32s:
        """The four bytes at each place."""
        return self._read(places, ">i4", 4)

    def int64(self, places: Positions) -> Int64s:
        """The eight bytes at each place."""
        return self._read(places, ">i8", 8)

    def _read(self, places: Positions, layout: str, size: int) -> npt.NDArray[Any]:
        # as if an integer began at each byte
        anywhere: npt.NDArray[Any] = np.ndarray((len(self.data) - size + 1,), layout, self.data, 0, (1,))
        return anywhere[np.minimum(places, len(anywhere) - 1)].astype(layout[1:])


def leading_int16(view: View, rows: Slices) -> Int16s:
    """The first two bytes of each row; -1 where there are not two."""
    readable = ~rows.is_null & (rows.end - rows.start >= 2)
    return np.where(readable, view.int16(rows.start), np.int16(-1))


@dataclass(slots=True)
class FlatWalk:
    """Where the fields of some rows of one version lie. ``fits``: surely so; the other rows have to be looked at one by one."""

    version: int
    places: dict[str, Positions]
    lengths: dict[str, Positions]
    has_tag: Mask
    fits: Mask
    at: Positions
    end: Positions


def _walk(view: View, fields: Sequence[Field], at: Positions, end: Positions, *, flexible: bool, version: int = 0) -> FlatWalk:
    """Find the fields of messages that hold numbers, ids and texts only.

    Positions only grow, so it is enough to look once, at the end, whether they stayed within the row: until then a row that is too short
    is read from its neighbours, or from anywhere.
    """
    walk = FlatWalk(version, {}, {}, np.zeros(len(at), np.bool_), np.ones(len(at), np.bool_), at, end)
    for field in fields:
        if field.tag is not None:
            continue
        match field.type:
            case Integer() | UuidBytes():
                walk.places[field.name] = walk.at
                walk.at = walk.at + _size(field)
            case Text(nullable=False):
                _walk_text(view, walk, field.name, flexible)
            case _:
                raise TypeError(f"{field.name!r} is no flat field")
    if flexible:
        _walk_tags(view, walk, [field for field in fields if field.tag is not None])
    walk.fits &= walk.at <= end
    return walk


def _size(field: Field) -> int:
    return field.type.size if isinstance(field.type, Integer) else 16


def _walk_text(view: View, walk: FlatWalk, name: str, flexible: bool) -> None:
    if flexible:
        stored = view.uint8(walk.at).astype(np.int64)
        text = walk.at + 1
        long = np.flatnonzero(stored > 127)
        if len(long):
            second = view.uint8(text[long])
            walk.fits[long[second > 127]] = False
            stored[long] += (second.astype(np.int64) - 1) << 7
            text[long] += 1
        length = stored - 1
    else:
        length = view.int16(walk.at).astype(np.int64)
        text = walk.at + 2
    walk.fits &= length >= 0
    np.maximum(length, 0, out=length)
    walk.places[name] = text
    walk.lengths[name] = length
    walk.at = walk.places[name] + length


def _walk_tags(view: View, walk: FlatWalk, tagged: Sequence[Field]) -> None:
    """The tagged section in its usual forms: empty, or the one tag the message has in its own size."""
    count = view.uint8(walk.at)
    after = walk.at + 1
    some = np.flatnonzero(count)
    if len(some) and len(tagged) == 1:
        field = tagged[0]
        head = view.int16(walk.at[some] + 1)
        usual = (count[some] == 1) & (head == (field.tag or 0) << 8 | _size(field))
        walk.has_tag[some] = usual
        walk.fits[some[~usual]] = False
        walk.places[field.name] = walk.at + 3
        after[some] += 2 + _size(field)
    else:
        walk.fits[some] = False
    walk.at = after


def walk_offset_values(view: View, version: Int16s, values: Slices) -> Iterator[tuple[Rows, FlatWalk]]:
    """For each version: the rows that have it, and where their fields lie. Key types 0 and 1 have the same layouts."""
    message = OFFSET_COMMIT_VALUE
    for each in range(message.versions[0], message.versions[1] + 1):
        for rows in _blocks(version == each):
            start, end = values.start[rows] + 2, values.end[rows]
            yield rows, _walk(view, message.fields_of(each), start, end, flexible=message.is_flexible(each), version=each)


def _blocks(chosen: Mask) -> Iterator[Rows]:
    """The chosen rows, a few at a time: what is computed for them then stays in the processor's cache."""
    rows = np.flatnonzero(chosen)
    for begin in range(0, len(rows), _BLOCK):
        yield rows[begin : begin + _BLOCK]


Decoded = TypeVar("Decoded", DecodedKey, DecodedValue)


class _SingleRows(Generic[Decoded]):
    """The rows that are read by themselves, each once, and what became of them."""

    def __init__(self, rows: int, decode: Callable[[int], Decoded | None]) -> None:
        self._rows = rows
        self._decode: Callable[[int], Decoded | None] = decode
        self.decoded: dict[int, Decoded | None] = {}
        self.refused: dict[int, DecodeError] = {}

    def decode(self, row: int) -> Decoded | None:
        """What the row says; None where it is refused, or a tombstone."""
        if row not in self.decoded:
            try:
                self.decoded[row] = self._decode(row)
            except DecodeError as refusal:
                self.decoded[row] = None
                self.refused[row] = refusal.without_frames()
        return self.decoded[row]

    def refusals(self) -> list[tuple[int, DecodeError]]:
        return sorted(self.refused.items())

    def findings(self) -> list[tuple[int, Finding]]:
        return [(row, finding) for row, decoded in sorted(self.decoded.items()) if decoded is not None for finding in decoded.findings]

    def status(self) -> pa.DictionaryArray:
        codes = sorted({refusal.code for refusal in self.refused.values()})
        indices = np.full(self._rows, -1, np.int8)
        for row, refusal in self.refused.items():
            indices[row] = codes.index(refusal.code)
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), pa.array(codes, pa.string()))


class _Texts:
    """A column of texts: most of them places in the buffer, a few decoded by themselves."""

    def __init__(self, name: str, rows: int) -> None:
        self.name = name
        self.start = np.zeros(rows, np.int64)
        self.end = np.zeros(rows, np.int64)
        self.is_null = np.ones(rows, np.bool_)
        self.single: dict[int, str] = {}

    def cut(self, rows: Rows, usual: Mask, places: Positions, lengths: Positions) -> None:
        """Take the texts of the usual rows from these places."""
        self.start[rows] = places
        self.end[rows] = places + lengths
        self.is_null[rows] = ~usual

    def put(self, row: int, text: str | None) -> None:
        """Give one row this text."""
        self.is_null[row] = True
        if text is not None:
            self.single[row] = text

    def strings(self, data: npt.NDArray[np.uint8], rows: _SingleRows[Decoded]) -> pa.StringArray:
        """The column. Rows whose text is not UTF-8 are read by themselves first, which replaces what is not and notes it."""
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
        return Slices(data, self.start, np.where(self.is_null, self.start, self.end), self.is_null).to_arrow()


def _rows_not_utf8(texts: pa.BinaryArray) -> Iterator[int]:
    slices = Slices.from_arrow(texts)
    beyond_ascii = np.flatnonzero(slices.data >= 0x80)
    for row in np.unique(np.searchsorted(slices.start, beyond_ascii, "right") - 1).tolist():
        raw = slices.row(row)
        if raw is not None and not primitives.java_text(raw)[1]:
            yield row


class _Ids:
    """A column of ids of 16 bytes; the zero id is none."""

    def __init__(self, rows: int) -> None:
        self.halves = np.zeros((rows, 2), np.int64)

    def cut(self, view: View, rows: Rows, present: Mask, places: Positions) -> None:
        """Take the ids of the rows that have one from these places."""
        rows, places = rows[present], places[present]
        self.halves[rows, 0] = view.int64(places).byteswap()
        self.halves[rows, 1] = view.int64(places + 8).byteswap()

    def put(self, row: int, topic_id: str) -> None:
        """Give one row this id, in Kafka's text form."""
        self.halves[row] = np.frombuffer(primitives.uuid_bytes(topic_id), np.int64)

    def array(self) -> pa.FixedSizeBinaryArray:
        """The column as 16 bytes a row, null for none."""
        present = pa.array((self.halves[:, 0] | self.halves[:, 1]) != 0)
        buffers = [present.buffers()[1], pa.py_buffer(self.halves)]
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(self.halves), buffers)

    def strings(self) -> pa.StringArray:
        """The column in Kafka's text form, null for none."""
        encoded = self.array().dictionary_encode()
        texts = pa.array([primitives.uuid_text(each) for each in encoded.dictionary.to_pylist()], pa.string())
        return texts.take(encoded.indices)
