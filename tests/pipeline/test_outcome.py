"""What a run says of its inputs after its workers are done."""

from __future__ import annotations

from groupcoord_spark.log import LogPlan, PartitionLog
from groupcoord_spark.pipeline.exchange.counts import KindCount, PartitionCounts
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import NO_HISTORY, PointInTime
from groupcoord_spark.pipeline.outcome import completeness


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
