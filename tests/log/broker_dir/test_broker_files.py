"""The files next to the segments: checkpoints, producer snapshots, transaction indexes."""

from __future__ import annotations

import shutil
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.log.broker_dir.broker_files import (
    DamagedFileError,
    read_leader_epochs,
    read_log_directory_files,
    read_offset_checkpoint,
    read_partition_files,
    read_snapshot,
    read_transaction_index,
)
from groupcoord_spark.storage.location import Location
from tests.doctor.copies import CORPORA, SICK, oracle

HANGING = SICK / "hanging" / "logs"
SNAPSHOT = HANGING / "__consumer_offsets-4" / "00000000000000000889.snapshot"
INDEX = HANGING / "__consumer_offsets-4" / "00000000000000000247.txnindex"
CHECKPOINT = HANGING / "cleaner-offset-checkpoint"


@pytest.mark.parametrize("corpus", CORPORA)
def test_snapshots_and_indexes_say_what_kafkas_classes_say(corpus: str) -> None:
    snapshots, indexes = oracle(corpus, "snapshots"), oracle(corpus, "txnindexes")
    for directory in (SICK / corpus / "logs").glob("__consumer_offsets-*"):
        number = directory.name.rsplit("-")[-1]
        files = read_partition_files(Location.of(str(directory)))
        entries = {f"{end_offset:020}.snapshot": len(states) for end_offset, states in files.snapshots.items()}
        assert entries == snapshots[number].get("entries", {})
        if entries and "newest" in snapshots[number]:
            newest = files.snapshots[max(files.snapshots)]
            assert sorted(newest) == sorted(tuple(state.values()) for state in snapshots[number]["newest"])
        for name, aborted in indexes[number].items():
            if name not in files.damaged_indexes:
                expected = [tuple(entry.values())[1:] for entry in aborted]
                assert [tuple(entry) for entry in files.transaction_indexes[int(name[:20])]] == expected


def test_a_file_that_a_running_broker_removes_meanwhile_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(HANGING, tmp_path / "logs")
    listed = Location.list

    def list_and_remove(location: Location) -> list[Any]:
        infos = listed(location)
        for path in Path(location.path).iterdir():
            if path.suffix in (".snapshot", ".txnindex") or path.name.endswith("-checkpoint"):
                path.unlink()
        return infos

    monkeypatch.setattr(Location, "list", list_and_remove)
    files = read_partition_files(Location.of(str(tmp_path / "logs" / "__consumer_offsets-4")))
    assert (files.snapshots, files.transaction_indexes, files.leader_epochs) == ({}, {}, None)
    assert (files.damages, files.damaged_indexes) == ((), ())
    log_dir = read_log_directory_files(Location.of(str(tmp_path / "logs")))
    assert (log_dir.offsets, log_dir.damages) == ({}, ())


def test_index_that_stopped_a_cleaner_is_said_and_not_used() -> None:
    files = read_partition_files(Location.of(str(SICK / "uncleaned" / "second" / "logs" / "__consumer_offsets-3")))
    assert files.damaged_indexes == ("00000000000000000199.txnindex",)
    assert 199 not in files.transaction_indexes
    assert [damage.split(": ", 1)[1] for damage in files.damages] == ["the version of entry 0 is 2304 instead of 0."]


def test_checkpoints_of_a_log_directory_are_those_of_the_offsets_topic() -> None:
    files = read_log_directory_files(Location.of(str(HANGING)))
    assert files.offsets["cleaner-offset-checkpoint"] == {0: 247, 1: 247, 2: 1044, 3: 247, 4: 247}
    assert files.offsets["replication-offset-checkpoint"] == {0: 1031, 1: 1037, 2: 1045, 3: 1033, 4: 1033}
    assert (files.broker_id, files.damages) == (1, ())


def test_empty_checkpoint_of_a_running_broker_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "cleaner-offset-checkpoint").touch()
    files = read_log_directory_files(Location.of(str(tmp_path)))
    assert (files.offsets, files.damages) == ({"cleaner-offset-checkpoint": {}}, ())


def test_leader_epochs_are_read_in_rising_order() -> None:
    assert read_leader_epochs(b"0\n2\n0 0\n3 441\n") == ((0, 0), (3, 441))


@pytest.mark.parametrize(
    ("reader", "data"),
    [
        (read_offset_checkpoint, b"1\n0\n"),
        (read_offset_checkpoint, b"0\n2\n__consumer_offsets 0 1\n__consumer_offsets 0 2\n"),
        (read_offset_checkpoint, b"0\n1\n__consumer_offsets 0 -1\n"),
        (read_offset_checkpoint, b"\xff\n0\n"),
        (read_leader_epochs, b"0\n2\n3 441\n0 0\n"),
        (read_leader_epochs, b"0\n1\n2147483648 441\n"),
        (read_leader_epochs, b"0\n1\n3 9223372036854775808\n"),
        (read_leader_epochs, b"0\n1\n3 " + b"9" * 5000 + b"\n"),
        (read_leader_epochs, b"0\n" + b"9" * 5000 + b"\n3 441\n"),
        (partial(read_snapshot, end_offset=10), b"\0\1"),
        (partial(read_transaction_index, base_offset=248), struct.pack(">hqqqq", 0, 1, 5, 247, 247)),
        (partial(read_transaction_index, base_offset=0), struct.pack(">hqqqq", 0, 1, 9, 5, 5)),
    ],
)
def test_impossible_content_is_damage(reader: Any, data: bytes) -> None:
    with pytest.raises(DamagedFileError):
        reader(data)


def test_snapshot_that_knows_later_offsets_than_its_name_is_damage() -> None:
    entry = struct.pack(">qhiqiqiq", 7, 0, 1, 500, 0, 0, -1, -1)
    body = struct.pack(">i", 1) + entry
    data = struct.pack(">hI", 1, crc32c(body)) + body
    assert [state.last_offset for state in read_snapshot(data, 501)] == [500]
    with pytest.raises(DamagedFileError, match="at or after offset 500"):
        read_snapshot(data, 500)


@given(st.data())
def test_cut_files_are_never_believed(data: st.DataObject) -> None:
    for reader, path in ((partial(read_snapshot, end_offset=889), SNAPSHOT), (read_offset_checkpoint, CHECKPOINT)):
        whole = path.read_bytes()
        cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
        with pytest.raises(DamagedFileError):
            reader(cut)


@given(st.data())
def test_flipped_snapshot_is_never_believed(data: st.DataObject) -> None:
    whole = bytearray(SNAPSHOT.read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedFileError):
        read_snapshot(bytes(whole), 889)


@given(st.binary(max_size=200))
def test_readers_raise_nothing_else_on_any_bytes(data: bytes) -> None:
    readers = (
        read_offset_checkpoint,
        read_leader_epochs,
        partial(read_snapshot, end_offset=10),
        partial(read_transaction_index, base_offset=0),
    )
    for reader in readers:
        try:
            reader(data)
        except DamagedFileError as error:
            assert str(error)


def test_cut_index_is_damage() -> None:
    whole = INDEX.read_bytes()
    assert len(read_transaction_index(whole, 247)) == 1
    for size in range(1, len(whole)):
        with pytest.raises(DamagedFileError):
            read_transaction_index(whole[:size], 247)
