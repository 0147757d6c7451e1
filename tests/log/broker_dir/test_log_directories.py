"""Other files of a log directory: checkpoints of one broker and of several, whole and damaged."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from groupcoord_spark.log.broker_dir.log_directories import DamagedFile, find_log_directories

CORPUS = Path(__file__).parents[2] / "golden" / "log-directory"
LOGS = CORPUS / "logs"


def ends_in(*inputs: Path) -> tuple[dict[tuple[str, int], tuple[int | None, int]], list[DamagedFile]]:
    directories = find_log_directories([str(given) for given in inputs])
    rows = directories.log_ends().to_pylist()
    return {(row["topic"], row["partition"]): (row["start_offset"], row["end_offset"]) for row in rows}, directories.damages


def checkpoint(place: Path, name: str, *lines: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def test_checkpoint_has_the_ends_of_all_logs_as_the_broker_tells_them() -> None:
    told = {(end["topic"], end["partition"]): end for end in json.loads((CORPUS / "oracle" / "log_ends.json").read_text())}
    ends, damages = ends_in(LOGS)
    assert {place: end for place, (_, end) in ends.items()} == {place: row["end_offset"] for place, row in told.items()}
    starts = {place: start for place, (start, _) in ends.items() if start is not None}
    assert starts == {place: told[place]["start_offset"] for place in starts}
    assert starts["old-logs", 0] == 9  # from the checkpoint of log starts, while the first segment of no directory of it was copied
    assert starts["__share_group_state", 2] == 106  # from the name of the first segment
    assert ("orders", 0) not in starts
    assert damages == []


@pytest.mark.parametrize("given", ["__consumer_offsets-1", "__consumer_offsets-1/00000000000000000000.log"])
def test_partition_and_segment_lead_to_the_log_directory_around_them(given: str) -> None:
    assert ends_in(LOGS / given) == ends_in(LOGS)


def test_highest_high_watermark_of_several_brokers_counts(tmp_path: Path) -> None:
    checkpoint(tmp_path / "a", "replication-offset-checkpoint", "orders 0 5", "orders 1 9", "only.a 0 1")
    checkpoint(tmp_path / "a", "log-start-offset-checkpoint", "orders 1 4")
    checkpoint(tmp_path / "b", "replication-offset-checkpoint", "orders 0 7", "orders 1 9", "only.b 3 2")
    checkpoint(tmp_path / "b", "log-start-offset-checkpoint", "orders 0 2")
    os.utime(tmp_path / "a" / "replication-offset-checkpoint", (1_000, 1_000))
    os.utime(tmp_path / "b" / "replication-offset-checkpoint", (2_000, 2_000))
    (tmp_path / "other").mkdir()
    rows = find_log_directories([str(tmp_path)]).log_ends().to_pylist()
    assert {(row["topic"], row["partition"]): (row["start_offset"], row["end_offset"], row["written_at_ms"]) for row in rows} == {
        ("orders", 0): (2, 7, 2_000_000),
        ("orders", 1): (None, 9, 2_000_000),
        ("only.a", 0): (None, 1, 1_000_000),
        ("only.b", 3): (None, 2, 2_000_000),
    }


def test_damaged_checkpoint_is_one_sentence_and_the_other_brokers_counts(tmp_path: Path) -> None:
    checkpoint(tmp_path / "a", "replication-offset-checkpoint", "orders 0 5", "orders 0 6")
    checkpoint(tmp_path / "b", "replication-offset-checkpoint", "orders 0 3")
    ends, damages = ends_in(tmp_path)
    assert ends == {("orders", 0): (None, 3)}
    path = str(tmp_path / "a" / "replication-offset-checkpoint")
    assert damages == [DamagedFile(path, f"{path} is damaged and not used: orders-0 stands in it twice.")]


def test_log_start_of_a_later_moment_is_not_told(tmp_path: Path) -> None:
    checkpoint(tmp_path, "replication-offset-checkpoint", "orders 0 5", "orders 1 5")
    checkpoint(tmp_path, "log-start-offset-checkpoint", "orders 0 6", "orders 1 5")
    assert ends_in(tmp_path)[0] == {("orders", 0): (None, 5), ("orders", 1): (5, 5)}


def test_copy_without_checkpoints_has_no_log_ends(tmp_path: Path) -> None:
    shutil.copytree(LOGS, tmp_path / "logs", ignore=shutil.ignore_patterns("*-checkpoint"))
    assert ends_in(tmp_path / "logs") == ({}, [])
