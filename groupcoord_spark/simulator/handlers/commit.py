"""OffsetCommit and TxnOffsetCommit (chapter 9.1 of docs/reference/coordinator.md; Kafka: ``commitOffset``, ``storeOffsets``).

A commit is in flight while its append takes time (chapter 9.3). It is stored, and its request answered, when the append has succeeded.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from groupcoord_spark.simulator.broker import Broker, OffsetsPartition, coordinator_error
from groupcoord_spark.simulator.broker.coordinator_records import BROKER_RETENTION, offset_record
from groupcoord_spark.simulator.broker.rebalance import restart_session
from groupcoord_spark.simulator.broker.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.groups import ClassicGroup, GroupState
from groupcoord_spark.simulator.groups.classic_checks import first_error
from groupcoord_spark.simulator.groups.group import CommitRules
from groupcoord_spark.simulator.messages import Call, Error, RecordToWrite, WrittenRecord
from groupcoord_spark.simulator.messages.answers import OffsetCommitAnswer
from groupcoord_spark.simulator.messages.requests import OffsetCommit, OffsetToCommit, TxnOffsetCommit


def offset_commit(broker: Broker, call: Call, request: OffsetCommit | TxnOffsetCommit) -> None:
    """Store the offsets of one request, or stage them until its transaction ends. Answers with one error for each partition."""
    errors, existing = _unknown_partitions(broker, request.offsets)
    if existing:
        error = coordinator_error(broker, request, request.group_id)
        if error is Error.NONE:
            error = _check_commit(broker, call, request)
        if error is Error.NONE:
            _store(broker, call, request, errors, existing)
            return
        errors |= {(offset.topic, offset.partition): error for offset in existing}
    broker.answer(call, OffsetCommitAnswer(errors))


def _unknown_partitions(broker: Broker, offsets: Sequence[OffsetToCommit]) -> tuple[dict[tuple[str, int], Error], Sequence[OffsetToCommit]]:
    """Errors of the partitions that are refused or do not exist, and the other offsets: only these reach the coordinator."""
    if broker.settings.topics is None and not broker.denied.topics:
        return {}, offsets
    errors: dict[tuple[str, int], Error] = {}
    existing = []
    for offset in offsets:
        if offset.topic in broker.denied.topics:
            errors[offset.topic, offset.partition] = Error.TOPIC_AUTHORIZATION_FAILED
        elif broker.settings.has_partition(offset.topic, offset.partition):
            existing.append(offset)
        else:
            errors[offset.topic, offset.partition] = Error.UNKNOWN_TOPIC_OR_PARTITION
    return errors, existing


def _check_commit(broker: Broker, call: Call, request: OffsetCommit | TxnOffsetCommit) -> Error:
    group = broker.group(request.group_id or "")
    is_transactional = isinstance(request, TxnOffsetCommit)
    if group is None:
        if request.generation >= 0 and not (is_transactional and broker.release.txn_commit_creates_group):
            return Error.GROUP_ID_NOT_FOUND if _tells_group_errors(broker, request) else Error.ILLEGAL_GENERATION
        group = created = broker.create_group(request.group_id or "")
        created.created_by = call
        if not is_transactional:
            return Error.NONE
    error = group.validate_commit(request, _commit_rules(broker, request))
    if error is Error.NONE and is_transactional and broker.settings.has_old_message_format(broker.release.semantics.release):
        return Error.UNSUPPORTED_FOR_MESSAGE_FORMAT
    if error is Error.NONE and not is_transactional and isinstance(group, ClassicGroup):
        member = group.members.get(request.member_id)
        if member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            restart_session(broker, group, member)
    return error


def _tells_group_errors(broker: Broker, request: OffsetCommit | TxnOffsetCommit) -> bool:
    """Return whether this request version has the errors GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH."""
    release = broker.release
    since = release.group_not_found_since if isinstance(request, OffsetCommit) else release.txn_commit_tells_since
    return since is not None and release.version_of(request) >= since


def _commit_rules(broker: Broker, request: OffsetCommit | TxnOffsetCommit) -> CommitRules:
    release = broker.release
    checks = release.commit_checks if isinstance(request, OffsetCommit) else release.txn_commit_checks
    topic_ids = {name: topic.topic_id for name, topic in (broker.settings.topics or {}).items()}
    tells_stale_epoch = isinstance(request, OffsetCommit) or _tells_group_errors(broker, request)
    return CommitRules(
        partial(first_error, checks), release.version_of(request), release.commits_by_older_epoch, topic_ids, tells_stale_epoch
    )


def _store(
    broker: Broker,
    call: Call,
    request: OffsetCommit | TxnOffsetCommit,
    errors: dict[tuple[str, int], Error],
    offsets: Sequence[OffsetToCommit],
) -> None:
    """Append the offsets, store them, and answer the request. ``errors``: of the partitions that are refused already."""
    group_id = request.group_id or ""
    if isinstance(request, OffsetCommit):
        retention_ms, producer_id, producer_epoch = request.retention_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    else:
        retention_ms, producer_id, producer_epoch = BROKER_RETENTION, request.producer_id, request.producer_epoch
    accepted = []
    is_transactional = producer_id != NO_PRODUCER_ID
    for offset in offsets:
        if offset.metadata is not None and _utf16_length(offset.metadata) > broker.settings.offset_metadata_max_bytes:
            errors[offset.topic, offset.partition] = Error.OFFSET_METADATA_TOO_LARGE
            continue
        errors[offset.topic, offset.partition] = Error.NONE
        accepted.append(offset)
    if not accepted:
        broker.answer(call, OffsetCommitAnswer(errors))
        return
    records = [offset_record(broker, group_id, offset, retention_ms, is_transactional=is_transactional) for offset in accepted]
    partition = broker.partition_of(group_id)
    if is_transactional:
        broker.transactions.setdefault(producer_id, set()).add(partition.number)
        partition.producers_with_open_transaction.setdefault(group_id, set()).add(producer_id)
    if broker.log.is_slow(partition):
        _store_slowly(broker, call, group_id, errors, records, producer_id, producer_epoch)
        return
    error, written = broker.log.append(group_id, records, producer_id, producer_epoch)
    for record in written:
        _put(partition, group_id, record)
    if error is not Error.NONE:
        _forget_group(broker, call, partition, group_id)
    broker.answer(call, _commit_answer(broker, errors, error))


def _forget_group(broker: Broker, call: Call, partition: OffsetsPartition, group_id: str) -> None:
    """Remove a group whose first commit cannot be written: a Java coordinator also reverts the creation of the group."""
    group = partition.groups.get(group_id)
    if broker.release.applies_before_append and isinstance(group, ClassicGroup) and group.created_by is call:
        broker.remove_group(group)


def _store_slowly(
    broker: Broker,
    call: Call,
    group_id: str,
    errors: Mapping[tuple[str, int], Error],
    records: Sequence[RecordToWrite],
    producer_id: int,
    producer_epoch: int,
) -> None:
    """Store the offsets when their append has succeeded. Until then they are in flight."""
    partition = broker.partition_of(group_id)
    keys = [(group_id, record.key["topic"], record.key["partition"]) for record in records]
    commits: dict[OffsetKey, StoredOffset] = {}
    staged = ((key, partition.offsets.pending.get(key, {}).get(producer_id)) for key in keys)
    staged_before = {key: commit for key, commit in staged if commit is not None}

    def store(written: list[WrittenRecord]) -> None:
        for record, key in zip(written, keys, strict=True):
            if record.is_transactional:
                continue
            existing = partition.offsets.committed.get(group_id, {}).get(key[1:])
            if key in partition.in_flight and (existing is None or existing.record_offset < record.record_offset):
                _put(partition, group_id, record)
        forget()

    def forget() -> None:
        for key, commit in commits.items():
            for places in (partition.in_flight, partition.deleted_in_flight):
                if places.get(key) == commit:
                    del places[key]

    def end(error: Error, written: list[WrittenRecord]) -> None:
        if error is Error.NONE:
            store(written)
        elif error is not Error.REQUEST_TIMED_OUT or not broker.release.stores_after_timeout:
            take_back()
        broker.answer(call, _commit_answer(broker, errors, error))

    def take_back() -> None:
        forget()
        if producer_id != NO_PRODUCER_ID:
            for key in keys:
                partition.offsets.unstage(*key, producer_id)
                # A Scala coordinator forgets an earlier commit of the transaction too.
                if broker.release.applies_before_append and (earlier := staged_before.get(key)) is not None:
                    partition.offsets.stage(*key, producer_id, earlier)
        _forget_group(broker, call, partition, group_id)

    def end_late(error: Error, written: list[WrittenRecord]) -> None:
        if broker.release.stores_after_timeout:
            store(written) if error is Error.NONE else take_back()

    in_log = broker.log.as_written(partition, records, producer_id, producer_epoch)
    broker.log.append_slowly(group_id, records, end, end_late, producer_id, producer_epoch)
    for record, key in zip(in_log, keys, strict=True):
        stored = stored_offset(record)
        if stored is None:
            continue
        if producer_id != NO_PRODUCER_ID:
            partition.offsets.stage(*key, producer_id, stored)
        else:
            commits[key] = partition.in_flight[key] = stored


def _put(partition: OffsetsPartition, group_id: str, record: WrittenRecord) -> None:
    stored = stored_offset(record)
    if stored is None or record.key is None:
        return
    if record.is_transactional:
        partition.offsets.stage(group_id, record.key["topic"], record.key["partition"], record.producer_id, stored)
    else:
        partition.offsets.put(group_id, record.key["topic"], record.key["partition"], stored)


def _commit_answer(broker: Broker, errors: Mapping[tuple[str, int], Error], error: Error) -> OffsetCommitAnswer:
    """Return the answer after the append; its error replaces every NONE."""
    if error is Error.NONE:
        return OffsetCommitAnswer(errors)
    mapped = broker.release.commit_append_errors.get(error, error)
    return OffsetCommitAnswer({partition: mapped if answer is Error.NONE else answer for partition, answer in errors.items()})


def stored_offset(record: WrittenRecord) -> StoredOffset | None:
    """Return the stored offset of an offset record, or None for a tombstone."""
    value = record.value
    if value is None or record.value_version is None:
        return None
    fields = {field.name: value.get(field.name, field.absent_value()) for field in OFFSET_COMMIT_VALUE.fields}
    return StoredOffset(
        **{**fields, "topic_id": None if fields["topic_id"] == NO_TOPIC_ID else fields["topic_id"]},
        value_version=record.value_version,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        record_offset=record.record_offset,
        record_timestamp_ms=record.timestamp_ms,
    )


def _utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 code units, as Java counts it: a character above U+FFFF counts twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
