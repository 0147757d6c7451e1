"""The broker leads an offsets partition, or loses it (docs/reference/coordinator.md, 10; Kafka: ``onLoaded``, ``onUnloaded``)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from groupcoord_spark.coordinator.groups.group import MemberRow
from groupcoord_spark.coordinator.replay import PartitionReplay
from groupcoord_spark.coordinator.state import GroupRow, PartitionState
from groupcoord_spark.protocol.record_types import OFFSET_KEY_TYPES, KeyType, MarkerType
from groupcoord_spark.simulator.broker import Broker, OffsetsPartition
from groupcoord_spark.simulator.broker.group_step import GroupStep
from groupcoord_spark.simulator.broker.rebalance import prepare_rebalance, refuse_waiting, restart_session
from groupcoord_spark.simulator.broker.release import SizeRule
from groupcoord_spark.simulator.groups import ClassicGroup, ClassicGroupMember, GroupState
from groupcoord_spark.simulator.handlers.commit import stored_offset
from groupcoord_spark.simulator.handlers.consumer.consumer_heartbeat import ConsumerStep
from groupcoord_spark.simulator.handlers.share.share_heartbeat import ShareStep
from groupcoord_spark.simulator.handlers.streams.streams_heartbeat import StreamsStep
from groupcoord_spark.simulator.messages import Error, WrittenRecord

_STEPS: Final[Mapping[str, type[GroupStep[Any]]]] = {step.kind.group_type: step for step in (ConsumerStep, ShareStep, StreamsStep)}


def begin_loading(broker: Broker, number: int) -> None:
    """Become leader of an offsets partition and start to load it. Requests for its groups fail until the load is complete."""
    broker.lead_partition(number).is_loading = True


def load_partition(broker: Broker, number: int, records: Iterable[WrittenRecord]) -> None:
    """Build the groups of an offsets partition from its records: each group is Empty or Stable, and every session starts now.

    The log has no pending member ids, no waiting requests and no rebalances that are not complete: they are lost.
    """
    records = tuple(records)
    partition = broker.lead_partition(number)
    replay = PartitionReplay(broker.release.semantics)
    member_order: dict[str, int] = {}
    for record in records:
        partition.next_record_offset = record.record_offset + 1
        _apply_record(replay, record)
        if record.key_type == KeyType.GROUP_METADATA and record.value is not None:
            # Within one slot a map has its keys in the order of their insertion, which is the order of the record.
            member_order |= {member["member_id"]: index for index, member in enumerate(record.value["members"])}
    state = replay.finish()
    _load_offsets(partition, state)
    members: dict[str, list[MemberRow]] = {}
    for member in state.members():
        members.setdefault(member.group_id, []).append(member)
    for row in state.groups():
        if row.group_type == ClassicGroup.group_type:
            loaded = sorted(members.get(row.group_id, ()), key=lambda member: member_order.get(member.member_id, 0))
            partition.groups[row.group_id] = _load_group(broker, row, loaded)
        else:
            _STEPS[row.group_type].load(broker, row.group_id, state.group(row.group_id), records)
    for group in list(partition.groups.values()):
        if not isinstance(group, ClassicGroup) or broker.release.size_rule is SizeRule.NONE:
            continue
        if len(group.members) > broker.settings.group_max_size:
            prepare_rebalance(broker, group)


def unload_partition(broker: Broker, number: int) -> None:
    """Lose an offsets partition: its groups become Dead and waiting requests get NOT_COORDINATOR."""
    partition = broker.partitions.get(number)
    if partition is None:
        return
    for group in list(partition.groups.values()):
        if not isinstance(group, ClassicGroup):
            broker.remove_group(group)
            continue
        for member in group.members:
            refuse_waiting(broker, group, member, Error.NOT_COORDINATOR)
        broker.remove_group(group)
    for timer in partition.streams_initial_delays.values():
        timer.is_cancelled = True
    broker.log.fail_appends_in_flight(partition)
    del broker.partitions[number]


def _apply_record(replay: PartitionReplay, record: WrittenRecord) -> None:
    if record.control is not None:
        replay.apply_marker(record.producer_id, MarkerType[record.control])
    elif record.key is not None and record.key_type is not None and record.key_type in OFFSET_KEY_TYPES:
        key = record.key
        replay.apply_offset_commit(
            record.producer_id,
            record.is_transactional,
            record.key_type,
            key["group_id"],
            key["topic"],
            key["partition"],
            stored_offset(record),
        )
    elif record.key is not None and record.key_type is not None:
        replay.apply_group_record(
            record.record_offset, record.timestamp_ms, record.key_type, record.key, record.value_version, record.value
        )


def _load_offsets(partition: OffsetsPartition, state: PartitionState) -> None:
    for row in (*state.committed_offsets(), *state.orphan_offsets()):
        partition.offsets.put(*row)
    for (group_id, topic, number), by_producer in state.pending_by_partition().items():
        for producer_id, staged in by_producer.items():
            partition.offsets.stage(group_id, topic, number, producer_id, staged)
            partition.producers_with_open_transaction.setdefault(group_id, set()).add(producer_id)


def _load_group(broker: Broker, row: GroupRow, members: list[MemberRow]) -> ClassicGroup:
    group = ClassicGroup(row.group_id, broker.now_ms, like_java=broker.release.like_java_maps)
    group.generation = row.generation
    group.protocol = row.protocol
    group.leader = row.leader_id
    for stored in members:
        session_timeout_ms = stored.session_timeout_ms or 0
        member = ClassicGroupMember(
            member_id=stored.member_id,
            group_instance_id=stored.instance_id,
            client_id=stored.client_id or "",
            client_host=stored.client_host or "",
            rebalance_timeout_ms=session_timeout_ms if stored.rebalance_timeout_ms is None else stored.rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            protocol_type=row.protocol_type or "",
            protocols=((row.protocol or "", stored.subscription or b""),),
            assignment=stored.assignment or b"",
        )
        group.add(member)
        restart_session(broker, group, member)
    group.protocol_type = row.protocol_type
    group.state = GroupState(row.state)
    group.state_timestamp_ms = row.state_timestamp_ms
    group.subscribed_topics = None if row.subscribed_topics is None else frozenset(row.subscribed_topics)
    return group
