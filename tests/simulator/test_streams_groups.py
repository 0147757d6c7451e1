"""Streams groups beyond what the transcripts of a broker play: sizes, refusals, failed appends, loads, expiration, and random groups."""

from __future__ import annotations

import random
from typing import Any

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator import (
    AddPartitions,
    CleanUp,
    ClusterTopic,
    ConfigureGroup,
    FailAppends,
    LoadPartition,
    LosePartition,
    Simulator,
    read_settings,
    release_for,
)
from groupcoord_spark.simulator.broker.actions import Deny
from groupcoord_spark.simulator.broker.coordinator_checks import Denied
from groupcoord_spark.simulator.messages.answers import DescribedStreamsGroup, StatusCode, StreamsGroupHeartbeatAnswer
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.requests import InternalTopic, StreamsGroupDescribe, StreamsGroupHeartbeat, Subtopology, Topology
from groupcoord_spark.simulator.messages.written_records import WrittenRecord
from tests.simulator.rules import plays

GROUP = "app"
PLAIN = Topology(0, (Subtopology("0", ("t",)),))
STATEFUL = Topology(0, (Subtopology("0", ("t",), state_changelog_topics=(InternalTopic("changelog"),)), Subtopology("1", ("u",))))
DAY_MS = 86_400_000
NO_TASKS: dict[str, Any] = {"active_tasks": {}, "standby_tasks": {}, "warmup_tasks": {}}


class Scene:
    """A broker with two topics, and everything it has written."""

    def __init__(self, version: str = "4.3.1", topology: Topology = PLAIN, **properties: Any) -> None:
        settings = {"group.streams.initial.rebalance.delay.ms": 0, **{name.replace("_", "."): value for name, value in properties.items()}}
        self.log: list[WrittenRecord] = []
        self.topology = topology
        topics = {"t": ClusterTopic(2, "zEt8Vj41TJS-zoIBnJIytw"), "u": ClusterTopic(3, "Orgs2naRRtG0xOYT5xHDnA")}
        self.simulator = Simulator(
            release_for(None, version), read_settings(settings, topics), on_entry=lambda entry: self.log.extend(entry.records)
        )

    def beat(
        self, member_id: str, epoch: int, has: dict[str, dict[str, tuple[int, ...]]] | None = None, **fields: Any
    ) -> StreamsGroupHeartbeatAnswer:
        """Return a heartbeat; has: kind -> subtopology -> partitions that the client lists, None: it lists nothing."""
        joins = {"rebalance_timeout_ms": 60_000, "topology": self.topology, "process_id": member_id[0]} if epoch == 0 else {}
        lists = {"active": {}, "standby": {}, "warmup": {}, **(has or {})} if epoch == 0 or has is not None else {}
        lists_of_kinds = {f"{kind}_tasks": tasks for kind, tasks in lists.items()}
        request = StreamsGroupHeartbeat(GROUP, member_id, epoch, **{**joins, **lists_of_kinds, **fields})
        answer = self.simulator.send(request, self.simulator.broker.now_ms + 1_000).answer
        assert isinstance(answer, StreamsGroupHeartbeatAnswer)
        return answer

    @property
    def group(self) -> DescribedStreamsGroup:
        (group,) = self.simulator.send(StreamsGroupDescribe((GROUP,))).answer.groups
        return group

    def reload(self) -> None:
        """Lose the partition and load it again."""
        number = self.simulator.broker.partition_number(GROUP)
        self.simulator.act(LosePartition(number))
        self.simulator.act(LoadPartition(number, tuple(self.log)))


@plays("C-13.7.7")
def test_a_full_streams_group_takes_nobody_who_joins() -> None:
    scene = Scene(group_streams_max_size=1)
    scene.beat("a", 0)
    assert scene.beat("b", 0).error is Error.GROUP_MAX_SIZE_REACHED
    assert scene.beat("a", 0).error is Error.GROUP_MAX_SIZE_REACHED
    assert scene.beat("a", 2).error is Error.NONE


@plays("C-13.7.2")
def test_a_topology_with_a_refused_topic_never_reaches_the_coordinator() -> None:
    scene = Scene()
    scene.simulator.act(Deny(Denied(topics=frozenset({"t"}))))
    assert scene.beat("a", 0).error is Error.TOPIC_AUTHORIZATION_FAILED
    scene.simulator.act(Deny(Denied()))
    scene.beat("a", 0)
    scene.simulator.act(Deny(Denied(topics=frozenset({"t"}))))
    assert scene.group.error is Error.TOPIC_AUTHORIZATION_FAILED


@plays("C-13.7.37")
def test_an_empty_streams_group_goes_with_a_retention_check() -> None:
    scene = Scene()
    scene.beat("a", 0)
    scene.simulator.act(CleanUp())
    assert scene.group.error is Error.NONE
    scene.beat("a", -1)
    scene.log.clear()
    scene.simulator.act(CleanUp())
    assert [(record.key_type, record.value) for record in scene.log] == [(20, None), (17, None), (23, None)]
    assert scene.group.error is Error.GROUP_ID_NOT_FOUND


