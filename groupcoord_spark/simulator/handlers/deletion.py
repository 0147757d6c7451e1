"""Deletion of offsets and groups: DeleteGroups, OffsetDelete, the deletion of a topic, and the cleanup of expired offsets.

Rules: docs/reference/coordinator.md, chapter 9.6, and docs/reference/expiration-rules.md, chapters 3 and 4.
"""

import copy
from collections.abc import Callable, Collection

from groupcoord_spark.coordinator.expiration import GROUP_REMOVED, Cleanup
from groupcoord_spark.coordinator.state import GroupRow
from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset, TopicPartition
from groupcoord_spark.protocol.record_types import NO_PRODUCER_ID
from groupcoord_spark.simulator.broker.appends import NO_VIEW
from groupcoord_spark.simulator.broker.broker import Broker, OffsetsPartition
from groupcoord_spark.simulator.broker.coordinator_checks import coordinator_error
from groupcoord_spark.simulator.broker.coordinator_records import group_tombstone, offset_tombstone
from groupcoord_spark.simulator.broker.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.groups.classic_group import CONSUMER, Group
from groupcoord_spark.simulator.groups.consumer_group import ConsumerGroup
from groupcoord_spark.simulator.groups.states import State
from groupcoord_spark.simulator.groups.streams_group import StreamsGroup
from groupcoord_spark.simulator.handlers.consumer.consumer_deletion import remove_consumer_group
from groupcoord_spark.simulator.handlers.share.share_heartbeat import delete_share_group
from groupcoord_spark.simulator.handlers.streams.streams_lifecycle import delete_streams_group
from groupcoord_spark.simulator.messages.answers import DeleteGroupsAnswer, OffsetDeleteAnswer
from groupcoord_spark.simulator.messages.calls import Call
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.records import RecordToWrite
from groupcoord_spark.simulator.messages.requests import DeleteGroups, OffsetDelete

_REBALANCING = (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE)


def delete_groups(broker: Broker, call: Call, request: DeleteGroups) -> None:
    """Delete groups with their offsets. Only Empty groups may be deleted."""
    broker.answer(call, DeleteGroupsAnswer({group_id: _delete_group(broker, group_id) for group_id in request.group_ids}))


def _delete_group(broker: Broker, group_id: str) -> Error:
    error = coordinator_error(broker, DeleteGroups, group_id)
    if error is not Error.NONE:
        return error
    if (share_group := broker.share_group(group_id)) is not None:
        return delete_share_group(broker, share_group)
    group = broker.group(group_id)
    consumer_group = _reconciled_group(broker, group_id) if group is None else None
    if consumer_group is None and (group is None or group.state is State.DEAD):
        return Error.GROUP_ID_NOT_FOUND
    if consumer_group.members if consumer_group is not None else group is None or group.state is not State.EMPTY:
        return Error.NON_EMPTY_GROUP
    partition = broker.partition_of(group_id)
    deleted = [*partition.offsets.committed.get(group_id, ())]
    deleted += [place for place in _written_in_flight(broker, partition, group_id) if place not in deleted]
    if broker.release.deletion_writes_pending:
        deleted += [pending for pending in partition.pending_partitions(group_id) if pending not in deleted]
    if consumer_group is not None:
        return _delete_reconciled_group(broker, partition, consumer_group, deleted)
    assert group is not None
    return _delete_offsets_and_group(broker, partition, group, deleted, with_group=True)


def _written_in_flight(broker: Broker, partition: OffsetsPartition, group_id: str) -> list[TopicPartition]:
    """The partitions of commits in flight, which a Java coordinator deletes like others: it has applied them already."""
    return [key[1:] for key in partition.in_flight if key[0] == group_id] if broker.release.applies_before_append else []


def _reconciled_group(broker: Broker, group_id: str) -> ConsumerGroup | StreamsGroup | None:
    """The consumer or streams group, or None if there is none."""
    return broker.consumer_group(group_id) or broker.streams_group(group_id)


