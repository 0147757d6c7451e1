"""Answers of a Java coordinator that wait for the appends before them (docs/reference/coordinator.md, chapter 9.7).

Every request that may write waits until all that was written before it is replicated, whether it writes itself or not. An error that the
checks of a request find is answered at once. JoinGroup and SyncGroup of classic groups are answered by the group, without that wait; if an
append before them fails while they still wait for the group, they get its error.
"""

from collections.abc import Iterable
from typing import Final

from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.groups import ConsumerGroup
from groupcoord_spark.simulator.messages import Call, Error, answers
from groupcoord_spark.simulator.messages.calls import WITH_ONE_ERROR, refused
from groupcoord_spark.simulator.messages.requests import DeleteGroups, Heartbeat, JoinGroup, SyncGroup

_RESULTS_OF_PARTITIONS: Final = frozenset({Error.NONE, Error.OFFSET_METADATA_TOO_LARGE, Error.UNKNOWN_TOPIC_OR_PARTITION})
"""Errors of a commit that concern single partitions: the other ones are written."""


def hold_answer(broker: Broker, call: Call) -> None:
    """Keep the answer of a request until the appends in flight have succeeded. If one fails, its error is the answer."""
    answer = call.answer
    groups = frozenset(_group_ids(broker, call))
    if not any((partition := broker.partitions.get(broker.partition_number(group_id))) and partition.last_append() for group_id in groups):
        return
    if answer is not None:
        broker.take_back_answer(call)

    def end(error: Error, failed: frozenset[str]) -> None:
        if call.answer is None:
            final = _failed_answer(call, answer, error, failed) if failed else answer
            if final is not None:
                broker.answer(call, final)

    broker.wait_for_appends(groups, end)


def _group_ids(broker: Broker, call: Call) -> Iterable[str]:
    """Return the groups whose appends the answer waits for; none if the answer does not wait."""
    request, answer = call.request, call.answer
    if isinstance(answer, answers.DeleteGroupsAnswer) and isinstance(request, DeleteGroups):
        return request.group_ids
    group_id = getattr(request, "group_id", None) or ""
    if isinstance(request, JoinGroup | SyncGroup):
        has_succeeded = isinstance(answer, answers.JoinGroupAnswer | answers.SyncGroupAnswer) and answer.error is Error.NONE
        waits = answer is None or (has_succeeded and broker.group_of(group_id, ConsumerGroup) is not None)
    elif isinstance(answer, answers.OffsetCommitAnswer):
        waits = _RESULTS_OF_PARTITIONS.issuperset(answer.errors.values())
    elif isinstance(request, Heartbeat) and isinstance(answer, answers.ErrorAnswer):
        waits = answer.error in (Error.NONE, Error.REBALANCE_IN_PROGRESS)
    else:
        waits = type(request) in WITH_ONE_ERROR and getattr(answer, "error", None) is Error.NONE
    return (group_id,) if waits else ()


def _failed_answer(call: Call, answer: answers.Answer | None, error: Error, failed: frozenset[str]) -> answers.Answer | None:
    """Return the answer to a request after one of its appends has failed. ``failed`` lists the affected groups."""
    request = call.request
    if isinstance(answer, answers.DeleteGroupsAnswer):
        return answers.DeleteGroupsAnswer({**answer.errors, **dict.fromkeys(failed, error)})
    if isinstance(answer, answers.OffsetCommitAnswer):
        return answers.OffsetCommitAnswer(dict.fromkeys(answer.errors, error))
    return refused(request, error) if isinstance(request, JoinGroup) or type(request) in WITH_ONE_ERROR else None
