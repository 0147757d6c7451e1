"""Lists the directory of a partition at one moment, while a broker may be at work on it, and takes hold of its files at that moment."""

import errno
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

import pyarrow.fs as pafs

from groupcoord_spark.errors import InputChangedError, InputError
from groupcoord_spark.storage.held_files import HeldFile, HeldFiles
from groupcoord_spark.storage.location import Location, first_line

OFFSET_DIGITS: Final = 20
SEGMENT_NAME: Final = re.compile(rf"([0-9]{{{OFFSET_DIGITS}}})\.log(\.swap|\.cleaned)?")

LARGEST_OFFSET: Final = 2**63 - 1
"""No record can have a larger one, and no file of Kafka's is called by one."""

KINDS: Final = {
    pafs.FileType.File: "a file",
    pafs.FileType.Directory: "a directory",
    pafs.FileType.NotFound: "a link that leads nowhere",
    pafs.FileType.Unknown: "a pipe, socket or device",
}
"""What a name in a directory is, for sentences."""

_LISTINGS: Final = 20
"""How often a directory in use is listed at most until two lists agree."""


def listed_in_one_state(
    location: Location, held: HeldFiles | None, names_to_hold: Callable[[Collection[str]], Collection[str]]
) -> tuple[list[pafs.FileInfo], Mapping[str, HeldFile]]:
    """Return the FileInfos of a partition's directory at one moment, and the files held open as of that moment, by name.

    A local directory in use is listed until nothing changes meanwhile. A list that was read while the log cleaner replaced files may name
    neither the old files nor the new one. Files of different moments do not fit together either: the cleaner removes a record from an old
    file because a newer file has a later record of the same key, so a list without that newer file has no record of the key at all.

    Args:
        names_to_hold: maps the names of all files to the names to hold.
    Raises:
        InputError: the directory cannot be listed. InputChangedError: it does not come to rest.
    """
    if not isinstance(location.filesystem, pafs.LocalFileSystem):
        return location.list(), {}
    holder = HeldFiles() if held is None else held
    for _ in range(_LISTINGS):
        segments = _finished_segments(location)
        infos = location.list()
        # a pipe would be waited for until somebody writes into it
        regular = [str(info.base_name) for info in infos if info.type == pafs.FileType.File]
        names = () if held is None else names_to_hold(regular)
        files = {name: file for name in names if (file := holder.hold(location.child(name).path)) is not None}
        if _finished_segments(location) == segments and all(segments.get(name, (-1,))[0] == file.inode for name, file in files.items()):
            return infos, files
        for file in files.values():
            holder.let_go(file)
    raise InputChangedError(f"{location.shown}: its files were replaced each time that the directory was listed. Read a copy of the log.")


def _finished_segments(location: Location) -> dict[str, tuple[int, int]]:
    """Return the inode and size of each segment by name. Growing files have size 0: the newest one, and those that the cleaner writes."""
    states: dict[str, tuple[int, int]] = {}
    try:
        with os.scandir(location.path) as entries:
            for entry in entries:
                if SEGMENT_NAME.fullmatch(entry.name):
                    states[entry.name] = _inode_and_size(entry)
    except OSError as error:
        raise InputError(f"{location.shown}: the directory cannot be read: {first_line(error)}. Check its permissions.") from error
    newest = max((name for name in states if name.endswith(".log")), default=None)
    if newest is not None:
        states[newest] = (states[newest][0], 0)
    return states


def _inode_and_size(entry: os.DirEntry[str]) -> tuple[int, int]:
    """(-1, -1) for a file that was there when the directory was listed and is gone now, and for a link that leads nowhere or to itself."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return -1, -1
    except OSError as error:
        if error.errno == errno.ELOOP:
            return -1, -1
        raise
    return status.st_ino, 0 if entry.name.endswith(".cleaned") else status.st_size
