"""What takes offsets and groups away: DeleteGroups, OffsetDelete, the end of a topic, and the cleanup by age (expiration 3 and 4)."""

from collections.abc import Collection

from groupcoord_spark.coordinator.expiration import GROUP_REMOVED, Cleanup
from groupcoord_spark.coordinator.state import GroupRow
from groupcoord_spark.coordinator.transactions import NO_PRODUCER_ID, TopicPartition
from groupcoord_spark.simulator.answers import DeleteGroupsAnswer, OffsetDeleteAnswer
from groupcoord_spark.simulator.broker import Broker, OffsetsPartition
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.coordinator_checks import coordinator_error
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.group import CONSUMER, Group
from groupcoord_spark.simulator.records import RecordToWrite, group_tombstone, offset_tombstone
from groupcoord_spark.simulator.requests import DeleteGroups, OffsetDelete
from groupcoord_spark.simulator.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.states import State

_REBALANCING = (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE)


def delete_groups(broker: Broker, call: Call, request: DeleteGroups) -> None:
    """Remove Empty groups with their offsets."""
    broker.answer(call, DeleteGroupsAnswer({group_id: _delete_group(broker, group_id) for group_id in request.group_ids}))


def _delete_group(broker: Broker, group_id: str) -> Error:
    error = coordinator_error(broker, DeleteGroups, group_id)
    if error is not Error.NONE:
        return error
    group = broker.group(group_id)
    if group is None or group.state is State.DEAD:
        return Error.GROUP_ID_NOT_FOUND
    if group.state is not State.EMPTY:
        return Error.NON_EMPTY_GROUP
    partition = broker.partition_of(group_id)
    gone = list(partition.offsets.committed.get(group_id, ()))
    if broker.release.deletion_writes_pending:
        gone += [place for place in partition.pending_partitions(group_id) if place not in gone]
    return _delete_offsets_and_group(broker, partition, group, gone, with_group=True)


def offset_delete(broker: Broker, call: Call, request: OffsetDelete) -> None:
    """Remove offsets that no member is reading."""
    error = coordinator_error(broker, OffsetDelete, request.group_id)
    group_id = request.group_id or ""
    group = broker.group(group_id) if error is Error.NONE else None
    if error is Error.NONE and (group is None or group.state is State.DEAD):
        error = Error.GROUP_ID_NOT_FOUND
    if group is None or error is not Error.NONE:
        broker.answer(call, OffsetDeleteAnswer(error))
        return
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        broker.answer(call, OffsetDeleteAnswer(Error.NON_EMPTY_GROUP))
        return
    partition = broker.partition_of(group_id)
    committed = partition.offsets.committed.get(group_id, {})
    errors: dict[TopicPartition, Error] = {}
    gone = []
    dropped = []
    for topic, numbers in request.partitions.items():
        for number in numbers:
            place = (topic, number)
            if not broker.settings.knows(topic, number):
                errors[place] = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif group.is_subscribed_to(topic):
                errors[place] = Error.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                errors[place] = Error.NONE
                is_pending = (group_id, *place) in partition.offsets.pending
                if place in committed or (is_pending and broker.release.deletion_writes_pending):
                    gone.append(place)
                elif is_pending:
                    dropped.append(place)
    error = _delete_offsets_and_group(broker, partition, group, gone, with_group=_would_have_no_offsets(broker, partition, group, gone))
    if error is Error.NONE:
        for topic, number in (*gone, *dropped):
            partition.offsets.pending.pop((group_id, topic, number), None)
    broker.answer(call, OffsetDeleteAnswer(error, {} if error is not Error.NONE else errors))


def delete_topic(broker: Broker, topic: str) -> None:
    """The topic is gone: so are its offsets, of all groups (Scala: and groups that had no others)."""
    topic_id = broker.settings.topic_id(topic)
    for partition in broker.partitions.values():
        for group_id, group in sorted(partition.groups.items()):
            committed = partition.offsets.committed.get(group_id, {})
            gone = [
                place
                for place, stored in committed.items()
                if place[0] == topic and (stored.topic_id is None or topic_id == NO_TOPIC_ID or stored.topic_id == topic_id)
            ]
            if broker.release.deletion_writes_pending:
                gone += [place for place in partition.pending_partitions(group_id) if place[0] == topic]
            if gone:
                _delete_offsets_and_group(broker, partition, group, gone, with_group=_would_have_no_offsets(broker, partition, group, gone))


