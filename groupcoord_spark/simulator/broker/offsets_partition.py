"""A partition of ``__consumer_offsets`` that the broker leads, and its appends in flight (docs/reference/coordinator.md, chapter 9.7)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from groupcoord_spark.coordinator.transactions import OffsetKey, OffsetStore, StoredOffset
from groupcoord_spark.simulator.groups import Group, Timer
from groupcoord_spark.simulator.messages import Error

LOGGED_ERRORS: Final = frozenset({Error.NONE, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.REQUEST_TIMED_OUT})
"""Results of an append after which the records are in the log of the leader. A later load of the partition finds them there."""
ERRORS_OF_REPLICATION: Final = frozenset({Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.REQUEST_TIMED_OUT})
"""Errors that only an append meets that waits for the other replicas."""
NO_VIEW: Final = object()
"""In place of a group as readers see it: the append changes no group."""


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who waits for an append. ``end`` is called once: with its result, or with REQUEST_TIMED_OUT before there is one."""

    end: Callable[[Error], None]
    end_late: Callable[[Error], None]
    timer: Timer | None = None
    """Ends the wait after offsets.commit.timeout.ms; None: the append is not going to last as long."""


@dataclass(slots=True, eq=False)
class AppendInFlight:
    """An append whose result is not known to those who wait for it. Only the Java coordinator has undos, views and deleted offsets."""

    group_id: str
    error: Error
    """The result."""
    due_ms: int
    """When the result will be known."""
    timer: Timer | None = None
    undos: list[Callable[[], None]] = field(default_factory=list)
    """What takes back the changes of the records if the append fails, in the order of the changes."""
    views: dict[str, Any] = field(default_factory=dict)
    """Group id -> the group as readers see it until the result is known; None: they see no group."""
    deleted: dict[OffsetKey, StoredOffset] = field(default_factory=dict)
    """Offsets that readers still see."""
    waiters: list[Waiter] = field(default_factory=list)

    def finish(self, error: Error) -> None:
        """Complete the append: undo the changes if it failed, then answer the waiting requests."""
        if error not in LOGGED_ERRORS:
            for undo in reversed(self.undos):
                undo()
        for waiter in self.waiters:
            if waiter.timer is not None and waiter.timer.is_fired:
                waiter.end_late(error)
                continue
            if waiter.timer is not None:
                waiter.timer.is_cancelled = True
            waiter.end(error)


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
    """The batch of a Java coordinator whose append will fail. Records written in the meantime join the same batch."""
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
        """Return the append that completes last, or None if no append is in flight."""
        return self.failing_batch or max(self.appends_in_flight, key=lambda append: append.due_ms, default=None)

    def shown_groups(self) -> dict[str, Group | None]:
        """Group id -> the group as readers see it: a change of a Java coordinator is seen when its records are replicated."""
        groups: dict[str, Group | None] = {**self.groups}
        for append in reversed(self.appends_in_flight):
            groups.update(append.views)
        return groups
