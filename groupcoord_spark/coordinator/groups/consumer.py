"""Consumer groups of KIP-848: key types 3 to 8 and 16, rules R-3.7 to R-3.15 of docs/reference/replay-rules.md."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, ClassVar

from groupcoord_spark.coordinator.broker_settings import DefaultAssignors
from groupcoord_spark.coordinator.groups.group import Value, internal_fields
from groupcoord_spark.coordinator.groups.modern import UNKNOWN, ModernMember, RefusalError, Refusals, ReplayedModernGroup
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol.record_types import KeyType

OwnerEpochs = defaultdict[str, dict[int, int]]
"""Topic id -> partition -> member epoch of the partition's owner."""

# Where several assignors have the same number of votes, Kafka takes the first one of its hash map. Of the built-in names that is uniform.
_BUILT_IN_ASSIGNORS = ("uniform", "range")


class ConsumerMember(ModernMember):
    """One member of a consumer group. Fields that no record has set have Kafka's defaults."""

    __slots__ = ()

    member_epoch: int
    previous_member_epoch: int
    state: str

    def owned_partitions(self) -> Iterator[tuple[str, list[int]]]:
        """(topic id, partitions) of every topic in the current assignment, with the partitions that the member must still give up."""
        for name in ("assigned_partitions", "partitions_pending_revocation"):
            for topic in self.current.get(name, ()):
                yield topic["topic_id"], topic["partitions"]

    @property
    def instance_id(self) -> str | None:
        """Id of a static member."""
        return None if self.metadata is None else self.metadata["instance_id"]

    def copy(self) -> "ConsumerMember":
        """Copy the member. The values are shared, because no code changes a value in place."""
        copied = ConsumerMember(self.member_epoch, self.previous_member_epoch, self.state)
        copied.metadata, copied.current, copied.record_offset = self.metadata, self.current, self.record_offset
        return copied


