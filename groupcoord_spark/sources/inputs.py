"""Find the kind of an input from its content: a topic, a Delta table, Parquet, lines of JSON, or else log segments.

A folder has the format of its data files. docs/how-to/other-inputs.md lists the rules that decide which files are data.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.directory import log_directories_below
from groupcoord_spark.sources.formats import FileLook, Rows, look_at
from groupcoord_spark.storage.location import Location, first_line, infos_in, shown, side_by_side
from groupcoord_spark.wording import counted, first_of

KAFKA_SCHEME: Final = "kafka://"
ADMIN_SCHEME: Final = "admin://"
DELTA_LOG: Final = "_delta_log"

_PARTITION = re.compile(rf"{OFFSETS_TOPIC}-[0-9]+(?:\.[0-9a-f]{{32}}-(?:delete|future|stray))?")
_OF_KAFKA = re.compile(r"[0-9]{20}\.|leader-epoch-checkpoint|partition\.metadata")
_LIKE_A_LOG = re.compile(r"(?:^|/)(?:[0-9]{20}\.|[^/]+-[0-9]+/|[^/]+-checkpoint$|meta\.properties$)|\.(?:log|index)")
"""Paths of a broker's files, and of archives of them: ``plan_logs`` refuses such a folder with its own sentence."""
_TABLE_SUFFIXES: Final = (".parquet", ".parq", ".pq")
_LINES_SUFFIXES: Final = (".jsonl", ".ndjson", ".json", ".gz", ".zst")
_FILES_LOOKED_AT: Final = 20
_DIRECTORIES_LOOKED_AT: Final = 50

_KEPT_BY_WRITERS: Final = ("_", ".", "+tmp")
"""How the names of files and directories begin that writers keep for themselves; the last one is of Connect's sink for HDFS."""
_MARKERS: Final = re.compile(
    r"_SUCCESS|_committed_.*|_started_.*|_metadata|_common_metadata|_spark_metadata|\..*\.crc|\.DS_Store|\._.*|\.part_meta", re.IGNORECASE
)
"""Files without rows that writers leave next to their data. They are not reported."""
_UNFINISHED: Final = (".tmp", ".temp", ".inprogress", ".pending", "._COPYING_", ".crdownload")
_WRITE_AHEAD_LOG: Final = re.compile(r"(?:.*/)?logs/[^/]+/[0-9]+/log(?:\.1)?")
_ICEBERG_METADATA: Final = re.compile(r"(?:(.*)/)?metadata/[^/]*\.metadata\.json")


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
    """Return the kind of all these inputs. An input of no known kind counts as segments, and ``plan_logs`` refuses it.

    Raises InputError, one sentence, for inputs of several kinds, for the text of kafka-dump-log and for JSON that is not in lines.
    """
    kinds = {path: _kind_of(path) for path in inputs}
    inputs_by_kind = {kind: path for path, kind in reversed(kinds.items())}
    if len(inputs_by_kind) > 1:
        kinds_of_inputs = " and ".join(f"{shown(path)} is {NAMES[kind]}" for kind, path in reversed(inputs_by_kind.items()))
        raise InputError(f"{kinds_of_inputs}: one run reads one kind of input. Give inputs of one kind.")
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
        look = look_at(location)
        if look.refusal is not None:
            raise InputError(f"{location.shown}: {look.refusal}")
        return _KINDS.get(look.rows, InputKind.SEGMENTS)
    if info.type == pafs.FileType.Unknown:
        raise InputError(f"{location.shown}: this is neither a file nor a directory (a pipe or a device is read but once). Give a file.")
    if info.type != pafs.FileType.Directory or (_PARTITION.fullmatch(location.name) and not _has_rows(location)):
        return InputKind.SEGMENTS
    children = location.list()
    if DELTA_LOG in (str(child.base_name) for child in children):
        return InputKind.DELTA
    if _has_partitions(location, children):
        return InputKind.SEGMENTS
    return _kind_of_directory(location, children)


_KINDS: Final = {
    Rows.PARQUET: InputKind.PARQUET,
    Rows.JSON: InputKind.JSON,
    Rows.PERHAPS_JSON: InputKind.JSON,
    Rows.ONE_DOCUMENT: InputKind.JSON,
}


def _has_partitions(location: Location, children: Iterable[Any]) -> bool:
    """Return whether a broker's directories of the offsets topic are among the children. A sink may give files or folders such names."""
    named = (child for child in children if _PARTITION.fullmatch(str(child.base_name)) and child.type != pafs.FileType.File)
    first = next(named, None)
    return first is not None and not (first.type == pafs.FileType.Directory and _has_rows(location.child(str(first.base_name))))


def _has_rows(partition: Location) -> bool:
    """Return whether a directory that is named like a partition has files of rows and none of Kafka's."""
    try:
        names = [str(child.base_name) for child in partition.list() if child.type == pafs.FileType.File]
    except InputError:
        return False
    if any(map(_OF_KAFKA.match, names)):
        return False
    return any(_look_at(partition.child(name)).rows in (Rows.PARQUET, Rows.JSON) for name in names[:_FILES_LOOKED_AT])


