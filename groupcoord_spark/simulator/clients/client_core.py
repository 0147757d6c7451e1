"""What every simulated client has: its settings and its state, the connection to the coordinator, and what it needs from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, Protocol

from msgspec.structs import replace

from groupcoord_spark.assignors import NO_GENERATION, TopicPartition
from groupcoord_spark.simulator.clients.client_settings import ClientSettings
from groupcoord_spark.simulator.messages import Error
from groupcoord_spark.simulator.messages.answers import FindCoordinatorAnswer
from groupcoord_spark.simulator.messages.request_versions import Versions, known_versions
from groupcoord_spark.simulator.messages.requests import FindCoordinator, JoinGroup, Request, SyncGroup

COORDINATOR_LOST_ERRORS: Final = frozenset({Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE, Error.REQUEST_TIMED_OUT})
"""Errors after which the client looks for the coordinator again, then repeats the request."""
RETRIABLE_ERRORS: Final = COORDINATOR_LOST_ERRORS | {
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNSTABLE_OFFSET_COMMIT,
    Error.STALE_MEMBER_EPOCH,
}
FIRST_VERSION_WITH_REQUIRE_STABLE: Final = 7
MEMBERSHIP_LOST_ERRORS: Final = frozenset({Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION})
"""Errors after which the client is no longer a member and joins again."""


class Environment(Protocol):
    """What a client needs from outside: a connection to the broker, a clock with timers, and an application."""

    def send(self, client: ClientCore, request: Request, then: Callable[[Any], None], *, loses_answer: bool = False) -> None:
        """Send a request. ``then`` is called with the answer, or with None if the connection closes without an answer."""

    def name_member(self, client: ClientCore, member_id: str) -> None:
        """Set the member id that the client has generated."""

    def schedule(self, delay_ms: int, client: ClientCore, do: Callable[[], None]) -> None:
        """Call ``do`` after ``delay_ms`` milliseconds if the client is alive then."""

    def notify_application(self, client: ClientCore, text: str) -> None:
        """Report a call of the client to its application, or of the application to the client."""

    @property
    def topics(self) -> Mapping[str, int]:
        """Topic -> number of partitions, of the cluster at this moment."""

    @property
    def now_ms(self) -> int:
        """The simulated time, in milliseconds since the epoch."""


class Phase(Enum):
    """The state of a consumer's membership (AbstractCoordinator.MemberState)."""

    UNJOINED = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()
    CLOSED = auto()


