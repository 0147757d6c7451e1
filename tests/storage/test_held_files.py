"""Files that are held open, whatever happens to their names."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from groupcoord_spark.storage.held_files import LEAST_DESCRIPTOR, HeldFile, HeldFiles
from groupcoord_spark.storage.location import Location, SegmentFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"held")
    return path


def read(file: Path, held: HeldFile | None) -> bytes:
    with SegmentFile(Location.of(str(file)), 4, 4, held) as opened:
        return bytes(opened.read(0, 4)[:4])


@pytest.mark.parametrize("failing", [1, 2])
def test_file_whose_status_cannot_be_read_is_not_held(failing: int, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, status_of = list[int](), os.fstat

    def fails_once(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == failing:
            raise OSError(errno.EIO, "Input/output error")
        return status_of(descriptor)

    with HeldFiles() as held:
        monkeypatch.setattr(os, "fstat", fails_once)
        file_held = held.hold(str(file))
        monkeypatch.undo()
        assert (file_held is None) == (len(calls) >= failing)


def test_a_file_that_was_replaced_and_removed_is_read_as_it_was_held(file: Path) -> None:
    with HeldFiles() as files:
        held = files.hold(str(file))
        file.unlink()
        file.write_bytes(b"new!")
        assert (read(file, held), read(file, None)) == (b"held", b"new!")


def test_another_process_reads_the_held_file(file: Path) -> None:
    with HeldFiles() as files:
        held = files.hold(str(file))
        assert held is not None
        file.unlink()
        script = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text())"
        assert subprocess.run([sys.executable, "-c", script, held.path], capture_output=True, text=True, check=True).stdout == "held\n"


def test_where_the_held_file_is_another_one_the_path_is_read(file: Path) -> None:
    with HeldFiles() as files:
        held = files.hold(str(file))
        assert held is not None
        assert read(file, HeldFile(held.path, held.device, held.inode + 1)) == b"held"
        other = file.with_name("other")
        other.write_bytes(b"else")
        held_other = files.hold(str(other))
        assert held_other is not None
        assert read(file, HeldFile(held_other.path, held.device, held.inode)) == b"held"


def test_after_the_block_the_path_is_read_and_no_file_is_open(file: Path) -> None:
    with HeldFiles() as files:
        held = pickle.loads(pickle.dumps(files.hold(str(file))))
    assert not held.is_there()
    assert read(file, held) == b"held"
    assert all(int(each.name) < LEAST_DESCRIPTOR for each in Path("/proc/self/fd").iterdir())


def test_descriptors_are_above_those_that_select_can_wait_for(file: Path) -> None:
    with HeldFiles() as files:
        held = [files.hold(str(file)) for _ in range(3)]
        assert all(each is not None and int(each.path.rpartition("/")[2]) >= LEAST_DESCRIPTOR for each in held)


def test_the_limit_of_open_files_is_raised_and_put_back(file: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LEAST_DESCRIPTOR, hard))
    try:
        with HeldFiles() as files:
            assert files.hold(str(file)) is not None
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (LEAST_DESCRIPTOR, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_files_than_the_system_allows_are_not_held(file: Path) -> None:
    script = """
import resource, sys
from groupcoord_spark.storage.held_files import HeldFiles
resource.setrlimit(resource.RLIMIT_NOFILE, (1026, 1026))
with HeldFiles() as files:
    print([files.hold(sys.argv[1]) is not None for _ in range(4)], open(sys.argv[1]).read())
"""
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, True, False, False] held\n"


def test_a_file_that_is_gone_is_not_held(tmp_path: Path) -> None:
    with HeldFiles() as files:
        assert files.hold(str(tmp_path / "gone")) is None
