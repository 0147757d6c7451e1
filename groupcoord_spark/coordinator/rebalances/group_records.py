"""The decoded group records that rebalances are read from, and their key types."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from groupcoord_spark.coordinator.groups.group import Value
from groupcoord_spark.protocol.record_types import KEY_TYPES_OF, KeyType, ModernKeyTypes

NOT_KNOWN: Final = -1
"""Kafka's -1 for a time, a timeout, a leader epoch or a count that no record has."""


MODERN_KEY_TYPES: Final[Mapping[int, ModernKeyTypes]] = {
    key_type: key_types
    for key_types in KEY_TYPES_OF.values()
    for key_type in (key_types.group, key_types.member, key_types.target_epoch, key_types.target, *key_types.others)
}
"""Key type -> all key types of its group type. Rebalances are not read from current assignments."""
KEY_TYPES: Final = (KeyType.GROUP_METADATA, *sorted(MODERN_KEY_TYPES))
"""Key types of the records that rebalances are read from."""


class GroupRecord(NamedTuple):
    """One decoded group record. leader_epoch: of the record's batch; -1: not known."""

    record_offset: int
    timestamp_ms: int
    key_type: int
    key: Mapping[str, Any]
    value: Value | None
    leader_epoch: int = NOT_KNOWN


class ConvertedGroup(NamedTuple):
    """The last state of a group before a group of another type replaced it under the same id (KIP-848)."""

    group_type: str
    generation: int
    timestamp_ms: int
    members: Mapping[str, Value]
