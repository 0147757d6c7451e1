"""Consumer groups of the new protocol (KIP-848): key types 3 to 8 and 16."""

from functools import partial

from ..fields import Array, Bytes, Field, Int8, Int16, Int32, Int64, NullableString, String, Struct
from ..record_types import KeyType
from .modern_groups import GROUP, GROUP_AND_MEMBER, TARGET_ASSIGNMENT_METADATA, TOPIC_METADATA, TOPIC_PARTITIONS, record_type

_SINCE = "3.7, KIP-848 (early access; on by default since 4.0)"
_record_type = partial(record_type, since=_SINCE, read_since=(3, 7))

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

_HELD_PARTITIONS = Struct((
    *TOPIC_PARTITIONS,
    Field(
        "assignment_epochs", Array(Int32, nullable=True),
        "Epoch that gave each partition; null, empty or of another size: all at the member's.",
        default=[], tag=0,
    ),
))

RECORD_TYPES = (
    _record_type(
        KeyType.CONSUMER_GROUP_METADATA, key=GROUP,
        value=(
            Field("epoch", Int32, "Group epoch."),
            Field("metadata_hash", Int64, "Hash of the subscribed topics' metadata; 0: none.", default=0, tag=0),
        ),
        tombstone="The group is gone, or became a classic one.", value_since=_SINCE + "; tag 0 since 4.1",
    ),
    _record_type(
        KeyType.CONSUMER_GROUP_PARTITION_METADATA, key=GROUP,
        value=(Field("topics", Array(TOPIC_METADATA), "The topics' metadata that the group was computed with."),),
        tombstone="The topics' metadata is no longer kept.",
        since=_SINCE + "; 4.1 and later write only tombstones", value_since="3.8 to 4.0 in this layout",
        older_value=("3.7", "3.7 only", (
            Field("epoch", Int32, "Always 0."),
            Field("topics", Array(TOPIC_METADATA), "The topics' metadata that the group was computed with."),
        )),
    ),
    _record_type(
        KeyType.CONSUMER_GROUP_MEMBER_METADATA, key=GROUP_AND_MEMBER,
        value=(
            *_MEMBER_FIELDS,
            Field(
                # Not null by default: Kafka takes a member without the tag for a classic one. Brokers write the null.
                "classic_member_metadata", _CLASSIC_MEMBER, "What a member of the classic protocol sent; null: it speaks the new one.",
                default=_CLASSIC_MEMBER.default(), tag=0,
            ),
        ),
        value_since="3.8, KIP-848 in this layout",
        older_value=("3.7", "3.7 only", (
            *_MEMBER_FIELDS,
            Field("assignors", Array(Struct((
                Field("name", String, "Name of a client-side assignor."),
                Field("minimum_version", Int16, "Lowest version of its metadata."),
                Field("maximum_version", Int16, "Highest version of its metadata."),
                Field("reason", Int8, "Why the metadata was sent."),
                Field("version", Int16, "Version of the metadata."),
                Field("metadata", Bytes, "Metadata of the assignor."),
            ))), "Client-side assignors; always empty."),
        )),
    ),
    _record_type(
        KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, key=GROUP,
        value=TARGET_ASSIGNMENT_METADATA, value_since=_SINCE + "; tag 0 since 4.3",
    ),
    _record_type(
        KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key=GROUP_AND_MEMBER,
        value=(Field("topic_partitions", Array(Struct(TOPIC_PARTITIONS)), "Partitions the member is meant to have."),),
    ),
    _record_type(
        KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key=GROUP_AND_MEMBER,
        value=(
            Field("member_epoch", Int32, "Epoch the member has reached; -2: a static member that left for a while."),
            Field("previous_member_epoch", Int32, "Epoch it had before."),
            Field("state", Int8, "0 STABLE, 1 UNREVOKED_PARTITIONS, 2 UNRELEASED_PARTITIONS, others UNKNOWN."),
            Field("assigned_partitions", Array(_HELD_PARTITIONS), "Partitions the member holds."),
            Field("partitions_pending_revocation", Array(_HELD_PARTITIONS), "Partitions it still has to give back."),
        ),
        value_since="3.8, KIP-848 in this layout; assignment epochs since 4.3",
        older_value=("3.7", "3.7 only; the state is not stored", (
            Field("member_epoch", Int32, "Epoch the member has reached."),
            Field("previous_member_epoch", Int32, "Epoch it had before."),
            Field("target_member_epoch", Int32, "Epoch it is on the way to."),
            Field("assigned_partitions", Array(Struct(TOPIC_PARTITIONS)), "Partitions the member holds."),
            Field("partitions_pending_revocation", Array(Struct(TOPIC_PARTITIONS)), "Partitions to give back: not empty means UNREVOKED."),
            Field("partitions_pending_assignment", Array(Struct(TOPIC_PARTITIONS)), "Partitions it waits for: not empty means UNRELEASED."),
            Field("error", Int8, "Error of a client-side assignor."),
            Field("metadata_version", Int16, "Version of a client-side assignor's metadata."),
            Field("metadata_bytes", Bytes, "Metadata of a client-side assignor."),
        )),
    ),
    _record_type(
        KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        key=(*GROUP, Field("regular_expression", String, "An expression that members of the group subscribe by.")),
        value=(
            Field("topics", Array(String), "Topics that the expression matched."),
            Field("version", Int64, "Version of the cluster metadata it was matched against."),
            Field("timestamp_ms", Int64, "When it was matched.", json="timestamp"),
        ),
        tombstone="No member subscribes by the expression any more.", since="4.0, KIP-848", read_since=(4, 0),
    ),
)
