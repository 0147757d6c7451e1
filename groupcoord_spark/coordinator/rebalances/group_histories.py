"""The rebalances of all groups of one offsets partition: finds the group of each record, and where a group ends and a new one begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from groupcoord_spark.coordinator.rebalances.classic import ClassicGenerations
from groupcoord_spark.coordinator.rebalances.group_records import MODERN_KEY_TYPES, ConvertedGroup, GroupRecord
from groupcoord_spark.coordinator.rebalances.modern import ModernEpochs
from groupcoord_spark.coordinator.rebalances.rows import Rebalance
from groupcoord_spark.protocol.record_types import KeyType


def rebalances(records: Iterable[GroupRecord], earlier_records: Iterable[GroupRecord] = ()) -> Iterator[Rebalance]:
    """The rebalances in records of one offsets partition, by record offset. earlier_records: they make the first state."""
    groups = GroupHistories()
    groups.recall(earlier_records)
    for record in records:
        row = groups.apply(record)
        if row is not None:
            yield row


class GroupHistories:
    """The present generation of each group of one offsets partition. Apply the records in the order of their offsets."""

    def __init__(self) -> None:
        self._groups: dict[str, ClassicGenerations | ModernEpochs] = {}

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
        """The rebalance that the record begins; None: the record begins none, or its type is not in KEY_TYPES."""
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
            group = ClassicGenerations(former_group) if key_types is None else ModernEpochs(key_types, former_group)
            self._groups[group_id] = group
        elif group.is_removed and record.value is not None:
            group = ClassicGenerations(None) if key_types is None else ModernEpochs(key_types, None)
            self._groups[group_id] = group
        return group.apply(record)


def _converted_group(group: ClassicGenerations | ModernEpochs, record: GroupRecord) -> ConvertedGroup | None:
    """The group of another type that becomes a new group with this record; None: the old group was removed before."""
    if group.generation is None or (group.is_removed and group.removed_at_ms != record.timestamp_ms):
        return None
    return ConvertedGroup(group.group_type, group.generation, group.timestamp_ms, group.members_of_generation)
