"""Every table of the warehouse, defined once: DDL, empty frames, reference and conversions derive from these declarations.

Words are Kafka's own. ``partition`` is a partition of a consumed topic, ``offsets_partition`` one of ``__consumer_offsets``;
``committed_offset`` is the position a consumer saved, ``record_offset`` the place of a record in the log.
"""

from typing import Final

from groupcoord_spark.log import CODES, DamageKind
from groupcoord_spark.protocol.record_types import MODERN_GROUP_TYPES
from groupcoord_spark.warehouse.declaration import TIMESTAMPS_OUT_OF_RANGE, Column, Table, WriteMode
from groupcoord_spark.warehouse.reasons import GROUP_RULES, GROUP_STAYS_BECAUSE, OFFSET_RULES, OFFSET_STAYS_BECAUSE
from groupcoord_spark.warehouse.warning_codes import WARNING_CODES

__all__ = ["SCHEMA_VERSION", "TABLES", "Column", "Table", "WriteMode"]

SCHEMA_VERSION: Final = 5
"""Raised when a release changes tables so that an older one would misread them.

The first run of a release upgrades an older warehouse in place: it creates missing tables and adds missing columns. New columns are
therefore at the end of their table and nullable; a column is never renamed, moved or changed in type. A NOT NULL column may become
nullable.
"""

NIGHTLY: Final = "nightly"
POINT_IN_TIME: Final = "point_in_time"
FORMER_KINDS: Final = {"night": NIGHTLY, "look_back": POINT_IN_TIME}
"""Words of ``runs.kind`` up to schema 4 -> the present words."""
"""The kinds of runs."""

APPENDED: Final = WriteMode.APPENDED

NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"

CLUSTER = Column("cluster", "STRING NOT NULL", "Name of the Kafka cluster the row is about.")
GROUP_ID = Column("group_id", "STRING NOT NULL", "The group.")
TOPIC = Column("topic", "STRING NOT NULL", "The consumed topic.")
PARTITION = Column("partition", "INT NOT NULL", "Partition of the consumed topic.")
OFFSETS_PARTITION = Column("offsets_partition", "INT NOT NULL", "Partition of __consumer_offsets.")
INCARNATION = Column("incarnation", "INT NOT NULL", "0, and one higher each time the cluster's __consumer_offsets began again.")
RECORD_OFFSET = Column("record_offset", "BIGINT NOT NULL", "Offset of the record in its partition of __consumer_offsets.")
RECORD_TIMESTAMP = Column("record_timestamp", "TIMESTAMP", "Timestamp of the record; NULL: it has none.", absent=-1)
COMMITTED_OFFSET = "The position the group saved: the next record it will read."
PRODUCER_OF_BATCH = Column("producer_id", "BIGINT", "Producer of its batch; NULL: no producer id.", absent=-1)
IS_TRANSACTIONAL = Column("is_transactional", "BOOLEAN NOT NULL", "Its batch has the transactional bit.")
METADATA = Column("metadata", "STRING", "The client's own note. Empty and absent are different.")
LEADER_EPOCH = Column("leader_epoch", "INT", "Leader epoch of the last record read; NULL: not known.", absent=-1)
COMMIT_TIMESTAMP = Column(
    "commit_timestamp", "TIMESTAMP", "When the commit was made, by the broker's clock, or by the client's with an old protocol.", absent=-1
)
EXPIRE_TIMESTAMP = Column("expire_timestamp", "TIMESTAMP", "Expiry that an old client asked for; NULL: none.", absent=-1)
TOPIC_ID = Column("topic_id", "STRING", "Id of the topic, as in the record; NULL: the record has none.", absent=NO_TOPIC_ID)
PRODUCER_EPOCH = Column("producer_epoch", "SMALLINT", "Epoch of that producer.", absent=-1)
AS_OF = Column("as_of", "TIMESTAMP NOT NULL", "The time that the rules are applied for.")
RUN_ID = Column("run_id", "STRING NOT NULL", "The run that wrote the row.")

PLACE_OF_RECORD = (CLUSTER, OFFSETS_PARTITION, INCARNATION, RECORD_OFFSET)
PLACE_OF_OFFSET = (CLUSTER, GROUP_ID, TOPIC, PARTITION)
SIZES = (
    Column("key_size", "INT NOT NULL", "Bytes of the key."),
    Column("value_size", "INT", "Bytes of the value; NULL: a tombstone.", absent=-1),
)

GROUP_TYPES = ("classic", *MODERN_GROUP_TYPES)
GROUP_STATES = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady", "PreparingRebalance", "CompletingRebalance", "Dead")
MEMBER_STATES = ("STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS", "UNREVOKED_TASKS", "UNRELEASED_TASKS", "UNKNOWN")

# Bytes and records that are lost; the codes are the ones the decoders raise and the log reader reports.
LOST = (
    *(code.name for code in CODES.values() if code.kind is DamageKind.LOST),
    *("null_key", "key_too_short", "key_truncated", "key_malformed", "leaked_control_record"),
    *("value_too_short", "unknown_value_version", "value_truncated", "value_malformed", "value_beyond_limits"),
    *("row_without_place", "row_malformed", "line_too_long", "offset_conflict"),
)

REBALANCE_CAUSES = (
    *("member_joined", "member_left", "member_expelled", "member_gone", "member_restarted", "subscription_changed"),
    *("partitions_changed", "follow_up", "probing", "leader_rejoined", "coordinator_moved", "group_converted", "unknown"),
)

RECORD_OFFSET_IS_NOT_NEGATIVE = {"record_offset_is_not_negative": "record_offset >= 0"}
RECORD_OFFSET_MAY_BE_NULL = {"record_offset_is_null_or_not_negative": "record_offset IS NULL OR record_offset >= 0"}


