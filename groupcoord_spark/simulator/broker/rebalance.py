"""Rebalances: the join phase, the sync phase, and the ends of sessions (docs/reference/coordinator.md, chapters 5 to 7.1).

Kafka: ``GroupCoordinator.prepareRebalance``, ``onCompleteJoin``, ``InitialDelayedJoin``, ``DelayedSync`` and ``DelayedHeartbeat``; in 4.x
``GroupMetadataManager.prepareRebalance``, ``completeClassicGroupJoin``, ``expirePendingSync``, ``expireClassicGroupMemberHeartbeat``.
"""

from collections.abc import Iterable
from functools import partial

from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.broker.coordinator_records import group_record
from groupcoord_spark.simulator.groups import ClassicGroup, ClassicGroupMember, GroupState, TimerKind
from groupcoord_spark.simulator.messages import Error
from groupcoord_spark.simulator.messages.answers import JoinedMember, JoinGroupAnswer, SyncGroupAnswer


def prepare_rebalance(broker: Broker, group: ClassicGroup) -> None:
    """Start a join phase.

    From Empty it lasts at least the initial rebalance delay. From other states it lasts until all members have joined, and at most for the
    rebalance timeout.
    """
    if group.state is GroupState.COMPLETING_REBALANCE:
        propagate_assignment_error(broker, group, Error.REBALANCE_IN_PROGRESS)
    if group.sync_timer is not None:
        group.sync_timer.is_cancelled = True
    was_empty = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE, broker.now_ms)
    if was_empty and broker.release.has_initial_delay:
        delay_ms = broker.settings.group_initial_rebalance_delay_ms
        group.in_initial_delay = True
        _start_delay(broker, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
    elif group.all_have_joined:
        _end_join_phase(broker, group)
    else:
        _start_join_timer(broker, group)


def end_join_phase_if_complete(broker: Broker, group: ClassicGroup, *, after_expiry: bool = False) -> None:
    """End the join phase if all members have joined.

    The join phase continues during the initial delay. Only 4.x ends the delay early, when a pending member id or a session has expired.
    """
    if group.state is not GroupState.PREPARING_REBALANCE or not group.all_have_joined:
        return
    if not group.in_initial_delay or (after_expiry and broker.release.expiry_ends_initial_delay):
        _end_join_phase(broker, group)


def propagate_assignment_error(broker: Broker, group: ClassicGroup, error: Error) -> None:
    """Clear all assignments, and answer the waiting SyncGroups with the error (Kafka: ``resetAndPropagateAssignmentError``)."""
    for member in group.members:
        member.assignment = b""
    answer_waiting_syncs(broker, group, error)


def answer_waiting_syncs(broker: Broker, group: ClassicGroup, error: Error = Error.NONE) -> None:
    """Answer every waiting SyncGroup with the member's assignment, or with an error. Restarts the sessions of the answered members only."""
    for member in group.members:
        call = member.awaiting_sync
        if call is None:
            continue
        member.awaiting_sync = None
        if error is Error.NONE:
            broker.answer(call, SyncGroupAnswer(Error.NONE, group.protocol_type, group.protocol, member.assignment))
        else:
            broker.answer(call, SyncGroupAnswer(error))
        restart_session(broker, group, member)


def joined(
    group: ClassicGroup, member: ClassicGroupMember, leader: str | None, *, is_leader: bool, skips_assignment: bool = False
) -> JoinGroupAnswer:
    """Return the JoinGroup answer for a member of the current generation. The leader also receives all members with their metadata for
    the elected protocol."""
    members: Iterable[ClassicGroupMember] = group.members if is_leader else ()
    return JoinGroupAnswer(
        Error.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        leader or "",
        skips_assignment,
        tuple(JoinedMember(shown.member_id, shown.group_instance_id, shown.metadata_for(group.protocol)) for shown in members),
    )


# Sessions


def restart_session(broker: Broker, group: ClassicGroup, member: ClassicGroupMember, after_ms: int | None = None) -> None:
    """Restart the member's session: it ends after the session timeout, or after ``after_ms`` milliseconds."""
    member.deadline_ms = broker.now_ms + (member.session_timeout_ms if after_ms is None else after_ms)
    timer = member.session_timer
    if timer is not None:
        # A timer that is due earlier stays, and starts again for the rest of the time when it fires: cheaper than a timer per heartbeat.
        if timer.due_ms <= member.deadline_ms:
            return
        timer.is_cancelled = True
    _start_session_timer(broker, group, member)


def _start_session_timer(broker: Broker, group: ClassicGroup, member: ClassicGroupMember) -> None:
    delay_ms = member.deadline_ms - broker.now_ms
    fire = partial(_end_session, broker, group, member)
    member.session_timer = broker.clock.start(TimerKind.SESSION, delay_ms, group.group_id, member.member_id, fire)


def _end_session(broker: Broker, group: ClassicGroup, member: ClassicGroupMember) -> bool:
    member.session_timer = None
    if member.deadline_ms > broker.now_ms:
        _start_session_timer(broker, group, member)
        return False
    # A member that waits for an answer sends no heartbeats, so its session does not end. A new member's does: its client may be gone.
    if not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
        return False
    remove_member(broker, group, member)
    rebalance_after_removal(broker, group, after_expiry=True)
    return True


def remove_member(broker: Broker, group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Remove a member. Its waiting JoinGroup is answered UNKNOWN_MEMBER_ID since 2.2; its waiting SyncGroup is never answered."""
    call = group.take_awaiting_join(member)
    if call is not None and broker.release.removal_answers_waiting_join:
        broker.answer(call, JoinGroupAnswer(Error.UNKNOWN_MEMBER_ID, ""))
    group.remove(member.member_id)


def rebalance_after_removal(broker: Broker, group: ClassicGroup, *, after_expiry: bool = False) -> None:
    """Start a rebalance after a member was removed, or end the join phase if only that member was missing."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(broker, group)
    elif group.state is GroupState.PREPARING_REBALANCE:
        end_join_phase_if_complete(broker, group, after_expiry=after_expiry)


# The join phase


def _start_delay(broker: Broker, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    """Start the initial rebalance delay. New members may extend it by ``remaining_ms`` in total (KIP-134)."""
    fire = partial(_end_delay, broker, group, delay_ms, remaining_ms)
    group.join_timer = broker.clock.start(TimerKind.INITIAL_DELAY, delay_ms, group.group_id, "", fire)


def _end_delay(broker: Broker, group: ClassicGroup, last_delay_ms: int, remaining_ms: int) -> bool:
    if group.new_member_in_delay and remaining_ms != 0:
        group.new_member_in_delay = False
        delay_ms = min(broker.settings.group_initial_rebalance_delay_ms, remaining_ms)
        _start_delay(broker, group, delay_ms, max(remaining_ms - last_delay_ms, 0))
    else:
        _end_join_phase(broker, group)
    return True


def _start_join_timer(broker: Broker, group: ClassicGroup, *, at_least_ms: int = 0) -> None:
    fire = partial(_end_join_timer, broker, group)
    group.join_timer = broker.clock.start(TimerKind.JOIN_PHASE, max(group.rebalance_timeout_ms, at_least_ms), group.group_id, "", fire)


def _end_join_timer(broker: Broker, group: ClassicGroup) -> bool:
    _end_join_phase(broker, group)
    return group.state is not GroupState.PREPARING_REBALANCE


def _end_join_phase(broker: Broker, group: ClassicGroup) -> None:
    """Start the next generation with the members that have joined, and with all static members until their sessions end."""
    if group.join_timer is not None:
        group.join_timer.is_cancelled = True
        group.join_timer = None
    group.in_initial_delay = False
    has_static_members = broker.release.has_static_members
    for member in list(group.members):
        if member.awaiting_join is None and not (has_static_members and member.is_static):
            group.remove(member.member_id)
    if has_static_members and group.members and not _elect_leader_that_joined(group):
        # With a rebalance timeout of 0 the broker starts this timer again and again; here the simulated time has to move on.
        _start_join_timer(broker, group, at_least_ms=1)
        return
    group.start_generation(broker.now_ms)
    if group.state is GroupState.EMPTY:
        # The broker only logs a failure of this append. The next record of the group has the full state again.
        broker.log.append(group.group_id, [group_record(group, broker.release)])
        return
    for member in group.members:
        call = group.take_awaiting_join(member)
        if call is not None:
            broker.answer(call, joined(group, member, group.leader, is_leader=member.member_id == group.leader))
        restart_session(broker, group, member)
        member.is_new = False
    if broker.release.has_sync_timer:
        group.pending_sync = {member.member_id for member in group.members}
        fire = partial(_end_sync_phase, broker, group)
        group.sync_timer = broker.clock.start(TimerKind.SYNC_PHASE, group.rebalance_timeout_ms, group.group_id, "", fire)


def _elect_leader_that_joined(group: ClassicGroup) -> bool:
    """Keep the leader if it has joined, else make the first member that has joined the leader. False if no member has joined."""
    leader = group.members.get(group.leader) if group.leader is not None else None
    if leader is not None and leader.awaiting_join is not None:
        return True
    for member in group.members:
        if member.awaiting_join is not None:
            group.leader = member.member_id
            return True
    return False


# The sync phase


def _end_sync_phase(broker: Broker, group: ClassicGroup) -> bool:
    """Remove the members that sent no SyncGroup, and start a rebalance (since 2.8, KAFKA-12362). False if all members sent one."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_sync:
        return False
    for member_id in sorted(group.pending_sync):
        group.remove(member_id)
    prepare_rebalance(broker, group)
    return True


def refuse_waiting(broker: Broker, group: ClassicGroup, member: ClassicGroupMember, error: Error) -> None:
    """Answer the JoinGroup and the SyncGroup of a member that wait with an error."""
    waiting = group.take_awaiting_join(member)
    if waiting is not None:
        broker.answer(waiting, JoinGroupAnswer(error, member.member_id))
    if member.awaiting_sync is not None:
        broker.answer(member.awaiting_sync, SyncGroupAnswer(error))
        member.awaiting_sync = None
