"""Builders of the records of one offsets partition, and the state that the replay computes from a list of records.

The record offset of a record is its place in the list, from 0. A marker has a record offset too.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupcoord_spark.coordinator import JAVA, Cleanup, PartitionReplay, PartitionState, Semantics, StoredOffset
from groupcoord_spark.coordinator.refusals import fault_beyond_limits
from groupcoord_spark.protocol import ZERO_UUID, DecodeError, decode_key, decode_value, encode_key, encode_value
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, KeyType, MarkerType

GOLDEN = Path(__file__).parents[1] / "golden"
GROUP = "g"
TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"
NOW_MS = 1_000_000
RETENTION_MS = MINUTE_MS = 60_000
"""Moment and retention of the cleanup of an ``Outcome``."""


@dataclass(frozen=True)
class Record:
    """One record with the fields of its batch. A marker has a control type and no key."""

    key: bytes | None = None
    value: bytes | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False
    control_type: int | None = None
    timestamp_ms: int = 1_000
    offset: int | None = None

    def apply_to(self, replay: PartitionReplay, record_offset: int) -> None:
        if self.control_type is not None:
            replay.apply_marker(self.producer_id, self.control_type)
            return
        try:
            key = decode_key(self.key)
            value = decode_value(key.key_type, self.value)
            if beyond_limits := fault_beyond_limits(value, replay.semantics):
                raise beyond_limits
        except DecodeError as error:
            replay.refuse(record_offset, error.code, error.detail)
            return
        if key.key_type >= KeyType.GROUP_METADATA:
            version, fields = (None, None) if value is None else (value.version, value.fields)
            replay.apply_group_record(record_offset, self.timestamp_ms, key.key_type, key.fields, version, fields)
            return
        stored = None
        if value is not None:
            topic_id = value.fields.get("topic_id", ZERO_UUID)
            stored = StoredOffset(
                committed_offset=value.fields["committed_offset"],
                leader_epoch=value.fields.get("leader_epoch", NO_LEADER_EPOCH),
                metadata=value.fields["metadata"],
                commit_timestamp_ms=value.fields["commit_timestamp_ms"],
                expire_timestamp_ms=value.fields.get("expire_timestamp_ms", NO_TIMESTAMP),
                topic_id=None if topic_id == ZERO_UUID else topic_id,
                value_version=value.version,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                record_offset=record_offset,
                record_timestamp_ms=self.timestamp_ms,
            )
        place = (key.fields["group_id"], key.fields["topic"], key.fields["partition"])
        replay.apply_offset_commit(self.producer_id, self.is_transactional, key.key_type, *place, stored)


def replayed(records: Iterable[Record], semantics: Semantics = JAVA) -> PartitionState:
    return replay_of(records, semantics).finish()


def replay_of(records: Iterable[Record], semantics: Semantics = JAVA) -> PartitionReplay:
    replay = PartitionReplay(semantics)
    for record_offset, record in enumerate(records):
        record.apply_to(replay, record_offset if record.offset is None else record.offset)
    return replay


def offset_commit(
    place: str,
    committed_offset: int | None,
    *,
    group: str = GROUP,
    commit_ms: int = 1_000,
    expire_ms: int | None = None,
    topic_id: str = ZERO_UUID,
    key_type: int = KeyType.OFFSET_COMMIT,
    version: int | None = None,
    producer: int = NO_PRODUCER_ID,
    epoch: int = 0,
    transactional: bool | None = None,
) -> Record:
    """Return a commit for a place such as ``t0`` (topic t, partition 0). committed_offset None: a tombstone; producer: in a transaction."""
    if version is None:
        version = 0 if key_type == KeyType.LEGACY_OFFSET_COMMIT else 1 if expire_ms is not None else 4 if topic_id != ZERO_UUID else 3
    fields = {
        "committed_offset": committed_offset,
        "leader_epoch": NO_LEADER_EPOCH,
        "metadata": "",
        "commit_timestamp_ms": commit_ms,
        "expire_timestamp_ms": NO_TIMESTAMP if expire_ms is None else expire_ms,
        "topic_id": topic_id,
    }
    return Record(
        key=encode_key(key_type, {"group_id": group, "topic": place[:-1], "partition": int(place[-1])}),
        # Values of version 0 are the same under both key types.
        value=None if committed_offset is None else encode_value(KeyType.OFFSET_COMMIT, version, fields),
        producer_id=producer,
        producer_epoch=epoch if producer != NO_PRODUCER_ID else NO_PRODUCER_EPOCH,
        is_transactional=producer != NO_PRODUCER_ID if transactional is None else transactional,
    )


def transactional_commit(producer: int, place: str, committed_offset: int | None, **more: Any) -> Record:
    return offset_commit(place, committed_offset, producer=producer, **more)


def marker(producer: int, control_type: int) -> Record:
    return Record(producer_id=producer, producer_epoch=0, is_transactional=True, control_type=control_type)


def committed(producer: int) -> Record:
    return marker(producer, MarkerType.COMMIT)


def aborted(producer: int) -> Record:
    return marker(producer, MarkerType.ABORT)


def tombstone(key_type: int, *, group: str = GROUP, **key: Any) -> Record:
    """Return a tombstone of a group record."""
    return Record(key=encode_key(key_type, {"group_id": group, **key}))


def classic_group(
    protocol_type: str = "consumer",
    generation: int = 3,
    *,
    state_ms: int = NO_TIMESTAMP,
    members: Iterable[Mapping[str, Any]] = (),
    protocol: str | None = None,
    leader: str | None = None,
    version: int = 3,
    group: str = GROUP,
) -> Record:
    fields = {
        "protocol_type": protocol_type,
        "generation": generation,
        "protocol": protocol,
        "leader": leader,
        "current_state_timestamp_ms": state_ms,
        "members": list(members),
    }
    return Record(key=encode_key(KeyType.GROUP_METADATA, {"group_id": group}), value=encode_value(KeyType.GROUP_METADATA, version, fields))


def member(member_id: str = "m", subscription: bytes = b"", **more: Any) -> dict[str, Any]:
    """Return an entry of the member list of key type 2."""
    return {
        "member_id": member_id,
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": 60_000,
        "session_timeout_ms": 10_000,
        "subscription": subscription,
        "assignment": b"",
        **more,
    }


def subscription(*topics: str) -> bytes:
    """Return a consumer's subscription of version 0, without user data."""
    names = b"".join(len(topic.encode()).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def stable_classic_group(*topics: str, protocol_type: str = "consumer", **more: Any) -> Record:
    """Return a Stable classic group of one member."""
    return classic_group(protocol_type, members=[member(subscription=subscription(*topics))], protocol="range", leader="m", **more)


def own(key_type: int, value: Mapping[str, Any], *, group: str = GROUP, **key: Any) -> Record:
    """Return a record of a modern group."""
    return Record(key=encode_key(key_type, {"group_id": group, **key}), value=encode_value(key_type, 0, value))


def group_epoch(epoch: int = 1, *, group: str = GROUP) -> Record:
    return own(KeyType.CONSUMER_GROUP_METADATA, {"epoch": epoch, "metadata_hash": 0}, group=group)


def consumer_member(member_id: str = "m", *topics: str, group: str = GROUP, **more: Any) -> Record:
    value = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": list(topics),
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": 60_000,
        "server_assignor": None,
        "classic_member_metadata": None,
        **more,
    }
    return own(KeyType.CONSUMER_GROUP_MEMBER_METADATA, value, group=group, member_id=member_id)