def _offsets(name: str, comment: str, primary_key: tuple[str, ...], producer_id: Column, *more: Column) -> Table:
    return Table(
        name,
        comment,
        primary_key,
        (
            *PLACE_OF_OFFSET,
            # Of clients: may be any int64, also -1.
            Column("committed_offset", "BIGINT NOT NULL", COMMITTED_OFFSET),
            LEADER_EPOCH,
            METADATA,
            COMMIT_TIMESTAMP,
            EXPIRE_TIMESTAMP,
            TOPIC_ID,
            producer_id,
            PRODUCER_EPOCH,
            Column("value_version", "SMALLINT", "Version of the OffsetCommitValue; NULL: the run is from the Admin API."),
            OFFSETS_PARTITION,
            Column("record_offset", "BIGINT", f"{RECORD_OFFSET.sentence[:-1]}; NULL: the run is from the Admin API."),
            RECORD_TIMESTAMP,
            TIMESTAMPS_OUT_OF_RANGE,
            *more,
        ),
        checks=RECORD_OFFSET_MAY_BE_NULL,
        former_checks=tuple(RECORD_OFFSET_IS_NOT_NEGATIVE),
    )


_OFFSET_KEY = ("cluster", "group_id", "topic", "partition")
_PRODUCER_OF_COMMITTED = Column("producer_id", "BIGINT", "Producer of the transaction that committed it; NULL: no transaction.", absent=-1)

COMMITTED_OFFSETS = _offsets(
    "committed_offsets",
    "The latest committed offset, transactions applied, as replayed; offset_expirations says which of them a cleanup would remove.",
    _OFFSET_KEY,
    _PRODUCER_OF_COMMITTED,
)
PENDING_OFFSETS = _offsets(
    "pending_offsets",
    "Offsets inside transactions that are still open at the end of the input, also of groups that do not exist.",
    (*_OFFSET_KEY, "producer_id"),
    Column("producer_id", "BIGINT NOT NULL", "Producer of the open transaction."),
    Column("transactional_id", "STRING", "Its transactional.id, from __transaction_state; NULL: not known."),
)
ORPHAN_OFFSETS = _offsets(
    "orphan_offsets",
    "Offsets whose group does not exist: no broker answers them, nothing expires them, the group's next commit brings them back (R-1.26).",
    _OFFSET_KEY,
    _PRODUCER_OF_COMMITTED,
)