@plays("C-13.7.38")
def test_a_load_of_the_log_brings_the_streams_group_back() -> None:
    scene = Scene(topology=STATEFUL)
    scene.beat("a", 0)
    scene.beat("a", 2)
    scene.beat("b", 0)
    scene.beat("a", 3, {"active": {"0": (0, 1), "1": (0, 1, 2)}})
    shown = scene.group
    epoch = next(member.member_epoch for member in shown.members if member.member_id == "a")
    number = scene.simulator.broker.partition_number(GROUP)
    scene.simulator.act(LosePartition(number))
    assert scene.beat("a", epoch).error is Error.NOT_COORDINATOR
    scene.simulator.act(LoadPartition(number, tuple(scene.log)))
    assert scene.group.members == shown.members
    assert (scene.group.state, scene.group.group_epoch) == (shown.state, shown.group_epoch)
    scene.log.clear()
    assert scene.beat("a", epoch).error is Error.NONE
    assert not scene.log
    assert scene.group == shown
    scene.simulator.advance_to(scene.simulator.broker.now_ms + 60_000)
    assert scene.group.state == "Empty"


def test_a_failed_append_changes_nothing() -> None:
    scene = Scene()
    scene.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
    assert scene.beat("a", 0).error is Error.COORDINATOR_NOT_AVAILABLE
    scene.simulator.act(FailAppends(Error.NONE))
    assert scene.beat("a", 2).error is Error.GROUP_ID_NOT_FOUND
    assert scene.beat("a", 0).member_epoch == 2
    shown = scene.group
    scene.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
    scene.simulator.act(AddPartitions("t", 4))
    assert scene.beat("a", 2).error is Error.COORDINATOR_NOT_AVAILABLE
    assert scene.group == shown
    scene.simulator.act(FailAppends(Error.NONE))
    assert scene.beat("a", 2).active_tasks == {"0": (0, 1, 2, 3)}


def test_a_group_of_4_2_has_no_assignment_interval() -> None:
    scene = Scene("4.2.0")
    assert scene.beat("a", 0).member_epoch == 2
    scene.simulator.send(StreamsGroupHeartbeat(GROUP, "b", 0, rebalance_timeout_ms=1, topology=PLAIN, process_id="b", **NO_TASKS))
    assert scene.beat("c", 0).status == ()
    scene = Scene("4.2.0", group_streams_initial_rebalance_delay_ms=3_000)
    answer = scene.beat("a", 0)
    assert (answer.member_epoch, [status.code for status in answer.status]) == (1, [StatusCode.ASSIGNMENT_DELAYED])


@pytest.mark.parametrize(("version", "waits"), [("4.2.0", True), ("4.3.1", False)])
def test_settings_of_a_group_hide_the_delay_of_the_broker_in_4_2(version: str, waits: bool) -> None:
    scene = Scene(version)
    scene.simulator.act(ConfigureGroup(GROUP, "streams.num.standby.replicas", 0))
    assert bool(scene.beat("a", 0).status) is waits


@pytest.mark.parametrize("seed", range(12))
def test_random_groups_keep_their_promises_and_are_what_their_log_says(seed: int) -> None:
    chance = random.Random(seed)
    scene = Scene(topology=STATEFUL)
    epochs: dict[str, int] = {}
    has: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {}
    for _ in range(150):
        member_id = chance.choice(["a1", "a2", "b1", "b2", "c1"])
        action = chance.random()
        if action < 0.05:
            scene.simulator.act(ConfigureGroup(GROUP, "streams.num.standby.replicas", chance.randint(0, 2)))
        elif action < 0.1:
            scene.simulator.advance_to(scene.simulator.broker.now_ms + chance.choice([5_000, 50_000]))
        leaves = member_id in epochs and chance.random() < 0.1
        epoch = -1 if leaves else epochs.get(member_id, 0)
        answer = scene.beat(member_id, epoch, None if leaves else has.get(member_id, {}))
        if answer.error is not Error.NONE or leaves:
            assert answer.error in (Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.GROUP_ID_NOT_FOUND)
            epochs.pop(member_id, None)
            has.pop(member_id, None)
            continue
        epochs[member_id] = answer.member_epoch
        if answer.active_tasks is not None:
            has[member_id] = {"active": dict(answer.active_tasks), "standby": dict(answer.standby_tasks or {})}
        _check_promises(scene.group)
        if chance.random() < 0.1:
            shown = scene.group
            scene.reload()
            assert (scene.group.members, scene.group.state) == (shown.members, shown.state)


def _check_promises(group: DescribedStreamsGroup) -> None:
    active = [(name, number) for member in group.members for name, numbers in member.assignment.active.items() for number in numbers]
    assert len(active) == len(set(active)), "two members run one task"
    for process_id in {member.process_id for member in group.members}:
        of_process = [
            (name, number)
            for member in group.members
            if member.process_id == process_id
            for tasks in (member.assignment.active, member.assignment.standby)
            for name, numbers in tasks.items()
            for number in numbers
        ]
        assert len(of_process) == len(set(of_process)), "a process has a task twice"


