"""Rebalances of a classic group: one row for each record with a new generation or other members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from groupcoord_spark.coordinator.rebalances.causes import Reason, names_of
from groupcoord_spark.coordinator.rebalances.converted import ConvertedGroup
from groupcoord_spark.coordinator.rebalances.generation_causes import cause_of_generation, ranges_of_new, with_circumstances
from groupcoord_spark.coordinator.rebalances.generations import Generation, is_same_membership, moves_from_nothing, partitions_that_changed
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN, GroupRecord, Value
from groupcoord_spark.coordinator.rebalances.moves import Moves, Partitions, moves_between, partition_counts, union_of
from groupcoord_spark.coordinator.rebalances.rows import Rebalance, elapsed_ms, row_of


class ClassicGenerations:
    """The present generation of a classic group. Apply the group's records in order."""

    group_type = "classic"

    def __init__(self, before: ConvertedGroup | None) -> None:
        self._before = before
        self._now: Generation | None = None
        self._partition_counts: dict[str, int] = {}
        """Topic -> one more than the highest partition that a member ever had; connector -> one more than its highest task."""
        self._was_converted = False
        self.is_removed = False
        self.removed_at_ms = NOT_KNOWN

    @property
    def generation(self) -> int | None:
        return None if self._now is None else int(self._now.value["generation"])

    @property
    def timestamp_ms(self) -> int:
        return NOT_KNOWN if self._now is None else self._now.timestamp_ms

    @property
    def members_of_generation(self) -> Mapping[str, Value]:
        return {} if self._now is None else self._now.members

    def apply(self, record: GroupRecord) -> Rebalance | None:
        """The rebalance that the record begins; None: a tombstone, the creation of the group, or no new generation."""
        if record.value is None:
            self.is_removed, self.removed_at_ms = True, record.timestamp_ms
            return None
        old = self._now
        new = Generation(record.value, record.timestamp_ms, record.leader_epoch, old)
        self._now = new
        if old is None:
            if not new.members and self._before is None and new.value["generation"] == 0:
                return None  # 4.x writes this record when it creates a group, before the first rebalance.
            row = self._first(record, new)
            self._before = None
            self._learn_partition_counts(new.partitions_of(member_id) for member_id in new.members)
        elif old.value["generation"] == new.value["generation"] and is_same_membership(old, new):
            new.timestamp_ms, new.join_ended_ms, new.has_join_end = old.timestamp_ms, old.join_ended_ms, old.has_join_end
            self._keep_decoded_partitions(old, new)
            return None  # A static member came back under a new id (2.7 and later), or the same record was written again.
        else:
            row = self._next(record, old, new)
        return row

    def _first(self, record: GroupRecord, new: Generation) -> Rebalance:
        before, generation = self._before, new.value["generation"]
        if before is not None:
            reason = Reason("group_converted", "certain", f"The group was a {before.group_type} group up to epoch {before.generation}.")
            since = elapsed_ms(before.timestamp_ms, record.timestamp_ms)
            self._was_converted = True
            return _classic_row(record, None, new, before.generation, since, before.members, None, reason)
        if generation == 1 and new.members:
            reason = Reason("member_joined", "certain", f"First generation of the group: {names_of(new.members)} joined.")
            return _classic_row(record, None, new, None, None, (), moves_from_nothing(new), reason)
        reason = Reason("unknown", None, "No record of the generation before is known: the log was compacted, or begins here.")
        return _classic_row(record, None, new, None, None, None, None, reason)

    def _next(self, record: GroupRecord, old: Generation, new: Generation) -> Rebalance:
        before, after = partitions_that_changed(old, new)
        moves = moves_between(before, after)
        # Nearly every generation has no new partition, and this runs for each generation.
        with_new = [partitions for partitions in after.values() if self._has_new_partition(partitions)]
        new_partitions = ranges_of_new(union_of(with_new), self._partition_counts) if with_new else []
        reason = cause_of_generation(old, new, moves, new_partitions, was_converted=self._was_converted)
        reason = with_circumstances(reason, old, new)
        self._was_converted = False
        self._learn_partition_counts(with_new)
        since = elapsed_ms(old.timestamp_ms, new.timestamp_ms)
        return _classic_row(record, old, new, old.value["generation"], since, old.members, moves, reason)

    def _keep_decoded_partitions(self, old: Generation, new: Generation) -> None:
        for member_id, member in new.members.items():
            if old.members.get(member_id) == member and member_id in old.partitions:
                new.partitions[member_id] = old.partitions[member_id]

    def _has_new_partition(self, partitions: Partitions) -> bool:
        """Whether no member ever had one of these partitions before."""
        known_counts = self._partition_counts
        return any(count > known_counts.get(topic, NOT_KNOWN) for topic, count in partition_counts(partitions))

    def _learn_partition_counts(self, of_members: Iterable[Partitions]) -> None:
        for partitions in of_members:
            for topic, count in partition_counts(partitions):
                self._partition_counts[topic] = max(count, self._partition_counts.get(topic, NOT_KNOWN))


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
    leader, protocol = (None, None) if old is None else (old.value["leader"], old.value["protocol"])
    return row_of(
        record, "classic", "generation", value["protocol_type"] or None, from_generation, value["generation"], since_ms,
        members_before, new.members, (leader, value["leader"]), (protocol, value["protocol"]), moves, reason,
    )  # fmt: skip
