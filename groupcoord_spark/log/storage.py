"""Reads files and folders by path or URI, on every file system that pyarrow.fs knows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.protocol.slices import Bytes

PADDING = 64
"""Bytes after the end of every buffer, so that a field may be read before it is known to lie inside."""

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
    def of(given: str) -> Location:
        """The location of a path or URI. Nothing is opened yet.

        Raises InputError for a scheme that pyarrow does not know, or a file system that cannot be reached.
        """
        given = usual_uri(given)
        if "://" not in given:
            # without "..", and as it is called: a link to a partition's directory has the name that counts
            path = os.path.abspath(Path(given).expanduser())  # noqa: PTH100
            return Location(path, pafs.LocalFileSystem(), path)
        try:
            filesystem, path = pafs.FileSystem.from_uri(given)
        except pa.ArrowInvalid as error:
            why = first_line(error).replace(given, shown(given))
            raise InputError(f"{shown(given)}: {why}. Give a path, or a URI of file, s3, gs, abfs or hdfs.") from None
        except (OSError, NotImplementedError) as error:
            why = first_line(error).replace(given, shown(given))
            raise InputError(f"{shown(given)}: the file system cannot be reached: {why}.") from None
        return Location(given, filesystem, path.rstrip("/") or path)

    @property
    def shown(self) -> str:
        """The URI as it may be printed and stored: without user, password and options."""
        return shown(self.uri)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1]

    def child(self, name: str) -> Location:
        """The file or directory ``name`` in this directory."""
        path = f"{self.path.rstrip('/')}/{name}"
        if "://" not in self.uri:
            return Location(path, self.filesystem, path)
        base, mark, options = self.uri.partition("?")
        return Location(f"{base.rstrip('/')}/{quote(name)}{mark}{options}", self.filesystem, path)

    def parent(self) -> Location:
        """The directory of this file or directory; the top directory is its own parent."""
        path = self.path.rpartition("/")[0] or "/"
        if "://" not in self.uri:
            return Location(path, self.filesystem, path)
        base, mark, options = self.uri.partition("?")
        return Location(f"{base.rstrip('/').rpartition('/')[0]}{mark}{options}", self.filesystem, path)

    def info(self) -> Any:
        """pyarrow's FileInfo. Raises InputError where the file system does not give it."""
        try:
            return self.filesystem.get_file_info(self.path)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.shown} cannot be looked at: {first_line(error)}.") from error

    def list(self) -> list[Any]:
        """The FileInfos of everything in the directory, by name. A link that leads nowhere has the type NotFound.

        Raises InputError where the directory cannot be listed.
        """
        try:
            infos = self.filesystem.get_file_info(pafs.FileSelector(self.path, recursive=False))
            if isinstance(self.filesystem, pafs.LocalFileSystem):
                # Arrow leaves out links that lead nowhere: a log of which only the links were copied would be read as one without records.
                listed = {info.base_name for info in infos}
                links = [path for path in Path(self.path).iterdir() if path.name not in listed and path.is_symlink()]
                infos += [pafs.FileInfo(str(path), pafs.FileType.NotFound) for path in links]
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.shown}: the directory cannot be read: {first_line(error)}. Check its permissions.") from error
        return sorted(infos, key=lambda info: str(info.base_name))

    def read_text(self) -> str:
        """The content of a small text file. Bytes that are not UTF-8 become U+FFFD. Raises InputError where the file cannot be read."""
        try:
            with self.filesystem.open_input_stream(self.path) as stream:
                return bytes(stream.read(1 << 20)).decode("utf-8", "replace")
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.shown}: the file cannot be read: {first_line(error)}. Check its permissions.") from error


class SegmentFile:
    """An open file, read in ranges up to the size that it had when the work was planned: a live file may have grown since.

    Args:
        size: where reading ends.
        whole_size: the bytes of the file when the work was planned, if the file was finished then; None: it may have grown.

    Raises InputError where the file is gone, cannot be opened, or is not the one that was planned: shorter, or finished and of another
    size. The file that the log cleaner puts in its place lacks records whose later ones are not in the plan.
    """

    def __init__(self, location: Location, size: int, whole_size: int | None = None) -> None:
        self.source = location.shown
        try:
            self._file = location.filesystem.open_input_file(location.path)
            found = int(self._file.size())
        except FileNotFoundError as error:
            raise InputError(f"{self.source}: the file is gone since the directory was listed. {_IN_USE}") from error
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"{self.source}: the file cannot be opened: {first_line(error)}. Check permissions; copy a log in use before reading it."
            ) from error
        if found < size or (whole_size is not None and found != whole_size):
            self._file.close()
            raise InputError(
                f"{self.source}: the file has {found} bytes, and had {whole_size or size} when the directory was listed: it was cut or"
                f" replaced. {_IN_USE}"
            )
        self.size = size

    def read(self, start: int, end: int) -> Bytes:
        """The bytes from ``start`` to ``end`` in a new buffer, with PADDING zeros after them. ``end`` must not be beyond ``size``.

        Raises InputError where they cannot be read, or the file was cut since it was opened.
        """
        wanted = end - start
        buffer = np.empty(wanted + PADDING, np.uint8)
        try:
            self._file.seek(start)
            got = int(self._file.readinto(buffer[:wanted].data)) if wanted else 0
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.source}: reading {wanted} bytes at {start} failed: {first_line(error)}.") from error
        if got < wanted:
            raise InputError(f"{self.source}: the file ends at byte {start + got} now, and was longer when it was opened. {_IN_USE}")
        buffer[got:] = 0
        return buffer

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def usual_uri(given: str) -> str:
    """A path or URI as pyarrow and delta-rs take it, for one that is written as Hadoop or Databricks writes it; any other as it is.

    Raises InputError for wasb://, Azure's old way to write what abfss:// names, and for dbfs:/ where Databricks does not mount it.
    """
    scheme, mark, rest = given.partition(":")
    match scheme.lower() if mark else "":
        case "s3a" | "s3n":
            return f"s3:{rest}"
        case "wasb" | "wasbs":
            raise InputError(
                f"{shown(given)}: {scheme.lower()} is read by Hadoop alone. Write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH for"
                " the same storage account."
            )
        case "dbfs":
            path = f"/dbfs/{rest.lstrip('/')}"
            if not Path("/dbfs").is_dir():
                raise InputError(f"{given}: dbfs:/ is there on Databricks alone, and /dbfs is not mounted here. Give another path or URI.")
            return path
        case _:
            return given


def shown(uri: str) -> str:
    """A path or URI as it may be printed and stored: without user, password and options."""
    if "://" not in uri:
        return uri
    scheme, _, rest = uri.partition("?")[0].partition("://")
    authority, slash, path = rest.partition("/")
    # abfs names the container before the @; elsewhere that is where access keys stand
    return f"{scheme}://{authority if scheme.startswith('abfs') else authority.rpartition('@')[2]}{slash}{path}"


def first_line(error: BaseException) -> str:
    """The first line of an error of the file system, without a full stop."""
    text = str(error).strip() or os.strerror(getattr(error, "errno", None) or 0)
    return text.splitlines()[0].rstrip(".")
