"""Runs one after another: rows that are appended or replaced, a run that fails, and readers."""

from __future__ import annotations

import re
import shutil
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyspark
import pytest
from deltalake import DeltaTable

from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.coordinator.semantics import JAVA, SCALA
from groupcoord_spark.errors import InputError, WarehouseError
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.night import run_stages
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.protocol import encode_value
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.spark.session import WORKER_DAEMON
from groupcoord_spark.warehouse import TABLES, open_warehouse
from tests.conftest import DAY_MS, GOLDEN, SAMPLE_AS_OF_MS, SAMPLE_LOGS, SampleWarehouse
from tests.coordinator.records import consumer_member, current_assignment, group_epoch, target_epoch
from tests.log.log_writer import T0
from tests.pipeline.logs import TOPIC_ID, LogRecord, classic_group_key, classic_value, commit_value, log_of, offset_key
from tests.pipeline.segment_files import batch_of, write_log
from tests.running import AS_OF_MS, rows_of, run, tables_of
from tests.sources.exports import raw_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

pytestmark = pytest.mark.usefixtures("tables_of_a_log")

STATE = ("committed_offsets", "pending_offsets", "orphan_offsets", "groups", "members", "assignments", "latest_records", "topic_ids")
HISTORY = ("offset_commits", "group_records", "transactions")
OF_ONE_RUN = ("quarantined_records", "warnings", "surviving_records")
"""Tables that each run appends to what it found."""


def commit(record_offset: int, group_id: str = "g", **fields: Any) -> LogRecord:
    key = offset_key(group_id, fields.pop("topic", "t"), fields.pop("partition", 0))
    return LogRecord(record_offset, key, commit_value(record_offset, **fields))


def commits(first: int, end: int) -> list[LogRecord]:
    return [commit(record_offset, partition=record_offset % 3) for record_offset in range(first, end)]


def history_places(warehouse: Path, cluster: str | None = None) -> list[tuple[int, int, int]]:
    """(offsets partition, incarnation, record offset) of every row of history."""
    rows = [row for table in HISTORY for row in rows_of(warehouse, table, cluster)]
    return sorted((row["offsets_partition"], row["incarnation"], row["record_offset"]) for row in rows)


def found_by_the_last_run(warehouse: Path) -> dict[str, list[str]]:
    """Return the rows of every table that the last run wrote or left, without those that earlier runs found."""
    run_id = open_warehouse(str(warehouse)).run("sample").run_id
    tables = tables_of(warehouse, but=("runs", *OF_ONE_RUN))
    for table in OF_ONE_RUN:
        tables[table] = sorted(repr({**row, "run_id": None}) for row in rows_of(warehouse, table) if row["run_id"] == run_id)
    return tables


def versions(warehouse: Path) -> dict[str, int]:
    return {table: DeltaTable(str(warehouse / table)).version() for table in TABLES}


