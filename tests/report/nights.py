"""Small warehouses for the report, made by hand without Spark."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupcoord_spark.warehouse import Run
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, member, night, offset

HOUR_MS = 3_600_000
LONG = "long-" + "x" * 10_000
HOSTILE = (
    "</script><script>document.title = 'broken'</script>",
    "<img src=x onerror=\"document.title = 'broken'\">",
    "bell\x07 and turn\u202e around",
    "=1+1",
    "${title} %s {{ datum }} datum.name",
    "",
    LONG,
)
"""Group ids that a page could read as something else than a text."""

TRAPS = ("inherits_empty_time", "topic_is_unsubscribed", "is_simple_group", "has_explicit_expiry", "may_come_back", "retention_changed")


def expiration(group_id: str, topic: str, partition: int, expires_at_ms: int | None, **fields: Any) -> dict[str, Any]:
    facts = {"group_id": group_id, "topic": topic, "partition": partition, "as_of_ms": AS_OF_MS, "retention_ms": 7 * DAY_MS}
    return {**facts, **dict.fromkeys(TRAPS, False), "expires_at_ms": expires_at_ms, "expired": False, "rule": "X-B1", **fields}


def offsets_partition(end_offset: int, **fields: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("quarantined", "control_records", "live_keys", "bytes"), 0)
    ends = {"first_offset": 0, "end_offset": end_offset, "last_stable_offset": end_offset, "records": end_offset, "decoded": end_offset}
    history = {"history_first_offset": 0, "history_end_offset": end_offset}
    return {"offsets_partition": 0, "incarnation": 0, **counts, **ends, **history, **fields}


def assignment(**partitions: list[int]) -> str:
    """Return an assignment of topics and their partitions in base64, as the value of a GroupMetadata record has it."""
    topics = b"".join(
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in partitions.items()
    )
    return base64.b64encode(struct.pack(">hi", 0, len(partitions)) + topics + struct.pack(">i", -1)).decode()


def generation(record_offset: int, at_ms: int, members: Mapping[str, Mapping[str, list[int]]], group_id: str = "moves") -> dict[str, Any]:
    """Return a row of group_records: a generation of a classic group, with the partitions of each member."""
    value = {"protocolType": "consumer", "members": [{"memberId": m, "assignment": assignment(**parts)} for m, parts in members.items()]}
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "record_timestamp_ms": at_ms}
    facts = {"group_id": group_id, "key_type": 2, "key_json": "{}", "is_tombstone": False, "is_transactional": False, "key_size": 5}
    return {**place, **facts, "value_size": 20, "value_version": 3, "value_json": json.dumps(value)}


def rebalance(record_offset: int, at_ms: int, members: int, group_id: str = "moves") -> dict[str, Any]:
    """Return a row of rebalances."""
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "record_timestamp_ms": at_ms}
    kind = {"group_id": group_id, "group_type": "classic", "kind": "generation", "to_generation": record_offset, "member_count": members}
    return {**place, **kind, "cause": "member_joined", "evidence": "", "confidence": "likely"}


def eventful(place: Path, **fields: Any) -> Run:
    """Return a run with something of everything: a group that moves and goes back, hostile group ids, lag, an open transaction, faults."""
    before = AS_OF_MS - 2 * DAY_MS
    moves = [before, before + HOUR_MS, before + DAY_MS]
    commits = [
        commit(
            number,
            group_id="moves",
            topic="orders",
            partition=partition,
            committed_offset=at,
            record_timestamp_ms=ms,
            commit_timestamp_ms=ms,
        )
        for number, partition, at, ms in (
            *(
                (3, 0, 10, before + 60_000),
                (4, 1, 10, before + 120_000),
                (5, 0, 90, before + 2 * HOUR_MS),
                (6, 1, 90, before + 2 * HOUR_MS),
            ),
            *((7, 0, 20, before + DAY_MS + HOUR_MS), (8, 1, 95, before + DAY_MS + HOUR_MS)),
        )
    ]
    hostile = [
        commit(
            9 + number, group_id=group_id, topic="orders", record_timestamp_ms=AS_OF_MS - HOUR_MS, commit_timestamp_ms=AS_OF_MS - HOUR_MS
        )
        for number, group_id in enumerate(HOSTILE)
    ]
    rows = {
        "groups": [
            group("moves", state="Stable", member_count=2, topic_count=1, offset_count=2, generation=3, subscribed_topics=["payments"]),
            *(group(group_id, is_simple=True, protocol_type=None, generation=None, offset_count=1, topic_count=1) for group_id in HOSTILE),
        ],
        "members": [member("moves", "one"), member("moves", "two")],
        "committed_offsets": [
            offset("moves", "orders", 0, 20),
            offset("moves", "orders", 1, 95),
            *(offset(group_id, "orders", 0, 2**63 - 1) for group_id in HOSTILE),
        ],
        "offset_expirations": [
            expiration("moves", "orders", 0, None, blocked_by="subscribed"),
            expiration("moves", "orders", 1, AS_OF_MS + DAY_MS // 2, topic_is_unsubscribed=True),
            *(expiration(group_id, "orders", 0, AS_OF_MS + number * DAY_MS) for number, group_id in enumerate(HOSTILE)),
        ],
        "group_expirations": [
            {"group_id": name, "as_of_ms": AS_OF_MS, "removed": False, "removed_at_ms": None, "blocked_by": "offsets", "tombstone_count": 0}
            for name in ("moves", *HOSTILE)
        ],
        "pending_offsets": [
            {**offset("moves", "orders", 2, 5, record_timestamp_ms=AS_OF_MS - 5 * HOUR_MS), "producer_id": 7, "producer_epoch": 0},
        ],
        "offset_commits": [*commits, *hostile],
        "group_records": [
            generation(0, moves[0], {"one": {"orders": [0, 1]}}),
            generation(1, moves[1], {"one": {"orders": [0]}, "two": {"orders": [1]}}),
            generation(2, moves[2], {"one": {"orders": [1]}, "two": {"orders": [0]}}),
        ],
        "rebalances": [rebalance(number, at_ms, 1 if number == 0 else 2) for number, at_ms in enumerate(moves)],
        "log_ends": [
            {"topic": "orders", "partition": 0, "start_offset": 15, "end_offset": 120, "sampled_at_ms": AS_OF_MS, "run_id": "sampled"},
            {"topic": "orders", "partition": 1, "start_offset": 0, "end_offset": 120, "sampled_at_ms": AS_OF_MS, "run_id": "sampled"},
        ],
        "offsets_partitions": [offsets_partition(9 + len(HOSTILE))],
    }
    return night(place, "prod </title>", rows, as_of_ms=AS_OF_MS, records_read=9 + len(HOSTILE), **fields)
