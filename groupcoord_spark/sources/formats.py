"""Find the format of one file from its first bytes: Parquet, lines of JSON, or a format that is refused with the way out."""

import json
import re
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from groupcoord_spark.errors import InputError
from groupcoord_spark.storage.location import Location, first_line

_HEAD_BYTES: Final = 1 << 16
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_JSON_NAME: Final = re.compile(r"\.(?:jsonl|ndjson|json)(?:\.(?:gz|gzip|zst|zstd))?\Z", re.IGNORECASE)
_JSON_PACKED_OTHERWISE: Final = re.compile(r"\.(?:jsonl|ndjson|json)\.(?:bz2|lz4|snappy|sz|deflate|xz|br)\Z", re.IGNORECASE)
_ARCHIVE_NAME: Final = re.compile(r"\.(?:tar|tgz|tbz2?|txz|tzst|zip|7z|rar|jar)(?:\.[a-z0-9]+)?", re.IGNORECASE)
_ARCHIVE_BEGINS: Final = (
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07",
    b"BZh",
    b"\xfd7zXZ\x00",
    b"\x04\x22\x4d\x18",
)
"""How zip (with files and without), 7z, rar, bzip2, xz and lz4 begin."""
_TAR_MARK: Final = slice(257, 262), b"ustar"
_DUMP_LOG = re.compile(rb"(?:Dumping \S|Log starting offset: |\| offset: \d|baseOffset: \d)")
_FORMATTER = re.compile(rb"[^\n]*::(?:\[?Offset(?:And)?Metadata|GroupMetadata|NULL|null|<DELETE>)")
_ARRAY = re.compile(rb"\[\s*\{")
_CSV_NAME: Final = re.compile(rb'\s*(?:"[^"]*"|[\w.-]+)\s*')
_RECORD_NAME = re.compile(r"(?:kafka|record|message|offsets|source|meta)?(key|value|payload|partition|offset)(?:base64|hex|bytes)?")

_PARQUET_WITH_SPARK: Final = "Write it to Parquet first, for example with Spark: spark.read.{}.write.parquet(...)."
_REFUSED_FORMATS: Final = {
    b"Obj\x01": ("Avro", _PARQUET_WITH_SPARK.format("format('avro').load(...)")),
    b"ORC": ("ORC", _PARQUET_WITH_SPARK.format("orc(...)")),
    b"ARROW1": ("an Arrow file", "Write it to Parquet first: pyarrow.parquet.write_table(pyarrow.feather.read_table(...), ...)."),
    b"SEQ": ("a Hadoop sequence file", "Give the records in Parquet or in lines of JSON."),
}
"""First bytes -> the format, and the way out."""


class Rows(StrEnum):
    """The rows of a file.

    ``PERHAPS_JSON`` is by the name of the file, or because its lines are JSON without a record's fields. ``ONE_DOCUMENT`` is a file that is
    one JSON document and no record, such as a manifest. ``BROKEN_JSON`` begins like an object that does not end on its line.
    """

    PARQUET = "parquet"
    JSON = "json"
    PERHAPS_JSON = "perhaps json"
    ONE_DOCUMENT = "one document"
    BROKEN_JSON = "broken json"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FileLook:
    """The result of a look at the first bytes of a file.

    refusal: why the file cannot be read alone, a sentence without the name of the file. has_records: the file has records that cannot be
    read, so that a folder is not read without it.
    """

    rows: Rows
    refusal: str | None = None
    has_records: bool = False


def look_at(location: Location) -> FileLook:
    """Return what the first bytes of a file show, and where they show nothing, what its name does.

    Raises InputError for a packed file that cannot be unpacked.
    """
    head = _head_of(location)
    if head.startswith(b"PAR1"):
        return FileLook(Rows.PARQUET)
    for begin, (what, way_out) in _REFUSED_FORMATS.items():
        if head.startswith(begin):
            return FileLook(Rows.NONE, f"this is {what}, which is not read. {way_out}", has_records=True)
    if _JSON_PACKED_OTHERWISE.search(location.name):
        return FileLook(
            Rows.NONE, "this file is not packed by gzip or zstd: unpack it first, or pack it by one of these.", has_records=True
        )
    unpacked = _unpacked(head, location)
    text = unpacked.removeprefix(_UTF8_MARK).lstrip()
    if text.startswith(b"{"):
        return _look_at_object(unpacked, text)
    return _look_at_text(text) or _look_at_name(location, head, unpacked)


def _look_at_object(head: bytes, text: bytes) -> FileLook:
    """Return the look at text that begins with ``{``. text: the head without blanks at its beginning."""
    document, first = _json_of(text) if len(head) < _HEAD_BYTES else None, _json_of(text.partition(b"\n")[0])
    if document is not None and not _is_record(document):
        return FileLook(Rows.ONE_DOCUMENT, _fault_of_first_line(head))
    if (fault := _fault_of_first_line(head)) is not None:
        return FileLook(Rows.BROKEN_JSON, fault, has_records=document is not None)
    # None: a first line that is longer than the head
    return FileLook(Rows.JSON if first is None or _is_record(first) else Rows.PERHAPS_JSON)


