"""Checks of StreamsGroupHeartbeat before the group lookup, and checks of a member's epoch and tasks.

Rules: docs/reference/coordinator.md, chapter 13.7.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from groupcoord_spark.assignors.sticky_tasks import Task
from groupcoord_spark.simulator.broker.coordinator_checks import Denied
from groupcoord_spark.simulator.groups.streams_tasks import CurrentTasks, Owned, tasks_by_subtopology
from groupcoord_spark.simulator.groups.streams_topology import INTERNAL_TOPICS_OF_KAFKA, ConfiguredTopology, all_topics
from groupcoord_spark.simulator.messages import Error
from groupcoord_spark.simulator.messages.requests import LEAVE_EPOCH, LEFT_FOR_A_WHILE, StreamsGroupHeartbeat, Tasks

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def topics_error(request: StreamsGroupHeartbeat, denied: Denied) -> Error:
    """Return the error for topics that are reserved or denied by the authorizer. The coordinator never receives such a request."""
    if request.topology is None:
        return Error.NONE
    topics = all_topics(request.topology)
    if topics & INTERNAL_TOPICS_OF_KAFKA or not all(_TOPIC_NAME.fullmatch(topic) and topic not in (".", "..") for topic in topics):
        return Error.STREAMS_INVALID_TOPOLOGY
    return Error.TOPIC_AUTHORIZATION_FAILED if topics & denied.topics else Error.NONE


def request_error(request: StreamsGroupHeartbeat, *, is_since_4_4: bool) -> Error:
    """Return the error for a request that no group accepts. Releases since 4.4 accept static members, warm-up tasks and task offsets."""
    topology, tasks = request.topology, request.tasks.values()
    joins = request.member_epoch == 0
    is_new = request.group_instance_id is not None or bool(request.warmup_tasks) or request.task_offsets is not None
    uses_what_is_not_there = (not is_since_4_4 and is_new) or (
        topology is not None and any(subtopology.source_topic_regex for subtopology in topology.subtopologies)
    )
    is_incomplete = (
        not request.member_id.strip()
        or not (request.group_id or "").strip()
        or (request.rack_id is not None and not request.rack_id.strip())
        or (joins and (request.rebalance_timeout_ms is None or any(kind is None or kind for kind in tasks) or topology is None))
        or (request.group_instance_id is not None and not request.group_instance_id.strip())
        or request.member_epoch < (LEFT_FOR_A_WHILE if is_since_4_4 else LEAVE_EPOCH)
        or (request.member_epoch == LEFT_FOR_A_WHILE and request.group_instance_id is None)
    )
    if uses_what_is_not_there or is_incomplete:
        return Error.INVALID_REQUEST
    if joins and topology is not None and any(topic.partitions for sub in topology.subtopologies for topic in sub.state_changelog_topics):
        return Error.STREAMS_INVALID_TOPOLOGY
    names_some_kinds = any(kind is None for kind in tasks) and any(kind is not None for kind in tasks)
    return Error.INVALID_REQUEST if names_some_kinds or (not joins and topology is not None) else Error.NONE


def is_fenced(current: CurrentTasks, request: StreamsGroupHeartbeat) -> bool:
    """Return whether a known member has to rejoin without tasks.

    The epoch before is accepted from a client that has no other tasks than it was assigned: its last answer was lost.
    """
    epoch = request.member_epoch
    if epoch in (0, current.epoch):
        return False
    return (
        epoch > current.epoch
        or epoch != current.previous_epoch
        or not all(
            tasks is not None and _is_part(tasks, tasks_by_subtopology(current.assigned[kind])) for kind, tasks in request.tasks.items()
        )
    )


def _is_part(tasks: Tasks, of: Mapping[str, Iterable[int]]) -> bool:
    return all(name in of and set(numbers) <= set(of[name]) for name, numbers in tasks.items())


def has_unknown_tasks(request: StreamsGroupHeartbeat, configured: ConfiguredTopology) -> bool:
    """Return whether a client reports a task that is not in the topology."""
    subtopologies = configured.subtopologies or {}
    return any(
        name not in subtopologies or any(not 0 <= number < subtopologies[name].tasks for number in numbers)
        for tasks in request.tasks.values()
        for name, numbers in (tasks or {}).items()
    )


def reported_tasks(request: StreamsGroupHeartbeat) -> Owned | None:
    """Return the tasks that a client reports, or None if it reports none of the three lists."""
    reported = {
        kind: frozenset(Task(name, number) for name, numbers in tasks.items() for number in numbers)
        for kind, tasks in request.tasks.items()
        if tasks is not None
    }
    return reported if len(reported) == len(request.tasks) else None