def target_metadata(key_type: int, epoch: int = 1, timestamp_ms: int = 0, *, group: str = GROUP) -> Record:
    return own(key_type, {"assignment_epoch": epoch, "assignment_timestamp_ms": timestamp_ms}, group=group)


def target_epoch(epoch: int = 1, *, group: str = GROUP) -> Record:
    """Return the epoch of a consumer group's target assignment."""
    return target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, epoch, group=group)


def target(member_id: str = "m", *partitions: int, group: str = GROUP) -> Record:
    return own(
        KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": list(partitions)}]},
        group=group,
        member_id=member_id,
    )


def current_assignment(
    member_id: str,
    epoch: int,
    *partitions: int,
    state: int = 0,
    revoking: Iterable[int] = (),
    topic_ids: Iterable[str] = (TOPIC_ID,),
    group: str = GROUP,
) -> Record:
    """Return a member with the partitions of these numbers, of one topic or of several."""
    value = {
        "member_epoch": epoch,
        "previous_member_epoch": epoch - 1,
        "state": state,
        "assigned_partitions": _topic_partitions(partitions, topic_ids),
        "partitions_pending_revocation": _topic_partitions(revoking, topic_ids),
    }
    return own(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, value, group=group, member_id=member_id)


def _topic_partitions(partitions: Iterable[int], topic_ids: Iterable[str]) -> list[dict[str, Any]]:
    numbers = list(partitions)
    return [{"topic_id": topic_id, "partitions": numbers, "assignment_epochs": []} for topic_id in topic_ids] if numbers else []


