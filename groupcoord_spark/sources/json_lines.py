"""Raw rows from lines of JSON, one record in a line: our own dump, kcat's ``-J``, Connect's converter, and other lines with such fields.

A field may have several names; the first name in the line is used:

======================  ==========================================================================================
partition               ``offsets_partition``, ``partition``, ``partition_id``
offset                  ``record_offset``, ``offset``, ``partition_offset``
time                    ``record_timestamp_ms``, ``timestamp``, ``ts``: epoch time, or ISO 8601
key, value              ``key_base64``, ``key``; ``value_base64``, ``value``, ``payload``, ``message``, ``content``
transactions            ``producer_id``, ``producer_epoch``, ``is_transactional``, ``control`` or ``control_type``
others                  ``topic``, ``cluster``; all else is left alone
======================  ==========================================================================================

Where a line has no ``partition``, each name may begin with ``_``, ``kafka_`` or ``kafka.``, as in ClickHouse, Trino, Benthos and NiFi.

A key or value is null, text in the form of its column (``sources/byte_texts.py``), the numbers of its bytes (a list, or the JSON of a
Buffer or Uint8Array of JavaScript), ``{"schema": …, "payload": …}`` of Connect's converter around one of these, or the JSON of Kafka's
formatters, which is encoded again. A line with a key and a place and no value is a tombstone: Spark writes no field for NULL. A whole line
may have Connect's envelope too. Files may be packed by gzip or zstd. No Spark here.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.protocol import DecodeError, EncodeError, encode_key_json, encode_value_json
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.byte_texts import NO_TEXT, TextForms
from groupcoord_spark.sources.columns import in_milliseconds, not_decoded
from groupcoord_spark.sources.formats import is_gzip, is_zstd
from groupcoord_spark.sources.rows import ABSENT, LACKING, ROW_SCHEMA, UNKNOWN_PARTITION, VALUE_THERE, FilePiece, RowBatch
from groupcoord_spark.storage.location import Location, first_line

LINES_BYTES: Final = 32 << 20
"""Bytes of a file that one task reads at least, where the file has as many."""
LONGEST_LINE: Final = 64 << 20
"""Bytes of the longest line that is read. The records of this topic are much smaller."""
ROWS_A_BATCH: Final = 20_000
BATCH_BYTES: Final = 16 << 20

_READ_BYTES: Final = 4 << 20
_DIGITS: Final = 40
"""Texts with more digits are not numbers of 64 bits, and Python refuses the longest of them."""
_WHOLE_FLOATS: Final = 2**53
"""Up to here floats have every whole number."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_PARTITION: Final = ("offsets_partition", "partition", "partition_id")
_OFFSET: Final = ("record_offset", "offset", "partition_offset")
_TIMESTAMP: Final = ("record_timestamp_ms", "timestamp", "ts")
_KEY: Final = ("key_base64", "key")
VALUE_NAMES: Final = ("value_base64", "value", "payload", "message", "content")
_CONTROL: Final = ("control", "control_type")
_PREFIX: Final = re.compile(r"_*(?:kafka[._])?")
_OF_PATH: Final = (*_PARTITION, "topic", "cluster")


def first_documents(piece: FilePiece) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and values of the lines that are records, as they are in the JSON, for the choice of their form.

    Raises InputError where the file cannot be read.
    """
    for _, line in _lines_of(piece):
        with suppress(_BadLineError):
            fields = _object_of(line or b"")
            if fields.get("topic") in (None, OFFSETS_TOPIC):
                yield _without_schema(_first(fields, _KEY)), _without_schema(_first(fields, VALUE_NAMES))


def read_lines(piece: FilePiece, forms: TextForms = NO_TEXT) -> Iterator[RowBatch]:
    """Yield the rows of a piece, some ten thousand at a time.

    A compressed file is one piece, and positions count in its text.

    Args:
        forms: The forms of keys and values that are text.

    Raises:
        InputError: The file cannot be read.
    """
    of_path = {name: int(text) if text.isdecimal() else text for name, text in piece.constants if name in _OF_PATH and text is not None}
    rows = _BatchRows(piece.source, forms, of_path)
    for position, line in _lines_of(piece):
        rows.add(position, line)
        if rows.is_full:
            yield rows.batch()
            rows = _BatchRows(piece.source, forms, of_path)
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
    """Yield the lines that begin at ``start`` or later and before ``end``; None: at the end of the stream."""
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
    """Skip the bytes up to the end of the line."""
    size = 0
    while part := stream.readline(_READ_BYTES):
        size += len(part)
        if part.endswith(b"\n"):
            break
    return size


class _BadLineError(ValueError):
    """Raised when a line is not a record, with the code, the sentence, and the known part of its position."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(slots=True)
