"""Records of the topic ``__share_group_state`` (KIP-932): where each share group stands in each partition that it reads.

Source: kafka, share-coordinator/src/main/resources/common/message/, a file for each message by its name.
"""

from ..fields import Array, Field, Int8, Int16, Int32, Int64, Message, RecordType, String, Struct, Uuid

_SINCE = {0: "4.1, KIP-932"}

SNAPSHOT, UPDATE = 0, 1

_KEY = (
    Field("group_id", String, "The share group."),
    Field("topic_id", Uuid, "The topic's id."),
    Field("partition", Int32, "The partition of the topic."),
)
_START = Field("start_offset", Int64, "The first offset that may still be delivered; -1: not known yet; in an update: as before.")
_LEADER = Field("leader_epoch", Int32, "The partition leader's epoch; -1 in an update: as before.")
_DELIVERED = Field(
    "delivery_complete_count", Int32, "Records from the start on that need no delivery; -1: written before 4.2.", default=-1, tag=0
)
_BATCHES = Field("state_batches", Array(Struct((
    Field("first_offset", Int64, "The first offset."),
    Field("last_offset", Int64, "The last offset."),
    Field("delivery_state", Int8, "0 available again, 2 acknowledged, 4 archived."),
    Field("delivery_count", Int16, "How often its records were delivered."),
))), "States of offsets from the start on.")

SHARE_SNAPSHOT_KEY = Message("ShareSnapshotKey", versions=(0, 0), fields=_KEY, since=_SINCE)

SHARE_SNAPSHOT_VALUE = Message(
    "ShareSnapshotValue", versions=(0, 0), flexible_from=0,
    since={0: "4.1, KIP-932; tag 0 since 4.2"},
    fields=(
        Field("snapshot_epoch", Int32, "Number of the snapshot."),
        Field("state_epoch", Int32, "The group epoch that set the offset; it fences late writes."),
        _LEADER, _START, _DELIVERED,
        Field("create_timestamp_ms", Int64, "When the state was last written by an acknowledgement or a reset.", json="createTimestamp"),
        Field("write_timestamp_ms", Int64, "When the snapshot was written.", json="writeTimestamp"),
        _BATCHES,
    ),
)

SHARE_UPDATE_KEY = Message("ShareUpdateKey", versions=(0, 0), fields=_KEY, since=_SINCE)

SHARE_UPDATE_VALUE = Message(
    "ShareUpdateValue", versions=(0, 0), flexible_from=0,
    since={0: "4.1, KIP-932; tag 0 since 4.2"},
    fields=(Field("snapshot_epoch", Int32, "Number of the snapshot that it belongs to."), _LEADER, _START, _DELIVERED, _BATCHES),
)

RECORD_TYPES = {
    SNAPSHOT: RecordType(SNAPSHOT, SHARE_SNAPSHOT_KEY, SHARE_SNAPSHOT_VALUE, tombstone="The state was deleted."),
    UPDATE: RecordType(UPDATE, SHARE_UPDATE_KEY, SHARE_UPDATE_VALUE, tombstone="No broker writes one."),
}
