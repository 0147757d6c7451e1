"""A partition that comes with its records, and one that goes."""

import pytest

from groupcoord_spark.simulator import BeginLoad, Error, GroupState, LoadPartition, LosePartition, WrittenRecord
from groupcoord_spark.simulator.groups.consumer_group import ConsumerGroup
from groupcoord_spark.simulator.messages.requests import (
    EndTxn,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from tests.simulator.scene import GROUP, READS_T, Scene, error_of

JAVA_AND_SCALA = pytest.mark.parametrize("version", ["4.3.1", "3.9.1", "2.8.2"])


def move(scene, **settings):
    """Return the same group on another broker of that release, a while later."""
    other = Scene(scene.simulator.release.semantics.broker_version, **settings)
    other.pass_time(1_000_000)
    number = other.simulator.broker.partition_number(GROUP)
    other.simulator.act(LoadPartition(number, tuple(record for record in scene.records if record.offsets_partition == number)))
    other.ids = dict(scene.ids)
    return other


@JAVA_AND_SCALA
def test_a_stable_group_goes_on_elsewhere_and_its_sessions_start_anew(version):
    scene = Scene(version)
    scene.stabilize("a", "b", session_timeout_ms=10_000)
    scene.commit(5, name="a")
    other = move(scene)
    assert (other.state, other.group.generation, other.group.leader) == (GroupState.STABLE, scene.group.generation, scene.group.leader)
    assert other.simulator.describe(GROUP) == scene.simulator.describe(GROUP)
    assert other.heartbeat("a") is Error.NONE
    assert {member.deadline_ms for member in other.group.members} == {1_010_000}
    other.pass_time(10_000)
    assert other.members == []


@JAVA_AND_SCALA
def test_a_rebalance_under_way_is_forgotten(version):
    scene = Scene(version)
    scene.stabilize("a")
    generation = scene.group.generation
    scene.enter("b")
    scene.join("a")
    scene.join("p")
    other = move(scene)
    assert (other.state, other.group.generation, other.members) == (GroupState.STABLE, generation, ["a"])
    assert other.heartbeat("b") is Error.UNKNOWN_MEMBER_ID
    assert other.heartbeat("a", generation=generation + 1) is Error.ILLEGAL_GENERATION


@JAVA_AND_SCALA
def test_offsets_come_along_and_so_do_open_transactions(version):
    scene = Scene(version)
    scene.commit(1)
    scene.ask(TxnOffsetCommit(GROUP, 7, (OffsetToCommit("t", 1, 2),)))
    other = move(scene)
    fetch = OffsetFetch((GroupToFetch(GROUP, {"t": (0, 1)}),), require_stable=True)
    shown = other.ask(fetch).groups[0].topics["t"]
    assert (shown[0].committed_offset, shown[1].error) == (1, Error.UNSTABLE_OFFSET_COMMIT)
    # The marker is written by the member that ends the transaction, once it reaches this partition.
    other.ask(TxnOffsetCommit(GROUP, 7, (OffsetToCommit("u", 0, 3),)))
    other.ask(EndTxn(7, committed=True))
    assert other.ask(fetch).groups[0].topics["t"][1].committed_offset == 2
    assert other.records[0].record_offset == scene.records[-1].record_offset + 1


@pytest.mark.parametrize(
    ("version", "state"),
    [("2.0.1", GroupState.STABLE), ("3.9.1", GroupState.PREPARING_REBALANCE), ("4.3.1", GroupState.PREPARING_REBALANCE)],
)
def test_a_group_over_its_size_rebalances_when_it_is_loaded(version, state):
    scene = Scene(version)
    scene.stabilize("a", "b")
    assert move(scene, group_max_size=1).state is state


@JAVA_AND_SCALA
@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_who_waits_is_sent_away_when_the_partition_goes(version, state):
    scene = Scene(version)
    scene.play(state)
    waiting = scene.calls["c"] if state == "PreparingRebalance" else scene.sync("b")
    assert waiting.answer is None
    group, number = scene.group, scene.simulator.broker.partition_number(GROUP)
    scene.simulator.act(LosePartition(number))
    assert error_of(waiting) is Error.NOT_COORDINATOR
    assert (group.state, scene.state) == (GroupState.DEAD, None)
    assert scene.error(Heartbeat(GROUP, 1, "m")) is Error.NOT_COORDINATOR
    scene.pass_time(1_000_000)
    assert all(entry.group_id != GROUP or entry.at_ms == 0 for entry in scene.entries)


def test_a_partition_can_be_lost_twice():
    scene = Scene()
    scene.simulator.act(LosePartition(3))
    scene.simulator.act(LosePartition(3))


def test_a_group_is_served_again_once_its_partition_is_read():
    scene = Scene()
    number = scene.simulator.broker.partition_number(GROUP)
    scene.simulator.act(BeginLoad(number))
    assert scene.commit(1) is Error.COORDINATOR_LOAD_IN_PROGRESS
    scene.simulator.act(LoadPartition(number))
    assert scene.commit(1) is Error.NONE


def test_an_empty_consumer_group_that_was_loaded_makes_room_for_a_classic_group():
    scene = Scene()
    number = scene.simulator.broker.partition_number(GROUP)
    value = {"epoch": 3, "metadata_hash": 0}
    record = WrittenRecord(number, 9, 1, 0, 3, {"group_id": GROUP}, 0, value)
    scene.simulator.act(LoadPartition(number, (record,)))
    assert scene.simulator.broker.group_of(GROUP, ConsumerGroup).epoch == 3
    assert scene.error(JoinGroup(GROUP, 10_000, protocols=(("range", READS_T),))) is Error.MEMBER_ID_REQUIRED
    assert [(record.key_type, record.value is None) for record in scene.records] == [(6, True), (4, True), (3, True), (2, False)]
    assert scene.simulator.broker.group_of(GROUP, ConsumerGroup) is None


def test_share_groups_turn_classic_members_and_commits_away():
    scene = Scene()
    number = scene.simulator.broker.partition_number(GROUP)
    record = WrittenRecord(number, 9, 1, 0, 11, {"group_id": GROUP}, 0, {"epoch": 3, "metadata_hash": 0})
    scene.simulator.act(LoadPartition(number, (record,)))
    assert scene.error(JoinGroup(GROUP, 10_000, protocols=(("range", READS_T),))) is Error.INCONSISTENT_GROUP_PROTOCOL
    assert scene.commit(1) is Error.GROUP_ID_NOT_FOUND
