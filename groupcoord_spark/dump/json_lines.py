"""Records as lines of JSON, in the shape of Kafka's own formatters: place, key, value and producer.

``JsonLines.line`` defines the line of a record: a record that does not decode keeps its bytes and has a reason. Where there are many
records, ``protocol.json_loops`` writes the same lines for the records that brokers usually write, and ``line`` writes the others. No Spark.
"""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

import numpy as np

from groupcoord_spark.dump.redaction import HIDDEN_FIELDS, KINDS_BY_NUMBER, Redaction
from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.protocol import RECORD_TYPES, DecodeError, Slices, decode_key, decode_value, fast_path, key_json, value_json
from groupcoord_spark.protocol.columnar import Int32s, Int64s
from groupcoord_spark.protocol.fields import RecordType
from groupcoord_spark.protocol.json_programs import json_programs
from groupcoord_spark.protocol.primitives import java_text
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD, MarkerType
from groupcoord_spark.protocol.slices import Bytes, Mask

BLOCK_BYTES: Final = 1 << 20
"""Approximate size of a block of lines that is written at once. A longer line is a block of its own."""

_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

CONTROL_NAMES: Final = {MarkerType.ABORT: "ABORT", MarkerType.COMMIT: "COMMIT", NOT_A_CONTROL_RECORD: None}


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that are printed. None: no bound; empty: all.

    Ranges cover record offsets and record timestamps (epoch milliseconds) and exclude their ends. A record without a timestamp is in no
    time range. ``groups`` and ``key_types`` skip records that have neither, but with ``groups`` alone a marker is printed if a record of
    its transaction is.
    """

    groups: frozenset[str] = frozenset()
    key_types: frozenset[int] = frozenset()
    first_offset: int | None = None
    end_offset: int | None = None
    first_ms: int | None = None
    end_ms: int | None = None


@dataclass(slots=True)
class Counts:
    """Counts of a dump: lines, lines of records that do not decode by reason, and records that are left out because they have no timestamp
    or lie below the log start."""

    lines: int = 0
    undecoded: Counter[str] = field(default_factory=Counter)
    without_timestamp: int = 0
    below_log_start: int = 0


class JsonLines:
    """Makes the lines of one offsets partition, from its chunks in the order of the log."""

    expected_doubts: frozenset[str] = frozenset()
    """Codes of doubts that are ordinary in a log of this topic."""

    _has_loops = True
    _control_names: Mapping[int, str | None] = CONTROL_NAMES
    _record_types: Mapping[int, RecordType] = RECORD_TYPES

    def __init__(
        self, offsets_partition: int, selection: Selection, counts: Counts, redaction: Redaction | None = None, *, with_bytes: bool = False
    ) -> None:
        """with_bytes: each line also has key and value in base64 and the leader epoch of its batch."""
        self._offsets_partition = offsets_partition
        self._place: dict[str, Any] = {"offsets_partition": offsets_partition}
        self._selection = selection
        self._counts = counts
        self._redaction = redaction
        self._with_bytes = with_bytes
        self._open_producers: set[int] = set()

    def blocks(self, chunk: Chunk) -> Iterator[memoryview]:
        """Yield blocks of lines in UTF-8 for the selected records of a chunk."""
        self._counts.below_log_start += chunk.below_log_start
        records = self._of_groups_and_types(self._in_range(chunk.records))
        self._counts.lines += len(records)
        leader_epoch = None
        if self._with_bytes:
            # a chunk has a record offset only once
            leader_epoch = chunk.leader_epochs(np.searchsorted(chunk.records.record_offset, records.record_offset))
        if self._has_loops and fast_path.loops_for(len(records)):
            yield from self._written_by_loops(records, leader_epoch)
        else:
            yield from self._written_one_by_one(records, leader_epoch)

    def line(self, records: Records, row: int, leader_epoch: Int32s | None) -> bytes:
        """Return the line of one record. Count the record if it does not decode.

        leader_epoch: of the batch of each of the records; None: the line has no bytes.
        """
        key, value, control = records.key.row(row), records.value.row(row), int(records.control_type[row])
        shown_key = shown_value = refusal = None
        if control == NOT_A_CONTROL_RECORD:
            shown_key, key_type, refusal = self._shown_key(key)
            shown_value = without_data("version", value)
            if value is not None and refusal is None:
                shown_value, refusal = self._shown_value(key_type, value)
        else:
            shown_value = self._shown_control_value(control, value)
        line = {
            **self._place,
            "record_offset": int(records.record_offset[row]),
            "timestamp": int(records.timestamp_ms[row]),
            "key": shown_key,
            "value": shown_value,
            "producer_id": int(records.producer_id[row]),
            "producer_epoch": int(records.producer_epoch[row]),
            "is_transactional": bool(records.is_transactional[row]),
            "control": self._control_names.get(control, str(control)),
        }
        both_base64 = {"key_base64": _base64(key), "value_base64": _base64(value)}
        if leader_epoch is not None:
            line |= {"leader_epoch": int(leader_epoch[row]), **both_base64}
        if refusal is not None:
            self._counts.undecoded[refusal.code] += 1
            line["reason"] = refusal.code
            if self._redaction is None:
                line |= {"detail": refusal.detail, **both_base64}
        return f"{_JSON.encode(line)}\n".encode()

    def _shown_key(self, key: bytes | None) -> tuple[dict[str, Any] | None, int, DecodeError | None]:
        """Return the JSON of a key, its type, and the reason if it does not decode."""
        try:
            decoded = decode_key(key, record_types=self._record_types)
        except DecodeError as refusal:
            return without_data("type", key), -1, refusal
        fields = self._redaction.hide(decoded.fields) if self._redaction else decoded.fields
        return {"type": decoded.key_type, "data": key_json(decoded._replace(fields=fields))}, decoded.key_type, None

    def _shown_value(self, key_type: int, value: bytes) -> tuple[dict[str, Any] | None, DecodeError | None]:
        """Return the JSON of a value, and the reason if it does not decode."""
        try:
            decoded = decode_value(key_type, value, record_types=self._record_types)
        except DecodeError as refusal:
            return without_data("version", value), refusal
        assert decoded is not None
        fields = self._redaction.hide(decoded.fields) if self._redaction else decoded.fields
        return {"version": decoded.version, "data": value_json(decoded._replace(fields=fields))}, None

    def _shown_control_value(self, control: int, value: bytes | None) -> dict[str, Any] | None:
        """Return the JSON of a control record's value, or None for a transaction marker."""
        return None

    def _written_one_by_one(self, records: Records, leader_epoch: Int32s | None) -> Iterator[memoryview]:
        block = bytearray()
        for row in range(len(records)):
            block += self.line(records, row, leader_epoch)
            if len(block) >= BLOCK_BYTES:
                yield memoryview(block)
                block = bytearray()
        if block:
            yield memoryview(block)

    def _written_by_loops(self, records: Records, leader_epoch: Int32s | None) -> Iterator[memoryview]:
        """Yield the lines of ``json_loops.write_lines``; ``line`` writes each record that the kernel cannot."""
        loops = fast_path.load_json()
        assert loops is not None
        key, value = records.key, records.value
        data, shift = (key.data, 0) if key.data is value.data else (np.concatenate([key.data, value.data]), len(key.data))
        columns = (
            records.record_offset, records.timestamp_ms, records.producer_id, records.producer_epoch,
            records.is_transactional, records.control_type, np.zeros(0, np.int32) if leader_epoch is None else leader_epoch,
        )  # fmt: skip
        texts = data, key.start, key.end, key.is_null, value.start + shift, value.end + shift, value.is_null
        programs = tuple(json_programs(HIDDEN_FIELDS if self._redaction else None))
        stack = np.empty(loops.DEEPEST, np.int64)
        block, hidden = _empty_block(BLOCK_BYTES)
        row = to = count = 0
        why = loops.NO_ROOM
        while why != loops.DONE:
            row, to, count, why = loops.write_lines(self._offsets_partition, columns, texts, programs, stack, row, to, count, hidden, block)
            line = b""
            if why == loops.NOT_USUAL:
                line = self.line(records, row, leader_epoch)
                row += 1
            if why != loops.NOT_USUAL or len(line) > len(block) - to:
                if to > 0:
                    yield self._with_names(block[:to], hidden[:count], data)
                # a line that does not fit into an empty block is tried again with a larger one
                size = BLOCK_BYTES if to > 0 else 2 * len(block)
                block, hidden = _empty_block(max(size, len(line)))
                to = count = 0
            block[to : to + len(line)] = np.frombuffer(line, np.uint8)
            to += len(line)

    def _with_names(self, block: Bytes, hidden: Int64s, data: Bytes) -> memoryview:
        """Return the lines of a block with a name in place of each redacted text. ``hidden``: see ``json_loops.write_lines``."""
        if self._redaction is None or not len(hidden):
            return block.data
        kind, start, end, place = hidden.T
        code, texts = Slices(data, start, end, np.zeros(len(hidden), np.bool_)).distinct()
        raw = texts.to_pylist()
        # a text gets one name for each kind that it comes as
        number = code * len(KINDS_BY_NUMBER) + kind
        is_used = np.bincount(number) > 0
        names: list[bytes] = []
        for text, kind_number in map(divmod, np.flatnonzero(is_used).tolist(), repeat(len(KINDS_BY_NUMBER))):
            name = self._redaction.name(KINDS_BY_NUMBER[kind_number], java_text(raw[text])[0])
            names.append(f'"{name}"'.encode())
        name_sizes = np.array([len(name) for name in names])
        name_end = len(block) + np.cumsum(name_sizes)
        of_text = (np.cumsum(is_used) - 1)[number]
        # the bytes up to each place, and the name there; at last the bytes after the last place
        first, last = np.empty((2, 2 * len(hidden) + 1), np.int64)
        first[0], first[1::2], first[2::2] = 0, (name_end - name_sizes)[of_text], place
        last[:-1:2], last[1::2], last[-1] = place, name_end[of_text], len(block)
        pieces = Slices(np.concatenate([block, np.frombuffer(b"".join(names), np.uint8)]), first, last, np.zeros(len(first), np.bool_))
        return memoryview(pieces.to_arrow().buffers()[2])

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

    def _of_groups_and_types(self, records: Records) -> Records:
        wanted = self._selection
        if not wanted.groups and not wanted.key_types:
            return records
        # importing these modules takes longer than printing a thousand records
        import pyarrow as pa
        import pyarrow.compute as pc

        from groupcoord_spark.protocol.columnar import decode_key_columns

        code, distinct = records.distinct_keys()
        keys = decode_key_columns(Slices.from_arrow(distinct))
        chosen = np.ones(len(keys.ok) + 1, np.bool_)
        chosen[-1] = False  # where the code is -1: the record has no key, or is a control record
        if wanted.groups:
            is_asked = pc.is_in(keys.group_id, pa.array(sorted(wanted.groups), pa.string()))
            chosen[:-1] &= is_asked.to_numpy(zero_copy_only=False)
        if wanted.key_types:
            chosen[:-1] &= np.isin(keys.key_type, sorted(wanted.key_types))
        is_chosen = chosen[code]
        if not wanted.key_types:
            self._add_markers(records, is_chosen)
        return records.take(is_chosen)

    def _add_markers(self, records: Records, is_chosen: Mask) -> None:
        is_control = records.control_type >= 0
        rows = np.flatnonzero(is_control | (is_chosen & records.is_transactional))
        for row, producer_id, ends in zip(rows.tolist(), records.producer_id[rows].tolist(), is_control[rows].tolist(), strict=True):
            if not ends:
                self._open_producers.add(producer_id)
            elif producer_id in self._open_producers:
                self._open_producers.remove(producer_id)
                is_chosen[row] = True


def without_data(name: str, raw: bytes | None) -> dict[str, Any] | None:
    """Return the JSON of a key or value that does not decode: only its type or version, from its first two bytes. None for null."""
    if raw is None:
        return None
    return {name: int.from_bytes(raw[:2], "big", signed=True) if len(raw) >= 2 else None, "data": None}


def _empty_block(size: int) -> tuple[Bytes, Int64s]:
    """Allocate buffers for lines and for the redacted texts in them, sized for nearly all inputs."""
    return np.empty(size, np.uint8), np.empty((size // 32, 4), np.int64)


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode("ascii")
