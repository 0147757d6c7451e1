"""Reading a log once without pushing out of memory what others have there: a broker lives by its page cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.fs as pafs

from groupcoord_spark.log.storage import Location

_PART_BYTES = 1 << 20
"""A part of a file is taken to be in memory if its first byte is."""


@contextmanager
def page_cache_as_found(location: Location, start: int, end: int) -> Iterator[None]:
    """Afterwards no part of the file, from ``start`` to ``end``, is in the page cache that was not there before.

    A log larger than memory would not stay there either, and it costs less to use the same pages again than to find new ones. Only Linux
    tells what is in memory: elsewhere, and for files that are not local, nothing is done. Nor for a file that cannot be opened: whoever
    reads it says so.
    """
    absent: list[tuple[int, int]] = []
    if isinstance(location.filesystem, pafs.LocalFileSystem) and hasattr(os, "RWF_NOWAIT"):
        with suppress(OSError), Path(location.path).open("rb", buffering=0) as file:
            absent = _absent(file.fileno(), start, end)
    try:
        yield
    finally:
        if absent:
            with suppress(OSError), Path(location.path).open("rb", buffering=0) as file:
                for at, upto in absent:
                    os.posix_fadvise(file.fileno(), at, upto - at, os.POSIX_FADV_DONTNEED)


def _absent(file: int, start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of the file, as long as they can be: the system drops large pages only if they lie in one range as a whole."""
    ranges: list[tuple[int, int]] = []
    for at in range(start, end, _PART_BYTES):
        upto = min(at + _PART_BYTES, end)
        if not _is_in_memory(file, at):
            begin = ranges.pop()[0] if ranges and ranges[-1][1] == at else at
            ranges.append((begin, upto))
    return ranges


def _is_in_memory(file: int, at: int) -> bool:
    try:
        os.preadv(file, [bytearray(1)], at, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True
