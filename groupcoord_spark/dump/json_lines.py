"""Records as lines of JSON, in the shape of Kafka's own formatters: columns of text that Arrow joins, with no Python per commit.

No Spark. Each line has place, key, value and producer; a record that does not decode keeps its bytes and has a reason.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.dump.redaction import KINDS, Redaction
from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.protocol import DecodeError, decode_value, value_json_texts
from groupcoord_spark.protocol.columnar import KeyColumns, OffsetValueColumns, decode_key_columns, decode_offset_value_columns
from groupcoord_spark.protocol.errors import NullKey
from groupcoord_spark.protocol.fields import Field, Integer, Text
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD, KeyType, MarkerType
from groupcoord_spark.protocol.slices import Mask, Slices

Rows = npt.NDArray[np.intp]
Int16s = npt.NDArray[np.int16]

BLOCK_ROWS: Final = 8192
BLOCK_BYTES: Final = 16 << 20
"""A block of lines is made of at most so many records, and about so many bytes of keys and values: texts can be six times as long."""

CONTROL_TYPE_JSON: Final = {MarkerType.ABORT: '"ABORT"', MarkerType.COMMIT: '"COMMIT"', NOT_A_CONTROL_RECORD: "null"}
NULL_KEY: Final = "The record has no key; every record of a group or an offset has one."


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that are printed. None: no bound; empty: all.

    Ranges are of record offsets and of record timestamps (epoch milliseconds), their ends excluded. A record without a timestamp is in no
    range of time. groups and key_types leave out what has neither, but with groups alone a transaction's marker comes along if a record
    of the transaction does.
    """

    groups: frozenset[str] = frozenset()
    key_types: frozenset[int] = frozenset()
    first_offset: int | None = None
    end_offset: int | None = None
    first_ms: int | None = None
    end_ms: int | None = None


@dataclass(slots=True)
class Counts:
    """Counts of a dump: lines, lines of records that do not decode by reason, and records left out because they have no timestamp."""

    lines: int = 0
    undecoded: Counter[str] = field(default_factory=Counter)
    without_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class _Keys:
    """The distinct keys of some records. code: the row of each record's key in ``columns``; the last row of ``texts`` is for null keys."""

    code: Rows
    columns: KeyColumns
    refusals: Mapping[int, DecodeError]
    texts: pa.StringArray

    def key_type(self, code: Rows) -> Int16s:
        """Key type of each record; -1 where the key is null or does not decode."""
        return np.append(np.where(self.columns.ok, self.columns.key_type, np.int16(-1)), np.int16(-1))[code]


@dataclass(frozen=True, slots=True)
class _Fault:
    """The reason why a record does not decode."""

    code: str
    detail: str


