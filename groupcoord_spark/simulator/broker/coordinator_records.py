"""The records that the coordinator makes of offsets and of classic groups (Kafka: ``GroupCoordinatorRecordHelpers``)."""

from typing import Any

from groupcoord_spark.protocol.record_types import NO_TIMESTAMP, KeyType
from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.broker.release import Release
from groupcoord_spark.simulator.broker.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.groups import ClassicGroup
from groupcoord_spark.simulator.messages import RecordToWrite
from groupcoord_spark.simulator.messages.requests import OffsetToCommit

BROKER_RETENTION = -1
"""``retention_ms`` of an OffsetCommit that asks for no retention of its own."""


def offset_tombstone(group_id: str, topic: str, partition: int) -> RecordToWrite:
    """Return the tombstone of one committed offset."""
    return RecordToWrite(KeyType.OFFSET_COMMIT, {"group_id": group_id, "topic": topic, "partition": partition})


def group_record(group: ClassicGroup, release: Release) -> RecordToWrite:
    """Return the record of the group's current state: members in map order, with their metadata for the elected protocol and their
    assignments."""
    version = release.group_value_version
    value: dict[str, Any] = {
        "protocol_type": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
    }
    if version >= 2:
        value["current_state_timestamp_ms"] = NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms
    value["members"] = members = []
    for member in group.members:
        stored: dict[str, Any] = {"member_id": member.member_id}
        if version >= 3:
            stored["group_instance_id"] = member.group_instance_id
        stored |= {"client_id": member.client_id, "client_host": member.client_host}
        if version >= 1:
            stored["rebalance_timeout_ms"] = member.rebalance_timeout_ms
        stored["session_timeout_ms"] = member.session_timeout_ms
        stored["subscription"] = member.metadata_for(group.protocol)
        stored["assignment"] = member.assignment
        members.append(stored)
    return RecordToWrite(KeyType.GROUP_METADATA, {"group_id": group.group_id}, version, value)


def new_group_record(group: ClassicGroup, release: Release) -> RecordToWrite:
    """Return the record of a group that was just created: no members, generation 0, no protocol type."""
    return group_record(ClassicGroup(group.group_id, group.state_timestamp_ms, like_java=group.like_java), release)


def offset_record(
    broker: Broker, group_id: str, offset: OffsetToCommit, requested_retention_ms: int, *, is_transactional: bool
) -> RecordToWrite:
    """Return the record of one committed offset.

    An expire timestamp is written if the request asks for a retention (X-B5), and by brokers before 2.1 always (X-A2):
    docs/reference/expiration-rules.md.
    """
    release, now_ms, expire_timestamp_ms = broker.release, broker.now_ms, NO_TIMESTAMP
    requested_timestamp_ms = now_ms if offset.commit_timestamp_ms == NO_TIMESTAMP else offset.commit_timestamp_ms
    if requested_retention_ms != BROKER_RETENTION:
        expire_timestamp_ms = now_ms + requested_retention_ms
    elif release.always_expires_explicitly:
        expire_timestamp_ms = requested_timestamp_ms + broker.retention_ms
    version = release.offset_value_version if expire_timestamp_ms == NO_TIMESTAMP else 1
    value: dict[str, Any] = {"committed_offset": offset.committed_offset}
    if version >= 3:
        value["leader_epoch"] = offset.leader_epoch
    value["metadata"] = offset.metadata or ""
    value["commit_timestamp_ms"] = requested_timestamp_ms if release.takes_commit_timestamps else now_ms
    if version == 1:
        value["expire_timestamp_ms"] = expire_timestamp_ms
    if version >= 4:
        carries_id = release.transactional_commits_carry_topic_id if is_transactional else release.commits_carry_topic_id
        value["topic_id"] = broker.settings.topic_id(offset.topic) if carries_id else NO_TOPIC_ID
    key = {"group_id": group_id, "topic": offset.topic, "partition": offset.partition}
    return RecordToWrite(KeyType.OFFSET_COMMIT, key, version, value)
