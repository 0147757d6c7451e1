"""OffsetCommit and TxnOffsetCommit: who may save positions, and what is written for them.

Appends take no time here, so there are no commits in flight (X-A3, X-S1): an offset is stored when its request is answered.
"""

from collections.abc import Sequence

from groupcoord_spark.coordinator.transactions import NO_PRODUCER_ID, StoredOffset
from groupcoord_spark.simulator.answers import OffsetCommitAnswer
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.coordinator_checks import coordinator_error
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.group_checks import first_error
from groupcoord_spark.simulator.rebalance import restart_session
from groupcoord_spark.simulator.records import NO_EXPIRY, WrittenRecord, offset_record
from groupcoord_spark.simulator.requests import OffsetCommit, OffsetToCommit, TxnOffsetCommit
from groupcoord_spark.simulator.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.states import State


def offset_commit(broker: Broker, call: Call, request: OffsetCommit) -> None:
    """Store the offsets of one request, or refuse them all or one by one."""
    errors, known = _unknown_partitions(broker, request.offsets)
    if known:
        error = coordinator_error(broker, OffsetCommit, request.group_id)
        if error is Error.NONE:
            error = _admit(broker, request)
        if error is Error.NONE:
            errors |= _store(broker, request.group_id or "", known, request.retention_ms, NO_PRODUCER_ID, -1)
        else:
            errors |= {(offset.topic, offset.partition): error for offset in known}
    broker.answer(call, OffsetCommitAnswer(errors))


def txn_offset_commit(broker: Broker, call: Call, request: TxnOffsetCommit) -> None:
    """Stage the offsets of one request until the producer's transaction ends."""
    errors, known = _unknown_partitions(broker, request.offsets)
    if known:
        error = coordinator_error(broker, TxnOffsetCommit, request.group_id)
        if error is Error.NONE:
            error = _admit_transactional(broker, request)
        if error is Error.NONE:
            errors |= _store(broker, request.group_id or "", known, -1, request.producer_id, request.producer_epoch)
        else:
            errors |= {(offset.topic, offset.partition): error for offset in known}
    broker.answer(call, OffsetCommitAnswer(errors))


def _unknown_partitions(broker: Broker, offsets: Sequence[OffsetToCommit]) -> tuple[dict[tuple[str, int], Error], Sequence[OffsetToCommit]]:
    """Partitions the broker does not have never reach the coordinator."""
    if broker.settings.topics is None:
        return {}, offsets
    errors: dict[tuple[str, int], Error] = {}
    known = []
    for offset in offsets:
        if broker.settings.knows(offset.topic, offset.partition):
            known.append(offset)
        else:
            errors[offset.topic, offset.partition] = Error.UNKNOWN_TOPIC_OR_PARTITION
    return errors, known


def _admit(broker: Broker, request: OffsetCommit) -> Error:
    modern = broker.modern_group(request.group_id or "")
    if modern is not None and modern.group_type == "share":
        return Error.GROUP_ID_NOT_FOUND
    group = broker.group(request.group_id or "")
    if group is None:
        if request.generation < 0:
            broker.create_group(request.group_id or "")
            return Error.NONE
        since = broker.release.group_not_found_since
        version = request.version if request.version is not None else broker.release.newest_request_versions[OffsetCommit]
        return Error.GROUP_ID_NOT_FOUND if since is not None and version >= since else Error.ILLEGAL_GENERATION
    error = first_error(broker.release.commit_checks, group, request)
    if error is Error.NONE and group.state in (State.STABLE, State.PREPARING_REBALANCE):
        member = group.members.get(request.member_id)
        if member is not None:
            restart_session(broker, group, member)
    return error


def _admit_transactional(broker: Broker, request: TxnOffsetCommit) -> Error:
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
    stored = []
    is_transactional = producer_id != NO_PRODUCER_ID
    for offset in offsets:
        if offset.metadata is not None and _utf16_length(offset.metadata) > broker.settings.offset_metadata_max_bytes:
            errors[offset.topic, offset.partition] = Error.OFFSET_METADATA_TOO_LARGE
            continue
        errors[offset.topic, offset.partition] = Error.NONE
        stored.append(offset)
    if not stored:
        return errors
    records = [
        offset_record(group_id, offset, retention_ms, is_transactional, broker.release, broker.settings, broker.now_ms) for offset in stored
    ]
    error, written = broker.append(group_id, records, producer_id, producer_epoch)
    if error is not Error.NONE:
        mapped = broker.release.commit_append_errors.get(error, error)
        return {place: mapped if found is Error.NONE else found for place, found in errors.items()}
    partition = broker.partition_of(group_id)
    for record, offset in zip(written, stored, strict=True):
        entry = stored_offset(record)
        if entry is None:
            continue
        if is_transactional:
            partition.offsets.stage(group_id, offset.topic, offset.partition, producer_id, entry)
        else:
            partition.offsets.put(group_id, offset.topic, offset.partition, entry)
    if is_transactional:
        broker.transactions.setdefault(producer_id, set()).add(partition.number)
        partition.producers_with_open_transaction.setdefault(group_id, set()).add(producer_id)
    return errors


def stored_offset(record: WrittenRecord) -> StoredOffset | None:
    """The entry an offset record makes; None for a tombstone."""
    value = record.value
    if value is None or record.value_version is None:
        return None
    topic_id = value.get("topic_id", NO_TOPIC_ID)
    return StoredOffset(
        committed_offset=value["committed_offset"],
        leader_epoch=value.get("leader_epoch", -1),
        metadata=value["metadata"],
        commit_timestamp_ms=value["commit_timestamp_ms"],
        expire_timestamp_ms=value.get("expire_timestamp_ms", NO_EXPIRY),
        topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        value_version=record.value_version,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        record_offset=record.record_offset,
        record_timestamp_ms=record.timestamp_ms,
    )


def _utf16_length(text: str) -> int:
    """Length as Java counts it: characters beyond the first 65536 count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
