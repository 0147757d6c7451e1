"""What the tables of consumer, share and streams groups have in common: fields, and the form of a record type.

Source: kafka, group-coordinator/src/main/resources/common/message/, a file for each message by its name.
"""

from ..fields import Array, Field, Int32, Int64, Message, RecordType, String, Struct, Uuid
from ..record_types import KeyType

GROUP = (Field("group_id", String, "The group; of Kafka Streams the application id."),)
GROUP_AND_MEMBER = (*GROUP, Field("member_id", String, "The member."))

TOPIC_PARTITIONS = (
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

TARGET_ASSIGNMENT_METADATA = (
    Field("assignment_epoch", Int32, "Epoch of the target assignment."),
    Field("assignment_timestamp_ms", Int64, "When it was computed; 0: not recorded.", default=0, tag=0, json="assignmentTimestamp"),
)


def record_type(
    key_type: KeyType,
    *,
    key: tuple[Field, ...],
    value: tuple[Field, ...],
    tombstone: str = "",
    since: str,
    read_since: tuple[int, ...],
    value_since: str = "",
    dialect: str | None = None,
    older_value: tuple[str, str, tuple[Field, ...]] | None = None,
) -> RecordType:
    """Return a record type whose key and value have version 0 only, the value with tagged fields.

    Args:
        key_type: its name is Kafka's name of the two messages, without Key and Value.
        key, value: the fields.
        tombstone: what a null value means, a sentence for people; "": that the member left, or, where the key has none, the group is gone.
        since: the release that introduced the key, and the value too without ``value_since``.
        read_since, dialect: as in RecordType.
        older_value: the release line that alone wrote another layout of the value, its ``since``, and the fields of that layout.
    """

    name = "".join(word.capitalize() for word in key_type.name.split("_"))

    def message(kind: str, fields: tuple[Field, ...], came: str, flexible_from: int | None, dialect: str | None) -> Message:
        return Message(name + kind, (0, 0), fields, {0: came}, flexible_from, dialect)

    return RecordType(
        key_type,
        message("Key", key, since, None, dialect),
        message("Value", value, value_since or since, 0, dialect),
        tombstone or ("The member left." if key is GROUP_AND_MEMBER else "The group is gone."),
        () if older_value is None else (message("Value", older_value[2], older_value[1], 0, older_value[0]),),
        dialect,
        read_since,
    )
