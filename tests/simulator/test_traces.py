"""The recorded requests of real brokers, and that the comparison sees what it is there to see."""

import copy
import json
from pathlib import Path

import pytest

from tests.tools.conformance import traces

GOLDEN = Path(__file__).parents[1] / "golden" / "traces"
PATHS = sorted(GOLDEN.rglob("*.json.gz"))


@pytest.mark.parametrize("path", PATHS, ids=traces.name_of)
def test_the_simulator_answers_and_writes_what_the_broker_did(path):
    assert traces.compare(path) is None


def test_the_runner_prints_a_line_a_scenario_and_tells_by_its_exit_whether_all_are_equal(tmp_path, capsys):
    trace = traces.read_trace(GOLDEN / "4.3.1" / "first-join.json.gz")
    (tmp_path / "good.json").write_text(json.dumps(trace))
    assert traces.main([str(tmp_path)]) == 0
    trace["steps"][-1]["response"]["errorCode"] = 27
    (tmp_path / "wrong.json").write_text(json.dumps(trace))
    assert traces.main([str(tmp_path / "good.json"), str(tmp_path / "wrong.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("/good: equal") and lines[-1].endswith("errorCode is 0, the broker's 27")


def test_a_folder_without_traces_is_a_mistake(tmp_path):
    assert traces.main([str(tmp_path)]) == 2


DOCTORED = {
    "a generation": (("steps", 6, "response", "generationId"), 3),
    "an answer that never came": (("steps", 6, "response"), None),
    "the step that set an answer free": (("steps", 6, "answered_after_step"), 8),
    "a time": (("steps", 6, "answered_at_ms"), 0),
    "a state": (("steps", 6, "group_after", "groupState"), "Stable"),
    "the order of members": (("steps", 6, "group_after", "members"), []),
    "a field of a record": (("records", 1, "value", "data", "leader"), "<member B>"),
    "the time in a record": (("records", 1, "value", "data", "currentStateTimestamp"), 5),
    "a record too many": (("records",), []),
}


@pytest.mark.parametrize("place", DOCTORED)
def test_a_trace_with_one_thing_changed_differs(place):
    trace = traces.read_trace(GOLDEN / "4.3.1" / "second-member.json.gz")
    changed = copy.deepcopy(trace)
    path, value = DOCTORED[place]
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    assert inner[path[-1]] != value
    inner[path[-1]] = value
    assert traces.Replay(trace).difference() is None
    assert traces.Replay(changed).difference() is not None


@pytest.mark.parametrize(("recorded", "replayed"), [("4.3.1", "3.9.1"), ("3.9.1", "4.3.1"), ("2.8.2", "3.9.1")])
def test_another_release_gives_other_answers(recorded, replayed):
    trace = traces.read_trace(GOLDEN / recorded / "static-fenced.json.gz")
    assert traces.Replay({**trace, "broker": replayed}).difference() is not None


def commit_with_retention(clock_ms, retention_ms):
    """Return a trace of an OffsetCommit to Kafka 1.1 that asks for a retention of one minute, whose broker's clock read that time."""
    start_ms = 1_700_000_000_000
    topics = [{"name": "t", "partitions": [{"partitionIndex": 0, "committedOffset": 5, "committedMetadata": ""}]}]
    value = {"offset": 5, "metadata": "", "commitTimestamp": start_ms + clock_ms, "expireTimestamp": start_ms + clock_ms + retention_ms}
    key = {"type": 1, "name": "OffsetCommitKey", "data": {"group": "g", "topic": "t", "partition": 0}}
    step = {
        "n": 1,
        "at_ms": 0,
        "member": "A",
        "api": "OffsetCommit",
        "version": 2,
        "answered_at_ms": 3,
        "answered_after_step": 1,
        "request": {"groupId": "g", "generationIdOrMemberEpoch": -1, "memberId": "", "retentionTimeMs": 60_000, "topics": topics},
        "response": {"topics": [{"name": "t", "partitions": [{"partitionIndex": 0, "errorCode": 0}]}]},
        "group_after": {},
    }
    record = {
        "at_ms": clock_ms,
        "producer_id": -1,
        "producer_epoch": -1,
        "transactional": False,
        "control": None,
        "key": key,
        "value": {"version": 1, "data": value},
    }
    head = {"broker": "1.1.1", "coordinator": "scala", "group": "g", "start_ms": start_ms, "config": {}, "member_ids": {}}
    return {**head, "steps": [step], "records": [record]}


def test_an_expire_timestamp_was_compared_with_the_time_of_the_request_and_not_of_the_brokers_clock():
    assert traces.Replay(commit_with_retention(0, 60_000)).difference() is None
    assert traces.Replay(commit_with_retention(2, 60_000)).difference() is None
    assert "expireTimestamp" in traces.Replay(commit_with_retention(2, 60_001)).difference()
    assert "expireTimestamp" in traces.Replay(commit_with_retention(2, 59_998)).difference()
