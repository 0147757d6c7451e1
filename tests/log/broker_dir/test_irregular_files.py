"""Side files that are pipes, directories, links that lead nowhere, or far too large: nothing hangs, and a sentence names each of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from groupcoord_spark.doctor import HealthSettings, diagnose, read_copies, read_transaction_states
from groupcoord_spark.errors import InputError
from groupcoord_spark.log.broker_dir import broker_files
from groupcoord_spark.log.broker_dir.broker_files import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    read_checkpoint_of,
    read_fields,
    read_log_directory_files,
    read_partition_files,
)
from groupcoord_spark.log.broker_dir.log_directories import LogDirectories
from groupcoord_spark.storage.location import Location
from tests.conftest import GOLDEN
from tests.pipeline.test_beside_the_offsets import read

CORPUS = GOLDEN / "log-directory" / "logs"
FIRST_SEGMENT = f"{0:020}.log"

IRREGULAR: dict[str, Callable[[Path], None]] = {
    "a pipe, socket or device": os.mkfifo,
    "a directory": Path.mkdir,
    "a link that leads nowhere": lambda path: path.symlink_to(path.with_name("nowhere")),
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CORPUS, tmp_path / "logs"))


def put(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    IRREGULAR[kind](path)


@pytest.mark.parametrize("kind", IRREGULAR)
def test_irregular_segment_of_the_transaction_coordinator_costs_its_partition_alone(kind: str, logs: Path) -> None:
    whole = {row["transactional_id"] for row in read(logs).tables["transactional_ids"].to_pylist()}
    known = read_transaction_states([], str(logs / "__transaction_state-1"))
    of_partition_1 = {state.transactional_id for state in known.by_producer.values()}
    assert of_partition_1 and whole - of_partition_1
    put(logs / "__transaction_state-0" / FIRST_SEGMENT, kind)
    beside = read(logs)
    assert {row["transactional_id"] for row in beside.tables["transactional_ids"].to_pylist()} == of_partition_1
    assert any("__transaction_state-0" in doubt.detail for doubt in beside.doubts)
    known = read_transaction_states([Location.of(str(logs))])
    assert not known.is_complete
    diagnosis = diagnose(read_copies([str(logs)]), HealthSettings(), known)
    assert any("__transaction_state-0" in remark for remark in diagnosis.remarks)


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("place", ["__cluster_metadata-0", "__share_group_state-0"])
def test_irregular_segments_of_other_internal_topics_are_reported(place: str, kind: str, logs: Path) -> None:
    put(logs / place / FIRST_SEGMENT, kind)
    assert any(place in doubt.detail for doubt in read(logs).doubts)


@pytest.mark.parametrize("kind", IRREGULAR)
def test_irregular_snapshots_of_the_metadata_are_passed_over(kind: str, logs: Path) -> None:
    names = [row["topic"] for row in read(logs).tables["topics"].to_pylist()]
    put(logs / "__cluster_metadata-0" / f"{99:020}-{9:010}.checkpoint", kind)
    assert [row["topic"] for row in read(logs).tables["topics"].to_pylist()] == names


@pytest.mark.parametrize("kind", IRREGULAR)
def test_irregular_metadata_of_a_topic_gives_no_name(kind: str, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    for topic, text in (("orders-0", None), ("__consumer_offsets-0", None), ("bills-0", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")):
        (log_dir / topic).mkdir(parents=True)
        (log_dir / topic / FIRST_SEGMENT).touch()
        metadata = log_dir / topic / "partition.metadata"
        put(metadata, kind) if text is None else metadata.write_text(text)
    assert LogDirectories.of([Location.of(str(log_dir))]).topic_names() == {"AAAAAAAAAAAAAAAAAAAAAQ": "bills"}


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("name", ["cleaner-offset-checkpoint", HIGH_WATERMARKS, LOG_STARTS, "recovery-point-offset-checkpoint"])
def test_irregular_checkpoints_are_reported_and_not_used(name: str, kind: str, logs: Path) -> None:
    put(logs / name, kind)
    files = read_log_directory_files(Location.of(str(logs)))
    assert (files.offsets.get(name), files.damages) == (None, (f"{logs / name} is {kind} and not used.",))
    damages = {HIGH_WATERMARKS: [f"{logs / name} is {kind} and not used."]}.get(name, [])
    directories = LogDirectories.of([Location.of(str(logs))])
    directories.log_ends()
    assert [damage.sentence for damage in directories.damages] == damages


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", f"{7:020}.snapshot", f"{7:020}.txnindex", "partition.metadata"])
def test_irregular_files_of_a_partition_are_not_opened(name: str, kind: str, logs: Path) -> None:
    put(logs / "__consumer_offsets-0" / name, kind)
    files = read_partition_files(Location.of(str(logs / "__consumer_offsets-0")))
    assert (files.damages, 7 in files.snapshots, 7 in files.transaction_indexes) == ((), False, False)
    assert read_fields(Location.of(str(logs / "__consumer_offsets-0" / "partition.metadata")), ":").get("version") == (
        None if name == "partition.metadata" else "0"
    )


def test_no_more_of_a_side_file_is_read_than_such_a_file_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_files, "SIDE_FILE_BYTES", 100)
    read_sizes, opened = [], broker_files._bytes_of
    monkeypatch.setattr(broker_files, "_bytes_of", lambda location: read_sizes.append(len(data := opened(location))) or data)
    partition = tmp_path / "__consumer_offsets-0"
    partition.mkdir()
    names = [tmp_path / LOG_STARTS, partition / "leader-epoch-checkpoint", partition / f"{7:020}.snapshot", partition / f"{7:020}.txnindex"]
    for path in (*names, tmp_path / "meta.properties"):
        path.write_bytes(b"0\n" * 10_000)
    checkpoint, files = read_checkpoint_of(Location.of(str(tmp_path)), LOG_STARTS), read_partition_files(Location.of(str(partition)))
    assert checkpoint.offsets == {} and checkpoint.damage is not None
    sentences = sorted([checkpoint.damage, *files.damages])
    assert [sentence.partition(" is damaged and not used: it has more than ")[0] for sentence in sentences] == sorted(map(str, names))
    assert files.damaged_indexes == (f"{7:020}.txnindex",)
    with pytest.raises(InputError, match=r"meta\.properties: it has more than"):
        read_fields(Location.of(str(tmp_path / "meta.properties")), "=")
    assert set(read_sizes) == {101}
