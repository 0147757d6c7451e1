"""What lies where segments should lie, and is none: nothing hangs, nothing is read as another thing, nothing is passed over silently."""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path

import pytest

from groupcoord_spark.cli.options import _is_not_of_py4j
from groupcoord_spark.errors import InputError
from groupcoord_spark.log import plan_logs
from groupcoord_spark.storage.held_files import HeldFiles
from tests.log.log_writer import Rec, batch, write_segment
from tests.log.reading import read_logs


def segment_of(directory: Path, *, offsets_partition: int = 0) -> Path:
    return write_segment(directory, [batch(offset, [Rec(b"k%d" % offset)]) for offset in range(3)], offsets_partition=offsets_partition)


def test_pipes_and_sockets_are_doubts_and_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = segment_of(tmp_path).parent
    os.mkfifo(folder / f"{3:020d}.log")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{4:020d}.log")
        with HeldFiles() as held:
            plan = plan_logs([str(tmp_path)], held=held)
    assert [doubt.detail.partition(" is ")[2][:22] for doubt in plan.doubts] == ["a pipe, socket or devi"] * 2
    assert len(plan.partitions[0].segments) == 1


def test_a_pipe_cannot_be_held(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with HeldFiles() as held:
        assert held.hold(str(tmp_path / "pipe")) is None


def test_a_link_to_itself_is_refused_by_its_name(tmp_path: Path) -> None:
    loop = segment_of(tmp_path).parent / f"{3:020d}.log"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match=f"{3:020d}.log: this link leads nowhere"):
        plan_logs([str(tmp_path)])


def test_numbers_out_of_range_are_doubts_with_the_name(tmp_path: Path) -> None:
    (segment_of(tmp_path).parent / f"{'9' * 20}.log").write_bytes(b"x" * 100)
    (tmp_path / "__consumer_offsets-2147483647").mkdir()
    plan = plan_logs([str(tmp_path)])
    assert [log.offsets_partition for log in plan.partitions] == [0]
    assert [doubt.detail.split("'")[1] for doubt in plan.doubts] == ["__consumer_offsets-2147483647", f"{'9' * 20}.log"]
    with pytest.raises(InputError, match="cannot have a partition of this number"):
        plan_logs([str(tmp_path / "__consumer_offsets-2147483647")])


def test_names_that_are_not_utf_8_are_doubts_and_a_path_that_is_not_is_one_sentence(tmp_path: Path) -> None:
    folder = segment_of(tmp_path).parent
    (folder / os.fsdecode(b"\xe9.log")).touch()
    (folder / os.fsdecode(b"\xea2.log")).symlink_to(tmp_path / "nowhere")
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    plan = plan_logs([str(tmp_path)])
    assert [doubt.detail.partition(" that Kafka")[0] for doubt in plan.doubts] == [
        "'\ufffd.log' is a file",
        "'\ufffd2.log' is a link that leads nowhere",
    ]
    with pytest.raises(InputError, match="it cannot be looked at"):
        plan_logs([str(tmp_path / os.fsdecode(b"caf\xe9"))])


@pytest.mark.parametrize("ending", ["gz", "zst", "tar.gz"])
def test_a_packed_segment_is_refused_unless_it_is_there_unpacked(tmp_path: Path, ending: str) -> None:
    segment = segment_of(tmp_path)
    packed = segment.with_name(f"{segment.name}.{ending}")
    packed.write_bytes(b"x")
    assert [doubt.code for doubt in plan_logs([str(tmp_path)]).doubts] == ["unknown_file"]
    segment.unlink()
    for given in (tmp_path, segment.parent):
        with pytest.raises(InputError, match=r"is packed\. Unpack it first"):
            plan_logs([str(given)])


def test_a_packed_partition_beside_others_is_refused(tmp_path: Path) -> None:
    segment_of(tmp_path)
    (tmp_path / "__consumer_offsets-1.tar.gz").write_bytes(b"x")
    with pytest.raises(InputError, match=r"__consumer_offsets-1\.tar\.gz: this file is packed"):
        plan_logs([str(tmp_path)])


@pytest.mark.parametrize("after", [b"", b"x" * 30])
def test_a_hole_of_8_gb_costs_no_time(tmp_path: Path, after: bytes) -> None:
    segment = segment_of(tmp_path)
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(size + (8 << 30))
        file.seek(0, os.SEEK_END)
        file.write(after)
    begin = time.process_time()
    chunks = read_logs(tmp_path)
    assert time.process_time() - begin < 30
    assert chunks is not None


def test_calls_of_java_are_never_logged() -> None:
    record = logging.LogRecord("py4j.clientserver", logging.DEBUG, "/x/py4j/clientserver.py", 1, "sasl.jaas.config", None, None)
    assert not _is_not_of_py4j(record)
