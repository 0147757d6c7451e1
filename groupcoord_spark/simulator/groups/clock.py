"""Simulated time, and the timers that fire as it passes, in the order of their due times."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class TimerKind(Enum):
    """What a timer ends."""

    INITIAL_DELAY = "initial rebalance delay"
    JOIN_PHASE = "rebalance timeout of the join phase"
    SYNC_PHASE = "rebalance timeout of the sync phase"
    SESSION = "session timeout"
    REVOCATION = "rebalance timeout of a revocation"
    REGEX = "resolution of regular expressions"
    SHARE_STATE = "creation of share state"
    INTERNAL_TOPICS = "creation of internal topics"
    PENDING_MEMBER = "pending member id"
    APPEND = "append to the log"
    OFFSETS_TOPIC = "creation of __consumer_offsets"
    CLEANUP = "offsets retention check"


@dataclass(slots=True, eq=False)
class Timer:
    """A timer. ``fire`` returns False if it changed nothing, because the deadline behind the timer has moved."""

    kind: TimerKind
    due_ms: int
    group_id: str
    member_id: str
    fire: Callable[[], bool]
    is_cancelled: bool = False
    is_fired: bool = False


@dataclass(slots=True, eq=False)
class Clock:
    """The simulated time in milliseconds since the epoch, and the timers that have not fired."""

    now_ms: int
    _queue: list[tuple[int, int, Timer]] = field(default_factory=list)
    _sequence: int = 0

    def start(self, kind: TimerKind, delay_ms: int, group_id: str, member_id: str, fire: Callable[[], bool]) -> Timer:
        """Start a timer that is due in ``delay_ms`` milliseconds; with zero or less it is due now, and fires after the current event."""
        timer = Timer(kind, self.now_ms + max(delay_ms, 0), group_id, member_id, fire)
        self._enqueue(timer)
        return timer

    def _enqueue(self, timer: Timer) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (timer.due_ms, self._sequence, timer))

    def revive(self, timer: Timer) -> None:
        """Let a cancelled timer run again. If its time has passed, it is due now."""
        timer.is_cancelled = False
        if any(queued is timer for _, _, queued in self._queue):
            return
        timer.due_ms = max(timer.due_ms, self.now_ms)
        self._enqueue(timer)

    def timers(self) -> list[Timer]:
        """Return the pending timers in the order of their due times."""
        return [timer for _, _, timer in sorted(self._queue, key=lambda entry: entry[:2]) if not timer.is_cancelled]

    def next_due_ms(self) -> int | None:
        """Return the due time of the next timer, or None."""
        queue = self._queue
        while queue and queue[0][2].is_cancelled:
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def take_next_due(self, until_ms: int) -> Timer | None:
        """Remove the next timer that is due at or before ``until_ms`` and set the clock to its due time.

        Returns None if no timer is due; then the clock is not changed.
        """
        queue = self._queue
        while queue and queue[0][0] <= until_ms:
            timer = heapq.heappop(queue)[2]
            if not timer.is_cancelled:
                self.now_ms = timer.due_ms
                timer.is_fired = True
                return timer
        return None
