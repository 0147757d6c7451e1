"""The decoded group records that rebalances are read from, and the key types of each group type by subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from groupcoord_spark.protocol.record_types import KeyType

Value = Mapping[str, Any]
"""A decoded value of a record, or one member of its list."""
NOT_KNOWN: Final = -1
"""Kafka's -1 for a time, a timeout, a leader epoch or a count that no record has."""


class Roles(NamedTuple):
    """The key types of one modern group type, by the subject of their records."""

    group_type: str
    epoch: int
    member: int
    assignment: int
    target: int
    topics: tuple[int, ...]
    """Partitions of topics, topics that match a regular expression, or the topology."""


_ROLES: Final = (
    Roles(
        "consumer",
        epoch=KeyType.CONSUMER_GROUP_METADATA,
        member=KeyType.CONSUMER_GROUP_MEMBER_METADATA,
        assignment=KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        target=KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        topics=(KeyType.CONSUMER_GROUP_PARTITION_METADATA, KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION),
    ),
    Roles(
        "share",
        epoch=KeyType.SHARE_GROUP_METADATA,
        member=KeyType.SHARE_GROUP_MEMBER_METADATA,
        assignment=KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        target=KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
        topics=(KeyType.SHARE_GROUP_PARTITION_METADATA, KeyType.SHARE_GROUP_STATE_PARTITION_METADATA),
    ),
    Roles(
        "streams",
        epoch=KeyType.STREAMS_GROUP_METADATA,
        member=KeyType.STREAMS_GROUP_MEMBER_METADATA,
        assignment=KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
        target=KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        topics=(KeyType.STREAMS_GROUP_TOPOLOGY,),
    ),
)
ROLES_BY_KEY: Final = {
    key_type: roles for roles in _ROLES for key_type in (roles.epoch, roles.member, roles.assignment, roles.target, *roles.topics)
}
KEY_TYPES: Final = (KeyType.GROUP_METADATA, *sorted(ROLES_BY_KEY))
"""Key types of the records that rebalances are read from."""


def roles_of(group_type: str) -> Roles:
    """The key types of ``consumer``, ``share`` or ``streams`` groups."""
    return next(roles for roles in _ROLES if roles.group_type == group_type)


class GroupRecord(NamedTuple):
    """One decoded group record. leader_epoch: of the record's batch; -1: not known."""

    record_offset: int
    timestamp_ms: int
    key_type: int
    key: Mapping[str, Any]
    value: Value | None
    leader_epoch: int = NOT_KNOWN
