"""The state as of an earlier moment: the same rows from the log as it was and from the history of a log that was cleaned since."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.answers.expiration import ExpirationJob
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics
from groupcoord_spark.errors import UsageError
from groupcoord_spark.log import Records, plan_logs, read_segment
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryPiece, HistoryRange, PointInTime, Until
from groupcoord_spark.pipeline.read import reader
from groupcoord_spark.pipeline.read.history_records import records_in_history
from groupcoord_spark.pipeline.read.reader import ReadJob
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob
from groupcoord_spark.storage.warehouse_location import locate
from groupcoord_spark.warehouse import TABLES, open_warehouse
from groupcoord_spark.warehouse.open_table import open_table
from tests.conftest import DAY_MS, GOLDEN
from tests.examples import examples
from tests.log.log_writer import T0
from tests.pipeline.local_run import rows_of_reports, run_locally
from tests.pipeline.logs import LogRecord, commit_value, random_log, records_of
from tests.pipeline.segment_files import write_log
from tests.pipeline.test_distributed_replay import AS_OF_MS, RETENTION_MS, Rows, comparable, in_partition, is_in_history, tables_by_the_rule
from tests.pipeline.test_nightly import commit, commits
from tests.running import plain_rows, rows_of, run, tables_of

if TYPE_CHECKING:
    from tests.local_session import LocalSession

pytestmark = pytest.mark.usefixtures("tables_of_a_log")

STATE = {
    *("committed_offsets", "pending_offsets", "orphan_offsets", "groups", "members", "assignments"),
    *("offset_expirations", "group_expirations", "tombstones"),
}


def replayed(
    directory: Path, past: PointInTime, history: Sequence[LogRecord], semantics: Semantics, window: int
) -> tuple[Rows, list[PartitionReport]]:
    """Tables and reports after the log in ``directory`` and the records of the history tables are read and replayed."""
    rebalances = RebalanceJob(str(directory / "w"), "c", {}, None)
    job = ReadJob(
        "c",
        5,
        str(directory / "w"),
        "run",
        semantics,
        with_history=False,
        history_ranges={},
        rebalances=rebalances,
        points_in_time={0: past},
    )

    def windows_of_history(*_: Any) -> Iterator[Records]:
        for at in range(0, len(history), window):
            yield records_of(list(history[at : at + window]))

    segments = [segment for each in plan_logs([str(directory)]).partitions for segment in each.segments]
    with patch.object(reader, "records_in_history", windows_of_history):
        replay_job = ReplayJob(semantics, ExpirationJob(AS_OF_MS, RETENTION_MS, semantics), 1, rebalances)
        reports = run_locally([[segments]], job, replay_job, pieces=[HistoryPiece(0, past.history_range, {})])
    return rows_of_reports(job.warehouse_uri, reports), reports


@examples(30)
@given(semantics=st.sampled_from([JAVA, SCALA]), seed=st.integers(0, 2**32), length=st.integers(1, 60))
def test_history_and_what_is_left_of_the_log_give_the_state_of_the_whole_log_then(semantics: Semantics, seed: int, length: int) -> None:
    rng = random.Random(seed)
    log = [record for record in random_log(rng, length) if record.control_type <= 1]
    if not log:
        return
    last = log[-1].record_offset
    end, *held = rng.randint(0, last + 2), *sorted(rng.choices(range(last + 2), k=2))
    past = PointInTime(end, HistoryRange(0, held[0], min(held[1], end)) if held[0] < min(held[1], end) else NO_HISTORY, rng.randint(0, end))

    def is_held(record: LogRecord) -> bool:
        return past.history_range.first_offset <= record.record_offset < past.history_range.end_offset and is_in_history(record)

    left = [record for record in log if not is_held(record) or rng.random() < 0.5]
    directory = Path(tempfile.mkdtemp())
    try:
        if left:
            write_log(directory, left, segments=rng.randint(1, 3), largest_batch=rng.randint(1, 8))
        else:
            (directory / "__consumer_offsets-0").mkdir()
        history = [record for record in log if is_held(record)]
        tables, reports = replayed(directory, past, history, semantics, window=rng.choice((1, 3, 100)))
    finally:
        shutil.rmtree(directory)
    then = [record for record in log if record.record_offset < end]
    assert comparable(tables) == comparable(tables_by_the_rule({0: then}, semantics))
    assert sum(report.records_from_history for report in reports) == len(history)
    assert sum(report.records_after_complete for report in reports) == sum(record.record_offset >= past.complete_until for record in then)


def state_of(warehouse: Path, run_id: str | None = None) -> dict[str, list[str]]:
    return tables_of(warehouse, run_id=run_id, but=tuple(TABLES.keys() - STATE))


def tables_at_newest_versions(warehouse: Path) -> dict[str, list[str]]:
    """Return the rows that a reader sees who opens the newest version of each table, and knows nothing of runs."""
    newest = {}
    for name in set(TABLES) - {"runs"}:
        table = TABLES[name]
        rows = plain_rows(name, open_table(locate(str(warehouse)), table).rows("sample", list(table.by_name)))
        newest[name] = sorted(repr({column: value for column, value in row.items() if column != "run_id"}) for row in rows)
    return newest


def newest_in(logs: Path) -> int:
    segments = [segment for partition in plan_logs([str(logs)]).partitions for segment in partition.segments]
    return max(int(chunk.records.timestamp_ms.max()) for segment in segments for chunk in read_segment(segment))


def ends_of(logs: Path) -> dict[int, int]:
    return {partition.offsets_partition: partition.end_offset for partition in plan_logs([str(logs)]).partitions}


def test_records_of_the_history_are_those_of_the_log(local: LocalSession, tmp_path: Path) -> None:
    rng = random.Random(5)
    logs = {number: [in_partition(each, number) for each in random_log(rng, 150)] for number in range(3)}
    for offsets_partition, log in logs.items():
        write_log(tmp_path / "logs", log, offsets_partition=offsets_partition)
    run(local, tmp_path / "w", tmp_path / "logs")
    tables = open_warehouse(str(tmp_path / "w")).run("sample").tables
    for offsets_partition, log in logs.items():
        held = HistoryRange(0, 0, log[-1].record_offset + 1)
        with patch("groupcoord_spark.pipeline.read.history_records.OFFSETS_AT_ONCE", 130):
            parts = list(records_in_history(str(tmp_path / "w"), "sample", HistoryPiece(offsets_partition, held, tables)))
        assert len(parts) > 1
        assert [told for part in parts for told in shape(part)] == shape(records_of([each for each in log if is_in_history(each)]))


def shape(records: Records) -> list[tuple[Any, ...]]:
    """Return the rows of Records; those for markers without their bytes."""
    rows = []
    for i, control_type in enumerate(records.control_type.tolist()):
        content = (records.key.row(i), records.value.row(i)) if control_type < 0 else None
        if content is not None and content[0] is not None and content[0][:2] in (b"\0\0", b"\0\1") and content[1] is not None:
            # bytes after the end of an offset's value are kept by nobody
            content = (content[0], content[1][: len(commit_value(0, int.from_bytes(content[1][:2], "big")))])
        offset, producer_id = int(records.record_offset[i]), int(records.producer_id[i])
        rows.append((offset, producer_id, bool(records.is_transactional[i]), control_type, content))
    return rows


NIGHTS = [GOLDEN / "nights" / str(night) / "logs" for night in range(1, 6)]


class TestNightsOfOneBroker:
    """Five runs of one cluster whose log was cleaned hard between them."""

    def test_come_out_of_the_last_log_and_the_history_as_they_were(self, local: LocalSession, tmp_path: Path) -> None:
        path = tmp_path / "w"
        nights = [(logs, run(local, path, logs).run_id) for logs in NIGHTS]
        before = tables_of(path)
        for by_time, (logs, run_id) in ((False, nights[0]), (True, nights[2])):
            ends, state = ends_of(logs), state_of(path, run_id)
            asked = Until("then", time_ms=newest_in(logs)) if by_time else Until("then", end_offsets=ends)
            summary = run(local, path, NIGHTS[-1], until=asked)
            past = summary.point_in_time
            assert past is not None and past.records_from_history > 0 and past.missing == {}
            assert state_of(path, summary.run_id) == state
            assert rows_of(path, "runs")[-1]["kind"] == "point_in_time"
            settings = dict(rows_of(path, "runs")[-1]["settings"])
            assert (settings["until"], json.loads(settings["until.end.offsets"])) == ("then", {str(p): end for p, end in ends.items()})
        assert tables_of(path) == before == tables_at_newest_versions(path)

    def test_without_history_what_compaction_has_taken_is_told(self, local: LocalSession, tmp_path: Path) -> None:
        summary = run(local, tmp_path / "w", NIGHTS[-1], until=Until("then", end_offsets=ends_of(NIGHTS[0])))
        assert summary.point_in_time is not None and summary.point_in_time.missing == {0: 8, 1: 74, 2: 64, 3: 27}
        told = [row for row in rows_of(tmp_path / "w", "warnings", run_id=summary.run_id) if row["code"] == "compacted_before_until"]
        assert sorted(row["offsets_partition"] for row in told) == [0, 1, 2, 3]


class TestALogOfOnePartition:
    def test_ends_before_the_first_record_later_than_the_moment(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 40), segments=3)
        summary = run(local, tmp_path / "w", tmp_path / "logs", until=Until("then", time_ms=T0 + 20))
        assert summary.records_read == 21
        assert summary.point_in_time is not None and (summary.point_in_time.ended_early, summary.point_in_time.missing) == (1, {})
        assert max(row["record_offset"] for row in rows_of(tmp_path / "w", "committed_offsets", run_id=summary.run_id)) == 20
        (row,) = rows_of(tmp_path / "w", "offsets_partitions", run_id=summary.run_id)
        assert (row["end_offset"], row["last_stable_offset"], row["history_end_offset"]) == (21, 21, None)
        assert rows_of(tmp_path / "w", "offset_commits", run_id=summary.run_id) == []

    def test_is_empty_before_its_first_record_and_whole_after_its_last(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 5))
        summary = run(local, tmp_path / "w", tmp_path / "logs", until=Until("then", time_ms=T0 - 1))
        assert (summary.groups, rows_of(tmp_path / "w", "committed_offsets", run_id=summary.run_id)) == (0, [])
        summary = run(local, tmp_path / "w", tmp_path / "logs", until=Until("then", time_ms=T0 + DAY_MS))
        assert summary.point_in_time is not None and summary.point_in_time.ended_early == 0
        newest = {row["record_offset"] for row in rows_of(tmp_path / "w", "committed_offsets", run_id=summary.run_id)}
        assert (summary.records_read, newest) == (5, {2, 3, 4})

    def test_is_known_from_the_history_where_the_log_lost_its_beginning(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 20))
        run(local, tmp_path / "w", tmp_path / "logs")
        shutil.rmtree(tmp_path / "logs")
        write_log(tmp_path / "logs", commits(17, 30), largest_batch=3)
        # the second finds in the history what the run has read of the log, and nothing of the first
        for asked, held in ((Until("then", time_ms=T0 + 24), 20), (Until("then", end_offsets={0: 25}), 20)):
            summary = run(local, tmp_path / "w", tmp_path / "logs", until=asked)
            past = summary.point_in_time
            assert past is not None and (past.records_from_history, past.missing) == (held, {})
            offsets = rows_of(tmp_path / "w", "committed_offsets", run_id=summary.run_id)
            assert sorted(row["record_offset"] for row in offsets) == [22, 23, 24]
        run(local, tmp_path / "w", tmp_path / "logs")
        assert sorted(row["record_offset"] for row in rows_of(tmp_path / "w", "offset_commits")) == list(range(30))

    def test_transactions_open_at_that_moment_stay_pending(self, local: LocalSession, tmp_path: Path) -> None:
        staged = commit(0)._replace(producer_id=7, is_transactional=True)
        marker = LogRecord(1, None, None, 7, is_transactional=True, control_type=1)
        write_log(tmp_path / "logs", [staged, marker, commit(2, "h")])
        run_id = run(local, tmp_path / "w", tmp_path / "logs", until=Until("then", end_offsets={0: 1})).run_id
        assert [row["producer_id"] for row in rows_of(tmp_path / "w", "pending_offsets", run_id=run_id)] == [7]
        assert rows_of(tmp_path / "w", "committed_offsets", run_id=run_id) == []
        (row,) = rows_of(tmp_path / "w", "offsets_partitions", run_id=run_id)
        assert (row["end_offset"], row["last_stable_offset"]) == (1, 0)

    def test_what_history_lacks_between_two_nights_is_told(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 10))
        run(local, tmp_path / "w", tmp_path / "logs")
        write_log(tmp_path / "logs", [*commits(0, 10), *commits(14, 20)])
        run(local, tmp_path / "w", tmp_path / "logs")
        missing = []
        for end in (10, 16):
            summary = run(local, tmp_path / "w", tmp_path / "logs", until=Until("then", end_offsets={0: end}))
            assert summary.point_in_time is not None
            missing.append(summary.point_in_time.missing)
        assert missing == [{}, {0: 4}]

    @pytest.mark.parametrize(("ends", "told"), [({3: 1}, "partition 3, which the input does not have"), ({0: 9}, "its log ends at 5")])
    def test_end_offsets_that_the_log_does_not_have_are_refused(
        self, local: LocalSession, tmp_path: Path, ends: dict[int, int], told: str
    ) -> None:
        write_log(tmp_path / "logs", commits(0, 5))
        with pytest.raises(UsageError, match=told):
            run(local, tmp_path / "w", tmp_path / "logs", until=Until("ends.json", end_offsets=ends))