def files(warehouse: Path) -> set[Path]:
    return {path for path in warehouse.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def second(local: LocalSession, sample_warehouse: SampleWarehouse, tmp_path_factory: pytest.TempPathFactory) -> SampleWarehouse:
    """Provide the sample's warehouse after another run over the same log; not to be written to."""
    place = shutil.copytree(sample_warehouse.path, tmp_path_factory.mktemp("second") / "w")
    return SampleWarehouse(place, run(local, place, SAMPLE_LOGS, as_of_ms=SAMPLE_AS_OF_MS))


class TestASecondNight:
    def test_over_the_same_input_gives_the_same_rows(self, sample_warehouse: SampleWarehouse, second: SampleWarehouse) -> None:
        reading = second.summary.reading
        assert (second.summary.records_read, reading.since_ms, reading.whole) == (0, SAMPLE_AS_OF_MS, {})
        before, after = (found_by_the_last_run(each.path) for each in (sample_warehouse, second))
        # What it read, and that its own run read no record in the log, are the only differences.
        assert after.pop("surviving_records") == []
        assert before.pop("surviving_records")
        for rows in (before, after):
            rows["offsets_partitions"] = [re.sub(r"'read_from': (None|\d+), ", "", row) for row in rows["offsets_partitions"]]
        assert after == before
        assert all(before[table] for table in ("committed_offsets", "groups", "members", "offset_commits", "tombstones"))
        assert len(rows_of(second.path, "runs")) == 2

    def test_adds_no_file_to_history_when_nothing_is_new(self, sample_warehouse: SampleWarehouse, second: SampleWarehouse) -> None:
        before, after = (
            {table: {Path(uri).name for uri in DeltaTable(str(each.path / table)).file_uris()} for table in HISTORY}
            for each in (sample_warehouse, second)
        )
        assert after == before

    def test_that_is_full_says_that_the_carried_state_is_equal(self, local: LocalSession, tmp_path: Path, second: SampleWarehouse) -> None:
        carried = found_by_the_last_run(second.path)
        shutil.copytree(second.path, tmp_path / "w")
        summary = run(local, tmp_path / "w", SAMPLE_LOGS, as_of_ms=SAMPLE_AS_OF_MS, full=True)
        assert (summary.reading.differences, summary.reading.whole) == (0, {"--full": 5})
        full = found_by_the_last_run(tmp_path / "w")
        assert {table: full[table] for table in STATE} == {table: carried[table] for table in STATE}
        assert full["decode_coverage"] == carried["decode_coverage"]

    def test_that_is_full_warns_of_each_group_that_differs(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 10))
        run(local, tmp_path / "w", tmp_path / "logs")
        write_log(tmp_path / "logs", [*commits(0, 8), commit(8, "other"), *commits(9, 10)])
        summary = run(local, tmp_path / "w", tmp_path / "logs", full=True)
        told = [row["group_id"] for row in rows_of(tmp_path / "w", "warnings") if row["code"] == "carried_state_differs"]
        assert summary.reading.differences == 2 and sorted(told) == ["g", "other"]

    def test_after_a_gap_goes_on_and_warns(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 10))
        run(local, tmp_path / "w", tmp_path / "logs")
        shutil.rmtree(tmp_path / "logs")
        write_log(tmp_path / "logs", [commit(20, "h")])
        run(local, tmp_path / "w", tmp_path / "logs")
        assert [row["record_offset"] for row in rows_of(tmp_path / "w", "warnings") if row["code"] == "gap_since_last_night"] == [10]
        assert {row["group_id"] for row in rows_of(tmp_path / "w", "committed_offsets")} == {"g", "h"}

    @pytest.mark.parametrize("left", [None, b"", b"PAR1 cut off"])
    def test_whose_coverage_cannot_be_read_counts_the_whole_log(self, local: LocalSession, tmp_path: Path, left: bytes | None) -> None:
        write_log(tmp_path / "logs", commits(0, 10))
        run(local, tmp_path / "w", tmp_path / "logs")
        for file in (tmp_path / "w" / "decode_coverage").rglob("cluster=*/*.parquet"):
            file.unlink() if left is None else file.write_bytes(left)
        write_log(tmp_path / "logs", commits(0, 12))
        summary = run(local, tmp_path / "w", tmp_path / "logs")
        assert summary.reading.whole == {"the table decode_coverage of the last run is lost or damaged": 1}
        assert [row["records"] for row in rows_of(tmp_path / "w", "decode_coverage")] == [12]

    def test_without_its_latest_records_reads_the_whole_log(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 10))
        run(local, tmp_path / "w", tmp_path / "logs")
        for file in (tmp_path / "w" / "latest_records").rglob("*.parquet"):
            file.unlink()
        write_log(tmp_path / "logs", commits(0, 12))
        for records_read in (12, 0):
            summary = run(local, tmp_path / "w", tmp_path / "logs")
            assert summary.records_read == records_read
        assert summary.reading.whole == {}
        assert [row["committed_offset"] for row in rows_of(tmp_path / "w", "committed_offsets")] == [9, 10, 11]

    def test_under_other_rules_reads_the_whole_log(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 10))
        run(local, tmp_path / "w", tmp_path / "logs")
        assert run(local, tmp_path / "w", tmp_path / "logs", semantics=SCALA).records_read == 10

    def test_that_lacks_a_partition_keeps_its_groups_until_they_are_dropped(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", [commit(0, "g")])
        write_log(tmp_path / "logs", [commit(0, "h")], offsets_partition=1)
        run(local, tmp_path / "w", tmp_path / "logs")
        for as_of_ms in (AS_OF_MS + 1, AS_OF_MS + 2):
            summary = run(local, tmp_path / "w", tmp_path / "logs" / "__consumer_offsets-0", as_of_ms=as_of_ms)
            assert summary.reading.stale_since_ms == {1: AS_OF_MS}
            assert {row["group_id"] for row in rows_of(tmp_path / "w", "groups")} == {"g", "h"}
            stale = {row["offsets_partition"]: row["stale_since"] for row in rows_of(tmp_path / "w", "offsets_partitions")}
            assert stale == {0: None, 1: AS_OF_MS}
        accepted = frozenset({"missing"})
        run(local, tmp_path / "w", tmp_path / "logs" / "__consumer_offsets-0", as_of_ms=AS_OF_MS + 3, accepted=accepted)
        assert {row["group_id"] for row in rows_of(tmp_path / "w", "groups")} == {"g"}
        summary = run(local, tmp_path / "w", tmp_path / "logs", as_of_ms=AS_OF_MS + 4)
        assert {row["group_id"] for row in rows_of(tmp_path / "w", "groups")} == {"g", "h"}
        assert summary.reading.whole == {"the last run kept no latest records of them": 1}

    def test_writes_the_whole_history_after_one_without(
        self, local: LocalSession, tmp_path: Path, sample_warehouse: SampleWarehouse
    ) -> None:
        run(local, tmp_path / "w", SAMPLE_LOGS, as_of_ms=SAMPLE_AS_OF_MS, with_history=False)
        assert history_places(tmp_path / "w") == []
        run(local, tmp_path / "w", SAMPLE_LOGS, as_of_ms=SAMPLE_AS_OF_MS)
        assert found_by_the_last_run(tmp_path / "w") == found_by_the_last_run(sample_warehouse.path)

    def test_without_history_leaves_the_history_that_is_there(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 20))
        run(local, tmp_path / "w", tmp_path / "logs")
        write_log(tmp_path / "logs", commits(0, 30))
        run(local, tmp_path / "w", tmp_path / "logs", with_history=False)
        assert history_places(tmp_path / "w") == [(0, 0, each) for each in range(20)]
        run(local, tmp_path / "w", tmp_path / "logs")
        assert history_places(tmp_path / "w") == [(0, 0, each) for each in range(30)]

    def test_over_a_longer_log_appends_what_is_new(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 40), segments=2)
        run(local, tmp_path / "w", tmp_path / "logs")
        before = set((tmp_path / "w" / "offset_commits").rglob("*.parquet"))
        write_log(tmp_path / "logs", commits(0, 55), segments=2)
        (tmp_path / "logs" / "__consumer_offsets-0" / f"{20:020d}.log").unlink()
        run(local, tmp_path / "w", tmp_path / "logs")
        new = set((tmp_path / "w" / "offset_commits").rglob("*.parquet")) - before
        assert sum(duckdb.read_parquet(str(path)).count("*").fetchall()[0][0] for path in new) == 15
        assert history_places(tmp_path / "w") == [(0, 0, each) for each in range(55)]
        assert [row["committed_offset"] for row in rows_of(tmp_path / "w", "committed_offsets")] == [54, 52, 53]

    def test_over_a_log_that_was_cleaned_keeps_the_history_of_what_is_gone(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 20))
        run(local, tmp_path / "w", tmp_path / "logs")
        write_log(tmp_path / "logs", commits(17, 23), largest_batch=3)
        (tmp_path / "logs" / "__consumer_offsets-0" / f"{0:020d}.log").unlink()
        run(local, tmp_path / "w", tmp_path / "logs")
        assert history_places(tmp_path / "w") == [(0, 0, each) for each in range(23)]

    def test_over_segments_before_those_read_so_far_adds_them(self, local: LocalSession, tmp_path: Path) -> None:
        _, second = write_log(tmp_path / "logs", commits(0, 20), segments=2)
        run(local, tmp_path / "w", second)
        run(local, tmp_path / "w", tmp_path / "logs")
        assert history_places(tmp_path / "w") == [(0, 0, each) for each in range(20)]

    def test_that_lacks_a_partition_does_not_forget_its_history(self, local: LocalSession, tmp_path: Path) -> None:
        for offsets_partition in (0, 1):
            write_log(tmp_path / "logs", commits(0, 10), offsets_partition=offsets_partition)
        run(local, tmp_path / "w", tmp_path / "logs")
        run(local, tmp_path / "w", tmp_path / "logs" / "__consumer_offsets-0")
        run(local, tmp_path / "w", tmp_path / "logs")
        assert history_places(tmp_path / "w") == [(p, 0, each) for p in (0, 1) for each in range(10)]

    def test_over_a_topic_begun_anew_has_the_next_incarnation(self, local: LocalSession, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 10))
        write_log(tmp_path / "logs", commits(0, 10), offsets_partition=1)
        run(local, tmp_path / "w", tmp_path / "logs")
        write_log(tmp_path / "logs", commits(0, 4), starts_at_ms=T0 + DAY_MS)
        for _ in range(2):  # what comes after the new beginning is the same incarnation still
            run(local, tmp_path / "w", tmp_path / "logs", accepted=frozenset({"recreated"}))
            assert history_places(tmp_path / "w") == [
                *((0, 0, each) for each in range(10)),
                *((0, 1, each) for each in range(4)),
                *((1, 0, each) for each in range(10)),
            ]
        partitions = {row["offsets_partition"]: row for row in rows_of(tmp_path / "w", "offsets_partitions")}
        assert {p: (row["incarnation"], row["end_offset"]) for p, row in partitions.items()} == {0: (1, 4), 1: (0, 10)}


