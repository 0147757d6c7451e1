"""``sticky``, the assignor of streams groups (KIP-1071; Kafka: ``StickyTaskAssignor``): which member runs which task.

A task is a partition number of a subtopology. A member is one thread of an application instance (process); the load of a process is its
number of tasks for each of its members. Rules: docs/reference/coordinator.md, chapter 13.7.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order

T = TypeVar("T")


class JavaQueue(Generic[T]):
    """Takes out the element of the lowest rank. Elements of equal rank come in the order of ``java.util.PriorityQueue``.

    ``heapq`` arranges its heap otherwise: it gives up equal elements in another order. The rank of an element may change only while the
    element is outside of the queue.
    """

    __slots__ = ("_heap", "_rank")

    def __init__(self, rank: Callable[[T], float], elements: Iterable[T] = ()) -> None:
        self._rank = rank
        self._heap: list[T] = []
        for element in elements:
            self.add(element)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, element: T) -> None:
        """Put an element in: it moves up from the end of the heap while its parent has a higher rank."""
        heap, at = self._heap, len(self._heap)
        heap.append(element)
        rank = self._rank(element)
        while at > 0 and rank < self._rank(heap[(at - 1) // 2]):
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = element

    def poll(self) -> T:
        """Remove and return the first element; the last element of the heap sifts down from its place. Raises IndexError if the queue is
        empty."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            self._sink(last)
        return first

    def _sink(self, element: T) -> None:
        heap, at, rank = self._heap, 0, self._rank(element)
        while (child := 2 * at + 1) < len(heap):
            if child + 1 < len(heap) and self._rank(heap[child]) > self._rank(heap[child + 1]):
                child += 1
            if rank <= self._rank(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = element


class Task(NamedTuple):
    """One task: the partitions of this number in all source topics of a subtopology."""

    subtopology: str
    partition: int


class SubtopologyTasks(NamedTuple):
    """How many tasks a subtopology has, and whether it has state, so that its tasks may have standbys."""

    tasks: int
    is_stateful: bool


class TaskMember(NamedTuple):
    """A member of the group.

    active, standby: the tasks of its target assignment so far; since 4.4 those of its current assignment.
    offsets: task -> sum of the changelog offsets that the member has restored for the task, as it reported them (since 4.4).
    """

    process_id: str
    active: Iterable[Task] = ()
    standby: Iterable[Task] = ()
    offsets: Mapping[Task, int] = MappingProxyType({})


class AssignedTasks(NamedTuple):
    """The tasks of one member. The assignor of 4.3 gives no warm-up tasks."""

    active: frozenset[Task]
    standby: frozenset[Task]


def sticky_tasks(
    members: Mapping[str, TaskMember],
    subtopologies: Mapping[str, SubtopologyTasks],
    standby_replicas: int,
    *,
    passes_over_holders: bool = False,
    computes_processes: bool = False,
) -> dict[str, AssignedTasks]:
    """Return the target assignment: member id -> tasks.

    Args:
        members: member id -> member, in the order of the group's map of members.
        subtopologies: id -> subtopology.
        standby_replicas: ``num.standby.replicas``: how many standbys each task with state has, as far as there are processes for them.
        passes_over_holders: the rule of 4.2.2, and since 4.4: a standby goes to the former member with the least load among those whose
            process does not have the task yet. Before, it goes to none of them if the first one's process has the task.
        computes_processes: the order of processes since 4.4, whose map is filled by ``computeIfAbsent``. Before, by ``putIfAbsent``.
    """
    if not members:
        return {}
    assignor = _StickyTasks(members, subtopologies, standby_replicas, passes_over_holders, computes_processes)
    return assignor.assign()


@dataclass(slots=True, eq=False)
class _Process:
    """An application instance and what it has been given. counts: member id -> number of its tasks, in the order of Kafka's map."""

    counts: dict[str, int] = field(default_factory=dict)
    tasks: set[Task] = field(default_factory=set)
    members_by_load: JavaQueue[str] | None = None

    @property
    def load(self) -> float:
        return sum(self.counts.values()) / len(self.counts)


class _Quota:
    """How many tasks a member may have: an equal share of all tasks. Members that have reached it leave the rest to the others."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.of_member = self._share()

    def count(self, tasks_of_member: int) -> None:
        """Update the load after a member has received a task. ``tasks_of_member`` is its new number of tasks."""
        if tasks_of_member == self.of_member:
            self._members -= 1
            self._tasks -= tasks_of_member
            self.of_member = self._share()

    def _share(self) -> int:
        return 0 if self._members == 0 else -(-self._tasks // self._members)


class _StickyTasks:
    """One computation of the target assignment."""

    def __init__(
        self,
        members: Mapping[str, TaskMember],
        subtopologies: Mapping[str, SubtopologyTasks],
        standby_replicas: int,
        passes_over_holders: bool,
        computes_processes: bool,
    ) -> None:
        self._members = members
        self._passes_over_holders = passes_over_holders
        self._replicas = standby_replicas
        self._subtopologies = dict(sorted(subtopologies.items()))
        self._active: dict[str, set[Task]] = {member_id: set() for member_id in members}
        self._standby: dict[str, set[Task]] = {member_id: set() for member_id in members}
        self._active_before: dict[Task, str] = {}
        self._standby_before: dict[Task, list[str]] = {}
        ordered = in_hash_order(members, hash_of_text)
        self._processes = self._make_processes(ordered, computes_processes)
        for member_id in ordered:
            self._active_before |= dict.fromkeys(members[member_id].active, member_id)
            for task in dict.fromkeys((*members[member_id].standby, *members[member_id].offsets)):
                self._standby_before.setdefault(task, []).append(member_id)
        for task, candidates in self._standby_before.items():
            # Former holders first, each by the state that it has.
            candidates.sort(key=lambda name: (task not in members[name].standby, -members[name].offsets.get(task, 0)))
        active = sum(subtopology.tasks for subtopology in self._subtopologies.values())
        stateful = sum(subtopology.tasks for subtopology in self._subtopologies.values() if subtopology.is_stateful)
        self._active_quota = _Quota(active, len(members))
        self._quota = _Quota(active + stateful * standby_replicas, len(members))

    def assign(self) -> dict[str, AssignedTasks]:
        """Return the tasks of each member."""
        self._assign_active(self._tasks(only_stateful=False))
        if self._replicas > 0:
            self._assign_standby(self._tasks(only_stateful=True))
        tasks = ((member_id, self._active[member_id], self._standby[member_id]) for member_id in self._members)
        return {member_id: AssignedTasks(frozenset(active), frozenset(standby)) for member_id, active, standby in tasks}

    def _make_processes(self, ordered: Sequence[str], computes: bool) -> dict[str, _Process]:
        """Process id -> process, in the order of Kafka's map, which is made for as many processes as the group has members.

        computes: the map is filled by ``computeIfAbsent``, which grows the table before a call and puts a new key in front of its slot.
        """
        slots = 1
        while slots < len(ordered):
            slots *= 2
        of_process: dict[str, list[str]] = {}
        for member_id in ordered:
            if computes and len(of_process) > slots * 3 // 4:
                slots *= 2
            of_process.setdefault(self._members[member_id].process_id, []).append(member_id)
        while not computes and len(of_process) > slots * 3 // 4:
            slots *= 2
        filled = list(reversed(of_process)) if computes else list(of_process)
        return {
            process_id: _Process(dict.fromkeys(in_hash_order(of_process[process_id], hash_of_text), 0))
            for process_id in in_hash_order(filled, hash_of_text, slots)
        }

    def _tasks(self, *, only_stateful: bool) -> list[Task]:
        return [
            Task(name, number)
            for name, subtopology in self._subtopologies.items()
            if subtopology.is_stateful or not only_stateful
            for number in range(subtopology.tasks)
        ]

    def _process_of(self, member_id: str) -> _Process:
        return self._processes[self._members[member_id].process_id]

    # Active tasks

    def _assign_active(self, tasks: list[Task]) -> None:
        """Assign active tasks: to the member that ran the task, else to one with its state, else to the process with the least load."""
        unassigned = sorted(tasks, key=lambda task: (task.partition, task.subtopology))
        unassigned = [task for task in unassigned if not self._gives_back(task, self._active_before.get(task))]
        unassigned = [
            task for task in unassigned if not self._gives_back(task, self._least_loaded(self._standby_before.get(task, ()), None))
        ]
        by_load = JavaQueue(lambda process: process.load, self._processes.values())
        for task in sorted(unassigned):
            process = by_load.poll()
            self._add_to_least_loaded(process, task, self._active)
            by_load.add(process)

    def _gives_back(self, task: Task, member_id: str | None) -> bool:
        """Give an active task to a member that had it, unless the member has its share of active tasks already."""
        if member_id is None or self._process_of(member_id).counts[member_id] >= self._active_quota.of_member:
            return False
        self._add(self._process_of(member_id), member_id, task, self._active)
        return True

    # Standby tasks

    def _assign_standby(self, tasks: list[Task]) -> None:
        """Assign standby tasks: first to members that still have the state of the task, then to the processes with the least load."""
        unassigned: list[tuple[Task, int]] = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology), reverse=True):
            for replica in range(self._replicas):
                if not self._keeps_state(task):
                    unassigned.append((task, self._replicas - replica))
                    break
        by_load = JavaQueue(lambda process: process.load, self._processes.values())
        for task, replicas in sorted(unassigned, reverse=True):
            for _ in range(replicas):
                if not self._add_to_other_process(by_load, task):
                    break

    def _keeps_state(self, task: Task) -> bool:
        """Give a standby task to a member that ran it or kept its state warm, if that member may have one more task."""
        active_before = self._active_before.get(task)
        candidates = [] if active_before is None or task in self._process_of(active_before).tasks else [active_before]
        standby_before = self._least_loaded(self._standby_before.get(task, ()), task)
        for member_id in (*candidates, *([standby_before] if standby_before is not None else [])):
            process = self._process_of(member_id)
            if process.counts[member_id] < self._quota.of_member:
                self._add(process, member_id, task, self._standby)
                return True
        return False

    def _add_to_other_process(self, by_load: JavaQueue[_Process], task: Task) -> bool:
        """Give a standby task to the process with the least load that does not have the task. False: every process has it."""
        if not by_load:
            return False
        process = by_load.poll()
        has_task = task in process.tasks
        if not has_task:
            self._add_to_least_loaded(process, task, self._standby)
        is_given = not has_task or self._add_to_other_process(by_load, task)
        by_load.add(process)
        return is_given

    def _least_loaded(self, members: Sequence[str], task: Task | None) -> str | None:
        """Return the member with the least load. Processes that already have ``task`` are skipped; see ``sticky_tasks`` for the first one.

        As in Kafka, a member takes the place of an earlier one only if both its process and the member itself have less load.
        """
        if self._passes_over_holders and task is not None:
            members, task = [member_id for member_id in members if task not in self._process_of(member_id).tasks], None
        if not members:
            return None
        first = self._process_of(members[0])
        best, process_load, member_load = members[0], first.load, first.counts[members[0]]
        for member_id in members[1:]:
            process = self._process_of(member_id)
            is_free = task is None or task not in process.tasks
            if is_free and process.load < process_load and process.counts[member_id] < member_load:
                best, process_load, member_load = member_id, process.load, process.counts[member_id]
        return best if task is None or task not in first.tasks else None

    # Both

    def _add(self, process: _Process, member_id: str, task: Task, kind: dict[str, set[Task]]) -> None:
        process.members_by_load = None
        self._record(process, member_id, task, kind)

    def _record(self, process: _Process, member_id: str, task: Task, kind: dict[str, set[Task]]) -> None:
        process.tasks.add(task)
        process.counts[member_id] += 1
        kind[member_id].add(task)
        if kind is self._active:
            self._active_quota.count(process.counts[member_id])
        self._quota.count(process.counts[member_id])

    def _add_to_least_loaded(self, process: _Process, task: Task, kind: dict[str, set[Task]]) -> None:
        """Give a task to the member with the fewest tasks of the process. Its queue of members lasts until a task is given otherwise."""
        if process.members_by_load is None:
            process.members_by_load = JavaQueue(process.counts.__getitem__, process.counts)
        member_id = process.members_by_load.poll()
        self._record(process, member_id, task, kind)
        process.members_by_load.add(member_id)
