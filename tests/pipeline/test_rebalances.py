"""The table of rebalances over several runs: appended, complete, and the same however the log was cut."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupcoord_spark.protocol import encode_value
from groupcoord_spark.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from groupcoord_spark.protocol.record_types import KeyType
from tests.conftest import SAMPLE_LOGS
from tests.log.log_writer import T0
from tests.pipeline.logs import LogRecord, classic_group_key
from tests.pipeline.segment_files import write_log
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession


def generation(record_offset: int, number: int, group_id: str = "g", **partitions: tuple[int, ...]) -> LogRecord:
    """Return a group's record with the given members and their assignments."""
    members = [
        {
            "member_id": name,
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "rebalance_timeout_ms": 300_000,
            "session_timeout_ms": 10_000,
            "subscription": encode_subscription(Subscription(1, ("t",), None, {}, -1, None)),
            "assignment": encode_assignment(Assignment(1, {"t": held}, None)),
        }
        for name, held in partitions.items()
    ]
    value = {
        "protocol_type": "consumer",
        "generation": number,
        "protocol": "range" if members else None,
        "leader": next(iter(partitions), None),
        "current_state_timestamp_ms": T0 + 1_000 * number,
        "members": members,
    }
    return LogRecord(record_offset, classic_group_key(group_id), encode_value(KeyType.GROUP_METADATA, 3, value))


LOG = [
    generation(0, 1, a=(0, 1, 2, 3)),
    generation(1, 1, "other", x=(0, 1)),
    generation(2, 2, a=(0, 1), b=(2, 3)),
    generation(3, 3, a=(0, 1, 2, 3)),
    generation(4, 2, "other"),
    generation(5, 4, a=(0, 1), c=(2, 3)),
    LogRecord(6, classic_group_key("other"), None),
    generation(7, 1, "other", y=(0, 1)),
    generation(8, 5, a=(0, 1, 2), c=(3,)),
]


def rebalances(warehouse: Path) -> list[dict[str, Any]]:
    return sorted(rows_of(warehouse, "rebalances"), key=lambda row: row["record_offset"])


def told(warehouse: Path) -> list[tuple[Any, ...]]:
    columns = ("record_offset", "group_id", "from_generation", "to_generation", "joined_count", "left_count", "partitions_moved", "cause")
    return [tuple(row[column] for column in columns) for row in rebalances(warehouse)]


EXPECTED = [
    (0, "g", None, 1, 1, 0, 0, "member_joined"),
    (1, "other", None, 1, 1, 0, 0, "member_joined"),
    (2, "g", 1, 2, 1, 0, 2, "member_joined"),
    (3, "g", 2, 3, 0, 1, 2, "member_left"),
    (4, "other", 1, 2, 0, 1, 0, "member_left"),
    (5, "g", 3, 4, 1, 0, 2, "member_joined"),
    (7, "other", None, 1, 1, 0, 0, "member_joined"),
    (8, "g", 4, 5, 0, 0, 1, "leader_rejoined"),
]


def test_every_new_generation_is_a_row_also_of_records_that_later_ones_supersede(local: LocalSession, tmp_path: Path) -> None:
    write_log(tmp_path / "logs", LOG, segments=3, largest_batch=2)
    run(local, tmp_path / "w", tmp_path / "logs")
    assert told(tmp_path / "w") == EXPECTED
    run(local, tmp_path / "w", tmp_path / "logs")
    assert told(tmp_path / "w") == EXPECTED


def test_a_night_goes_on_from_the_state_of_the_last_with_history_where_the_log_was_cleaned(local: LocalSession, tmp_path: Path) -> None:
    write_log(tmp_path / "first", LOG[:5])
    run(local, tmp_path / "w", tmp_path / "first")
    write_log(tmp_path / "between", LOG[:6])
    run(local, tmp_path / "w", tmp_path / "between", with_history=False)
    write_log(tmp_path / "cleaned", LOG[5:], largest_batch=1)
    run(local, tmp_path / "w", tmp_path / "cleaned")
    assert told(tmp_path / "w") == EXPECTED


def test_a_night_without_history_writes_none(local: LocalSession, tmp_path: Path) -> None:
    run(local, tmp_path / "w", SAMPLE_LOGS, with_history=False)
    assert rebalances(tmp_path / "w") == []
