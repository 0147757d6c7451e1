"""Reads files and folders by path or URI, on every file system that pyarrow.fs knows."""

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from groupcoord_spark.errors import InputChangedError, InputError, StoreError
from groupcoord_spark.protocol.slices import Bytes
from groupcoord_spark.storage import object_store
from groupcoord_spark.storage.held_files import HeldFile
from groupcoord_spark.storage.object_store import FILES_AT_ONCE, REQUESTS_AT_ONCE, is_object_store

Thing = TypeVar("Thing")
Made = TypeVar("Made")

PADDING = 64
"""Bytes after the end of every buffer, so that a field may be read before it is known to lie inside."""

WAITING_TO_WORKING = 3
"""Threads pay where reading waits more than this many times as long as it works: eight threads take two to three times the CPU time of one
thread (docs/decisions/0015-threads-where-files-wait.md)."""

_IN_USE = "A broker's log cleaner does so with a log in use: run it again, or read a copy (docs/how-to/copy-a-dump.md)."


@dataclass(frozen=True, slots=True)
class Location:
    """A path or URI together with the file system that has it.

    Attributes:
        uri: what a worker opens again: an absolute path, or the URI as given.
        path: the same inside of ``filesystem``.
    """

    uri: str
    filesystem: Any
    path: str

    @staticmethod
    def of(given: str) -> "Location":
        """Return the location of a path or URI. Nothing is opened yet.

        Raises InputError for a scheme that pyarrow does not know, or a file system that cannot be reached.
        """
        given = usual_uri(given)
        if "://" not in given:
            # without "..", and as it is called: a link to a partition's directory has the name that counts
            path = os.path.abspath(Path(given).expanduser())  # noqa: PTH100
            return Location(path, pafs.LocalFileSystem(), path)
        try:
            filesystem, path = _located(given.rstrip("/"), object_store.variables())
        except pa.ArrowInvalid as error:
            why = first_line(error).partition(": ")[0]  # the rest is the URI, which may contain a secret
            raise InputError(f"{shown(given)}: {why}. Give a path, or a URI of file, s3, gs, abfss or hdfs.") from None
        except (OSError, NotImplementedError) as error:
            why = first_line(error).replace(given, shown(given))
            is_hadoop = given.startswith(("hdfs:", "viewfs:"))
            hadoop = " Set JAVA_HOME, HADOOP_HOME and CLASSPATH (`hadoop classpath --glob`)." if is_hadoop else ""
            raise _failure(error, shown(given), f"the file system cannot be reached: {why}.{hadoop}") from None
        return Location(given, filesystem, path.rstrip("/") or path)

    @property
    def shown(self) -> str:
        """The URI as it may be printed and stored: without user, password and options."""
        return shown(self.uri)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1]

    def child(self, name: str) -> "Location":
        """Return the file or directory ``name`` in this directory."""
        path = _path_below(self.path, name)
        if "://" not in self.uri:
            return Location(path, self.filesystem, path)
        base, mark, options = self.uri.partition("?")
        return Location(f"{base.rstrip('/')}/{quote(name)}{mark}{options}", self.filesystem, path)

    def parent(self) -> "Location":
        """Return the parent directory; the top directory is its own parent."""
        path = self.path.rpartition("/")[0] or "/"
        if "://" not in self.uri:
            return Location(path, self.filesystem, path)
        base, mark, options = self.uri.partition("?")
        return Location(f"{base.rstrip('/').rpartition('/')[0]}{mark}{options}", self.filesystem, path)

    def info(self) -> Any:
        """pyarrow's FileInfo. Raises InputError where the file system does not give it."""
        try:
            info = self.filesystem.get_file_info(self.path)
            bucket = object_store.missing_bucket(self.filesystem, self.path) if info.type == pafs.FileType.NotFound else None
        except (OSError, pa.ArrowException, UnicodeEncodeError) as error:  # the last for a path that is not UTF-8
            raise _failure(error, self.shown, f"it cannot be looked at: {first_line(error)}.") from error
        if bucket is not None:
            raise StoreError(f"{self.shown}: {object_store.no_such_bucket(bucket)}.")
        return info

    def list(self) -> list[Any]:
        """Return the FileInfos of everything in the directory, by name. A dangling link has the type NotFound.

        Bytes of a name that are not UTF-8 become U+FFFD: no file of Kafka's has such a name. Raises InputError where the directory cannot
        be listed.
        """
        try:
            infos = infos_in(self.filesystem, self.path)
            if isinstance(self.filesystem, pafs.LocalFileSystem):
                # Arrow omits dangling links: a log whose links alone were copied would be read as one without records.
                listed = {info.base_name for info in infos}
                links = [os.fsencode(path.name).decode("utf-8", "replace") for path in Path(self.path).iterdir() if path.is_symlink()]
                infos += [pafs.FileInfo(name, pafs.FileType.NotFound) for name in links if name not in listed]
        except (OSError, pa.ArrowException) as error:
            raise _failure(error, self.shown, f"the directory cannot be read: {first_line(error)}. Check its permissions.") from error
        return sorted(infos, key=lambda info: str(info.base_name))