class JsonLines:
    """Makes the lines of one offsets partition, from its chunks in the order of the log."""

    def __init__(
        self,
        offsets_partition: int,
        selection: Selection,
        counts: Counts,
        redaction: Redaction | None = None,
        *,
        with_bytes: bool = False,
    ) -> None:
        """with_bytes: each line also has key and value in base64 and the leader epoch of its batch."""
        self._head = f'{{"offsets_partition":{offsets_partition},"record_offset":'
        self._selection = selection
        self._counts = counts
        self._redaction = redaction
        self._with_bytes = with_bytes
        self._open_producers: set[int] = set()

    def blocks(self, chunk: Chunk) -> Iterator[memoryview]:
        """The lines of the selected records of a chunk, in UTF-8, some thousands at a time."""
        records = self._in_range(chunk.records)
        if len(records) == 0:
            return
        keys = _keys_of(records, self._redaction)
        rows = self._chosen(records, keys)
        for block in _blocks(records, rows):
            part = records.take(block)
            self._counts.lines += len(part)
            # a chunk has a record offset only once
            epochs = chunk.leader_epochs(np.searchsorted(chunk.records.record_offset, part.record_offset)) if self._with_bytes else None
            yield self._block(part, keys, keys.code[block], epochs)

    def _in_range(self, records: Records) -> Records:
        wanted = self._selection
        inside = np.ones(len(records), np.bool_)
        if wanted.first_offset is not None:
            inside &= records.record_offset >= wanted.first_offset
        if wanted.end_offset is not None:
            inside &= records.record_offset < wanted.end_offset
        if wanted.first_ms is not None or wanted.end_ms is not None:
            timeless = records.timestamp_ms < 0
            self._counts.without_timestamp += int((inside & timeless).sum())
            inside &= ~timeless
        if wanted.first_ms is not None:
            inside &= records.timestamp_ms >= wanted.first_ms
        if wanted.end_ms is not None:
            inside &= records.timestamp_ms < wanted.end_ms
        return records if inside.all() else records.take(inside)

    def _chosen(self, records: Records, keys: _Keys) -> Rows:
        wanted = self._selection
        if not wanted.groups and not wanted.key_types:
            return np.arange(len(records))
        chosen = np.ones(len(keys.columns.ok) + 1, np.bool_)
        chosen[-1] = False
        if wanted.groups:
            is_asked = pc.is_in(keys.columns.group_id, pa.array(sorted(wanted.groups), pa.string()))
            chosen[:-1] &= is_asked.to_numpy(zero_copy_only=False)
        if wanted.key_types:
            chosen[:-1] &= np.isin(keys.columns.key_type, sorted(wanted.key_types))
        is_chosen = chosen[keys.code]
        if not wanted.key_types:
            self._add_markers(records, is_chosen)
        return np.flatnonzero(is_chosen)

    def _add_markers(self, records: Records, is_chosen: Mask) -> None:
        is_control = records.control_type >= 0
        rows = np.flatnonzero(is_control | (is_chosen & records.is_transactional))
        for row, producer_id, ends in zip(rows.tolist(), records.producer_id[rows].tolist(), is_control[rows].tolist(), strict=True):
            if not ends:
                self._open_producers.add(producer_id)
            elif producer_id in self._open_producers:
                self._open_producers.remove(producer_id)
                is_chosen[row] = True

    def _block(self, records: Records, keys: _Keys, code: Rows, leader_epochs: npt.NDArray[np.int32] | None) -> memoryview:
        """leader_epochs: of the records' batches, where the lines are to have bytes."""
        key_type = keys.key_type(code)
        faults: dict[int, _Fault] = {}
        values = self._values(records, key_type, faults)
        self._note_refused_keys(records, keys, code, key_type, faults)
        pieces = [
            self._head,
            pa.array(records.record_offset).cast(pa.string()),
            ',"timestamp":',
            pa.array(records.timestamp_ms).cast(pa.string()),
            keys.texts.take(pa.array(code)),
            values,
            _producers(records),
        ]
        if leader_epochs is not None:
            pieces += [',"leader_epoch":', pa.array(leader_epochs).cast(pa.string()), pa.array(_both_base64(records), pa.string())]
        if faults:
            self._counts.undecoded.update(fault.code for fault in faults.values())
            pieces.append(pa.array(self._explained(records, faults), pa.string()))
        return _text_of(_joined(*pieces, "}\n"))

    def _values(self, records: Records, key_type: Int16s, faults: dict[int, _Fault]) -> pa.StringArray:
        """The JSON text of each value. A value that does not decode has no data, and its fault is put into ``faults``."""
        has_value = ~records.value.is_null & (records.control_type == NOT_A_CONTROL_RECORD)
        texts = _Merged(len(records), "null")
        unread = np.flatnonzero(has_value & (key_type < 0))
        texts.put(unread, pa.array([_without_data(records.value.row(row)) for row in unread.tolist()], pa.string()))
        self._put_commits(
            records, np.flatnonzero(has_value & (key_type >= 0) & (key_type < KeyType.GROUP_METADATA)), key_type, texts, faults
        )
        self._put_others(records, np.flatnonzero(has_value & (key_type >= KeyType.GROUP_METADATA)), key_type, texts, faults)
        return texts.merged()

    def _put_commits(self, records: Records, rows: Rows, key_type: Int16s, texts: _Merged, faults: dict[int, _Fault]) -> None:
        values = records.value.take(rows)
        columns = decode_offset_value_columns(key_type[rows], values)
        for version in range(OFFSET_COMMIT_VALUE.versions[0], OFFSET_COMMIT_VALUE.versions[1] + 1):
            of_version = np.flatnonzero(columns.ok & (columns.value_version == version))
            if len(of_version) == 0:
                continue
            fields = OFFSET_COMMIT_VALUE.fields_of(version)
            field_columns = _columns_of(fields, columns, of_version)
            start = f'{{"version":{version},"data":'
            texts.put(rows[of_version], _objects(start, fields, field_columns, "}", self._redaction))
        for at, refusal in columns.refusals:
            self._put_refused(int(rows[at]), values.row(at), refusal, texts, faults)

    def _put_others(self, records: Records, rows: Rows, key_type: Int16s, texts: _Merged, faults: dict[int, _Fault]) -> None:
        if len(rows) == 0:
            return
        types = key_type[rows].tolist()
        values: list[bytes] = records.value.take(rows).to_arrow().to_pylist()
        json_texts = self._redaction.value_json_texts(types, values) if self._redaction else value_json_texts(types, values)
        lines = [
            None if text is None else f'{{"version":{value[0] << 8 | value[1]},"data":{text}}}'
            for text, value in zip(json_texts, values, strict=True)
        ]
        texts.put(rows, pa.array(lines, pa.string()))
        for at in (at for at, text in enumerate(json_texts) if text is None):
            try:
                decode_value(types[at], values[at])
            except DecodeError as refusal:
                self._put_refused(int(rows[at]), values[at], refusal, texts, faults)

    def _put_refused(self, row: int, value: bytes | None, refusal: DecodeError, texts: _Merged, faults: dict[int, _Fault]) -> None:
        texts.put(np.array([row]), pa.array([_without_data(value)], pa.string()))
        faults[row] = _Fault(refusal.code, refusal.detail)

    def _note_refused_keys(self, records: Records, keys: _Keys, code: Rows, key_type: Int16s, faults: dict[int, _Fault]) -> None:
        for row in np.flatnonzero((key_type < 0) & (records.control_type == NOT_A_CONTROL_RECORD)).tolist():
            refusal = keys.refusals.get(int(code[row]))
            faults[row] = _Fault(NullKey.code, NULL_KEY) if refusal is None else _Fault(refusal.code, refusal.detail)

    def _explained(self, records: Records, faults: Mapping[int, _Fault]) -> list[str]:
        """Text that lines of records that do not decode have in addition: the reason, and the bytes unless the dump is redacted."""
        out = [""] * len(records)
        for row, fault in faults.items():
            explanation: dict[str, Any] = {"reason": fault.code}
            if self._redaction is None:
                explanation["detail"] = fault.detail
                if not self._with_bytes:
                    explanation |= {"key_base64": _base64(records.key.row(row)), "value_base64": _base64(records.value.row(row))}
            out[row] = "," + json.dumps(explanation, separators=(",", ":"), ensure_ascii=False)[1:-1]
        return out


