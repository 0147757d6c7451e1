"""Classic groups, generation after generation: each record of one that is no repetition brings a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from groupcoord_spark.coordinator.rebalances.converted import Converted
from groupcoord_spark.coordinator.rebalances.findings import Finding, names_of
from groupcoord_spark.coordinator.rebalances.generation_causes import cause_of_generation, never_had, with_circumstances
from groupcoord_spark.coordinator.rebalances.generations import Generation, holdings_that_changed, is_same_membership, moves_from_nothing
from groupcoord_spark.coordinator.rebalances.moves import Holding, Moves, all_of, moves_between, partition_counts
from groupcoord_spark.coordinator.rebalances.records import NOT_KNOWN, GroupRecord, Value
from groupcoord_spark.coordinator.rebalances.rows import Rebalance, elapsed_ms, row_of


class ClassicLife:
    """A classic group, generation after generation."""

    group_type = "classic"

    def __init__(self, before: Converted | None) -> None:
        self._before = before
        self._now: Generation | None = None
        self._partition_counts: dict[str, int] = {}
        """Topic -> one more than the last partition that a member ever had; connector -> its tasks."""
        self._was_converted = False
        self.is_gone = False
        self.gone_at_ms = NOT_KNOWN

    @property
    def generation(self) -> int | None:
        return None if self._now is None else int(self._now.value["generation"])

    @property
    def timestamp_ms(self) -> int:
        return NOT_KNOWN if self._now is None else self._now.timestamp_ms

    @property
    def members_at_change(self) -> Mapping[str, Value]:
        return {} if self._now is None else self._now.members

    def apply(self, record: GroupRecord) -> Rebalance | None:
        if record.value is None:
            self.is_gone, self.gone_at_ms = True, record.timestamp_ms
            return None
        old = self._now
        new = Generation(record.value, record.timestamp_ms, record.leader_epoch, old)
        self._now = new
        if old is None:
            if not new.members and self._before is None and new.value["generation"] == 0:
                return None  # the group's creation (4.x): no generation has come to an end yet
            row = self._first(record, new)
            self._before = None
            self._learn_partition_counts(new.holding(member_id) for member_id in new.members)
        elif old.value["generation"] == new.value["generation"] and is_same_membership(old, new):
            new.timestamp_ms, new.join_ended_ms, new.tells_join_end = old.timestamp_ms, old.join_ended_ms, old.tells_join_end
            self._keep_holdings(old, new)
            return None  # a static member was replaced (2.7+), or the same was written again: no rebalance
        else:
            row = self._next(record, old, new)
        return row

    def _first(self, record: GroupRecord, new: Generation) -> Rebalance:
        before, generation = self._before, new.value["generation"]
        if before is not None:
            finding = Finding("group_converted", "certain", f"The group was a {before.group_type} group up to epoch {before.generation}.")
            since = elapsed_ms(before.timestamp_ms, record.timestamp_ms)
            self._was_converted = True
            return _classic_row(record, None, new, before.generation, since, before.members, None, finding)
        if generation == 1 and new.members:
            finding = Finding("member_joined", "certain", f"First generation of the group: {names_of(new.members)} joined.")
            return _classic_row(record, None, new, None, None, (), moves_from_nothing(new), finding)
        finding = Finding("unknown", None, "No record of the generation before is known: the log was compacted, or begins here.")
        return _classic_row(record, None, new, None, None, None, None, finding)

    def _next(self, record: GroupRecord, old: Generation, new: Generation) -> Rebalance:
        before, after = holdings_that_changed(old, new)
        moves = moves_between(before, after)
        # nearly always none, and this runs for every generation
        going_beyond = [held for held in after.values() if self._goes_beyond(held)]
        new_places = never_had(all_of(going_beyond), self._partition_counts) if going_beyond else []
        finding = cause_of_generation(old, new, moves, new_places, was_converted=self._was_converted)
        finding = with_circumstances(finding, old, new)
        self._was_converted = False
        self._learn_partition_counts(going_beyond)
        since = elapsed_ms(old.timestamp_ms, new.timestamp_ms)
        return _classic_row(record, old, new, old.value["generation"], since, old.members, moves, finding)

    def _keep_holdings(self, old: Generation, new: Generation) -> None:
        for member_id, member in new.members.items():
            if old.members.get(member_id) == member and member_id in old.held:
                new.held[member_id] = old.held[member_id]

    def _goes_beyond(self, held: Holding) -> bool:
        known = self._partition_counts
        return any(count > known.get(topic, NOT_KNOWN) for topic, count in partition_counts(held))

    def _learn_partition_counts(self, holdings: Iterable[Holding]) -> None:
        for held in holdings:
            for topic, count in partition_counts(held):
                self._partition_counts[topic] = max(count, self._partition_counts.get(topic, NOT_KNOWN))


def _classic_row(
    record: GroupRecord,
    old: Generation | None,
    new: Generation,
    from_generation: int | None,
    since_ms: int | None,
    members_before: Collection[str] | None,
    moves: Moves | None,
    finding: Finding,
) -> Rebalance:
    value = new.value
    leader, protocol = (None, None) if old is None else (old.value["leader"], old.value["protocol"])
    return row_of(
        record, "classic", "generation", value["protocol_type"] or None, from_generation, value["generation"], since_ms,
        members_before, new.members, (leader, value["leader"]), (protocol, value["protocol"]), moves, finding,
    )  # fmt: skip
