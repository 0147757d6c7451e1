"""Share groups, settings of groups and transactional ids in the commands, on small warehouses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupcoord_spark.cli.options import Common
from groupcoord_spark.report import gather
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, assignment, group, member, night, offset
from tests.warehouse.view_rows import SHARE_TOPIC_ID, end, record, share_offset, topic

OLD = "MkTRaXlSRfWvFLT1M3hZWA"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("share") / "w"
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
    night(place, "prod", rows)
    return str(place)


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
    tables = gather(*Common(place).run()).tables
    assert tables["lag_by_group"].select(["group_id", "lag"]).to_pylist() == [{"group_id": "share", "lag": 42}]
    assert sorted(lag for lag in tables["lag"]["lag"].to_pylist() if lag is not None) == [17, 25]


def test_end_offsets_of_a_file_win(place: str, tmp_path: Path) -> None:
    (tmp_path / "ends").write_text("t:0:100\n")
    result = groupcoord("describe", "--group", "share", "--output", "csv", "--end-offsets", str(tmp_path / "ends"), "--warehouse", place)
    assert result.stdout.splitlines()[1].split(",")[3:7] == ["2", "10", "100", "87"]


def test_why_tells_the_position_and_the_application(place: str) -> None:
    position = groupcoord("why", "--group", "share", "--topic", "t", "--warehouse", place).stdout
    assert "t 0,2-3 at 5 to 10 are where the share group starts since its epoch 1" in position
    assert "t 1 has no start offset yet since its epoch 1" in position
    assert f"t (id {OLD}) 0 at 5 is where the share group starts since its epoch 1, and the topic with this id is no more" in position
    answer = groupcoord("why", "--group", "plain", "--warehouse", place).stdout
    assert "the open transaction of producer 5 (transactional id 'tx-payout')" in answer


def test_state_tells_the_settings_that_a_group_has_of_its_own(place: str) -> None:
    result = groupcoord("describe", "--state", "--group", "plain", "--warehouse", place)
    assert "Group 'plain' has settings of its own: consumer.session.timeout.ms=250000." in result.stderr


def test_members_and_states_are_printed_as_kafka_share_groups_prints_them(place: str, tmp_path: Path) -> None:
    live = group("live", group_type="share", state="Stable", generation=4, assignment_epoch=3, member_count=2)
    members = [
        member("live", "m-1", member_epoch=4, client_id="c", client_host="/127.0.0.1"),
        member("live", "m-2", member_epoch=4, client_id="d", client_host="/127.0.0.1"),
    ]
    assignments = [assignment("live", "m-1", "orders", number) for number in (1, 0)]
    night(tmp_path / "live", "prod", {"groups": [live], "members": members, "assignments": assignments})

    def printed(*options: str) -> list[str]:
        return groupcoord("describe", "--group", "live", *options, "--warehouse", str(tmp_path / "live")).stdout.splitlines()[1:]

    assert printed("--members") == [
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS  ASSIGNMENT",
        "live            m-1             /127.0.0.1      c               2            orders:0,1",
        "live            m-2             /127.0.0.1      d               0            ",
    ]
    assert printed("--state", "--verbose") == [
        "GROUP           COORDINATOR (ID)          STATE           GROUP-EPOCH  ASSIGNMENT-EPOCH  #MEMBERS",
        "live            -                         Stable          4            3                 2",
    ]
    idle = groupcoord("describe", "--group", "idle", "--members", "--warehouse", place)
    assert (idle.stdout, idle.stderr.strip().splitlines()[-1]) == ("", "Share group 'idle' has no active members.")


def test_what_became_of_a_share_group_from_night_to_night(tmp_path: Path) -> None:
    """Run two: partition 0 was reset, 1 has moved on, 2 stands still while the lag grows; topic u is gone with its position."""
    share = group("share", group_type="share")
    ends = [end("t", partition, 30, source="checkpoint", written_at_ms=AS_OF_MS) for partition in range(3)]
    at = [share_offset(number, start_offset=10, delivery_complete_count=0) for number in range(3)]
    positions = [*at, share_offset(0, topic_id=OLD, topic="u", start_offset=5)]
    topics = [topic("t", SHARE_TOPIC_ID), topic("u", OLD)]
    night(tmp_path, "two", {"groups": [share], "topics": topics, "share_offsets": positions, "log_ends": ends})
    now = [share_offset(number, start_offset=start, delivery_complete_count=0) for number, start in enumerate((2, 12, 10))]
    ends = [end("t", partition, 90, hours=24, source="checkpoint", written_at_ms=AS_OF_MS + DAY_MS) for partition in range(3)]
    topics = [topic("t", SHARE_TOPIC_ID), topic("u", OLD, is_deleted=True)]
    rows = {"groups": [share], "topics": topics, "share_offsets": now, "log_ends": ends}
    night(tmp_path, "two", rows, as_of_ms=AS_OF_MS + DAY_MS)
    of_two = ["--output", "json", "--warehouse", str(tmp_path)]
    changes = [json.loads(line) for line in groupcoord("diff", *of_two).stdout.splitlines()]
    assert {(row["change"], row["topic"], row["partition"], row["from"], row["to"]) for row in changes} == {
        ("topic_gone", "u", None, None, None),
        ("share_gone", "u", 0, 5, None),
        ("share_reset", "t", 0, 10, 2),
        ("share_stopped", "t", 2, 20, 80),
    }
    assert groupcoord("diff", "--fail-on", "stopped", *of_two).exit_code == 3
    events = [json.loads(line) for line in groupcoord("timeline", "--group", "share", *of_two).stdout.splitlines()]
    assert {(event["event"], event["facts"]["topic"]) for event in events} == {("share_reset", "t"), ("share_removed", "u")}
    story = groupcoord("why", "--group", "share", "--topic", "t", "--partition", "0", "--warehouse", str(tmp_path)).stdout
    assert "went back from 10 to 2 between the runs" in story
