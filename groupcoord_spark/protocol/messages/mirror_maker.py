"""Records of MirrorMaker 2: translated offsets of groups (checkpoints), and pairs of source and target offsets (offset syncs).

Source: kafka, connect/mirror-client/.../mirror/Checkpoint.java and connect/mirror/.../mirror/OffsetSync.java.
"""

from ..fields import Field, Int32, Int64, Message, String

_SINCE = {0: "2.4, KIP-382"}

_PLACE = (Field("topic", String, "The topic."), Field("partition", Int32, "The partition of the topic."))
_OFFSETS = (
    Field("upstream_offset", Int64, "The offset in the source cluster."),
    Field("downstream_offset", Int64, "The offset in the target cluster."),
)

CHECKPOINT_KEY = Message(
    "CheckpointKey", versions=(0, 0), since=_SINCE, fields=(Field("group_id", String, "The group.", json="consumerGroupId"), *_PLACE)
)
CHECKPOINT_VALUE = Message(
    "CheckpointValue", versions=(0, 0), since=_SINCE, fields=(*_OFFSETS, Field("metadata", String, "The metadata of the commit."))
)
OFFSET_SYNC_KEY = Message("OffsetSyncKey", versions=(0, 0), since=_SINCE, fields=_PLACE)
OFFSET_SYNC_VALUE = Message("OffsetSyncValue", versions=(0, 0), since=_SINCE, fields=_OFFSETS)