class SegmentFile(AbstractContextManager["SegmentFile"]):
    """An open file, read in ranges up to the size that it had when the work was planned: a live file may have grown since.

    Args:
        size: where reading ends.
        whole_size: the bytes of the file when the work was planned, if the file was finished then; None: it may have grown.
        held: the file, kept open by the process that planned the work; then it does not matter what the location leads to by now. Where
            the held file is not there, which is so on another machine, the file at the location is read.

    Attributes:
        location: the file that is open.

    Raises InputError if the file cannot be opened, InputChangedError if it is gone or differs from the planned one: shorter, or finished
    with another size. The cleaner's replacement of a file lacks records whose successors are not in the plan.
    """

    def __init__(self, location: Location, size: int, whole_size: int | None = None, held: HeldFile | None = None) -> None:
        self.source = location.shown
        if held is not None and held.is_there():
            location = Location(held.path, pafs.LocalFileSystem(), held.path)
        self.location = location
        try:
            self._file = location.filesystem.open_input_file(location.path)
            size_now = int(self._file.size())
        except FileNotFoundError as error:
            raise InputChangedError(f"{self.source}: the file is gone since the directory was listed. {_IN_USE}") from error
        except (OSError, pa.ArrowException) as error:
            sentence = f"the file cannot be opened: {first_line(error)}. Check permissions; copy a log in use before reading it."
            raise _failure(error, self.source, sentence) from error
        if size_now < size or (whole_size is not None and size_now != whole_size):
            self._file.close()
            raise InputChangedError(
                f"{self.source}: the file has {size_now} bytes, and had {whole_size or size} when the directory was listed: it was cut or"
                f" replaced. {_IN_USE}"
            )
        self.size = size

    def read(self, start: int, end: int) -> Bytes:
        """Return the bytes from ``start`` to ``end`` in a new buffer, followed by PADDING zeros. ``end`` must not exceed ``size``.

        Raises InputError where they cannot be read, InputChangedError where the file was cut since it was opened.
        """
        wanted = end - start
        buffer = np.empty(wanted + PADDING, np.uint8)
        try:
            self._file.seek(start)
            got = int(self._file.readinto(buffer[:wanted].data)) if wanted else 0
        except (OSError, pa.ArrowException) as error:
            raise _failure(error, self.source, f"reading {wanted} bytes at {start} failed: {first_line(error)}.") from error
        if got < wanted:
            raise InputChangedError(f"{self.source}: the file ends at byte {start + got} now, and was longer when it was opened. {_IN_USE}")
        buffer[got:] = 0
        return buffer

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between ``start`` and ``end`` that hold data, without the holes of a sparse file, which read as zeros.

        All is data where the file system does not say.
        """
        if not isinstance(self.location.filesystem, pafs.LocalFileSystem) or not hasattr(os, "SEEK_DATA"):
            yield start, end
            return
        try:
            file = open(self.location.path, "rb", buffering=0)  # noqa: PTH123, SIM115
        except OSError as error:
            raise _failure(error, self.source, f"the file cannot be read: {first_line(error)}.") from error
        with file:
            at = start
            while at < end:
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                    upto = min(os.lseek(file.fileno(), at, os.SEEK_HOLE), end)
                except OSError as error:
                    if error.errno != errno.ENXIO:  # no data follows
                        yield at, end
                    return
                if at < end:
                    yield at, upto
                at = upto

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _located(uri: str, of_environment: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """Return the file system of a URI, and the path in it. All paths of one store share one file system."""
    scheme, _, rest = uri.partition("://")
    base, mark, options = rest.partition("?")
    top, *names = base.split("/")
    filesystem, path = object_store.filesystem_of(f"{scheme}://{top}{mark}{options}", of_environment)
    for name in filter(None, names):
        path = _path_below(path, unquote(name))
    return filesystem, path


def infos_in(filesystem: Any, directory: str, *, recursive: bool = False, allow_not_found: bool = False) -> list[Any]:
    """Return the FileInfos in a directory. Raises OSError or ArrowException if it cannot be listed.

    Arrow raises UnicodeDecodeError when a path that is not UTF-8 is asked for: the FileInfo then has U+FFFD for each such byte.
    """

    def with_text(info: Any) -> Any:
        try:
            _ = info.path
        except UnicodeDecodeError as error:
            return pafs.FileInfo(error.object.decode("utf-8", "replace"), info.type, size=info.size)
        return info

    selector = pafs.FileSelector(directory, allow_not_found=allow_not_found, recursive=recursive)
    return [with_text(info) for info in filesystem.get_file_info(selector)]


def _path_below(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}" if directory else name


def _failure(error: BaseException, place: str, sentence: str) -> InputError:
    """Return the error about a place: the fault of its object store, else ``sentence``."""
    trouble = object_store.trouble(error)
    return StoreError(f"{place}: {trouble}.") if trouble is not None else InputError(f"{place}: {sentence}")


def filesystem_of(uris: Iterable[str]) -> Any:
    """Return the file system of the first file, or the local one without files."""
    return Location.of(next(iter(uris), "/")).filesystem


def side_by_side(work: Callable[[Thing], Made], things: Iterable[Thing], filesystem: Any, most: int = REQUESTS_AT_ONCE) -> list[Made]:
    """Apply ``work``, which reads files of the file system, to each of the things in parallel; return the results in order.

    On an object store ``most`` of the things are worked on at the same time. On any other file system one is worked on after the other
    until ``work`` is seen to wait for the files; from then on FILES_AT_ONCE, or ``most``, at the same time. The first error in order is
    raised.
    """
    remaining, made = deque(things), list[Made]()
    if not is_object_store(filesystem):
        most = min(most, FILES_AT_ONCE)
        began, worked_before = time.monotonic(), time.process_time()
        while remaining and time.monotonic() - began <= (1 + WAITING_TO_WORKING) * (time.process_time() - worked_before):
            made.append(work(remaining.popleft()))
    if len(remaining) < 2:
        return [*made, *map(work, remaining)]
    with ThreadPoolExecutor(min(most, len(remaining))) as pool:
        return [*made, *pool.map(work, remaining)]


def usual_uri(given: str) -> str:
    """Return a path or URI as pyarrow and delta-rs expect it, converted from the forms of Hadoop, Spark and Databricks.

    Raises InputError for a way to write it that only other programs read, with the way that works.
    """
    scheme, mark, rest = given.partition(":")
    scheme = scheme.lower() if mark else ""
    if scheme in _NEED_TWO_SLASHES and not rest.startswith("//"):
        raise InputError(f"{shown(given)}: two slashes are missing. Write {_NEED_TWO_SLASHES[scheme]}.")
    authority = rest.removeprefix("//").partition("/")[0]
    if scheme in _NEED_TWO_SLASHES and scheme != "hdfs" and not authority:  # a cluster's own HDFS needs no name
        raise InputError(f"{shown(given)}: the name of a bucket or container is missing. Write {_NEED_TWO_SLASHES[scheme]}.")
    if scheme in ("abfs", "abfss") and not set("@.") & set(authority):
        raise InputError(f"{shown(given)}: the storage account is missing. Write {_NEED_TWO_SLASHES[scheme]}.")
    match scheme:
        case "s3" | "s3a" | "s3n":
            return f"s3:{rest}"
        case "gs" | "gcs":
            return f"gs:{rest}"
        case "file":
            return _path_of_file_uri(given, rest)
        case "wasb" | "wasbs" | "adl" | "az" | "azure":
            raise InputError(
                f"{shown(given)}: {scheme} is not read. Write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH for the same storage"
                " account."
            )
        case "arn":
            raise InputError(f"{given}: this is the name of a bucket in Amazon's permissions. Write s3://BUCKET/PATH.")
        case "http" | "https":
            raise InputError(
                f"{shown(given)}: a web address is not read. Write s3://BUCKET/PATH, and set AWS_ENDPOINT_URL to a store's own address."
            )
        case "dbfs":
            path = f"/{rest.lstrip('/')}"
            return _mounted(given, path if path.startswith("/Volumes/") else f"/dbfs{path}")
        case _:
            return _mounted(given, given)


_NEED_TWO_SLASHES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3://BUCKET/PATH"),
    **dict.fromkeys(("gs", "gcs"), "gs://BUCKET/PATH"),
    **dict.fromkeys(("abfs", "abfss"), "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"),
    "hdfs": "hdfs://NAMENODE:8020/PATH",
}


def _path_of_file_uri(given: str, rest: str) -> str:
    """Return the path of file:/PATH, file:///PATH and file://localhost/PATH."""
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        path = slash + path
    if host not in ("", "localhost") or not path.startswith("/"):
        raise InputError(f"{given}: a URI of file names an absolute path of this machine. Write file:///PATH, or the path alone.")
    return _mounted(given, unquote(path))


