"""Classic groups (JoinGroup and SyncGroup): key type 2.

Source: kafka, group-coordinator/src/main/resources/common/message/, a file for each message by its name.
"""

from ..fields import Array, Bytes, Field, Int32, Int64, Message, NullableString, RecordType, String, Struct
from ..record_types import KeyType

GROUP_METADATA_KEY = Message(
    "GroupMetadataKey", versions=(0, 0),
    since={0: "0.9"},
    fields=(Field("group_id", String, "The group.", json="group"),),
)

GROUP_METADATA_VALUE = Message(
    "GroupMetadataValue", versions=(0, 4), flexible_from=4,
    since={
        0: "0.9",
        1: "0.10.1, KIP-62: rebalance timeout",
        2: "2.1, KIP-211: time of the state",
        3: "2.3, KIP-345: static members; what the Java coordinator writes",
        4: "read since 3.5, KIP-915; written by no release",
    },
    read_since={1: (0, 10, 1), 2: (2, 1), 3: (2, 3), 4: (3, 4, 1)},
    fields=(
        Field("protocol_type", String, "What the members are: consumer, connect, sr, anything; empty: none."),
        Field("generation", Int32, "Generation id."),
        Field("protocol", NullableString, "The assignor or protocol chosen; null while the group is empty."),
        Field("leader", NullableString, "Member id of the leader; null while the group is empty."),
        Field(
            "current_state_timestamp_ms", Int64, "When the group took its state; offsets of an empty group age from then. -1: not known.",
            versions="2+", default=-1, json="currentStateTimestamp",
        ),
        Field("members", Array(Struct((
            Field("member_id", String, "The id the coordinator gave the member."),
            Field("group_instance_id", NullableString, "Id of a static member; null: a dynamic one.", versions="3+", default=None),
            Field("client_id", String, "The client.id that the member sent."),
            Field("client_host", String, "The address it came from, often with a leading slash."),
            Field(
                "rebalance_timeout_ms", Int32, "How long the group waits for the member in a rebalance; -1: as the session timeout.",
                versions="1+", default=-1, json="rebalanceTimeout",
            ),
            Field("session_timeout_ms", Int32, "Silence after which the member is dropped.", json="sessionTimeout"),
            Field("subscription", Bytes, "What the member asked for, in the words of its protocol type."),
            Field("assignment", Bytes, "What the leader gave it, in the same words; empty: nothing."),
        ))), "The members; none: the group is empty."),
    ),
)

RECORD_TYPES = (
    RecordType(
        KeyType.GROUP_METADATA,
        GROUP_METADATA_KEY, GROUP_METADATA_VALUE,
        tombstone="The group is gone, or became one of another type.",
    ),
)
