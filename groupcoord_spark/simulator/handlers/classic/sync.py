"""SyncGroup: the leader sends, members get the assignment (docs/reference/coordinator.md, chapter 6; Kafka: ``classicGroupSync``)."""

from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.broker.coordinator_records import group_record
from groupcoord_spark.simulator.broker.rebalance import answer_waiting_syncs, prepare_rebalance, propagate_assignment_error, restart_session
from groupcoord_spark.simulator.groups import ClassicGroup, ClassicGroupMember, ConsumerGroup, GroupState
from groupcoord_spark.simulator.groups.classic_checks import first_error
from groupcoord_spark.simulator.handlers.consumer.classic_members import sync_with_consumer_group
from groupcoord_spark.simulator.messages import Call, Error, RefusedError, WrittenRecord, refuse_if
from groupcoord_spark.simulator.messages.answers import SyncGroupAnswer
from groupcoord_spark.simulator.messages.requests import SyncGroup

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