def _delete_reconciled_group(
    broker: Broker, partition: OffsetsPartition, group: ConsumerGroup | StreamsGroup, deleted: Collection[TopicPartition]
) -> Error:
    """Delete a consumer or streams group with these offsets. Returns the error of a failed append, after which nothing is deleted."""
    offsets = DeletedOffsets(partition, group.group_id, deleted)
    if isinstance(group, StreamsGroup):
        error = delete_streams_group(broker, group, offsets.tombstones, offsets.put_back, offsets.committed)
    else:
        error = remove_consumer_group(broker, group, offsets.tombstones, offsets.put_back, offsets.committed)
    if error is Error.NONE:
        offsets.forget()
    return error


def _delete_offsets(broker: Broker, partition: OffsetsPartition, group_id: str, deleted: Collection[TopicPartition]) -> Error:
    """Delete offsets of a consumer or streams group. Returns the error of a failed append, after which nothing is deleted."""
    if not deleted:
        return Error.NONE
    offsets = DeletedOffsets(partition, group_id, deleted)
    error = broker.append_tombstones(group_id, offsets.tombstones, offsets.put_back, deleted=offsets.committed)
    if error is Error.NONE:
        offsets.forget()
    return error


class DeletedOffsets:
    """Offsets of a group that are deleted, and what they were.

    Args:
        partitions: those whose offsets get tombstones. all_pending: the pending offsets of other partitions go too, without tombstones.
    """

    def __init__(
        self, partition: OffsetsPartition, group_id: str, partitions: Collection[TopicPartition], *, all_pending: bool = False
    ) -> None:
        self._partition = partition
        self._group_id = group_id
        self._partitions = tuple(partitions)
        store, keys = partition.offsets, [(group_id, *place) for place in partitions]
        stored = store.committed.get(group_id, {})
        self.committed: dict[OffsetKey, StoredOffset] = {key: stored[key[1:]] for key in keys if key[1:] in stored}
        in_flight = partition.in_flight
        self._in_flight = {key: in_flight[key] for key in in_flight if key in keys or (all_pending and key[0] == group_id)}
        pending = [(group_id, *place) for place in partition.pending_partitions(group_id)] if all_pending else keys
        self._pending = {key: dict(store.pending[key]) for key in pending if key in store.pending}
        self._dropped = pending if all_pending else []

    @property
    def tombstones(self) -> list[RecordToWrite]:
        """One tombstone for each offset."""
        return [offset_tombstone(self._group_id, topic, number) for topic, number in self._partitions]

    def forget(self) -> None:
        """Delete the offsets."""
        store = self._partition.offsets
        for topic, number in self._partitions:
            store.delete(self._group_id, topic, number, NO_PRODUCER_ID, is_transactional=False)
        for key, commit in self._in_flight.items():
            self._partition.in_flight.pop(key, None)
            self._partition.deleted_in_flight[key] = commit
        for key in self._dropped:
            store.pending.pop(key, None)

    def put_back(self) -> None:
        """The append of the tombstones has failed: the offsets are there again."""
        store = self._partition.offsets
        for (group_id, topic, number), stored in self.committed.items():
            store.put(group_id, topic, number, stored)
        store.pending.update(self._pending)
        for key, commit in self._in_flight.items():
            if self._partition.deleted_in_flight.pop(key, None) == commit:
                self._partition.in_flight[key] = commit
            else:  # its records have been replicated meanwhile
                store.put(*key, commit)


