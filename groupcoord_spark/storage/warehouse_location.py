"""The place of a warehouse: a local path or a URI, in the forms that pyarrow's file systems and delta-rs take."""

import errno
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pyarrow import fs

from groupcoord_spark.errors import InputError, WarehouseError
from groupcoord_spark.storage import object_store
from groupcoord_spark.storage.location import Location, shown, usual_uri
from groupcoord_spark.storage.object_store import FILES_AT_ONCE

# A directory's name holds at most 255 bytes; the value itself is in the table's log, the name is only for people.
_LONGEST_DIRECTORY_NAME = 200

_CAUSE = "\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}"


@dataclass(frozen=True, slots=True)
class WarehouseLocation:
    """A warehouse directory. Made by ``locate``."""

    uri: str
    """Absolute path of a local directory, else the URI as given."""
    filesystem: fs.FileSystem
    path: str
    """The directory within `filesystem`."""

    @property
    def is_local(self) -> bool:
        """Whether the warehouse is in the file system of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def table_uri(self, table: str) -> str:
        return f"{self.uri}/{table}"

    def path_in(self, table: str, relative: str) -> str:
        return f"{self.path}/{table}/{relative}"


def locate(warehouse: str) -> WarehouseLocation:
    """Return the place that a path (``./warehouse``) or URI (``file:``, ``s3:``, ``gs:``, ``abfss:``, ``hdfs:``) names. Nothing is read.

    Raises WarehouseError for a scheme that no file system here knows, and for a URI with keys or options in it.
    """
    try:
        warehouse = usual_uri(warehouse)
        if "://" in warehouse and shown(warehouse) != warehouse:
            raise WarehouseError(
                f"{shown(warehouse)}: the URI of a warehouse has no place for keys and options, which its tables would keep. Set the"
                " variables of the store instead, for example AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL."
            )
        place = Location.of(warehouse)
    except InputError as e:
        raise WarehouseError(str(e)) from None
    if isinstance(place.filesystem, fs.LocalFileSystem):
        path = str(Path(warehouse).absolute())
        return WarehouseLocation(path, place.filesystem, path)
    # delta-rs then speaks to an end point without TLS, as pyarrow does, where the user has named one
    end_point = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    if place.uri.startswith("s3://") and end_point.startswith("http://"):
        os.environ.setdefault("AWS_ALLOW_HTTP", "true")
    return WarehouseLocation(place.uri.rstrip("/"), place.filesystem, place.path.rstrip("/"))


def sync(location: WarehouseLocation, paths: Iterable[str]) -> None:
    """Write files and directories of this machine to its disk, so that a power cut does not take them back.

    Object stores keep what they have acknowledged, and nothing is done there. Raises OSError.
    """
    if location.is_local:
        # A disk writes what several threads ask for at the same time together.
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            for _ in pool.map(_sync, dict.fromkeys(paths)):
                pass


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some mounted stores do not sync directories
            raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


def directory_of(cluster: str) -> str:
    """Return the directory of a cluster's files within a table: Hive's ``name=value``, percent-encoded."""
    return f"cluster={quote(cluster, safe='')}"[:_LONGEST_DIRECTORY_NAME]


def may_pass(error: BaseException | None) -> bool:
    """Return whether the system or the object store failed or denied an access, and the files themselves may be whole.

    Another try or another user may succeed, which a damaged or missing file does not.
    """
    if error is None or isinstance(error, FileNotFoundError):
        return False
    # pyarrow gives an error without a number where the content of a file is wrong. delta-rs has the number in its text.
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is not None:
        return int(number[1]) != errno.ENOENT
    return (isinstance(error, OSError) and error.errno is not None) or object_store.trouble(error) is not None


def cause_of(error: BaseException) -> str:
    """Return the first line of an error's text, with the last of the causes that delta-rs lists below it, without a full stop.

    For an error of an object store, return the fault of the store and the remedy.
    """
    if (trouble := object_store.trouble(error)) is not None:
        return trouble
    lines = str(error).splitlines() or [type(error).__name__]
    # delta-rs appends inner structures to some texts, and marks causes with a coloured arrow.
    first = lines[0].partition(": ParsedLogPath {")[0].rstrip(".")
    causes = [line.rpartition(_CAUSE)[2].replace("\x1b[0m", "").strip() for line in lines if _CAUSE in line]
    return f"{first}: {causes[-1]}" if causes else first