GROUPS = Table(
    "groups",
    "Every group the coordinator would list, groups of offsets alone included.",
    ("cluster", "group_id"),
    (
        CLUSTER,
        GROUP_ID,
        Column("group_type", "STRING NOT NULL", "Protocol of the group.", words=GROUP_TYPES),
        Column("is_simple", "BOOLEAN NOT NULL", "No protocol type: a group of offsets only."),
        Column("state", "STRING NOT NULL", "State after the load, in Kafka's spelling.", words=GROUP_STATES),
        Column("protocol_type", "STRING", "What Kafka lists as protocol type: consumer, connect, share, streams or a client's own word."),
        Column("protocol", "STRING", "The assignor in use."),
        Column("generation", "INT", "Generation of a classic group, group epoch of the others."),
        Column("assignment_epoch", "INT", "Epoch of the target assignment; NULL: a classic group."),
        Column("leader_id", "STRING", "Member id of a classic group's leader."),
        Column("member_count", "INT NOT NULL", "Members."),
        Column("subscribed_topics", "ARRAY<STRING>", "Topics the members subscribe to; NULL: cannot be known."),
        Column("topic_count", "INT NOT NULL", "Topics with a committed offset of the group."),
        Column("offset_count", "BIGINT NOT NULL", "Committed offsets."),
        Column("pending_offset_count", "BIGINT NOT NULL", "Offsets in open transactions."),
        Column("assigned_partition_count", "BIGINT NOT NULL", "Partitions (streams: active tasks) assigned to members."),
        Column("topology_epoch", "INT", "Epoch of a streams group's topology."),
        Column("state_timestamp", "TIMESTAMP", "When the group came into its state, as stored; NULL: not stored.", absent=-1),
        OFFSETS_PARTITION,
        Column("record_offset", "BIGINT", "Offset of the group's newest record that is not an offset; NULL: it has none."),
        RECORD_TIMESTAMP,
        Column(
            "regular_expressions",
            "ARRAY<STRING>",
            "Expressions that the group's log holds topics for, in use or not: their topics count as subscribed, their records go with it.",
        ),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
)

MEMBERS = Table(
    "members",
    "Members of groups. What a kind of group does not have is NULL.",
    ("cluster", "group_id", "member_id"),
    (
        CLUSTER,
        GROUP_ID,
        Column("member_id", "STRING NOT NULL", "The member."),
        Column("instance_id", "STRING", "group.instance.id of a static member."),
        Column("client_id", "STRING", "client.id."),
        Column("client_host", "STRING", "Host as the broker saw it."),
        Column("rack_id", "STRING", "client.rack."),
        Column("is_leader", "BOOLEAN", "Leader of a classic group."),
        Column("uses_classic_protocol", "BOOLEAN", "A member of a consumer group that still speaks the classic protocol."),
        Column("member_state", "STRING", "State of a member of the new protocols.", words=MEMBER_STATES),
        Column("member_epoch", "INT", "Epoch of the member; -1 and -2: leaving."),
        Column("previous_member_epoch", "INT", "Its epoch before."),
        Column("session_timeout_ms", "INT", "session.timeout.ms of a classic member."),
        Column("rebalance_timeout_ms", "INT", "max.poll.interval.ms of the member."),
        Column("subscribed_topics", "ARRAY<STRING>", "Topics it subscribes to by name; NULL: cannot be known."),
        Column("subscribed_topic_regex", "STRING", "Regular expression it subscribes by."),
        Column("server_assignor", "STRING", "Assignor it asks the broker for."),
        Column("subscription", "BINARY", "Classic: the subscription as stored."),
        Column("assignment", "BINARY", "Classic: the assignment as stored."),
        Column("user_data", "BINARY", "Classic: user data of the subscription."),
        Column("process_id", "STRING", "Streams: the process."),
        Column("topology_epoch", "INT", "Streams: epoch of the topology it runs."),
        OFFSETS_PARTITION,
        Column("record_offset", "BIGINT", "Offset of the member's newest record."),
    ),
)

ASSIGNMENTS = Table(
    "assignments",
    "One row for each partition (streams: task; Connect: connector or task) that a member holds.",
    ("cluster", "group_id", "member_id", "kind", "task_type", "topic", "topic_id", "subtopology", "partition"),
    (
        CLUSTER,
        GROUP_ID,
        Column("member_id", "STRING NOT NULL", "The member."),
        Column(
            "kind",
            "STRING NOT NULL",
            "What the member has, is to have, must give up, or (classic) said it owned.",
            words=("current", "target", "pending_revocation", "owned"),
        ),
        Column("topic", "STRING", "The topic; NULL: only its id is known."),
        Column("topic_id", "STRING", "Id of the topic."),
        Column("subtopology", "STRING", "Streams: the subtopology; Connect: the connector."),
        Column("task_type", "STRING", "Streams and Connect: kind of task.", words=("active", "standby", "warmup", "connector", "task")),
        Column("partition", "INT", "Partition, or number of the task; NULL: a connector itself."),
        OFFSETS_PARTITION,
    ),
)

_HISTORY_KEY = ("cluster", "offsets_partition", "incarnation", "record_offset")


def _history(name: str, comment: str, *columns: Column) -> Table:
    """Declare a table with rows of the log: one for each record of some types."""
    columns = (*PLACE_OF_RECORD, *columns, TIMESTAMPS_OUT_OF_RANGE)
    return Table(name, comment, _HISTORY_KEY, columns, checks=RECORD_OFFSET_IS_NOT_NEGATIVE, write=APPENDED)


OFFSET_COMMITS = _history(
    "offset_commits",
    "One row for each offset record of the log, tombstones included.",
    RECORD_TIMESTAMP,
    GROUP_ID,
    TOPIC,
    PARTITION,
    Column("committed_offset", "BIGINT", f"{COMMITTED_OFFSET} NULL: a tombstone."),
    LEADER_EPOCH,
    METADATA,
    COMMIT_TIMESTAMP,
    EXPIRE_TIMESTAMP,
    TOPIC_ID,
    Column("key_version", "SMALLINT NOT NULL", "Version of the key: 0 or 1."),
    Column("value_version", "SMALLINT", "Version of the value; NULL: a tombstone."),
    Column("is_tombstone", "BOOLEAN NOT NULL", "The record has no value: it deletes the offset."),
    PRODUCER_OF_BATCH,
    PRODUCER_EPOCH,
    IS_TRANSACTIONAL,
    *SIZES,
)

GROUP_RECORDS = _history(
    "group_records",
    "One row for each record of the log that is neither an offset nor a marker.",
    RECORD_TIMESTAMP,
    Column("group_id", "STRING", "The group; NULL: the type is not known."),
    Column("member_id", "STRING", "The member, for records about one."),
    Column("key_type", "SMALLINT NOT NULL", "Type of the key."),
    Column("key_name", "STRING", "Kafka's name of the key, for example GroupMetadataKey; NULL: the type is not known."),
    Column("key_json", "STRING", "The key in Kafka's JSON; NULL: the type is not known."),
    Column("value_version", "SMALLINT", "Version of the value; NULL: a tombstone, or the type is not known."),
    Column("value_json", "STRING", "The value in Kafka's JSON; NULL: a tombstone, or a type or version that is not known."),
    Column("is_tombstone", "BOOLEAN NOT NULL", "The record has no value."),
    PRODUCER_OF_BATCH,
    IS_TRANSACTIONAL,
    Column("value", "BINARY", "The value as stored: JSON cannot carry unknown tags and trailing bytes."),
    Column("key", "BINARY", "The key as stored, where its type is not known."),
    *SIZES,
)

TRANSACTIONS = _history(
    "transactions",
    "One row for each end-of-transaction marker.",
    Column("producer_id", "BIGINT NOT NULL", "Producer whose transaction ends."),
    Column("producer_epoch", "SMALLINT", "Epoch of that producer."),
    Column("result", "STRING NOT NULL", "How it ended.", words=("committed", "aborted")),
    Column("coordinator_epoch", "INT", "Epoch of the transaction coordinator; NULL: the marker has none."),
    RECORD_TIMESTAMP,
)

REBALANCES = Table(
    "rebalances",
    "One row for each new generation of a classic group, and for each new group epoch and target assignment of the others.",
    ("cluster", "group_id", "incarnation", "record_offset"),
    (
        CLUSTER,
        GROUP_ID,
        OFFSETS_PARTITION,
        INCARNATION,
        Column("record_offset", "BIGINT NOT NULL", "Offset of the record of the new generation or epoch in __consumer_offsets."),
        RECORD_TIMESTAMP,
        Column("group_type", "STRING NOT NULL", "Protocol of the group.", words=GROUP_TYPES),
        Column("kind", "STRING NOT NULL", "What is new.", words=("generation", "group_epoch", "assignment")),
        Column("protocol_type", "STRING", "As in groups."),
        Column("from_generation", "INT", "The generation or epoch before; NULL: not known, or the first."),
        Column("to_generation", "INT NOT NULL", "The new generation, group epoch or assignment epoch."),
        Column("since_previous_ms", "BIGINT", "Milliseconds since the last generation or epoch; NULL: not known, too long, or the first."),
        Column("member_count", "INT NOT NULL", "Members now."),
        Column("joined_count", "INT", "Members that are new; NULL: the members before are not known."),
        Column("left_count", "INT", "Members that are no longer there."),
        Column("kept_count", "INT", "Members that were there before."),
        Column("members_joined", "ARRAY<STRING>", "Ids of the members that are new; NULL: not known."),
        Column("members_left", "ARRAY<STRING>", "Ids of the members that left or were expelled."),
        Column("members_kept", "ARRAY<STRING>", "Ids of the members that were there before; NULL: more than 200 in a modern group."),
        Column("previous_leader_id", "STRING", "Leader of a classic group before the rebalance."),
        Column("leader_id", "STRING", "Leader of a classic group after it."),
        Column("previous_protocol", "STRING", "Assignor of a classic group before the rebalance."),
        Column("protocol", "STRING", "Assignor of a classic group after it."),
        Column("partitions_moved", "INT", "Partitions (streams: active tasks) that another member has now; NULL: not known, or shared."),
        Column("partitions_assigned", "INT", "Partitions that a member has now and nobody had before."),
        Column("partitions_released", "INT", "Partitions that nobody has any more."),
        Column("cause", "STRING NOT NULL", "What brought the rebalance about, as far as the records show.", words=REBALANCE_CAUSES),
        Column("confidence", "STRING", "How sure the cause is; NULL: unknown.", words=("certain", "likely", "possible")),
        Column("evidence", "STRING NOT NULL", "What the records show, in a sentence."),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
    checks=RECORD_OFFSET_IS_NOT_NEGATIVE,
    write=APPENDED,
)

OFFSET_EVENT_CAUSES: Final = (
    *("expired", "group_deleted", "offsets_deleted", "topic_deleted", "converted", "transaction_aborted"),
    *("reset", "restarted_after_removal", "topic_recreated", "log_truncated", "late_commit", "seek", "new_partition", "data_deleted"),
    *("copied", "unknown"),
)

OFFSET_EVENTS = Table(
    "offset_events",
    "One row for each thing that happened to a committed offset and is not a plain advance, and for each group that was removed.",
    ("cluster", "group_id", "topic", "partition", "incarnation", "record_offset", "kind"),
    (
        CLUSTER,
        RUN_ID,
        GROUP_ID,
        Column("topic", "STRING", "The consumed topic; NULL: the event is the removal of the group itself."),
        Column("partition", "INT", "Partition of the consumed topic; NULL: the event is the removal of the group itself."),
        OFFSETS_PARTITION,
        INCARNATION,
        Column("record_offset", "BIGINT NOT NULL", "Offset of the record that shows it: the new value, the tombstone, the abort marker."),
        Column("event_timestamp", "TIMESTAMP", "When it happened: the time of that record, of a transaction its marker's.", absent=-1),
        Column("kind", "STRING NOT NULL", "What happened.", words=("removed", "rewound", "skipped", "moved")),
        Column("cause", "STRING NOT NULL", "Why, as far as the records show.", words=OFFSET_EVENT_CAUSES),
        Column("certainty", "STRING NOT NULL", "How sure kind and cause are.", words=("certain", "likely", "possible")),
        Column("from_committed_offset", "BIGINT", "The committed offset before; NULL: not known."),
        Column("to_committed_offset", "BIGINT", "The committed offset after; NULL: there is none."),
        Column("from_record_offset", "BIGINT", "Offset of the record with the value before; NULL: not known."),
        Column("records_reread", "BIGINT", "Record offsets that were read again, at least; NULL: not known, or none."),
        Column("records_skipped", "BIGINT", "Record offsets that were never read; NULL: not known, or none."),
        Column("counts_are_exact", "BOOLEAN", "The offsets prove the number; false: there may be more. NULL: there is no number."),
        Column("rule", "STRING", "Rule of expiration-rules.md that a cleanup removed it by.", words=(*OFFSET_RULES, *GROUP_RULES)),
        Column("evidence", "STRING NOT NULL", "What the records show, in a sentence."),
        Column("member_count", "INT", "Members of the group at that record; NULL: a group was removed, or a commit aborted."),
        Column("commit_timestamp", "TIMESTAMP", "When the value before was committed; NULL: not known.", absent=-1),
        Column("expire_timestamp", "TIMESTAMP", "Expiry that the value before asked for; NULL: none.", absent=-1),
        Column("base_timestamp", "TIMESTAMP", "Removals: when the age of the offset began to count; NULL: not known.", absent=-1),
        Column("due_timestamp", "TIMESTAMP", "Removals: when a cleanup could first remove it; NULL: not known, or never.", absent=-1),
        Column("key_type", "SMALLINT", "Removals: type of the tombstone's key."),
        Column("group_removed", "BOOLEAN", "Removals: the same write removed the group."),
        Column("groups_at_once", "INT", "Removals: groups that lost offsets of the topic at once; NULL: the cause does not depend on it."),
        Column("producer_id", "BIGINT", "Producer of the commit's transaction; NULL: no transaction."),
        Column("leader_epoch", "INT", "Leader epoch of the new value; NULL: a position that was set, or a removal.", absent=-1),
        TOPIC_ID,
        Column("other_group_id", "STRING", "The group that committed the same offsets before."),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
    checks=RECORD_OFFSET_IS_NOT_NEGATIVE,
    write=APPENDED,
)

SURVIVING_RECORDS = Table(
    "surviving_records",
    "Ranges of record offsets that the log still had when a run read it. Compaction had removed the history's other records.",
    (*_HISTORY_KEY[:3], "run_id", "first_offset"),
    (
        CLUSTER,
        OFFSETS_PARTITION,
        INCARNATION,
        RUN_ID,
        Column("first_offset", "BIGINT NOT NULL", "First record offset of the range."),
        Column("end_offset", "BIGINT NOT NULL", "The offset after the last of the range; every offset of the range has a record."),
    ),
    write=APPENDED,
)

LATEST_RECORDS = Table(
    "latest_records",
    "The records that the next run begins with: replayed, they give the state at end_offset of offsets_partitions, to the last detail."
    " A log compacted by this package: about one record for each live key.",
    ("cluster", "offsets_partition", "record_offset"),
    (
        CLUSTER,
        OFFSETS_PARTITION,
        RECORD_OFFSET,
        RECORD_TIMESTAMP,
        Column("key", "BINARY", "The key as stored; NULL: the record has none."),
        Column("value", "BINARY", "The value as stored; NULL: a tombstone."),
        Column("producer_id", "BIGINT", "Producer of the record's batch; NULL: no producer id.", absent=-1),
        PRODUCER_EPOCH,
        Column("is_transactional", "BOOLEAN NOT NULL", "The record's batch has the transactional bit."),
        Column("control_type", "SMALLINT", "Type of a control record (0: ABORT, 1: COMMIT); NULL: a data record.", absent=-1),
        Column("decodes", "BOOLEAN NOT NULL", "The record decodes."),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
    checks=RECORD_OFFSET_IS_NOT_NEGATIVE,
    group_rows=25_000,  # the next run reads one offsets partition at a time
)

TOPIC_IDS = Table(
    "topic_ids",
    "Names of topic ids, from every record that was ever read: the record that named a topic id may be gone from the log.",
    ("cluster", "offsets_partition", "topic_id"),
    (CLUSTER, OFFSETS_PARTITION, Column("topic_id", "STRING NOT NULL", "Id of the topic."), TOPIC),
)

OFFSET_EXPIRATIONS = Table(
    "offset_expirations",
    "What the rules say of each committed offset.",
    _OFFSET_KEY,
    (
        *PLACE_OF_OFFSET,
        AS_OF,
        Column("retention_ms", "BIGINT NOT NULL", "offsets.retention, in milliseconds."),
        Column("base_timestamp", "TIMESTAMP", "What the offset's age counts from; NULL: its age does not matter."),
        Column("expires_at", "TIMESTAMP", "First time that a cleanup removes it; NULL: never in its present state."),
        Column("expired", "BOOLEAN NOT NULL", "A cleanup at as_of removes it."),
        Column("rule", "STRING NOT NULL", "The rule that decides.", words=OFFSET_RULES),
        Column("blocked_by", "STRING", "What keeps it; NULL: its age alone.", words=tuple(OFFSET_STAYS_BECAUSE)),
        Column(
            "inherits_empty_time",
            "BOOLEAN NOT NULL",
            "Trap: committed (restored, reset) while the group was Empty already: it ages from then and lives shorter than the retention.",
        ),
        Column(
            "topic_is_unsubscribed", "BOOLEAN NOT NULL", "Trap: the group lives and does not subscribe to the topic: it expires under it."
        ),
        Column("is_simple_group", "BOOLEAN NOT NULL", "Trap: no membership holds it, only the next commit does; a reader may be at work."),
        Column("has_explicit_expiry", "BOOLEAN NOT NULL", "Trap: a moment that an old client or broker wrote decides, not the retention."),
        Column(
            "may_come_back",
            "BOOLEAN NOT NULL",
            "Trap: a record under a key of type 0 survives; it counts again when the cleaner has dropped the tombstone, which has type 1.",
        ),
        Column("retention_changed", "BOOLEAN NOT NULL", "Trap: the cluster's run before had another retention, so all of this moved."),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
)

GROUP_EXPIRATIONS = Table(
    "group_expirations",
    "What the rules say of each group.",
    ("cluster", "group_id"),
    (
        CLUSTER,
        GROUP_ID,
        AS_OF,
        Column("removed", "BOOLEAN NOT NULL", "A cleanup at as_of removes the group."),
        Column("removed_at", "TIMESTAMP", "First cleanup that removes the group; NULL: never in its present state."),
        Column("rule", "STRING", "The rule that decides; NULL: that broker removes no group.", words=GROUP_RULES),
        Column("blocked_by", "STRING", "What keeps it; NULL: nothing.", words=tuple(GROUP_STAYS_BECAUSE)),
        Column("tombstone_count", "INT NOT NULL", "Records that the cleanup would append for the group and its offsets."),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
)

TOMBSTONES = Table(
    "tombstones",
    "The records that a cleanup at as_of would append.",
    ("cluster", "offsets_partition", "sequence"),
    (
        CLUSTER,
        OFFSETS_PARTITION,
        Column("sequence", "INT NOT NULL", "Order of the records, from 0; within a group it is the broker's."),
        AS_OF,
        GROUP_ID,
        Column("key_type", "SMALLINT NOT NULL", "Type of the key."),
        Column("topic", "STRING", "Topic of an offset's tombstone."),
        Column("partition", "INT", "Partition of an offset's tombstone."),
        Column("reason", "STRING NOT NULL", "Why the broker writes it.", words=("offset_expired", "group_removed")),
        Column("key", "BINARY NOT NULL", "The key."),
    ),
)

MOST_BYTES_LOST = 2**31 - 1

QUARANTINED_RECORDS = Table(
    "quarantined_records",
    "What could not be read or decoded; never silently dropped.",
    (),
    (
        CLUSTER,
        RUN_ID,
        Column("offsets_partition", "INT", "Partition of __consumer_offsets; NULL: not known."),
        Column("record_offset", "BIGINT", "Offset of the record, or the first one of what is lost; NULL: not known."),
        Column("source", "STRING", "File or URI."),
        Column("position", "BIGINT", "Byte in the file, in Parquet the row; NULL: the input is not a file.", absent=-1),
        Column("size", "INT", f"Bytes that are lost; {MOST_BYTES_LOST} also stands for more: no segment of a broker is as long."),
        Column("reason", "STRING NOT NULL", "Code of the fault.", words=LOST),
        Column("detail", "STRING NOT NULL", "The fault in a sentence."),
        Column("key", "BINARY", "The key as stored, where there is one."),
        Column("value", "BINARY", "The value as stored, where there is one."),
        Column("records", "INT", "Records lost with it; NULL: not known."),
    ),
    write=APPENDED,
)

WARNINGS = Table(
    "warnings",
    "What was accepted with a doubt, or what the broker's loader would refuse or skip.",
    (),
    (
        CLUSTER,
        RUN_ID,
        Column("offsets_partition", "INT", "Partition of __consumer_offsets; NULL: not known."),
        Column("record_offset", "BIGINT", "Offset of the record; NULL: it is not about one."),
        Column("source", "STRING", "File or URI."),
        Column("position", "BIGINT", "Byte in the file, in Parquet the row; NULL: it is not about one.", absent=-1),
        Column("group_id", "STRING", "The group; NULL: it is not about one."),
        Column("code", "STRING NOT NULL", "Code of the doubt, or rule of the loader.", words=tuple(WARNING_CODES), meanings=WARNING_CODES),
        Column("detail", "STRING NOT NULL", "The doubt in a sentence."),
    ),
    write=APPENDED,
)

DECODE_COVERAGE = Table(
    "decode_coverage",
    "Records by type and version, of all that the runs have read: a record that is read again counts once.",
    ("cluster", "key_type", "value_version"),
    (
        CLUSTER,
        Column("key_type", "SMALLINT NOT NULL", "Type of the key; -1: no readable key."),
        Column("value_version", "SMALLINT", "Version of the value; NULL: tombstones and types that are not known."),
        Column("key_name", "STRING", "Kafka's name of the key; NULL: the type is not known."),
        Column("records", "BIGINT NOT NULL", "Records read."),
        Column("bytes", "BIGINT NOT NULL", "Bytes of their keys and values."),
        Column("decoded", "BIGINT NOT NULL", "Records that were decoded, or kept whole because their type is not known."),
        Column("quarantined", "BIGINT NOT NULL", "Records that are in quarantined_records."),
        Column("misplaced", "BIGINT NOT NULL", "Records in another partition than their group id hashes to."),
    ),
    checks={"every_record_is_counted": "records = decoded + quarantined"},
)


def _remembered(name: str, what: str) -> tuple[Column, ...]:
    """Return the columns of a sample record, by which the next run recognizes the log."""
    return (
        Column(f"{name}_offset", "BIGINT", f"Record offset of the {what} that was seen; NULL: none was."),
        Column(f"{name}_timestamp", "TIMESTAMP", "Timestamp of that record; NULL: it has none.", absent=-1),
        Column(f"{name}_crc", "BIGINT", "CRC-32C of that record: lengths of key and value (4 bytes each, -1: null), key, value."),
    )


OFFSETS_PARTITIONS = Table(
    "offsets_partitions",
    "Where the input of each partition of __consumer_offsets began and ended, and what it held. The counts of records and bytes go on from"
    " run to run; they begin again when a run reads the log of the partition from its beginning.",
    ("cluster", "offsets_partition"),
    (
        CLUSTER,
        OFFSETS_PARTITION,
        INCARNATION,
        Column("first_offset", "BIGINT", "Where the log begins: the log start offset of segments, else the first record; NULL: nothing."),
        Column("end_offset", "BIGINT NOT NULL", "Next offset to read."),
        Column("last_stable_offset", "BIGINT NOT NULL", "First offset of a transaction that is still open; else the end offset."),
        Column("records", "BIGINT NOT NULL", "Records read, by this run and by the runs that it goes on from."),
        Column("decoded", "BIGINT NOT NULL", "Records that were decoded, markers and types that are not known included."),
        Column("quarantined", "BIGINT NOT NULL", "Records that are in quarantined_records."),
        Column("control_records", "BIGINT NOT NULL", "Of them markers."),
        Column("live_keys", "BIGINT NOT NULL", "Keys whose last record is a value."),
        Column("bytes", "BIGINT NOT NULL", "Bytes read, by this run and by the runs that it goes on from."),
        Column("newest_timestamp", "TIMESTAMP", "Largest record timestamp; NULL: none.", absent=-1),
        Column("history_first_offset", "BIGINT", "Records from here on are in the history tables; NULL: no run has written history."),
        Column("history_end_offset", "BIGINT", "Records below it are in the history tables; NULL: no run has written history."),
        TIMESTAMPS_OUT_OF_RANGE,
        *_remembered("first_record", "first data record of the log"),
        *_remembered("newest_record", "newest data record of the log"),
        Column("stale_since", "TIMESTAMP", "as_of of the last run whose input had the partition; NULL: this run's input has it."),
        Column("read_from", "BIGINT", "First offset that this run read: it goes on from an earlier run; NULL: it read the whole log."),
        Column("latest_records", "BIGINT", "Rows of the partition in latest_records; NULL: the next run must read the whole log."),
        Column("end_file", "BIGINT", "Base offset of the last segment file; NULL: not known, or no segments."),
        Column("end_position", "BIGINT", "Position after the last batch in that file; NULL: not known, or no segments."),
        Column(
            "segment_bytes",
            "MAP<STRING, BIGINT>",
            "Base offset to bytes of each segment file, to detect files that are gone or shrank; NULL: no segments.",
        ),
        Column("leader_epoch", "INT", "Leader epoch of the record below end_offset, which a truncation changes; NULL: not known."),
        Column("incarnation_begin", "TIMESTAMP", "Rows of the input before it are of an earlier incarnation; NULL: all rows are read."),
    ),
    checks={"every_record_is_counted": "records = decoded + quarantined"},
)

HEALTH_SEVERITIES = ("normal", "watch", "sick")

TOPIC_HEALTH = Table(
    "topic_health",
    "Why the offsets topic is large, slow or stuck: the findings of groupcoord doctor about each offsets partition that the run read, and a"
    " row with its verdict for each partition without a finding. See docs/how-to/a-large-offsets-topic.md.",
    ("cluster", "offsets_partition", "finding", "subject"),
    (
        CLUSTER,
        Column("offsets_partition", "INT", "Partition of __consumer_offsets; NULL: the finding is about the whole topic."),
        Column("copy", "STRING NOT NULL", "The log directory that was read."),
        Column("finding", "STRING NOT NULL", "Finding; healthy or not_due where nothing is wrong."),
        Column("severity", "STRING NOT NULL", "sick: someone must act. watch: harmless by itself.", words=HEALTH_SEVERITIES),
        Column("subject", "STRING", "The producer id or the group; NULL: the partition itself."),
        Column("certainty", "STRING", "Of a transaction: how certain it is that the transaction hangs; NULL: no transaction."),
        Column("summary", "STRING NOT NULL", "One sentence with the figures that decide."),
        Column("remedy", "STRING", "What mends it; NULL: nothing to mend."),
        Column("ask", "STRING", "The command that asks the broker what the log cannot tell; NULL: the log decides."),
        Column("evidence", "STRING NOT NULL", "The figures as JSON."),
        Column("log_bytes", "BIGINT", "Bytes of all segment files of the partition; NULL: the finding is about the whole topic."),
        Column("since", "TIMESTAMP NOT NULL", "as_of of the first of the runs in a row that have the finding."),
        Column("read_at", "TIMESTAMP NOT NULL", "as_of of the run that read the records on which the finding rests."),
    ),
)

RUNS = Table(
    "runs",
    "One row for each run that finished. Readers take every table at the version that the newest run of their cluster names.",
    ("run_id",),
    (
        CLUSTER,
        Column("run_id", "STRING NOT NULL", "The run; also the user metadata of its commits."),
        Column("started_at", "TIMESTAMP NOT NULL", "When it began."),
        Column("finished_at", "TIMESTAMP NOT NULL", "When the run committed; later than finished_at of the cluster's run before."),
        AS_OF,
        Column("semantics", "STRING NOT NULL", "Coordinator whose rules were applied.", words=("java", "scala")),
        Column("broker_version", "STRING", "Release whose rules were applied."),
        Column("version", "STRING NOT NULL", "Version of groupcoord_spark."),
        Column("schema_version", "INT NOT NULL", "Version of these tables."),
        Column(
            "input_kind", "STRING NOT NULL", "What was read.", words=("segments", "parquet", "delta", "json", "kafka", "dataframe", "admin")
        ),
        Column("inputs", "ARRAY<STRING> NOT NULL", "Paths or URIs."),
        Column(
            "settings", "MAP<STRING, STRING> NOT NULL", "Settings of the run, without secrets; input.lacks: what the input cannot show."
        ),
        Column("records_read", "BIGINT NOT NULL", "Records read."),
        Column("records_decoded", "BIGINT NOT NULL", "Of them decoded."),
        Column("records_quarantined", "BIGINT NOT NULL", "Records that are in quarantined_records."),
        Column("bytes_read", "BIGINT NOT NULL", "Bytes read."),
        Column(
            "table_versions",
            "MAP<STRING, BIGINT> NOT NULL",
            "Version of every other table that has the rows of the run. Without groups: upkeep has dropped the run.",
        ),
        Column(
            "kind",
            "STRING",
            "nightly, or point_in_time (nightly --until): only the versions of its own row show it; NULL: see until in settings.",
            words=(NIGHTLY, POINT_IN_TIME),
        ),
        Column("groups", "BIGINT", "Rows of groups after the run; NULL: the release that made the run did not count them."),
        Column("warnings", "BIGINT", "Rows of warnings of the run; NULL: the release that made the run did not count them."),
    ),
    checks={"every_record_is_counted": "records_read = records_decoded + records_quarantined"},
    write=APPENDED,
)

LOG_ENDS = Table(
    "log_ends",
    "Where the logs of the consumed topics began and ended: by the checkpoint in the log directory that a run read, or by a sample of end"
    " offsets that the run was given.",
    ("cluster", "topic", "partition", "run_id"),
    (
        CLUSTER,
        TOPIC,
        PARTITION,
        Column("start_offset", "BIGINT", "First offset of the partition; NULL: the sample does not have it."),
        Column("end_offset", "BIGINT NOT NULL", "Offset after the last record of the partition; of a checkpoint the high watermark."),
        Column("sampled_at", "TIMESTAMP NOT NULL", "When the offsets were asked for: of files the time of the newest one's last change."),
        RUN_ID,
        Column(
            "source",
            "STRING",
            "Source of the offsets; NULL: the release that made the run did not say.",
            words=("checkpoint", "sample", "broker"),
            meanings={
                "checkpoint": "replication-offset-checkpoint in the log directory. A running broker writes it every 5 seconds.",
                "sample": "The file of `--end-offsets`.",
                "broker": "The brokers, asked by `--with-end-offsets`.",
            },
        ),
        Column("written_at", "TIMESTAMP", "Last change of the file that has the row's end offset; NULL: an older release made the run."),
    ),
    write=APPENDED,
)

_SHARE_KEY = ("cluster", "group_id", "topic_id", "partition")
_SHARE_PLACE = (
    CLUSTER,
    Column("group_id", "STRING NOT NULL", "The share group."),
    Column("topic_id", "STRING NOT NULL", "Id of the topic."),
    Column("topic", "STRING", "The topic; NULL: only its id is known."),
    PARTITION,
)

SHARE_OFFSETS = Table(
    "share_offsets",
    "Where each share group stands in each partition, from __share_group_state. Records in flight are in no log: offsets from start_offset"
    " on that no row of share_batches covers are untouched or in flight.",
    _SHARE_KEY,
    (
        *_SHARE_PLACE,
        Column("start_offset", "BIGINT", "First offset that may still be delivered; NULL: the group has read nothing yet."),
        Column(
            "delivery_complete_count", "INT", "Records from start_offset on that need no delivery; NULL: not known, as before Kafka 4.2."
        ),
        Column("state_epoch", "INT NOT NULL", "Group epoch that initialized, reset or altered the offset."),
        Column("leader_epoch", "INT NOT NULL", "Leader epoch of the partition at the last write."),
        Column("snapshot_epoch", "INT NOT NULL", "Number of the newest snapshot."),
        Column("created_at", "TIMESTAMP", "When the state of the newest snapshot came about; NULL: no snapshot shows it."),
        Column("written_at", "TIMESTAMP", "When the newest snapshot was written; NULL: no snapshot shows it."),
        Column("record_timestamp", "TIMESTAMP", "Timestamp of the newest record; NULL: it has none.", absent=-1),
        Column("state_partition", "INT NOT NULL", "Partition of __share_group_state."),
        Column("record_offset", "BIGINT NOT NULL", "Offset of the newest record in its partition of __share_group_state."),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
)

SHARE_BATCHES = Table(
    "share_batches",
    "Offsets of share groups that are no longer untouched, as batches of one state.",
    (*_SHARE_KEY, "first_offset"),
    (
        *_SHARE_PLACE,
        Column("first_offset", "BIGINT NOT NULL", "First offset of the batch."),
        Column("last_offset", "BIGINT NOT NULL", "Last offset of the batch."),
        Column("delivery_state", "SMALLINT NOT NULL", "0: available again, 2: acknowledged, 4: archived."),
        Column("delivery_count", "SMALLINT NOT NULL", "How often the records were delivered."),
    ),
)

TRANSACTIONAL_IDS = Table(
    "transactional_ids",
    "What the coordinator of transactions knows of each transactional id, from __transaction_state: names for producer ids.",
    ("cluster", "transactional_id"),
    (
        CLUSTER,
        Column("transactional_id", "STRING NOT NULL", "transactional.id of the application."),
        Column("producer_id", "BIGINT NOT NULL", "Producer id in use."),
        Column("producer_epoch", "SMALLINT", "Epoch of that producer.", absent=-1),
        Column("state", "STRING NOT NULL", "State of the transaction, in Kafka's spelling; the number of a state of a later release."),
        Column("transaction_timeout_ms", "INT NOT NULL", "transaction.timeout.ms of the client."),
        Column("last_update", "TIMESTAMP", "When the state changed.", absent=-1),
        Column("started_at", "TIMESTAMP", "When the transaction began; NULL: none has.", absent=-1),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
)

MIRROR_CHECKPOINTS = Table(
    "mirror_checkpoints",
    "Offsets of groups of other clusters, translated by MirrorMaker to offsets of this one: the last record of each key in partition 0 of"
    " ALIAS.checkpoints.internal, as MirrorMaker's client reads it, and records that make that client fail: the last one"
    " without a key or a value, and the last one of each group with a negative offset.",
    ("cluster", "checkpoints_topic", "record_offset"),
    (
        CLUSTER,
        Column("source_alias", "STRING NOT NULL", "MirrorMaker's name of the cluster whose groups these are."),
        Column("group_id", "STRING", "The group; NULL: the client fails for every group."),
        Column("topic", "STRING", "The topic by its name in this cluster; NULL: the client fails."),
        Column("partition", "INT", "Partition of the topic; NULL: the client fails."),
        Column("upstream_offset", "BIGINT", "The offset that the group had committed in the other cluster; NULL: the client fails."),
        Column("downstream_offset", "BIGINT", "That offset, translated to one of this cluster; NULL: the client fails."),
        Column("metadata", "STRING", "The metadata of the commit; NULL: the client fails."),
        RECORD_TIMESTAMP,
        Column("checkpoints_topic", "STRING NOT NULL", "The topic of the record."),
        Column("record_offset", "BIGINT NOT NULL", "Offset of the record in its topic."),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
    checks=RECORD_OFFSET_IS_NOT_NEGATIVE,
)

TOPICS = Table(
    "topics",
    "Topics of the cluster, from __cluster_metadata: those that exist, and deleted ones whose deletion the log still has.",
    ("cluster", "topic_id"),
    (
        CLUSTER,
        Column("topic", "STRING NOT NULL", "The topic."),
        Column("topic_id", "STRING NOT NULL", "Id of the topic."),
        Column("partition_count", "INT NOT NULL", "Partitions."),
        Column("is_deleted", "BOOLEAN NOT NULL", "The topic with this id was deleted."),
        Column("created_at", "TIMESTAMP", "When it was made; NULL: only a snapshot has it.", absent=-1),
        Column("deleted_at", "TIMESTAMP", "When it was deleted; NULL: it exists.", absent=-1),
        Column("all_topics_known", "BOOLEAN NOT NULL", "The metadata names every topic: a topic without a row does not exist."),
        TIMESTAMPS_OUT_OF_RANGE,
    ),
)

_SETTING = (Column("name", "STRING NOT NULL", "Kafka's name of the setting."), Column("value", "STRING NOT NULL", "Its value."))

TOPIC_CONFIGS = Table(
    "topic_configs",
    "Settings that topics have of their own, from __cluster_metadata.",
    ("cluster", "topic", "name"),
    (CLUSTER, Column("topic", "STRING NOT NULL", "The topic."), *_SETTING),
)

GROUP_CONFIGS = Table(
    "group_configs",
    "Settings that groups have of their own, from __cluster_metadata: they win over the broker's. A deleted group keeps them.",
    ("cluster", "group_id", "name"),
    (CLUSTER, GROUP_ID, *_SETTING),
)

ACLS = Table(
    "acls",
    "Rules of the authorizer, from __cluster_metadata: principals and their operations. Kafka's words.",
    ("cluster", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission"),
    (
        CLUSTER,
        Column("resource_type", "STRING NOT NULL", "GROUP, TOPIC, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER."),
        Column("resource_name", "STRING NOT NULL", "Name of the resource, or its beginning; *: all."),
        Column("pattern_type", "STRING NOT NULL", "LITERAL: that name. PREFIXED: all names that begin so."),
        Column("principal", "STRING NOT NULL", "Who, for example User:alice; User:*: everybody."),
        Column("host", "STRING NOT NULL", "From which host; *: all."),
        Column("operation", "STRING NOT NULL", "What: READ, WRITE, DESCRIBE, DELETE, ALL and so on."),
        Column("permission", "STRING NOT NULL", "ALLOW, or DENY, which wins."),
    ),
)

TABLES: Final = {declared.name: declared for declared in [*globals().values()] if isinstance(declared, Table)}
"""Every table that is declared above, by its name; the reference has them in this order."""

HISTORY: Final = (OFFSET_COMMITS, GROUP_RECORDS, TRANSACTIONS, REBALANCES, OFFSET_EVENTS, SURVIVING_RECORDS)
"""Tables with rows of the log, which each run appends new rows to."""