def _mounted(given: str, path: str) -> str:
    """``path``. Raises InputError for a path of Databricks on another machine, where a warehouse would be made on the local disk."""
    for mount in ("/dbfs", "/Volumes"):
        if path.startswith(f"{mount}/") and not Path(mount).is_dir():
            raise InputError(
                f"{given}: this is a path of Databricks, and {mount} is not mounted here. Run on Databricks, or give the path or URI by"
                " which this machine reaches the storage (abfss://, s3://, gs://)."
            )
    return path


def shown(uri: str) -> str:
    """Return a path or URI for display and storage, without user, password and options."""
    scheme, _, rest = uri.partition(":")
    if not rest.startswith("//") and scheme.lower() not in _NEED_TWO_SLASHES:
        return uri
    place = rest.partition("?")[0].lstrip("/")
    slashes = rest[: len(rest) - len(rest.lstrip("/"))]
    host = place.partition("/")[0]
    # Secret keys may have a slash, which ends the host unless it is escaped: a colon without a port shows that the host has not begun yet.
    has_begun = "@" in host or ":" not in host or host.rpartition(":")[2].isdecimal()
    user, at, _ = (host if has_begun else place).rpartition("@")
    # abfs names the container before the @, perhaps with a password
    container = user.partition(":")[0] if scheme.lower().startswith("abfs") else ""
    return f"{scheme}:{slashes}{container}{at if container else ''}{place[len(user + at) :]}"


def first_line(error: BaseException) -> str:
    """Return the first line of a file system error, without a full stop."""
    text = str(error).strip() or os.strerror(getattr(error, "errno", None) or 0)
    return text.splitlines()[0].rstrip(".")
