"""Deletion of offsets and groups: DeleteGroups, OffsetDelete, the deletion of a topic, and the cleanup of expired offsets.

Kafka: ``deleteGroups``, ``deleteOffsets``, ``onPartitionsDeleted`` and ``cleanupGroupMetadata`` of ``GroupCoordinatorShard``.
Rules: docs/reference/coordinator.md, chapter 9.6, and docs/reference/expiration-rules.md, chapters 3 and 4.
"""

import copy
from collections.abc import Callable, Collection

from groupcoord_spark.coordinator.expiration import GROUP_REMOVED, Cleanup
from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset, TopicPartition
from groupcoord_spark.protocol.record_types import NO_PRODUCER_ID
from groupcoord_spark.simulator.broker import Broker, OffsetsPartition, coordinator_error
from groupcoord_spark.simulator.broker.coordinator_records import offset_tombstone
from groupcoord_spark.simulator.broker.offsets_partition import NO_VIEW
from groupcoord_spark.simulator.broker.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.groups import ClassicGroup, Group, ShareGroup
from groupcoord_spark.simulator.handlers.share.share_heartbeat import delete_share_state
from groupcoord_spark.simulator.messages import Call, Error, RecordToWrite, RefusedError, refuse_if
from groupcoord_spark.simulator.messages.answers import DeleteGroupsAnswer, OffsetDeleteAnswer
from groupcoord_spark.simulator.messages.requests import DeleteGroups, OffsetDelete


def delete_groups(broker: Broker, call: Call, request: DeleteGroups) -> None:
    """Delete groups with their offsets. Only Empty groups may be deleted."""
    broker.answer(call, DeleteGroupsAnswer({group_id: _delete_group(broker, request, group_id) for group_id in request.group_ids}))


def _delete_group(broker: Broker, request: DeleteGroups, group_id: str) -> Error:
    error = coordinator_error(broker, request, group_id)
    if error is not Error.NONE:
        return error
    group = broker.group(group_id)
    if group is None or group.is_dead:
        return Error.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return Error.NON_EMPTY_GROUP
    if isinstance(group, ShareGroup) and (error := delete_share_state(broker, group)) is not Error.NONE:
        return error
    partition = broker.partition_of(group_id)
    deleted = [*partition.offsets.committed.get(group_id, ())]
    deleted += [place for place in _written_in_flight(broker, partition, group_id) if place not in deleted]
    if broker.release.deletion_writes_pending:
        deleted += [pending for pending in partition.pending_partitions(group_id) if pending not in deleted]
    return delete_offsets_and_group(broker, partition, group, deleted, with_group=True)


def _written_in_flight(broker: Broker, partition: OffsetsPartition, group_id: str) -> list[TopicPartition]:
    """Return the partitions of commits in flight. A Java coordinator has already applied these commits and deletes them like others."""
    return [key[1:] for key in partition.in_flight if key[0] == group_id] if broker.release.applies_before_append else []


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
        """Restore the offsets after the append of the tombstones has failed."""
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
    """Delete offsets of topics without subscribed members."""
    refuse_if(coordinator_error(broker, request, request.group_id))
    group_id = request.group_id or ""
    group = broker.group(group_id)
    if group is None or group.is_dead:
        raise RefusedError(Error.GROUP_ID_NOT_FOUND)
    refuse_if(group.validate_offset_delete())
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
            elif group.is_subscribed_to(topic):
                errors[topic_partition] = Error.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                errors[topic_partition] = Error.NONE
                is_pending = (group_id, *topic_partition) in partition.offsets.pending
                if topic_partition in existing or (is_pending and broker.release.deletion_writes_pending):
                    deleted.append(topic_partition)
                elif is_pending:
                    dropped_pending.append(topic_partition)
    with_group = _would_have_no_offsets(broker, partition, group, deleted)
    refuse_if(delete_offsets_and_group(broker, partition, group, deleted, with_group=with_group))
    for topic, number in (*deleted, *dropped_pending):
        partition.offsets.pending.pop((group_id, topic, number), None)
    broker.answer(call, OffsetDeleteAnswer(Error.NONE, errors))


