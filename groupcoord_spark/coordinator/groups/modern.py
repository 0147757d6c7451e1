"""The common part of consumer, share and streams groups: epochs, target assignments, and the error for a record that is refused."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from groupcoord_spark.coordinator.groups.group import AssignmentRow, MemberRow, ReplayedGroup, Value
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol.record_types import KEY_TYPES_OF
from groupcoord_spark.wording import counted

LEFT_EPOCH = -1
"""Member epoch after a tombstone of the current assignment; assignment epoch after a tombstone of the target assignment."""

UNKNOWN = "UNKNOWN"


class RefusalError(Exception):
    """Raised when Kafka's loader would refuse a record. The replay skips the record and writes a warning.

    code: the rule, R-3.x of docs/reference/replay-rules.md. detail: the sentence of the warning.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class ModernMember:
    """One member of a modern group. The arguments are the values of fields that no record has set."""

    __slots__ = ("current", "member_epoch", "metadata", "previous_member_epoch", "record_offset", "state")

    def __init__(self, member_epoch: int | None = 0, previous_member_epoch: int | None = -1, state: str | None = "STABLE") -> None:
        self.metadata: Value | None = None
        """The value of the member's own record; None: no such record was read."""
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.current: Value = {}
        """The value of the member's current assignment; empty: no assignment."""
        self.record_offset = -1

    def assign(self, value: Value | None, state: str | None) -> None:
        """Set the fields as after a record of the current assignment. state: of the member from then on."""
        self.current = value or {}
        self.state = state
        self.member_epoch = LEFT_EPOCH if value is None else value["member_epoch"]
        self.previous_member_epoch = LEFT_EPOCH if value is None else value["previous_member_epoch"]


class Refusals(NamedTuple):
    """A loader's rules for rejecting tombstones of one group type."""

    group_with_members: str
    group_with_targets: str | None
    group_with_epoch: str
    target_epoch: str
    live_member: str
    member_with_target: str


