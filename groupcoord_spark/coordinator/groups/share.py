"""Share groups of KIP-932: key types 10 to 15, rules R-3.16 to R-3.21 of docs/reference/replay-rules.md."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from groupcoord_spark.coordinator.broker_settings import DefaultAssignors
from groupcoord_spark.coordinator.groups.modern import ModernGroup, Refusals, partition_rows
from groupcoord_spark.coordinator.state import AssignmentRow, MemberRow


class ShareGroup(ModernGroup):
    """A share group. Several members may have the same partition, and the group's positions are in the topic ``__share_group_state``."""

    __slots__ = ()

    group_type = "share"
    member_states: ClassVar = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
    refusals = Refusals("R-3.18", "R-3.19", "R-3.20", "R-3.21", "R-3.16", "R-3.17")
    type_conflict = "R-3.6"
    simple_conflict = "R-3.3"

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
            yield from partition_rows(group_id, member_id, "current", member.current.get("assigned_partitions", ()), topic_names)
        for member_id, target in self.targets.items():
            yield from partition_rows(group_id, member_id, "target", target["topic_partitions"], topic_names)
