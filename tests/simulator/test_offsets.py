"""Commits, fetches, transactions: stored, shown and written values."""

import pytest

from groupcoord_spark.protocol import decode_key, decode_value
from groupcoord_spark.simulator import ClusterTopic, Error, FailAppends, GroupState, LoadPartition, LosePartition
from groupcoord_spark.simulator.broker.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.messages.answers import FetchedOffset
from groupcoord_spark.simulator.messages.requests import EndTxn, GroupToFetch, OffsetCommit, OffsetFetch, OffsetToCommit, TxnOffsetCommit
from tests.simulator.decision_table import by_release, case_id
from tests.simulator.scene import GROUP, Scene

JAVA_AND_SCALA = pytest.mark.parametrize("version", ["4.3.1", "3.9.1", "2.8.2"])
TOPIC_ID = "AQEBAQEBAQEBAQEBAQEBAQ"
TOPICS = {"t": ClusterTopic(2, TOPIC_ID), "u": ClusterTopic(1)}


def fetch(scene, partitions=None, *, require_stable=False, group_id=GROUP):
    """topic -> partition -> the shown offset."""
    return scene.ask(OffsetFetch((GroupToFetch(group_id, partitions),), require_stable)).groups[0].topics


def txn_commit(scene, offset, topic="t", partition=0, producer_id=7):
    return scene.ask(TxnOffsetCommit(GROUP, producer_id, (OffsetToCommit(topic, partition, offset),))).errors[topic, partition]


def end(scene, producer_id=7, *, committed):
    scene.ask(EndTxn(producer_id, committed))


def test_a_commit_is_shown_with_its_epoch_and_note():
    scene = Scene()
    scene.ask(OffsetCommit(GROUP, (OffsetToCommit("t", 0, 42, 3, "note"), OffsetToCommit("t", 1, 0, metadata=None))))
    shown = {0: FetchedOffset(42, 3, "note"), 1: FetchedOffset(0, -1, ""), 2: FetchedOffset()}
    assert fetch(scene, {"t": (0, 1, 2)}) == {"t": shown}
    assert fetch(scene) == {"t": {0: shown[0], 1: shown[1]}}


def test_an_unknown_group_has_no_offsets_and_that_is_no_error():
    scene = Scene()
    assert fetch(scene, {"t": (0,)}) == {"t": {0: FetchedOffset()}}
    assert fetch(scene) == {}


@pytest.mark.parametrize(("version", "shown"), [("3.9.1", {}), ("4.3.1", {"t": {}})])
def test_a_topic_asked_for_without_partitions(version, shown):
    scene = Scene(version)
    scene.commit(1)
    assert fetch(scene, {"t": ()}) == shown


def test_what_the_broker_does_not_have_never_reaches_the_group():
    scene = Scene(topics=TOPICS)
    assert scene.commit(1, "nosuch") is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert scene.commit(1, "t", 2) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert scene.state is None
    request = OffsetCommit(GROUP, (OffsetToCommit("t", 0, 1), OffsetToCommit("t", 2, 1)), generation=5)
    assert scene.ask(request).errors == {("t", 0): Error.GROUP_ID_NOT_FOUND, ("t", 2): Error.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("note", "is_too_long"), [("x" * 10, False), ("x" * 11, True), ("é" * 10, False), ("😀" * 5, False), ("😀" * 6, True)]
)
def test_a_note_is_measured_as_java_counts_characters(note, is_too_long):
    scene = Scene(offset_metadata_max_bytes=10)
    request = OffsetCommit(GROUP, (OffsetToCommit("t", 0, 1, metadata=note), OffsetToCommit("t", 1, 1)))
    expected = Error.OFFSET_METADATA_TOO_LARGE if is_too_long else Error.NONE
    assert scene.ask(request).errors == {("t", 0): expected, ("t", 1): Error.NONE}
    assert len(scene.records) == (1 if is_too_long else 2)


# What each release writes for a commit at 5000: "now" is 5000, "+r" adds the retention asked for (1000), "+d" the broker's own (70000).
VALUES = by_release("""
    asked               | 0.10.2.2           | 2.0.1 | 2.1.0           | 2.8.2 | 3.9.1 | 4.0.0 | 4.1.0 | 4.3.1
    nothing             | 1, now, now +d     | "     | 3, now, -       | "     | "     | "     | 4, now, - | "
    retention           | 1, now, now +r     | "     | 1, now, now +r  | "     | "     | "     | "     | "
    timestamp 4000      | 1, now, 4000 +d    | "     | 3, 4000, -      | "     | "     | "     | 4, 4000, - | "
""")


