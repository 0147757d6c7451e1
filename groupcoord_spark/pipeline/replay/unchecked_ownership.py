"""A coordinator that skips the checks of R-3.14 for consumer groups whose partitions cannot have two owners.

``redundant_assignments`` looks at a whole batch of records at once and finds these groups. Their records may then be dropped or replayed
without the owner of each partition: on a log of consumer groups that takes most of the time of a replay.
"""

from collections.abc import Iterable

from groupcoord_spark.coordinator.groups.consumer import ConsumerMember, ReplayedConsumerGroup
from groupcoord_spark.coordinator.groups.group import Refusal
from groupcoord_spark.coordinator.groups.modern import ReplayedModernGroup
from groupcoord_spark.coordinator.replay import PartitionReplay
from groupcoord_spark.coordinator.semantics import Semantics


class UncheckedConsumerGroup(ReplayedConsumerGroup):
    """A consumer group that can stop to follow the owners of its partitions, and can follow them again."""

    __slots__ = ("_checks_owners",)

    def __init__(self, semantics: Semantics, *, checks_owners: bool = True) -> None:
        super().__init__(semantics)
        self._checks_owners = checks_owners

    def stop_checks(self) -> None:
        """Follow the owners no longer. The caller knows that R-3.14 refuses none of the records to come."""
        self._checks_owners = False
        self._owner_epochs.clear()

    def resume_checks(self) -> None:
        """Follow the owners again, from the current assignments of the members. The group must be orderly."""
        if not self._checks_owners:
            self._owner_epochs.update(self._partition_owners())
            self._checks_owners = True

    def _partition_owners(self) -> dict[str, dict[int, int]]:
        """Return the same owners whether the group tracks them or they are derived from the assignments."""
        if self._checks_owners:
            return super()._partition_owners()
        owner_epochs: dict[str, dict[int, int]] = {}
        for member in self.members.values():
            for topic_id, partitions in member.owned_partitions():
                if partitions:
                    owner_epochs.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_epoch))
        return owner_epochs

    def _release_partitions(self, member_id: str, member: ConsumerMember) -> None:
        if self._checks_owners:
            super()._release_partitions(member_id, member)

    def _take_partitions(self, member_id: str, member: ConsumerMember) -> None:
        if self._checks_owners:
            super()._take_partitions(member_id, member)


class KeptRecordsCoordinator(PartitionReplay):
    """The state of one offsets partition from kept records; the reader has dropped others and has already written some warnings."""

    def __init__(self, semantics: Semantics) -> None:
        super().__init__(semantics)
        self._unchecked_groups: frozenset[str] = frozenset()

    def rule_out_collisions(self, without_collisions: frozenset[str], with_collisions: frozenset[str]) -> None:
        """Choose the groups whose records are applied without the checks of R-3.14, from the next record on.

        without_collisions: groups whose partitions cannot have two owners; each is absent, simple or an orderly consumer group.
        with_collisions: groups whose records are checked.
        """
        for group_id in with_collisions & self._unchecked_groups:
            group = self.group(group_id)
            if isinstance(group, UncheckedConsumerGroup):
                group.resume_checks()
        for group_id in without_collisions - self._unchecked_groups:
            group = self.group(group_id)
            if isinstance(group, UncheckedConsumerGroup):
                group.stop_checks()
        self._unchecked_groups = self._unchecked_groups - with_collisions | without_collisions

    def _new_group(self, group_id: str, group_type: type[ReplayedModernGroup]) -> ReplayedModernGroup:
        if group_type is ReplayedConsumerGroup:
            return UncheckedConsumerGroup(self.semantics, checks_owners=group_id not in self._unchecked_groups)
        return super()._new_group(group_id, group_type)

    def _warn_of_members(self, record_offset: int, group_id: str, refusals: Iterable[Refusal]) -> None:
        """No warnings: the reader of the records has written them, even for records that it dropped."""