def _look_at_text(text: bytes) -> FileLook | None:
    """Return the look at text that is refused; None where the text is of no known form."""
    if (is_dump := _DUMP_LOG.match(text)) or _FORMATTER.match(text):
        what = "kafka-dump-log" if is_dump else "a formatter of kafka-console-consumer"
        return FileLook(
            Rows.NONE,
            f"this is the text of {what}, which leaves out what the rules need (bytes, and how transactions end)."
            " Give the segments that it was made of, or what `groupcoord dump --bytes` makes of them.",
        )
    parts = _json_of(text) if text.startswith(b"[") else None
    if _ARRAY.match(text) or isinstance(parts, list):
        return FileLook(
            Rows.NONE,
            "this is one JSON array. Give lines of JSON, one record a line (`jq -c '.[]'` makes them of an array).",
            has_records=parts is None or any(map(_is_record, parts)),
        )
    names = re.split(rb"[,;\t|]", text.partition(b"\n")[0].strip().lower())
    if all(map(_CSV_NAME.fullmatch, names)) and {b"key", b"partition", b"offset"} <= {name.strip(b'" ') for name in names}:
        return FileLook(
            Rows.NONE,
            "this is CSV, which is not read. Make lines of JSON of it, with keys and values in base64, for example with DuckDB:"
            " COPY (FROM 'rows.csv') TO 'rows.jsonl' (FORMAT json).",
            has_records=True,
        )
    return None


def _look_at_name(location: Location, head: bytes, unpacked: bytes) -> FileLook:
    is_called_json = _JSON_NAME.search(location.name) is not None
    if not head and location.info().size:  # it cannot be read: the reader of the kind reports why
        return FileLook(Rows.PERHAPS_JSON if is_called_json else Rows.NONE)
    if is_called_json:
        return FileLook(Rows.PERHAPS_JSON, _fault_of_first_line(unpacked))
    place, mark = _TAR_MARK
    is_archive = head.startswith(_ARCHIVE_BEGINS) or unpacked[place] == mark or _ARCHIVE_NAME.search(location.name)
    if is_archive or unpacked is not head:
        what = "an archive" if is_archive else "a packed file without lines of JSON in it"
        return FileLook(Rows.NONE, f"this is {what}: unpack it first, and give the directory or the file that comes out.")
    return FileLook(Rows.NONE)


def _json_of(text: bytes) -> Any:
    """Return the JSON document in the text, or None. The output of kcat is not UTF-8: any 8-bit encoding shows its structure."""
    try:
        return json.loads(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return None


def _is_record(document: Any) -> bool:
    """Return whether a JSON document has two of the fields that every record has, under any name that tools give them."""
    if isinstance(document, dict) and isinstance(document.get("payload"), dict) and "schema" in document:
        document = document["payload"]
    if not isinstance(document, dict):
        return False
    names = (_RECORD_NAME.fullmatch(re.sub(r"[^a-z0-9]", "", str(name).lower())) for name in document)
    return len({name[1] for name in names if name is not None}) > 1


def _fault_of_first_line(head: bytes) -> str | None:
    """Return a sentence why the first line is not a line of JSON, or None. A first line that is longer than the head is not checked."""
    lines = head.removeprefix(_UTF8_MARK).splitlines(keepends=True)
    number, line = next(((number, line) for number, line in enumerate(lines, 1) if line.strip()), (1, b""))
    if len(head) >= _HEAD_BYTES and number == len(lines) and line.lstrip().startswith(b"{"):
        return None
    why = "the file is empty"
    if line:
        try:
            if isinstance(json.loads(line.decode("latin-1")), dict):
                return None
            why = "it is not an object"
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else first_line(error)
    return f"line {number} is not JSON: {why}. Give lines of JSON, one record a line."


def _unpacked(head: bytes, location: Location) -> bytes:
    """Return the first uncompressed bytes of a gzip or zstd file, ``head`` itself for other files.

    Raises InputError for a file that cannot be unpacked.
    """
    try:
        if is_gzip(head):
            return zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
        if is_zstd(head):
            with location.filesystem.open_input_stream(location.path, compression=None) as file:
                return bytes(pa.CompressedInputStream(file, "zstd").read(_HEAD_BYTES))
    except (zlib.error, OSError, pa.ArrowException) as error:
        packing = "gzip" if is_gzip(head) else "zstd"
        raise InputError(
            f"{location.shown}: the file begins like {packing} and cannot be unpacked: {first_line(error)}. Copy it again."
        ) from error
    return head


def _head_of(location: Location) -> bytes:
    try:
        with location.filesystem.open_input_file(location.path) as file:
            return bytes(file.read(_HEAD_BYTES))
    except (OSError, pa.ArrowException):
        return b""  # the reader of the file reports the error


def is_gzip(head: bytes) -> bool:
    """Return whether a file with these first bytes is gzip."""
    return head.startswith(_GZIP)


def is_zstd(head: bytes) -> bool:
    """Return whether a file with these first bytes is zstd."""
    return head.startswith(_ZSTD)
