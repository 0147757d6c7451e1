"""Groups in two offsets partitions, after the offsets topic got more of them: the tables have what a client of the cluster reaches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from groupcoord_spark.answers.run_changes import run_changes
from groupcoord_spark.dataframes import replay
from groupcoord_spark.pipeline.exchange.state_rows import TABLES_OF_GROUPS
from groupcoord_spark.pipeline.run import Summary
from groupcoord_spark.protocol import offsets_partition_for
from groupcoord_spark.warehouse import open_warehouse
from tests.pipeline.logs import LogRecord, classic_group_key, classic_value, commit_value, offset_key
from tests.pipeline.segment_files import write_log
from tests.running import AS_OF_MS, raw, rows_of, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

NAMES = [f"{number**5}-app" for number in range(12)]
DAY_MS = 86_400_000


BEFORE, AFTER = (50, 1_000, AS_OF_MS - 20 * DAY_MS), (60, 2_000, AS_OF_MS - 10 * DAY_MS)
"""Number of partitions, then the offset that each group commits, and when."""


def write_groups(directory: Path, *written: tuple[int, int, int], members: int = 1, names: Sequence[str] = NAMES) -> Path:
    """Return a directory with the logs of groups that commit an offset each, once for each element of ``written``."""
    logs: dict[int, list[LogRecord]] = {}
    for partition_count, committed_offset, commit_ms in written:
        for name in names:
            log = logs.setdefault(offsets_partition_for(name, partition_count), [])
            log.append(LogRecord(len(log), classic_group_key(name), classic_value(3, members)))
            value = commit_value(committed_offset, commit_timestamp_ms=commit_ms)
            log.append(LogRecord(len(log), offset_key(name), value))
    for offsets_partition, log in logs.items():
        write_log(directory, log, offsets_partition=offsets_partition, largest_batch=1, starts_at_ms=AS_OF_MS - 30 * DAY_MS)
    return directory


def moved() -> set[tuple[str, int]]:
    """(group id, old partition) of the groups that 60 partitions look for elsewhere than 50."""
    places = {(name, offsets_partition_for(name, 50), offsets_partition_for(name, 60)) for name in NAMES}
    return {(name, old) for name, old, new in places if old != new}


def check_tables(warehouse: Path, summary: Summary) -> None:
    """Check that the tables have each group once, in its partition of 60, and that a warning names every other."""
    for table in TABLES_OF_GROUPS:
        for row in rows_of(warehouse, table):
            assert row.get("offsets_partition", offsets_partition_for(row["group_id"], 60)) == offsets_partition_for(row["group_id"], 60)
    groups = [row["group_id"] for row in rows_of(warehouse, "groups")]
    offsets = {row["group_id"]: row["committed_offset"] for row in rows_of(warehouse, "committed_offsets")}
    assert sorted(groups) == sorted(NAMES)
    assert offsets == dict.fromkeys(NAMES, 2_000)
    assert (summary.groups, summary.committed_offsets, summary.unreachable_groups) == (len(NAMES), len(NAMES), len(moved()))
    assert summary.expired_offsets == sum(row["expired"] for row in rows_of(warehouse, "offset_expirations"))
    assert summary.removed_groups == sum(row["removed"] for row in rows_of(warehouse, "group_expirations"))
    warnings = [row for row in rows_of(warehouse, "warnings", run_id=summary.run_id) if row["code"] == "group_wrong_partition"]
    of_run = {(row["group_id"], row["offsets_partition"]) for row in warnings if row["run_id"] == summary.run_id}
    assert of_run == moved()
    assert all("(of 60 partitions)" in row["detail"] for row in warnings)


@pytest.mark.usefixtures("tables_of_a_log")
@pytest.mark.parametrize("members", [0, 1])
def test_a_copy_with_both_shows_each_group_once(local: LocalSession, tmp_path: Path, members: int) -> None:
    logs = write_groups(tmp_path / "logs", BEFORE, AFTER, members=members)
    check_tables(tmp_path / "w", run(local, tmp_path / "w", logs))


@pytest.mark.usefixtures("every_table")
def test_the_next_runs_show_each_group_once(local: LocalSession, tmp_path: Path) -> None:
    first = run(local, tmp_path / "w", write_groups(tmp_path / "before", BEFORE))
    assert (first.groups, first.unreachable_groups) == (len(NAMES), 0)
    logs = write_groups(tmp_path / "after", BEFORE, AFTER)
    second = run(local, tmp_path / "w", logs, accepted=frozenset({"misplaced"}))
    assert second.reading.since_ms is not None
    check_tables(tmp_path / "w", second)
    third = run(local, tmp_path / "w", logs, as_of_ms=AS_OF_MS + DAY_MS)
    check_tables(tmp_path / "w", third)
    opened = open_warehouse(str(tmp_path / "w"))
    runs = opened.finished_runs("sample")
    changes = run_changes(opened, *runs[:2])
    assert {(change.change, change.before, change.after) for change in changes} == {("offset_forward", 1_000, 2_000)}


@pytest.mark.usefixtures("tables_of_a_log")
def test_a_frame_gives_what_a_run_gives(spark: SparkSession, local: LocalSession, tmp_path: Path) -> None:
    logs = write_groups(tmp_path / "logs", BEFORE, AFTER)
    run(local, tmp_path / "w", logs)
    state = replay(raw(spark, logs))
    for table in ("groups", "committed_offsets", "members", "assignments"):
        rows = getattr(state, table).select("group_id", "offsets_partition").collect()
        assert sorted(map(tuple, rows)) == sorted((row["group_id"], row["offsets_partition"]) for row in rows_of(tmp_path / "w", table))
    warnings = state.warnings.where("code = 'group_wrong_partition'").select("group_id", "offsets_partition", "detail").collect()
    assert sorted(map(tuple, warnings)) == sorted(
        (row["group_id"], row["offsets_partition"], row["detail"])
        for row in rows_of(tmp_path / "w", "warnings")
        if row["code"] == "group_wrong_partition"
    )


@pytest.mark.usefixtures("tables_of_a_log")
def test_a_group_that_no_client_used_again_is_left_out(local: LocalSession, tmp_path: Path) -> None:
    write_groups(tmp_path / "logs", BEFORE, AFTER)
    left_behind = write_groups(tmp_path / "more", BEFORE, names=["left-behind"])
    (directory,) = left_behind.iterdir()
    assert not (tmp_path / "logs" / directory.name).exists()
    directory.rename(tmp_path / "logs" / directory.name)
    summary = run(local, tmp_path / "w", tmp_path / "logs")
    assert "left-behind" not in {row["group_id"] for row in rows_of(tmp_path / "w", "groups")}
    assert summary.unreachable_groups == len(moved()) + 1