def test_workers_of_a_local_session_share_what_they_load(spark: SparkSession) -> None:
    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec = sys.modules["__main__"].__spec__
        told = {"daemon": spec.name if spec else "", "pyspark": pyspark.__file__}
        for _ in batches:
            yield pa.RecordBatch.from_pylist([told])

    told = spark.range(1).mapInArrow(loaded, "daemon STRING, pyspark STRING").collect()
    assert [tuple(row) for row in told] == [(WORKER_DAEMON, pyspark.__file__)]


def test_the_largest_number_of_a_partition_is_read_in_one_night_after_another(local: LocalSession, tmp_path: Path) -> None:
    for end in (4, 6):
        write_log(tmp_path / "logs", commits(0, end), offsets_partition=2**31 - 2)
        run(local, tmp_path / "w", tmp_path / "logs")
    assert {(row["offsets_partition"], row["committed_offset"]) for row in rows_of(tmp_path / "w", "committed_offsets")} == {
        (2**31 - 2, record_offset) for record_offset in (3, 4, 5)
    }


def test_two_clusters_share_a_warehouse(local: LocalSession, tmp_path: Path, sample_warehouse: SampleWarehouse) -> None:
    write_log(tmp_path / "other", commits(0, 9))
    shutil.copytree(sample_warehouse.path, tmp_path / "w")
    run(local, tmp_path / "w", tmp_path / "other", cluster="other")
    assert tables_of(tmp_path / "w", "sample") == tables_of(sample_warehouse.path)
    assert history_places(tmp_path / "w", "other") == [(0, 0, each) for each in range(9)]
    run(local, tmp_path / "w", SAMPLE_LOGS)
    assert len(rows_of(tmp_path / "w", "committed_offsets", "other")) == 3
    assert {row["cluster"] for row in rows_of(tmp_path / "w", "groups")} == {"sample", "other"}