def delete_topic(broker: Broker, topic: str) -> None:
    """Delete the offsets of a deleted topic in all groups. Scala brokers also delete Empty groups that have no other offsets."""
    topic_id = broker.settings.topic_id(topic)
    for partition in broker.partitions.values():
        for group_id, group in sorted(partition.groups.items()):
            committed = partition.offsets.committed.get(group_id, {})
            deleted = [
                topic_partition
                for topic_partition, stored in committed.items()
                if topic_partition[0] == topic and (stored.topic_id is None or topic_id == NO_TOPIC_ID or stored.topic_id == topic_id)
            ]
            if broker.release.deletion_writes_pending:
                uncommitted = (*_written_in_flight(broker, partition, group_id), *partition.pending_partitions(group_id))
                deleted += [place for place in dict.fromkeys(uncommitted) if place[0] == topic and place not in deleted]
            if deleted and group.keeps_offsets:
                with_group = _would_have_no_offsets(broker, partition, group, deleted)
                delete_offsets_and_group(broker, partition, group, deleted, with_group=with_group)


def clean_up(broker: Broker) -> bool:
    """Delete the expired offsets and groups. Returns whether any offset or group was deleted."""
    cleanup = Cleanup(broker.now_ms, broker.retention_ms, broker.release.semantics)
    has_removed = False
    for partition in broker.partitions.values():
        if not partition.groups or partition.is_loading:
            continue
        pending: dict[str, set[TopicPartition]] = {}
        for group_id, topic, number in partition.offsets.pending:
            pending.setdefault(group_id, set()).add((topic, number))
        for group_id, group in sorted(partition.groups.items()):
            if not group.keeps_offsets:
                continue
            committed = partition.offsets.committed.get(group_id, {})
            facts = group.expiration_facts(expires_while_rebalancing=broker.release.expires_while_rebalancing)
            result = cleanup.of_group(facts, committed, pending.get(group_id, ()))
            in_flight = {key[1:] for key in partition.in_flight if key[0] == group_id}
            expired = [(expiry.topic, expiry.partition) for expiry in result.offsets if expiry.expired]
            deleted = [place for place in expired if place not in in_flight]
            is_removed = result.group.removed and not in_flight
            if isinstance(group, ClassicGroup):
                is_removed = is_removed and not partition.producers_with_open_transaction.get(group_id)
            if not deleted and not is_removed:
                continue
            writes_group = any(tombstone.reason == GROUP_REMOVED for tombstone in result.tombstones)
            delete_offsets_and_group(broker, partition, group, deleted, with_group=is_removed, writes_group=writes_group)
            has_removed = True
    return has_removed


def _would_have_no_offsets(broker: Broker, partition: OffsetsPartition, group: Group, deleted: Collection[TopicPartition]) -> bool:
    """Return whether deleting these offsets also deletes the group: a Scala broker deletes an Empty group together with its last offset
    (X-G1)."""
    if not broker.release.offset_delete_may_remove_group or not group.is_empty:
        return False
    committed = partition.offsets.committed.get(group.group_id, {})
    if any(key[0] == group.group_id and key[1:] not in deleted for key in partition.in_flight):
        return False
    return all(topic_partition in deleted for topic_partition in committed) and not partition.producers_with_open_transaction.get(
        group.group_id
    )


def delete_offsets_and_group(
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
    if not isinstance(group, ClassicGroup):
        writes_group = True
    elif writes_group is None:
        writes_group = broker.release.deletion_always_writes_group or group.generation > 0
    offsets = DeletedOffsets(partition, group_id, deleted, all_pending=with_group)
    records = offsets.tombstones
    if with_group and writes_group:
        records += group.tombstones()
    producers = partition.producers_with_open_transaction.get(group_id)
    put_group_back: list[Callable[[], None]] = []

    def undo() -> None:
        offsets.put_back()
        for put_back in put_group_back:
            put_back()
        if with_group and producers is not None:
            partition.producers_with_open_transaction[group_id] = producers

    if records:
        # A classic group becomes Dead; readers see it as it was until the tombstones are replicated.
        shown = copy.copy(group) if with_group else NO_VIEW
        error = broker.log.append_tombstones(group_id, records, undo, shown, offsets.committed)
        if error is not Error.NONE:
            return error
    offsets.forget()
    if with_group:
        partition.producers_with_open_transaction.pop(group_id, None)
        put_group_back.append(broker.remove_group(group))
    return Error.NONE