@pytest.mark.parametrize(("version", "row", "expected"), VALUES, ids=case_id)
def test_the_value_of_a_commit(version, row, expected):
    scene = Scene(version, offsets_retention_ms=70_000, topics=TOPICS)
    scene.pass_time(5_000)
    offset = OffsetToCommit("t", 0, 42, 3, "note", 4_000 if "4000" in row["asked"] else -1)
    scene.ask(OffsetCommit(GROUP, (offset,), retention_ms=1_000 if row["asked"] == "retention" else -1))
    (record,) = scene.records
    numbers = {"now": 5_000, "now +d": 75_000, "now +r": 6_000, "4000": 4_000, "4000 +d": 74_000}
    value_version, committed, expires = (cell.strip() for cell in expected.split(","))
    value = {"committed_offset": 42, "metadata": "note", "commit_timestamp_ms": numbers[committed]}
    if expires != "-":
        value["expire_timestamp_ms"] = numbers[expires]
    if value_version in ("3", "4"):
        value["leader_epoch"] = 3
    if value_version == "4":
        value["topic_id"] = TOPIC_ID
    assert (record.key_type, record.value_version, record.value) == (1, int(value_version), value)
    assert decode_key(record.key_bytes).fields == {"group_id": GROUP, "topic": "t", "partition": 0}
    assert decode_value(1, record.value_bytes).fields == value


COMMIT_ERRORS = by_release("""
    log                              | 3.9.1                      | 4.3.1
    UNKNOWN_TOPIC_OR_PARTITION       | COORDINATOR_NOT_AVAILABLE  | "
    NOT_ENOUGH_REPLICAS              | COORDINATOR_NOT_AVAILABLE  | "
    NOT_ENOUGH_REPLICAS_AFTER_APPEND | COORDINATOR_NOT_AVAILABLE  | NOT_ENOUGH_REPLICAS_AFTER_APPEND
    NOT_LEADER_OR_FOLLOWER           | NOT_COORDINATOR            | "
    KAFKA_STORAGE_ERROR              | NOT_COORDINATOR            | "
    MESSAGE_TOO_LARGE                | INVALID_COMMIT_OFFSET_SIZE | UNKNOWN_SERVER_ERROR
    RECORD_LIST_TOO_LARGE            | INVALID_COMMIT_OFFSET_SIZE | UNKNOWN_SERVER_ERROR
    INVALID_FETCH_SIZE               | INVALID_COMMIT_OFFSET_SIZE | UNKNOWN_SERVER_ERROR
    REQUEST_TIMED_OUT                | REQUEST_TIMED_OUT          | COORDINATOR_NOT_AVAILABLE
""")


@pytest.mark.parametrize(("version", "row", "expected"), COMMIT_ERRORS, ids=case_id)
def test_a_commit_that_cannot_be_written_changes_nothing(version, row, expected):
    scene = Scene(version)
    scene.commit(1)
    scene.simulator.act(FailAppends(Error[row["log"]]))
    assert scene.commit(2) is Error[expected]
    assert txn_commit(scene, 3) is Error[expected]
    assert fetch(scene, {"t": (0,)}, require_stable=True) == {"t": {0: FetchedOffset(1)}}


# Appends that take time

SLOWLY_MS = 2_000


def slow_scene(version, takes_ms=SLOWLY_MS, error=Error.NONE):
    scene = Scene(version)
    scene.commit(1)
    scene.simulator.act(FailAppends(error, takes_ms))
    return scene


def commit_later(scene, offset):
    """Return a commit whose answer comes later."""
    return scene.simulator.send(OffsetCommit(GROUP, (OffsetToCommit("t", 0, offset),)))


def error_of(call):
    return None if call.answer is None else call.answer.errors["t", 0]


