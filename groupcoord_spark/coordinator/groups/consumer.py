"""Consumer groups of KIP-848: key types 3 to 8 and 16."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from groupcoord_spark.coordinator.broker_settings import DefaultAssignors
from groupcoord_spark.coordinator.groups.modern import LEFT_EPOCH, ModernGroup, RefusalError, Value, partition_rows
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import AssignmentRow, MemberRow

Owners = defaultdict[str, dict[int, int]]

_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
_UNKNOWN = "UNKNOWN"
# Where members name several assignors equally often Kafka's answer follows its hash table: of the built-in names, uniform comes first.
_BUILT_IN_ASSIGNORS = ("uniform", "range")


class ConsumerMember:
    """One member; what no record has told yet keeps Kafka's default."""

    __slots__ = ("assigned", "member_epoch", "metadata", "pending_revocation", "previous_member_epoch", "record_offset", "state")

    def __init__(self) -> None:
        self.metadata: Value | None = None
        self.member_epoch = 0
        self.previous_member_epoch = -1
        self.state = "STABLE"
        self.assigned: list[dict[str, Any]] = []
        self.pending_revocation: list[dict[str, Any]] = []
        self.record_offset = -1

    def held(self) -> Iterator[tuple[str, list[int]]]:
        """(topic id, partitions) of all it holds, what it has to give back included."""
        for holding in (*self.assigned, *self.pending_revocation):
            yield holding["topic_id"], holding["partitions"]

    def copy(self) -> "ConsumerMember":
        """The same member, to be changed."""
        other = ConsumerMember.__new__(ConsumerMember)
        other.metadata = self.metadata
        other.member_epoch, other.previous_member_epoch, other.state = self.member_epoch, self.previous_member_epoch, self.state
        other.assigned, other.pending_revocation = self.assigned, self.pending_revocation
        other.record_offset = self.record_offset
        return other

    def hold_nothing(self) -> None:
        self.member_epoch = self.previous_member_epoch = LEFT_EPOCH
        self.assigned = []
        self.pending_revocation = []


