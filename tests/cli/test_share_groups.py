"""Share groups, settings of groups and transactional ids in the commands, on small warehouses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, group, night, offset
from tests.warehouse.view_rows import SHARE_TOPIC_ID, end, record, share_offset, topic

OLD = "MkTRaXlSRfWvFLT1M3hZWA"


@pytest.fixture
def place(tmp_path: Path) -> str:
    initialized = [{"topicId": SHARE_TOPIC_ID, "topicName": "t", "partitions": [0, 1, 2]}]
    metadata = json.dumps({"initializingTopics": [], "initializedTopics": initialized, "deletingTopics": []})
    positions = [
        share_offset(0, start_offset=10, delivery_complete_count=3, leader_epoch=2),
        share_offset(1, start_offset=None, delivery_complete_count=0),
        share_offset(2, start_offset=5, delivery_complete_count=None),
        share_offset(3, start_offset=5, delivery_complete_count=0),  # not initialized
        share_offset(0, topic_id=OLD, start_offset=5, delivery_complete_count=0),  # of a topic that was deleted
    ]
    rows = {
        "groups": [group("share", group_type="share"), group("idle", group_type="share"), group("plain")],
        "share_offsets": positions,
        "group_records": [record(1, group_id="share", key_type=15, value_json=metadata)],
        "topics": [topic("t", SHARE_TOPIC_ID)],
        "log_ends": [end("t", partition, 30, source="checkpoint", written_at_ms=AS_OF_MS) for partition in range(4)],
        "group_configs": [{"group_id": "plain", "name": "consumer.session.timeout.ms", "value": "250000"}],
        "pending_offsets": [offset("plain", "t", 0, 7, producer_id=5, transactional_id="tx-payout")],
    }
    night(tmp_path, "prod", rows)
    return str(tmp_path)


def test_describe_prints_what_kafka_share_groups_prints(place: str) -> None:
    result = groupcoord("describe", "--group", "share", "--verbose", "--warehouse", place)
    assert result.stdout.splitlines() == [
        "",
        "GROUP           TOPIC           PARTITION  LEADER-EPOCH  START-OFFSET  LAG",
        "share           t               0          2             10            17",
        "share           t               1          -             -             -",
        "share           t               2          1             5             -",
    ]
    assert "replication-offset-checkpoint, written at 2026-01-01" in result.stderr
    assert "has no active members" not in result.stderr
    idle = groupcoord("describe", "--group", "idle", "--warehouse", place)
    assert idle.stdout == ""
    assert "Share group 'idle' has no offset information." in idle.stderr


def test_list_counts_the_lag_of_share_groups(place: str) -> None:
    lines = groupcoord("list", "--lag", "--output", "json", "--warehouse", place).stdout.splitlines()
    assert {row["group"]: row["lag"] for row in map(json.loads, lines)} == {"share": 42, "idle": None, "plain": None}


def test_end_offsets_of_a_file_win(place: str, tmp_path: Path) -> None:
    (tmp_path / "ends").write_text("t:0:100\n")
    result = groupcoord("describe", "--group", "share", "--output", "csv", "--end-offsets", str(tmp_path / "ends"), "--warehouse", place)
    assert result.stdout.splitlines()[1].split(",")[3:7] == ["2", "10", "100", "87"]


def test_why_tells_the_position_and_the_application(place: str) -> None:
    assert "t 0: the share group starts at 10 since its epoch 1" in groupcoord("why", "--group", "share", "--warehouse", place).stdout
    answer = groupcoord("why", "--group", "plain", "--warehouse", place).stdout
    assert "the open transaction of producer 5 (transactional id 'tx-payout')" in answer


def test_state_tells_the_settings_that_a_group_has_of_its_own(place: str) -> None:
    result = groupcoord("describe", "--state", "--group", "plain", "--warehouse", place)
    assert "Group 'plain' has settings of its own: consumer.session.timeout.ms=250000." in result.stderr
