"""One partition of ``__consumer_offsets`` that the broker leads: its groups, their offsets, and what is being written."""

from dataclasses import dataclass, field

from groupcoord_spark.coordinator.transactions import OffsetKey, OffsetStore, StoredOffset
from groupcoord_spark.simulator.broker.appends import AppendInFlight
from groupcoord_spark.simulator.groups import Group, Timer


@dataclass(slots=True, eq=False)
class OffsetsPartition:
    """One partition of ``__consumer_offsets`` that the broker leads, with its groups and their offsets."""

    number: int
    offsets: OffsetStore
    is_loading: bool = False
    next_record_offset: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    streams_initial_delays: dict[str, Timer] = field(default_factory=dict)
    """Group id -> the timer of a streams group that waits for more members. It runs on even if the group is not written."""
    appends_in_flight: list[AppendInFlight] = field(default_factory=list)
    """Oldest first."""
    failing_batch: AppendInFlight | None = None
    """The batch of a Java coordinator whose append is going to fail. What is written meanwhile goes into the same batch."""
    in_flight: dict[OffsetKey, StoredOffset] = field(default_factory=dict)
    """Commits in flight: their records are being appended. Of two commits of the same key the later one is here."""
    deleted_in_flight: dict[OffsetKey, StoredOffset] = field(default_factory=dict)
    """Commits in flight that a deletion has overtaken. It may still be taken back."""
    producers_with_open_transaction: dict[str, set[int]] = field(default_factory=dict)
    """Group id -> producer ids whose open transaction has staged offsets of the group, even if all of these offsets were deleted since.
    Only the rules of Scala brokers ask for it."""

    def pending_partitions(self, group_id: str) -> list[tuple[str, int]]:
        """(topic, partition) of the group's pending offsets."""
        return [(topic, partition) for pending_group, topic, partition in self.offsets.pending if pending_group == group_id]

    def last_append(self) -> AppendInFlight | None:
        """The append whose end is the end of all that was written so far; None: nothing is in flight."""
        return self.failing_batch or max(self.appends_in_flight, key=lambda append: append.due_ms, default=None)

    def shown_groups(self) -> dict[str, Group | None]:
        """Group id -> the group as readers see it: a change of a Java coordinator is seen when its records are replicated."""
        groups: dict[str, Group | None] = {**self.groups}
        for append in reversed(self.appends_in_flight):
            groups.update(append.views)
        return groups
