"""SyncGroup, Heartbeat and LeaveGroup of classic groups (docs/reference/coordinator.md, chapters 6 to 8; Kafka: ``classicGroupSync``,
``classicGroupHeartbeat``, ``classicGroupLeave``)."""

from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.broker.coordinator_records import group_record
from groupcoord_spark.simulator.broker.rebalance import (
    answer_waiting_syncs,
    end_join_phase_if_complete,
    prepare_rebalance,
    propagate_assignment_error,
    rebalance_after_removal,
    remove_member,
    restart_session,
)
from groupcoord_spark.simulator.groups import ClassicGroup, ClassicGroupMember, ConsumerGroup, GroupState
from groupcoord_spark.simulator.groups.classic_checks import DEAD_IS_NOT_AVAILABLE, DEAD_IS_UNKNOWN_MEMBER, first_error
from groupcoord_spark.simulator.handlers.consumer.classic_members import (
    heartbeat_to_consumer_group,
    leave_consumer_group,
    sync_with_consumer_group,
)
from groupcoord_spark.simulator.messages import Call, Error, RefusedError, WrittenRecord, refuse_if
from groupcoord_spark.simulator.messages.answers import ErrorAnswer, LeaveGroupAnswer, LeftMember, SyncGroupAnswer
from groupcoord_spark.simulator.messages.requests import Heartbeat, LeaveGroup, Leaving, SyncGroup

FIRST_VERSION_WITH_PROTOCOL = 5


def sync_group(broker: Broker, call: Call, request: SyncGroup) -> None:
    """Answer with the member's assignment or an error, or keep the request until the leader sends the assignment."""
    refuse_if(_coordinator_error(broker, request))
    group = broker.group(request.group_id or "")
    if isinstance(group, ConsumerGroup):
        sync_with_consumer_group(broker, call, request, group)
        return
    if not isinstance(group, ClassicGroup):
        raise RefusedError(Error.UNKNOWN_MEMBER_ID)
    refuse_if(first_error(broker.release.sync_checks, group, request))
    member = group.members.get(request.member_id)
    if member is None:
        raise RefusedError(Error.UNKNOWN_MEMBER_ID)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise RefusedError(Error.REBALANCE_IN_PROGRESS)
    group.pending_sync.discard(member.member_id)
    if group.state is GroupState.STABLE:
        broker.answer(call, SyncGroupAnswer(Error.NONE, group.protocol_type, group.protocol, member.assignment))
        if broker.release.repeated_sync_restarts_session:
            restart_session(broker, group, member)
        return
    member.awaiting_sync = call
    if member.member_id == group.leader:
        _store_assignments(broker, group, dict(request.assignments))


def _coordinator_error(broker: Broker, request: SyncGroup) -> Error:
    names_protocol = request.protocol_type is not None and request.protocol is not None
    if request.version is not None and request.version >= FIRST_VERSION_WITH_PROTOCOL and not names_protocol:
        return Error.INCONSISTENT_GROUP_PROTOCOL
    error = coordinator_error(broker, request, request.group_id)
    if error is Error.COORDINATOR_LOAD_IN_PROGRESS:
        return broker.release.sync_while_loading or Error.NONE
    return error


def _store_assignments(broker: Broker, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
    """Store the assignments that the leader sent, except for ids that are not members.

    If the append of the group record succeeds, the group becomes Stable and the waiting SyncGroups are answered. If not, the group starts
    a rebalance.
    """
    members: list[ClassicGroupMember] = list(group.members)
    for member in members:
        member.assignment = assignments.get(member.member_id, b"")
    records = [group_record(group, broker.release)]
    if not broker.log.is_slow(broker.partition_of(group.group_id)):
        error, _ = broker.log.append(group.group_id, records)
        _end_sync_phase(broker, group, error)
        return
    generation = group.generation

    def end(error: Error, written: list[WrittenRecord]) -> None:
        # The group may have begun a rebalance meanwhile, which has answered the waiting requests.
        if group.state is GroupState.COMPLETING_REBALANCE and group.generation == generation:
            _end_sync_phase(broker, group, error)

    broker.log.append_slowly(group.group_id, records, end)


def _end_sync_phase(broker: Broker, group: ClassicGroup, error: Error) -> None:
    """Answer the waiting SyncGroups after the append of the group record, or start a rebalance if the append failed."""
    if error is Error.NONE:
        answer_waiting_syncs(broker, group)
        group.transition_to(GroupState.STABLE, broker.now_ms)
    else:
        propagate_assignment_error(broker, group, broker.release.group_append_errors.get(error, error))
        prepare_rebalance(broker, group)


def heartbeat(broker: Broker, call: Call, request: Heartbeat) -> None:
    """Restart the member's session timeout, and answer whether the member has to join again."""
    broker.answer(call, ErrorAnswer(_heartbeat_error(broker, request)))


def _heartbeat_error(broker: Broker, request: Heartbeat) -> Error:
    error = coordinator_error(broker, request, request.group_id)
    if error is Error.COORDINATOR_LOAD_IN_PROGRESS:
        return Error.NONE  # the broker cannot check the member yet, and answers so that the member does not join again
    if error is not Error.NONE:
        return error
    group = broker.group(request.group_id or "")
    if isinstance(group, ConsumerGroup):
        return heartbeat_to_consumer_group(broker, request, group)
    if not isinstance(group, ClassicGroup):
        return Error.UNKNOWN_MEMBER_ID
    rule = broker.release.heartbeat_rules[group.state]
    error = first_error(rule.checks, group, request)
    if error is not Error.NONE:
        return error
    member = group.members.get(request.member_id)
    if rule.restarts_session and member is not None:
        restart_session(broker, group, member)
    return rule.answer


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