class TestARunThatFails:
    """A file of the log goes away between the plan and the reading: the workers fail, each in its own process."""

    def fail(self, spark: SparkSession, warehouse: Path, logs: Path) -> str:
        night = RunRequest((str(logs),), str(warehouse), "sample", AS_OF_MS, DAY_MS, JAVA)
        plan = plan_logs(night.inputs)
        gone = Path(plan.partitions[-1].segments[-1].uri)
        kept = gone.read_bytes()
        gone.unlink()
        try:
            with pytest.raises(InputError) as failure:
                run_stages(night, plan, spark, StageLines(quiet=True))
        finally:
            gone.write_bytes(kept)
        assert str(gone) in str(failure.value)
        return str(failure.value)

    def test_tells_one_sentence_and_leaves_the_tables_as_they_were_before_and_after_one_that_is_whole(
        self, spark: SparkSession, tmp_path: Path, sample_warehouse: SampleWarehouse
    ) -> None:
        logs, place = Path(shutil.copytree(SAMPLE_LOGS, tmp_path / "logs")), tmp_path / "w"
        self.fail(spark, place, logs)
        with pytest.raises(WarehouseError, match="holds no run of cluster 'sample'"):
            open_warehouse(str(place)).read("groups", cluster="sample")
        run(spark, place, logs, as_of_ms=SAMPLE_AS_OF_MS)
        before, rows, there = versions(place), tables_of(place, but=()), files(place)
        once = tables_of(sample_warehouse.path, but=())
        assert {table: len(of_table) for table, of_table in rows.items()} == {table: len(of_table) for table, of_table in once.items()}
        sentence = self.fail(spark, place, logs)
        assert "\n" not in sentence
        assert "Traceback" not in sentence
        assert versions(place) == before
        assert tables_of(place, but=()) == rows
        assert there <= files(place)


