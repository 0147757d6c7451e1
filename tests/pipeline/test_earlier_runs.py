"""What a run knows from earlier runs: how far each offsets partition was read, and its incarnation."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.log import LogPlan, PartitionLog
from groupcoord_spark.pipeline.extents import HistoryRange
from groupcoord_spark.pipeline.plan.earlier_runs import (
    PartitionHistory,
    partition_histories,
    state_versions_at_history_end,
)
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP

NEWEST_MS = 5_000


def start(*rows: dict[str, Any], runs: tuple[Any, ...] = ()) -> Any:
    """A RunStart after a run that left these rows of offsets_partitions."""
    return SimpleNamespace(previous=lambda table, columns: pa.Table.from_pylist(list(rows)), finished=runs, last_run=None)


def start_without_offsets_partitions(ends: dict[tuple[int, int], int], *survivors: dict[str, Any], history: str = "true") -> Any:
    """A RunStart after that table was deleted. ends: what the history tables say themselves, by (offsets partition, incarnation)."""
    tables = {"offsets_partitions": (), "surviving_records": survivors}
    return SimpleNamespace(
        cluster="c",
        location=SimpleNamespace(uri="w"),
        previous=lambda table, columns: pa.Table.from_pylist(list(tables[table])),
        history_end=lambda partition, incarnation: ends.get((partition, incarnation)),
        last_run=SimpleNamespace(settings={"history": history}),
    )


def partition_row(**fields: Any) -> dict[str, Any]:
    return {
        "offsets_partition": 0,
        "incarnation": 2,
        "end_offset": 100,
        "last_stable_offset": 90,
        "newest_timestamp": datetime.fromtimestamp(NEWEST_MS / 1000, UTC),
        "history_first_offset": 10,
        "history_end_offset": 100,
        **fields,
    }


def plan(first_offset: int | None, first_timestamp_ms: int | None, end_offset: int = 200) -> LogPlan:
    return LogPlan((PartitionLog(0, "d", (), first_offset, first_timestamp_ms, end_offset, 0),), None, None, ())


KNOWN = PartitionHistory(HistoryRange(2, 10, 100), 100, 90, NEWEST_MS)


def test_a_first_run_knows_nothing() -> None:
    assert partition_histories(plan(0, 1), start()) == {}


@pytest.mark.parametrize(
    ("first_offset", "first_timestamp_ms"),
    [(50, NEWEST_MS - 1), (50, NEWEST_MS), (150, NEWEST_MS + 1), (100, NEWEST_MS + 1), (None, None), (50, NO_TIMESTAMP)],
)
def test_a_log_that_grew_keeps_its_incarnation(first_offset: int | None, first_timestamp_ms: int | None) -> None:
    assert partition_histories(plan(first_offset, first_timestamp_ms), start(partition_row())) == {0: KNOWN}


def test_a_newer_record_below_the_end_begins_the_next_incarnation() -> None:
    begun_anew = PartitionHistory(HistoryRange(3, 0, 0), 0, 0, NO_TIMESTAMP)
    assert partition_histories(plan(0, NEWEST_MS + 1), start(partition_row())) == {0: begun_anew}


def test_without_timestamps_no_topic_counts_as_begun_anew() -> None:
    known = partition_histories(plan(0, 1), start(partition_row(newest_timestamp=None)))
    assert known[0].newest_timestamp_ms == NO_TIMESTAMP and known[0].history_range.incarnation == 2


def test_a_partition_that_the_input_lacks_stays_known() -> None:
    assert partition_histories(LogPlan((), None, None, ()), start(partition_row())) == {0: KNOWN}


def finished(history: str | None, version: int, **settings: str) -> Any:
    fields = None if history is None else [("history", history), *settings.items()]
    return SimpleNamespace(fields={"settings": fields}, table_versions={"groups": version})


def test_state_at_the_end_of_the_history_is_that_of_the_newest_run_that_wrote_history_to_the_end() -> None:
    runs = (finished("true", 1), finished("true", 2), finished("false", 3), finished("true", 4, until="2026-01-01"), finished(None, 5))
    assert state_versions_at_history_end(start(runs=runs)) == {"groups": 2}
    assert state_versions_at_history_end(start(runs=runs[2:])) is None


def test_without_offsets_partitions_the_history_tables_say_how_far_they_go() -> None:
    survivors = [{"offsets_partition": 0, "incarnation": i, "first_offset": first} for i, first in ((0, 0), (1, 30), (1, 7))]
    known = partition_histories(plan(5, 1), start_without_offsets_partitions({(0, 0): 900, (0, 1): 60}, *survivors))
    assert known == {0: PartitionHistory(HistoryRange(1, 7, 60))}


def test_without_offsets_partitions_a_history_that_does_not_say_its_end_is_refused() -> None:
    with pytest.raises(WarehouseError, match="offsets_partitions of w is gone"):
        partition_histories(plan(5, 1), start_without_offsets_partitions({}))
    assert partition_histories(plan(5, 1), start_without_offsets_partitions({}, history="false")) == {}
