"""A run's report on its inputs, after its workers are done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.log import LogPlan, PartitionLog, RecordMark
from groupcoord_spark.log.partition_count import PartitionCount
from groupcoord_spark.pipeline.exchange.counts import KindCount, PartitionCounts
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import NO_HISTORY, CarriedState, HistoryRange, PointInTime, Until
from groupcoord_spark.pipeline.outcome import driver_rows, files_by_table, run_row, summary_of, surviving_share
from groupcoord_spark.pipeline.plan.carry_over import CarryOver
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.guards import ComparedRun, Verdict
from groupcoord_spark.pipeline.plan.partition_count import contradiction
from groupcoord_spark.pipeline.plan.run_plan import RunPlan
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.sources.inputs import InputKind

NO_ROWS: dict[str, list[dict[str, Any]]] = {"warnings": [], "offsets_partitions": []}


def plan(*logs: PartitionLog) -> LogPlan:
    return LogPlan(logs, None, None, ())


def log(first: int | None, end: int, log_start: int | None, number: int = 0) -> PartitionLog:
    return PartitionLog(number, "d", (), first, end, 0, log_start)


def read(first: int, end: int, records: int, number: int = 0) -> PartitionReport:
    kinds = {(1, 3): KindCount(records, 0, records)}
    counts = PartitionCounts(first_offset=first, end_offset=end, by_kind=kinds, new_by_kind=kinds)
    return PartitionReport(number, counts)


def test_offsets_that_a_cleaning_left_empty_before_the_first_record_count() -> None:
    assert surviving_share(plan(log(90, 100, 0)), [read(90, 100, 10)], {}, CarryOver()) == 0.1
    assert surviving_share(plan(log(90, 100, 50)), [read(90, 100, 10)], {}, CarryOver()) == 0.2


def test_without_files_the_first_record_is_the_first_offset() -> None:
    assert surviving_share(plan(log(90, 100, None)), [read(90, 100, 10)], {}, CarryOver()) == 1.0


def test_a_log_without_a_record_left_counts_and_an_empty_one_does_not() -> None:
    assert surviving_share(plan(log(0, 10, 0), log(None, 10, 0, 1)), [read(0, 10, 10)], {}, CarryOver()) == 0.5
    assert surviving_share(plan(log(None, 7, 7)), [], {}, CarryOver()) is None


def test_up_to_a_moment_in_the_past_later_offsets_do_not_count() -> None:
    assert surviving_share(plan(log(0, 100, 0)), [read(0, 20, 10)], {0: PointInTime(20, NO_HISTORY, 20)}, CarryOver()) == 0.5


NOTHING_CARRIED = CarryOver()
REQUEST = RunRequest(("in",), "w", "c", as_of_ms=10, retention_ms=5, semantics=JAVA)


def rows_of_driver(
    plan: LogPlan,
    reports: list[PartitionReport],
    histories: dict[int, PartitionHistory] | None = None,
    points_in_time: dict[int, PointInTime] | None = None,
    request: RunRequest = REQUEST,
    carry_over: CarryOver = NOTHING_CARRIED,
    evidence: dict[int, Evidence] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    return driver_rows(planned(plan, request, histories, points_in_time, carry_over, evidence), reports, "run")


def planned(
    plan: LogPlan,
    request: RunRequest,
    histories: dict[int, PartitionHistory] | None = None,
    points_in_time: dict[int, PointInTime] | None = None,
    carry_over: CarryOver = NOTHING_CARRIED,
    evidence: dict[int, Evidence] | None = None,
) -> RunPlan:
    night = ComparedRun(request, plan, InputKind.SEGMENTS, {}, evidence or {})
    count = PartitionCount(50)
    return RunPlan(request, night, Verdict(plan), plan, None, histories or {}, carry_over, points_in_time or {}, (), (), count)


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
    summary = summary_of(planned(plan(log(0, 120, 0)), request, points_in_time=points_in_time), [], "run", NO_ROWS)
    assert (run_row(request, summary, {})["kind"], run_row(REQUEST, summary, {})["kind"]) == ("point_in_time", "nightly")


def test_a_partition_row_remembers_the_records_that_were_seen() -> None:
    old, new = RecordMark(3, 1, 1), RecordMark(9, 2, 2)
    first, newest = "first_record_offset", "newest_record_offset"

    def remembered(before: PartitionHistory, seen: Evidence, until: PointInTime | None = None, *logs: PartitionLog) -> tuple[Any, Any]:
        points = {} if until is None else {0: until}
        (row,) = rows_of_driver(plan(*logs), [], {0: before}, points, evidence={0: seen})["offsets_partitions"]
        return row[first], row[newest]

    before, seen, tonight = PartitionHistory(first_record=old, newest_record=old), Evidence(new, new), log(0, 10, 0)
    assert remembered(before, seen, None, tonight) == (9, 9)
    assert remembered(before, Evidence(), None, tonight) == (3, 3)
    assert remembered(before, Evidence()) == (3, 3)
    assert remembered(before, seen, PointInTime(5, NO_HISTORY, 5), tonight) == (3, 3)
    assert remembered(PartitionHistory(), seen, PointInTime(5, NO_HISTORY, 5), tonight) == (9, 9)
    assert remembered(PartitionHistory(), Evidence(), None, tonight) == (None, None)


def test_records_that_are_gone_before_the_moment_are_a_warning() -> None:
    report = read(0, 40, 30)
    report.records_after_complete = 13
    warnings = rows_of_driver(plan(log(0, 120, 0)), [report], points_in_time={0: PointInTime(40, NO_HISTORY, 20)})["warnings"]
    (row,) = [row for row in warnings if row["code"] == "compacted_before_until"]
    assert row["detail"] == (
        "State up to offset 40 may not be exact: neither the log nor the history has a record for 7 offsets of the 20 from 20 on."
    )


def test_a_partition_that_the_settings_rule_out_contradicts_them() -> None:
    logs = plan(log(0, 1, 0, number=50))
    assert contradiction(replace(REQUEST, offsets_partitions=51), logs) is None
    assert contradiction(REQUEST, logs) is None
    assert "__consumer_offsets-50" in str(contradiction(replace(REQUEST, offsets_partitions=50), logs))


def test_coverage_adds_up_partitions_and_counts_damaged_batches_without_a_key_type() -> None:
    damaged = read(0, 10, 4, number=1)
    damaged.counts.lost = damaged.counts.new_lost = 6
    rows = rows_of_driver(plan(log(0, 10, 0), log(0, 10, 0, 1)), [read(0, 10, 10), damaged])["decode_coverage"]
    assert [(row["key_type"], row["value_version"], row["key_name"], row["records"], row["quarantined"]) for row in rows] == [
        (-1, None, None, 6, 6),
        (1, 3, "OffsetCommitKey", 14, 0),
    ]


def test_files_of_all_reports_are_gathered_by_table() -> None:
    one, two = PartitionReport(0, files={"groups": ["a"]}), PartitionReport(1, files={"groups": ["b"], "members": ["c"]})  # type: ignore[list-item]
    assert files_by_table([one, two]) == {"groups": ["a", "b"], "members": ["c"]}


CARRIED_ROW = {
    "offsets_partition": 0, "incarnation": 0, "first_offset": 0, "end_offset": 100, "last_stable_offset": 90, "latest_records": 7,
    "records": 100, "decoded": 98, "quarantined": 2, "control_records": 3, "live_keys": 5, "bytes": 1000, "newest_timestamp_ms": 50,
    "history_first_offset": 0, "history_end_offset": 100, "stale_since_ms": None, "read_from": None, "segment_bytes": None,
}
NIGHT_BEFORE = PartitionHistory(HistoryRange(0, 0, 100), 100, 90, 50)


def goes_on(*, gap: tuple[int, int] | None = None) -> CarryOver:
    state = CarriedState({}, {0: 100}, {0: 7})
    return CarryOver(state=state, rows={0: CARRIED_ROW}, segments={0: ()}, gaps={} if gap is None else {0: gap})


def test_counts_of_a_partition_that_goes_on_are_added_to_those_of_the_night_before() -> None:
    (row,) = rows_of_driver(plan(log(0, 120, 0)), [read(100, 120, 20)], {0: NIGHT_BEFORE}, carry_over=goes_on())["offsets_partitions"]
    assert (row["records"], row["decoded"], row["quarantined"], row["control_records"]) == (120, 118, 2, 3)
    assert (row["read_from"], row["end_offset"], row["history_first_offset"], row["history_end_offset"]) == (100, 120, 0, 120)


def test_surviving_share_of_a_night_that_goes_on_is_that_of_its_own_records() -> None:
    assert surviving_share(plan(log(0, 120, 0)), [read(100, 120, 20)], {}, goes_on()) == 1.0


def test_a_partition_that_the_input_lacks_keeps_its_row_and_says_since_when() -> None:
    carry_over = replace(goes_on(), stale_since_ms={0: 12})
    (row,) = rows_of_driver(plan(), [], {0: NIGHT_BEFORE}, carry_over=carry_over)["offsets_partitions"]
    assert row == {**CARRIED_ROW, "stale_since_ms": 12, "read_from": 100}


def test_no_look_back_goes_over_a_gap() -> None:
    rows = rows_of_driver(plan(log(110, 120, 110)), [read(110, 120, 10)], {0: NIGHT_BEFORE}, carry_over=goes_on(gap=(100, 110)))
    assert [row["read_from"] for row in rows["offsets_partitions"]] == [110]


def test_coverage_goes_on_from_the_night_before() -> None:
    before = {"key_type": 1, "value_version": 3, "records": 5, "bytes": 50, "decoded": 4, "misplaced": 1}
    counts = PartitionCounts(new_by_kind={(1, 3): KindCount(2, 20, 2, 0)})
    report = PartitionReport(0, counts)
    (row,) = rows_of_driver(plan(log(0, 1, 0)), [report], carry_over=CarryOver(coverage=[before]))["decode_coverage"]
    assert (row["records"], row["bytes"], row["decoded"], row["quarantined"], row["misplaced"]) == (7, 70, 6, 1, 1)
