"""Virtual time: nothing happens between two events, and timers fire in the order they fall due."""

import heapq
from collections.abc import Callable
from enum import Enum


class TimerKind(Enum):
    """What a timer was waiting for."""

    INITIAL_DELAY = "initial rebalance delay"
    JOIN_PHASE = "rebalance timeout of the join phase"
    SYNC_PHASE = "rebalance timeout of the sync phase"
    SESSION = "session timeout"
    PENDING_MEMBER = "pending member id"
    CLEANUP = "offsets retention check"


class Timer:
    """One thing due at a moment. ``fire`` tells whether it did anything: a deadline that was put off meanwhile did not."""

    __slots__ = ("due_ms", "fire", "group_id", "is_cancelled", "kind", "member_id")

    def __init__(self, kind: TimerKind, due_ms: int, group_id: str, member_id: str, fire: Callable[[], bool]) -> None:
        self.kind = kind
        self.due_ms = due_ms
        self.group_id = group_id
        self.member_id = member_id
        self.fire = fire
        self.is_cancelled = False


class Clock:
    """The simulated now, in milliseconds, and the timers still to come."""

    __slots__ = ("_queue", "_sequence", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._queue: list[tuple[int, int, Timer]] = []
        self._sequence = 0

    def start(self, kind: TimerKind, delay_ms: int, group_id: str, member_id: str, fire: Callable[[], bool]) -> Timer:
        """A timer that falls due ``delay_ms`` from now; a delay of zero or less falls due at once, after the present event."""
        timer = Timer(kind, self.now_ms + max(delay_ms, 0), group_id, member_id, fire)
        self._sequence += 1
        heapq.heappush(self._queue, (timer.due_ms, self._sequence, timer))
        return timer

    def next_due_ms(self) -> int | None:
        """When the next timer falls due; None: there is none."""
        queue = self._queue
        while queue and queue[0][2].is_cancelled:
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def next_due(self, until_ms: int) -> Timer | None:
        """Takes out the next timer due at or before ``until_ms`` and sets the clock to it; None: there is no more, the clock stands."""
        queue = self._queue
        while queue and queue[0][0] <= until_ms:
            timer = heapq.heappop(queue)[2]
            if not timer.is_cancelled:
                self.now_ms = timer.due_ms
                return timer
        return None