@JAVA_AND_SCALA
def test_a_commit_in_flight_is_not_shown_and_is_answered_when_it_is_appended(version):
    scene = slow_scene(version)
    call = commit_later(scene, 2)
    assert call.answer is None and fetch(scene, {"t": (0,)}) == {"t": {0: FetchedOffset(1)}}
    scene.pass_time(SLOWLY_MS)
    assert error_of(call) is Error.NONE and fetch(scene, {"t": (0,)}) == {"t": {0: FetchedOffset(2)}}


def test_scala_calls_a_commit_in_flight_unstable():
    scene = slow_scene("3.9.1")
    commit_later(scene, 2)
    assert fetch(scene, {"t": (0,)}, require_stable=True) == {"t": {0: FetchedOffset(error=Error.UNSTABLE_OFFSET_COMMIT)}}
    scene.pass_time(SLOWLY_MS)
    assert fetch(scene, {"t": (0,)}, require_stable=True) == {"t": {0: FetchedOffset(2)}}


def test_java_answers_a_stable_fetch_when_nothing_is_in_flight():
    scene = slow_scene("4.3.1")
    commit_later(scene, 2)
    call = scene.simulator.send(OffsetFetch((GroupToFetch(GROUP, {"t": (0,)}),), require_stable=True))
    assert call.answer is None
    scene.pass_time(SLOWLY_MS)
    assert call.answer.groups[0].topics == {"t": {0: FetchedOffset(2)}}


@JAVA_AND_SCALA
def test_of_two_commits_in_flight_the_later_one_wins(version):
    scene = slow_scene(version)
    first = commit_later(scene, 2)
    scene.pass_time(500)
    second = commit_later(scene, 3)
    scene.pass_time(1_500)
    assert (error_of(first), error_of(second)) == (Error.NONE, None) and fetch(scene, {"t": (0,)}) == {"t": {0: FetchedOffset(2)}}
    scene.pass_time(500)
    assert error_of(second) is Error.NONE and fetch(scene, {"t": (0,)}) == {"t": {0: FetchedOffset(3)}}


@JAVA_AND_SCALA
def test_a_commit_whose_append_fails_after_a_while_is_taken_back(version):
    scene = slow_scene(version, error=Error.NOT_ENOUGH_REPLICAS)
    call = commit_later(scene, 2)
    scene.pass_time(SLOWLY_MS)
    assert error_of(call) is Error.COORDINATOR_NOT_AVAILABLE
    assert fetch(scene, {"t": (0,)}, require_stable=True) == {"t": {0: FetchedOffset(1)}}


@pytest.mark.parametrize(
    ("version", "error", "later"), [("3.9.1", Error.REQUEST_TIMED_OUT, 1), ("4.3.1", Error.COORDINATOR_NOT_AVAILABLE, 2)]
)
def test_a_commit_that_times_out_is_in_the_log_and_java_stores_it_later(version, error, later):
    scene = slow_scene(version, takes_ms=8_000)
    call = commit_later(scene, 2)
    scene.pass_time(5_000)
    assert error_of(call) is error and fetch(scene, {"t": (0,)}) == {"t": {0: FetchedOffset(1)}}
    scene.pass_time(3_000)
    assert fetch(scene, {"t": (0,)}) == {"t": {0: FetchedOffset(later)}}
    number = scene.simulator.broker.partition_number(GROUP)
    scene.simulator.act(LosePartition(number))
    scene.simulator.act(LoadPartition(number, tuple(scene.records)))
    assert fetch(scene, {"t": (0,)}) == {"t": {0: FetchedOffset(2)}}, "a load finds the record"


@JAVA_AND_SCALA
def test_a_move_answers_the_commits_in_flight(version):
    scene = slow_scene(version)
    call = commit_later(scene, 2)
    scene.simulator.act(LosePartition(scene.simulator.broker.partition_number(GROUP)))
    assert error_of(call) is Error.NOT_COORDINATOR
    scene.pass_time(SLOWLY_MS)


@JAVA_AND_SCALA
def test_a_transactional_commit_in_flight_is_unstable_and_taken_back_if_its_append_fails(version):
    scene = slow_scene(version, error=Error.NOT_ENOUGH_REPLICAS)
    scene.simulator.send(TxnOffsetCommit(GROUP, 5, (OffsetToCommit("t", 0, 2),)))
    scene.pass_time(SLOWLY_MS)
    scene.simulator.act(FailAppends(Error.NONE))
    scene.simulator.send(EndTxn(5, True))
    assert fetch(scene, {"t": (0,)}, require_stable=True) == {"t": {0: FetchedOffset(1)}}