class _Merged:
    """A column of texts that is filled part by part. Rows without a text get a default text."""

    def __init__(self, rows: int, elsewhere: str) -> None:
        self._place = np.zeros(rows, np.int64)
        self._parts = [pa.array([elsewhere], pa.string())]
        self._size = 1

    def put(self, rows: Rows, texts: pa.StringArray) -> None:
        """Set the texts of some rows."""
        self._place[rows] = np.arange(self._size, self._size + len(texts))
        self._parts.append(texts)
        self._size += len(texts)

    def merged(self) -> pa.StringArray:
        """The column."""
        return pa.concat_arrays(self._parts).take(pa.array(self._place))


def _keys_of(records: Records, redaction: Redaction | None) -> _Keys:
    code, distinct = records.distinct_keys()
    columns = decode_key_columns(Slices.from_arrow(distinct))
    n = len(columns.ok)
    code = np.where(code < 0, n, code)
    texts = _Merged(n + 1, ',"key":null,"value":')
    for key_type in np.unique(columns.key_type[columns.ok]).tolist():
        rows = np.flatnonzero(columns.ok & (columns.key_type == key_type))
        fields = RECORD_TYPES[key_type].key.fields
        field_columns = _columns_of(fields, columns, rows)
        texts.put(rows, _objects(f',"key":{{"type":{key_type},"data":', fields, field_columns, '},"value":', redaction))
    refused = np.array([row for row, _ in columns.refusals], np.intp)
    # a key of fewer than two bytes has no type; -1 can also be a type that was stored
    types = ["null" if refusal.code == "key_too_short" else columns.key_type[row] for row, refusal in columns.refusals]
    texts.put(refused, pa.array([f',"key":{{"type":{key_type},"data":null}},"value":' for key_type in types], pa.string()))
    return _Keys(code, columns, dict(columns.refusals), texts.merged())