def resolved_regex(regular_expression: str, *topics: str) -> Record:
    return own(
        KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        {"topics": list(topics), "version": 1, "timestamp_ms": 1},
        regular_expression=regular_expression,
    )


def share_member(member_id: str = "m", *topics: str) -> Record:
    value = {"rack_id": None, "client_id": "c", "client_host": "/127.0.0.1", "subscribed_topic_names": list(topics)}
    return own(KeyType.SHARE_GROUP_MEMBER_METADATA, value, member_id=member_id)


def share_group_epoch(epoch: int = 1, *, group: str = GROUP) -> Record:
    return own(KeyType.SHARE_GROUP_METADATA, {"epoch": epoch, "metadata_hash": 0}, group=group)


def share_target(member_id: str = "m", *partitions: int) -> Record:
    return own(
        KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
        {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": list(partitions)}]},
        member_id=member_id,
    )


def share_assignment(member_id: str, epoch: int, *partitions: int) -> Record:
    assigned = [{"topic_id": TOPIC_ID, "partitions": list(partitions)}]
    value = {"member_epoch": epoch, "previous_member_epoch": epoch - 1, "state": 0, "assigned_partitions": assigned}
    return own(KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, value, member_id=member_id)


def streams_group_epoch(epoch: int = 1, validated_topology_epoch: int = -1, *, group: str = GROUP) -> Record:
    value = {"epoch": epoch, "metadata_hash": 0, "validated_topology_epoch": validated_topology_epoch, "last_assignment_configs": []}
    return own(KeyType.STREAMS_GROUP_METADATA, value, group=group)


def streams_member(member_id: str = "m") -> Record:
    value = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": 60_000,
        "topology_epoch": 0,
        "process_id": "p",
        "user_endpoint": None,
        "client_tags": [],
    }
    return own(KeyType.STREAMS_GROUP_MEMBER_METADATA, value, member_id=member_id)


def streams_target(member_id: str = "m", *active: int) -> Record:
    return own(
        KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        {"active_tasks": _tasks(active), "standby_tasks": [], "warmup_tasks": []},
        member_id=member_id,
    )


def streams_assignment(
    member_id: str, epoch: int, *active: int, state: int = 1, revoking: Iterable[int] = (), standby: Iterable[int] = ()
) -> Record:
    value = {
        "member_epoch": epoch,
        "previous_member_epoch": epoch - 1,
        "state": state,
        "active_tasks": _tasks(active),
        "standby_tasks": _tasks(standby),
        "warmup_tasks": [],
        "active_tasks_pending_revocation": _tasks(revoking),
        "standby_tasks_pending_revocation": [],
        "warmup_tasks_pending_revocation": [],
    }
    return own(KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, value, member_id=member_id)


def _tasks(partitions: Iterable[int]) -> list[dict[str, Any]]:
    numbers = list(partitions)
    return [{"subtopology_id": "0", "partitions": numbers}] if numbers else []


def topology(*sources: str, epoch: int = 0, repartition: Iterable[str] = ()) -> Record:
    topics = [{"name": name, "partitions": 0, "replication_factor": -1, "topic_configs": []} for name in repartition]
    subtopology = {
        "subtopology_id": "0",
        "source_topics": list(sources),
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": topics,
        "copartition_groups": [],
    }
    return own(KeyType.STREAMS_GROUP_TOPOLOGY, {"epoch": epoch, "subtopologies": [subtopology]})


def offsets_of(state: PartitionState) -> dict[str, int]:
    """Committed offsets of existing groups by place ("t0")."""
    return {f"{row.topic}{row.partition}": row.commit.committed_offset for row in state.committed_offsets()}


