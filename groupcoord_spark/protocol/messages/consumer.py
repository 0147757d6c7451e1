"""Consumer groups of the new protocol (KIP-848): key types 3 to 8 and 16."""

from __future__ import annotations

from ..fields import (
    Array,
    Bytes,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    RecordType,
    String,
    Struct,
    Uuid,
)
from ..record_types import KeyType

_SCHEMAS = "kafka: group-coordinator/src/main/resources/common/message/"
_SINCE = "3.7, KIP-848 (early access; on by default since 4.0)"

_GROUP = (Field("group_id", String, "The group."),)
_GROUP_AND_MEMBER = (*_GROUP, Field("member_id", String, "The member."))

_TOPIC_PARTITIONS = (
    Field("topic_id", Uuid, "The topic's id."),
    Field("partitions", Array(Int32), "Partitions of the topic."),
)

TOPIC_METADATA = Struct((
    Field("topic_id", Uuid, "The topic's id."),
    Field("topic_name", String, "The topic's name."),
    Field("num_partitions", Int32, "How many partitions the topic had."),
    Field("partition_metadata", Array(Struct((
        Field("partition", Int32, "The partition."),
        Field("racks", Array(String), "Racks of its replicas."),
    ))), "Racks of each partition, where they are known."),
))

CONSUMER_GROUP_METADATA_KEY = Message(
    "ConsumerGroupMetadataKey", versions=(0, 0), fields=_GROUP,
    source=_SCHEMAS + "ConsumerGroupMetadataKey.json", since={0: _SINCE},
)

CONSUMER_GROUP_METADATA_VALUE = Message(
    "ConsumerGroupMetadataValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ConsumerGroupMetadataValue.json",
    since={0: _SINCE + "; tag 0 since 4.1"},
    fields=(
        Field("epoch", Int32, "Group epoch."),
        Field("metadata_hash", Int64, "Hash of the subscribed topics' metadata; 0: none.", default=0, tag=0),
    ),
)

CONSUMER_GROUP_PARTITION_METADATA_KEY = Message(
    "ConsumerGroupPartitionMetadataKey", versions=(0, 0), fields=_GROUP,
    source=_SCHEMAS + "ConsumerGroupPartitionMetadataKey.json", since={0: _SINCE + "; 4.1 and later write only tombstones"},
)

CONSUMER_GROUP_PARTITION_METADATA_VALUE = Message(
    "ConsumerGroupPartitionMetadataValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ConsumerGroupPartitionMetadataValue.json",
    since={0: "3.8 to 4.0 in this layout"},
    fields=(Field("topics", Array(TOPIC_METADATA), "The topics' metadata that the group was computed with."),),
)

CONSUMER_GROUP_PARTITION_METADATA_VALUE_3_7 = Message(
    "ConsumerGroupPartitionMetadataValue", versions=(0, 0), flexible_from=0, dialect="3.7",
    source=_SCHEMAS + "ConsumerGroupPartitionMetadataValue.json",
    since={0: "3.7 only"},
    fields=(
        Field("epoch", Int32, "Always 0."),
        Field("topics", Array(TOPIC_METADATA), "The topics' metadata that the group was computed with."),
    ),
)

CONSUMER_GROUP_MEMBER_METADATA_KEY = Message(
    "ConsumerGroupMemberMetadataKey", versions=(0, 0), fields=_GROUP_AND_MEMBER,
    source=_SCHEMAS + "ConsumerGroupMemberMetadataKey.json", since={0: _SINCE},
)

_MEMBER_FIELDS = (
    Field("instance_id", NullableString, "Id of a static member; null: a dynamic one."),
    Field("rack_id", NullableString, "The member's rack; null: it sent none."),
    Field("client_id", String, "The client.id that the member sent."),
    Field("client_host", String, "The address it came from."),
    Field("subscribed_topic_names", Array(String), "Topics it subscribes to by name."),
    Field("subscribed_topic_regex", NullableString, "Topics it subscribes to by expression; null or empty: none."),
    Field("rebalance_timeout_ms", Int32, "How long it may take to give partitions back; -1: it sent none.", default=-1),
    Field("server_assignor", NullableString, "The assignor it asks for: uniform, range; null: the group's default."),
)

