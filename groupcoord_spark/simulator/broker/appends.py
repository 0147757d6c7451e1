"""Appends to the log that take time, and who waits for their results (docs/reference/coordinator.md, chapter 9.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.simulator.groups.clock import Timer
from groupcoord_spark.simulator.messages.errors import Error

LOGGED_ERRORS: Final = frozenset({Error.NONE, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.REQUEST_TIMED_OUT})
"""Results of an append after which the records are in the log of the leader. A later load of the partition finds them there."""
ERRORS_OF_REPLICATION: Final = frozenset({Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.REQUEST_TIMED_OUT})
"""Errors that only an append meets that waits for the other replicas."""
NO_VIEW: Final = object()
"""In place of a group as readers see it: the append changes no group."""


class Waiter:
    """Somebody who waits for an append. ``end`` is called once: with its result, or with REQUEST_TIMED_OUT before there is one."""

    __slots__ = ("end", "end_late", "timer")

    def __init__(self, end: Callable[[Error], None], end_late: Callable[[Error], None]) -> None:
        self.end = end
        self.end_late = end_late
        self.timer: Timer | None = None
        """Ends the wait after offsets.commit.timeout.ms; None: the append is not going to last as long."""


class AppendInFlight:
    """An append whose result is not known to those who wait for it.

    error: the result. due_ms: when it will be known. undos: what takes back the changes of the records if the append fails, in the order of
    the changes. views: group id -> the group as readers see it until the result is known; None: they see no group. deleted: offsets that
    readers still see. Only the Java coordinator has the last three.
    """

    __slots__ = ("deleted", "due_ms", "error", "group_id", "timer", "undos", "views", "waiters")

    def __init__(self, group_id: str, error: Error, due_ms: int) -> None:
        self.group_id = group_id
        self.error = error
        self.due_ms = due_ms
        self.timer: Timer | None = None
        self.undos: list[Callable[[], None]] = []
        self.views: dict[str, Any] = {}
        self.deleted: dict[OffsetKey, StoredOffset] = {}
        self.waiters: list[Waiter] = []

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
