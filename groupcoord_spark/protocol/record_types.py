"""The numbers of Kafka that name things in the offsets topic: types of keys, types of markers, and the values that mean "none"."""

from enum import IntEnum
from typing import Final, NamedTuple


class KeyType(IntEnum):
    """The number in the first two bytes of a key: the type of the record. No release gave out 18.

    Source: the files CoordinatorRecordType and ``*Key.json`` of Kafka's group coordinator.
    """

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    SHARE_GROUP_PARTITION_METADATA = 9
    SHARE_GROUP_MEMBER_METADATA = 10
    SHARE_GROUP_METADATA = 11
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = 12
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = 13
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = 14
    SHARE_GROUP_STATE_PARTITION_METADATA = 15
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    STREAMS_GROUP_METADATA = 17
    STREAMS_GROUP_MEMBER_METADATA = 19
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = 20
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = 22
    STREAMS_GROUP_TOPOLOGY = 23


MODERN_GROUP_TYPES: Final = ("consumer", "share", "streams")
"""Types of groups whose assignment the broker computes: KIP-848, KIP-932 and KIP-1071."""


def key_types_of(group_type: str) -> frozenset[KeyType]:
    """Return the key types of the records of a type of modern group."""
    return frozenset(key_type for key_type in KeyType if key_type.name.startswith(f"{group_type.upper()}_GROUP_"))


OFFSET_KEY_TYPES: Final = frozenset({KeyType.LEGACY_OFFSET_COMMIT, KeyType.OFFSET_COMMIT})
CLASSIC_KEY_TYPES: Final = OFFSET_KEY_TYPES | {KeyType.GROUP_METADATA}
"""All types before Kafka 4.0."""
CONSUMER_GROUP_KEY_TYPES: Final = key_types_of("consumer")
MODERN_KEY_TYPES: Final = frozenset().union(*map(key_types_of, MODERN_GROUP_TYPES))


class ModernKeyTypes(NamedTuple):
    """The key types of one type of modern group, by the subject of their records."""

    group_type: str
    group: KeyType
    member: KeyType
    target_epoch: KeyType
    target: KeyType
    current: KeyType
    others: tuple[KeyType, ...]
    """Partitions of topics, topics that match a regular expression, or the topology."""


def _modern_key_types(group_type: str) -> ModernKeyTypes:
    subjects = ("METADATA", "MEMBER_METADATA", "TARGET_ASSIGNMENT_METADATA", "TARGET_ASSIGNMENT_MEMBER", "CURRENT_MEMBER_ASSIGNMENT")
    group, member, target_epoch, target, current = common = [KeyType[f"{group_type.upper()}_GROUP_{subject}"] for subject in subjects]
    others = tuple(sorted(key_types_of(group_type).difference(common)))
    return ModernKeyTypes(group_type, group, member, target_epoch, target, current, others)


KEY_TYPES_OF: Final = {group_type: _modern_key_types(group_type) for group_type in MODERN_GROUP_TYPES}
GROUP_KEY_TYPES: Final = frozenset({KeyType.GROUP_METADATA, *(key_types.group for key_types in KEY_TYPES_OF.values())})
"""The record that a group of each type begins with; its tombstone removes the group."""


class MarkerType(IntEnum):
    """The type in the key of a control record: how a transaction ended."""

    ABORT = 0
    COMMIT = 1


NOT_A_CONTROL_RECORD: Final = -1
"""In columns of marker types: the record is not a control record."""

NO_PRODUCER_ID: Final = -1
"""The batch was written by no idempotent or transactional producer."""
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
CLOCKS_DIFFER_MS: Final = 3_600_000
"""How far the clocks of two brokers may differ: log.message.timestamp.after.max.ms, beyond which Kafka itself refuses a timestamp."""
NO_LEADER_EPOCH: Final = -1
