"""Scenarios: the shipped ones do what their comments promise, and their segments replay to the same state."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path

import pytest

from groupcoord_spark.cli.simulate import _write_segments
from groupcoord_spark.coordinator.replay import PartitionReplay
from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.coordinator.transactions import StoredOffset
from groupcoord_spark.errors import UsageError
from groupcoord_spark.log import plan_logs, read_segment
from groupcoord_spark.protocol import decode_key, decode_value
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.simulator import Error, release_for
from groupcoord_spark.simulator.groups.classic_group import ClassicGroup
from groupcoord_spark.simulator.groups.modern_group import ModernGroup
from groupcoord_spark.simulator.handlers.commit import stored_offset
from groupcoord_spark.simulator.messages.requests import GroupToFetch, OffsetFetch
from groupcoord_spark.simulator.scenario import play, read_scenario, scenario_text, shipped_scenarios
from tests.cli.warehouse import groupcoord

SHIPPED = list(shipped_scenarios())
RELEASES = ["0.10.2", "2.0.1", "2.4.1", "2.8.2", "3.9.1", "4.3.1"]


@pytest.fixture(scope="module", autouse=True)
def each_scenario_is_read_once():
    """Parse each scenario once: YAML takes a fifth of the CPU of a play."""
    with pytest.MonkeyPatch.context() as patch:
        for user in ("groupcoord_spark.simulator.scenario", "groupcoord_spark.simulator.scenario.reading"):
            patch.setattr(f"{user}.read_scenario", cache(read_scenario))
        yield


first_play = cache(groupcoord)
"""A command that several tests look at is run once for them."""


def rows_of(name, *options):
    result = first_play("simulate", name, "--output", "json", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def told(name, who):
    return [row["what"] for row in rows_of(name) if row["kind"] == "application" and row["who"] == who]


def answers(rows, who, request):
    return [row["answer"].split()[0] for row in rows if row["who"] == who and row["what"].startswith(request) and row["answer"]]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_says_what_to_watch_for(name):
    text = shipped_scenarios()[name]
    assert text.startswith("# ") and "# Watch for:\n# - " in text
    assert read_scenario(scenario_text(name), name).title in first_play("simulate", "--list").stdout
    assert first_play("simulate", name, "--explain").stdout.startswith(text)


ANSWERS = {
    "a-transaction-commits-offsets": {
        "admin/OffsetFetch/1": "NONE orders-0=10",
        "admin/OffsetFetch/2": "NONE UNSTABLE_OFFSET_COMMIT",
        "admin/OffsetFetch/3": "NONE orders-0=20",
        "admin/OffsetFetch/4": "NONE orders-0=20",
    },
    "too-large-metadata": {"admin/OffsetCommit/2": "OFFSET_METADATA_TOO_LARGE", "admin/OffsetFetch/1": "NONE orders-0=10"},
    "a-full-group": {"c/JoinGroup/1": "GROUP_MAX_SIZE_REACHED", "admin/DescribeGroups/1": "NONE Stable, 2 members"},
    "appends-fail": {"a/OffsetCommit/1": "COORDINATOR_NOT_AVAILABLE", "a/OffsetCommit/5": "NONE", "a/OffsetFetch/2": "NONE orders-0=100"},
    "a-group-expires": {"admin/OffsetFetch/1": "NONE orders-0=100 orders-1=100"},
    "a-deleted-group": {
        "admin/DeleteGroups/1": "NON_EMPTY_GROUP",
        "admin/DeleteGroups/2": "NONE",
        "admin/OffsetFetch/1": "NONE orders-0=-1",
        "admin/DeleteGroups/3": "GROUP_ID_NOT_FOUND",
    },
    "offsets-of-a-topic-are-deleted": {
        "admin/OffsetDelete/1": "GROUP_SUBSCRIBED_TO_TOPIC",
        "admin/OffsetDelete/2": "NONE",
        "admin/OffsetFetch/1": "NONE orders-0=1",
    },
    "a-topic-is-deleted": {"admin/OffsetFetch/1": "NONE visits-0=7"},
    "a-commit-from-an-old-generation": {
        "a/OffsetCommit/1": "ILLEGAL_GENERATION",
        "admin/OffsetCommit/1": "UNKNOWN_MEMBER_ID",
        "admin/OffsetCommit/2": "NONE",
    },
    "two-assignors-in-a-rolling-upgrade": {
        "a/JoinGroup/2/answer": "NONE generation 1, range, leads 2",
        "a/JoinGroup/3": "NONE generation 2, cooperative-sticky, leads 2",
        "d/JoinGroup/1": "INCONSISTENT_GROUP_PROTOCOL",
    },
    "the-coordinator-moves": {
        "a/OffsetCommit/1": "NOT_COORDINATOR",
        "a/OffsetCommit/3": "COORDINATOR_LOAD_IN_PROGRESS",
        "a/Heartbeat/5": "NOT_COORDINATOR",
    },
    "a-changed-subscription": {"b/SyncGroup/2/answer": "NONE orders:1;visits:0,1"},
    "a-streams-group": {
        "admin/StreamsGroupHeartbeat/1": "NONE epoch 1, nothing, ASSIGNMENT_DELAYED, MISSING_INTERNAL_TOPICS",
        "admin/StreamsGroupHeartbeat/3": "NONE epoch 3, 0_0 0_2 1_1",
        "admin/StreamsGroupHeartbeat/4": "NONE epoch 3, 0_1 1_0 1_2",
    },
    "a-streams-task-moves": {
        "admin/StreamsGroupHeartbeat/2": "NONE epoch 3, nothing",
        "admin/StreamsGroupHeartbeat/3": "NONE epoch 2, 0_0 0_1",
        "admin/StreamsGroupHeartbeat/6": "NONE epoch 3, 0_2",
        "admin/StreamsGroupHeartbeat/10": "NONE epoch 5, 0_1",
        "admin/StreamsGroupHeartbeat/11": "UNKNOWN_MEMBER_ID",
    },
    "a-streams-application-without-tasks": {
        "admin/StreamsGroupHeartbeat/1": "NONE epoch 2, nothing, MISSING_SOURCE_TOPICS",
        "admin/StreamsGroupHeartbeat/2": "NONE epoch 3, INCORRECTLY_PARTITIONED_TOPICS",
        "admin/StreamsGroupHeartbeat/3": "NONE epoch 4, MISSING_INTERNAL_TOPICS",
        "admin/StreamsGroupHeartbeat/4": "NONE epoch 5, 0_0 0_1 0_2",
        "admin/StreamsGroupHeartbeat/5": "NONE epoch 5, nothing, MISSING_SOURCE_TOPICS",
    },
    "standby-tasks": {
        "admin/StreamsGroupHeartbeat/4": "NONE epoch 5, 0_1, standby 0_3",
        "admin/StreamsGroupHeartbeat/6": "NONE epoch 5, 0_0 0_3, standby 0_1 0_2",
        "admin/StreamsGroupHeartbeat/13": "NONE epoch 6, 0_1 0_3",
    },
    "a-streams-application-is-shut-down": {
        "admin/StreamsGroupHeartbeat/4": "NONE epoch 3, 0_1, SHUTDOWN_APPLICATION",
        "admin/StreamsGroupHeartbeat/6": "NONE epoch 5, 0_0, SHUTDOWN_APPLICATION",
        "admin/StreamsGroupHeartbeat/9": "NONE epoch 8, 0_0 0_1",
    },
    "another-topology": {
        "admin/StreamsGroupHeartbeat/2": "INVALID_REQUEST",
        "admin/StreamsGroupHeartbeat/4": "NONE epoch 3, nothing, STALE_TOPOLOGY",
        "admin/DeleteGroups/1": "NON_EMPTY_GROUP",
        "admin/StreamsGroupHeartbeat/7": "NONE epoch 2, 0_0 0_1",
    },
    "a-streams-commit-with-an-old-epoch": {
        "admin/OffsetCommit/2": "NONE",
        "admin/OffsetCommit/3": "STALE_MEMBER_EPOCH",
        "admin/OffsetCommit/5": "UNKNOWN_MEMBER_ID",
        "admin/OffsetFetch/2": "NONE orders-0=11 orders-1=21",
    },
    "an-open-transaction-delays-a-consumer": {
        "a/OffsetFetch/1": "NONE UNSTABLE_OFFSET_COMMIT",
        "admin/OffsetFetch/1": "NONE orders-0=10",
        "a/OffsetFetch/4": "NONE orders-0=20",
        "a/TxnOffsetCommit/1": "ILLEGAL_GENERATION",
    },
    "a-permission-is-taken-away": {
        "a/Heartbeat/3": "GROUP_AUTHORIZATION_FAILED",
        "admin/OffsetFetch/1": "NONE",
        "admin/DescribeGroups/1": "NONE Stable, 1 member",
        "admin/FindCoordinator/1": "GROUP_AUTHORIZATION_FAILED",
        "admin/DescribeGroups/2": "NONE Empty, 0 members",
    },
    "the-first-group-of-a-cluster": {
        "a/FindCoordinator/1": "COORDINATOR_NOT_AVAILABLE",
        "a/FindCoordinator/6": "NONE __consumer_offsets-12",
    },
    "an-administrator-removes-members": {
        "admin/LeaveGroup/1": "NONE NONE UNKNOWN_MEMBER_ID",
        "a/Heartbeat/5": "UNKNOWN_MEMBER_ID",
        "c/Heartbeat/5": "REBALANCE_IN_PROGRESS",
    },
    "a-request-of-every-age": {
        "admin/DescribeGroups/1": "NONE Dead, 0 members",
        "admin/DescribeGroups/2": "GROUP_ID_NOT_FOUND Dead, 0 members",
        "admin/OffsetCommit/1": "ILLEGAL_GENERATION",
        "admin/OffsetCommit/2": "GROUP_ID_NOT_FOUND",
        "admin/OffsetCommit/3": "UNSUPPORTED_VERSION",
        "admin/JoinGroup/1": "MEMBER_ID_REQUIRED",
        "admin/JoinGroup/2": "(waits)",
    },
    "a-slow-append": {
        "a/OffsetCommit/2/answer": "NONE",
        "admin/OffsetFetch/1": "NONE orders-0=10",
        "admin/OffsetFetch/2/answer": "NONE orders-0=20",
        "a/SyncGroup/2/answer": "NONE orders:0",
    },
    "a-commit-times-out": {
        "a/OffsetCommit/2/answer": "COORDINATOR_NOT_AVAILABLE",
        "admin/OffsetFetch/1": "NONE orders-0=10",
        "admin/OffsetFetch/2": "NONE orders-0=20",
        "admin/OffsetFetch/3": "NONE orders-0=20",
    },
    "the-new-protocol": {
        "a/ConsumerGroupHeartbeat/1": "NONE epoch 2, orders:0,1,2,3",
        "b/ConsumerGroupHeartbeat/1": "NONE epoch 3, nothing",
        "b/ConsumerGroupHeartbeat/2": "NONE epoch 3, orders:2,3",
        "admin/ConsumerGroupDescribe/1": "NONE Reconciling epoch 3, uniform, 2 members",
        "admin/ConsumerGroupDescribe/2": "NONE Stable epoch 4, uniform, 1 member",
    },
    "a-static-member-of-the-new-protocol": {
        "admin/ConsumerGroupHeartbeat/1": "UNRELEASED_INSTANCE_ID",
        "a/ConsumerGroupHeartbeat/9": "NONE epoch -2",
        "a/ConsumerGroupHeartbeat/10": "NONE epoch 3, orders:0,1",
    },
    "an-expression-of-the-new-protocol": {
        "a/ConsumerGroupHeartbeat/1": "NONE epoch 1, nothing",
        "a/ConsumerGroupHeartbeat/2": "NONE epoch 2, orders-eu:0,1",
    },
    "a-zombie-of-the-new-protocol": {"admin/OffsetCommit/1": "UNKNOWN_MEMBER_ID", "a/OffsetCommit/1": "NONE"},
    "an-empty-group-changes-its-protocol": {
        "admin/ConsumerGroupHeartbeat/1": "GROUP_ID_NOT_FOUND",
        "new/OffsetFetch/1": "NONE orders-0=42",
        "old/OffsetFetch/2": "NONE orders-0=42",
    },
    "a-failed-append-of-the-new-protocol": {
        "b/ConsumerGroupHeartbeat/1": "(waits)",
        "admin/ConsumerGroupDescribe/1": "NONE Stable epoch 2, uniform, 1 member",
        "admin/ConsumerGroupDescribe/2": "NONE Reconciling epoch 3, uniform, 2 members",
        "c/ConsumerGroupHeartbeat/1/answer": "NOT_COORDINATOR",
        "a/ConsumerGroupHeartbeat/8/answer": "NOT_COORDINATOR",
        "admin/ConsumerGroupDescribe/3": "NONE Assigning epoch 5, uniform, 2 members",
    },
    "an-idle-connection": {
        "b/JoinGroup/3": "(waits)",
        "b/FindCoordinator/2": "NONE __consumer_offsets-12",
        "b/JoinGroup/4/answer": "NONE generation 2, range, a leads",
    },
    "a-share-group": {
        "admin/ShareGroupHeartbeat/1": "NONE epoch 2, nothing",
        "admin/ShareGroupHeartbeat/2": "NONE epoch 3, orders:0,1",
        "admin/ShareGroupHeartbeat/3": "NONE epoch 4, orders:0",
        "admin/ShareGroupDescribe/1": "NONE Stable epoch 5, simple, 3 members",
        "admin/DescribeGroups/1": "GROUP_ID_NOT_FOUND Dead, 0 members",
    },
    "a-share-group-ends": {
        "admin/ShareGroupHeartbeat/4": "NONE epoch 3",
        "admin/ShareGroupHeartbeat/5": "FENCED_MEMBER_EPOCH",
        "admin/OffsetCommit/1": "GROUP_ID_NOT_FOUND",
        "admin/JoinGroup/1": "INCONSISTENT_GROUP_PROTOCOL",
        "admin/DeleteGroups/1": "NON_EMPTY_GROUP",
        "admin/DeleteGroups/2": "NONE",
    },
    "an-upgrade-to-the-new-protocol": {
        "c/ConsumerGroupHeartbeat/1": "NONE epoch 2, nothing",
        "a/JoinGroup/3": "NONE generation 2, range, no leader",
        "a/SyncGroup/2": "NONE orders:0",
        "c/ConsumerGroupHeartbeat/2": "NONE epoch 2, orders:1",
    },
    "a-downgrade-to-the-classic-protocol": {
        "a/JoinGroup/2": "NONE generation 3, range, no leader",
        "a/Heartbeat/10": "REBALANCE_IN_PROGRESS",
        "a/JoinGroup/4": "NONE generation 4, range, leads 1",
        "a/SyncGroup/3": "NONE orders:0,1,2,3",
    },
    "an-upgrade-is-not-allowed": {
        "c/ConsumerGroupHeartbeat/1": "GROUP_ID_NOT_FOUND",
        "c/ConsumerGroupHeartbeat/2": "NONE epoch 2, orders:0,1,2,3",
    },
    "partitions-are-added": {"b/SyncGroup/1/answer": "NONE orders:1", "a/SyncGroup/2": "NONE orders:0,1"},
    "a-topic-comes-to-match": {"a/SyncGroup/1": "NONE orders-eu:0", "a/SyncGroup/2": "NONE orders-eu:0;orders-us:0,1"},
    "auto-commits": {"b/OffsetFetch/1": "NONE orders-0=200", "admin/OffsetFetch/1": "NONE orders-0=207"},
    "unsubscribe-and-close": {"a/JoinGroup/3": "MEMBER_ID_REQUIRED", "c/LeaveGroup/1": "NONE", "b/LeaveGroup/1": None},
    "a-move-during-a-rebalance": {"b/JoinGroup/2/answer": "NOT_COORDINATOR", "b/JoinGroup/10": "UNKNOWN_MEMBER_ID"},
    "a-static-member-leaves-by-hand": {"a/Heartbeat/8": "REBALANCE_IN_PROGRESS", "a/SyncGroup/2": "NONE orders:0,1,2,3"},
}
"""Scenario -> id of an event -> its answer: what the comment of the scenario promises."""


@pytest.mark.parametrize("name", ANSWERS)
def test_a_scenario_shows_what_its_comment_promises(name):
    rows = {row["id"]: row["answer"] for row in rows_of(name, "--heartbeats")}
    assert {event: rows.get(event) for event in ANSWERS[name]} == ANSWERS[name]


LIFE_OF_A_GROUP = (Path(__file__).parents[2] / "docs" / "explanation" / "the-coordinator.md").read_text("utf-8")
COMMANDS = sorted({line for line in LIFE_OF_A_GROUP.splitlines() if line.startswith("groupcoord ")})


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_of_the_life_of_a_group_run(line):
    result = first_play(*shlex.split(line)[1:])
    assert result.exit_code == 0 and result.stdout


def test_the_life_of_a_group_shows_every_scenario():
    assert {line.split()[2] for line in COMMANDS if line.startswith("groupcoord simulate ")} - {"--list"} == set(SHIPPED)
    assert len(SHIPPED) >= 30


@pytest.mark.parametrize("name", SHIPPED)
def test_the_title_of_a_scenario_is_a_question(name):
    assert read_scenario(scenario_text(name), name).title.endswith("?")


def test_expired_and_deleted_groups_leave_only_tombstones():
    for name, offsets in (("a-group-expires", 2), ("a-deleted-group", 2)):
        removed = [record for record in play(read_scenario(scenario_text(name), name), release_for()).records if record.value is None]
        assert [record.key_type for record in removed] == [*[1] * offsets, 2], name


def test_the_list_comes_in_every_output_and_alone():
    listed = [json.loads(line) for line in groupcoord("simulate", "--list", "--output", "json").stdout.splitlines()]
    assert [row["scenario"] for row in listed] == SHIPPED
    assert groupcoord("simulate", "--list", "--output", "csv").stdout.startswith("scenario,title\n")
    assert groupcoord("simulate", "--list", "a-member-crashes").exit_code == 2


@pytest.mark.parametrize("name", SHIPPED)
def test_the_same_scenario_has_the_same_timeline(name):
    assert groupcoord("simulate", name).stdout == first_play("simulate", name).stdout


def test_a_newcomer_is_sent_back_for_its_id_and_waits_for_the_others_heartbeat():
    rows = rows_of("a-member-joins")
    assert answers(rows, "b", "JoinGroup") == ["MEMBER_ID_REQUIRED", "(waits)", "NONE"]
    beat = next(row for row in rows if row["answer"] == "REBALANCE_IN_PROGRESS")
    assert beat["who"] == "a" and 20_000 < beat["at_ms"] <= 23_100
    assert rows[-1]["state"] is None and max(row["generation"] or 0 for row in rows) == 2


def test_a_crash_is_noticed_one_session_timeout_after_the_last_heartbeat():
    rows = rows_of("a-member-crashes", "--heartbeats")
    last = max(row["at_ms"] for row in rows if row["who"] == "a" and row["what"].startswith("Heartbeat"))
    (ended,) = [row for row in rows if row["kind"] == "timer" and row["what"].startswith("session timeout")]
    assert (ended["at_ms"], ended["what"]) == (last + 45_000, "session timeout of a")


def test_the_last_one_to_leave_empties_the_group():
    rows = [row for row in rows_of("a-member-leaves") if row["what"].startswith("LeaveGroup")]
    assert [(row["who"], row["state"], row["generation"]) for row in rows] == [("a", "PreparingRebalance", 1), ("b", "Empty", 3)]
    assert rows[-1]["records"][0]["value"]["members"] == []


def test_a_slow_client_leaves_by_itself_and_a_frozen_one_is_removed_by_the_join_phase():
    rows = rows_of("a-slow-member")
    left = next(row for row in rows if row["what"] == "LeaveGroup slow")
    assert left["at_ms"] == 70_000
    assert "commitSync(orders-0=100): CommitFailedException, nothing was sent" in told("a-slow-member", "slow")
    (timer,) = [row for row in rows if row["what"] == "rebalance timeout of the join phase"]
    assert timer["at_ms"] == 200_010
    assert answers(rows, "frozen", "Heartbeat")[-1] == "UNKNOWN_MEMBER_ID"


def test_a_client_of_the_new_protocol_says_that_an_old_broker_does_not_know_it():
    rows = rows_of("a-zombie-of-the-new-protocol", "--broker-version", "2.8")
    assert rows[1]["what"] == "UnsupportedVersionException: the broker does not know ConsumerGroupHeartbeat"


def test_a_crash_is_missed_after_the_session_timeout_of_the_clients_release():
    ended = [(row["at_ms"], row["what"]) for row in rows_of("a-consumer-of-2.8") if row["what"].startswith("session timeout")]
    assert [what for _, what in ended] == ["session timeout of old", "session timeout of new"]
    assert ended[0][0] <= 20_000 + 10_000 and ended[1][0] > 60_000 + 10_000


def test_partitions_that_are_added_wait_for_the_leaders_next_look_at_the_topics():
    rejoins = [row for row in rows_of("partitions-are-added") if row["id"] == "a/JoinGroup/3"]
    assert [row["at_ms"] for row in rejoins] == [60_000]


def test_auto_commits_stop_while_the_application_does_not_poll():
    commits = [row["at_ms"] for row in rows_of("auto-commits") if row["who"] == "a" and row["what"].startswith("OffsetCommit")]
    assert commits == [5_000, 10_000, 24_000, 29_000]


def test_explain_prints_the_settings_of_the_client_and_the_broker_with_their_values():
    explained = groupcoord("simulate", "a-consumer-of-2.8", "--explain", "--broker-version", "2.8").stdout.splitlines()
    shown = {tuple(line.split()[:2]): line.split()[2:4] for line in explained[explained.index("") + 2 :]}
    assert shown["old", "session.timeout.ms"] == ["10", "s"]
    assert shown["broker", "group.max.session.timeout.ms"][0] == "1800000"


def test_static_members_restart_without_a_rebalance():
    rows = rows_of("static-rolling-restart")
    assert {row["generation"] for row in rows if 6_010 <= row["at_ms"] < 87_000 and row["generation"] is not None} == {1}
    assert not any(row["what"].startswith("LeaveGroup") for row in rows)
    assert max(row["generation"] or 0 for row in rows) == 3


def test_a_fenced_commit_is_final_and_a_zombies_commit_fails():
    rows = rows_of("a-commit-after-fencing")
    assert answers(rows, "old", "OffsetCommit") == ["NONE", Error.FENCED_INSTANCE_ID.name]
    assert told("a-commit-after-fencing", "old")[-1] == "fails for good: FENCED_INSTANCE_ID"
    assert answers(rows, "zombie", "OffsetCommit") == ["UNKNOWN_MEMBER_ID"]
    assert any("CommitFailedException (UNKNOWN_MEMBER_ID)" in text for text in told("a-commit-after-fencing", "zombie"))


def test_commit_sync_repeats_a_lost_answer_and_commit_async_leaves_it_to_the_application():
    saved = [row["what"].rsplit("=", 1)[1] for row in rows_of("a-lost-answer") if row["what"].startswith("OffsetCommit")]
    assert saved == ["100", "100", "110", "120", "110"]
    outcomes = [text for text in told("a-lost-answer", "a") if text.startswith(("commit", "callback"))]
    assert [text.split(":")[0] for text in outcomes] == [
        "commitSync(orders-0=100)",
        "callback of commitAsync(orders-0=110)",
        "callback of commitAsync(orders-0=120)",
        "callback of commitAsync(orders-0=110)",
        "committed",
    ]
    assert "RetriableCommitFailedException" in outcomes[1] and outcomes[-1] == "committed: orders-0=110"


def test_a_cooperative_rebalance_takes_two_generations_and_survives_a_move():
    rows = rows_of("a-cooperative-rebalance")
    revoked = [text for text in told("a-cooperative-rebalance", "a") if text.startswith("onPartitionsRevoked")]
    assert revoked == ["onPartitionsRevoked(orders:3,4,5)"]
    assert max(row["generation"] or 0 for row in rows) == 3
    commits = answers(rows, "a", "OffsetCommit")
    assert {"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"} < set(commits) and commits[-1] == "NONE"


def read_back(directory):
    """Return the state of a replay of the segments, by group."""
    replays = {}
    for log in plan_logs([str(directory)]).partitions:
        replay = replays[log.offsets_partition] = PartitionReplay(JAVA)
        for segment in log.segments:
            for chunk in read_segment(segment):
                assert not chunk.lost and not chunk.doubts
                records = chunk.records
                for at in range(len(records.record_offset)):
                    producer_id, is_transactional = int(records.producer_id[at]), bool(records.is_transactional[at])
                    if records.control_type[at] != NOT_A_CONTROL_RECORD:
                        replay.apply_marker(producer_id, int(records.control_type[at]))
                        continue
                    key = decode_key(records.key.row(at))
                    value = decode_value(key.key_type, records.value.row(at))
                    offset, time_ms = int(records.record_offset[at]), int(records.timestamp_ms[at])
                    if key.key_type not in (0, 1):
                        version, fields = (value.version, value.fields) if value else (None, None)
                        replay.apply_group_record(offset, time_ms, key.key_type, key.fields, version, fields)
                        continue
                    place = (key.fields["group_id"], key.fields["topic"], key.fields["partition"])
                    stored = None if value is None else entry_of(value, offset, time_ms)
                    replay.apply_offset_commit(producer_id, is_transactional, key.key_type, *place, stored)
    return {number: replay.finish() for number, replay in replays.items()}


def entry_of(value, record_offset, record_timestamp_ms):
    fields = value.fields
    return StoredOffset(
        committed_offset=fields["committed_offset"],
        leader_epoch=fields.get("leader_epoch", -1),
        metadata=fields["metadata"],
        commit_timestamp_ms=fields["commit_timestamp_ms"],
        expire_timestamp_ms=fields.get("expire_timestamp_ms", -1),
        topic_id=None,
        value_version=value.version,
        producer_id=-1,
        producer_epoch=-1,
        record_offset=record_offset,
        record_timestamp_ms=record_timestamp_ms,
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_segments_replay_to_the_state_of_the_broker(name, tmp_path):
    outcome = play(read_scenario(scenario_text(name), name), release_for())
    _write_segments(tmp_path, outcome.records)
    (state,) = read_back(tmp_path).values()
    group_id = read_scenario(scenario_text(name), name).group_id
    here = outcome.simulator.broker.group_of(group_id, ClassicGroup)
    modern_group = outcome.simulator.broker.group_of(group_id, ModernGroup)
    if modern_group is not None:
        (row,) = state.groups()
        assert (row.state, row.generation) == (modern_group.replayed.state, modern_group.epoch)
        assert {member.member_id for member in state.members()} == set(modern_group.members)
        return
    if here is None:
        assert (state.groups(), state.committed_offsets()) == ([], [])
        return
    (row,) = state.groups()
    assert (row.state, row.generation, row.protocol, row.leader_id) == (here.state.value, here.generation, here.protocol, here.leader)
    assert {member.member_id: member.assignment for member in state.members()} == {
        member.member_id: member.assignment for member in here.members
    }
    fetched = outcome.simulator.send(OffsetFetch((GroupToFetch(group_id),))).answer.groups[0].topics
    committed = {(offset.topic, offset.partition): offset.commit.committed_offset for offset in state.committed_offsets()}
    assert committed == {(topic, number): one.committed_offset for topic, of in fetched.items() for number, one in of.items()}
    if not any(record.control == "ABORT" for record in outcome.records):
        written = {
            (record.key["topic"], record.key["partition"]): record.value and stored_offset(record).committed_offset
            for record in outcome.records
            if record.key_type == 1
        }
        assert committed == {place: offset for place, offset in written.items() if offset is not None}


def test_segments_are_not_written_over(tmp_path):
    first = groupcoord("simulate", "a-member-joins", "--segments", str(tmp_path))
    assert first.exit_code == 0 and "records in 1 segment under" in first.stderr
    again = groupcoord("simulate", "a-member-joins", "--segments", str(tmp_path))
    assert again.exit_code == 2 or "is there already" in str(again.exception or again.output)


def test_a_row_as_json_has_the_exact_request_and_answer_with_timers_and_the_state_before_and_after():
    rows = {row["id"]: row for row in rows_of("a-member-crashes")}
    assert len(rows) == len(rows_of("a-member-crashes"))
    asked = rows["a/JoinGroup/1"]
    assert asked["request"]["type"] == "JoinGroup" and asked["request"]["session_timeout_ms"] == 45_000
    assert asked["response"]["error"] == {"name": "MEMBER_ID_REQUIRED", "code": 79}
    assert asked["response"]["member_id"].startswith("a-")
    waits = rows["a/JoinGroup/2"]
    assert waits["response"] is None and "initial rebalance delay" in {timer["kind"] for timer in waits["timers"]}
    answered = rows["a/JoinGroup/2/answer"]
    assert answered["request"] == waits["request"] and answered["response"]["generation"] == 1
    assert (answered["state_before"], answered["state"]) == ("PreparingRebalance", "CompletingRebalance")
    sessions = {timer["member_id"] for timer in answered["timers"] if timer["kind"] == "session timeout"}
    assert len(sessions) == 2 and asked["response"]["member_id"] in sessions


def test_releases_that_part_are_shown_side_by_side():
    result = groupcoord("simulate", "a-lost-answer", "--compare", "2.0,2.8,4.3")
    assert result.exit_code == 0
    first = [line.split() for line in result.stdout.splitlines() if " a/JoinGroup/1 " in line]
    assert [line[2:4] for line in first] == [["2.0", "(waits)"], ["2.8", "MEMBER_ID_REQUIRED"], ["4.3", "MEMBER_ID_REQUIRED"]]
    assert " a/SyncGroup/1 " not in result.stdout, "a few milliseconds are no difference"
    assert "events are the same in 2.0, 2.8, 4.3." in result.stderr
    rows = [
        json.loads(line) for line in groupcoord("simulate", "a-lost-answer", "--compare", "2.0,4.3", "--output", "json").stdout.splitlines()
    ]
    assert set(rows[0]["releases"]) == {"2.0", "4.3"} and rows[0]["id"] == "a/JoinGroup/1"


def test_a_commit_that_times_out_is_forgotten_by_scala_until_the_log_is_loaded():
    rows = {row["id"]: row["answer"] for row in rows_of("a-commit-times-out", "--broker-version", "3.9")}
    fetched = [rows[f"admin/OffsetFetch/{number}"] for number in (1, 2, 3)]
    assert rows["a/OffsetCommit/2/answer"] == "REQUEST_TIMED_OUT"
    assert fetched == ["NONE orders-0=10", "NONE orders-0=10", "NONE orders-0=20"]


@pytest.mark.parametrize("options", [("--compare", "4.3"), ("--compare", "4.3,4.3"), ("--compare", "2.8,4.3", "--broker-version", "3.9")])
def test_a_comparison_wants_two_releases_and_no_other(options):
    assert groupcoord("simulate", "a-lost-answer", *options).exit_code == 2


FIRST_RELEASES = {
    "the-new-protocol": "4.0",
    "a-failed-append-of-the-new-protocol": "4.0",
    "a-static-member-of-the-new-protocol": "4.0",
    "an-empty-group-changes-its-protocol": "4.0",
    "a-share-group": "4.2",
    "a-share-group-ends": "4.2",
    **dict.fromkeys((name for name in SHIPPED if "streams" in name), "4.2"),
    "standby-tasks": "4.2",
    "another-topology": "4.2",
    "an-open-transaction-delays-a-consumer": "0.11",
    "an-administrator-removes-members": "2.3",
    "a-transaction-commits-offsets": "0.11",
    "a-deleted-group": "1.1",
    "a-commit-after-fencing": "2.3",
    "a-static-member-leaves-by-hand": "2.3",
    "static-rolling-restart": "2.3",
    "offsets-of-a-topic-are-deleted": "2.4",
}
"""Scenario -> the first release that knows everything in it."""


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("name", SHIPPED)
def test_a_scenario_plays_against_every_release_that_knows_its_requests(name, version):
    result = groupcoord("simulate", name, "--broker-version", version)
    first = FIRST_RELEASES.get(name, "0.10")
    if tuple(map(int, version.split("."))) >= tuple(map(int, first.split("."))):
        assert result.exit_code == 0 and len(result.stdout.splitlines()) > 3
    else:
        assert result.exit_code == 2 and "does not know" in result.stderr


SCENARIO = """
group: g
topics: {t: 2}
members: {a: {topics: [t], partition.assignment.strategy: [sticky, range]}}
steps:
  - {at: 0s, start: a}
  - {at: 10s, send: Heartbeat, as: a, with: {generation: 7}}
  - {at: 11s, send: OffsetCommit, with: {offsets: {t-0: 5}}}
  - {at: 12s, subscribe: a, topics: []}
  - {at: 20s, crash: a}
  - {at: 90s, send: OffsetCommit, with: {offsets: {t-1: 5}}}
  - {at: 91s, send: OffsetFetch}
  - {at: 92s, send: DeleteGroups}
"""


def test_requests_can_be_sent_by_hand(tmp_path):
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    rows = rows_of(str(tmp_path / "mine.yaml"))
    assert [row["answer"] for row in rows if row["what"].startswith("Heartbeat generation 7")] == ["ILLEGAL_GENERATION"]
    assert answers(rows, "admin", "OffsetCommit") == ["UNKNOWN_MEMBER_ID", "NONE"]
    assert answers(rows, "admin", "DeleteGroups") == ["NONE"]
    assert rows[-1]["records"][-1]["value"] is None


def test_what_is_neither_file_nor_shipped_is_named_with_the_choice():
    with pytest.raises(UsageError, match=r"'nothing' is neither a file nor one of those shipped\. Known are a-changed-subscription, "):
        read_scenario(scenario_text("nothing"), "nothing")
    with pytest.raises(UsageError, match=r"Did you mean 'a-full-group'\?"):
        read_scenario(scenario_text("a-full-grup.yaml"), "a-full-grup.yaml")
