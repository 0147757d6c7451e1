"""Share groups (KIP-932): key types 9 to 15. Their positions lie in another topic, ``__share_group_state``."""

from __future__ import annotations

from ..fields import Array, Field, Int8, Int32, Int64, Message, NullableString, RecordType, String, Struct, Uuid
from ..record_types import KeyType
from .consumer import TOPIC_METADATA

_SCHEMAS = "kafka: group-coordinator/src/main/resources/common/message/"
_SINCE = "4.0, KIP-932 (early access; general since 4.2)"

_GROUP = (Field("group_id", String, "The group."),)
_GROUP_AND_MEMBER = (*_GROUP, Field("member_id", String, "The member."))

_TOPIC_PARTITIONS = Struct((
    Field("topic_id", Uuid, "The topic's id."),
    Field("partitions", Array(Int32), "Partitions of the topic."),
))

_NAMED_TOPIC_PARTITIONS = Struct((
    Field("topic_id", Uuid, "The topic's id."),
    Field("topic_name", String, "The topic's name."),
    Field("partitions", Array(Int32), "Partitions of the topic."),
))

SHARE_GROUP_PARTITION_METADATA_KEY = Message(
    "ShareGroupPartitionMetadataKey", versions=(0, 0), fields=_GROUP, dialect="4.0",
    source=_SCHEMAS + "ShareGroupPartitionMetadataKey.json", since={0: "4.0 only"},
)

SHARE_GROUP_PARTITION_METADATA_VALUE = Message(
    "ShareGroupPartitionMetadataValue", versions=(0, 0), flexible_from=0, dialect="4.0",
    source=_SCHEMAS + "ShareGroupPartitionMetadataValue.json",
    since={0: "4.0 only"},
    fields=(Field("topics", Array(TOPIC_METADATA), "The topics' metadata that the group was computed with."),),
)

SHARE_GROUP_MEMBER_METADATA_KEY = Message(
    "ShareGroupMemberMetadataKey", versions=(0, 0), fields=_GROUP_AND_MEMBER,
    source=_SCHEMAS + "ShareGroupMemberMetadataKey.json", since={0: _SINCE},
)

SHARE_GROUP_MEMBER_METADATA_VALUE = Message(
    "ShareGroupMemberMetadataValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ShareGroupMemberMetadataValue.json",
    since={0: _SINCE},
    fields=(
        Field("rack_id", NullableString, "The member's rack; null: it sent none."),
        Field("client_id", String, "The client.id that the member sent."),
        Field("client_host", String, "The address it came from."),
        Field("subscribed_topic_names", Array(String), "Topics it subscribes to."),
    ),
)

SHARE_GROUP_METADATA_KEY = Message(
    "ShareGroupMetadataKey", versions=(0, 0), fields=_GROUP,
    source=_SCHEMAS + "ShareGroupMetadataKey.json", since={0: _SINCE},
)

SHARE_GROUP_METADATA_VALUE = Message(
    "ShareGroupMetadataValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ShareGroupMetadataValue.json",
    since={0: "4.1, KIP-932 in this layout"},
    fields=(
        Field("epoch", Int32, "Group epoch."),
        Field("metadata_hash", Int64, "Hash of the subscribed topics' metadata; always written."),
    ),
)

SHARE_GROUP_METADATA_VALUE_4_0 = Message(
    "ShareGroupMetadataValue", versions=(0, 0), flexible_from=0, dialect="4.0",
    source=_SCHEMAS + "ShareGroupMetadataValue.json",
    since={0: "4.0 only"},
    fields=(Field("epoch", Int32, "Group epoch."),),
)

SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY = Message(
    "ShareGroupTargetAssignmentMetadataKey", versions=(0, 0), fields=_GROUP,
    source=_SCHEMAS + "ShareGroupTargetAssignmentMetadataKey.json", since={0: _SINCE},
)

SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = Message(
    "ShareGroupTargetAssignmentMetadataValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ShareGroupTargetAssignmentMetadataValue.json",
    since={0: _SINCE + "; tag 0 since 4.3"},
    fields=(
        Field("assignment_epoch", Int32, "Epoch of the target assignment."),
        Field("assignment_timestamp_ms", Int64, "When it was computed; 0: not recorded.", default=0, tag=0, json="assignmentTimestamp"),
    ),
)

SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY = Message(
    "ShareGroupTargetAssignmentMemberKey", versions=(0, 0), fields=_GROUP_AND_MEMBER,
    source=_SCHEMAS + "ShareGroupTargetAssignmentMemberKey.json", since={0: _SINCE},
)

SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = Message(
    "ShareGroupTargetAssignmentMemberValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ShareGroupTargetAssignmentMemberValue.json",
    since={0: _SINCE},
    fields=(Field("topic_partitions", Array(_TOPIC_PARTITIONS), "Partitions the member is meant to have."),),
)

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY = Message(
    "ShareGroupCurrentMemberAssignmentKey", versions=(0, 0), fields=_GROUP_AND_MEMBER,
    source=_SCHEMAS + "ShareGroupCurrentMemberAssignmentKey.json", since={0: _SINCE},
)

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = Message(
    "ShareGroupCurrentMemberAssignmentValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ShareGroupCurrentMemberAssignmentValue.json",
    since={0: _SINCE},
    fields=(
        Field("member_epoch", Int32, "Epoch the member has reached."),
        Field("previous_member_epoch", Int32, "Epoch it had before."),
        Field("state", Int8, "0 STABLE, 1 UNREVOKED_PARTITIONS, 2 UNRELEASED_PARTITIONS, others UNKNOWN."),
        Field("assigned_partitions", Array(_TOPIC_PARTITIONS), "Partitions the member holds."),
    ),
)

SHARE_GROUP_STATE_PARTITION_METADATA_KEY = Message(
    "ShareGroupStatePartitionMetadataKey", versions=(0, 0), fields=_GROUP,
    source=_SCHEMAS + "ShareGroupStatePartitionMetadataKey.json", since={0: "4.1, KIP-932"},
)

SHARE_GROUP_STATE_PARTITION_METADATA_VALUE = Message(
    "ShareGroupStatePartitionMetadataValue", versions=(0, 0), flexible_from=0,
    source=_SCHEMAS + "ShareGroupStatePartitionMetadataValue.json",
    since={0: "4.1, KIP-932"},
    fields=(
        Field("initializing_topics", Array(_NAMED_TOPIC_PARTITIONS), "Partitions whose share state is being made."),
        Field("initialized_topics", Array(_NAMED_TOPIC_PARTITIONS), "Partitions whose share state is there."),
        Field("deleting_topics", Array(Struct((
            Field("topic_id", Uuid, "The topic's id."),
            Field("topic_name", String, "The topic's name."),
        ))), "Topics whose share state is being deleted."),
    ),
)

RECORD_TYPES = (
    RecordType(
        KeyType.SHARE_GROUP_PARTITION_METADATA,
        SHARE_GROUP_PARTITION_METADATA_KEY, SHARE_GROUP_PARTITION_METADATA_VALUE,
        tombstone="The topics' metadata is no longer kept.", dialect="4.0",
    ),
    RecordType(
        KeyType.SHARE_GROUP_MEMBER_METADATA,
        SHARE_GROUP_MEMBER_METADATA_KEY, SHARE_GROUP_MEMBER_METADATA_VALUE,
        tombstone="The member left.",
    ),
    RecordType(
        KeyType.SHARE_GROUP_METADATA,
        SHARE_GROUP_METADATA_KEY, SHARE_GROUP_METADATA_VALUE,
        tombstone="The group is gone.", dialects=(SHARE_GROUP_METADATA_VALUE_4_0,),
    ),
    RecordType(
        KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY, SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
        tombstone="The group is gone.",
    ),
    RecordType(
        KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
        SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY, SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
        tombstone="The member left.",
    ),
    RecordType(
        KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY, SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
        tombstone="The member left.",
    ),
    RecordType(
        KeyType.SHARE_GROUP_STATE_PARTITION_METADATA,
        SHARE_GROUP_STATE_PARTITION_METADATA_KEY, SHARE_GROUP_STATE_PARTITION_METADATA_VALUE,
        tombstone="The group is gone.",
    ),
)
