"""A share group (KIP-932) in a running broker: its records, and what only the running broker knows of it.

Rules: docs/reference/coordinator.md, chapter 13.6.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.groups.group import CommitRules
from groupcoord_spark.simulator.groups.modern_group import ModernGroup
from groupcoord_spark.simulator.messages import Error, RecordToWrite
from groupcoord_spark.simulator.messages.requests import GroupToFetch, OffsetCommit, ShareGroupHeartbeat, TxnOffsetCommit

_STABLE: Final = 0

Partitions = Mapping[str, Iterable[int]]
"""Topic id -> partitions."""


@dataclass(slots=True, eq=False)
class ShareGroup(ModernGroup):
    """A share group, with what it knows of the share state of its partitions."""

    initializing: dict[str, set[int]] = field(default_factory=dict)
    """Topic id -> partitions whose share state is being made."""
    initialized: dict[str, set[int]] = field(default_factory=dict)
    """Topic id -> partitions whose share state is there: only these are assigned."""
    initializes: bool = False
    """The share coordinator has been asked to make the state of the initializing partitions."""

    group_type: ClassVar[str] = "share"
    keeps_offsets: ClassVar[bool] = False

    new_member: ClassVar[Mapping[str, Any]] = {"rack_id": None, "client_id": "", "client_host": "", "subscribed_topic_names": []}

    def changes_of(self, request: ShareGroupHeartbeat) -> dict[str, Any]:
        return {"rack_id": request.rack_id, "subscribed_topic_names": None if request.topics is None else sorted(set(request.topics))}

    def validate_commit(self, request: OffsetCommit | TxnOffsetCommit, rules: CommitRules) -> Error:
        """Reject the commit as for a group that does not exist: share groups have no committed offsets."""
        return Error.GROUP_ID_NOT_FOUND

    def validate_fetch(self, requested: GroupToFetch) -> Error:
        """Accept the fetch: the answer is the one for a group without offsets."""
        return Error.NONE

    def validate_offset_delete(self) -> Error:
        """Reject the deletion as for a group that does not exist: share groups have no committed offsets."""
        return Error.GROUP_ID_NOT_FOUND

    def target_of(self, member_id: str) -> dict[str, list[int]]:
        """Return the target assignment of a member: partitions by topic id."""
        return partitions_by_topic((self.replayed.targets.get(member_id) or {"topic_partitions": []})["topic_partitions"])

    def assigned_to(self, member_id: str) -> dict[str, list[int]]:
        """Return the partitions assigned to a member, by topic id."""
        return partitions_by_topic(self.members[member_id].current.get("assigned_partitions", ()))

    # Records

    def note(self, key_type: int | None, value: Mapping[str, Any] | None) -> None:
        ModernGroup.note(self, key_type, value)
        if key_type == KeyType.SHARE_GROUP_STATE_PARTITION_METADATA and value is not None:
            for name in ("initializing", "initialized"):
                listed = partitions_by_topic(value[f"{name}_topics"])
                setattr(self, name, {topic: set(numbers) for topic, numbers in listed.items()})

    def target_record(self, member_id: str, partitions: Partitions) -> RecordToWrite:
        """Return the record of a member's target assignment."""
        return self.record(self.key_types.target, {"topic_partitions": _listed(partitions)}, member_id=member_id)

    def assignment_record(self, member_id: str, epoch: int, previous_epoch: int, partitions: Partitions) -> RecordToWrite:
        """Return the record of a member's assignment. A member of a share group is always STABLE."""
        value = {
            "member_epoch": epoch,
            "previous_member_epoch": previous_epoch,
            "state": _STABLE,
            "assigned_partitions": _listed(partitions),
        }
        return self.record(self.key_types.current, value, member_id=member_id)

    def state_record(
        self, initializing: Partitions, initialized: Partitions, deleting: Iterable[str], names: Mapping[str, str]
    ) -> RecordToWrite:
        """Return the record of partitions whose share state is initializing, initialized or (topic ids) being deleted."""
        value = {
            "initializing_topics": _listed(initializing, names),
            "initialized_topics": _listed(initialized, names),
            "deleting_topics": [{"topic_id": topic_id, "topic_name": names.get(topic_id, "")} for topic_id in deleting],
        }
        return self.record(KeyType.SHARE_GROUP_STATE_PARTITION_METADATA, value)

    def tombstones(self) -> list[RecordToWrite]:
        key_types = (self.key_types.target_epoch, KeyType.SHARE_GROUP_STATE_PARTITION_METADATA, self.key_types.group)
        return [self.record(key_type, None) for key_type in key_types]


def partitions_by_topic(listed: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the partitions of a record by topic id."""
    return {topic["topic_id"]: list(topic["partitions"]) for topic in listed}


def _listed(partitions: Partitions, names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Partitions as a record lists them. names: topic id -> name, for a record that has both."""
    return [
        {"topic_id": topic_id, **({} if names is None else {"topic_name": names.get(topic_id, "")}), "partitions": sorted(numbers)}
        for topic_id, numbers in partitions.items()
    ]
