"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup in a group whose partitions the broker assigns.

A JoinGroup is one reconciliation step and is answered at once, without a leader or a join phase. SyncGroup fetches the partitions, and
Heartbeat asks the member to rejoin when the next step is due. Rules: docs/reference/coordinator.md, chapter 13.5.
"""

from collections.abc import Iterable
from functools import partial

from groupcoord_spark.coordinator.groups.consumer import ConsumerMember
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.broker.group_step import topic_names
from groupcoord_spark.simulator.groups import CONSUMER, ConsumerGroup, Protocols, TimerKind, consumer_group
from groupcoord_spark.simulator.groups.modern_group import cancel_timer
from groupcoord_spark.simulator.handlers.consumer import conversion
from groupcoord_spark.simulator.handlers.consumer.consumer_heartbeat import ConsumerStep
from groupcoord_spark.simulator.messages import Call, Error, RefusedError, refuse_if
from groupcoord_spark.simulator.messages.answers import JoinGroupAnswer, SyncGroupAnswer
from groupcoord_spark.simulator.messages.requests import Heartbeat, JoinGroup, Leaving, SyncGroup

FIRST_VERSION_WITH_MEMBER_IDS = 4


def join_consumer_group(broker: Broker, call: Call, request: JoinGroup, group: ConsumerGroup) -> None:
    """Add or reconcile a classic member, and answer its JoinGroup."""
    error = _join_error(broker, request, group)
    if error is not Error.NONE:
        broker.answer(call, JoinGroupAnswer(error, ""))
        return
    if not request.member_id and request.group_instance_id is None:
        member_id = broker.new_member_id(request.client_id, request.client_id)
        if broker.release.version_of(request) >= FIRST_VERSION_WITH_MEMBER_IDS:
            # The id is not stored. A JoinGroup with it is handled as a new member's, like any other unknown id.
            broker.answer(call, JoinGroupAnswer(Error.MEMBER_ID_REQUIRED, member_id))
            return
    else:
        member_id = request.member_id or broker.new_member_id(request.group_instance_id or "", request.client_id)
    step = ConsumerStep(broker, group.group_id)
    replaced_id = None if request.group_instance_id is None else group.static_member_id(request.group_instance_id)
    downgrades = replaced_id is not None and _is_last_new_member(broker, group, replaced_id)
    if replaced_id is not None and not request.member_id:
        step.replace(group, replaced_id, member_id)
    _reconcile_classic_member(step, group, member_id, request, downgrades=downgrades)
    epoch = group.members[member_id].member_epoch
    error = step.write()
    if error is not Error.NONE:
        broker.answer(call, JoinGroupAnswer(error, ""))
        return
    if step.downgraded is None:
        _start_timer(broker, group, member_id, TimerKind.SYNC_PHASE)
    broker.answer(call, JoinGroupAnswer(Error.NONE, member_id, epoch, CONSUMER, request.protocols[0][0]))


def _join_error(broker: Broker, request: JoinGroup, group: ConsumerGroup) -> Error:
    if ConsumerStep(broker, group.group_id).is_full(group, request.member_id, request.group_instance_id):
        return Error.GROUP_MAX_SIZE_REACHED
    if request.protocol_type != CONSUMER or not _is_supported(group, request.protocols):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    instance_id = request.group_instance_id
    if request.member_id and (error := group.static_error(request.member_id, instance_id)) is not Error.NONE:
        return error
    if instance_id is not None and group.is_left_behind(instance_id):
        return Error.UNKNOWN_MEMBER_ID
    if conversion.read_subscription(request.protocols) is None and (request.member_id or instance_id is not None):
        is_refused = broker.release.refuses_malformed_subscription
        return Error.INCONSISTENT_GROUP_PROTOCOL if is_refused else Error.UNKNOWN_SERVER_ERROR
    return Error.NONE


def _is_supported(group: ConsumerGroup, protocols: Protocols) -> bool:
    """Return whether all classic members of the group support one of these protocols."""
    supported = [{name for name, _ in conversion.classic_protocols(member)} for _, member in conversion.classic_members(group)]
    return any(all(name in names for names in supported) for name, _ in protocols)


def _is_last_new_member(broker: Broker, group: ConsumerGroup, member_id: str) -> bool:
    """Return whether the group becomes a classic group once this member uses the classic protocol."""
    is_small = len(group.members) <= broker.settings.group_max_size
    new_members = [name for name, member in group.members.items() if not consumer_group.uses_classic_protocol(member)]
    return broker.settings.allows_downgrades and is_small and new_members == [member_id]


def _reconcile_classic_member(step: ConsumerStep, group: ConsumerGroup, member_id: str, request: JoinGroup, *, downgrades: bool) -> None:
    """Write the records of the member: its metadata, a new group epoch and targets if its topics have changed, and its next assignment.

    A downgrade computes no targets. It begins with a rebalance if targets are missing; otherwise the static member keeps the partitions of
    the member that it was or replaces, and no other member has to rejoin.
    """
    subscription = conversion.read_subscription(request.protocols)
    assert subscription is not None
    old_metadata = group.members[member_id].metadata if member_id in group.members else None
    base = old_metadata or ConsumerGroup.new_member
    timeout_ms = request.session_timeout_ms if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms
    metadata = {
        **base,
        "instance_id": request.group_instance_id if request.group_instance_id is not None else base["instance_id"],
        "rack_id": subscription.rack_id if subscription.rack_id is not None else base["rack_id"],
        "client_id": request.client_id,
        "client_host": request.client_host,
        "subscribed_topic_names": sorted(set(subscription.topics)),
        "subscribed_topic_regex": "",
        "rebalance_timeout_ms": timeout_ms,
        consumer_group.CLASSIC_MEMBER: conversion.classic_metadata(request.session_timeout_ms, request.protocols),
    }
    step.elect_assignor(group, member_id, metadata)
    if metadata != old_metadata:
        step.add(group.member_record(member_id, metadata))
    step.update_regexes(group, base, metadata)
    has_changed = any(base[name] != metadata[name] for name in ("subscribed_topic_names", "subscribed_topic_regex"))
    step.refresh_metadata_if_due(group, bumps=has_changed)
    stale = group.replayed.assignment_epoch < group.epoch if step.broker.release.stale_targets_rebalance else has_changed
    if not downgrades:
        step.update_targets(group, member_id)
    if not (downgrades and stale):
        step.reconcile(group, member_id, step.with_ids(subscription.owned_partitions), subscription_changed=has_changed)
    step.restart_session(group, member_id)
    if downgrades:
        step.downgrade(group, (), rebalances=stale)


def sync_with_consumer_group(broker: Broker, call: Call, request: SyncGroup, group: ConsumerGroup) -> None:
    """Answer with the partitions that the member has now."""
    member = _member(group, request)
    protocol = conversion.classic_protocols(member)[0][0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol not in (None, protocol):
        raise RefusedError(Error.INCONSISTENT_GROUP_PROTOCOL)
    if member.member_epoch < _epoch_to_follow(broker, group) and member.state != consumer_group.UNREVOKED:
        _start_timer(broker, group, request.member_id, TimerKind.JOIN_PHASE)
        raise RefusedError(Error.REBALANCE_IN_PROGRESS)
    cancel_timer(group.sync_timers, request.member_id)
    step = ConsumerStep(broker, group.group_id)
    step.restart_session(group, request.member_id)
    names = topic_names(broker)
    assigned = (
        (names[topic_id], number) for topic_id, number in sorted(consumer_group.current_assignment(member).assigned) if topic_id in names
    )
    answer = SyncGroupAnswer(Error.NONE, request.protocol_type, request.protocol, conversion.classic_assignment(member, assigned))
    broker.answer(call, answer)


def heartbeat_to_consumer_group(broker: Broker, request: Heartbeat, group: ConsumerGroup) -> Error:
    """Restart the member's session and return whether it has to rejoin."""
    member = _member(group, request)
    step = ConsumerStep(broker, group.group_id)
    step.restart_session(group, request.member_id)
    is_free = member.state == consumer_group.UNRELEASED and not step.waits_for_others(group, request.member_id)
    if member.member_epoch < _epoch_to_follow(broker, group) or member.state == consumer_group.UNREVOKED or is_free:
        _start_timer(broker, group, request.member_id, TimerKind.JOIN_PHASE)
        return Error.REBALANCE_IN_PROGRESS
    return Error.NONE


