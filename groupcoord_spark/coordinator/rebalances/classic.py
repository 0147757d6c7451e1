"""Rebalances of a classic group: one row for each record with a new generation or other members."""

from collections.abc import Collection, Mapping
from functools import lru_cache

from groupcoord_spark.coordinator.groups.classic import CONSUMER
from groupcoord_spark.coordinator.groups.group import Value
from groupcoord_spark.coordinator.rebalances.causes import Reason, names_of
from groupcoord_spark.coordinator.rebalances.generation_causes import cause_of_generation, ranges_of, with_circumstances
from groupcoord_spark.coordinator.rebalances.generations import Generation, is_same_membership, partitions_that_changed
from groupcoord_spark.coordinator.rebalances.group_life import GroupLife
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN, ConvertedGroup, GroupRecord
from groupcoord_spark.coordinator.rebalances.moves import Moves, PartitionSet, moves_between
from groupcoord_spark.coordinator.rebalances.rows import Rebalance, change_between, elapsed_ms, row_of
from groupcoord_spark.protocol import subscribed_topics
from groupcoord_spark.protocol.errors import DecodeError


class ClassicGenerations(GroupLife):
    """The present generation of a classic group. Apply the group's records in order."""

    group_type = "classic"

    def __init__(self, former_group: ConvertedGroup | None) -> None:
        super().__init__()
        self._former_group = former_group
        self._now: Generation | None = None
        self._was_converted = False

    @property
    def generation(self) -> int | None:
        return None if self._now is None else int(self._now.value["generation"])

    @property
    def timestamp_ms(self) -> int:
        return NOT_KNOWN if self._now is None else self._now.timestamp_ms

    @property
    def members(self) -> Mapping[str, Value]:
        return {} if self._now is None else self._now.members

    members_of_generation = members

    @property
    def protocol_type(self) -> str | None:  # type: ignore[override]
        return None if self._now is None else self._now.value["protocol_type"] or None

    @property
    def state_timestamp_ms(self) -> int | None:
        timestamp_ms = NOT_KNOWN if self._now is None else self._now.value.get("current_state_timestamp_ms", NOT_KNOWN)
        return None if timestamp_ms == NOT_KNOWN else timestamp_ms

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        subscriptions = {member["subscription"] for member in self.members.values()}  # mostly one: all members subscribe to the same topics
        topics = [*map(_subscription, subscriptions)]
        return None if None in topics else frozenset[str]().union(*(of_member for of_member in topics if of_member is not None))

    def partitions_of(self, member_id: str) -> PartitionSet:
        return frozenset() if self._now is None else self._now.partitions_of(member_id)

    def apply(self, record: GroupRecord) -> Rebalance | None:
        """Apply a record. Return the rebalance that it starts, or None for a tombstone, a new group or an unchanged generation."""
        if record.value is None:
            self.is_removed, self.removed_at_ms = True, record.timestamp_ms
            return None
        old = self._now
        new = self._now = Generation(record.value, record.timestamp_ms, record.leader_epoch)
        self.had_members = self.had_members or bool(new.members)
        if old is None:
            if not new.members and self._former_group is None and new.value["generation"] == 0:
                return None  # 4.x writes this record when it creates a group, before the first rebalance.
            return self._first(record, new)
        if old.value["generation"] == new.value["generation"] and is_same_membership(old, new):
            new.timestamp_ms, new.join_ended_ms, new.has_join_end = old.timestamp_ms, old.join_ended_ms, old.has_join_end
            return None  # A static member came back under a new id (2.7 and later), or the same record was written again.
        return self._next(record, old, new)

    def _first(self, record: GroupRecord, new: Generation) -> Rebalance:
        former_group, self._former_group = self._former_group, None
        partitions_after = {member_id: new.partitions_of(member_id) for member_id in new.members}
        self._new_partitions(partitions_after)
        if former_group is not None:
            former = f"The group was a {former_group.group_type} group up to epoch {former_group.generation}."
            since_ms = elapsed_ms(former_group.timestamp_ms, record.timestamp_ms)
            self._was_converted = True
            reason = Reason("group_converted", "certain", former)
            return _classic_row(record, None, new, former_group.generation, since_ms, former_group.members, None, reason)
        if new.value["generation"] == 1 and new.members:
            reason = Reason("member_joined", "certain", f"First generation of the group: {names_of(new.members)} joined.")
            return _classic_row(record, None, new, None, None, (), moves_between({}, partitions_after), reason)
        reason = Reason("unknown", None, "No record of the generation before is known: the log was compacted, or begins here.")
        return _classic_row(record, None, new, None, None, None, None, reason)

    def _next(self, record: GroupRecord, old: Generation, new: Generation) -> Rebalance:
        partitions_before, partitions_after = partitions_that_changed(old, new)
        moves = moves_between(partitions_before, partitions_after)
        self._end_assignments(record.timestamp_ms, partitions_before)
        new_partitions = ranges_of(self._new_partitions(partitions_after))
        reason = cause_of_generation(old, new, moves, new_partitions, was_converted=self._was_converted)
        reason = with_circumstances(reason, old, new)
        self._was_converted = False
        since_ms = elapsed_ms(old.timestamp_ms, new.timestamp_ms)
        return _classic_row(record, old, new, old.value["generation"], since_ms, old.members, moves, reason)


def _classic_row(
    record: GroupRecord,
    old: Generation | None,
    new: Generation,
    from_generation: int | None,
    since_ms: int | None,
    members_before: Collection[str] | None,
    moves: Moves | None,
    reason: Reason,
) -> Rebalance:
    value = new.value
    leader_before, protocol_before = (None, None) if old is None else (old.value["leader"], old.value["protocol"])
    return row_of(
        record,
        change_between(members_before, new.members),
        moves,
        reason,
        group_type="classic",
        kind="generation",
        protocol_type=value["protocol_type"] or None,
        from_generation=from_generation,
        to_generation=value["generation"],
        since_previous_ms=since_ms,
        previous_leader_id=leader_before,
        leader_id=value["leader"],
        previous_protocol=protocol_before,
        protocol=value["protocol"],
    )


@lru_cache(maxsize=4096)
def _subscription(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of a member's subscription, or None if the bytes are malformed."""
    try:
        return subscribed_topics(subscription)
    except (ValueError, DecodeError):
        return None
