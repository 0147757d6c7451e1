"""Reading a file leaves the page cache as it was: cold parts cold, warm ones warm."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Segment, read_segment
from groupcoord_spark.storage import page_cache
from tests.log.log_writer import Rec, batch, write_segment

PART = 1 << 20

pytestmark = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system does not tell what is in memory")


@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


def is_in_memory(file: int, at: int) -> bool:
    """Ask mincore(2), which reads nothing: the package's own question may start to read, and then find its own page."""
    with mmap.mmap(file, 1, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=at) as page:
        place, pages = ctypes.c_char.from_buffer(page), ctypes.c_ubyte()
        mincore = ctypes.CDLL(None, use_errno=True).mincore
        failed = mincore(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(1), ctypes.byref(pages))
        del place  # or the mapping cannot be closed
    assert not failed, os.strerror(ctypes.get_errno())
    return bool(pages.value & 1)


def in_memory(path: Path) -> list[bool]:
    """For the first byte of each part whether it is in the page cache."""
    with opened(path) as file:
        return [is_in_memory(file, at) for at in range(0, path.stat().st_size, PART)]


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a segment of some parts, none of them in memory."""
    path = write_segment(tmp_path, [batch(i, [Rec(b"key-%d" % i, bytes(50_000))]) for i in range(100)])
    drop(path)
    if any(in_memory(path)):
        pytest.skip("this file system keeps its files in memory")
    monkeypatch.setattr(page_cache, "_is_in_memory", is_in_memory)
    return path


def drop(path: Path) -> None:
    with opened(path) as file:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def segment_of(path: Path) -> Segment:
    return Segment(str(path), path.stat().st_size, 0, 0)


@pytest.mark.parametrize("chunk_bytes", [PART // 2, 64 * PART])
def test_what_was_not_in_memory_is_not_there_afterwards(cold: Path, chunk_bytes: int) -> None:
    assert sum(len(chunk.records) for chunk in read_segment(segment_of(cold), chunk_bytes=chunk_bytes)) == 100
    assert not any(in_memory(cold))


def test_what_was_in_memory_stays(cold: Path) -> None:
    with opened(cold) as file:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
        os.preadv(file, [bytearray(PART)], 2 * PART)
    assert sum(len(chunk.records) for chunk in read_segment(segment_of(cold))) == 100
    assert in_memory(cold) == [False, False, True, False, False]


def test_a_reader_that_stops_half_way_leaves_nothing_either(cold: Path) -> None:
    chunks = read_segment(segment_of(cold), chunk_bytes=PART // 2)
    next(chunks)
    assert any(in_memory(cold))
    chunks.close()
    assert not any(in_memory(cold))


def test_a_page_that_was_just_read_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(PART))
    with opened(path) as file:
        assert page_cache._is_in_memory(file, 0)


def test_to_ask_for_a_page_does_not_wait_for_it(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for _ in range(100):  # it may arrive in the meantime
        drop(cold)
        with opened(cold) as file:
            if not page_cache._is_in_memory(file, 0):
                return
    pytest.fail("a page that is not in memory is never told from one that is")


def test_a_file_that_is_gone_is_told_by_the_reader(cold: Path) -> None:
    segment = segment_of(cold)
    cold.unlink()
    with pytest.raises(InputError, match="the file is gone since the directory was listed"):
        next(read_segment(segment))