class _BatchRows:
    """The rows of the next batch. of_path: fields of all lines, from the path of the file (``partition=4``); values in a line win."""

    source: str
    forms: TextForms
    of_path: Mapping[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    held_bytes: int = 0
    other_topics: int = 0
    topics: set[str] = field(default_factory=set)
    lacks: frozenset[str] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)
    times: list[int | float | None] = field(default_factory=list)
    """The time of each row, in any unit."""

    @property
    def is_full(self) -> bool:
        """Whether the batch has ROWS_A_BATCH rows or BATCH_BYTES bytes."""
        return len(self.rows) >= ROWS_A_BATCH or self.held_bytes >= BATCH_BYTES

    def batch(self) -> RowBatch:
        """Return the batch of all rows."""
        kind = pa.float64() if any(isinstance(time, float) for time in self.times) else pa.int64()
        times, of_units = in_milliseconds(pa.array(self.times, kind))
        rows = pa.RecordBatch.from_pylist(self.rows, ROW_SCHEMA)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | {"record_timestamp_ms": times.fill_null(NO_TIMESTAMP)}
        rows = pa.RecordBatch.from_pydict(columns, ROW_SCHEMA)
        return RowBatch(rows, self.other_topics, self.lacks, frozenset(self.topics), self.counts + Counter(of_units))

    def add(self, position: int, line: bytes | None) -> None:
        """Add the row of one line. A line that is not a record gives a row with a fault."""
        row: dict[str, Any] = {**ABSENT, "offsets_partition": UNKNOWN_PARTITION, "record_offset": None}
        row |= {"source": self.source, "position": position}
        try:
            if line is None:
                raise _BadLineError("line_too_long", f"The line at byte {position} has more than {LONGEST_LINE} bytes.")
            fields = _object_of(line)
            if self.of_path:
                fields = {**self.of_path, **fields}
            if fields.get("topic") not in (None, OFFSETS_TOPIC):
                self.other_topics += 1
                self.topics.add(_printable(str(fields["topic"])))
                return
            _fill_place(row, fields)
            time = _time(_first(fields, _TIMESTAMP))
            self._fill_bytes(row, fields)
        except _BadLineError as fault:
            row |= {"fault": fault.code, "detail": _printable(str(fault)), "value": line, "key": None}
            time = None
        else:
            tells = ("producer_id" in fields and fields.keys() & _CONTROL, time is not None, "leader_epoch" in fields)
            self.lacks |= {word for word, is_told in zip(LACKING, tells, strict=True) if not is_told}
        self.times.append(time)
        self.rows.append(row)
        self.held_bytes += len(line or b"")

    def _fill_bytes(self, row: dict[str, Any], fields: Mapping[str, Any]) -> None:
        key = _without_schema(_first(fields, _KEY))
        if not any(name in fields for name in _KEY):
            raise _BadLineError("row_malformed", f"The line has no key: it has none of the fields {', '.join(_KEY)}.")
        value = _without_schema(_first(fields, VALUE_NAMES))
        key_type = _number_of_type(key) if isinstance(key, dict) else None
        row["key"] = _bytes_of("key", key, self.forms, None)
        if isinstance(value, str) and not value.strip():
            self.counts["value_empty"] += 1
        else:
            row["value"] = _bytes_of("value", value, self.forms, key_type)
        self.counts[VALUE_THERE if any(name in fields for name in VALUE_NAMES) else "value_absent"] += 1


