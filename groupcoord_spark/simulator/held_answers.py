"""Answers of a Java coordinator that wait for the appends before them (docs/reference/coordinator.md, chapter 9.7).

Every request that may write waits until all that was written before it is replicated, whether it writes itself or not. An error that the
checks of a request find is answered at once. JoinGroup and SyncGroup of classic groups are answered by the group, without that wait; if an
append before them fails while they still wait for the group, they get its error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from groupcoord_spark.simulator.answers import (
    Answer,
    ConsumerGroupHeartbeatAnswer,
    DeleteGroupsAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    ShareGroupHeartbeatAnswer,
    SyncGroupAnswer,
)
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.requests import DeleteGroups, JoinGroup, SyncGroup

_RESULTS_OF_PARTITIONS: Final = frozenset({Error.NONE, Error.OFFSET_METADATA_TOO_LARGE, Error.UNKNOWN_TOPIC_OR_PARTITION})
"""Errors of a commit that concern single partitions: the other ones are written."""
_WITH_ONE_ERROR: Final = (
    HeartbeatAnswer,
    LeaveGroupAnswer,
    ConsumerGroupHeartbeatAnswer,
    ShareGroupHeartbeatAnswer,
    OffsetDeleteAnswer,
)
"""Answers to requests that may write, with one error for the whole request."""


def hold_answer(broker: Broker, call: Call) -> None:
    """Keep the answer of a request until the appends in flight have succeeded. If one fails, its error is the answer."""
    groups = _group_ids(broker, call)
    appends = {number: broker.last_append_of(number) for number in {broker.partition_number(group_id) for group_id in groups}}
    waits_for = [append for append in appends.values() if append is not None]
    if not waits_for:
        return
    answer = call.answer
    if answer is not None:
        broker.take_back_answer(call)
    failed: dict[str, Error] = {}
    remaining = len(waits_for)

    def end(error: Error, number: int) -> None:
        nonlocal remaining
        remaining -= 1
        if error is not Error.NONE:
            mapped = broker.release.group_append_errors.get(error, error)
            failed.update({group_id: mapped for group_id in groups if broker.partition_number(group_id) == number})
        if remaining or call.answer is not None:
            return
        final = _failed_answer(call, answer, failed) if failed else answer
        if final is not None:
            broker.answer(call, final)

    for number, append in appends.items():
        if append is not None:
            broker.wait_for(append, lambda error, number=number: end(error, number))  # type: ignore[misc]


def _group_ids(broker: Broker, call: Call) -> Iterable[str]:
    """The groups whose appends the answer waits for; none: the answer does not wait."""
    request, answer = call.request, call.answer
    if isinstance(answer, DeleteGroupsAnswer) and isinstance(request, DeleteGroups):
        return request.group_ids
    group_id = getattr(request, "group_id", None) or ""
    if isinstance(request, JoinGroup | SyncGroup):
        waits = answer is None or (answer.error is Error.NONE and broker.consumer_group(group_id) is not None)  # type: ignore[union-attr]
    elif isinstance(answer, OffsetCommitAnswer):
        waits = _RESULTS_OF_PARTITIONS.issuperset(answer.errors.values())
    elif isinstance(answer, HeartbeatAnswer):
        waits = answer.error in (Error.NONE, Error.REBALANCE_IN_PROGRESS)
    else:
        waits = isinstance(answer, _WITH_ONE_ERROR) and answer.error is Error.NONE
    return (group_id,) if waits else ()


def _failed_answer(call: Call, answer: Answer | None, failed: dict[str, Error]) -> Answer | None:
    """The answer to a request, an append for which has failed."""
    error = next(iter(failed.values()))
    request = call.request
    if isinstance(answer, DeleteGroupsAnswer):
        return DeleteGroupsAnswer({**answer.errors, **failed})
    if isinstance(answer, OffsetCommitAnswer):
        return OffsetCommitAnswer(dict.fromkeys(answer.errors, error))
    if isinstance(request, JoinGroup):
        return JoinGroupAnswer(error, request.member_id)
    if isinstance(request, SyncGroup):
        return SyncGroupAnswer(error)
    return type(answer)(error) if isinstance(answer, _WITH_ONE_ERROR) else None
