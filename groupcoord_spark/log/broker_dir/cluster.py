"""The cluster as recorded in its metadata log: topics by id, settings and ACLs (KIP-500, KIP-595, KIP-801).

A snapshot has the state before its offset; the records of the log follow. Records between the beginning and the end of a
transaction of the controller (KIP-868) count when it ends, and never when it is aborted.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.cluster_metadata import MetadataRecord, decode_metadata_record
from groupcoord_spark.protocol.messages.cluster_metadata import FRAME_VERSION, RECORD_TYPES
from groupcoord_spark.protocol.primitives import uuid_bytes

TOPIC, PARTITION, CONFIG, REMOVE_TOPIC = 2, 3, 4, 9
ACCESS_CONTROL_ENTRY, REMOVE_ACCESS_CONTROL_ENTRY = 18, 19
BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25

_APPLIED: Final = frozenset({TOPIC, CONFIG, REMOVE_TOPIC, ACCESS_CONTROL_ENTRY, REMOVE_ACCESS_CONTROL_ENTRY})

IGNORED_TYPES: Final = sorted(RECORD_TYPES.keys() - _APPLIED - {PARTITION, BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION})
"""Record types that do not affect this state: most of the log, which is skipped."""

_PARTITION: Final = struct.Struct(">3xi16s")
"""A partition record up to the topic id: frame version, type and version, a byte each, partition and topic id."""

TOPIC_CONFIG, GROUP_CONFIG = 2, 32
"""Types of resources with settings. Source: org.apache.kafka.common.config.ConfigResource.Type."""

_RESOURCE_TYPES: Final = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERN_TYPES: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_OPERATIONS: Final = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS"),
    *("ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
"""Words of the authorizer by their numbers. Source: org.apache.kafka.common.acl and .resource."""


class TopicLifetime(NamedTuple):
    """A topic with one id. ``created_at_ms`` is None if the topic comes from a snapshot; ``deleted_at_ms`` is None while it exists."""

    topic_id: str
    name: str
    partition_count: int
    created_at_ms: int | None
    deleted_at_ms: int | None


class AccessControlEntry(NamedTuple):
    """A rule of the authorizer, in Kafka's words."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class Cluster:
    """The state of the cluster after a snapshot and the records that were added.

    Attributes:
        configs: (resource type, resource name) -> setting -> value.
        acls: id -> rule.
        is_complete: every topic that exists is known: the records begin with a snapshot or at offset 0, and no record that could name a
            topic was lost. The reader sets it.
        skipped: why records were skipped (an unknown type, or bytes that do not decode) -> number of records.
    """

    def __init__(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.acls: dict[str, AccessControlEntry] = {}
        self.skipped: Counter[str] = Counter()
        self._topics: dict[str, tuple[str, int | None]] = {}
        self._deleted: list[TopicLifetime] = []
        self._unnamed_removals: dict[str, int | None] = {}
        self._partition_counts: dict[bytes, int] = {}
        self._transaction: list[tuple[bytes, int | None]] | None = None

    def add(self, value: bytes | None, timestamp_ms: int | None) -> None:
        """Apply the next record. ``timestamp_ms`` is None for a snapshot record, whose timestamp is not the time of the change."""
        # The record type is a varint, of one byte in all releases.
        record_type = value[1] if value is not None and len(value) > 2 and value[0] == FRAME_VERSION else None
        if value is not None and record_type == PARTITION and self._transaction is None and len(value) >= _PARTITION.size:
            # Most records of a snapshot are of partitions, and only their number counts.
            partition, topic_id = _PARTITION.unpack_from(value)
            if partition >= self._partition_counts.get(topic_id, 0):
                self._partition_counts[topic_id] = partition + 1
        elif record_type == BEGIN_TRANSACTION:
            self._transaction = []
        elif record_type in (END_TRANSACTION, ABORT_TRANSACTION):
            staged, self._transaction = self._transaction or [], None
            if record_type == END_TRANSACTION:
                for staged_value, staged_timestamp_ms in staged:
                    self.add(staged_value, staged_timestamp_ms)
        elif value is None or record_type is None:
            self._skip("that do not decode")
        elif self._transaction is not None:
            self._transaction.append((value, timestamp_ms))
        elif record_type in _APPLIED:
            try:
                self._apply(decode_metadata_record(value), timestamp_ms)
            except DecodeError:
                self._skip("that do not decode")
        elif record_type not in RECORD_TYPES:
            self.skipped[f"of the unknown type {record_type}"] += 1

    def topics(self) -> Iterator[TopicLifetime]:
        """Iterate over the topics that exist and the topics whose deletion is recorded."""
        for topic_id, (name, created_at_ms) in self._topics.items():
            yield TopicLifetime(topic_id, name, self._partition_counts.get(uuid_bytes(topic_id), 0), created_at_ms, None)
        yield from self._deleted

    @property
    def has_unnamed_removals(self) -> bool:
        """Whether a topic was deleted whose creation is in no record."""
        return bool(self._unnamed_removals)

    def name_removed(self, snapshot: "Cluster") -> None:
        """Take the names of deleted topics whose creation is in no record from an earlier snapshot."""
        for topic_id, deleted_at_ms in self._unnamed_removals.items():
            if topic_id in snapshot._topics:
                count = snapshot._partition_counts.get(uuid_bytes(topic_id), 0)
                self._deleted.append(TopicLifetime(topic_id, snapshot._topics[topic_id][0], count, None, deleted_at_ms))

    def learn_history(self, earlier: "Cluster") -> None:
        """Take creation times and deleted topics from the records before the snapshot."""
        for topic_id, (_, created_at_ms) in earlier._topics.items():
            if topic_id in self._topics:
                self._topics[topic_id] = (self._topics[topic_id][0], created_at_ms)
        self._deleted += earlier._deleted

    def _skip(self, reason: str) -> None:
        self.skipped[reason] += 1
        self.is_complete = False

    def _apply(self, record: MetadataRecord, timestamp_ms: int | None) -> None:
        fields = record.fields
        if record.record_type == TOPIC:
            self._topics[fields["topic_id"]] = (fields["name"], timestamp_ms)
        elif record.record_type == CONFIG:
            settings = self.configs.setdefault((fields["resource_type"], fields["resource_name"]), {})
            if fields["value"] is None:
                settings.pop(fields["name"], None)
            else:
                settings[fields["name"]] = fields["value"]
        elif record.record_type == REMOVE_TOPIC:
            name, created_at_ms = self._topics.pop(fields["topic_id"], (None, None))
            if name is not None:
                count = self._partition_counts.pop(uuid_bytes(fields["topic_id"]), 0)
                self._deleted.append(TopicLifetime(fields["topic_id"], name, count, created_at_ms, timestamp_ms))
                self.configs.pop((TOPIC_CONFIG, name), None)
            else:
                self._unnamed_removals[fields["topic_id"]] = timestamp_ms
        elif record.record_type == ACCESS_CONTROL_ENTRY:
            self.acls[fields["id"]] = AccessControlEntry(
                _word(_RESOURCE_TYPES, fields["resource_type"]),
                fields["resource_name"],
                _word(_PATTERN_TYPES, fields["pattern_type"]),
                fields["principal"],
                fields["host"],
                _word(_OPERATIONS, fields["operation"]),
                _word(_PERMISSIONS, fields["permission_type"]),
            )
        else:
            self.acls.pop(fields["id"], None)


def _word(words: tuple[str, ...], number: int) -> str:
    """Return the word for a number, or the number itself if only a later release names it."""
    return words[number] if 0 <= number < len(words) else str(number)
