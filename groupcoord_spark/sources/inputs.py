"""The kind of an input, from its content: a topic, a Delta table, Parquet, lines of JSON, or else log segments."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.directory import log_directories_below
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.files.storage import Location, first_line, infos_in, shown

KAFKA_SCHEME: Final = "kafka://"
ADMIN_SCHEME: Final = "admin://"
DELTA_LOG: Final = "_delta_log"

_PARTITION = re.compile(rf"{OFFSETS_TOPIC}-[0-9]+(?:\.[0-9a-f]{{32}}-(?:delete|future|stray))?")
_TABLE_SUFFIXES: Final = (".parquet", ".parq", ".pq")
_HEAD_BYTES: Final = 1 << 16
_FILES_LOOKED_AT: Final = 20
_DIRECTORIES_LOOKED_AT: Final = 50
_KEPT_BY_WRITERS: Final = ("_", ".")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_JSON_NAME: Final = re.compile(r"\.(?:jsonl|ndjson|json)(?:\.(?:gz|gzip|zst|zstd))?", re.IGNORECASE)
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


class InputKind(StrEnum):
    """The kind of an input, as stored in ``runs``."""

    SEGMENTS = "segments"
    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    KAFKA = "kafka"
    DATAFRAME = "dataframe"
    ADMIN = "admin"


NAMES: Final = {
    InputKind.SEGMENTS: "log segments",
    InputKind.PARQUET: "Parquet",
    InputKind.DELTA: "a Delta table",
    InputKind.JSON: "lines of JSON",
    InputKind.KAFKA: "a topic",
    InputKind.ADMIN: "an Admin API",
}


def kind_of(inputs: Sequence[str]) -> InputKind:
    """The kind of all these inputs. An input of no known kind counts as segments, and ``plan_logs`` says what is wrong with it.

    Raises InputError, one sentence, for inputs of several kinds, for the text of kafka-dump-log and for JSON that is not in lines.
    """
    kinds = {path: _kind_of(path) for path in inputs}
    inputs_by_kind = {kind: path for path, kind in reversed(kinds.items())}
    if len(inputs_by_kind) > 1:
        kinds_of_inputs = " and ".join(f"{shown(path)} is {NAMES[kind]}" for kind, path in reversed(inputs_by_kind.items()))
        raise InputError(f"{kinds_of_inputs}: one run reads one kind of input. Give those of one kind.")
    return next(iter(inputs_by_kind), InputKind.SEGMENTS)


def _kind_of(path: str) -> InputKind:
    if not path.strip():  # an empty variable of a script, which would read the current directory
        raise InputError("An INPUT is empty. Name a path or URI.")
    if path.startswith(KAFKA_SCHEME):
        return InputKind.KAFKA
    if path.startswith(ADMIN_SCHEME):
        return InputKind.ADMIN
    location = Location.of(path)
    info = location.info()
    if info.type == pafs.FileType.File:
        return _kind_of_file(location) or _kind_by_name(location)
    if info.type == pafs.FileType.Unknown:
        raise InputError(f"{location.shown}: this is neither a file nor a directory (a pipe or a device is read but once). Give a file.")
    if info.type != pafs.FileType.Directory or _PARTITION.fullmatch(location.name):
        return InputKind.SEGMENTS
    children = location.list()
    names = [str(child.base_name) for child in children]
    if DELTA_LOG in names:
        return InputKind.DELTA
    if any(map(_PARTITION.fullmatch, names)):
        return InputKind.SEGMENTS
    return _kind_of_directory(location, children)


def _kind_of_directory(location: Location, children: Iterable[Any]) -> InputKind:
    """The kind of the first files that show one, files at the top first. The log directory of a broker has partitions one level down."""
    directories = [location.child(str(child.base_name)) for child in children if child.type == pafs.FileType.Directory]
    for directory in directories:
        try:
            if any(_PARTITION.fullmatch(str(child.base_name)) for child in directory.list()):
                return InputKind.SEGMENTS
        except InputError:
            continue  # plan_logs decides whether that matters
    if log_directories_below(location, 2):
        return InputKind.SEGMENTS  # plan_logs refuses a folder of many dumps
    for file in islice(_some_files(location), _FILES_LOOKED_AT):
        kind = _kind_of_file(file)
        if kind is not None:
            return kind
    return InputKind.SEGMENTS


def _some_files(location: Location) -> Iterator[Location]:
    """Files in and below a directory, higher levels first. Limited, so that the root of a disk named by mistake is not read in full."""
    waiting = [location]
    for _ in range(_DIRECTORIES_LOOKED_AT):
        if not waiting:
            return
        directory = waiting.pop(0)
        try:
            children = directory.list()
        except InputError:
            continue
        for child in children:
            name = str(child.base_name)
            if not name.startswith(_KEPT_BY_WRITERS):
                if child.type == pafs.FileType.File and child.size:
                    yield directory.child(name)
                elif child.type == pafs.FileType.Directory:
                    waiting.append(directory.child(name))


def data_files(location: Location) -> list[tuple[str, int]]:
    """(path below the location, bytes) of the files that may have rows, by path: only those with a Parquet suffix if there are any.

    Names that begin with ``_`` or ``.`` are what writers keep for themselves. Raises InputError where the directory cannot be read.
    """
    info = location.info()
    if info.type == pafs.FileType.File:
        return [("", info.size)]
    try:
        infos = infos_in(location.filesystem, location.path, recursive=True)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{location.shown}: the directory cannot be read: {first_line(error)}. Check its permissions.") from error
    top = location.path.rstrip("/") + "/"
    sizes = {str(info.path).removeprefix(top): info.size for info in infos if info.type == pafs.FileType.File and info.size}
    paths = [path for path in sorted(sizes) if not any(part.startswith(_KEPT_BY_WRITERS) for part in path.split("/"))]
    called_so = [path for path in paths if path.endswith(_TABLE_SUFFIXES)]
    return [(path, sizes[path]) for path in called_so or paths]


def below(location: Location, path: str) -> Location:
    """The location of a relative path below a directory."""
    for part in filter(None, path.split("/")):
        location = location.child(part)
    return location


def _kind_of_file(location: Location) -> InputKind | None:
    """The kind that the first bytes of the file show; None if they show none. Raises InputError for a known kind that cannot be read."""
    head = _head_of(location)
    if head.startswith(b"PAR1"):
        return InputKind.PARQUET
    unpacked = _unpacked(head, location)
    text = unpacked.removeprefix(_UTF8_MARK).lstrip()
    if text.startswith(b"{"):
        _check_first_line(unpacked, location)
        return InputKind.JSON
    if text.startswith(b"["):
        raise InputError(
            f"{location.shown}: this is one JSON array. Give lines of JSON, one record a line (`jq -c '.[]'` makes them of an array)."
        )
    if _DUMP_LOG.match(text):
        raise InputError(
            f"{location.shown}: this is the text of kafka-dump-log, which leaves out what the rules need (bytes, and how transactions end)."
            " Give the segments that it was made of, or what `groupcoord dump --bytes` makes of them."
        )
    return None


def _kind_by_name(location: Location) -> InputKind:
    """The kind of a file whose first bytes show none: segments, unless the file is compressed or has a suffix of JSON lines.

    Raises InputError for an archive or a packed file, and for a file that is called like lines of JSON and holds none.
    """
    head = _head_of(location)
    if not head and location.info().size:  # it cannot be read: the reader of the kind says why
        return InputKind.JSON if _JSON_NAME.search(location.name) else InputKind.SEGMENTS
    unpacked = _unpacked(head, location)
    if _JSON_NAME.search(location.name):
        _check_first_line(unpacked, location)
    place, mark = _TAR_MARK
    is_archive = head.startswith(_ARCHIVE_BEGINS) or unpacked[place] == mark or _ARCHIVE_NAME.search(location.name)
    if is_archive or unpacked is not head:
        what = "an archive" if is_archive else "a packed file without lines of JSON in it"
        raise InputError(f"{location.shown}: this is {what}: unpack it first, and give the directory or the file that comes out.")
    return InputKind.SEGMENTS


def _check_first_line(head: bytes, location: Location) -> None:
    """Raises InputError if the first line is not a line of JSON. A first line that is longer than the head is not checked."""
    lines = head.removeprefix(_UTF8_MARK).splitlines(keepends=True)
    number, line = next(((number, line) for number, line in enumerate(lines, 1) if line.strip()), (1, b""))
    if len(head) >= _HEAD_BYTES and number == len(lines) and line.lstrip().startswith(b"{"):
        return
    why = "the file is empty"
    if line:
        try:
            # Bytes above 127 that are no UTF-8 are those that kcat prints as they are: any 8-bit encoding will do to see the JSON.
            if isinstance(json.loads(line.decode("latin-1")), dict):
                return
            why = "it is no object"
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else first_line(error)
    raise InputError(f"{location.shown}: line {number} is not JSON: {why}. Give lines of JSON, one record a line.")


def _unpacked(head: bytes, location: Location) -> bytes:
    """The first uncompressed bytes of a gzip or zstd file; ``head`` itself for other files."""
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
        return b""  # the reader of the file says what is wrong


def is_gzip(head: bytes) -> bool:
    """Whether a file with these first bytes is gzip."""
    return head.startswith(_GZIP)


def is_zstd(head: bytes) -> bool:
    """Whether a file with these first bytes is zstd."""
    return head.startswith(_ZSTD)
