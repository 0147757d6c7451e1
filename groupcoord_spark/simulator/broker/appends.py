"""Appends to the log that take time, and who waits for their results (docs/reference/coordinator.md, chapter 9.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.simulator.groups import Timer
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
        """The result is known: take back the changes if the append has failed, and tell those who wait."""
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
