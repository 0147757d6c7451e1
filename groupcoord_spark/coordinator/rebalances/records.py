"""Records of groups as they are read here, and what the records of each group type are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Value = Mapping[str, Any]
"""A decoded value of a record, or one member of its list."""
CLASSIC_KEY: Final = 2
NOT_KNOWN: Final = -1
"""Kafka's own -1, for a time, a timeout or a leader epoch that is not told."""


class Roles(NamedTuple):
    """Key types of one of the new protocols, by what their records are about."""

    group_type: str
    epoch: int
    member: int
    assignment: int
    target: int
    topics: tuple[int, ...]
    """Records that tell of topics: their partitions, or which of them an expression matches."""


_ROLES: Final = (
    Roles("consumer", epoch=3, member=5, assignment=6, target=7, topics=(4, 16)),
    Roles("share", epoch=11, member=10, assignment=12, target=13, topics=(9, 15)),
    Roles("streams", epoch=17, member=19, assignment=20, target=21, topics=(23,)),
)
ROLES_BY_KEY: Final = {
    key_type: roles for roles in _ROLES for key_type in (roles.epoch, roles.member, roles.assignment, roles.target, *roles.topics)
}
KEY_TYPES: Final = (CLASSIC_KEY, *sorted(ROLES_BY_KEY))
"""Types of the records that rebalances are read from."""


def roles_of(group_type: str) -> Roles:
    """Key types of consumer, share or streams groups."""
    return next(roles for roles in _ROLES if roles.group_type == group_type)


class GroupRecord(NamedTuple):
    """One record of a group, decoded. leader_epoch: of its batch; -1: not known."""

    record_offset: int
    timestamp_ms: int
    key_type: int
    key: Mapping[str, Any]
    value: Value | None
    leader_epoch: int = NOT_KNOWN
