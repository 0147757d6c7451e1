"""Appends that take time: the requests that wait for them, what others see meanwhile, and what a failed append takes back (chapter 9.7)."""

from typing import Any

import pytest

from groupcoord_spark.simulator import ClusterTopic, Error, FailAppends, GroupState, LosePartition
from groupcoord_spark.simulator.broker.settings import stand_in_topic_id
from groupcoord_spark.simulator.groups.consumer_group import ConsumerGroup
from groupcoord_spark.simulator.groups.share_group import ShareGroup
from groupcoord_spark.simulator.groups.streams_group import StreamsGroup
from groupcoord_spark.simulator.messages.calls import Call
from groupcoord_spark.simulator.messages.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    EndTxn,
    GroupToFetch,
    Heartbeat,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    Subtopology,
    Topology,
    TxnOffsetCommit,
    WriteTxnMarkers,
)
from tests.simulator.rules import plays
from tests.simulator.scene import GROUP, READS_T, Scene, error_of

TAKES_MS = 2_000
TOPICS = {"t": ClusterTopic(4, stand_in_topic_id("t")), "u": ClusterTopic(2, stand_in_topic_id("u"))}
FIRST: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "partitions": {}}
JAVA_AND_SCALA = pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])


def slow(scene: Scene, error: Error = Error.NONE, takes_ms: int = TAKES_MS) -> None:
    scene.simulator.act(FailAppends(error, takes_ms))


def end_failures(scene: Scene) -> None:
    scene.simulator.act(FailAppends(Error.NONE))


def consumers(*members: str) -> Scene:
    """Return a consumer group with these members, whose appends take no time yet."""
    scene = Scene(topics=TOPICS, group_consumer_assignment_interval_ms=0)
    for member in members:
        assert scene.error(ConsumerGroupHeartbeat(GROUP, member, 0, **FIRST)) is Error.NONE
    return scene


def beat(scene: Scene, member: str, epoch: int = 0, **fields: Any) -> Call:
    return scene.simulator.send(ConsumerGroupHeartbeat(GROUP, member, epoch, **(FIRST if epoch == 0 else {}), **fields))


def beat_again(scene: Scene, member: str) -> Call:
    return beat(scene, member, scene.simulator.broker.group_of(GROUP, ConsumerGroup).members[member].member_epoch)


def described(scene: Scene) -> tuple[Error, str, int]:
    group = scene.ask(ConsumerGroupDescribe((GROUP,))).groups[0]
    return group.error, group.state, len(group.members)


def committed(scene: Scene) -> int:
    return int(scene.ask(OffsetFetch((GroupToFetch(GROUP, {"t": (0,)}),))).groups[0].topics["t"][0].committed_offset)


@plays("C-9.7.7")
def test_a_heartbeat_that_writes_is_answered_when_its_records_are_replicated():
    scene = consumers()
    slow(scene)
    call = beat(scene, "a")
    assert call.answer is None
    assert described(scene)[0] is Error.GROUP_ID_NOT_FOUND
    assert scene.ask(ListGroups()).groups == ()
    scene.pass_time(TAKES_MS)
    assert error_of(call) is Error.NONE
    assert described(scene)[1:] == ("Stable", 1)
    assert [group.group_type for group in scene.ask(ListGroups()).groups] == ["consumer"]