class ReplayedModernGroup(ReplayedGroup):
    """A group whose assignment the broker computes: a consumer, share or streams group."""

    __slots__ = ("_semantics", "assignment_epoch", "generation", "members", "targets")

    generation: int
    assignment_epoch: int
    member_states: ClassVar[Mapping[int, str]] = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
    """The words for the numbers of member states; every other number is UNKNOWN."""
    member_fields: ClassVar[Mapping[str, object]] = {"client_id": "", "client_host": "", "rack_id": None}
    """Fields of MemberRow that the member's own record has under the same name -> their value where no such record was read."""
    refusals: ClassVar[Refusals]
    type_conflict: ClassVar[str]
    """Rule that refuses a record of this group type where the group has another type."""
    simple_conflict: ClassVar[str | None] = None
    """Rule that refuses a record of this group type where the group is simple; None: the record replaces the group (R-3.1, R-3.2)."""

    def __init__(self, semantics: Semantics) -> None:
        super().__init__()
        self._semantics = semantics
        self.generation = semantics.initial_epoch
        self.assignment_epoch = semantics.initial_epoch
        self.members: dict[str, ModernMember] = {}
        self.targets: dict[str, Value] = {}
        """Member id -> value of the member's target assignment."""

    def apply(self, record_offset: int, key_type: int, key: Value, value: Value | None) -> bool:
        """True where the record, of a key type of this group type, removes the group. value: None: a tombstone.

        Raises RefusalError where a broker's loader refuses the record.
        """
        key_types = KEY_TYPES_OF[self.group_type]
        if key_type == key_types.current:
            self._apply_current_assignment(record_offset, key["member_id"], value)
        elif key_type == key_types.target:
            self._apply_target(key["member_id"], value)
        elif key_type == key_types.member:
            self._apply_member(record_offset, key["member_id"], value)
        elif key_type == key_types.target_epoch:
            self._apply_target_metadata(key["group_id"], value)
        elif key_type != key_types.group:
            self._apply_other(key_type, key, value)
        elif value is None:
            self._check_group_can_be_removed(key["group_id"])
            return True
        else:
            self._apply_epoch(value)
        return False

    def _apply_epoch(self, value: Value) -> None:
        self.generation = value["epoch"]

    def _apply_other(self, key_type: int, key: Value, value: Value | None) -> None:
        """Apply a record of a type that only this group type has. By default such a record creates the group and changes no field."""

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def protocol_type(self) -> str:
        return self.group_type

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Topics that members name."""
        return frozenset(topic for member in self.members.values() for topic in _named_topics(member.metadata))

    def member_rows(self, group_id: str) -> Iterator[MemberRow]:
        for member_id, member in self.members.items():
            yield MemberRow(
                group_id=group_id,
                member_id=member_id,
                member_state=member.state,
                member_epoch=member.member_epoch,
                previous_member_epoch=member.previous_member_epoch,
                record_offset=member.record_offset,
                **self._fields_of_record(member.metadata or {}),
            )

    def _fields_of_record(self, metadata: Value) -> dict[str, Any]:
        """Fields of MemberRow from the member's own record; {}: no such record was read."""
        fields = {name: metadata.get(name, absent) for name, absent in self.member_fields.items()}
        return fields | {"subscribed_topics": tuple(sorted(set(_named_topics(metadata))))}

    def assignment_rows(self, group_id: str, topic_names: Mapping[str, str]) -> Iterator[AssignmentRow]:
        for member_id, member in self.members.items():
            for kind, name in (("current", "assigned_partitions"), ("pending_revocation", "partitions_pending_revocation")):
                yield from _partition_rows(group_id, member_id, kind, member.current.get(name, ()), topic_names)
        for member_id, target in self.targets.items():
            yield from _partition_rows(group_id, member_id, "target", target["topic_partitions"], topic_names)

    def _state_of_assignment(self) -> str:
        """Return the state of a group with members: Assigning, Reconciling or Stable."""
        if self.generation > self.assignment_epoch:
            return "Assigning"
        for member in self.members.values():
            if member.state != "STABLE" or member.member_epoch != self.assignment_epoch:
                return "Reconciling"
        return "Stable"

    def _check_group_can_be_removed(self, group_id: str) -> None:
        """Raises RefusalError for a tombstone of the group while the group has members, target assignments or an assignment epoch."""
        rules = self.refusals
        if self.member_count:
            left = counted(self.member_count, "member")
            raise RefusalError(rules.group_with_members, f"Tombstone of group {group_id!r} skipped: {left} left.")
        if rules.group_with_targets is not None and self.targets:
            detail = f"Tombstone of group {group_id!r} skipped: {len(self.targets)} target assignments remain."
            raise RefusalError(rules.group_with_targets, detail)
        if self.assignment_epoch != LEFT_EPOCH:
            detail = f"Tombstone of group {group_id!r} skipped: its target assignment has no tombstone yet."
            raise RefusalError(rules.group_with_epoch, detail)

    def _apply_target_metadata(self, group_id: str, value: Value | None) -> None:
        """Set the assignment epoch. Raises RefusalError (R-3.12; for a tombstone while members have targets ``refusals.target_epoch``)."""
        # Dropped records rely on this: pipeline/replay/redundant_assignments.py (the last value replaces those before)
        if value is None:
            if self.targets:
                targets = counted(len(self.targets), "target")
                detail = f"Tombstone of the target assignment of group {group_id!r} skipped: {targets} left."
                raise RefusalError(self.refusals.target_epoch, detail)
            self.assignment_epoch = LEFT_EPOCH
            return
        epoch, timestamp_ms = value["assignment_epoch"], value["assignment_timestamp_ms"]
        if self._semantics.checks_target_assignment_epoch and (epoch < LEFT_EPOCH or timestamp_ms < 0):
            raise RefusalError("R-3.12", f"Target assignment of group {group_id!r} skipped: epoch {epoch}, timestamp {timestamp_ms}.")
        self.assignment_epoch = epoch

    def _apply_target(self, member_id: str, value: Value | None) -> None:
        """Store or remove the target assignment of a member. The member need not exist."""
        # Dropped records rely on this: pipeline/replay/redundant_assignments.py (the last value replaces those before)
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value

    def _new_member(self) -> ModernMember:
        return ModernMember()

    def _apply_member(self, record_offset: int, member_id: str, value: Value | None) -> None:
        """Store or remove a member. Raises RefusalError for a tombstone while the member has an assignment."""
        if value is not None:
            member = self.members.setdefault(member_id, self._new_member())
            member.metadata = value
            member.record_offset = record_offset
        elif member_id in self.members:
            self._check_member_can_be_removed(member_id, self.members[member_id].member_epoch)
            del self.members[member_id]

    def _apply_current_assignment(self, record_offset: int, member_id: str, value: Value | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = self.members[member_id] = self._new_member()
        member.record_offset = record_offset
        member.assign(value, member.state if value is None else self.member_states.get(value["state"], UNKNOWN))

    def _check_member_can_be_removed(self, member_id: str, member_epoch: int | None) -> None:
        """Raises RefusalError for a tombstone of a member that still has a current or a target assignment."""
        if member_epoch != LEFT_EPOCH:
            detail = f"Tombstone of member {member_id!r} (epoch {member_epoch}) skipped: its current assignment has no tombstone yet."
            raise RefusalError(self.refusals.live_member, detail)
        if member_id in self.targets:
            detail = f"Tombstone of member {member_id!r} skipped: its target assignment remains."
            raise RefusalError(self.refusals.member_with_target, detail)


def _named_topics(metadata: Value | None) -> Sequence[str]:
    """Topics that a member subscribes to by name."""
    names: Sequence[str] = (metadata or {}).get("subscribed_topic_names", ())
    return names


def _partition_rows(
    group_id: str, member_id: str, kind: str, topic_partitions: Sequence[Value], topic_names: Mapping[str, str]
) -> Iterator[AssignmentRow]:
    """Yield one row for each partition in a list of {topic_id, partitions}."""
    for topic in topic_partitions:
        topic_id = topic["topic_id"]
        for partition in topic["partitions"]:
            yield AssignmentRow(group_id, member_id, kind, topic_names.get(topic_id), topic_id, None, None, partition)
