"""JoinGroup: new, known and restarting static members (docs/reference/coordinator.md, chapter 4; Kafka: ``classicGroupJoin``)."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from groupcoord_spark.simulator import groups
from groupcoord_spark.simulator.broker import Broker, coordinator_error, rebalance
from groupcoord_spark.simulator.broker.coordinator_records import group_record, new_group_record
from groupcoord_spark.simulator.broker.release import SizeRule
from groupcoord_spark.simulator.groups.classic_checks import first_error
from groupcoord_spark.simulator.groups.classic_group import CAN_REBALANCE
from groupcoord_spark.simulator.handlers.consumer.classic_members import join_consumer_group
from groupcoord_spark.simulator.handlers.deletion import delete_offsets_and_group
from groupcoord_spark.simulator.messages import Call, Error, RefusedError, WrittenRecord, refuse_if
from groupcoord_spark.simulator.messages.answers import JoinGroupAnswer
from groupcoord_spark.simulator.messages.requests import JoinGroup

FIRST_VERSION_WITH_MEMBER_IDS = 4
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


def join_group(broker: Broker, call: Call, request: JoinGroup) -> None:
    """Add or keep the member. The answer comes now (an error, or the current generation) or at the end of the join phase."""
    refuse_if(coordinator_error(broker, request, request.group_id))
    group_id = request.group_id or ""
    of_any_kind = broker.group(group_id)
    if isinstance(of_any_kind, groups.ConsumerGroup) and of_any_kind.members:
        join_consumer_group(broker, call, request, of_any_kind)
        return
    if isinstance(of_any_kind, groups.ShareGroup) or (isinstance(of_any_kind, groups.StreamsGroup) and of_any_kind.members):
        raise RefusedError(Error.INCONSISTENT_GROUP_PROTOCOL)
    if isinstance(of_any_kind, groups.ModernGroup):
        if request.member_id:
            raise RefusedError(Error.UNKNOWN_MEMBER_ID)
        refuse_if(delete_offsets_and_group(broker, broker.partition_of(group_id), of_any_kind, (), with_group=True))
    group = of_any_kind if isinstance(of_any_kind, groups.ClassicGroup) else None
    is_new_group = group is None
    if group is None:
        if request.member_id:
            raise RefusedError(Error.UNKNOWN_MEMBER_ID)
        group = broker.create_group(group_id)
    record_count = len(broker.log.written)
    _join(broker, group, call, request)
    if is_new_group and broker.release.writes_new_group and len(broker.log.written) == record_count:
        _write_new_group(broker, group, call, request)


def size_allows(rule: SizeRule, limit: int, group: groups.ClassicGroup, member_id: str) -> bool:
    """Return whether group.max.size (``limit``) allows another JoinGroup of this member id."""
    member = group.members.get(member_id)
    if rule is SizeRule.BY_MEMBERS:
        if member is None:
            return bool(member_id) or len(group.members) < limit
        return len(group.members) <= limit or member.awaiting_join is not None
    if rule is SizeRule.NONE or group.state in (groups.GroupState.EMPTY, groups.GroupState.DEAD):
        return True
    if group.state is groups.GroupState.PREPARING_REBALANCE:
        return (member is not None and member.awaiting_join is not None) or group.waiting_joins < limit
    return member is not None or len(group.members) < limit


def _join(broker: Broker, group: groups.ClassicGroup, call: Call, request: JoinGroup) -> None:
    if not size_allows(broker.release.size_rule, broker.settings.group_max_size, group, request.member_id):
        group.remove(request.member_id)
        broker.answer(call, JoinGroupAnswer(Error.GROUP_MAX_SIZE_REACHED, ""))
        if broker.release.size_refusal_tests_join_phase:
            rebalance.end_join_phase_if_complete(broker, group)
        return
    error = first_error(broker.release.join_checks, group, request)
    if error is not Error.NONE:
        broker.refuse(call, error)
        return
    member = group.members.get(request.member_id)
    if member is not None:
        _rejoin(broker, group, member, call, request)
    elif request.member_id:
        _join_with_pending_id(broker, group, call, request)
    elif request.group_instance_id is not None and request.group_instance_id in group.static_members:
        _restart(broker, group, call, request, request.group_instance_id)
    elif _needs_member_id_first(broker, request):
        _assign_pending_member_id(broker, group, call, request)
    else:
        name = request.group_instance_id if request.group_instance_id is not None else request.client_id
        _add(broker, group, call, request, broker.new_member_id(name, request.client_id))
    rebalance.end_join_phase_if_complete(broker, group)


def _needs_member_id_first(broker: Broker, request: JoinGroup) -> bool:
    version = broker.release.version_of(request)
    return broker.release.has_member_ids_on_request and request.group_instance_id is None and version >= FIRST_VERSION_WITH_MEMBER_IDS


def _assign_pending_member_id(broker: Broker, group: groups.ClassicGroup, call: Call, request: JoinGroup) -> None:
    """Answer MEMBER_ID_REQUIRED with a new member id, which is forgotten after the session timeout (KIP-394).

    Without this step every lost answer to a JoinGroup would leave a member without a client in the group.
    """
    member_id = broker.new_member_id(request.client_id, request.client_id)
    fire = partial(_expire_pending_member_id, broker, group, member_id)
    group.pending_members[member_id] = broker.clock.start(
        groups.TimerKind.PENDING_MEMBER, request.session_timeout_ms, group.group_id, member_id, fire
    )
    broker.answer(call, JoinGroupAnswer(Error.MEMBER_ID_REQUIRED, member_id))


def _expire_pending_member_id(broker: Broker, group: groups.ClassicGroup, member_id: str) -> bool:
    del group.pending_members[member_id]
    rebalance.end_join_phase_if_complete(broker, group, after_expiry=True)
    return True


def _join_with_pending_id(broker: Broker, group: groups.ClassicGroup, call: Call, request: JoinGroup) -> None:
    if request.group_instance_id is not None:
        # Only dynamic members get pending member ids: the broker throws IllegalStateException here.
        broker.refuse(call, Error.UNKNOWN_SERVER_ERROR)
        return
    group.pending_members.pop(request.member_id).is_cancelled = True
    _add(broker, group, call, request, request.member_id)


def _rebalance_timeout_of(request: JoinGroup) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms


def _add(broker: Broker, group: groups.ClassicGroup, call: Call, request: JoinGroup, member_id: str) -> None:
    deadline_ms = broker.release.new_member_deadline_ms
    member = groups.ClassicGroupMember(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=_rebalance_timeout_of(request),
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
        is_new=deadline_ms is not None,
    )
    group.add(member)
    group.wait_for_join_phase(member, call)
    if group.state is groups.GroupState.PREPARING_REBALANCE:
        after_every_empty = broker.release.delays_again_after_every_empty
        if group.previous_state is groups.GroupState.EMPTY if after_every_empty else group.generation == 0:
            group.new_member_in_delay = True
    if deadline_ms is not None:
        rebalance.restart_session(broker, group, member, deadline_ms)
    if group.state in CAN_REBALANCE:
        rebalance.prepare_rebalance(broker, group)


def _rejoin(broker: Broker, group: groups.ClassicGroup, member: groups.ClassicGroupMember, call: Call, request: JoinGroup) -> None:
    """Handle the JoinGroup of a known member: wait for the end of a join phase, start one, or answer with the current generation."""
    is_leader = member.member_id == group.leader
    is_unchanged = member.protocols == request.protocols
    if is_unchanged and (
        group.state is groups.GroupState.COMPLETING_REBALANCE or (group.state is groups.GroupState.STABLE and not is_leader)
    ):
        broker.answer(call, rebalance.joined(group, member, group.leader, is_leader=is_leader))
        return
    _update(broker, group, member, request)
    group.wait_for_join_phase(member, call)
    if group.state in CAN_REBALANCE:
        rebalance.prepare_rebalance(broker, group)


def _update(broker: Broker, group: groups.ClassicGroup, member: groups.ClassicGroupMember, request: JoinGroup) -> None:
    group.update_protocols(member, request.protocols)
    if broker.release.rejoin_updates_timeouts:
        member.rebalance_timeout_ms = _rebalance_timeout_of(request)
        member.session_timeout_ms = request.session_timeout_ms


# Static members


def _restart(broker: Broker, group: groups.ClassicGroup, call: Call, request: JoinGroup, instance_id: str) -> None:
    """Restart a static member: assign a new member id and fence the old process (docs/reference/coordinator.md, chapter 4.5)."""
    if group.state in (groups.GroupState.EMPTY, groups.GroupState.DEAD):
        # Such a group has no members: the broker throws IllegalStateException here.
        broker.refuse(call, Error.UNKNOWN_SERVER_ERROR)
        return
    old_id = group.static_members[instance_id]
    member = group.members[old_id]
    old_leader = group.leader
    replaced = _Replaced(old_id, old_leader, member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms))
    rebalance.refuse_waiting(broker, group, member, Error.FENCED_INSTANCE_ID)
    group.rename(member, broker.new_member_id(instance_id, request.client_id))
    if not broker.release.replaced_member_stays_new:
        member.is_new = False
    rebalance.restart_session(broker, group, member)
    _update(broker, group, member, request)
    if group.state is groups.GroupState.PREPARING_REBALANCE:
        group.wait_for_join_phase(member, call)
        return
    if _restart_needs_rebalance(broker, group):
        group.wait_for_join_phase(member, call)
        rebalance.prepare_rebalance(broker, group)
        return
    if group.state is groups.GroupState.STABLE and broker.release.static_restart_is_written:
        _write_restart(broker, group, call, request, member, replaced)
    else:
        _answer_restart(broker, group, call, request, member, old_leader)


class _Replaced(NamedTuple):
    """What a static member was before its restart. timeouts_ms: its rebalance timeout and its session timeout."""

    member_id: str
    leader: str | None
    protocols: groups.Protocols
    timeouts_ms: tuple[int, int]


def _write_restart(
    broker: Broker, group: groups.ClassicGroup, call: Call, request: JoinGroup, member: groups.ClassicGroupMember, replaced: _Replaced
) -> None:
    """Write the new member id, then answer. If the append fails, the member has its old id again.

    While the append is in flight, the JoinGroup waits as in a join phase; a join phase that starts in the meantime may answer it.
    """
    records = [group_record(group, broker.release)]
    member_id = member.member_id

    def end(error: Error, written: Sequence[WrittenRecord]) -> None:
        if group.members.get(member_id) is not member:
            return
        if error is not Error.NONE:
            group.take_awaiting_join(member)
            group.update_protocols(member, replaced.protocols)
            member.rebalance_timeout_ms, member.session_timeout_ms = replaced.timeouts_ms
            group.rename(member, replaced.member_id)
            rebalance.restart_session(broker, group, member)
            error = broker.release.group_append_errors.get(error, error)
            if call.answer is None:
                answer = JoinGroupAnswer(error, "", group.generation, group.protocol_type, group.protocol, replaced.leader or "")
                broker.answer(call, answer)
        elif member.awaiting_join is call:
            group.take_awaiting_join(member)
            _answer_restart(broker, group, call, request, member, replaced.leader)

    group.wait_for_join_phase(member, call)
    if broker.log.is_slow(broker.partition_of(group.group_id)):
        broker.log.append_slowly(group.group_id, records, end)
    else:
        end(*broker.log.append(group.group_id, records))


def _answer_restart(
    broker: Broker, group: groups.ClassicGroup, call: Call, request: JoinGroup, member: groups.ClassicGroupMember, old_leader: str | None
) -> None:
    if _skips_assignment(broker, request):
        is_leader = member.member_id == group.leader
        broker.answer(call, rebalance.joined(group, member, group.leader, is_leader=is_leader, skips_assignment=is_leader))
    else:
        # The answer names the old id as leader, so that a restarted leader computes no assignment: a Stable group expects none.
        broker.answer(call, rebalance.joined(group, member, old_leader, is_leader=False))


def _restart_needs_rebalance(broker: Broker, group: groups.ClassicGroup) -> bool:
    """Return whether the restart of a static member starts a rebalance."""
    if group.state is groups.GroupState.COMPLETING_REBALANCE:
        return broker.release.static_restart_rebalances_sync_phase
    return broker.release.static_restart_is_written and group.elected_protocol() != group.protocol


def _skips_assignment(broker: Broker, request: JoinGroup) -> bool:
    version = broker.release.version_of(request)
    return broker.release.skips_assignment and version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT


def _write_new_group(broker: Broker, group: groups.ClassicGroup, call: Call, request: JoinGroup) -> None:
    """Write the empty record of a new group (4.x). If the append fails, the group is removed."""

    def undo() -> None:
        broker.remove_group(group)

    error, _ = broker.log.append(group.group_id, [new_group_record(group, broker.release)], undo=undo, shown=None)
    if error is Error.NONE:
        return
    if call.answer is None:
        broker.refuse(call, broker.release.group_append_errors.get(error, error))
    broker.remove_group(group)
