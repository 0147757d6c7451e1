"""What happened to a log since the last run: a row for each case, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groupcoord_spark.log import EpochAt, LogPlan, RecordMark
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.log_changes import ComparedLog, LogChange, change_of, compared_logs
from groupcoord_spark.protocol.record_types import CLOCKS_DIFFER_MS, NO_TIMESTAMP
from tests.pipeline.test_guards import FIRST, NEWEST, SEEN, UNSEEN, evidence, log, other

HOUR_MS = CLOCKS_DIFFER_MS
EPOCH_3 = replace(SEEN, leader_epoch=3)
LATE = PartitionHistory(
    end_offset=100,
    newest_timestamp_ms=9 * HOUR_MS,
    first_offset=0,
    first_record=RecordMark(50, 5 * HOUR_MS, 1),
    newest_record=RecordMark(99, 9 * HOUR_MS, 2),
)
NEW = RecordMark(120, 12_000, 5)


def change(last: PartitionHistory, seen: Evidence, end: int = 150, first: int | None = 0, start: int | None = 0, **known: Any) -> LogChange:
    return change_of(ComparedLog(log(0, end, first, start), last, seen, **known))


def epochs(*at: tuple[int, int], starts: tuple[tuple[int, int], ...] = (), marks: tuple[RecordMark, ...] = (FIRST,)) -> Evidence:
    """Of a log whose newest remembered record is cleaned away."""
    return replace(evidence(*marks), epochs=tuple(EpochAt(*each) for each in at), epoch_starts=starts)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (evidence(other(FIRST), NEWEST), LogChange.CONTINUED),
        (evidence(FIRST, other(NEWEST)), LogChange.END_REPLACED),
        (evidence(FIRST), LogChange.UNPROVEN),
        (evidence(other(FIRST)), LogChange.RECREATED),
        (evidence(other(NEWEST)), LogChange.RECREATED),
        (evidence(RecordMark(0, 1_001, FIRST.crc)), LogChange.RECREATED),
        (evidence(RecordMark(0, NO_TIMESTAMP, FIRST.crc)), LogChange.UNPROVEN),
        (evidence(NEW), LogChange.UNPROVEN),
    ],
)
def test_the_newest_record_decides_first(seen: Evidence, expected: LogChange) -> None:
    assert change(SEEN, seen) is expected


@pytest.mark.parametrize(
    ("offset", "timestamp_ms", "expected"),
    [
        (99, 9_001, LogChange.RECREATED),
        (99, 9_000, LogChange.UNPROVEN),
        (100, 9_001, LogChange.UNPROVEN),
        (0, NO_TIMESTAMP, LogChange.UNPROVEN),
    ],
)
def test_without_remembered_records_a_newer_record_below_the_end_is_of_another_log(
    offset: int, timestamp_ms: int, expected: LogChange
) -> None:
    assert change(UNSEEN, evidence(RecordMark(offset, timestamp_ms, 1))) is expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        # A higher epoch below the end: by the checkpoint, or by batches alone.
        (epochs((4, 149), starts=((3, 0), (4, 95))), LogChange.TRUNCATED),
        (epochs((4, 149), (4, 99)), LogChange.TRUNCATED),
        (epochs((4, 149), (3, 80), marks=(FIRST, other(NEWEST)), starts=((3, 0), (4, 95))), LogChange.TRUNCATED),
        (epochs((4, 149), (4, 99), marks=(FIRST, NEWEST)), LogChange.TRUNCATED),
        (epochs((4, 149), (2, 99)), LogChange.TRUNCATED),
        # An ordinary change of leader.
        (epochs((4, 149), starts=((3, 0), (4, 100))), LogChange.CONTINUED),
        (epochs((4, 149), (3, 99)), LogChange.CONTINUED),
        (epochs((3, 149)), LogChange.CONTINUED),
        (epochs((3, 149), marks=(RecordMark(20, 2_000, 7),)), LogChange.CONTINUED),
        # Whether epoch 4 began below the end is not known, nor whether a checkpoint that lacks epoch 5 tells.
        (epochs((4, 149), (3, 80)), LogChange.UNPROVEN),
        (epochs((5, 149), (3, 80), starts=((3, 0), (4, 100))), LogChange.UNPROVEN),
        (epochs((3, 149), marks=(NEW,)), LogChange.UNPROVEN),
        # A deposed leader went on writing.
        (epochs((2, 149)), LogChange.OLDER),
        (epochs((2, 149), (2, 99)), LogChange.OLDER),
        # Another topic, whose epochs are higher.
        (epochs((4, 149), (4, 99), marks=(other(FIRST),)), LogChange.RECREATED),
        (epochs((4, 149), (4, 99), marks=(RecordMark(2, 9_500, 7),)), LogChange.RECREATED),
    ],
)
def test_leader_epochs_prove_a_truncation_or_that_there_was_none(seen: Evidence, expected: LogChange) -> None:
    assert change(EPOCH_3, seen, is_same_topic=True if FIRST in seen.remembered.values() else None) is expected


def test_the_topic_id_decides_before_records_and_epochs() -> None:
    assert change(EPOCH_3, epochs((3, 149), marks=(FIRST, NEWEST)), is_same_topic=False) is LogChange.RECREATED
    truncated = epochs((4, 149), (4, 99), marks=(other(NEWEST),))
    assert change(EPOCH_3, truncated, is_same_topic=True) is LogChange.TRUNCATED
    assert change(EPOCH_3, epochs((3, 149), marks=(NEW,)), is_same_topic=True) is LogChange.CONTINUED


@pytest.mark.parametrize(
    ("log_range", "expected"),
    [
        ((99, 0, 0), LogChange.OLDER),
        ((100, 0, 0), LogChange.CONTINUED),
        ((50, None, 50), LogChange.EMPTIED),
        ((150, 0, 40), LogChange.BEGINS_LATER),
        ((150, 120, 110), LogChange.CONTINUED),
    ],
)
def test_the_ends_of_the_log_decide(log_range: tuple[int, int | None, int], expected: LogChange) -> None:
    assert change(SEEN, evidence(FIRST, NEWEST), *log_range) is expected


def test_a_log_that_begins_earlier_is_read_whole() -> None:
    assert change(replace(SEEN, first_offset=7), evidence(FIRST, NEWEST)) is LogChange.BEGINS_EARLIER


def test_rows_without_the_last_marker_are_not_older() -> None:
    assert change(SEEN, evidence(FIRST, NEWEST), 99, end_is_known=False) is LogChange.CONTINUED


@pytest.mark.parametrize(
    ("marks", "is_odd"),
    [
        ([RecordMark(49, 5 * HOUR_MS, 7)], True),
        ([RecordMark(51, 5 * HOUR_MS, 7)], False),
        ([RecordMark(51, 4 * HOUR_MS, 7), RecordMark(98, 6 * HOUR_MS, 7)], False),
        ([RecordMark(51, 4 * HOUR_MS - 1, 7)], True),
        ([RecordMark(51, NO_TIMESTAMP, 7)], False),
        ([RecordMark(51, 5 * HOUR_MS, 7), RecordMark(300, 8 * HOUR_MS - 1, 7)], True),
        ([RecordMark(51, 5 * HOUR_MS, 7), RecordMark(300, 8 * HOUR_MS, 7)], False),
    ],
)
def test_an_order_that_no_cleaning_leaves_is_odd_unless_the_topic_is_known(marks: list[RecordMark], is_odd: bool) -> None:
    assert change(LATE, evidence(*marks)) is (LogChange.ODD if is_odd else LogChange.UNPROVEN)
    assert change(LATE, evidence(*marks), is_same_topic=True) is LogChange.UNPROVEN


def test_a_partition_that_is_known_shows_the_topic_of_all() -> None:
    plan, last = LogPlan((log(0, 150), log(1, 150)), None, None, ()), {0: EPOCH_3, 1: EPOCH_3}
    seen = {0: epochs((3, 149)), 1: epochs((4, 149), (4, 99), marks=(other(NEWEST),))}
    assert [change_of(each) for each in compared_logs(plan, last, seen).values()] == [LogChange.CONTINUED, LogChange.TRUNCATED]
