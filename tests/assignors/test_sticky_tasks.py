"""The assignor of streams groups gives the tasks that Kafka's class gave."""

from __future__ import annotations

import pytest

from groupcoord_spark.assignors.sticky_tasks import AssignedTasks, JavaQueue, SubtopologyTasks, Task, TaskMember, sticky_tasks
from tests.tools.conformance.task_assignors import recorded, target_of


def test_the_tasks_are_those_that_kafkas_class_assigned() -> None:
    cases = recorded()
    assert len(cases) == 300
    different = [lines for lines, target in cases if target_of(lines) != {name: tuple(tasks) for name, tasks in target.items()}]
    assert different == []


def test_the_comparison_sees_other_tasks() -> None:
    lines, target = next((lines, target) for lines, target in recorded() if len(target) > 1)
    assert list(target_of([*lines[:-2], lines[-1]])) != list(target)


def test_a_group_without_members_has_no_target() -> None:
    assert sticky_tasks({}, {"0": SubtopologyTasks(2, True)}, 1) == {}


def test_a_standby_is_never_beside_its_active_task() -> None:
    members = {"a": TaskMember("p"), "b": TaskMember("p"), "c": TaskMember("q")}
    assigned = sticky_tasks(members, {"0": SubtopologyTasks(3, True)}, 2)
    assert sum(len(tasks.standby) for tasks in assigned.values()) == 3
    for process in ({"a", "b"}, {"c"}):
        active = frozenset[Task]().union(*(assigned[member].active for member in process))
        standby = frozenset[Task]().union(*(assigned[member].standby for member in process))
        assert not active & standby


def test_a_member_that_kept_the_state_warm_takes_a_task_over() -> None:
    before = {"b": TaskMember("q", standby=(Task("0", 0),)), "c": TaskMember("r")}
    assigned = sticky_tasks(before, {"0": SubtopologyTasks(1, True)}, 0)
    assert assigned["b"] == AssignedTasks(frozenset({Task("0", 0)}), frozenset())


def test_equal_elements_come_in_the_order_of_javas_queue() -> None:
    queue = JavaQueue(lambda element: element[0], [(1, "a"), (1, "b"), (0, "c"), (1, "d"), (0, "e")])
    assert [queue.poll()[1] for _ in range(5)] == ["c", "e", "d", "a", "b"]


@pytest.mark.parametrize(("passes_over_holders", "standby"), [(False, "a"), (True, "c")], ids=["4.3.1", "4.2.2 and 4.4.0"])
def test_a_standby_goes_back_though_the_process_of_another_former_member_runs_the_task(passes_over_holders: bool, standby: str) -> None:
    task = Task("0", 0)
    members = {"a": TaskMember("p"), "b": TaskMember("r", {task}, {task}), "c": TaskMember("q", (), {task})}
    assigned = sticky_tasks(members, {"0": SubtopologyTasks(1, True)}, 1, passes_over_holders=passes_over_holders)
    assert {member_id: tasks.standby for member_id, tasks in assigned.items() if tasks.standby} == {standby: {task}}
