"""The short texts of requests and answers of streams groups in a timeline."""

from __future__ import annotations

from collections.abc import Iterator

from groupcoord_spark.simulator.messages.answers import DescribedStreamsGroup, StreamsGroupDescribeAnswer, StreamsGroupHeartbeatAnswer
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.requests import StreamsGroupHeartbeat, Tasks
from groupcoord_spark.wording import counted


def streams_request_text(request: StreamsGroupHeartbeat) -> str:
    """The most important fields of a heartbeat: ``a joins``, ``a epoch 3, has 0_0 0_1, standby 1_0``."""
    epoch = request.member_epoch
    parts = [f"{request.member_id} {'joins' if epoch == 0 else 'leaves' if epoch < 0 else f'epoch {epoch}'}"]
    if epoch > 0 and request.active_tasks is not None:
        parts += [f"has {_tasks_text(request.active_tasks) or 'nothing'}"]
        parts += [f"standby {_tasks_text(request.standby_tasks)}"] if request.standby_tasks else []
    parts += ["shutdown of the application"] if request.shutdown_application else []
    return ", ".join(parts)


def streams_answer_text(answer: StreamsGroupHeartbeatAnswer | StreamsGroupDescribeAnswer) -> str:
    """The most important fields of an answer: ``NONE epoch 3, 0_0 0_1, ASSIGNMENT_DELAYED``."""
    if isinstance(answer, StreamsGroupDescribeAnswer):
        return " ".join(map(_group_text, answer.groups))
    parts = [f"NONE epoch {answer.member_epoch}", *_parts(answer)]
    return ", ".join([*parts, *(status.code.name for status in answer.status)])


def _parts(answer: StreamsGroupHeartbeatAnswer) -> Iterator[str]:
    if answer.active_tasks is not None:
        yield _tasks_text(answer.active_tasks) or "nothing"
    if answer.standby_tasks:
        yield f"standby {_tasks_text(answer.standby_tasks)}"


def _group_text(group: DescribedStreamsGroup) -> str:
    if group.error is not Error.NONE:
        return group.error.name
    return f"NONE {group.state} epoch {group.group_epoch}, topology {group.topology_epoch}, {counted(len(group.members), 'member')}"


def _tasks_text(tasks: Tasks | None) -> str:
    return " ".join(f"{name}_{number}" for name, numbers in sorted((tasks or {}).items()) for number in numbers)
