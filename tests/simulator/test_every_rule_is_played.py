"""Every row of docs/reference/coordinator.md about states, requests and errors has a test, and the rows that no other file plays."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from groupcoord_spark.assignors.group import stand_in_topic_id
from groupcoord_spark.simulator import ClusterTopic, Error, FailAppends, GroupState, LosePartition
from groupcoord_spark.simulator.messages.requests import ConsumerGroupHeartbeat, DeleteGroups, JoinGroup, LeaveGroup, Leaving, OffsetDelete
from tests.simulator.rules import PLAYED_BY, plays, rows_of_the_reference
from tests.simulator.scene import GROUP, READS_T, Scene, error_of


def test_every_row_has_a_test_and_every_test_names_rows_that_are_there() -> None:
    for module in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.simulator.{module.stem}")
    rows = rows_of_the_reference()
    assert len(rows) == len(set(rows)) > 100
    assert [row for row in rows if row not in PLAYED_BY] == []
    assert [row for row in PLAYED_BY if row not in rows] == []


def _lose(scene: Scene) -> None:
    scene.simulator.act(LosePartition(scene.simulator.broker.partition_number(GROUP)))


def _beat(scene: Scene, for_ms: int, *names: str) -> None:
    """Let time pass where these members send heartbeats."""
    for _ in range(for_ms // 5_000):
        scene.pass_time(5_000)
        for name in names:
            scene.heartbeat(name)


TRANSITIONS: dict[str, tuple[str, str, Callable[[Scene], object]]] = {
    "C-2.6": ("Empty", "PreparingRebalance", lambda scene: scene.enter("n")),
    "C-2.7 deleted": ("Empty", "Dead", lambda scene: scene.ask(DeleteGroups((GROUP,)))),
    "C-2.7 moved": ("Empty", "Dead", _lose),
    "C-2.8 all joined": ("PreparingRebalance", "CompletingRebalance", lambda scene: [scene.join("a"), scene.join("b")]),
    "C-2.8 timeout": ("PreparingRebalance", "CompletingRebalance", lambda scene: _beat(scene, 60_000, "a", "b")),
    "C-2.9": ("PreparingRebalance", "Empty", lambda scene: scene.leave("a", "b", "c")),
    "C-2.10": ("PreparingRebalance", "Dead", _lose),
    "C-2.11": ("CompletingRebalance", "Stable", lambda scene: scene.sync_all("a", "b")),
    "C-2.12 joins": ("CompletingRebalance", "PreparingRebalance", lambda scene: scene.enter("n")),
    "C-2.12 leaves": ("CompletingRebalance", "PreparingRebalance", lambda scene: scene.leave("b")),
    "C-2.12 silent": ("CompletingRebalance", "PreparingRebalance", lambda scene: _beat(scene, 10_000, "a")),
    "C-2.12 changed": (
        "CompletingRebalance",
        "PreparingRebalance",
        lambda scene: scene.join("b", protocols=(("range", READS_T + b"!"),)),
    ),
    "C-2.12 storing fails": (
        "CompletingRebalance",
        "PreparingRebalance",
        lambda scene: [scene.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS)), scene.sync("a")],
    ),
    "C-2.12 sync timer": (
        "CompletingRebalance",
        "PreparingRebalance",
        lambda scene: [scene.sync("b"), _beat(scene, 60_000, "a", "b")],
    ),
    "C-2.13": ("CompletingRebalance", "Dead", _lose),
    "C-2.14 joins": ("Stable", "PreparingRebalance", lambda scene: scene.enter("n")),
    "C-2.14 leaves": ("Stable", "PreparingRebalance", lambda scene: scene.leave("b")),
    "C-2.14 leader": ("Stable", "PreparingRebalance", lambda scene: scene.join("a")),
    "C-2.14 changed": ("Stable", "PreparingRebalance", lambda scene: scene.join("b", protocols=(("range", READS_T + b"!"),))),
    "C-2.14 silent": ("Stable", "PreparingRebalance", lambda scene: _beat(scene, 10_000, "a")),
    "C-2.15": ("Stable", "Dead", _lose),
}


@plays("C-2.6-15")
@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_cause_takes_a_group_from_one_state_to_the_next(name: str) -> None:
    before, after, cause = TRANSITIONS[name]
    scene = Scene(group_initial_rebalance_delay_ms=1_000 if before == "Empty" else 0)
    if before == "Empty":
        scene.enter("a")
        scene.leave("a")
        scene.pass_time(1_000)
    else:
        scene.play(before)
    group = scene.group
    assert group.state is GroupState(before)
    cause(scene)
    assert group.state is GroupState(after)


@plays("C-4.5.4")
@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.3.1"])
def test_a_static_member_of_an_empty_group_cannot_be(version: str) -> None:
    scene = Scene(version)
    scene.enter("a", group_instance_id="i")
    scene.group.state = GroupState.EMPTY
    assert error_of(scene.join("a", member_id="", group_instance_id="i")) is Error.UNKNOWN_SERVER_ERROR


@plays("C-8.3")
@pytest.mark.parametrize("version", ["2.4.1", "2.8.2", "3.9.1", "4.3.1"])
def test_an_administrator_removes_a_static_member_by_its_instance_id(version: str) -> None:
    scene = Scene(version)
    scene.stabilize("a", group_instance_id="i")
    answer = scene.ask(LeaveGroup(GROUP, (Leaving("", "i"), Leaving("", "other"))))
    assert [member.error for member in answer.members] == [Error.NONE, Error.UNKNOWN_MEMBER_ID]
    assert scene.state is GroupState.EMPTY


@plays("C-9.6.4")
@pytest.mark.parametrize("state", ["absent", "Dead"])
def test_offsets_of_no_group_cannot_be_deleted(state: str) -> None:
    scene = Scene(topics={"t": ClusterTopic(1)})
    scene.play(state)
    answer = scene.ask(OffsetDelete(GROUP, {"t": (0,)}))
    assert (answer.error, answer.errors) == (Error.GROUP_ID_NOT_FOUND, {})


@plays("C-13.4.6", "C-13.5.2")
def test_a_consumer_group_has_a_size() -> None:
    scene = Scene(topics={"t": ClusterTopic(4, stand_in_topic_id("t"))}, group_consumer_max_size=1)
    first = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "partitions": {}}
    assert scene.error(ConsumerGroupHeartbeat(GROUP, "a", 0, **first)) is Error.NONE
    assert scene.error(ConsumerGroupHeartbeat(GROUP, "b", 0, **first)) is Error.GROUP_MAX_SIZE_REACHED
    answer = scene.ask(JoinGroup(GROUP, protocols=(("range", READS_T),)))
    assert (answer.error, answer.member_id) == (Error.GROUP_MAX_SIZE_REACHED, "")
