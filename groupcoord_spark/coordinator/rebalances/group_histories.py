"""All groups of an offsets partition while their records pass by: which record is whose, and where one group ends and the next begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from groupcoord_spark.coordinator.rebalances.classic import ClassicLife
from groupcoord_spark.coordinator.rebalances.converted import Converted
from groupcoord_spark.coordinator.rebalances.modern import ModernLife
from groupcoord_spark.coordinator.rebalances.records import CLASSIC_KEY, ROLES_BY_KEY, GroupRecord
from groupcoord_spark.coordinator.rebalances.rows import Rebalance


def rebalances(records: Iterable[GroupRecord], before: Iterable[GroupRecord] = ()) -> Iterator[Rebalance]:
    """Rows of successive records of any groups, in offset order. ``before``: records that lead to the state that they meet."""
    groups = GroupHistories()
    groups.recall(before)
    for record in records:
        row = groups.apply(record)
        if row is not None:
            yield row


class GroupHistories:
    """The groups of one offsets partition while their records pass by."""

    def __init__(self) -> None:
        self._groups: dict[str, ClassicLife | ModernLife] = {}

    def recall(self, records: Iterable[GroupRecord]) -> None:
        """Take up the state that these records make, as known from before."""
        for record in records:
            self.apply(record)
        for life in self._groups.values():
            if isinstance(life, ModernLife):
                life.forget_what_moves()

    def forget(self) -> None:
        """Nothing is known any more: the records that follow do not continue those before."""
        self._groups.clear()

    def apply(self, record: GroupRecord) -> Rebalance | None:
        """The row that the record brings, if it brings one. Records of types that are not in KEY_TYPES bring none."""
        group_id = record.key["group_id"]
        roles = ROLES_BY_KEY.get(record.key_type)
        if roles is None and record.key_type != CLASSIC_KEY:
            return None
        life = self._groups.get(group_id)
        wanted = "classic" if roles is None else roles.group_type
        if life is None or life.group_type != wanted:
            if record.value is None:
                return None
            before = _converted(life, record) if life is not None else None
            life = ClassicLife(before) if roles is None else ModernLife(roles, before)
            self._groups[group_id] = life
        elif life.is_gone and record.value is not None:
            life = ClassicLife(None) if roles is None else ModernLife(roles, None)
            self._groups[group_id] = life
        return life.apply(record)


def _converted(life: ClassicLife | ModernLife, record: GroupRecord) -> Converted | None:
    """What the group was before this record. None: it was gone before, and this one has only its name."""
    if life.generation is None or (life.is_gone and life.gone_at_ms != record.timestamp_ms):
        return None
    return Converted(life.group_type, life.generation, life.timestamp_ms, life.members_at_change)
