"""Reads a log without pushing the pages of other processes out of memory: a broker depends on its page cache."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.fs as pafs

from groupcoord_spark.log.files.storage import Location

_PART_BYTES = 1 << 20
"""The file is looked at in parts of this size: a part counts as in memory if its first byte is."""


@contextmanager
def page_cache_as_found(location: Location, ranges: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Drops these ranges of the file from the page cache afterwards, unless they were there before.

    A log larger than memory would not stay in the cache, and to use the same pages again costs less than to find new ones. Only Linux says
    what is in memory. Nothing is done elsewhere, for files that are not local, and for a file that cannot be opened, which its reader
    reports.
    """
    absent: list[tuple[int, int]] = []
    if isinstance(location.filesystem, pafs.LocalFileSystem) and hasattr(os, "RWF_NOWAIT"):
        with suppress(OSError), Path(location.path).open("rb", buffering=0) as file:
            absent = [gap for first, last in ranges for gap in _absent(file.fileno(), first, last)]
    try:
        yield
    finally:
        if absent:
            with suppress(OSError), Path(location.path).open("rb", buffering=0) as file:
                for at, upto in absent:
                    os.posix_fadvise(file.fileno(), at, upto - at, os.POSIX_FADV_DONTNEED)


def _absent(file: int, start: int, end: int) -> list[tuple[int, int]]:
    """The ranges of the file that are not in memory, each as long as possible: the system drops a large page only in one piece."""
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
