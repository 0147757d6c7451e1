"""LeaveGroup: members go, or static ones are removed (docs/reference/coordinator.md, chapter 8; Kafka: ``classicGroupLeave``)."""

from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.broker.rebalance import end_join_phase_if_complete, rebalance_after_removal, remove_member
from groupcoord_spark.simulator.groups import ClassicGroup, ConsumerGroup
from groupcoord_spark.simulator.groups.classic_checks import DEAD_IS_NOT_AVAILABLE, DEAD_IS_UNKNOWN_MEMBER, first_error
from groupcoord_spark.simulator.handlers.consumer.classic_members import leave_consumer_group
from groupcoord_spark.simulator.messages import Call, Error, RefusedError, refuse_if
from groupcoord_spark.simulator.messages.answers import LeaveGroupAnswer, LeftMember
from groupcoord_spark.simulator.messages.requests import LeaveGroup, Leaving

FIRST_VERSION_WITH_LIST = 3


def leave_group(broker: Broker, call: Call, request: LeaveGroup) -> None:
    """Remove the members that the request names, and answer with one error for each of them."""
    refuse_if(coordinator_error(broker, request, request.group_id))
    group = broker.group(request.group_id or "")
    if group is not None and group.is_dead:
        raise RefusedError((DEAD_IS_NOT_AVAILABLE if broker.release.has_static_members else DEAD_IS_UNKNOWN_MEMBER).error)
    if isinstance(group, ConsumerGroup):
        errors = leave_consumer_group(broker, group, request.members)
    elif isinstance(group, ClassicGroup):
        errors = _leave(broker, group, request.members)
    else:
        errors = [Error.UNKNOWN_MEMBER_ID] * len(request.members)
    version = broker.release.version_of(request)
    if version < FIRST_VERSION_WITH_LIST:
        broker.answer(call, LeaveGroupAnswer(errors[0] if errors else Error.NONE))
    else:
        left = tuple(LeftMember(*leaving, error) for leaving, error in zip(request.members, errors, strict=True))
        broker.answer(call, LeaveGroupAnswer(Error.NONE, left))


def _leave(broker: Broker, group: ClassicGroup, members: tuple[Leaving, ...]) -> list[Error]:
    errors = []
    has_removed_member = False
    for leaving in members:
        error, was_pending = _remove(broker, group, leaving)
        errors.append(error)
        if error is not Error.NONE:
            continue
        if was_pending and not broker.release.pending_leave_rebalances:
            end_join_phase_if_complete(broker, group)
        elif broker.release.rebalances_after_each_leave:
            rebalance_after_removal(broker, group)
        else:
            has_removed_member = True
    if has_removed_member:
        rebalance_after_removal(broker, group)
    return errors


def _remove(broker: Broker, group: ClassicGroup, leaving: Leaving) -> tuple[Error, bool]:
    """Remove one member. Returns the error, and whether the member had only a pending member id."""
    member_id, instance_id = leaving
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
        if not member_id:
            return Error.UNKNOWN_MEMBER_ID, False
    elif member_id in group.pending_members:
        group.remove(member_id)
        return Error.NONE, True
    else:
        error = first_error(broker.release.member_checks, group, leaving)
        if error is not Error.NONE:
            return error, False
    member = group.members.get(member_id)
    if member is None:
        return Error.UNKNOWN_MEMBER_ID, False
    remove_member(broker, group, member)
    return Error.NONE, False
