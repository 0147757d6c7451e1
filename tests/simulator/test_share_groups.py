"""Share groups beyond what the transcripts of a broker play: sessions, sizes, new partitions, and the load of a log."""

from __future__ import annotations

from groupcoord_spark.simulator import AddPartitions, ClusterTopic, FailAppends, LoadPartition, LosePartition, Simulator, read_settings
from groupcoord_spark.simulator.messages.answers import ShareGroupHeartbeatAnswer
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.requests import (
    DescribeGroups,
    Heartbeat,
    LeaveGroup,
    Leaving,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    SyncGroup,
)
from groupcoord_spark.simulator.messages.written_records import WrittenRecord
from tests.simulator.rules import plays

GROUP = "shared"
TOPIC_ID = "zEt8Vj41TJS-zoIBnJIytw"


class Scene:
    """A broker with one topic of two partitions, and everything it has written."""

    def __init__(self, **properties: int) -> None:
        settings = {"group.share.assignment.interval.ms": 0, **{name.replace("_", "."): value for name, value in properties.items()}}
        self.log: list[WrittenRecord] = []
        self.simulator = Simulator(
            settings=read_settings(settings, {"t": ClusterTopic(2, TOPIC_ID)}), on_entry=lambda entry: self.log.extend(entry.records)
        )

    def beat(self, member_id: str, epoch: int, *topics: str) -> ShareGroupHeartbeatAnswer:
        request = ShareGroupHeartbeat(GROUP, member_id, epoch, topics=topics or None)
        answer = self.simulator.send(request, self.simulator.broker.now_ms + 10).answer
        assert isinstance(answer, ShareGroupHeartbeatAnswer)
        return answer


@plays("C-13.6.9")
def test_a_silent_member_leaves_the_records_of_one_that_leaves() -> None:
    scene = Scene(group_share_session_timeout_ms=5_000)
    scene.beat("a", 0, "t")
    scene.simulator.advance_to(5_009)
    scene.log.clear()
    scene.simulator.advance_to(5_010)
    assert [(record.key_type, record.value is None) for record in scene.log] == [(14, True), (13, True), (10, True), (11, False)]


@plays("C-13.6.5")
def test_a_full_share_group_takes_no_new_member() -> None:
    scene = Scene(group_share_max_size=1)
    scene.beat("a", 0, "t")
    assert scene.beat("b", 0, "t").error is Error.GROUP_MAX_SIZE_REACHED
    assert scene.beat("a", 0, "t").error is Error.NONE


def test_new_partitions_are_assigned_when_their_state_is_made() -> None:
    scene = Scene()
    scene.beat("a", 0, "t")
    assert scene.beat("a", 2).assignment == {"t": (0, 1)}
    scene.simulator.act(AddPartitions("t", 3))
    scene.log.clear()
    assert scene.beat("a", 3).assignment is None
    assert [record.key_type for record in scene.log] == [11, 12, 14, 15]
    assert scene.beat("a", 4).assignment == {"t": (0, 1, 2)}


def test_an_interval_between_assignments_lets_a_new_member_wait() -> None:
    scene = Scene(group_share_assignment_interval_ms=1_000)
    scene.beat("a", 0, "t")
    assert scene.beat("b", 0, "t").assignment == {}
    scene.simulator.advance_to(1_100)
    assert scene.beat("b", 2).assignment in ({"t": (0,)}, {"t": (1,)})


def test_a_load_of_the_log_brings_the_share_group_back() -> None:
    scene = Scene()
    scene.beat("a", 0, "t")
    scene.beat("a", 2)
    number = scene.simulator.broker.partition_number(GROUP)
    shown = scene.simulator.send(ShareGroupDescribe((GROUP,))).answer
    scene.simulator.act(LosePartition(number))
    assert scene.beat("a", 3).error is Error.NOT_COORDINATOR
    scene.simulator.act(LoadPartition(number, tuple(scene.log)))
    assert scene.simulator.send(ShareGroupDescribe((GROUP,))).answer == shown
    scene.log.clear()
    assert scene.beat("a", 3).error is Error.NONE
    assert not scene.log


def test_partitions_whose_state_record_was_not_written_are_asked_for_again() -> None:
    scene = Scene()
    scene.beat("a", 0, "t")
    scene.beat("a", 2)
    scene.simulator.act(AddPartitions("t", 3))
    scene.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
    assert scene.beat("a", 3).error is Error.COORDINATOR_NOT_AVAILABLE
    scene.simulator.act(FailAppends(Error.NONE))
    scene.log.clear()
    assert scene.beat("a", 3).member_epoch == 4
    assert [record.key_type for record in scene.log] == [11, 12, 14, 15]
    assert scene.beat("a", 4).assignment == {"t": (0, 1, 2)}


def test_a_failed_append_changes_nothing() -> None:
    scene = Scene()
    scene.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
    assert scene.beat("a", 0, "t").error is Error.COORDINATOR_NOT_AVAILABLE
    scene.simulator.act(FailAppends(Error.NONE))
    assert scene.beat("a", 2).error is Error.GROUP_ID_NOT_FOUND
    assert scene.beat("a", 0, "t").member_epoch == 2
    scene.simulator.advance_to(scene.simulator.broker.now_ms + 5)
    scene.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
    assert scene.beat("a", 2).error is Error.COORDINATOR_NOT_AVAILABLE
    scene.simulator.act(FailAppends(Error.NONE))
    assert scene.beat("a", 2).member_epoch == 3


@plays("C-13.6.11", "C-13.6.14")
def test_classic_requests_find_no_member_in_a_share_group() -> None:
    scene = Scene()
    scene.beat("a", 0, "t")
    assert scene.simulator.send(Heartbeat(GROUP, 2, "a")).answer.error is Error.UNKNOWN_MEMBER_ID
    assert scene.simulator.send(SyncGroup(GROUP, 2, "a")).answer.error is Error.UNKNOWN_MEMBER_ID
    assert scene.simulator.send(LeaveGroup(GROUP, (Leaving("a"),))).answer.members[0].error is Error.UNKNOWN_MEMBER_ID
    (described,) = scene.simulator.send(DescribeGroups((GROUP,))).answer.groups
    assert (described.error, described.state) == (Error.GROUP_ID_NOT_FOUND, "Dead")
