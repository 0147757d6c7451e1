"""OffsetCommit and TxnOffsetCommit (docs/reference/coordinator.md, chapter 9.1).

An append takes no time in the simulator. So no commit is ever waiting for its append (docs/reference/expiration-rules.md, X-A3 and X-S1):
an offset is stored at the moment in which its request is answered.
"""

from collections.abc import Sequence

from groupcoord_spark.coordinator.transactions import StoredOffset
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from groupcoord_spark.simulator.answers import OffsetCommitAnswer
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.coordinator_checks import coordinator_error
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.group_checks import first_error
from groupcoord_spark.simulator.rebalance import restart_session
from groupcoord_spark.simulator.records import BROKER_RETENTION, WrittenRecord, offset_record
from groupcoord_spark.simulator.requests import OffsetCommit, OffsetToCommit, TxnOffsetCommit
from groupcoord_spark.simulator.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.states import State


def offset_commit(broker: Broker, call: Call, request: OffsetCommit) -> None:
    """Store the offsets of one request, and answer with one error for each partition."""
    errors, existing = _unknown_partitions(broker, request.offsets)
    if existing:
        error = coordinator_error(broker, OffsetCommit, request.group_id)
        if error is Error.NONE:
            error = _check_commit(broker, request)
        if error is Error.NONE:
            errors |= _store(broker, request.group_id or "", existing, request.retention_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        else:
            errors |= {(offset.topic, offset.partition): error for offset in existing}
    broker.answer(call, OffsetCommitAnswer(errors))


def txn_offset_commit(broker: Broker, call: Call, request: TxnOffsetCommit) -> None:
    """Stage the offsets of one request until the transaction of the producer ends, and answer with one error for each partition."""
    errors, existing = _unknown_partitions(broker, request.offsets)
    if existing:
        error = coordinator_error(broker, TxnOffsetCommit, request.group_id)
        if error is Error.NONE:
            error = _check_transactional_commit(broker, request)
        if error is Error.NONE and broker.settings.has_old_message_format(broker.release.semantics.release):
            error = Error.UNSUPPORTED_FOR_MESSAGE_FORMAT
        if error is Error.NONE:
            errors |= _store(broker, request.group_id or "", existing, BROKER_RETENTION, request.producer_id, request.producer_epoch)
        else:
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


def _check_commit(broker: Broker, request: OffsetCommit) -> Error:
    modern = broker.modern_group(request.group_id or "")
    if modern is not None and modern.group_type == "share":
        return Error.GROUP_ID_NOT_FOUND
    group = broker.group(request.group_id or "")
    if group is None:
        if request.generation < 0:
            broker.create_group(request.group_id or "")
            return Error.NONE
        since = broker.release.group_not_found_since
        version = broker.release.version_of(request)
        return Error.GROUP_ID_NOT_FOUND if since is not None and version >= since else Error.ILLEGAL_GENERATION
    error = first_error(broker.release.commit_checks, group, request)
    if error is Error.NONE and group.state in (State.STABLE, State.PREPARING_REBALANCE):
        member = group.members.get(request.member_id)
        if member is not None:
            restart_session(broker, group, member)
    return error


def _check_transactional_commit(broker: Broker, request: TxnOffsetCommit) -> Error:
    group = broker.group(request.group_id or "")
    if group is None:
        if request.generation >= 0 and not broker.release.txn_commit_creates_group:
            return Error.ILLEGAL_GENERATION
        group = broker.create_group(request.group_id or "")
    return first_error(broker.release.txn_commit_checks, group, request)


def _store(
    broker: Broker, group_id: str, offsets: Sequence[OffsetToCommit], retention_ms: int, producer_id: int, producer_epoch: int
) -> dict[tuple[str, int], Error]:
    errors = {}
    accepted = []
    is_transactional = producer_id != NO_PRODUCER_ID
    for offset in offsets:
        if offset.metadata is not None and _utf16_length(offset.metadata) > broker.settings.offset_metadata_max_bytes:
            errors[offset.topic, offset.partition] = Error.OFFSET_METADATA_TOO_LARGE
            continue
        errors[offset.topic, offset.partition] = Error.NONE
        accepted.append(offset)
    if not accepted:
        return errors
    records = [
        offset_record(group_id, offset, retention_ms, is_transactional, broker.release, broker.settings, broker.now_ms)
        for offset in accepted
    ]
    error, written = broker.append(group_id, records, producer_id, producer_epoch)
    if error is not Error.NONE:
        mapped = broker.release.commit_append_errors.get(error, error)
        return {partition: mapped if answer is Error.NONE else answer for partition, answer in errors.items()}
    partition = broker.partition_of(group_id)
    for record, offset in zip(written, accepted, strict=True):
        stored = stored_offset(record)
        if stored is None:
            continue
        if is_transactional:
            partition.offsets.stage(group_id, offset.topic, offset.partition, producer_id, stored)
        else:
            partition.offsets.put(group_id, offset.topic, offset.partition, stored)
    if is_transactional:
        broker.transactions.setdefault(producer_id, set()).add(partition.number)
        partition.producers_with_open_transaction.setdefault(group_id, set()).add(producer_id)
    return errors


def stored_offset(record: WrittenRecord) -> StoredOffset | None:
    """The stored offset that an offset record makes; None for a tombstone."""
    value = record.value
    if value is None or record.value_version is None:
        return None
    topic_id = value.get("topic_id", NO_TOPIC_ID)
    return StoredOffset(
        committed_offset=value["committed_offset"],
        leader_epoch=value.get("leader_epoch", NO_LEADER_EPOCH),
        metadata=value["metadata"],
        commit_timestamp_ms=value["commit_timestamp_ms"],
        expire_timestamp_ms=value.get("expire_timestamp_ms", NO_TIMESTAMP),
        topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        value_version=record.value_version,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        record_offset=record.record_offset,
        record_timestamp_ms=record.timestamp_ms,
    )


def _utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units, as Java counts it: a character above U+FFFF counts twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
