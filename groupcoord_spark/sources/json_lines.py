"""Raw rows from lines of JSON, one record in a line: our own dump, kcat's ``-J``, Connect's converter, and other lines with such fields.

A field may have several names; the first one that the line has is used:

======================  ==========================================================================================
partition               ``offsets_partition``, ``partition``
offset                  ``record_offset``, ``offset``
time                    ``record_timestamp_ms``, ``timestamp``, ``ts``: epoch milliseconds, or ISO 8601
key, value              ``key_base64``, ``key``; ``value_base64``, ``value``, ``payload``
transactions            ``producer_id``, ``producer_epoch``, ``is_transactional``, ``control`` or ``control_type``
others                  ``topic``, ``cluster``; all else is left alone
======================  ==========================================================================================

A key or value is null, base64, the escaped bytes that kcat prints (every key and value of this topic begins with a zero byte, and no
base64 does), ``{"schema": …, "payload": …}`` of Connect's converter around one of these, or the JSON of Kafka's formatters, which is
encoded again. A whole line may have Connect's envelope too. Files may be packed by gzip or zstd. No Spark here.
"""

from __future__ import annotations

import binascii
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.files.storage import Location, first_line
from groupcoord_spark.protocol import DecodeError, EncodeError, encode_key_json, encode_value_json
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.inputs import is_gzip, is_zstd
from groupcoord_spark.sources.rows import ABSENT, LACKING, ROW_SCHEMA, UNKNOWN_PARTITION, FilePiece, RowBatch

LINES_BYTES: Final = 32 << 20
"""Bytes of a file that one task reads at least, where the file has as many."""
LONGEST_LINE: Final = 64 << 20
"""Bytes of the longest line that is read. The records of this topic are much smaller."""
ROWS_A_BATCH: Final = 20_000
BATCH_BYTES: Final = 16 << 20

_READ_BYTES: Final = 4 << 20
_ZERO: Final = "\0"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_PARTITION: Final = ("offsets_partition", "partition")
_OFFSET: Final = ("record_offset", "offset")
_TIMESTAMP: Final = ("record_timestamp_ms", "timestamp", "ts")
_KEY: Final = ("key_base64", "key")
_VALUE: Final = ("value_base64", "value", "payload")
_CONTROL: Final = ("control", "control_type")


def read_lines(piece: FilePiece) -> Iterator[RowBatch]:
    """The rows of a piece, some ten thousand at a time. A compressed file is one piece, and its positions are those of the text in it.

    Raises InputError where the file cannot be read.
    """
    rows = _BatchRows(piece.source)
    for position, line in _lines_of(piece):
        rows.add(position, line)
        if rows.is_full:
            yield rows.batch()
            rows = _BatchRows(piece.source)
    yield rows.batch()


def _lines_of(piece: FilePiece) -> Iterator[tuple[int, bytes | None]]:
    """(position, bytes) of each line that is not empty; the bytes are None for a line that is too long."""
    location = Location.of(piece.uri)
    try:
        with location.filesystem.open_input_file(location.path) as file:
            head = file.read(4)
            packing = "gzip" if is_gzip(head) else "zstd" if is_zstd(head) else None
            file.seek(0)
            if packing is None:
                yield from _lines(io.BufferedReader(file, _READ_BYTES), piece.start, piece.end)
            elif piece.start == 0:
                yield from _lines(io.BufferedReader(pa.CompressedInputStream(file, packing), _READ_BYTES), 0, None)
    except (OSError, EOFError, pa.ArrowException) as error:
        raise InputError(f"{piece.source}: the file cannot be read: {first_line(error)}.") from error


def _lines(stream: io.BufferedReader, start: int, end: int | None) -> Iterator[tuple[int, bytes | None]]:
    """The lines that begin at ``start`` or later and before ``end``; None: at the end of the stream."""
    at = start
    if start:
        # A line that began earlier belongs to the previous piece; the byte before ``start`` shows whether there is one.
        stream.seek(start - 1)
        at += _rest_of_line(stream) - 1
    while (end is None or at < end) and (line := stream.readline(LONGEST_LINE + 1)):
        is_too_long = len(line.removesuffix(b"\n")) > LONGEST_LINE
        if is_too_long or line.strip():
            yield at, None if is_too_long else line.removesuffix(b"\n")
        at += len(line) + (_rest_of_line(stream) if is_too_long else 0)


def _rest_of_line(stream: io.BufferedReader) -> int:
    """Bytes up to the end of the line, which are read and left out."""
    size = 0
    while part := stream.readline(_READ_BYTES):
        size += len(part)
        if part.endswith(b"\n"):
            break
    return size