class TestWhatCannotBeRead:
    def night(self, local: LocalSession, tmp_path: Path, log: Sequence[LogRecord]) -> list[dict[str, Any]]:
        """Return the quarantined records of a log in a partition of its own next to a sound one; the counts always add up."""
        write_log(tmp_path / "logs", log, offsets_partition=0, largest_batch=1)
        write_log(tmp_path / "logs", [commit(number, "sound") for number in range(7)], offsets_partition=1)
        return self.run_and_count(local, tmp_path)

    def run_and_count(self, local: LocalSession, tmp_path: Path) -> list[dict[str, Any]]:
        summary = run(local, tmp_path / "w", tmp_path / "logs")
        partitions = rows_of(tmp_path / "w", "offsets_partitions")
        quarantined = rows_of(tmp_path / "w", "quarantined_records")
        lost: Counter[int] = Counter()
        for row in quarantined:
            lost[row["offsets_partition"]] += 1 if row["records"] is None else row["records"]
        for row in partitions:
            assert row["records"] == row["decoded"] + row["quarantined"]
            assert row["quarantined"] == lost[row["offsets_partition"]]
        assert summary.records_read == sum(row["records"] for row in partitions)
        assert summary.records_quarantined == sum(row["quarantined"] for row in partitions) == sum(lost.values())
        assert summary.records_read == summary.records_decoded + summary.records_quarantined
        assert summary.quarantined_by_reason == Counter(
            reason for row in quarantined for reason in [row["reason"]] * (1 if row["records"] is None else row["records"])
        )
        coverage = rows_of(tmp_path / "w", "decode_coverage")
        markers = sum(row["control_records"] for row in partitions)
        assert sum(row["records"] for row in coverage) == summary.records_read - markers
        assert sum(row["quarantined"] for row in coverage) == summary.records_quarantined
        return quarantined

    def test_a_corrupt_batch_is_quarantined_and_the_rest_is_read(self, local: LocalSession, tmp_path: Path) -> None:
        batches = [batch_of(commits(first, first + 5)) for first in range(0, 25, 5)]
        damaged = bytearray(batches[2])
        damaged[-3] ^= 0xFF
        (path,) = write_log(tmp_path / "logs", commits(0, 25), largest_batch=5)
        path.write_bytes(b"".join([*batches[:2], damaged, *batches[3:]]))
        (row,) = self.run_and_count(local, tmp_path)
        assert row["reason"] == "batch_crc_mismatch"
        assert row["source"] == str(path)
        assert row["position"] == len(batches[0]) + len(batches[1])
        assert row["size"] == len(damaged)
        assert row["records"] == 5
        assert history_places(tmp_path / "w") == [(0, 0, each) for each in range(25) if not 10 <= each < 15]

    def test_bytes_that_are_no_batch_are_quarantined_and_the_next_one_is_found(self, local: LocalSession, tmp_path: Path) -> None:
        first, second = batch_of(commits(0, 5)), batch_of(commits(5, 10))
        (path,) = write_log(tmp_path / "logs", commits(0, 10))
        path.write_bytes(first + b"\xa5" * 333 + second)
        (row,) = self.run_and_count(local, tmp_path)
        assert (row["position"], row["size"], row["records"]) == (len(first), 333, None)
        assert history_places(tmp_path / "w") == [(0, 0, each) for each in range(10)]

    def test_a_value_that_does_not_decode_keeps_its_bytes(self, local: LocalSession, tmp_path: Path) -> None:
        cut = commit(1).value[:9]
        (row,) = self.night(local, tmp_path, [commit(0), commit(1)._replace(value=cut), commit(2)])
        assert (row["reason"], row["record_offset"], row["key"], row["value"]) == ("value_truncated", 1, commit(1).key, cut)
        assert [row["committed_offset"] for row in rows_of(tmp_path / "w", "committed_offsets") if row["offsets_partition"] == 0] == [2]

    def test_a_key_of_unknown_type_is_no_loss_but_a_record_of_its_type(self, local: LocalSession, tmp_path: Path) -> None:
        unknown = struct.pack(">h", 99) + b"whatever"
        assert self.night(local, tmp_path, [LogRecord(0, unknown, b"\0\1payload"), LogRecord(1, unknown, None), commit(2)]) == []
        value, tombstone = sorted(rows_of(tmp_path / "w", "group_records"), key=lambda row: row["record_offset"])
        assert value | {"key_type": 99, "key_name": None, "key": unknown, "value": b"\0\1payload", "value_version": None} == value
        assert tombstone | {"key_type": 99, "is_tombstone": True, "value": None} == tombstone
        warned = [(row["code"], row["record_offset"]) for row in rows_of(tmp_path / "w", "warnings") if row["code"].startswith("R-")]
        assert warned == [("R-1.6", 0), ("R-1.6", 1)]

    def test_a_group_value_of_unknown_version_is_quarantined_and_kept_whole(self, local: LocalSession, tmp_path: Path) -> None:
        value = b"\0\x2a" + classic_value(1, 1)[2:]
        (row,) = self.night(local, tmp_path, [LogRecord(0, classic_group_key(), value), commit(1)])
        assert (row["reason"], row["record_offset"], row["value"]) == ("unknown_value_version", 0, value)
        (kept,) = rows_of(tmp_path / "w", "group_records")
        assert kept | {"group_id": "g", "value_version": 42, "value": value, "value_json": None} == kept

    def test_an_offset_value_of_unknown_version_is_quarantined(self, local: LocalSession, tmp_path: Path) -> None:
        value = b"\0\x2a" + commit(1).value[2:]
        (row,) = self.night(local, tmp_path, [commit(0), commit(1)._replace(value=value)])
        assert (row["reason"], row["record_offset"], row["key"], row["value"]) == ("unknown_value_version", 1, commit(1).key, value)

    def test_records_without_a_key_are_quarantined(self, local: LocalSession, tmp_path: Path) -> None:
        rows = self.night(local, tmp_path, [LogRecord(0, None, b"\0\1"), LogRecord(1, b"\0", None), commit(2)])
        assert {row["record_offset"]: row["reason"] for row in rows} == {0: "null_key", 1: "key_too_short"}

    def test_an_embedded_blob_that_does_not_decode_costs_its_own_columns_alone(self, local: LocalSession, tmp_path: Path) -> None:
        member = {
            "member_id": "m",
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "rebalance_timeout_ms": 1,
            "session_timeout_ms": 1,
            "subscription": b"\0\1home made",
            "assignment": b"\xff",
        }
        fields = {
            "protocol_type": "home",
            "generation": 3,
            "protocol": "p",
            "leader": "m",
            "current_state_timestamp_ms": 5,
            "members": [member],
        }
        assert self.night(local, tmp_path, [LogRecord(0, classic_group_key(), encode_value(KeyType.GROUP_METADATA, 3, fields))]) == []
        (row,) = rows_of(tmp_path / "w", "members")
        assert row | {"client_id": "c", "subscription": b"\0\1home made", "assignment": b"\xff", "subscribed_topics": None} == row


