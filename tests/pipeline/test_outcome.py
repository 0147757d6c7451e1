"""What a run says of its inputs after its workers are done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.log import LogPlan, PartitionLog
from groupcoord_spark.pipeline.exchange.counts import KindCount, PartitionCounts
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryRange, PointInTime, Until
from groupcoord_spark.pipeline.outcome import completeness, contradiction, driver_rows, files_by_table, run_row, summary_of
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.run import RunRequest


def plan(*logs: PartitionLog) -> LogPlan:
    return LogPlan(logs, None, None, ())


def log(first: int | None, end: int, log_start: int | None, number: int = 0) -> PartitionLog:
    return PartitionLog(number, "d", (), first, 1, end, 0, log_start)


def read(first: int, end: int, records: int, number: int = 0) -> PartitionReport:
    counts = PartitionCounts(first_offset=first, end_offset=end, by_kind={(1, 3): KindCount(records, 0, records)})
    return PartitionReport(number, counts)


def test_offsets_that_a_cleaning_left_empty_before_the_first_record_count() -> None:
    assert completeness(plan(log(90, 100, 0)), [read(90, 100, 10)], {}) == 0.1
    assert completeness(plan(log(90, 100, 50)), [read(90, 100, 10)], {}) == 0.2


def test_without_files_the_first_record_is_the_first_offset() -> None:
    assert completeness(plan(log(90, 100, None)), [read(90, 100, 10)], {}) == 1.0


def test_a_log_without_a_record_left_counts_and_an_empty_one_does_not() -> None:
    assert completeness(plan(log(0, 10, 0), log(None, 10, 0, 1)), [read(0, 10, 10)], {}) == 0.5
    assert completeness(plan(log(None, 7, 7)), [], {}) is None


def test_up_to_a_moment_in_the_past_later_offsets_do_not_count() -> None:
    assert completeness(plan(log(0, 100, 0)), [read(0, 20, 10)], {0: PointInTime(20, NO_HISTORY, 20)}) == 0.5


REQUEST = RunRequest(("in",), "w", "c", as_of_ms=10, retention_ms=5, semantics=JAVA)


def rows_of_driver(
    plan: LogPlan,
    reports: list[PartitionReport],
    histories: dict[int, PartitionHistory] | None = None,
    points_in_time: dict[int, PointInTime] | None = None,
    request: RunRequest = REQUEST,
) -> dict[str, list[dict[str, Any]]]:
    return driver_rows(request, plan, reports, histories or {}, points_in_time or {}, "run")


def test_a_partition_row_extends_the_history_by_what_was_read() -> None:
    histories = {0: PartitionHistory(HistoryRange(1, 50, 80), 80, 70, 1_000)}
    (row,) = rows_of_driver(plan(log(60, 100, 60)), [read(60, 100, 40)], histories)["offsets_partitions"]
    assert (row["incarnation"], row["history_first_offset"], row["history_end_offset"]) == (1, 50, 100)
    assert (row["first_offset"], row["end_offset"], row["newest_timestamp_ms"]) == (60, 100, 1_000)


def test_without_history_a_partition_row_keeps_the_range_of_the_history() -> None:
    histories = {0: PartitionHistory(HistoryRange(1, 50, 80), 80, 70, 1_000)}
    request = replace(REQUEST, with_history=False)
    (row,) = rows_of_driver(plan(log(60, 100, 60)), [read(60, 100, 40)], histories, request=request)["offsets_partitions"]
    assert (row["history_first_offset"], row["history_end_offset"]) == (50, 80)


def test_a_partition_that_the_input_lacks_keeps_its_row() -> None:
    histories = {3: PartitionHistory(HistoryRange(1, 50, 80), 80, 70, 1_000)}
    (row,) = rows_of_driver(plan(), [], histories)["offsets_partitions"]
    assert (row["offsets_partition"], row["first_offset"], row["end_offset"], row["last_stable_offset"]) == (3, None, 80, 70)
    assert (row["records"], row["history_first_offset"], row["history_end_offset"]) == (0, 50, 80)


def test_an_open_transaction_is_the_last_stable_offset() -> None:
    report = read(0, 100, 100)
    report.first_open_offset = 42
    (row,) = rows_of_driver(plan(log(0, 100, 0)), [report])["offsets_partitions"]
    assert (row["end_offset"], row["last_stable_offset"]) == (100, 42)


def test_a_look_back_ends_at_its_moment_and_leaves_the_history_as_it_is() -> None:
    histories = {0: PartitionHistory(HistoryRange(0, 0, 100), 100, 100, 1_000)}
    request, points_in_time = replace(REQUEST, until=Until("then", end_offsets={0: 40})), {0: PointInTime(40, NO_HISTORY, 40)}
    (row,) = rows_of_driver(plan(log(0, 120, 0)), [read(0, 40, 40)], histories, points_in_time, request)["offsets_partitions"]
    assert (row["end_offset"], row["last_stable_offset"], row["history_end_offset"]) == (40, 40, 100)
    summary = summary_of(request, plan(log(0, 120, 0)), [], points_in_time, "run", None)
    assert (run_row(request, summary, {})["kind"], run_row(REQUEST, summary, {})["kind"]) == ("look_back", "night")


def test_records_that_are_gone_before_the_moment_are_a_warning() -> None:
    report = read(0, 40, 30)
    report.records_after_complete = 13
    warnings = rows_of_driver(plan(log(0, 120, 0)), [report], points_in_time={0: PointInTime(40, NO_HISTORY, 20)})["warnings"]
    (row,) = [row for row in warnings if row["code"] == "compacted_before_until"]
    assert row["detail"].startswith("State up to offset 40 may not be exact: of the 20 offsets from 20 on, 7 have no record any more")


def test_a_partition_that_the_settings_rule_out_contradicts_them() -> None:
    logs = plan(log(0, 1, 0, number=50))
    assert contradiction(replace(REQUEST, offsets_partitions=51), logs) is None
    assert contradiction(REQUEST, logs) is None
    assert "__consumer_offsets-50" in str(contradiction(replace(REQUEST, offsets_partitions=50), logs))


def test_coverage_adds_up_partitions_and_counts_damaged_batches_without_a_key_type() -> None:
    damaged = read(0, 10, 4, number=1)
    damaged.counts.lost = 6
    rows = rows_of_driver(plan(log(0, 10, 0), log(0, 10, 0, 1)), [read(0, 10, 10), damaged])["decode_coverage"]
    assert [(row["key_type"], row["value_version"], row["key_name"], row["records"], row["quarantined"]) for row in rows] == [
        (-1, None, None, 6, 6),
        (1, 3, "OffsetCommitKey", 14, 0),
    ]


def test_files_of_all_reports_are_gathered_by_table() -> None:
    one, two = PartitionReport(0, files={"groups": ["a"]}), PartitionReport(1, files={"groups": ["b"], "members": ["c"]})  # type: ignore[list-item]
    assert files_by_table([one, two]) == {"groups": ["a", "b"], "members": ["c"]}
