"""The rebalances of all groups of one offsets partition: finds the group of each record, and where a group ends and a new one begins."""

from collections.abc import Iterable, Iterator
from typing import Final

from groupcoord_spark.coordinator.rebalances.classic import ClassicGenerations
from groupcoord_spark.coordinator.rebalances.group_life import GroupLife
from groupcoord_spark.coordinator.rebalances.group_records import MODERN_KEY_TYPES, ConvertedGroup, GroupRecord
from groupcoord_spark.coordinator.rebalances.modern import ModernEpochs
from groupcoord_spark.coordinator.rebalances.rows import Rebalance
from groupcoord_spark.protocol.record_types import KeyType


def rebalances(records: Iterable[GroupRecord], earlier_records: Iterable[GroupRecord] = ()) -> Iterator[Rebalance]:
    """Yield the rebalances in the records of one offsets partition, by record offset. ``earlier_records`` build the initial state."""
    groups = GroupHistories()
    groups.recall(earlier_records)
    for record in records:
        row = groups.apply(record)
        if row is not None:
            yield row


NO_GROUP: Final = ClassicGenerations(None)
"""A group without a record of its own: it has offsets only."""


class GroupHistories:
    """The present generation of each group of one offsets partition. Apply the records in the order of their offsets."""

    def __init__(self) -> None:
        self._groups: dict[str, ClassicGenerations | ModernEpochs] = {}

    def of(self, group_id: str) -> GroupLife:
        """Return the group after the newest record; one without a record has offsets only."""
        group = self._groups.get(group_id, NO_GROUP)
        return NO_GROUP if group.is_removed else group

    def recall(self, records: Iterable[GroupRecord]) -> None:
        """Build the state of the groups from records whose rebalances are already known."""
        for record in records:
            self.apply(record)
        for group in self._groups.values():
            if isinstance(group, ModernEpochs):
                group.end_recall()

    def forget(self) -> None:
        """Remove the state of all groups: the next record does not follow the last one."""
        self._groups.clear()

    def apply(self, record: GroupRecord) -> Rebalance | None:
        """Apply a record. Return the rebalance that it starts, or None if it starts none or its type is not in KEY_TYPES."""
        group_id = record.key["group_id"]
        key_types = MODERN_KEY_TYPES.get(record.key_type)
        if key_types is None and record.key_type != KeyType.GROUP_METADATA:
            return None
        group = self._groups.get(group_id)
        group_type = "classic" if key_types is None else key_types.group_type
        if group is None or group.group_type != group_type:
            if record.value is None:
                return None
            former_group = _converted_group(group, record) if group is not None else None
            converted = ClassicGenerations(former_group) if key_types is None else ModernEpochs(key_types, former_group)
            converted.had_members = group is not None and group.had_members and _is_conversion(group, record)
            group = self._groups[group_id] = converted
        elif group.is_removed and record.value is not None:
            group = ClassicGenerations(None) if key_types is None else ModernEpochs(key_types, None)
            self._groups[group_id] = group
        return group.apply(record)


def _converted_group(group: ClassicGenerations | ModernEpochs, record: GroupRecord) -> ConvertedGroup | None:
    """Return the group of another type that this record converts, or None if the old group was removed before."""
    if group.generation is None or not _is_conversion(group, record):
        return None
    return ConvertedGroup(group.group_type, group.generation, group.timestamp_ms, group.members_of_generation)


def _is_conversion(group: GroupLife, record: GroupRecord) -> bool:
    """Return whether a record of another group type goes on with the group: a conversion writes its tombstone at the same time."""
    return not group.is_removed or group.removed_at_ms == record.timestamp_ms