class TestTopicIds:
    """A consumer group's member with partitions of two topics, whose records have only ids."""

    UNNAMED = "AAAAAAAAAAAAAAAAAAAAAg"

    def logs(self, tmp_path: Path) -> Path:
        member = consumer_member("m", "t", group="new")
        assignment = current_assignment("m", 1, 0, topic_ids=(TOPIC_ID, self.UNNAMED), group="new")
        log = log_of([member, group_epoch(1, group="new"), target_epoch(1, group="new"), assignment])
        write_log(tmp_path / "logs", log, offsets_partition=3)
        # Elsewhere, and superseded: the name is known all the same.
        named = [commit(0, "simple", topic="orders", version=4), commit(1, "simple", topic="orders", version=3)]
        write_log(tmp_path / "logs", named, offsets_partition=1)
        return tmp_path / "logs"

    def topics(self, warehouse: Path) -> dict[str, str | None]:
        return {row["topic_id"]: row["topic"] for row in rows_of(warehouse, "assignments") if row["kind"] == "current"}

    def test_are_named_by_what_the_log_reveals(self, local: LocalSession, tmp_path: Path) -> None:
        run(local, tmp_path / "w", self.logs(tmp_path))
        assert self.topics(tmp_path / "w") == {TOPIC_ID: "orders", self.UNNAMED: None}

    def test_are_named_by_what_the_user_says(self, local: LocalSession, tmp_path: Path) -> None:
        run(local, tmp_path / "w", self.logs(tmp_path), topic_names={self.UNNAMED: "bills"})
        assert self.topics(tmp_path / "w") == {TOPIC_ID: "orders", self.UNNAMED: "bills"}