def leave_consumer_group(broker: Broker, group: ConsumerGroup, members: Iterable[Leaving]) -> list[Error]:
    """Remove members that use either protocol. Return an error for each member; if the append fails, its error applies to all of them."""
    errors, removed = [], []
    for member_id, instance_id in members:
        member_id = member_id or (instance_id is not None and group.static_member_id(instance_id)) or ""
        error = group.static_error(member_id, instance_id)
        if error is Error.NONE and (member_id not in group.members or member_id in removed):
            error = Error.UNKNOWN_MEMBER_ID
        if error is Error.NONE:
            removed.append(member_id)
        errors.append(error)
    if removed:
        step = ConsumerStep(broker, group.group_id)
        step.remove(group, removed)
        failed = step.write()
        if failed is not Error.NONE:
            return [failed if error is Error.NONE else error for error in errors]
    return errors


def _member(group: ConsumerGroup, request: SyncGroup | Heartbeat) -> ConsumerMember:
    refuse_if(group.static_error(request.member_id, request.group_instance_id))
    member: ConsumerMember | None = group.members.get(request.member_id)
    if member is None or not consumer_group.uses_classic_protocol(member):
        raise RefusedError(Error.UNKNOWN_MEMBER_ID)
    if member.member_epoch != request.generation:
        raise RefusedError(Error.ILLEGAL_GENERATION)
    return member


def _epoch_to_follow(broker: Broker, group: ConsumerGroup) -> int:
    """Return the epoch that a classic member reaches by joining again."""
    return group.replayed.assignment_epoch if broker.release.classic_members_follow_targets else group.epoch


def _start_timer(broker: Broker, group: ConsumerGroup, member_id: str, kind: TimerKind) -> None:
    """Give a classic member its rebalance timeout to join again, or to send SyncGroup after its JoinGroup."""
    timers = group.join_timers if kind is TimerKind.JOIN_PHASE else group.sync_timers
    if kind is TimerKind.SYNC_PHASE:
        cancel_timer(group.join_timers, member_id)
        cancel_timer(timers, member_id)
    elif member_id in timers:
        return
    timeout_ms = group.metadata_of(member_id)["rebalance_timeout_ms"]
    fire = partial(ConsumerStep.fence_member, broker, group.group_id, member_id)
    timers[member_id] = broker.clock.start(kind, timeout_ms, group.group_id, member_id, fire)
