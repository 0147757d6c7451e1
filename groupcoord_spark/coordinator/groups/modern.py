"""What the groups of the new protocols have in common: epochs, members kept by id, target assignments, and records that are refused."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import AssignmentRow, Group

LEFT_EPOCH = -1
"""Member epoch after a tombstone of the current assignment; also the assignment epoch of a group about to be deleted."""

Value = Mapping[str, Any]


class RefusalError(Exception):
    """Raised when Kafka's loader would refuse a record: it is skipped with a warning under ``code`` (R-3.x)."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class ModernGroup(Group):
    """A consumer, share or streams group while its records are replayed."""

    __slots__ = ("_assignment_epoch", "_group_epoch", "_semantics", "targets")

    type_conflict: ClassVar[str]
    """Rule that refuses a record of this kind under the id of a group of another kind."""
    simple_conflict: ClassVar[str | None] = None
    """The same for a simple group; None: it is replaced (R-3.1, R-3.2)."""

    def __init__(self, semantics: Semantics) -> None:
        super().__init__()
        self._semantics = semantics
        self._group_epoch = semantics.initial_epoch
        self._assignment_epoch = semantics.initial_epoch
        self.targets: dict[str, Value] = {}

    @abstractmethod
    def apply(self, record_offset: int, key_type: int, key: Value, value: Value | None) -> bool:
        """Apply one record of the group's own key types, and say whether the group is gone with it. Raises RefusalError."""

    @property
    def generation(self) -> int:
        return self._group_epoch

    @property
    def assignment_epoch(self) -> int:
        return self._assignment_epoch

    def _check_group_can_go(self, group_id: str, members_code: str, targets_code: str | None, epoch_code: str) -> None:
        """For the tombstone of the group: everything it consists of has to be gone before."""
        if self.member_count:
            raise RefusalError(members_code, f"Tombstone of group {group_id!r} skipped: {self.member_count} members remain.")
        if targets_code is not None and self.targets:
            raise RefusalError(targets_code, f"Tombstone of group {group_id!r} skipped: {len(self.targets)} target assignments remain.")
        if self._assignment_epoch != LEFT_EPOCH:
            raise RefusalError(epoch_code, f"Tombstone of group {group_id!r} skipped: its target assignment has no tombstone yet.")

    def _apply_target_metadata(self, group_id: str, value: Value | None, remaining_code: str) -> None:
        if value is None:
            if self.targets:
                detail = f"Tombstone of the target assignment of group {group_id!r} skipped: targets of {len(self.targets)} members remain."
                raise RefusalError(remaining_code, detail)
            self._assignment_epoch = LEFT_EPOCH
            return
        epoch, timestamp_ms = value["assignment_epoch"], value["assignment_timestamp_ms"]
        if self._semantics.checks_target_assignment_epoch and (epoch < LEFT_EPOCH or timestamp_ms < 0):
            raise RefusalError("R-3.12", f"Target assignment of group {group_id!r} skipped: epoch {epoch}, timestamp {timestamp_ms}.")
        self._assignment_epoch = epoch

    def _apply_target(self, member_id: str, value: Value | None) -> None:
        """The member need not exist."""
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value

    def _check_member_can_go(self, member_id: str, member_epoch: int | None, live_code: str, target_code: str) -> None:
        if member_epoch != LEFT_EPOCH:
            detail = f"Tombstone of member {member_id!r} (epoch {member_epoch}) skipped: its current assignment has no tombstone yet."
            raise RefusalError(live_code, detail)
        if member_id in self.targets:
            raise RefusalError(target_code, f"Tombstone of member {member_id!r} skipped: its target assignment remains.")


def partition_rows(
    group_id: str, member_id: str, kind: str, topic_partitions: list[dict[str, Any]], topic_names: Mapping[str, str]
) -> Iterator[AssignmentRow]:
    """Rows of a list of {topic_id, partitions}."""
    for holding in topic_partitions:
        topic_id = holding["topic_id"]
        for partition in holding["partitions"]:
            yield AssignmentRow(group_id, member_id, kind, topic_names.get(topic_id), topic_id, None, None, partition)