def _object_of(line: bytes) -> Mapping[str, Any]:
    """Return the JSON object of a line, without Connect's envelope."""
    try:
        # kcat prints bytes above 127 unchanged: each byte that is not UTF-8 becomes one surrogate.
        fields = json.loads(line.decode("utf-8-sig", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise _BadLineError("row_malformed", f"The line is not JSON: {first_line(error)}.") from error
    if isinstance(fields, dict) and fields.keys() == {"schema", "payload"}:
        fields = fields["payload"]
    if not isinstance(fields, dict):
        raise _BadLineError("row_malformed", "The line is not a JSON object.")
    message = fields.get("message")  # KafkaJS
    fields = {**message, **fields, "message": None} if isinstance(message, dict) and "offset" in message else fields
    return fields if fields.keys() & _PARTITION else {**{_PREFIX.sub("", name, 1): each for name, each in fields.items()}, **fields}


def _printable(text: str) -> str:
    """Return text of a line as Arrow takes it."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if name in fields), None)


def _fill_place(row: dict[str, Any], fields: Mapping[str, Any]) -> None:
    partition, offset = _whole(_first(fields, _PARTITION)), _whole(_first(fields, _OFFSET))
    if _is_whole(partition, 0, 2**31 - 1):
        row["offsets_partition"] = partition
    if _is_whole(offset, 0, 2**63 - 1):
        row["record_offset"] = offset
    if row["offsets_partition"] == UNKNOWN_PARTITION or row["record_offset"] is None:
        raise _BadLineError(
            "row_without_place",
            f"The line has no partition and offset of its record (partition {partition!r}, offset {offset!r}); nobody knows which it is."
            f" Their names are {' or '.join(_PARTITION)}, and {' or '.join(_OFFSET)}.",
        )
    row["cluster"] = _of_type(fields, ("cluster",), str)
    for name, bits in (("producer_id", 64), ("producer_epoch", 16), ("leader_epoch", 32)):
        number = _whole(fields.get(name))
        if number is None:
            continue
        if not _is_whole(number, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1):
            raise _BadLineError("row_malformed", f"{name} is {number!r}, not a number of its size.")
        row[name] = number
    row["is_transactional"] = bool(_of_type(fields, ("is_transactional",), bool))
    row["control_type"] = _of_type(fields, _CONTROL, str)


def _whole(number: Any) -> Any:
    """Return the number in a text of digits, as JavaScript and ClickHouse write integers of 64 bits, or in a float, as pandas does.

    Anything else is returned as it is.
    """
    if isinstance(number, float) and number.is_integer() and abs(number) <= _WHOLE_FLOATS:
        return int(number)
    is_number = isinstance(number, str) and number.strip().removeprefix("-").isdecimal() and len(number) < _DIGITS
    return int(number) if is_number else number


def _is_whole(number: Any, least: int, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def _of_type(fields: Mapping[str, Any], names: Sequence[str], kind: type) -> Any:
    value = _first(fields, names)
    if value is not None and not isinstance(value, kind):
        raise _BadLineError("row_malformed", f"{names[0]} is {value!r}, not a {kind.__name__}.")
    return _printable(value) if isinstance(value, str) else value


def _time(time: Any) -> int | float | None:
    """Return an epoch time in any unit, or the milliseconds of a text of ISO 8601."""
    time = _whole(time)
    if isinstance(time, str):
        try:
            moment = datetime.fromisoformat(time.strip().removesuffix(" UTC"))
            return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
        except ValueError:
            with suppress(ValueError):
                time = float(time)
    if time is None or (isinstance(time, int | float) and not isinstance(time, bool) and -(2**63) <= time < 2**63):
        return time
    raise _BadLineError("row_malformed", f"The time {time!r} is neither an epoch time nor ISO 8601.")


def _without_schema(document: Any) -> Any:
    """Return what a key or value is without Connect's schema around it."""
    return document["payload"] if isinstance(document, dict) and "payload" in document else document


def _bytes_of(name: str, document: Any, forms: TextForms, key_type: int | None) -> bytes | None:
    if document is None:
        return None
    if isinstance(document, str):
        form = forms.key if name == "key" else forms.value
        try:
            return form.decode(document)
        except ValueError as error:
            raise _BadLineError("row_malformed", not_decoded(name, form, error)) from error
    numbers = _numbers_of(document)
    try:
        if isinstance(numbers, list):
            return bytes(number + 256 if -128 <= number < 0 else number for number in numbers)
        if isinstance(document, dict):
            return _encoded(name, document, key_type)
    except (DecodeError, EncodeError, ValueError, TypeError) as error:
        fault = "the JSON that is there cannot be encoded" if numbers is None else "it is not a list of bytes"
        raise _BadLineError("row_malformed", f"The {name} cannot be read: {fault}: {first_line(error)}.") from error
    raise _BadLineError("row_malformed", f"The {name} is a {type(document).__name__}, not base64.")


def _numbers_of(document: Any) -> Any:
    """Return the numbers of bytes: a list, ``{"type": "Buffer", "data": […]}`` or ``{"0": …, "1": …}``; None for anything else."""
    if isinstance(document, dict):
        if document.get("type") == "Buffer":
            document = document.get("data")
        elif document and all(key == str(at) for at, key in enumerate(document)):
            document = [*document.values()]
    return document if isinstance(document, list) else None


def _number_of_type(key: Mapping[str, Any]) -> Any:
    """Return the type in the JSON of a key. Kafka 3.9 calls it the version."""
    return key.get("type", key.get("version"))


def _encoded(name: str, document: Mapping[str, Any], key_type: int | None) -> bytes:
    """Return the bytes of a key or value that Kafka's formatters printed as JSON."""
    data = document.get("data")
    number = _number_of_type(document) if name == "key" else document.get("version")
    if not isinstance(data, dict) or not _is_whole(number, -(2**15), 2**15 - 1) or not (name == "key" or key_type is not None):
        raise ValueError("it has no type or version with data")
    assert isinstance(number, int)
    return encode_key_json(number, data) if name == "key" else encode_value_json(key_type or 0, number, data)