def _kind_of_directory(location: Location, children: Iterable[Any]) -> InputKind:
    """Return the kind of the first data files. The log directory of a broker has partitions one level down."""
    directories = [location.child(str(child.base_name)) for child in children if child.type == pafs.FileType.Directory]
    for directory in directories:
        try:
            if _has_partitions(directory, directory.list()):
                return InputKind.SEGMENTS
        except InputError:
            continue  # plan_logs decides whether that matters
    if log_directories_below(location, 2):
        return InputKind.SEGMENTS  # plan_logs refuses a folder of many dumps
    looks = []
    for path in islice(_some_files(location), _FILES_LOOKED_AT):
        looks.append((path, _look_at(below(location, path))))
        if looks[-1][1].rows in (Rows.PARQUET, Rows.JSON):
            break
    kind, _ = _data_among(location, looks)
    if kind is None and looks and not any(_LIKE_A_LOG.search(path) for path, _ in looks):
        raise InputError(
            f"{location.shown}: its files are neither segments of a log, Parquet nor lines of JSON, for example {looks[0][0]}. Give a log"
            f" directory with directories such as {OFFSETS_TOPIC}-0, or records with key, value, partition and offset."
        )
    return kind or InputKind.SEGMENTS


def _look_at(file: Location) -> FileLook:
    return FileLook(Rows.PARQUET) if file.name.lower().endswith(_TABLE_SUFFIXES) else look_at(file)


def _some_files(location: Location) -> Iterator[str]:
    """Yield paths of files in and below a directory that may have rows, higher levels of a branch first.

    Limited, so that the root of a disk named by mistake is not read in full. Depth first: the files of a table may lie below more
    directories than the limit.
    """
    waiting = [""]
    for _ in range(_DIRECTORIES_LOOKED_AT):
        if not waiting:
            return
        directory = waiting.pop()
        try:
            children = below(location, directory).list()
        except InputError:
            continue
        of_topic = [child for child in children if child.base_name == OFFSETS_TOPIC and child.type == pafs.FileType.Directory]
        infos = {f"{directory}/{child.base_name}".lstrip("/"): child for child in of_topic or children}
        paths = [path for path, child in infos.items() if child.type == pafs.FileType.File]
        paths.sort(key=lambda path: not path.endswith((*_TABLE_SUFFIXES, *_LINES_SUFFIXES)))
        yield from (path for path in paths if _reason_not_to_read(path, infos[path].size) is None)
        directories = [path for path, child in infos.items() if child.type == pafs.FileType.Directory]
        waiting += [path for path in reversed(directories) if not _is_kept_by_writers(str(infos[path].base_name))]


