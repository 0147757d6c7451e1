"""What earlier runs left: how far each offsets partition was read, which records were seen, and its incarnation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.log import LogPlan, RecordMark
from groupcoord_spark.pipeline.exchange.carried_records import LATEST_RECORDS
from groupcoord_spark.pipeline.extents import HistoryRange
from groupcoord_spark.pipeline.plan.earlier_runs import (
    BEYOND_SETTING,
    FIRST_RECORD,
    NEWEST_RECORD,
    PartitionHistory,
    last_setting,
    latest_records_at_history_end,
    mark_fields,
    partition_histories,
    remembered_offsets,
)
from groupcoord_spark.pipeline.plan.guards import Verdict
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.warehouse import TABLES

NEWEST_MS = 5_000
FIRST, NEWEST = RecordMark(10, 4_000, 1), RecordMark(98, NEWEST_MS, 2)


def start(*rows: dict[str, Any], runs: tuple[Any, ...] = ()) -> Any:
    """Return a RunStart after a run that left these rows of offsets_partitions."""
    return SimpleNamespace(
        cluster="c",
        location=SimpleNamespace(uri="w"),
        previous=lambda table, columns: TABLES[table].from_rows(rows).select(columns),
        finished=runs,
        last_run=None,
        warehouse=SimpleNamespace(check_files=lambda table, run: None),
    )


def start_without_offsets_partitions(ends: dict[tuple[int, int], int], *survivors: dict[str, Any], history: str = "true") -> Any:
    """Return a RunStart after that table was deleted. ends: what the history tables say themselves, by (offsets partition, incarnation)."""
    tables = {"offsets_partitions": (), "surviving_records": survivors}
    return SimpleNamespace(
        cluster="c",
        location=SimpleNamespace(uri="w"),
        previous=lambda table, columns: TABLES[table].from_rows(tables[table]).select(columns),
        history_end=lambda partition, incarnation: ends.get((partition, incarnation)),
        last_run=SimpleNamespace(settings={"history": history}),
    )


def partition_row(**fields: Any) -> dict[str, Any]:
    return {
        "cluster": "c",
        "offsets_partition": 0,
        "incarnation": 2,
        "first_offset": 0,
        "end_offset": 100,
        "last_stable_offset": 90,
        **dict.fromkeys(("records", "decoded", "quarantined", "control_records", "live_keys", "bytes"), 0),
        "newest_timestamp_ms": NEWEST_MS,
        "history_first_offset": 10,
        "history_end_offset": 100,
        **mark_fields(FIRST_RECORD, FIRST),
        **mark_fields(NEWEST_RECORD, NEWEST),
        **fields,
    }


KNOWN = PartitionHistory(HistoryRange(2, 10, 100), 100, 90, NEWEST_MS, 0, FIRST, NEWEST)


def test_a_first_run_knows_nothing() -> None:
    assert partition_histories(start()) == {}


def test_a_run_knows_what_the_last_run_read_and_which_records_it_saw() -> None:
    assert partition_histories(start(partition_row())) == {0: KNOWN}


def test_a_partition_without_records_has_no_marks_and_no_times() -> None:
    empty = partition_row(newest_timestamp_ms=NO_TIMESTAMP, **mark_fields(FIRST_RECORD, None), **mark_fields(NEWEST_RECORD, None))
    known = partition_histories(start(empty))[0]
    assert (known.newest_timestamp_ms, known.first_record, known.newest_record) == (NO_TIMESTAMP, None, None)


def test_a_mark_whose_time_no_timestamp_can_hold_has_no_time() -> None:
    known = partition_histories(start(partition_row(newest_record_timestamp_ms=2**62)))[0]
    assert known.newest_record == RecordMark(98, NO_TIMESTAMP, 2)


def test_a_topic_begun_anew_has_the_next_incarnation_of_which_nothing_is_known() -> None:
    histories = Verdict(LogPlan((), None, None, ()), recreated=frozenset([1])).histories({0: KNOWN, 1: KNOWN})
    assert histories == {0: KNOWN, 1: PartitionHistory(HistoryRange(3, 0, 0))}


def test_the_offsets_that_several_clusters_remember_come_together() -> None:
    other = PartitionHistory(first_record=RecordMark(7, 1, 1))
    assert remembered_offsets([{0: KNOWN, 3: PartitionHistory()}, {0: other}]) == {0: frozenset({7, 10, 98}), 3: frozenset()}


def test_the_last_setting_is_that_of_the_newest_run_that_has_it() -> None:
    runs = tuple(SimpleNamespace(settings=settings) for settings in ({"a": "1"}, {"a": "2"}, {"b": "3"}))
    assert (last_setting(start(runs=runs), "a"), last_setting(start(runs=runs), "c")) == ("2", None)


def finished(history: str | None, version: int, **settings: str) -> Any:
    of_run = {} if history is None else {"history": history, **settings}
    return SimpleNamespace(settings=of_run, is_kept=True, table_versions={"groups": 1, LATEST_RECORDS: version}, tables=version)


def test_state_at_the_end_of_the_history_is_that_of_the_newest_run_that_wrote_history_to_the_end() -> None:
    runs = (finished("true", 1), finished("true", 2), finished("false", 3), finished("true", 4, until="2026-01-01"), finished(None, 5))
    assert latest_records_at_history_end(start(runs=runs)) == 2
    assert latest_records_at_history_end(start(runs=runs[2:])) is None


def test_a_run_over_an_older_dump_has_not_the_state_at_the_end_of_the_history() -> None:
    runs = (finished("true", 1), finished("true", 2, **{BEYOND_SETTING: "true"}))
    assert latest_records_at_history_end(start(runs=runs)) == 1


def test_without_offsets_partitions_the_history_tables_say_how_far_they_go() -> None:
    survivors = [
        {"offsets_partition": 0, "incarnation": i, "run_id": "r", "first_offset": first, "end_offset": first + 1}
        for i, first in ((0, 0), (1, 30), (1, 7))
    ]
    known = partition_histories(start_without_offsets_partitions({(0, 0): 900, (0, 1): 60}, *survivors), [0])
    assert known == {0: PartitionHistory(HistoryRange(1, 7, 60))}


def test_without_offsets_partitions_a_history_that_does_not_say_its_end_is_refused() -> None:
    with pytest.raises(WarehouseError, match="offsets_partitions of w is gone"):
        partition_histories(start_without_offsets_partitions({}), [0])
    assert partition_histories(start_without_offsets_partitions({}, history="false"), [0]) == {}