def clean_up(broker: Broker) -> bool:
    """Remove what has expired now, group by group; whether anything was written or removed."""
    cleanup = Cleanup(broker.now_ms, broker.retention_ms, broker.release.semantics)
    has_removed = False
    for partition in broker.partitions.values():
        if not partition.groups or partition.is_loading:
            continue
        pending: dict[str, set[TopicPartition]] = {}
        for group_id, topic, number in partition.offsets.pending:
            pending.setdefault(group_id, set()).add((topic, number))
        for group_id, group in sorted(partition.groups.items()):
            committed = partition.offsets.committed.get(group_id, {})
            result = cleanup.of_group(_group_row(broker, group), committed, pending.get(group_id, ()))
            gone = [(expiry.topic, expiry.partition) for expiry in result.offsets if expiry.expired]
            is_removed = result.group.removed and not partition.producers_with_open_transaction.get(group_id)
            if not gone and not is_removed:
                continue
            writes_group = any(tombstone.reason == GROUP_REMOVED for tombstone in result.tombstones)
            _delete_offsets_and_group(broker, partition, group, gone, with_group=is_removed, writes_group=writes_group)
            has_removed = True
    return has_removed


def _group_row(broker: Broker, group: Group) -> GroupRow:
    """The group as expiration reads it. What live groups have and loaded ones have not is a rebalance: then nothing expires (X-B4).

    2.4 to 2.7 did not ask for that (X-B3).
    """
    topics = group.subscribed_topics
    if group.state is State.EMPTY:
        topics = frozenset()
    elif group.state in _REBALANCING and not broker.release.expires_while_rebalancing:
        topics = None
    return GroupRow(
        group_id=group.group_id,
        group_type="classic",
        is_simple=group.protocol_type is None and group.state is State.EMPTY and not group.pending_members,
        state=group.state.value,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        generation=group.generation,
        assignment_epoch=None,
        leader_id=group.leader,
        member_count=len(group.members),
        subscribed_topics=None if topics is None else tuple(sorted(topics)),
        topic_count=0,
        offset_count=0,
        pending_offset_count=0,
        assigned_partition_count=0,
        topology_epoch=None,
        state_timestamp_ms=group.state_timestamp_ms,
        record_offset=None,
        record_timestamp_ms=None,
        regular_expressions=(),
    )


def _would_have_no_offsets(broker: Broker, partition: OffsetsPartition, group: Group, gone: Collection[TopicPartition]) -> bool:
    """Scala: an Empty group that nothing is left of goes with its last offset (X-G1)."""
    if not broker.release.offset_delete_may_remove_group or group.state is not State.EMPTY:
        return False
    committed = partition.offsets.committed.get(group.group_id, {})
    return all(place in gone for place in committed) and not partition.producers_with_open_transaction.get(group.group_id)


def _delete_offsets_and_group(
    broker: Broker,
    partition: OffsetsPartition,
    group: Group,
    gone: Collection[TopicPartition],
    *,
    with_group: bool,
    writes_group: bool | None = None,
) -> Error:
    """Write the tombstones in one batch, offsets first, and forget what they are for."""
    group_id = group.group_id
    if writes_group is None:
        writes_group = broker.release.deletion_always_writes_group or group.generation > 0
    records: list[RecordToWrite] = [offset_tombstone(group_id, topic, number) for topic, number in gone]
    if with_group and writes_group:
        records.append(group_tombstone(group_id))
    if records:
        error, _ = broker.append(group_id, records)
        if error is not Error.NONE:
            return broker.release.group_append_errors.get(error, error)
    for topic, number in gone:
        partition.offsets.delete(group_id, topic, number, NO_PRODUCER_ID, is_transactional=False)
    if with_group:
        partition.offsets.committed.pop(group_id, None)
        for topic, number in partition.pending_partitions(group_id):
            partition.offsets.pending.pop((group_id, topic, number))
        partition.producers_with_open_transaction.pop(group_id, None)
        broker.remove_group(group)
    return Error.NONE