@JAVA_AND_SCALA
@pytest.mark.parametrize(("error", "state"), [(Error.NONE, GroupState.STABLE), (Error.NOT_ENOUGH_REPLICAS, GroupState.PREPARING_REBALANCE)])
def test_the_group_is_stable_when_its_assignment_is_appended(version, error, state):
    scene = Scene(version)
    scene.form("a", "b")
    scene.simulator.act(FailAppends(error, SLOWLY_MS))
    calls = [scene.sync(name) for name in ("a", "b")]
    assert [call.answer for call in calls] == [None, None] and scene.group.state is GroupState.COMPLETING_REBALANCE
    scene.pass_time(SLOWLY_MS)
    assert all(call.answer is not None for call in calls) and scene.group.state is state


@JAVA_AND_SCALA
def test_a_rebalance_during_the_append_of_the_assignment_goes_on(version):
    scene = Scene(version)
    scene.form("a", "b")
    scene.simulator.act(FailAppends(Error.NONE, SLOWLY_MS))
    calls = [scene.sync(name) for name in ("a", "b")]
    scene.leave("b")
    assert calls[0].answer.error is Error.REBALANCE_IN_PROGRESS
    scene.pass_time(SLOWLY_MS)
    assert scene.group.state is GroupState.PREPARING_REBALANCE


# Transactions


@JAVA_AND_SCALA
def test_offsets_of_an_open_transaction_are_neither_shown_nor_stable(version):
    scene = Scene(version)
    scene.commit(1)
    txn_commit(scene, 10)
    txn_commit(scene, 11, "u")
    unstable = FetchedOffset(error=Error.UNSTABLE_OFFSET_COMMIT)
    assert fetch(scene, {"t": (0, 1)}) == {"t": {0: FetchedOffset(1), 1: FetchedOffset()}}
    assert fetch(scene, {"t": (0, 1)}, require_stable=True) == {"t": {0: unstable, 1: FetchedOffset()}}
    assert fetch(scene, require_stable=True) == {"t": {0: unstable}}  # u has nothing but what is pending


@JAVA_AND_SCALA
@pytest.mark.parametrize(("committed", "shown"), [(True, 10), (False, 1)])
def test_the_marker_shows_or_drops_them(version, committed, shown):
    scene = Scene(version)
    scene.commit(1)
    txn_commit(scene, 10)
    end(scene, committed=committed)
    assert fetch(scene, require_stable=True) == {"t": {0: FetchedOffset(shown)}}
    marker = scene.records[-1]
    assert (marker.control, marker.producer_id, marker.key, marker.key_bytes, marker.value_bytes) == (
        "COMMIT" if committed else "ABORT",
        7,
        None,
        None,
        None,
    )


@JAVA_AND_SCALA
def test_a_plain_commit_between_record_and_marker_stays(version):
    scene = Scene(version)
    txn_commit(scene, 10)
    scene.commit(20)
    end(scene, committed=True)
    assert fetch(scene) == {"t": {0: FetchedOffset(20)}}


@JAVA_AND_SCALA
def test_the_later_record_wins_not_the_later_marker(version):
    scene = Scene(version)
    txn_commit(scene, 10, producer_id=7)
    txn_commit(scene, 11, producer_id=8)
    end(scene, 8, committed=True)
    end(scene, 7, committed=True)
    assert fetch(scene) == {"t": {0: FetchedOffset(11)}}


def test_transactional_values_name_no_topic_id():
    scene = Scene(topics=TOPICS)
    txn_commit(scene, 10)
    (record,) = scene.records
    assert record.value["topic_id"] == NO_TOPIC_ID
    assert (record.is_transactional, record.producer_id) == (True, 7)


def test_a_transactional_commit_does_not_keep_a_member_alive():
    scene = Scene()
    scene.stabilize("a", session_timeout_ms=2_000)
    scene.pass_time(1_000)
    scene.ask(TxnOffsetCommit(GROUP, 7, (OffsetToCommit("t", 0, 1),), 0, scene.group.generation, scene.ids["a"]))
    scene.pass_time(1_000)
    assert scene.members == []
