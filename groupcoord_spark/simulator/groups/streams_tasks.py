"""What a member of a streams group has, and one step of its reconciliation (Kafka: ``CurrentAssignmentBuilder`` of streams groups).

Rules: docs/reference/coordinator.md, chapter 13.7.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from groupcoord_spark.assignors.sticky_tasks import Task
from groupcoord_spark.simulator.messages.partition_lists import by_topic

KINDS: Final = ("active", "standby", "warmup")
ACTIVE, STANDBY, WARMUP = KINDS
STABLE, UNREVOKED, UNRELEASED = "STABLE", "UNREVOKED_TASKS", "UNRELEASED_TASKS"
STATE_NUMBERS: Final = {STABLE: 1, UNREVOKED: 2, UNRELEASED: 3}

Held = Mapping[str, Mapping[Task, int]]
"""Kind -> task -> epoch of its assignment to the member. Only the epochs of active tasks count, because the log has no others."""
Roles = dict[str, dict[Task, int]]
"""The same while a step changes it."""
Owned = Mapping[str, frozenset[Task]]
"""Kind -> tasks."""

NOTHING: Final[Held] = {kind: {} for kind in KINDS}
_NO_EPOCH: Final = 0


class CurrentTasks(NamedTuple):
    """Return the tasks that a member has."""

    epoch: int = 0
    previous_epoch: int = 0
    state: str = STABLE
    assigned: Held = NOTHING
    pending_revocation: Held = NOTHING


def reconciled(
    current: CurrentTasks,
    target: Owned,
    target_epoch: int,
    reported: Owned | None,
    is_unreleased: Callable[[str, Task], bool],
    *,
    changes_roles: bool,
) -> CurrentTasks | None:
    """Move a member one step towards its target. Return None if its state is from a newer release, so that it must rejoin without tasks.

    Args:
        reported: the tasks that the client says it has; None: it says nothing, and may have any.
        is_unreleased: whether a task cannot be given to the member yet: another member runs it, or the member's process has it otherwise.
        changes_roles: the rules since 4.4: a task that the member keeps in another role changes its role in place.
    """
    if current.state == STABLE and current.epoch == target_epoch:
        return current
    epoch = current.epoch
    if current.state == UNREVOKED:
        if _has_any(reported, current.pending_revocation):
            return current
        epoch += 1
    elif current.state not in STATE_NUMBERS:
        if reported is None or any(reported.values()):
            return None
        epoch = target_epoch
    keep = {kind: {task: since for task, since in current.assigned[kind].items() if task in target[kind]} for kind in KINDS}
    revoked = {kind: {task: since for task, since in current.assigned[kind].items() if task not in target[kind]} for kind in KINDS}
    wanted = [(kind, task) for kind in KINDS for task in target[kind] if task not in keep[kind]]
    free = [(kind, task) for kind, task in wanted if not is_unreleased(kind, task)]
    state = STABLE if len(free) == len(wanted) else UNRELEASED
    if changes_roles:
        _change_roles(current.assigned, target, keep, revoked, free)
    is_revoking = any(revoked.values()) and _has_any(reported, revoked)
    if changes_roles:
        _keep_until_active(current.assigned, target, keep, () if is_revoking else free)
    if is_revoking:
        return CurrentTasks(epoch, current.epoch, UNREVOKED, keep, revoked)
    for kind, task in free:
        keep[kind][task] = target_epoch if kind == ACTIVE else _NO_EPOCH
    return CurrentTasks(target_epoch, current.epoch, state, keep, NOTHING)


def _change_roles(assigned: Held, target: Owned, keep: Roles, revoked: Roles, free: list[tuple[str, Task]]) -> None:
    """Give a member its own tasks in their new roles at once, except as active tasks (Kafka 4.4: ``convertReplicaRole`` and others).

    An active task that becomes a standby is still to be given up as active task. A standby or warm-up task that gets another role is not.
    """
    for old, new in ((ACTIVE, STANDBY), (STANDBY, WARMUP), (WARMUP, STANDBY)):
        for task in assigned[old]:
            if (new, task) in free:
                free.remove((new, task))
                keep[new][task] = _NO_EPOCH
                if old != ACTIVE:
                    revoked[old].pop(task, None)
    for kind in (STANDBY, WARMUP):
        revoked[kind] = {task: since for task, since in revoked[kind].items() if task not in target[ACTIVE]}


def _keep_until_active(assigned: Held, target: Owned, keep: Roles, granted: Collection[tuple[str, Task]]) -> None:
    """Keep a standby or warm-up task that becomes active until the member gets the active task."""
    for kind in (STANDBY, WARMUP):
        keep[kind] |= {task: _NO_EPOCH for task in assigned[kind] if task in target[ACTIVE] and (ACTIVE, task) not in granted}


def _has_any(reported: Owned | None, held: Held) -> bool:
    return reported is None or any(task in reported[kind] for kind in KINDS for task in held[kind])


def tasks_of(listed: Iterable[Mapping[str, Any]]) -> frozenset[Task]:
    """Return the tasks listed in a record."""
    return frozenset(Task(subtopology["subtopology_id"], number) for subtopology in listed for number in subtopology["partitions"])


def tasks_by_subtopology(tasks: Iterable[Task]) -> dict[str, tuple[int, ...]]:
    """Tasks as a request and an answer list them: subtopology -> partition numbers."""
    return by_topic(sorted(tasks))


def tasks_value(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Tasks as a record lists them."""
    return [{"subtopology_id": name, "partitions": list(numbers)} for name, numbers in tasks_by_subtopology(tasks).items()]


def current_tasks(value: Mapping[str, Any], epoch: int, previous_epoch: int, state: str) -> CurrentTasks:
    """Return a member's tasks from the record of its current assignment. Active tasks without an epoch get the member's epoch."""
    lists = {kind: (f"{kind}_tasks", f"{kind}_tasks_pending_revocation") for kind in KINDS}
    assigned = {kind: _with_epochs(kind, value[of], epoch) for kind, (of, _) in lists.items()}
    pending = {kind: _with_epochs(kind, value[of], epoch) for kind, (_, of) in lists.items()}
    return CurrentTasks(epoch, previous_epoch, state, assigned, pending)


def _with_epochs(kind: str, listed: Iterable[Mapping[str, Any]], member_epoch: int) -> dict[Task, int]:
    held: dict[Task, int] = {}
    for subtopology in listed:
        epochs = subtopology["assignment_epochs"] or [member_epoch] * len(subtopology["partitions"])
        for number, since in zip(subtopology["partitions"], epochs, strict=False):
            held[Task(subtopology["subtopology_id"], number)] = since if kind == ACTIVE else _NO_EPOCH
    return held


def current_value(current: CurrentTasks) -> dict[str, Any]:
    """Return the record value of a member's current assignment."""
    value: dict[str, Any] = {
        "member_epoch": current.epoch,
        "previous_member_epoch": current.previous_epoch,
        "state": STATE_NUMBERS[current.state],
    }
    for field, held in (("tasks", current.assigned), ("tasks_pending_revocation", current.pending_revocation)):
        for kind in KINDS:
            listed = value[f"{kind}_{field}"] = tasks_value(held[kind])
            for tasks in listed:
                numbers = tasks["partitions"] if kind == ACTIVE else ()
                tasks["assignment_epochs"] = [held[kind][Task(tasks["subtopology_id"], number)] for number in numbers]
    return value
