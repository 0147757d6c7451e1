"""Share groups of KIP-932: key types 10 to 15, rules R-3.16 to R-3.21 of docs/reference/replay-rules.md."""

from collections.abc import Iterator, Mapping
from typing import Any

from groupcoord_spark.coordinator.broker_settings import DefaultAssignors
from groupcoord_spark.coordinator.groups.modern import LEFT_EPOCH, ModernGroup, Value, partition_rows
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import AssignmentRow, MemberRow
from groupcoord_spark.protocol.record_types import KeyType

_MEMBER_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
_UNKNOWN = "UNKNOWN"


class ShareMember:
    """One member of a share group. Fields that no record has set have Kafka's defaults."""

    __slots__ = ("assigned", "member_epoch", "metadata", "previous_member_epoch", "record_offset", "state")

    def __init__(self) -> None:
        self.metadata: Value | None = None
        """The value of key type 10; None: no record of this type was read."""
        self.member_epoch = 0
        self.previous_member_epoch = -1
        self.state = "STABLE"
        self.assigned: list[dict[str, Any]] = []
        self.record_offset = -1


class ShareGroup(ModernGroup):
    """A share group. Several members may have the same partition, and the group's positions are in the topic ``__share_group_state``."""

    __slots__ = ("members",)

    group_type = "share"
    type_conflict = "R-3.6"
    simple_conflict = "R-3.3"

    def __init__(self, semantics: Semantics) -> None:
        super().__init__(semantics)
        self.members: dict[str, ShareMember] = {}

    @property
    def member_count(self) -> int:
        return len(self.members)

    def apply(self, record_offset: int, key_type: int, key: Value, value: Value | None) -> bool:
        group_id: str = key["group_id"]
        if key_type == KeyType.SHARE_GROUP_MEMBER_METADATA:
            self._apply_member(record_offset, key["member_id"], value)
        elif key_type == KeyType.SHARE_GROUP_METADATA:
            if value is None:
                self._check_group_can_be_removed(group_id, "R-3.18", "R-3.19", "R-3.20")
                return True
            self._group_epoch = value["epoch"]
        elif key_type == KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA:
            self._apply_target_metadata(group_id, value, "R-3.21")
        elif key_type == KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER:
            self._apply_target(key["member_id"], value)
        elif key_type == KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT:
            self._apply_current_assignment(record_offset, key["member_id"], value)
        # SHARE_GROUP_STATE_PARTITION_METADATA (the state of the share group's partitions) creates the group and changes no field.
        return False

    def _apply_member(self, record_offset: int, member_id: str, value: Value | None) -> None:
        member = self.members.get(member_id)
        if value is not None:
            if member is None:
                member = self.members[member_id] = ShareMember()
            member.metadata = value
            member.record_offset = record_offset
        elif member is not None:
            self._check_member_can_be_removed(member_id, member.member_epoch, "R-3.16", "R-3.17")
            del self.members[member_id]

    def _apply_current_assignment(self, record_offset: int, member_id: str, value: Value | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = self.members[member_id] = ShareMember()
        member.record_offset = record_offset
        if value is None:
            member.member_epoch = member.previous_member_epoch = LEFT_EPOCH
            member.assigned = []
        else:
            member.member_epoch = value["member_epoch"]
            member.previous_member_epoch = value["previous_member_epoch"]
            member.state = _MEMBER_STATES.get(value["state"], _UNKNOWN)
            member.assigned = value["assigned_partitions"]

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def protocol_type(self) -> str:
        return "share"

    def protocol(self, default_assignors: DefaultAssignors) -> str:
        return default_assignors.share

    @property
    def subscribed_topics(self) -> frozenset[str]:
        subscriptions = (member.metadata for member in self.members.values() if member.metadata is not None)
        return frozenset(topic for subscription in subscriptions for topic in subscription["subscribed_topic_names"])

    def member_rows(self, group_id: str) -> Iterator[MemberRow]:
        for member_id, member in self.members.items():
            metadata = member.metadata or {}
            yield MemberRow(
                group_id=group_id,
                member_id=member_id,
                client_id=metadata.get("client_id", ""),
                client_host=metadata.get("client_host", ""),
                rack_id=metadata.get("rack_id"),
                member_state=member.state,
                member_epoch=member.member_epoch,
                previous_member_epoch=member.previous_member_epoch,
                subscribed_topics=tuple(sorted(set(metadata.get("subscribed_topic_names", ())))),
                record_offset=member.record_offset,
            )

    def assignment_rows(self, group_id: str, topic_names: Mapping[str, str]) -> Iterator[AssignmentRow]:
        for member_id, member in self.members.items():
            yield from partition_rows(group_id, member_id, "current", member.assigned, topic_names)
        for member_id, target in self.targets.items():
            yield from partition_rows(group_id, member_id, "target", target["topic_partitions"], topic_names)