_CLASSIC_MEMBER = Struct((
    Field("session_timeout_ms", Int32, "Silence after which the member is dropped."),
    Field("supported_protocols", Array(Struct((
        Field("name", String, "Name of an assignor."),
        Field("metadata", Bytes, "The member's subscription for that assignor, as in a classic group of type consumer."),
    ))), "The assignors the member offers."),
), nullable=True)

CONSUMER_GROUP_MEMBER_METADATA_VALUE = Message(
    "ConsumerGroupMemberMetadataValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ConsumerGroupMemberMetadataValue.json",
    since={0: "3.8, KIP-848 in this layout"},
    fields=(
        *_MEMBER_FIELDS,
        Field(
            # Not null by default: Kafka takes a member without the tag for a classic one. Brokers write the null.
            "classic_member_metadata", _CLASSIC_MEMBER, "What a member of the classic protocol sent; null: it speaks the new one.",
            default=_CLASSIC_MEMBER.default(), tag=0,
        ),
    ),
)

CONSUMER_GROUP_MEMBER_METADATA_VALUE_3_7 = Message(
    "ConsumerGroupMemberMetadataValue", versions=(0, 0), flexible_from=0, dialect="3.7",
    source=_SCHEMAS + "ConsumerGroupMemberMetadataValue.json",
    since={0: "3.7 only"},
    fields=(
        *_MEMBER_FIELDS,
        Field("assignors", Array(Struct((
            Field("name", String, "Name of a client-side assignor."),
            Field("minimum_version", Int16, "Lowest version of its metadata."),
            Field("maximum_version", Int16, "Highest version of its metadata."),
            Field("reason", Int8, "Why the metadata was sent."),
            Field("version", Int16, "Version of the metadata."),
            Field("metadata", Bytes, "Metadata of the assignor."),
        ))), "Client-side assignors; always empty."),
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY = Message(
    "ConsumerGroupTargetAssignmentMetadataKey", versions=(0, 0), fields=_GROUP,
    source=_SCHEMAS + "ConsumerGroupTargetAssignmentMetadataKey.json", since={0: _SINCE},
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = Message(
    "ConsumerGroupTargetAssignmentMetadataValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ConsumerGroupTargetAssignmentMetadataValue.json",
    since={0: _SINCE + "; tag 0 since 4.3"},
    fields=(
        Field("assignment_epoch", Int32, "Epoch of the target assignment."),
        Field("assignment_timestamp_ms", Int64, "When it was computed; 0: not recorded.", default=0, tag=0, json="assignmentTimestamp"),
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY = Message(
    "ConsumerGroupTargetAssignmentMemberKey", versions=(0, 0), fields=_GROUP_AND_MEMBER,
    source=_SCHEMAS + "ConsumerGroupTargetAssignmentMemberKey.json", since={0: _SINCE},
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = Message(
    "ConsumerGroupTargetAssignmentMemberValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ConsumerGroupTargetAssignmentMemberValue.json",
    since={0: _SINCE},
    fields=(Field("topic_partitions", Array(Struct(_TOPIC_PARTITIONS)), "Partitions the member is meant to have."),),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY = Message(
    "ConsumerGroupCurrentMemberAssignmentKey", versions=(0, 0), fields=_GROUP_AND_MEMBER,
    source=_SCHEMAS + "ConsumerGroupCurrentMemberAssignmentKey.json", since={0: _SINCE},
)

_HELD_PARTITIONS = Struct((
    *_TOPIC_PARTITIONS,
    Field(
        "assignment_epochs", Array(Int32, nullable=True),
        "Epoch at which each partition was given; null, empty or of another size: all at the member's.",
        default=[], tag=0,
    ),
))

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = Message(
    "ConsumerGroupCurrentMemberAssignmentValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ConsumerGroupCurrentMemberAssignmentValue.json",
    since={0: "3.8, KIP-848 in this layout; assignment epochs since 4.3"},
    fields=(
        Field("member_epoch", Int32, "Epoch the member has reached; -2: a static member that left for a while."),
        Field("previous_member_epoch", Int32, "Epoch it had before."),
        Field("state", Int8, "0 STABLE, 1 UNREVOKED_PARTITIONS, 2 UNRELEASED_PARTITIONS, others UNKNOWN."),
        Field("assigned_partitions", Array(_HELD_PARTITIONS), "Partitions the member holds."),
        Field("partitions_pending_revocation", Array(_HELD_PARTITIONS), "Partitions it still has to give back."),
    ),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_3_7 = Message(
    "ConsumerGroupCurrentMemberAssignmentValue", versions=(0, 0), flexible_from=0, dialect="3.7",
    source=_SCHEMAS + "ConsumerGroupCurrentMemberAssignmentValue.json",
    since={0: "3.7 only; the state is not stored"},
    fields=(
        Field("member_epoch", Int32, "Epoch the member has reached."),
        Field("previous_member_epoch", Int32, "Epoch it had before."),
        Field("target_member_epoch", Int32, "Epoch it is on the way to."),
        Field("assigned_partitions", Array(Struct(_TOPIC_PARTITIONS)), "Partitions the member holds."),
        Field("partitions_pending_revocation", Array(Struct(_TOPIC_PARTITIONS)), "Partitions to give back: not empty means UNREVOKED."),
        Field("partitions_pending_assignment", Array(Struct(_TOPIC_PARTITIONS)), "Partitions it waits for: not empty means UNRELEASED."),
        Field("error", Int8, "Error of a client-side assignor."),
        Field("metadata_version", Int16, "Version of a client-side assignor's metadata."),
        Field("metadata_bytes", Bytes, "Metadata of a client-side assignor."),
    ),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_KEY = Message(
    "ConsumerGroupRegularExpressionKey", versions=(0, 0),
    source=_SCHEMAS + "ConsumerGroupRegularExpressionKey.json",
    since={0: "4.0, KIP-848"},
    fields=(*_GROUP, Field("regular_expression", String, "An expression that members of the group subscribe by.")),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE = Message(
    "ConsumerGroupRegularExpressionValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ConsumerGroupRegularExpressionValue.json",
    since={0: "4.0, KIP-848"},
    fields=(
        Field("topics", Array(String), "Topics that the expression matched."),
        Field("version", Int64, "Version of the cluster metadata it was matched against."),
        Field("timestamp_ms", Int64, "When it was matched.", json="timestamp"),
    ),
)

RECORD_TYPES = (
    RecordType(
        KeyType.CONSUMER_GROUP_METADATA,
        CONSUMER_GROUP_METADATA_KEY, CONSUMER_GROUP_METADATA_VALUE,
        tombstone="The group is gone, or became a classic one.",
    ),
    RecordType(
        KeyType.CONSUMER_GROUP_PARTITION_METADATA,
        CONSUMER_GROUP_PARTITION_METADATA_KEY, CONSUMER_GROUP_PARTITION_METADATA_VALUE,
        tombstone="The topics' metadata is no longer kept.", dialects=(CONSUMER_GROUP_PARTITION_METADATA_VALUE_3_7,),
    ),
    RecordType(
        KeyType.CONSUMER_GROUP_MEMBER_METADATA,
        CONSUMER_GROUP_MEMBER_METADATA_KEY, CONSUMER_GROUP_MEMBER_METADATA_VALUE,
        tombstone="The member left.", dialects=(CONSUMER_GROUP_MEMBER_METADATA_VALUE_3_7,),
    ),
    RecordType(
        KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY, CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
        tombstone="The group is gone.",
    ),
    RecordType(
        KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY, CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
        tombstone="The member left.",
    ),
    RecordType(
        KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY, CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
        tombstone="The member left.", dialects=(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_3_7,),
    ),
    RecordType(
        KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        CONSUMER_GROUP_REGULAR_EXPRESSION_KEY, CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
        tombstone="No member subscribes by the expression any more.",
    ),
)