@pytest.mark.usefixtures("every_table")
class TestReaders:
    @pytest.mark.parametrize("table", TABLES)
    def test_delta_rs_reads_a_table_with_its_comments(self, sample_warehouse: SampleWarehouse, table: str) -> None:
        declared, opened = TABLES[table], DeltaTable(str(sample_warehouse.path / table))
        assert opened.metadata().description == declared.comment
        fields = {field.name: field for field in opened.schema().fields}
        assert {name: (field.nullable, field.metadata["comment"]) for name, field in fields.items()} == {
            column.name: (column.nullable, column.comment) for column in declared.columns
        }
        assert len(opened.to_pandas()) == len(rows_of(sample_warehouse.path, table))

    def test_no_table_asks_its_readers_for_more_than_the_oldest_protocol(self, sample_warehouse: SampleWarehouse) -> None:
        assert {DeltaTable(str(sample_warehouse.path / table)).protocol().min_reader_version for table in TABLES} == {1}

    def test_duckdb_reads_a_night_through_arrow(self, sample_warehouse: SampleWarehouse) -> None:
        versions = open_warehouse(str(sample_warehouse.path)).run("sample").table_versions
        opened = DeltaTable(str(sample_warehouse.path / "committed_offsets"))
        opened.load_as_version(versions["committed_offsets"])
        committed_offsets = opened.to_pyarrow_table()
        query = "SELECT group_id, count(*), max(committed_offset) FROM committed_offsets GROUP BY 1"
        expected: dict[str, list[int]] = {}
        for row in rows_of(sample_warehouse.path, "committed_offsets"):
            expected.setdefault(row["group_id"], []).append(row["committed_offset"])
        found = duckdb.connect().register("committed_offsets", committed_offsets).execute(query).fetchall()
        assert {group_id: (count, most) for group_id, count, most in found} == {g: (len(all_), max(all_)) for g, all_ in expected.items()}

    def test_sparks_own_delta_reader_sees_rows_and_comments(
        self, spark_with_delta: SparkSession, sample_warehouse: SampleWarehouse
    ) -> None:
        for table in ("offset_commits", "runs"):
            place = sample_warehouse.path / table
            rows = spark_with_delta.read.format("delta").load(str(place))
            assert rows.count() == len(rows_of(sample_warehouse.path, table))
            comments = {field.name: field.metadata["comment"] for field in rows.schema.fields}
            assert comments == {column.name: column.comment for column in TABLES[table].columns}
            (detail,) = spark_with_delta.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()
            assert detail.description == TABLES[table].comment

    def test_spark_writes_no_null_where_a_column_is_not_null(
        self, spark_with_delta: SparkSession, sample_warehouse: SampleWarehouse, tmp_path: Path
    ) -> None:
        place = shutil.copytree(sample_warehouse.path / "groups", tmp_path / "groups")
        group = spark_with_delta.read.format("delta").load(str(place)).limit(1)
        nameless = group.selectExpr("* EXCEPT (group_id)", "CAST(NULL AS STRING) AS group_id")
        with pytest.raises(Exception, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
            nameless.write.format("delta").mode("append").save(str(place))


def test_a_record_counts_once_however_often_it_is_read(local: LocalSession, tmp_path: Path) -> None:
    # The third dump was cleaned, so three partitions of it are read whole; the last run reads everything again.
    sizes: dict[tuple[int, int], int] = {}
    for night, is_full in ((1, False), (3, False), (3, True)):
        logs = GOLDEN / "nights" / str(night) / "logs"
        for row in raw_rows(logs).to_pylist():
            if row["control_type"] is None:
                sizes[row["offsets_partition"], row["record_offset"]] = len(row["key"] or b"") + len(row["value"] or b"")
        summary = run(local, tmp_path / "w", logs, cluster="nights", full=is_full)
        coverage = rows_of(tmp_path / "w", "decode_coverage")
        assert (sum(row["records"] for row in coverage), sum(row["bytes"] for row in coverage)) == (len(sizes), sum(sizes.values()))
    assert summary.reading.whole == {"--full": 4}