def test_readers_see_each_change_when_it_is_replicated():
    scene = consumers("a")
    slow(scene)
    beat(scene, "b")
    scene.pass_time(TAKES_MS // 2)
    beat(scene, "c")
    seen = [described(scene)[2]]
    for _ in range(2):
        scene.pass_time(TAKES_MS // 2)
        seen.append(described(scene)[2])
    assert seen == [1, 2, 3]


@plays("C-9.7.7")
def test_a_failed_append_takes_the_group_back_and_fails_whatever_came_after_it():
    scene = consumers("a")
    epoch = scene.simulator.broker.group_of(GROUP, ConsumerGroup).epoch
    slow(scene, Error.KAFKA_STORAGE_ERROR)
    calls = [beat(scene, "b"), beat(scene, "c"), beat_again(scene, "a")]
    stranger = beat(scene, "z", 7)
    assert error_of(stranger) is Error.UNKNOWN_MEMBER_ID, "an error of the checks waits for nothing"
    assert set(scene.simulator.broker.group_of(GROUP, ConsumerGroup).members) == {"a", "b", "c"}
    scene.pass_time(TAKES_MS)
    assert [error_of(call) for call in calls] == [Error.NOT_COORDINATOR] * 3
    group = scene.simulator.broker.group_of(GROUP, ConsumerGroup)
    assert (set(group.members), group.epoch) == ({"a"}, epoch)
    assert set(group.session_timers) == {"a"}
    slow(scene, takes_ms=0)
    assert error_of(beat(scene, "b")) is Error.NONE


def test_a_new_group_is_gone_after_a_failed_append():
    scene = consumers()
    slow(scene, Error.KAFKA_STORAGE_ERROR)
    beat(scene, "a")
    scene.pass_time(TAKES_MS)
    assert scene.simulator.broker.group_of(GROUP, ConsumerGroup) is None
    assert not scene.simulator.timers(GROUP)


@plays("C-9.7.8")
@pytest.mark.parametrize("takes_ms", [0, TAKES_MS])
def test_what_a_session_timer_began_is_repeated_after_a_failed_append(takes_ms):
    scene = consumers("a", "b")
    slow(scene, Error.KAFKA_STORAGE_ERROR, takes_ms)
    scene.pass_time(44_000)
    end_failures(scene)
    beat_again(scene, "a")
    slow(scene, Error.KAFKA_STORAGE_ERROR, takes_ms)
    scene.pass_time(1_000 + takes_ms)
    assert set(scene.simulator.broker.group_of(GROUP, ConsumerGroup).members) == {"a", "b"}
    end_failures(scene)
    scene.pass_time(500)
    assert set(scene.simulator.broker.group_of(GROUP, ConsumerGroup).members) == {"a"}


@pytest.mark.parametrize("takes_ms", [0, TAKES_MS])
def test_a_member_whose_leave_was_not_written_has_no_session_timer_until_its_next_heartbeat(takes_ms):
    scene = consumers("a")
    slow(scene, Error.KAFKA_STORAGE_ERROR, takes_ms)
    leaving = beat(scene, "a", -1)
    scene.pass_time(takes_ms)
    assert error_of(leaving) is Error.NOT_COORDINATOR
    group = scene.simulator.broker.group_of(GROUP, ConsumerGroup)
    assert (set(group.members), set(group.session_timers)) == ({"a"}, set())
    end_failures(scene)
    beat_again(scene, "a")
    assert set(group.session_timers) == {"a"}


def test_a_heartbeat_without_records_waits_for_the_appends_before_it_in_java_only():
    answered = {}
    for version in ("3.9.1", "4.3.1"):
        scene = Scene(version)
        scene.stabilize("a", "b")
        slow(scene)
        scene.simulator.send(commit_of(scene, "a"))
        call = scene.simulator.send(Heartbeat(GROUP, scene.group.generation, scene.ids["b"]))
        answered[version] = call.answer is not None
        scene.pass_time(TAKES_MS)
        assert error_of(call) is Error.NONE
    assert answered == {"3.9.1": True, "4.3.1": False}


def commit_of(scene: Scene, name: str) -> Any:
    return OffsetCommit(GROUP, (OffsetToCommit("t", 0, 5),), scene.group.generation, scene.ids[name])


def test_a_request_does_not_wait_longer_than_the_commit_timeout():
    scene = consumers()
    slow(scene, takes_ms=8_000)
    call = beat(scene, "a")
    scene.pass_time(4_999)
    assert call.answer is None
    scene.pass_time(1)
    assert error_of(call) is Error.COORDINATOR_NOT_AVAILABLE
    scene.pass_time(3_000)
    assert described(scene)[1:] == ("Stable", 1), "the records were written, and stay"


@plays("C-9.7.6")
@pytest.mark.parametrize("error", [Error.NONE, Error.KAFKA_STORAGE_ERROR])
def test_a_deletion_is_seen_when_it_is_replicated(error):
    scene = Scene(topics=TOPICS)
    scene.stabilize("a")
    scene.commit(5, name="a")
    scene.leave("a")
    slow(scene, error)
    call = scene.simulator.send(DeleteGroups((GROUP, "other")))
    assert call.answer is None
    assert scene.state is None
    assert scene.ask(DescribeGroups((GROUP,))).groups[0].state == "Empty"
    assert committed(scene) == 5
    scene.pass_time(TAKES_MS)
    failed = error is not Error.NONE
    assert call.answer.errors == {GROUP: Error.NOT_COORDINATOR if failed else Error.NONE, "other": Error.GROUP_ID_NOT_FOUND}
    assert (scene.state, committed(scene)) == ((GroupState.EMPTY, 5) if failed else (None, -1))


@pytest.mark.parametrize("error", [Error.NONE, Error.KAFKA_STORAGE_ERROR])
def test_offsets_and_pending_offsets_are_there_again_if_their_deletion_fails(error):
    scene = Scene(topics=TOPICS)
    scene.commit(5)
    scene.ask(TxnOffsetCommit(GROUP, 9, (OffsetToCommit("t", 0, 6),)))
    slow(scene, error)
    call = scene.simulator.send(OffsetDelete(GROUP, {"t": (0,)}))
    scene.pass_time(TAKES_MS)
    assert error_of(call) is (Error.NONE if error is Error.NONE else Error.NOT_COORDINATOR)
    end_failures(scene)
    before = committed(scene)
    scene.ask(EndTxn(9, True))
    assert (before, committed(scene)) == ((-1, -1) if error is Error.NONE else (5, 6))


@plays("C-9.7.6")
@pytest.mark.parametrize(("error", "tombstones"), [(Error.NOT_ENOUGH_REPLICAS, 2), (Error.KAFKA_STORAGE_ERROR, 0)])
def test_a_scala_coordinator_deletes_whatever_becomes_of_the_tombstones(error, tombstones):
    scene = Scene("3.9.1", topics=TOPICS)
    scene.stabilize("a")
    scene.commit(5, name="a")
    scene.leave("a")
    slow(scene, error)
    written = len(scene.records)
    assert scene.ask(DeleteGroups((GROUP,))).errors == {GROUP: Error.NONE}
    assert (scene.state, len(scene.records) - written) == (None, tombstones)


@plays("C-9.7.3")
@JAVA_AND_SCALA
@pytest.mark.parametrize("error", [Error.NONE, Error.KAFKA_STORAGE_ERROR])
def test_the_restart_of_a_static_member_waits_for_its_record(version, error):
    scene = Scene(version)
    scene.stabilize("a", group_instance_id="i")
    old_id, generation = scene.ids["a"], scene.group.generation
    slow(scene, error)
    call = scene.join("a", member_id="", group_instance_id="i")
    assert call.answer is None
    new_id = scene.group.static_members["i"]
    assert new_id != old_id
    scene.pass_time(TAKES_MS)
    end_failures(scene)
    if error is Error.NONE:
        assert (error_of(call), call.answer.member_id, call.answer.generation) == (Error.NONE, new_id, generation)
    else:
        assert (error_of(call), call.answer.member_id) == (Error.NOT_COORDINATOR, "")
        assert scene.error(Heartbeat(GROUP, generation, old_id)) is Error.NONE
    assert scene.state is GroupState.STABLE


@plays("C-9.7.3")
@JAVA_AND_SCALA
def test_a_rebalance_during_the_append_answers_the_restarted_member(version):
    scene = Scene(version)
    scene.stabilize("a", group_instance_id="i")
    generation = scene.group.generation
    slow(scene)
    call = scene.join("a", member_id="", group_instance_id="i")
    scene.enter("n")
    scene.pass_time(0)
    assert (error_of(call), call.answer.generation) == (Error.NONE, generation + 1)
    scene.pass_time(TAKES_MS)
    assert scene.group.generation == generation + 1


@plays("C-9.7.5")
def test_a_group_whose_first_record_fails_is_gone_and_its_join_is_answered():
    scene = Scene()
    slow(scene, Error.KAFKA_STORAGE_ERROR)
    first = scene.join("a", group_instance_id="i")
    assert error_of(first) is Error.NONE, "the group answers a JoinGroup without waiting for the record"
    scene.pass_time(TAKES_MS)
    assert scene.state is None
    delayed = Scene(group_initial_rebalance_delay_ms=10_000)
    slow(delayed, Error.KAFKA_STORAGE_ERROR)
    call = delayed.join("a", group_instance_id="i")
    delayed.pass_time(TAKES_MS)
    assert error_of(call) is Error.NOT_COORDINATOR
    assert not delayed.simulator.timers(GROUP)


@plays("C-9.7.1")
@pytest.mark.parametrize("takes_ms", [0, TAKES_MS])
def test_a_group_that_a_failed_commit_created_is_gone(takes_ms):
    for version, state in (("3.9.1", GroupState.EMPTY), ("4.3.1", None)):
        scene = Scene(version)
        slow(scene, Error.KAFKA_STORAGE_ERROR, takes_ms)
        scene.ask(OffsetCommit(GROUP, (OffsetToCommit("t", 0, 1),)))
        scene.pass_time(takes_ms)
        assert scene.state is state


@plays("C-9.7.9")
@JAVA_AND_SCALA
def test_a_marker_takes_time_and_its_offsets_are_seen_after_it(version):
    scene = Scene(version)
    scene.commit(1)
    scene.ask(TxnOffsetCommit(GROUP, 5, (OffsetToCommit("t", 0, 2),)))
    slow(scene)
    call = scene.simulator.send(WriteTxnMarkers(GROUP, 5, True))
    assert (call.answer, committed(scene)) == (None, 1)
    scene.pass_time(TAKES_MS)
    assert (error_of(call), committed(scene)) == (Error.NONE, 2)


@plays("C-9.7.9")
@JAVA_AND_SCALA
@pytest.mark.parametrize("takes_ms", [0, TAKES_MS])
def test_the_transaction_coordinator_repeats_a_marker_that_could_not_be_written(version, takes_ms):
    scene = Scene(version)
    scene.commit(1)
    scene.ask(TxnOffsetCommit(GROUP, 5, (OffsetToCommit("t", 0, 2),)))
    slow(scene, Error.NOT_ENOUGH_REPLICAS, takes_ms)
    assert scene.error(EndTxn(5, True)) is Error.NONE
    assert scene.ask(WriteTxnMarkers("another group", 6, True)) is None or not takes_ms
    scene.pass_time(takes_ms)
    assert committed(scene) == 1
    end_failures(scene)
    assert committed(scene) == 2


def test_a_classic_group_is_there_again_if_its_upgrade_fails():
    scene = Scene(topics=TOPICS)
    scene.stabilize("a", protocols=(("range", READS_T),))
    session = scene.group.members[scene.ids["a"]].session_timer
    slow(scene, Error.KAFKA_STORAGE_ERROR)
    scene.group.members[scene.ids["a"]].assignment = b""
    call = beat(scene, "n")
    assert scene.simulator.broker.group_of(GROUP, ConsumerGroup) is not None
    assert scene.ask(DescribeGroups((GROUP,))).groups[0].state == "Stable", "readers still see the classic group"
    scene.pass_time(TAKES_MS)
    assert error_of(call) is Error.NOT_COORDINATOR
    assert scene.simulator.broker.group_of(GROUP, ConsumerGroup) is None
    assert scene.state is GroupState.STABLE
    assert session in scene.simulator.timers(GROUP)
    scene.pass_time(10_000)
    assert scene.state is GroupState.EMPTY, "its sessions go on"


@plays("C-9.7.7")
def test_a_share_group_waits_and_is_taken_back_too():
    scene = Scene(topics=TOPICS)
    slow(scene)
    first = scene.simulator.send(ShareGroupHeartbeat(GROUP, "a", 0, topics=("t",)))
    assert (first.answer, scene.ask(ShareGroupDescribe((GROUP,))).groups[0].error) == (None, Error.GROUP_ID_NOT_FOUND)
    scene.pass_time(2 * TAKES_MS)
    assert error_of(first) is Error.NONE
    slow(scene, Error.KAFKA_STORAGE_ERROR)
    second = scene.simulator.send(ShareGroupHeartbeat(GROUP, "b", 0, topics=("t",)))
    scene.pass_time(TAKES_MS)
    assert error_of(second) is Error.NOT_COORDINATOR
    group = scene.simulator.broker.group_of(GROUP, ShareGroup)
    assert (set(group.members), set(group.session_timers)) == ({"a"}, {"a"})


def test_whoever_waits_hears_of_a_move_of_the_coordinator():
    scene = consumers("a")
    slow(scene)
    call = beat(scene, "b")
    scene.simulator.act(LosePartition(scene.simulator.broker.partition_number(GROUP)))
    assert error_of(call) is Error.NOT_COORDINATOR
    scene.pass_time(2 * TAKES_MS)


def test_a_stable_fetch_fails_with_the_append_before_it():
    scene = Scene()
    scene.commit(1)
    slow(scene, Error.KAFKA_STORAGE_ERROR)
    scene.simulator.send(OffsetCommit(GROUP, (OffsetToCommit("t", 0, 2),)))
    call = scene.simulator.send(OffsetFetch((GroupToFetch(GROUP, {"t": (0,)}), GroupToFetch("other", {"t": (0,)})), True))
    assert call.answer is None
    scene.pass_time(TAKES_MS)
    assert [group.error for group in call.answer.groups] == [Error.NOT_COORDINATOR, Error.NONE]


@plays("C-9.7.4")
@JAVA_AND_SCALA
@pytest.mark.parametrize("error", [Error.NONE, Error.KAFKA_STORAGE_ERROR])
@pytest.mark.parametrize("takes_ms", [0, TAKES_MS])
def test_nobody_waits_for_the_record_of_an_empty_group(version, error, takes_ms):
    scene = Scene(version)
    scene.stabilize("a")
    slow(scene, error, takes_ms)
    scene.pass_time(10_000)
    scene.pass_time(takes_ms)
    assert scene.state is GroupState.EMPTY
    assert scene.group.generation == 2


@plays("C-9.7.2")
@JAVA_AND_SCALA
def test_the_assignments_of_a_failed_append_are_forgotten(version):
    scene = Scene(version)
    scene.form("a", "b")
    slow(scene, Error.KAFKA_STORAGE_ERROR)
    follower = scene.sync("b") if scene.leader == "a" else scene.sync("a")
    scene.sync(scene.leader, {"a": b"a", "b": b"b"})
    scene.pass_time(TAKES_MS)
    assert error_of(follower) is Error.NOT_COORDINATOR
    assert scene.state is GroupState.PREPARING_REBALANCE
    assert [member.assignment for member in scene.group.members] == [b"", b""]


STREAMS: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000,
    "process_id": "p",
    "topology": Topology(0, (Subtopology("0", ("t",)),)),
    "active_tasks": {},
    "standby_tasks": {},
    "warmup_tasks": {},
}


def streams_beat(scene: Scene, member: str, epoch: int = 0) -> Call:
    return scene.simulator.send(StreamsGroupHeartbeat(GROUP, member, epoch, **(STREAMS if epoch == 0 else {})))


def test_a_streams_group_waits_and_is_taken_back_too():
    scene = Scene(topics=TOPICS, group_streams_initial_rebalance_delay_ms=0)
    slow(scene)
    first = streams_beat(scene, "a")
    assert (first.answer, scene.ask(StreamsGroupDescribe((GROUP,))).groups[0].error) == (None, Error.GROUP_ID_NOT_FOUND)
    scene.pass_time(TAKES_MS)
    assert error_of(first) is Error.NONE
    slow(scene, Error.KAFKA_STORAGE_ERROR)
    second = streams_beat(scene, "b")
    scene.pass_time(TAKES_MS)
    assert error_of(second) is Error.NOT_COORDINATOR
    group = scene.simulator.broker.group_of(GROUP, StreamsGroup)
    assert (set(group.members), set(group.session_timers)) == ({"a"}, {"a"})
    end_failures(scene)
    assert error_of(streams_beat(scene, "b")) is Error.NONE