class _BadLineError(ValueError):
    """Raised when a line is no record, with the code, the sentence, and the known part of its position."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(slots=True)
class _BatchRows:
    """The rows of the next batch."""

    source: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    held_bytes: int = 0
    other_topics: int = 0
    lacks: frozenset[str] = frozenset()

    @property
    def is_full(self) -> bool:
        """Whether the batch has ROWS_A_BATCH rows or BATCH_BYTES bytes."""
        return len(self.rows) >= ROWS_A_BATCH or self.held_bytes >= BATCH_BYTES

    def batch(self) -> RowBatch:
        """The batch of all rows."""
        return RowBatch(pa.RecordBatch.from_pylist(self.rows, ROW_SCHEMA), self.other_topics, self.lacks)

    def add(self, position: int, line: bytes | None) -> None:
        """Add the row of one line. A line that is no record gives a row with a fault."""
        row: dict[str, Any] = {**ABSENT, "offsets_partition": UNKNOWN_PARTITION, "record_offset": None}
        row |= {"source": self.source, "position": position}
        try:
            if line is None:
                raise _BadLineError("line_too_long", f"The line at byte {position} has more than {LONGEST_LINE} bytes.")
            fields, encoding = _object_of(line)
            if fields.get("topic", OFFSETS_TOPIC) != OFFSETS_TOPIC:
                self.other_topics += 1
                return
            _fill_place(row, fields)
            _fill_bytes(row, fields, encoding)
        except _BadLineError as fault:
            row |= {"fault": fault.code, "detail": str(fault), "value": line, "key": None}
        else:
            tells = ("producer_id" in fields and fields.keys() & _CONTROL, fields.keys() & _TIMESTAMP, "leader_epoch" in fields)
            self.lacks |= {word for word, is_told in zip(LACKING, tells, strict=True) if not is_told}
        self.rows.append(row)
        self.held_bytes += len(line or b"")


def _object_of(line: bytes) -> tuple[Mapping[str, Any], str]:
    """(the JSON object of a line, without Connect's envelope; the encoding of its texts)."""
    encoding = "utf-8"
    try:
        try:
            text = line.decode("utf-8-sig")
        except UnicodeDecodeError:
            # kcat prints bytes above 127 unchanged: in latin-1 every byte is one character
            text, encoding = line.decode("latin-1"), "latin-1"
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _BadLineError("row_malformed", f"The line is no JSON: {first_line(error)}.") from error
    if isinstance(fields, dict) and fields.keys() == {"schema", "payload"}:
        fields = fields["payload"]
    if not isinstance(fields, dict):
        raise _BadLineError("row_malformed", "The line is no JSON object.")
    return fields, encoding


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if name in fields), None)


def _fill_place(row: dict[str, Any], fields: Mapping[str, Any]) -> None:
    partition, offset = _first(fields, _PARTITION), _first(fields, _OFFSET)
    if _is_whole(partition, 0, 2**31 - 1):
        row["offsets_partition"] = partition
    if _is_whole(offset, 0, 2**63 - 1):
        row["record_offset"] = offset
    if row["offsets_partition"] == UNKNOWN_PARTITION or row["record_offset"] is None:
        raise _BadLineError(
            "row_without_place",
            f"The line has no partition and offset of its record (partition {partition!r}, offset {offset!r}); nobody knows which it is.",
        )
    row["cluster"] = _of_type(fields, ("cluster",), str)
    row["record_timestamp_ms"] = _milliseconds(_first(fields, _TIMESTAMP))
    for name, bits in (("producer_id", 64), ("producer_epoch", 16), ("leader_epoch", 32)):
        number = fields.get(name)
        if number is None:
            continue
        if not _is_whole(number, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1):
            raise _BadLineError("row_malformed", f"{name} is {number!r}, not a number of its size.")
        row[name] = number
    row["is_transactional"] = bool(_of_type(fields, ("is_transactional",), bool))
    row["control_type"] = _of_type(fields, _CONTROL, str)


def _is_whole(number: Any, least: int, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def _of_type(fields: Mapping[str, Any], names: Sequence[str], kind: type) -> Any:
    value = _first(fields, names)
    if value is not None and not isinstance(value, kind):
        raise _BadLineError("row_malformed", f"{names[0]} is {value!r}, not a {kind.__name__}.")
    return value


def _milliseconds(time: Any) -> int:
    if time is None:
        return NO_TIMESTAMP
    if isinstance(time, str):
        try:
            moment = datetime.fromisoformat(time)
        except ValueError as error:
            raise _BadLineError("row_malformed", f"The time {time!r} is neither epoch milliseconds nor ISO 8601.") from error
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    if not _is_whole(time, -(2**63), 2**63 - 1):
        raise _BadLineError("row_malformed", f"The time {time!r} is neither epoch milliseconds nor ISO 8601.")
    return int(time)


def _fill_bytes(row: dict[str, Any], fields: Mapping[str, Any], encoding: str) -> None:
    key, value = _first(fields, _KEY), _first(fields, _VALUE)
    if not any(name in fields for name in _KEY) or not any(name in fields for name in _VALUE):
        raise _BadLineError("row_malformed", "The line has no key or no value; a tombstone's value is null.")
    key_type = key.get("type") if isinstance(key, dict) else None
    row["key"] = _bytes_of("key", key, encoding, None)
    row["value"] = _bytes_of("value", value, encoding, key_type)


def _bytes_of(name: str, document: Any, encoding: str, key_type: int | None) -> bytes | None:
    if isinstance(document, dict) and "payload" in document:
        document = document["payload"]
    if document is None:
        return None
    try:
        if isinstance(document, dict):
            return _encoded(name, document, key_type)
        if isinstance(document, str):
            return document.encode(encoding) if document.startswith(_ZERO) else binascii.a2b_base64(document, strict_mode=True)
    except (DecodeError, EncodeError, ValueError) as error:
        fault = "the JSON that is there cannot be encoded" if isinstance(document, dict) else "it is not base64"
        raise _BadLineError("row_malformed", f"The {name} cannot be read: {fault}: {first_line(error)}.") from error
    raise _BadLineError("row_malformed", f"The {name} is a {type(document).__name__}, not base64.")


def _encoded(name: str, document: Mapping[str, Any], key_type: int | None) -> bytes:
    """The bytes of a key or value that Kafka's formatters printed as JSON."""
    data = document.get("data")
    number = document.get("type" if name == "key" else "version")
    if not isinstance(data, dict) or not _is_whole(number, -(2**15), 2**15 - 1) or not (name == "key" or key_type is not None):
        raise ValueError("it has no type or version with data")
    assert isinstance(number, int)
    return encode_key_json(number, data) if name == "key" else encode_value_json(key_type or 0, number, data)