class ConsumerGroup(ModernGroup):
    """A consumer group, as Kafka's ConsumerGroup after the same records."""

    __slots__ = ("_owner_epochs", "_stale_state", "is_orderly", "members", "resolved_regexes")

    group_type = "consumer"
    type_conflict = "R-3.4"

    def __init__(self, semantics: Semantics) -> None:
        super().__init__(semantics)
        self.members: dict[str, ConsumerMember] = {}
        self.resolved_regexes: dict[str, list[str]] = {}
        self._owner_epochs: Owners | None = defaultdict(dict)
        """Topic id -> partition -> member epoch of its owner; None while somebody else has ruled out that two own the same."""
        self.is_orderly = True
        """No partition has ever been taken or given up against R-3.14: what the members hold tells the owners."""
        self._stale_state: str | None = None
        """State from before a refused change: Kafka does not get as far as computing the new one (R-3.14)."""

    @property
    def member_count(self) -> int:
        return len(self.members)

    def leave_ownership(self) -> None:
        """Follow the owners of partitions no longer: the caller knows that R-3.14 refuses none of the records to come."""
        self._owner_epochs = None

    def follow_ownership(self) -> None:
        """Follow the owners again. Only for an orderly group."""
        if self._owner_epochs is None:
            self._owner_epochs = defaultdict(dict)
            for member in self.members.values():
                for topic_id, partitions in member.held():
                    self._owner_epochs[topic_id].update(dict.fromkeys(partitions, member.member_epoch))

    def apply(self, record_offset: int, key_type: int, key: Value, value: Value | None) -> bool:
        group_id: str = key["group_id"]
        if key_type == 3:
            if value is None:
                self._check_group_can_go(group_id, "R-3.7", "R-3.8", "R-3.9")
                return True
            self._group_epoch = value["epoch"]
            self._stale_state = None
        elif key_type == 5:
            self._apply_member(record_offset, key["member_id"], value)
        elif key_type == 6:
            self._apply_target_metadata(group_id, value, "R-3.13")
            self._stale_state = None
        elif key_type == 7:
            self._apply_target(key["member_id"], value)
        elif key_type == 8:
            self._apply_current_assignment(record_offset, key["member_id"], value)
        elif key_type == 16:
            self._apply_regex(key["regular_expression"], value)
        # Key type 4, partition metadata of early releases, changes nothing that can be seen.
        return False

    def _apply_member(self, record_offset: int, member_id: str, value: Value | None) -> None:
        member = self.members.get(member_id)
        if value is not None:
            changed = ConsumerMember() if member is None else member.copy()
            changed.metadata = value
            self._change(record_offset, member_id, member, changed)
        elif member is not None:
            self._check_member_can_go(member_id, member.member_epoch, "R-3.10", "R-3.11")
            del self.members[member_id]
            if self._owner_epochs is not None:
                self._give_up(self._owner_epochs, member_id, member)
            self._stale_state = None

    def _apply_current_assignment(self, record_offset: int, member_id: str, value: Value | None) -> None:
        member = self.members.get(member_id)
        if member is None and value is None:
            return
        changed = ConsumerMember() if member is None else member.copy()
        if value is None:
            changed.hold_nothing()
        else:
            changed.member_epoch = value["member_epoch"]
            changed.previous_member_epoch = value["previous_member_epoch"]
            changed.state = _state_of(value)
            changed.assigned = value["assigned_partitions"]
            changed.pending_revocation = value["partitions_pending_revocation"]
        self._change(record_offset, member_id, member, changed)

    def _change(self, record_offset: int, member_id: str, old: ConsumerMember | None, new: ConsumerMember) -> None:
        """Replace a member. Every change moves the ownership of its partitions anew, so every one of them can collide (R-3.14)."""
        state_before: str | None = None
        new.record_offset = record_offset
        try:
            if self._owner_epochs is not None:
                if old is not None:
                    self._give_up(self._owner_epochs, member_id, old)
                self._take(self._owner_epochs, member_id, new)
        except RefusalError:
            state_before = self.state
            raise
        finally:
            # Kafka keeps the new member even then, but does not get as far as computing the group's state.
            self.members[member_id] = new
            self._stale_state = state_before

    def _give_up(self, owners: Owners, member_id: str, member: ConsumerMember) -> None:
        for topic_id, partitions in member.held():
            owner_epochs = owners[topic_id]
            # Nearly always all of them are its own; either way each is looked at, but not each in Python.
            if set(map(owner_epochs.get, partitions)) == {member.member_epoch} and len(set(partitions)) == len(partitions):
                for partition in partitions:
                    del owner_epochs[partition]
                continue
            for partition in partitions:
                if owner_epochs.get(partition) == member.member_epoch:
                    del owner_epochs[partition]
                    continue
                self.is_orderly = False
                if not self._semantics.newer_epoch_takes_partitions_over:
                    detail = f"Member {member_id!r} gives up partition {partition} of {topic_id}, not its at epoch {member.member_epoch}."
                    raise RefusalError("R-3.14", detail)

    def _take(self, owners: Owners, member_id: str, member: ConsumerMember) -> None:
        takes_over = self._semantics.newer_epoch_takes_partitions_over
        for topic_id, partitions in member.held():
            owner_epochs = owners[topic_id]
            taken = dict.fromkeys(partitions, member.member_epoch)
            # Nearly always nobody owns any of them, and this runs for every assignment ever written.
            if len(taken) == len(partitions) and owner_epochs.keys().isdisjoint(taken):
                owner_epochs.update(taken)
                continue
            for partition in partitions:
                owner_epoch = owner_epochs.get(partition)
                self.is_orderly = self.is_orderly and owner_epoch is None
                if owner_epoch is not None and (owner_epoch >= member.member_epoch or not takes_over):
                    if not takes_over:
                        owner_epochs[partition] = member.member_epoch  # these releases look only after they have stored the new owner
                    detail = f"Member {member_id!r} takes partition {partition} of topic {topic_id} at epoch {member.member_epoch}"
                    raise RefusalError("R-3.14", f"{detail}, while it is still owned at epoch {owner_epoch}.")
                owner_epochs[partition] = member.member_epoch

    def _apply_regex(self, regular_expression: str, value: Value | None) -> None:
        if value is None:
            self.resolved_regexes.pop(regular_expression, None)
        else:
            self.resolved_regexes[regular_expression] = value["topics"]

    @property
    def state(self) -> str:
        """R-3.15."""
        if self._stale_state is not None:
            return self._stale_state
        if not self.members:
            return "Empty"
        if self._group_epoch > self._assignment_epoch:
            return "Assigning"
        for member in self.members.values():
            if member.state != "STABLE" or member.member_epoch != self._assignment_epoch:
                return "Reconciling"
        return "Stable"

    @property
    def protocol_type(self) -> str:
        return "consumer"

    def protocol(self, default_assignors: DefaultAssignors) -> str:
        """The server assignor that most members name."""
        votes = Counter(member.metadata["server_assignor"] for member in self.members.values() if member.metadata is not None)
        del votes[None]
        if not votes:
            return default_assignors.consumer
        most = max(votes.values())
        winners = sorted(name for name, count in votes.items() if count == most)
        return next((name for name in _BUILT_IN_ASSIGNORS if name in winners), winners[0])

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Names of all members, and topics of every stored expression, also of one that no member uses any more."""
        topics = {topic for member in self.members.values() if member.metadata for topic in member.metadata["subscribed_topic_names"]}
        return frozenset(topics.union(*self.resolved_regexes.values()))

    @property
    def regular_expressions(self) -> tuple[str, ...]:
        return tuple(sorted(self.resolved_regexes))

    def member_rows(self, group_id: str) -> Iterator[MemberRow]:
        for member_id, member in self.members.items():
            metadata = member.metadata or {}
            classic = metadata.get("classic_member_metadata")
            yield MemberRow(
                group_id=group_id,
                member_id=member_id,
                instance_id=metadata.get("instance_id"),
                client_id=metadata.get("client_id", ""),
                client_host=metadata.get("client_host", ""),
                rack_id=metadata.get("rack_id"),
                uses_classic_protocol=classic is not None,
                member_state=member.state,
                member_epoch=member.member_epoch,
                previous_member_epoch=member.previous_member_epoch,
                session_timeout_ms=classic["session_timeout_ms"] if classic is not None else None,
                rebalance_timeout_ms=metadata.get("rebalance_timeout_ms", -1),
                subscribed_topics=tuple(sorted(set(metadata.get("subscribed_topic_names", ())))),
                subscribed_topic_regex=metadata.get("subscribed_topic_regex") or None,
                server_assignor=metadata.get("server_assignor"),
                record_offset=member.record_offset,
            )

    def assignment_rows(self, group_id: str, topic_names: Mapping[str, str]) -> Iterator[AssignmentRow]:
        for member_id, member in self.members.items():
            yield from partition_rows(group_id, member_id, "current", member.assigned, topic_names)
            yield from partition_rows(group_id, member_id, "pending_revocation", member.pending_revocation, topic_names)
        for member_id, target in self.targets.items():
            yield from partition_rows(group_id, member_id, "target", target["topic_partitions"], topic_names)


def _state_of(value: Value) -> str:
    """The stored member state. Release 3.7 stored none: there it shows in what the member has yet to give back or to get."""
    if "state" in value:
        return _STATES.get(value["state"], _UNKNOWN)
    if value["partitions_pending_revocation"]:
        return _STATES[1]
    return _STATES[2] if value["partitions_pending_assignment"] else _STATES[0]
