"""Share groups (KIP-932): key types 9 to 15. Their positions lie in another topic, ``__share_group_state``."""

from functools import partial

from ..fields import Array, Field, Int8, Int32, Int64, NullableString, String, Struct, Uuid
from ..record_types import KeyType
from .modern_groups import GROUP, GROUP_AND_MEMBER, TARGET_ASSIGNMENT_METADATA, TOPIC_METADATA, TOPIC_PARTITIONS, record_type

_SINCE = "4.0, KIP-932 (early access; general since 4.2)"
_record_type = partial(record_type, since=_SINCE, read_since=(4, 0))

_NAMED_TOPIC_PARTITIONS = Struct((
    Field("topic_id", Uuid, "The topic's id."),
    Field("topic_name", String, "The topic's name."),
    Field("partitions", Array(Int32), "Partitions of the topic."),
))

RECORD_TYPES = (
    _record_type(
        KeyType.SHARE_GROUP_PARTITION_METADATA, key=GROUP,
        value=(Field("topics", Array(TOPIC_METADATA), "The topics' metadata that the group was computed with."),),
        tombstone="The topics' metadata is no longer kept.", since="4.0 only", dialect="4.0",
    ),
    _record_type(
        KeyType.SHARE_GROUP_MEMBER_METADATA, key=GROUP_AND_MEMBER,
        value=(
            Field("rack_id", NullableString, "The member's rack; null: it sent none."),
            Field("client_id", String, "The client.id that the member sent."),
            Field("client_host", String, "The address it came from."),
            Field("subscribed_topic_names", Array(String), "Topics it subscribes to."),
        ),
    ),
    _record_type(
        KeyType.SHARE_GROUP_METADATA, key=GROUP,
        value=(
            Field("epoch", Int32, "Group epoch."),
            Field("metadata_hash", Int64, "Hash of the subscribed topics' metadata; always written."),
        ),
        value_since="4.1, KIP-932 in this layout",
        older_value=("4.0", "4.0 only", (Field("epoch", Int32, "Group epoch."),)),
    ),
    _record_type(
        KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, key=GROUP,
        value=TARGET_ASSIGNMENT_METADATA, value_since=_SINCE + "; tag 0 since 4.3",
    ),
    _record_type(
        KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, key=GROUP_AND_MEMBER,
        value=(Field("topic_partitions", Array(Struct(TOPIC_PARTITIONS)), "Partitions the member is meant to have."),),
    ),
    _record_type(
        KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, key=GROUP_AND_MEMBER,
        value=(
            Field("member_epoch", Int32, "Epoch the member has reached."),
            Field("previous_member_epoch", Int32, "Epoch it had before."),
            Field("state", Int8, "0 STABLE, 1 UNREVOKED_PARTITIONS, 2 UNRELEASED_PARTITIONS, others UNKNOWN."),
            Field("assigned_partitions", Array(Struct(TOPIC_PARTITIONS)), "Partitions the member holds."),
        ),
    ),
    _record_type(
        KeyType.SHARE_GROUP_STATE_PARTITION_METADATA, key=GROUP,
        value=(
            Field("initializing_topics", Array(_NAMED_TOPIC_PARTITIONS), "Partitions whose share state is being made."),
            Field("initialized_topics", Array(_NAMED_TOPIC_PARTITIONS), "Partitions whose share state is there."),
            Field("deleting_topics", Array(Struct((
                Field("topic_id", Uuid, "The topic's id."),
                Field("topic_name", String, "The topic's name."),
            ))), "Topics whose share state is being deleted."),
        ),
        since="4.1, KIP-932", read_since=(4, 1),
    ),
)