def test_an_append_that_fails_late_takes_the_heartbeat_back() -> None:
    scene = Scene()
    scene.beat("a", 0)
    shown = scene.group
    scene.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS, 500))
    call = scene.simulator.send(
        StreamsGroupHeartbeat(GROUP, "b", 0, rebalance_timeout_ms=60_000, topology=PLAIN, process_id="b", **NO_TASKS),
        scene.simulator.broker.now_ms + 1_000,
    )
    assert call.answer is None
    assert scene.group == shown
    scene.simulator.advance_to(scene.simulator.broker.now_ms + 500)
    assert call.answer is not None and call.answer.error is Error.COORDINATOR_NOT_AVAILABLE
    assert scene.group == shown
    scene.simulator.act(FailAppends(Error.NONE))
    assert scene.beat("b", 3).error is Error.UNKNOWN_MEMBER_ID
    scene.log.clear()
    assert scene.beat("a", 2).error is Error.NONE
    assert not scene.log


def test_a_slow_append_lets_the_answer_wait() -> None:
    scene = Scene()
    scene.simulator.act(FailAppends(Error.NONE, 500))
    call = scene.simulator.send(
        StreamsGroupHeartbeat(GROUP, "a", 0, rebalance_timeout_ms=60_000, topology=PLAIN, process_id="a", **NO_TASKS), 1_000
    )
    assert call.answer is None
    assert scene.group.error is Error.GROUP_ID_NOT_FOUND
    scene.simulator.advance_to(1_500)
    assert call.answer is not None and call.answer.member_epoch == 2
    assert scene.group.state == "Stable"


class TestKafka44:
    @pytest.mark.parametrize(("version", "key_types"), [("4.3.1", [22, 21, 19, 17]), ("4.4.0", [22, 21, 19, 17, 20])])
    def test_the_last_member_that_goes_leaves_a_target_assignment(self, version: str, key_types: list[int]) -> None:
        scene = Scene(version)
        scene.beat("a", 0)
        count = len(scene.log)
        scene.beat("a", -1)
        assert [record.key_type for record in scene.log[count:]] == key_types

    def test_a_static_member_comes_back_with_its_tasks_and_no_new_epoch(self) -> None:
        scene = Scene("4.4.0")
        tasks = scene.beat("a", 0, group_instance_id="i", process_id="p").active_tasks
        epoch, count = scene.group.group_epoch, len(scene.log)
        assert scene.beat("b", 0, group_instance_id="i").error is Error.UNRELEASED_INSTANCE_ID
        left = scene.beat("a", -2, group_instance_id="i")
        assert (left.error, left.member_epoch, [record.key_type for record in scene.log[count:]]) == (Error.NONE, -2, [22])
        back = scene.beat("b", 0, group_instance_id="i", process_id="p")
        assert (back.error, back.member_epoch, back.active_tasks, scene.group.group_epoch) == (Error.NONE, epoch, tasks, epoch)
        assert [member.member_id for member in scene.group.members] == ["b"]

    def test_static_members_need_4_4(self) -> None:
        assert Scene("4.3.1").beat("a", 0, group_instance_id="i").error is Error.INVALID_REQUEST
        assert Scene("4.4.0").beat("a", -2).error is Error.INVALID_REQUEST

    def test_an_instance_id_belongs_to_one_member(self) -> None:
        scene = Scene("4.4.0")
        scene.beat("a", 0, group_instance_id="i")
        scene.beat("b", 0)
        assert scene.beat("b", 2, group_instance_id="i").error is Error.FENCED_INSTANCE_ID
        assert scene.beat("a", 2, group_instance_id="j").error is Error.UNKNOWN_MEMBER_ID

    def test_a_member_without_the_tags_for_standbys_is_told(self) -> None:
        scene = Scene("4.4.0", group_streams_rack_aware_assignment_tags="zone, cluster")
        status = scene.beat("a", 0, client_tags={"zone": "z"}).status
        assert [(one.code.name, one.about) for one in status] == [("MISSING_CLIENT_TAGS", "cluster")]
        of_version_0 = scene.beat("b", 0, client_tags={"zone": "z"}, version=0).status
        assert not of_version_0
        value = next(record.value for record in scene.log if record.key_type == 17)
        assert value is not None and {"key": "rack.aware.assignment.tags", "value": "zone,cluster"} in value["last_assignment_configs"]

    def test_settings_of_tasks_are_in_the_answer_of_4_4(self) -> None:
        scene = Scene("4.4.0")
        scene.simulator.act(ConfigureGroup(GROUP, "streams.task.offset.interval.ms", 20_000))
        answer = scene.beat("a", 0)
        assert (answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (20_000, 10_000)
        older = Scene("4.3.1").beat("a", 0)
        assert (older.task_offset_interval_ms, older.acceptable_recovery_lag) == (0, 0)

    def test_a_setting_of_4_4_is_refused_before(self) -> None:
        with pytest.raises(UsageError, match=r"Kafka 4\.3\.1 does not know streams\.num\.warmup\.replicas: the setting came with 4\.4"):
            Scene("4.3.1").simulator.act(ConfigureGroup(GROUP, "streams.num.warmup.replicas", 1))