def orphans_of(state: PartitionState) -> dict[str, int]:
    return {f"{row.topic}{row.partition}": row.commit.committed_offset for row in state.orphan_offsets()}


def pending_of(state: PartitionState) -> dict[tuple[str, int], int]:
    return {(f"{row.topic}{row.partition}", row.commit.producer_id): row.commit.committed_offset for row in state.pending_offsets()}


def group_of(state: PartitionState) -> tuple[str, str] | None:
    """Type and state of the only group; None where it has none."""
    rows = state.groups()
    assert len(rows) < 2
    return (rows[0].group_type, rows[0].state) if rows else None


def codes_of(state: PartitionState) -> list[tuple[int | None, str]]:
    return [(warning.record_offset, warning.code) for warning in state.warnings()]


def everything(state: PartitionState) -> dict[str, list[Any]]:
    """Return all rows of a state, to compare two of them."""
    return {
        "committed": list(state.committed_offsets()),
        "pending": list(state.pending_offsets()),
        "orphans": list(state.orphan_offsets()),
        "groups": list(state.groups()),
        "members": list(state.members()),
        "assignments": list(state.assignments()),
        "warnings": list(state.warnings()),
    }


def recorded(corpus: Path) -> dict[int, list[Record]]:
    """Return the records of a corpus by offsets partition, from the bytes that Kafka's own classes read out of its log."""
    partitions: dict[int, list[Record]] = {}
    for line in _lines(corpus / "oracle" / "records.jsonl.gz"):
        partitions.setdefault(line["partition"], []).append(_record(line))
    return partitions


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _record(line: Mapping[str, Any]) -> Record:
    return Record(
        key=_bytes(line["key_hex"]),
        value=_bytes(line["value_hex"]),
        producer_id=line["producer_id"],
        producer_epoch=line["producer_epoch"],
        is_transactional=line["transactional"],
        control_type=None if line["control"] is None else MarkerType[line["control"]],
        timestamp_ms=line["timestamp"],
        offset=line["offset"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


AT_THE_END = -1
"""Record offset of a refusal at the end of the load."""


@dataclass
class Outcome:
    """What a coordinator makes of the records of one case."""

    refused: set[int] = field(default_factory=set)
    groups: dict[str, tuple[str, str, int, str]] = field(default_factory=dict)
    """Group id -> type, state, epoch (or generation), and member ids with spaces."""
    offsets: dict[tuple[int, str, str, int], int] = field(default_factory=dict)
    """(producer id, group id, topic, partition) -> committed offset; producer id -1: it counts, else it is pending."""
    tombstones: list[str] = field(default_factory=list)
    """Keys in hexadecimal, sorted."""

    def as_json(self) -> dict[str, Any]:
        return {
            "refused": sorted(self.refused),
            "groups": [[group_id, *shown] for group_id, shown in sorted(self.groups.items())],
            "offsets": [[*place, committed_offset] for place, committed_offset in sorted(self.offsets.items())],
            "tombstones": self.tombstones,
        }


def outcome_here(records: Iterable[Record], semantics: Semantics, now_ms: int = NOW_MS, retention_ms: int = RETENTION_MS) -> Outcome:
    state = replayed(records, semantics)
    cleanups = Cleanup(now_ms, retention_ms, semantics).of_partition(state)
    members: dict[str, list[str]] = {}
    for row in state.members():
        members.setdefault(row.group_id, []).append(row.member_id)
    refusals = [warning for warning in state.warnings() if warning.is_refusal and warning.code != "R-1.6"]
    return Outcome(
        refused={AT_THE_END if each.code == "R-3.29" else each.record_offset for each in refusals if each.record_offset is not None},
        groups={
            row.group_id: (row.group_type, row.state.lower(), row.generation, " ".join(members.get(row.group_id, ())))
            for row in state.groups()
        },
        offsets={
            (producer_id, row.group_id, row.topic, row.partition): row.commit.committed_offset
            for rows, is_pending in ((state.committed_offsets(), False), (state.orphan_offsets(), False), (state.pending_offsets(), True))
            for row in rows
            for producer_id in [row.commit.producer_id if is_pending else -1]
        },
        tombstones=sorted(tombstone.key.hex() for cleanup in cleanups for tombstone in cleanup.tombstones),
    )
