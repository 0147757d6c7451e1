"""Committed offsets: key types 0 and 1.

Source: kafka, group-coordinator/src/main/resources/common/message/, a file for each message by its name.
"""

from ..fields import ZERO_UUID, Field, Int32, Int64, Message, RecordType, String, Uuid
from ..record_types import KeyType

_KEY_FIELDS = (
    Field("group_id", String, "The group that committed.", json="group"),
    Field("topic", String, "The topic that the offset belongs to."),
    Field("partition", Int32, "The partition of that topic."),
)

LEGACY_OFFSET_COMMIT_KEY = Message(
    "LegacyOffsetCommitKey", versions=(0, 0),
    since={0: "0.8.2"},
    fields=_KEY_FIELDS,
)

LEGACY_OFFSET_COMMIT_VALUE = Message(
    "LegacyOffsetCommitValue", versions=(0, 0),
    since={0: "0.8.2; no later release writes it"},
    fields=(
        Field("committed_offset", Int64, "Next record the group will read.", json="offset"),
        Field("metadata", String, "The client's own note. Empty and absent are different."),
        Field("commit_timestamp_ms", Int64, "When the offset was committed; clients could set it.", json="commitTimestamp"),
    ),
)

OFFSET_COMMIT_KEY = Message(
    "OffsetCommitKey", versions=(0, 0),
    since={0: "0.9"},
    fields=_KEY_FIELDS,
)

OFFSET_COMMIT_VALUE = Message(
    "OffsetCommitValue", versions=(0, 4), flexible_from=4,
    since={
        0: "0.8.2 under key type 0; no known release under type 1",
        1: "0.9: explicit expiry; later releases for commits that ask for a retention time",
        2: "2.1, KIP-211: expiry follows the group's state",
        3: "2.1, KIP-320: leader epoch",
        4: "read since 3.5, KIP-915; written since 4.1 with the topic id",
    },
    read_since={1: (0, 9), 2: (2, 1), 3: (2, 1), 4: (3, 4, 1)},
    fields=(
        Field("committed_offset", Int64, "Next record the group will read.", json="offset"),
        Field("leader_epoch", Int32, "Epoch of the last record read; -1: not known.", versions="3+", default=-1),
        Field("metadata", String, "The client's own note. Empty and absent are different."),
        Field("commit_timestamp_ms", Int64, "When the broker took the commit.", json="commitTimestamp"),
        Field(
            "expire_timestamp_ms", Int64, "Expiry the client asked for; -1: none asked.",
            versions="1", default=-1, json="expireTimestamp",
        ),
        Field("topic_id", Uuid, "The topic's id; the zero id: not recorded.", versions="4+", default=ZERO_UUID, tag=0),
    ),
)

RECORD_TYPES = (
    RecordType(
        KeyType.LEGACY_OFFSET_COMMIT,
        LEGACY_OFFSET_COMMIT_KEY, LEGACY_OFFSET_COMMIT_VALUE,
        tombstone="The offset was deleted or has expired.", read_since=(0, 8, 2),
    ),
    RecordType(
        KeyType.OFFSET_COMMIT,
        OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE,
        tombstone="The offset was deleted or has expired.",
    ),
)