def _is_kept_by_writers(name: str) -> bool:
    """Return whether a file or directory of this name is a writer's own. The topic's name begins with ``_``, and so may a column's."""
    return name.startswith(_KEPT_BY_WRITERS) and not name.startswith(OFFSETS_TOPIC) and not (name.startswith("_") and "=" in name)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files of an input that have rows.

    Attributes:
        sizes: path below the input -> bytes, by path.
        remark: a sentence about files that are not read, except markers such as ``_SUCCESS``; None if all files are read.
    """

    sizes: Mapping[str, int]
    remark: str | None = None


def data_files(location: Location, kind: InputKind) -> DataFiles:
    """Return the files that have rows of a kind, and a remark on the other files.

    Raises:
        InputError: The directory cannot be read, is or has a table of another format, or has data files of several formats.
    """
    info = location.info()
    if info.type == pafs.FileType.File:
        return DataFiles({"": info.size})
    try:
        infos = infos_in(location.filesystem, location.path, recursive=True)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{location.shown}: the directory cannot be read: {first_line(error)}. Check its permissions.") from error
    top = location.path.rstrip("/") + "/"
    sizes = {str(info.path).removeprefix(top): info.size for info in infos if info.type == pafs.FileType.File}
    _refuse_tables(location, sizes)
    reasons = {path: reason for path, size in sizes.items() if (reason := _reason_not_to_read(path, size)) is not None}
    candidates = sorted(sizes.keys() - reasons.keys())
    if folders := {path.partition(f"{OFFSETS_TOPIC}/")[0] for path in candidates if OFFSETS_TOPIC in path.split("/")[:-1]}:
        of_others = [path for path in candidates if OFFSETS_TOPIC not in path.split("/")[:-1]]
        beside = {path[len(folder) :].partition("/")[0] for path in of_others for folder in folders if path.startswith(folder)}
        reasons.update(dict.fromkeys(of_others, f"not below {OFFSETS_TOPIC}, but in {first_of(sorted(beside))}"))
        candidates = [path for path in candidates if path not in reasons]
    looks = side_by_side(lambda path: (path, _look_at(below(location, path))), candidates, location.filesystem)
    found, left_out = _data_among(location, looks)
    if found not in (None, kind):
        raise InputError(f"{location.shown}: the folder has {NAMES[found]} and {NAMES[kind]}. Give the files of one format.")
    reasons |= left_out
    data = {path: sizes[path] for path in candidates if path not in left_out}
    return DataFiles(data, _remark_on(location, {path: reason for path, reason in reasons.items() if reason}, len(sizes)))


def _refuse_tables(location: Location, paths: Iterable[str]) -> None:
    """Raise InputError for a folder with a table of Delta, Hudi or Iceberg: some of its files may be replaced or deleted by now."""
    for path in paths:
        parts = path.split("/")
        if DELTA_LOG in parts:
            table = below(location, "/".join(parts[: parts.index(DELTA_LOG)]))
            raise InputError(f"{table.shown}: this is a Delta table in a folder. Give the table itself as the INPUT.")
        iceberg = _ICEBERG_METADATA.fullmatch(path)
        if ".hoodie" in parts or iceberg is not None:
            what = "Hudi" if iceberg is None else "Iceberg"
            table = below(location, "/".join(parts[: parts.index(".hoodie")]) if iceberg is None else iceberg[1] or "")
            raise InputError(
                f"{table.shown}: this is a table of {what}, whose files may be replaced or deleted by now. Write it to Parquet with Spark,"
                " or give a DataFrame of it to groupcoord_spark.run_nightly."
            )


def _reason_not_to_read(path: str, size: int) -> str | None:
    """Return why a file is left out by its name and size, empty for a marker; None where it is looked at."""
    parts = path.split("/")
    if any(map(_MARKERS.fullmatch, parts)):
        return ""
    if (kept := next(filter(_is_kept_by_writers, parts), None)) is not None:
        return f"kept by a writer for itself (the name begins with {kept[0]!r})"
    if not size:
        return "empty"
    if _WRITE_AHEAD_LOG.fullmatch(path):
        return "a write-ahead log of Connect's sink for HDFS"
    return "not finished by its writer" if path.endswith(_UNFINISHED) else None


def _data_among(location: Location, looks: Sequence[tuple[str, FileLook]]) -> tuple[InputKind | None, dict[str, str]]:
    """Return the kind of a folder whose files look so, and why files are left out, by path.

    Raises InputError for a folder with records in several formats, or in an unsupported format.
    """
    first: dict[Rows, str] = {}
    for path, look in looks:
        if look.has_records:
            raise InputError(f"{below(location, path).shown}: {look.refusal}")
        first.setdefault(look.rows, path)
    if Rows.PARQUET in first and Rows.JSON in first:
        raise InputError(
            f"{location.shown}: the folder has files of two formats: {first[Rows.PARQUET]} is Parquet and {first[Rows.JSON]} is lines of"
            " JSON. Give the files of one format."
        )
    if Rows.PARQUET in first:
        kind, data = InputKind.PARQUET, {Rows.PARQUET}
    else:
        has_lines = not first.keys().isdisjoint((Rows.JSON, Rows.PERHAPS_JSON))
        kind, data = InputKind.JSON, {Rows.JSON, Rows.PERHAPS_JSON} if has_lines else {Rows.ONE_DOCUMENT}
    needed = {Rows.BROKEN_JSON} if kind is InputKind.JSON else set()
    if first.keys().isdisjoint(data) or Rows.ONE_DOCUMENT in data:
        needed |= set(Rows)  # there is nothing else to read
    for path, look in looks:
        if look.refusal is not None and look.rows in needed:
            raise InputError(f"{below(location, path).shown}: {look.refusal}")
    left_out = {path: _WHY_LEFT_OUT[look.rows] for path, look in looks if look.rows not in data}
    return None if first.keys().isdisjoint(data) else kind, left_out


_WHY_LEFT_OUT: Final = {
    Rows.JSON: "JSON without records",
    Rows.PERHAPS_JSON: "JSON without records",
    Rows.ONE_DOCUMENT: "JSON without records",
    Rows.BROKEN_JSON: "neither Parquet nor lines of JSON",
    Rows.NONE: "neither Parquet nor lines of JSON",
}


def _remark_on(location: Location, reasons: Mapping[str, str], count: int) -> str | None:
    """Return the sentence about the files that are not read. reasons: by path. count: number of files in the folder."""
    if not reasons:
        return None
    by_reason: dict[str, list[str]] = {}
    for path in sorted(reasons):
        by_reason.setdefault(reasons[path], []).append(path)
    parts = [f"{first_of(paths)} ({reason})" for reason, paths in by_reason.items()]
    left_out = f"{len(reasons):,} of {counted(count, 'file')} {'is' if len(reasons) == 1 else 'are'} not read"
    return f"{location.shown}: {left_out}: {'; '.join(parts)}."


def below(location: Location, path: str) -> Location:
    """Return the location of a relative path below a directory."""
    for part in filter(None, path.split("/")):
        location = location.child(part)
    return location