class ReplayedConsumerGroup(ReplayedModernGroup):
    """A consumer group in the state of Kafka's ConsumerGroup after the same records."""

    __slots__ = ("_owner_epochs", "_stale_state", "is_orderly", "resolved_regexes", "static_members")

    members: dict[str, ConsumerMember]  # type: ignore[assignment]  # the base class puts members of its own kind into the dict

    group_type = "consumer"
    member_fields: ClassVar = {
        **ReplayedModernGroup.member_fields, "instance_id": None, "rebalance_timeout_ms": -1, "server_assignor": None
    }  # fmt: skip
    refusals = Refusals("R-3.7", "R-3.8", "R-3.9", "R-3.13", "R-3.10", "R-3.11")
    type_conflict = "R-3.4"

    def __init__(self, semantics: Semantics) -> None:
        super().__init__(semantics)
        self.static_members: dict[str, str] = {}
        """Instance id -> member id. Before 4.4 it also holds a member's former instance ids, even after the member has left."""
        self.resolved_regexes: dict[str, list[str]] = {}
        """Regular expression -> names of the topics that match it."""
        self._owner_epochs: OwnerEpochs = defaultdict(dict)
        self.is_orderly = True
        """No partition was ever taken or released against R-3.14: the current assignments of the members say who owns each partition."""
        self._stale_state: str | None = None
        """The group's state from before a refused change: Kafka then does not compute the new state (R-3.14). None: not stale."""

    def _apply_epoch(self, value: Value) -> None:
        super()._apply_epoch(value)
        self._stale_state = None

    def internal_state(self) -> tuple[object, ...]:
        # No table and no refusal depends on the former instance ids, and compaction removes the records that show them.
        compared_apart = frozenset({"_semantics", "static_members", "is_orderly", "_owner_epochs", "_checks_owners"})
        return *internal_fields(self, without=compared_apart), self._partition_owners()

    def _partition_owners(self) -> dict[str, dict[int, int]]:
        """Topic id -> partition -> member epoch of the partition's owner."""
        return {topic_id: dict(epochs) for topic_id, epochs in self._owner_epochs.items() if epochs}

    def _apply_target_metadata(self, group_id: str, value: Value | None) -> None:
        super()._apply_target_metadata(group_id, value)
        self._stale_state = None

    def _apply_other(self, key_type: int, key: Value, value: Value | None) -> None:
        """Store or remove a resolved expression. CONSUMER_GROUP_PARTITION_METADATA of early releases only creates the group (R-3.1)."""
        # Dropped records rely on this: pipeline/replay/redundant_assignments.py (the last value of an expression replaces those before)
        if key_type == KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION:
            if value is None:
                self.resolved_regexes.pop(key["regular_expression"], None)
            else:
                self.resolved_regexes[key["regular_expression"]] = value["topics"]

    def _apply_member(self, record_offset: int, member_id: str, value: Value | None) -> None:
        member = self.members.get(member_id)
        if value is not None:
            # Dropped records rely on this: pipeline/replay/redundant_assignments.py (a value sets nothing but the metadata)
            changed = ConsumerMember() if member is None else member.copy()
            changed.metadata = value
            self._replace_member(record_offset, member_id, member, changed)
        elif member is not None:
            # Dropped records rely on this: pipeline/replay/redundant_assignments.py (R-3.10, R-3.11: when a member can be removed)
            self._check_member_can_be_removed(member_id, member.member_epoch)
            del self.members[member_id]
            self._release_partitions(member_id, member)
            if (instance_id := member.instance_id) is not None:
                self.static_members.pop(instance_id, None)
            self._stale_state = None

    def _apply_current_assignment(self, record_offset: int, member_id: str, value: Value | None) -> None:
        # Dropped records rely on this: pipeline/replay/redundant_assignments.py (a value sets every field but the metadata)
        member = self.members.get(member_id)
        if member is None and value is None:
            return
        changed = ConsumerMember() if member is None else member.copy()
        changed.assign(value, changed.state if value is None else self._member_state(value))
        self._replace_member(record_offset, member_id, member, changed)

    def _replace_member(self, record_offset: int, member_id: str, old: ConsumerMember | None, new: ConsumerMember) -> None:
        """Store a member, as ConsumerGroup.updateMember does: every change releases and takes all partitions of the member (R-3.14).

        Raises:
            RefusalError: a partition does not belong to the member, or another member still owns a partition.
        """
        state_before: str | None = None
        new.record_offset = record_offset
        try:
            if old is not None:
                self._release_partitions(member_id, old)
            self._take_partitions(member_id, new)
            if (instance_id := new.instance_id) is not None:
                if old is not None and self._semantics.forgets_former_instance_ids:
                    self.static_members.pop(old.instance_id or "", None)
                self.static_members[instance_id] = member_id
        except RefusalError:
            state_before = self.state
            raise
        finally:
            # Kafka stores the new member before it looks at the partitions, and computes the group's state after that.
            self.members[member_id] = new
            self._stale_state = state_before

    def _release_partitions(self, member_id: str, member: ConsumerMember) -> None:
        """Remove the member as owner of its partitions. Raises RefusalError (R-3.14)."""
        keeps_others = self._semantics.newer_epoch_takes_partitions_over
        for topic_id, partitions in member.owned_partitions():
            owner_epochs = self._owner_epochs[topic_id]
            for partition in partitions:
                is_own = owner_epochs.get(partition) == member.member_epoch
                self.is_orderly &= is_own
                if is_own or not keeps_others:  # the older releases remove the owner before they look whether it is the member
                    owner_epochs.pop(partition, None)
                if not is_own and not keeps_others:
                    detail = f"Member {member_id!r} gives up partition {partition} of {topic_id}, not its at epoch {member.member_epoch}."
                    raise RefusalError("R-3.14", detail)

    def _take_partitions(self, member_id: str, member: ConsumerMember) -> None:
        """Make the member the owner of its partitions. Raises RefusalError (R-3.14)."""
        member_epoch, takes_over = member.member_epoch, self._semantics.newer_epoch_takes_partitions_over
        for topic_id, partitions in member.owned_partitions():
            owner_epochs = self._owner_epochs[topic_id]
            for partition in partitions:
                owner_epoch = owner_epochs.get(partition)
                self.is_orderly &= owner_epoch is None
                if owner_epoch is not None and (owner_epoch >= member_epoch or not takes_over):
                    if not takes_over:
                        owner_epochs[partition] = member_epoch  # these releases store the new owner before they check the old one
                    detail = f"Member {member_id!r} takes partition {partition} of topic {topic_id} at epoch {member_epoch}"
                    raise RefusalError("R-3.14", f"{detail}, while it is still owned at epoch {owner_epoch}.")
                owner_epochs[partition] = member_epoch

    @property
    def state(self) -> str:
        """The first state of R-3.15 that fits: Empty, Assigning, Reconciling, Stable."""
        if self._stale_state is not None:
            return self._stale_state
        if not self.members:
            return "Empty"
        return self._state_of_assignment()

    def protocol(self, default_assignors: DefaultAssignors) -> str:
        """Return the server-side assignor that most members name, or the broker's default if no member names one."""
        votes = Counter(member.metadata["server_assignor"] for member in self.members.values() if member.metadata is not None)
        del votes[None]
        if not votes:
            return default_assignors.consumer
        highest_count = max(votes.values())
        winners = sorted(name for name, count in votes.items() if count == highest_count)
        return next((name for name in _BUILT_IN_ASSIGNORS if name in winners), winners[0])

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members name or a stored regular expression matches, even an unused expression."""
        return super().subscribed_topics.union(*self.resolved_regexes.values())

    @property
    def regular_expressions(self) -> tuple[str, ...]:
        return tuple(sorted(self.resolved_regexes))

    def _fields_of_record(self, metadata: Value) -> dict[str, Any]:
        classic = metadata.get("classic_member_metadata")
        return super()._fields_of_record(metadata) | {
            "uses_classic_protocol": classic is not None,
            "session_timeout_ms": None if classic is None else classic["session_timeout_ms"],
            "subscribed_topic_regex": metadata.get("subscribed_topic_regex") or None,
        }

    def _member_state(self, value: Value) -> str:
        """Return the member state in a current assignment. Kafka 3.7 stored no state; its partition lists imply it."""
        if "state" in value:
            return self.member_states.get(value["state"], UNKNOWN)
        if value["partitions_pending_revocation"]:
            return "UNREVOKED_PARTITIONS"
        return "UNRELEASED_PARTITIONS" if value["partitions_pending_assignment"] else "STABLE"
