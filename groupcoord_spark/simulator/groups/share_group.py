"""A share group (KIP-932) in a running broker: its records, and what only the running broker knows of it.

The state of the group is what a replay of its records gives: each change is a record, and is applied when it is written.
Rules: docs/reference/coordinator.md, chapter 13.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from groupcoord_spark.coordinator.groups.share import ShareGroup as ReplayedGroup
from groupcoord_spark.coordinator.groups.share import ShareMember
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.groups.clock import Timer
from groupcoord_spark.simulator.messages.records import RecordToWrite

VALUE_VERSION: Final = 0
_STABLE: Final = 0

Partitions = Mapping[str, Iterable[int]]
"""Topic id -> partitions."""


@dataclass(slots=True, eq=False)
class ShareGroup:
    """A share group with its timers, and when it last looked at the topics."""

    group_id: str
    replayed: ReplayedGroup
    metadata_hash: int = 0
    assignment_timestamp_ms: int = 0
    refreshes_metadata: bool = False
    """A topic has changed: the next heartbeat of any member looks at the topics again."""
    metadata_deadline_ms: int = 0
    initializing: dict[str, set[int]] = field(default_factory=dict)
    """Topic id -> partitions whose share state is being made."""
    initialized: dict[str, set[int]] = field(default_factory=dict)
    """Topic id -> partitions whose share state is there: only these are assigned."""
    initializes: bool = False
    """The share coordinator has been asked to make the state of the initializing partitions."""
    session_timers: dict[str, Timer] = field(default_factory=dict)

    @property
    def members(self) -> Mapping[str, ShareMember]:
        """Member id -> member."""
        return self.replayed.members

    @property
    def epoch(self) -> int:
        """The group epoch."""
        return self.replayed.generation

    def target_of(self, member_id: str) -> dict[str, list[int]]:
        """The target assignment of a member: topic id -> partitions."""
        return partitions_by_topic((self.replayed.targets.get(member_id) or {"topic_partitions": []})["topic_partitions"])

    def assigned_to(self, member_id: str) -> dict[str, list[int]]:
        """What a member has: topic id -> partitions."""
        return partitions_by_topic(self.members[member_id].assigned)

    def cancel_session(self, member_id: str) -> None:
        """Cancel the session timer of a member, if it runs."""
        timer = self.session_timers.pop(member_id, None)
        if timer is not None:
            timer.is_cancelled = True


def partitions_by_topic(listed: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """The partitions of a record: topic id -> partitions."""
    return {topic["topic_id"]: list(topic["partitions"]) for topic in listed}


# Records


def member_record(group_id: str, member_id: str, metadata: Mapping[str, Any] | None) -> RecordToWrite:
    """The record of a member's metadata; None: its tombstone."""
    return _record(KeyType.SHARE_GROUP_MEMBER_METADATA, {"group_id": group_id, "member_id": member_id}, metadata)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> RecordToWrite:
    """The record of the group epoch."""
    return _record(KeyType.SHARE_GROUP_METADATA, {"group_id": group_id}, {"epoch": epoch, "metadata_hash": metadata_hash})


def target_record(group_id: str, member_id: str, partitions: Partitions | None) -> RecordToWrite:
    """The record of a member's target assignment; None: its tombstone."""
    value = None if partitions is None else {"topic_partitions": _listed(partitions)}
    return _record(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, {"group_id": group_id, "member_id": member_id}, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> RecordToWrite:
    """The record of the epoch of the target assignment."""
    value = {"assignment_epoch": epoch, "assignment_timestamp_ms": timestamp_ms}
    return _record(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": group_id}, value)


def assignment_record(group_id: str, member_id: str, epoch: int, previous_epoch: int, partitions: Partitions) -> RecordToWrite:
    """The record of what a member has. A member of a share group is always STABLE."""
    value = {
        "member_epoch": epoch,
        "previous_member_epoch": previous_epoch,
        "state": _STABLE,
        "assigned_partitions": _listed(partitions),
    }
    return _record(KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, {"group_id": group_id, "member_id": member_id}, value)


def removal_records(group_id: str, member_id: str) -> list[RecordToWrite]:
    """The tombstones of a member that leaves."""
    key = {"group_id": group_id, "member_id": member_id}
    return [
        _record(KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, None),
        target_record(group_id, member_id, None),
        member_record(group_id, member_id, None),
    ]


def state_record(
    group_id: str, initializing: Partitions, initialized: Partitions, deleting: Iterable[str], names: Mapping[str, str]
) -> RecordToWrite:
    """The record of the partitions whose share state is being made, is there, or (topic ids) is being deleted."""
    value = {
        "initializing_topics": _listed(initializing, names),
        "initialized_topics": _listed(initialized, names),
        "deleting_topics": [{"topic_id": topic_id, "topic_name": names.get(topic_id, "")} for topic_id in deleting],
    }
    return _record(KeyType.SHARE_GROUP_STATE_PARTITION_METADATA, {"group_id": group_id}, value)


def group_tombstones(group_id: str) -> list[RecordToWrite]:
    """The tombstones of an Empty share group."""
    key = {"group_id": group_id}
    types = (
        KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        KeyType.SHARE_GROUP_STATE_PARTITION_METADATA,
        KeyType.SHARE_GROUP_METADATA,
    )
    return [_record(key_type, key, None) for key_type in types]


def _record(key_type: int, key: dict[str, Any], value: Mapping[str, Any] | None) -> RecordToWrite:
    return RecordToWrite(key_type, key, None if value is None else VALUE_VERSION, None if value is None else dict(value))


def _listed(partitions: Partitions, names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Partitions as a record lists them. names: topic id -> name, for a record that has both."""
    return [
        {"topic_id": topic_id, **({} if names is None else {"topic_name": names.get(topic_id, "")}), "partitions": sorted(numbers)}
        for topic_id, numbers in partitions.items()
    ]