def _blocks(records: Records, rows: Rows) -> Iterator[Rows]:
    """The rows in blocks of at most BLOCK_ROWS records and about BLOCK_BYTES bytes; a single record may be larger."""
    reach = np.cumsum((records.key.lengths() + records.value.lengths())[rows])
    first = 0
    while first < len(rows):
        spent = int(reach[first - 1]) if first else 0
        last = min(first + BLOCK_ROWS, max(first + 1, int(np.searchsorted(reach, spent + BLOCK_BYTES, "right"))))
        yield rows[first:last]
        first = last


def _columns_of(fields: Sequence[Field], columns: KeyColumns | OffsetValueColumns, rows: Rows) -> dict[str, Any]:
    """The columns of these fields, for these rows."""
    field_columns = {field.name: getattr(columns, field.name) for field in fields}
    if len(rows) == len(columns.ok):
        return field_columns
    taken = pa.array(rows)
    return {name: column[rows] if isinstance(column, np.ndarray) else column.take(taken) for name, column in field_columns.items()}


def _objects(start: str, fields: Sequence[Field], columns: Mapping[str, Any], end: str, redaction: Redaction | None) -> pa.StringArray:
    """One JSON object for each row, with the fields in the order of the message. A null topic id is left out."""
    pieces: list[Any] = []
    literal, comma = start + "{", ""
    for message_field in fields:
        name, column = f'{comma}"{message_field.json}":', columns[message_field.name]
        match message_field.type:
            case Integer():
                pieces += [literal + name, pa.array(column).cast(pa.string())]
                literal = ""
            case Text():
                shown = redaction.name if redaction and message_field.name in KINDS else None
                pieces += [literal + name, _quoted(column, message_field.name, shown)]
                literal = ""
            case _:
                pieces += [literal] if literal else []
                ids = column.dictionary_encode()
                named = [f'{name}"{text}"' for text in ids.dictionary.to_pylist()]
                pieces.append(pa.array([*named, ""], pa.string()).take(ids.indices.fill_null(len(named))))
                literal = ""
        comma = ","
    return _joined(*pieces, literal + "}" + end)


def _quoted(texts: pa.StringArray, name: str, shown: Callable[[str, str], str] | None) -> pa.StringArray:
    """JSON strings. Each distinct text is quoted once."""
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    if shown is not None:
        distinct = [shown(name, text) for text in distinct]
    return pa.array(list(map(encode_basestring, distinct)), pa.string()).take(encoded.indices)


def _producers(records: Records) -> pa.StringArray:
    """The JSON fields about the producer, without a closing brace. They are made once for consecutive records with the same producer."""
    columns = (records.producer_id, records.producer_epoch, records.is_transactional, records.control_type)
    begins = np.zeros(len(records), np.bool_)
    begins[0] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    runs = zip(*(column[begins].tolist() for column in columns), strict=True)
    named = {control: CONTROL_TYPE_JSON.get(control, f'"{control}"') for control in set(records.control_type.tolist())}
    texts = [
        f',"producer_id":{producer_id},"producer_epoch":{epoch},"is_transactional":{"true" if is_transactional else "false"}'
        f',"control":{named[control]}'
        for producer_id, epoch, is_transactional, control in runs
    ]
    return pa.array(texts, pa.string()).take(pa.array(np.cumsum(begins) - 1))


def _joined(*pieces: Any) -> pa.StringArray:
    return pc.binary_join_element_wise(*pieces, "")


def _text_of(lines: pa.StringArray) -> memoryview:
    """The text of all lines, which is one block of memory."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)
    return memoryview(data)[int(ends[lines.offset]) : int(ends[lines.offset + len(lines)])]


def _without_data(value: bytes | None) -> str:
    """The JSON of a value that does not decode: only its version, which is its first two bytes."""
    version = int.from_bytes(value[:2], "big", signed=True) if value is not None and len(value) >= 2 else "null"
    return f'{{"version":{version},"data":null}}'


def _both_base64(records: Records) -> list[str]:
    """Key and value of each record, in the middle of its line."""
    keys, values = (
        ["null" if raw is None else f'"{_base64(raw)}"' for raw in column.to_arrow().to_pylist()] for column in (records.key, records.value)
    )
    return [f',"key_base64":{key},"value_base64":{value}' for key, value in zip(keys, values, strict=True)]


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode("ascii")