def offset_delete(broker: Broker, call: Call, request: OffsetDelete) -> None:
    """Delete offsets of topics to which no member subscribes."""
    error = coordinator_error(broker, OffsetDelete, request.group_id)
    group_id = request.group_id or ""
    group = broker.group(group_id) if error is Error.NONE else None
    consumer_group = _reconciled_group(broker, group_id) if error is Error.NONE and group is None else None
    if error is Error.NONE and consumer_group is None and (group is None or group.state is State.DEAD):
        error = Error.GROUP_ID_NOT_FOUND
    if error is not Error.NONE:
        broker.answer(call, OffsetDeleteAnswer(error))
        return
    if group is not None and group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        broker.answer(call, OffsetDeleteAnswer(Error.NON_EMPTY_GROUP))
        return
    partition = broker.partition_of(group_id)
    existing = {*partition.offsets.committed.get(group_id, ()), *_written_in_flight(broker, partition, group_id)}
    errors: dict[TopicPartition, Error] = {}
    deleted = []
    dropped_pending = []
    for topic, numbers in request.partitions.items():
        for number in numbers:
            topic_partition = (topic, number)
            if topic in broker.denied.topics:
                errors[topic_partition] = Error.TOPIC_AUTHORIZATION_FAILED
            elif not broker.settings.has_partition(topic, number):
                errors[topic_partition] = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif (group is not None and group.is_subscribed_to(topic)) or (
                consumer_group is not None and consumer_group.members and topic in consumer_group.replayed.subscribed_topics
            ):
                errors[topic_partition] = Error.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                errors[topic_partition] = Error.NONE
                is_pending = (group_id, *topic_partition) in partition.offsets.pending
                if topic_partition in existing or (is_pending and broker.release.deletion_writes_pending):
                    deleted.append(topic_partition)
                elif is_pending:
                    dropped_pending.append(topic_partition)
    if group is None:
        error = _delete_offsets(broker, partition, group_id, deleted)
    else:
        with_group = _would_have_no_offsets(broker, partition, group, deleted)
        error = _delete_offsets_and_group(broker, partition, group, deleted, with_group=with_group)
    if error is Error.NONE:
        for topic, number in (*deleted, *dropped_pending):
            partition.offsets.pending.pop((group_id, topic, number), None)
    broker.answer(call, OffsetDeleteAnswer(error, {} if error is not Error.NONE else errors))


def delete_topic(broker: Broker, topic: str) -> None:
    """Delete the offsets of a deleted topic in all groups. Scala brokers also delete Empty groups that have no other offsets."""
    topic_id = broker.settings.topic_id(topic)
    for partition in broker.partitions.values():
        groups: dict[str, Group | None] = {
            **partition.groups,
            **dict.fromkeys((*partition.consumer_groups, *partition.streams_groups)),
        }
        for group_id, group in sorted(groups.items()):
            committed = partition.offsets.committed.get(group_id, {})
            deleted = [
                topic_partition
                for topic_partition, stored in committed.items()
                if topic_partition[0] == topic and (stored.topic_id is None or topic_id == NO_TOPIC_ID or stored.topic_id == topic_id)
            ]
            if broker.release.deletion_writes_pending:
                others = (*_written_in_flight(broker, partition, group_id), *partition.pending_partitions(group_id))
                deleted += [place for place in dict.fromkeys(others) if place[0] == topic and place not in deleted]
            if deleted and group is None:
                _delete_offsets(broker, partition, group_id, deleted)
            elif deleted and group is not None:
                with_group = _would_have_no_offsets(broker, partition, group, deleted)
                _delete_offsets_and_group(broker, partition, group, deleted, with_group=with_group)


def clean_up(broker: Broker) -> bool:
    """Delete the expired offsets and groups. Returns whether any offset or group was deleted."""
    cleanup = Cleanup(broker.now_ms, broker.retention_ms, broker.release.semantics)
    has_removed = False
    for partition in broker.partitions.values():
        reconciled_groups: dict[str, ConsumerGroup | StreamsGroup] = {**partition.consumer_groups, **partition.streams_groups}
        if not (partition.groups or reconciled_groups) or partition.is_loading:
            continue
        pending: dict[str, set[TopicPartition]] = {}
        for group_id, topic, number in partition.offsets.pending:
            pending.setdefault(group_id, set()).add((topic, number))
        for group_id, group in sorted(partition.groups.items()):
            committed = partition.offsets.committed.get(group_id, {})
            result = cleanup.of_group(_group_row(broker, group), committed, pending.get(group_id, ()))
            in_flight = {key[1:] for key in partition.in_flight if key[0] == group_id}
            expired = [(expiry.topic, expiry.partition) for expiry in result.offsets if expiry.expired]
            deleted = [place for place in expired if place not in in_flight]
            is_removed = result.group.removed and not in_flight and not partition.producers_with_open_transaction.get(group_id)
            if not deleted and not is_removed:
                continue
            writes_group = any(tombstone.reason == GROUP_REMOVED for tombstone in result.tombstones)
            _delete_offsets_and_group(broker, partition, group, deleted, with_group=is_removed, writes_group=writes_group)
            has_removed = True
        for group_id, reconciled_group in sorted(reconciled_groups.items()):
            committed = partition.offsets.committed.get(group_id, {})
            result = cleanup.of_group(_reconciled_group_row(reconciled_group), committed, pending.get(group_id, ()))
            in_flight = {key[1:] for key in partition.in_flight if key[0] == group_id}
            expired = [(expiry.topic, expiry.partition) for expiry in result.offsets if expiry.expired]
            deleted = [place for place in expired if place not in in_flight]
            if result.group.removed and not in_flight:
                _delete_reconciled_group(broker, partition, reconciled_group, deleted)
            elif deleted:
                _delete_offsets(broker, partition, group_id, deleted)
            has_removed = has_removed or bool(deleted) or (result.group.removed and not in_flight)
    return has_removed


