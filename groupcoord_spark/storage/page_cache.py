"""Reads a log without pushing the pages of other processes out of memory: a broker depends on its page cache."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.storage.location import Location

_PART_BYTES = 1 << 20
"""The file is looked at in parts of this size: a part counts as in memory if its first byte is."""


@contextmanager
def page_cache_as_found(location: Location, ranges: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Drops these ranges of the file from the page cache afterwards, unless they were there before.

    A log larger than memory would not stay in the cache, and reusing pages costs less than finding new ones. Only Linux reports which pages
    are in memory. Elsewhere, for remote files, and for a file that cannot be opened (its reader reports it) nothing is done.
    """
    absent: list[tuple[int, int]] = []
    if isinstance(location.filesystem, pafs.LocalFileSystem) and hasattr(os, "RWF_NOWAIT"):
        with suppress(OSError, InputError), Path(location.path).open("rb", buffering=0) as file:
            absent = [gap for first, last in ranges for gap in _absent(file.fileno(), first, last)]
    try:
        yield
    finally:
        if absent:
            with suppress(OSError), Path(location.path).open("rb", buffering=0) as file:
                for at, upto in absent:
                    os.posix_fadvise(file.fileno(), at, upto - at, os.POSIX_FADV_DONTNEED)


def _absent(file: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of the file that are not in memory, each as long as possible: the system drops a large page only as a whole."""
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
