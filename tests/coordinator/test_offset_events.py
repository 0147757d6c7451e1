"""The rules of offset events, over a few rows of the history."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord_spark.coordinator.semantics import JAVA
from tests.coordinator.simple_offset_events import offset_events_of

HOUR_MS = 3_600_000


def commit(record_offset: int, at_ms: int, partition: int, committed_offset: int | None, leader_epoch: int | None = None) -> dict[str, Any]:
    """Return a row of offset_commits; without committed_offset a tombstone."""
    place = {"incarnation": 0, "offsets_partition": 0, "record_offset": record_offset, "record_timestamp_ms": at_ms}
    key = {"group_id": "g", "topic": "t", "partition": partition, "is_tombstone": committed_offset is None}
    return {**place, **key, "committed_offset": committed_offset, "leader_epoch": leader_epoch, "commit_timestamp_ms": at_ms}


@pytest.mark.parametrize(
    ("first_commits", "expected"),
    [
        pytest.param([(0, 70, None)], {0: ("skipped", "likely")}, id="a position that was set"),
        pytest.param([(0, 70, 3)], {}, id="a position that was read to"),
        pytest.param([(0, 70, 3), (1, 70, None)], {0: ("skipped", "possible"), 1: ("skipped", "likely")}, id="beside one that was set"),
        pytest.param([(0, 70, 3), (1, 5, 3)], {0: ("rewound", "possible"), 1: ("rewound", "certain")}, id="beside one that began low"),
        pytest.param([(0, 70, 3), (1, 80, 3)], {}, id="beside one that was read to"),
    ],
)
def test_a_commit_above_the_removed_offset_is_a_skip_where_a_position_was_set(
    first_commits: list[tuple[int, int, int | None]], expected: dict[int, tuple[str, str]]
) -> None:
    before = [commit(partition, 1, partition, 50, 3) for partition in (0, 1)]
    removed = [commit(2 + partition, HOUR_MS, partition, None) for partition in (0, 1)]
    after = [commit(4 + number, 2 * HOUR_MS, *values) for number, values in enumerate(first_commits)]
    events = offset_events_of({"offset_commits": [*before, *removed, *after]}, JAVA, 1_000)
    assert {row["partition"]: (row["kind"], row["certainty"]) for row in events if row["kind"] != "removed"} == expected