def _reconciled_group_row(group: ConsumerGroup | StreamsGroup) -> GroupRow:
    """A consumer or streams group in the form that the expiration rules read."""
    return GroupRow(
        group_id=group.group_id,
        group_type=group.replayed.group_type,
        is_simple=False,
        state=group.replayed.state,
        protocol_type=group.replayed.protocol_type,
        protocol=None,
        generation=group.epoch,
        assignment_epoch=group.replayed.assignment_epoch,
        leader_id=None,
        member_count=len(group.members),
        subscribed_topics=tuple(sorted(group.replayed.subscribed_topics)),
        topic_count=0,
        offset_count=0,
        pending_offset_count=0,
        assigned_partition_count=0,
        topology_epoch=group.replayed.topology_epoch,
        state_timestamp_ms=None,
        record_offset=None,
        record_timestamp_ms=None,
        regular_expressions=group.replayed.regular_expressions,
    )


def _group_row(broker: Broker, group: Group) -> GroupRow:
    """The group in the form that the expiration rules read.

    During a rebalance the topics are not known, so that no offset expires (X-B4). A group that was loaded from the log is never in a
    rebalance. Brokers 2.4 to 2.7 did not make this exception (X-B3).
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


def _would_have_no_offsets(broker: Broker, partition: OffsetsPartition, group: Group, deleted: Collection[TopicPartition]) -> bool:
    """Whether the group is deleted with these offsets, because a Scala broker deletes an Empty group with its last offset (X-G1)."""
    if not broker.release.offset_delete_may_remove_group or group.state is not State.EMPTY:
        return False
    committed = partition.offsets.committed.get(group.group_id, {})
    if any(key[0] == group.group_id and key[1:] not in deleted for key in partition.in_flight):
        return False
    return all(topic_partition in deleted for topic_partition in committed) and not partition.producers_with_open_transaction.get(
        group.group_id
    )


def _delete_offsets_and_group(
    broker: Broker,
    partition: OffsetsPartition,
    group: Group,
    deleted: Collection[TopicPartition],
    *,
    with_group: bool,
    writes_group: bool | None = None,
) -> Error:
    """Write the tombstones of offsets and, if asked, of their group in one batch, offsets first. Then delete both from memory.

    Args:
        with_group: delete the group too.
        writes_group: whether the group gets a tombstone; None: by the rule of the release for requests.

    Returns:
        The error of a failed append, after which nothing is deleted; else NONE.
    """
    group_id = group.group_id
    if writes_group is None:
        writes_group = broker.release.deletion_always_writes_group or group.generation > 0
    offsets = DeletedOffsets(partition, group_id, deleted, all_pending=with_group)
    records = offsets.tombstones
    if with_group and writes_group:
        records.append(group_tombstone(group_id))
    producers = partition.producers_with_open_transaction.get(group_id)
    put_group_back: list[Callable[[], None]] = []

    def undo() -> None:
        offsets.put_back()
        for put_back in put_group_back:
            put_back()
        if with_group and producers is not None:
            partition.producers_with_open_transaction[group_id] = producers

    if records:
        before = copy.copy(group) if with_group else NO_VIEW
        error = broker.append_tombstones(group_id, records, undo, before, offsets.committed)
        if error is not Error.NONE:
            return error
    offsets.forget()
    if with_group:
        partition.producers_with_open_transaction.pop(group_id, None)
        put_group_back.append(broker.remove_group(group))
    return Error.NONE
