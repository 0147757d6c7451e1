"""The place of a warehouse: a local path or a URI, in the forms that pyarrow's file systems and delta-rs take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from groupcoord_spark.errors import InputError, WarehouseError
from groupcoord_spark.log.storage import usual_uri

# A directory's name holds at most 255 bytes; the value itself is in the table's log, the name is only for people.
_LONGEST_DIRECTORY_NAME = 200

_CAUSE = "\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}"


@dataclass(frozen=True, slots=True)
class Location:
    """A warehouse directory. Made by ``locate``."""

    uri: str
    """Absolute path of a local directory, else the URI as given."""
    filesystem: fs.FileSystem
    path: str
    """The directory within `filesystem`."""

    def table_uri(self, table: str) -> str:
        return f"{self.uri}/{table}"

    def path_in(self, table: str, relative: str) -> str:
        return f"{self.path}/{table}/{relative}"


def locate(warehouse: str) -> Location:
    """The place that a path (``./warehouse``) or URI (``file:``, ``s3:``, ``gs:``, ``hdfs:``) names. Nothing is read.

    Raises WarehouseError for a scheme that no file system here knows.
    """
    try:
        warehouse = usual_uri(warehouse)
    except InputError as e:
        raise WarehouseError(str(e)) from None
    if "://" not in warehouse and not warehouse.startswith("file:"):
        path = str(Path(warehouse).absolute())
        return Location(path, fs.LocalFileSystem(), path)
    try:
        filesystem, path = fs.FileSystem.from_uri(warehouse)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise WarehouseError(f"{warehouse} is not a place this installation can reach: {first_line(e)}") from e
    path = path.rstrip("/")
    return Location(path if isinstance(filesystem, fs.LocalFileSystem) else warehouse.rstrip("/"), filesystem, path)


def directory_of(cluster: str) -> str:
    """The directory of a cluster's files within a table: Hive's ``name=value``, percent-encoded."""
    return f"cluster={quote(cluster, safe='')}"[:_LONGEST_DIRECTORY_NAME]


def first_line(error: BaseException) -> str:
    """The first line of an error's text, with the last of the causes that delta-rs lists below it, without a full stop."""
    lines = str(error).splitlines() or [type(error).__name__]
    # delta-rs appends inner structures to some texts, and marks causes with a coloured arrow.
    first = lines[0].partition(": ParsedLogPath {")[0].rstrip(".")
    causes = [line.rpartition(_CAUSE)[2].replace("\x1b[0m", "").strip() for line in lines if _CAUSE in line]
    return f"{first}: {causes[-1]}" if causes else first