class ClientCore:
    """One process with one consumer. After ``die`` the environment makes none of its scheduled calls."""

    _first_request: type = JoinGroup
    """The request type that joins the client to its group."""

    def __init__(
        self, name: str, group_id: str, settings: ClientSettings, broker_versions: Mapping[type, Versions], environment: Environment
    ) -> None:
        """Create a consumer that has not started. ``broker_versions`` gives the request versions that the broker supports."""
        self.name = name
        self.settings = settings
        self.is_alive = True
        self.frozen_until_ms = 0
        self.member_id = ""
        self.generation = NO_GENERATION
        self.phase = Phase.UNJOINED
        self.positions: dict[TopicPartition, int] = {}
        self._group_id = group_id
        self._environment = environment
        self._release = settings.release
        self._own_versions = known_versions(self._release)
        self._broker_versions = broker_versions
        self._topics: dict[str, int] = {}
        """Topic -> number of partitions, as the client knows them: it asks again after metadata.max.age.ms."""
        self._metadata_epoch = 0
        """Incremented on each metadata refresh, so that a refresh scheduled earlier is skipped."""
        self._assigned_counts: Mapping[str, int | None] | None = None
        """The topics of the group with their numbers of partitions when this client made the assignment; None: it did not make it."""
        self._subscribed_topics = settings.topics
        self._pattern = settings.topics_pattern
        self._auto_commit_is_due = False
        self._names_subscription = False
        """A client of the new protocol: the next heartbeat names the subscription."""
        self._protocol: str | None = None
        self._owned_partitions: tuple[TopicPartition, ...] = ()
        self._last_assignment: tuple[TopicPartition, ...] = ()
        """The partitions of the last assignment. The assignor ``sticky`` sends them although the consumer has revoked them."""
        self._owned_generation = NO_GENERATION
        self._join_attempt = 0
        """Goes up with each JoinGroup, so that answers to earlier attempts are ignored."""
        self._heartbeat_epoch = 0
        """Goes up when heartbeats stop or start again, so that scheduled heartbeats of an earlier membership are not sent."""
        self._needs_rejoin = False
        self._is_busy = False
        self._is_blocked = False
        self._callbacks: list[Callable[[], None]] = []
        self._last_traffic_ms: int | None = None
        """Time of the client's last request or response; None if it has no connection to the coordinator."""
        self._auto_commit_epoch = 0
        """Incremented on each auto commit, so that a commit scheduled earlier is skipped."""

    @property
    def protocol(self) -> str | None:
        """The assignor of the member's generation; None before the first answer to JoinGroup."""
        return self._protocol

    # What the layers above do

    def _poll(self) -> None:
        """Let the application poll, if it is not busy."""
        raise NotImplementedError

    def _request_rejoin(self) -> None:
        """Join the group again at the next poll."""
        raise NotImplementedError

    def _reset_membership(self, error: Error) -> None:
        """Forget the membership and its partitions, which other members may own already."""
        raise NotImplementedError

    def _fail_for_good(self, error: Error) -> None:
        self._notify_application(f"fails for good: {error.name}")
        self.phase = Phase.CLOSED
        self._heartbeat_epoch += 1

    # The connection

    def _find_coordinator(self, then: Callable[[], None]) -> None:
        def on_answer(answer: FindCoordinatorAnswer | None) -> None:
            error = Error.COORDINATOR_NOT_AVAILABLE if answer is None else answer.coordinators[0].error
            if error is Error.NONE:
                then()
            elif error not in RETRIABLE_ERRORS:
                self._fail_for_good(error)
            else:
                self._schedule(self.settings.retry_backoff_ms, lambda: self._find_coordinator(then))

        self._send(FindCoordinator((self._group_id,)), on_answer)

    def _find_coordinator_after_backoff(self, then: Callable[[], None]) -> None:
        self._schedule(self.settings.retry_backoff_ms, lambda: self._find_coordinator(then))

    def _send(self, request: Request, then: Callable[[Any], None], *, loses_answer: bool = False) -> None:
        """Send a request, in the newest version that both sides know unless it names one.

        If the connection was closed because it was idle, the client looks for the coordinator first.
        A connection is idle even while a request waits for its answer: the answer is lost when the connection is closed.
        """
        if request.version is None:
            request = replace(request, version=self._version(type(request)))
        idle_ms, now_ms = self.settings.connections_max_idle_ms, self._environment.now_ms
        was_closed = self._last_traffic_ms is not None and now_ms - self._last_traffic_ms >= idle_ms
        self._last_traffic_ms = now_ms
        if was_closed:
            self._notify_application(f"the connection to the coordinator is closed: idle for {idle_ms / 1000:g} s")
            if not isinstance(request, FindCoordinator):
                self._find_coordinator(lambda: self._send(request, then, loses_answer=loses_answer))
                return
        is_answered = False

        def on_answer(answer: Any) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered, self._last_traffic_ms = True, self._environment.now_ms
                then(answer)

        def close_if_idle() -> None:
            nonlocal is_answered
            left_ms = (self._last_traffic_ms or 0) + idle_ms - self._environment.now_ms
            if is_answered or self.phase is Phase.CLOSED:
                return
            if left_ms > 0:
                self._schedule(left_ms, close_if_idle)
                return
            is_answered = True
            self._notify_application(f"the connection to the coordinator is closed: idle for {idle_ms / 1000:g} s")
            self._last_traffic_ms = None
            then(None)

        self._environment.send(self, request, on_answer, loses_answer=loses_answer)
        if isinstance(request, JoinGroup | SyncGroup):
            self._schedule(idle_ms, close_if_idle)

    def _version(self, kind: type) -> int:
        """Return the newest request version that both the client and the broker support."""
        return min(self._own_versions[kind].newest, self._broker_versions[kind].newest)

    def _schedule(self, delay_ms: int, do: Callable[[], None]) -> None:
        self._environment.schedule(delay_ms, self, do)

    def _notify_application(self, text: str) -> None:
        self._environment.notify_application(self, text)
