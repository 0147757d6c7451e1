"""A simulated consumer of the classic protocol: what the Java client (3.0 and later) sends, and does with the coordinator's answers.

The thread of the application polls all the time, except while it is busy or blocked in commitSync. Heartbeats come from a thread of their
own. The client reports calls of rebalance listeners and commit callbacks, and exceptions, to its ``Environment``.
Rules: docs/reference/coordinator.md, chapters 9.5 and 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from groupcoord_spark import assignors
from groupcoord_spark.assignors import CLIENT_ASSIGNORS, NO_GENERATION, TopicPartition
from groupcoord_spark.protocol.consumer_protocol import (
    Assignment,
    Partitions,
    StickyUserData,
    Subscription,
    decode_assignment,
    decode_cooperative_sticky_generation,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_sticky_generation,
    encode_sticky_user_data,
    encode_subscription,
)
from groupcoord_spark.simulator.answers import (
    FindCoordinatorAnswer,
    HeartbeatAnswer,
    JoinedMember,
    JoinGroupAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    SyncGroupAnswer,
)
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.requests import (
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Request,
    SyncGroup,
)

COOPERATIVE: Final = "cooperative-sticky"
_PROTOCOL_VERSION: Final = 3  # ConsumerProtocol of clients since 3.4

COORDINATOR_LOST_ERRORS: Final = frozenset({Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE, Error.REQUEST_TIMED_OUT})
"""Errors after which the client looks for the coordinator again, then repeats the request."""
RETRIABLE_ERRORS: Final = COORDINATOR_LOST_ERRORS | {
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNSTABLE_OFFSET_COMMIT,
}
MEMBERSHIP_LOST_ERRORS: Final = frozenset({Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION})
"""Errors after which the client is no longer a member and joins again."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a consumer, with Kafka's names and the defaults since 3.0."""

    topics: tuple[str, ...] = ()
    client_id: str = ""
    group_instance_id: str | None = None
    client_rack: str | None = None
    partition_assignment_strategy: tuple[str, ...] = ("range", COOPERATIVE)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    default_api_timeout_ms: int = 60_000
    enable_auto_commit: bool = False

    @property
    def is_cooperative(self) -> bool:
        """Whether the consumer keeps its partitions during a rebalance: if all its assignors are cooperative (KIP-429)."""
        return set(self.partition_assignment_strategy) == {COOPERATIVE}


class Environment(Protocol):
    """What a client needs from outside: a connection to the broker, a clock with timers, and an application."""

    def send(self, client: Consumer, request: Request, then: Callable[[Any], None], *, loses_answer: bool = False) -> None:
        """Send a request. ``then`` is called with the answer, or with None if the connection closes without an answer."""

    def schedule(self, delay_ms: int, client: Consumer, do: Callable[[], None]) -> None:
        """Call ``do`` after ``delay_ms`` milliseconds if the client is alive then."""

    def notify_application(self, client: Consumer, text: str) -> None:
        """Report a call of the client to its application, or of the application to the client."""

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


class Consumer:
    """One process with one consumer. After ``die`` the environment makes none of its scheduled calls."""

    def __init__(self, name: str, group_id: str, settings: ClientSettings, topics: Mapping[str, int], environment: Environment) -> None:
        """A consumer that has not started. ``topics``: topic -> number of partitions in the cluster, which the leader assigns."""
        self.name = name
        self.settings = settings
        self.is_alive = True
        self.frozen_until_ms = 0
        self.member_id = ""
        self.generation = NO_GENERATION
        self.phase = Phase.UNJOINED
        self.positions: dict[TopicPartition, int] = {}
        self._group_id = group_id
        self._topics = topics
        self._environment = environment
        self._subscribed_topics = settings.topics
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

    # What the application does

    def start(self) -> None:
        """Subscribe and poll."""
        self._find_coordinator(self._join)

    def die(self) -> None:
        """End the process. Nothing is sent."""
        self.is_alive = False

    def close(self) -> None:
        """close(): commit the positions if enable.auto.commit is set, and leave the group if the member is dynamic."""
        if self.settings.enable_auto_commit and self._owned_partitions:
            self._commit_ignoring_errors(self._leave_and_stop)
        else:
            self._leave_and_stop()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription. The next poll joins the group again with it."""
        self._subscribed_topics = tuple(topics)
        self._request_rejoin()

    def process(self, records: int) -> None:
        """Advance the position of each owned partition by this many records."""
        for partition in self.positions:
            self.positions[partition] += records
        self._notify_application(
            f"processes to {_offsets_text(self.positions)}" if self.positions else "holds no partition, processes nothing"
        )

    def stop_polling(self, duration_ms: int) -> None:
        """Do not poll for ``duration_ms``. After max.poll.interval.ms the heartbeat thread leaves the group (KIP-62)."""
        self._is_busy = True
        self._notify_application(f"does not poll for {duration_ms / 1000:g} s")
        if duration_ms > self.settings.max_poll_interval_ms:
            self._schedule(self.settings.max_poll_interval_ms, self._poll_expired)
        self._schedule(duration_ms, self._resume_polling)

    def commit(
        self, offsets: Mapping[TopicPartition, int] | None, *, is_sync: bool, loses_answer: bool = False, retry_after_ms: int | None = None
    ) -> None:
        """commitSync or commitAsync.

        Args:
            offsets: None: the positions of all owned partitions.
            loses_answer: the connection closes after the broker has received the request.
            retry_after_ms: how long after a callback with a retriable error the application commits the same offsets again; None: never.
        """
        to_commit = dict(self.positions if offsets is None else offsets)
        call = f"{'commitSync' if is_sync else 'commitAsync'}({_offsets_text(to_commit)})"
        self._run_callbacks()
        if not to_commit:
            self._notify_application(f"{call}: nothing to commit")
            return
        commit = _PendingCommit(
            call, to_commit, is_sync, self._environment.now_ms + self.settings.default_api_timeout_ms, loses_answer, retry_after_ms
        )
        self._is_blocked = is_sync
        self._send_commit(commit)

    def fetch(self) -> None:
        """committed(): get the committed offsets of the owned partitions."""
        self._fetch_offsets(self._owned_partitions, is_committed_call=True)

    # Finding the coordinator, joining, syncing

    def _find_coordinator(self, then: Callable[[], None]) -> None:
        def on_answer(answer: FindCoordinatorAnswer | None) -> None:
            if answer is not None and answer.coordinators[0].error is Error.NONE:
                then()
            else:
                self._schedule(self.settings.retry_backoff_ms, lambda: self._find_coordinator(then))

        self._environment.send(self, FindCoordinator((self._group_id,)), on_answer)

    def _find_coordinator_after_backoff(self, then: Callable[[], None]) -> None:
        self._schedule(self.settings.retry_backoff_ms, lambda: self._find_coordinator(then))

    def _join(self) -> None:
        if self.phase is Phase.CLOSED:
            return
        self._needs_rejoin = False
        self.phase = Phase.JOINING
        self._join_attempt += 1
        self._heartbeat_epoch += 1
        attempt = self._join_attempt
        request = JoinGroup(
            self._group_id,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
            protocols=tuple((name, self._subscription(name)) for name in self.settings.partition_assignment_strategy),
            client_id=self.settings.client_id,
        )
        self._environment.send(self, request, lambda answer: self._on_join(answer) if attempt == self._join_attempt else None)

    def _subscription(self, assignor: str) -> bytes:
        user_data = None
        if assignor == "sticky" and self._owned_generation != NO_GENERATION:
            user_data = encode_sticky_user_data(StickyUserData(_by_topic(self._last_assignment), self._owned_generation))
        elif assignor == COOPERATIVE:
            user_data = encode_cooperative_sticky_generation(self._owned_generation)
        owned = self._owned_partitions if self.settings.is_cooperative else ()
        generation = self._owned_generation if self.settings.is_cooperative else NO_GENERATION
        return encode_subscription(
            Subscription(_PROTOCOL_VERSION, self._subscribed_topics, user_data, _by_topic(owned), generation, self.settings.client_rack)
        )

    def _on_join(self, answer: JoinGroupAnswer | None) -> None:
        error = Error.REQUEST_TIMED_OUT if answer is None else answer.error
        if answer is not None and error is Error.NONE:
            self.member_id, self.generation, self._protocol = answer.member_id, answer.generation, answer.protocol
            self.phase = Phase.SYNCING
            self._start_heartbeats()
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            self._sync(self._assign(answer.members) if leads else ())
        elif answer is not None and error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif error is Error.UNKNOWN_MEMBER_ID:
            self._reset_membership(error)
            self._join()
        else:
            self._join_again_or_fail(error)

    def _assign(self, joined: Iterable[JoinedMember]) -> tuple[tuple[str, bytes], ...]:
        members = [_assignor_member(member, self._protocol or "") for member in joined]
        cluster = {name: assignors.Topic(partitions) for name, partitions in self._topics.items()}
        assignment = CLIENT_ASSIGNORS[self._protocol or ""](members, cluster)
        return tuple(
            (member_id, encode_assignment(Assignment(_PROTOCOL_VERSION, _by_topic(partitions), None)))
            for member_id, partitions in assignment.items()
        )

    def _sync(self, assignments: tuple[tuple[str, bytes], ...]) -> None:
        attempt = self._join_attempt
        request = SyncGroup(
            self._group_id,
            self.generation,
            self.member_id,
            self.settings.group_instance_id,
            protocol_type="consumer",
            protocol=self._protocol,
            assignments=assignments,
        )
        self._environment.send(self, request, lambda answer: self._on_sync(answer) if attempt == self._join_attempt else None)

    def _on_sync(self, answer: SyncGroupAnswer | None) -> None:
        error = Error.REQUEST_TIMED_OUT if answer is None else answer.error
        if answer is not None and error is Error.NONE:
            self.phase = Phase.STABLE
            assignment = decode_assignment(answer.assignment)
            self._apply_assignment(tuple(_topic_partitions(assignment.partitions)) if assignment is not None else ())
        elif error in MEMBERSHIP_LOST_ERRORS:
            self._reset_membership(error)
            self._join()
        else:
            self._join_again_or_fail(error)

    def _join_again_or_fail(self, error: Error) -> None:
        """Handle an error of JoinGroup or SyncGroup after which the member keeps its member id."""
        if error is Error.REBALANCE_IN_PROGRESS:
            self._join()
        elif error in COORDINATOR_LOST_ERRORS:
            self._find_coordinator_after_backoff(self._join)
        elif error is Error.COORDINATOR_LOAD_IN_PROGRESS:
            self._schedule(self.settings.retry_backoff_ms, self._join)
        else:
            self._fail_for_good(error)

    def _apply_assignment(self, assigned: tuple[TopicPartition, ...]) -> None:
        added = tuple(partition for partition in assigned if partition not in self._owned_partitions)
        revoked = tuple(partition for partition in self._owned_partitions if partition not in assigned)
        self._owned_partitions, self._last_assignment, self._owned_generation = assigned, assigned, self.generation
        for partition in revoked:
            self.positions.pop(partition, None)
        if revoked:
            self._notify_application(f"onPartitionsRevoked({partitions_text(revoked)})")
        self._notify_application(f"onPartitionsAssigned({partitions_text(added)})")
        self._fetch_offsets(added)
        if revoked:
            # The leader may assign a revoked partition only after its owner has joined again: the second rebalance of KIP-429.
            self._needs_rejoin = True
        self._poll()

    # Rebalances and the end of a membership

    def _request_rejoin(self) -> None:
        self._needs_rejoin = True
        self._poll()

    def _poll(self) -> None:
        if self._is_busy or self._is_blocked:
            return
        self._run_callbacks()
        if self._needs_rejoin and self.phase in (Phase.STABLE, Phase.UNJOINED, Phase.SYNCING):
            self._needs_rejoin = False
            if self.settings.enable_auto_commit and self._owned_partitions:
                self._commit_ignoring_errors(self._revoke_and_join)
            else:
                self._revoke_and_join()

    def _revoke_and_join(self) -> None:
        if not self.settings.is_cooperative:
            if self._owned_partitions:
                self._notify_application(f"onPartitionsRevoked({partitions_text(self._owned_partitions)})")
            self.positions.clear()
            self._owned_partitions = ()
        self._join()

    def _reset_membership(self, error: Error) -> None:
        """Forget the membership and its partitions, which other members may own already."""
        if error is not Error.ILLEGAL_GENERATION:
            self.member_id = ""
        self.generation = self._owned_generation = NO_GENERATION
        self.phase = Phase.UNJOINED
        self._heartbeat_epoch += 1
        self._join_attempt += 1
        if self._owned_partitions:
            self._notify_application(f"onPartitionsLost({partitions_text(self._owned_partitions)})")
        self._owned_partitions = ()
        self.positions.clear()

    def _fail_for_good(self, error: Error) -> None:
        self._notify_application(f"fails for good: {error.name}")
        self.phase = Phase.CLOSED
        self._heartbeat_epoch += 1

    def _leave_and_stop(self) -> None:
        # A static member sends no LeaveGroup (KIP-345): it may come back within its session timeout.
        if self.member_id and self.settings.group_instance_id is None and self.phase is not Phase.CLOSED:
            self._send_leave_group()
        self.phase = Phase.CLOSED
        self._heartbeat_epoch += 1
        self._schedule(0, self.die)

    def _send_leave_group(self) -> None:
        self._environment.send(self, LeaveGroup(self._group_id, (Leaving(self.member_id),)), lambda answer: None)

    def _poll_expired(self) -> None:
        if not self._is_busy or self.phase is Phase.CLOSED:
            return
        self._notify_application("max.poll.interval.ms has passed without a poll")
        if self.member_id and self.settings.group_instance_id is None:
            self._send_leave_group()
        self.member_id = ""
        self.generation = NO_GENERATION
        self.phase = Phase.UNJOINED
        self._heartbeat_epoch += 1
        self._join_attempt += 1
        self._needs_rejoin = True

    def _resume_polling(self) -> None:
        self._is_busy = False
        self._notify_application("polls again")
        if self.phase is Phase.UNJOINED and self._owned_partitions:
            self._reset_membership(Error.NONE)
        self._poll()

    # Heartbeats

    def _start_heartbeats(self) -> None:
        self._heartbeat_epoch += 1
        heartbeat_epoch = self._heartbeat_epoch
        self._schedule(self.settings.heartbeat_interval_ms, lambda: self._send_heartbeat(heartbeat_epoch))

    def _send_heartbeat(self, heartbeat_epoch: int) -> None:
        if heartbeat_epoch != self._heartbeat_epoch:
            return
        request = Heartbeat(self._group_id, self.generation, self.member_id, self.settings.group_instance_id)
        self._environment.send(self, request, lambda answer: self._on_heartbeat_answer(answer, heartbeat_epoch))
        self._schedule(self.settings.heartbeat_interval_ms, lambda: self._send_heartbeat(heartbeat_epoch))

    def _on_heartbeat_answer(self, answer: HeartbeatAnswer | None, heartbeat_epoch: int) -> None:
        if heartbeat_epoch != self._heartbeat_epoch:
            return
        error = Error.REQUEST_TIMED_OUT if answer is None else answer.error
        if error is Error.REBALANCE_IN_PROGRESS:
            # In the sync phase the client waits for the answer to SyncGroup, which has the same error.
            if self.phase is Phase.STABLE:
                self._request_rejoin()
        elif error in MEMBERSHIP_LOST_ERRORS:
            self._reset_membership(error)
            self._request_rejoin()
        elif error in COORDINATOR_LOST_ERRORS:
            self._find_coordinator_after_backoff(lambda: self._resume_heartbeats(heartbeat_epoch))
        elif error not in (Error.NONE, Error.COORDINATOR_LOAD_IN_PROGRESS):
            self._fail_for_good(error)

    def _resume_heartbeats(self, heartbeat_epoch: int) -> None:
        if heartbeat_epoch == self._heartbeat_epoch:
            self._start_heartbeats()

    # Offsets

    def _fetch_offsets(self, partitions: Iterable[TopicPartition], *, is_committed_call: bool = False) -> None:
        """Send OffsetFetch. Its answer goes to the application after committed(), else sets the positions of new partitions."""
        requested = tuple(partitions)
        if not requested:
            return

        def on_answer(answer: OffsetFetchAnswer | None) -> None:
            group = None if answer is None else answer.groups[0]
            if group is None or group.error in RETRIABLE_ERRORS:
                self._find_coordinator_after_backoff(lambda: self._fetch_offsets(requested, is_committed_call=is_committed_call))
                return
            if group.error is not Error.NONE:
                self._fail_for_good(group.error)
                return
            committed = {partition: group.topics[partition.topic][partition.partition].committed_offset for partition in requested}
            if is_committed_call:
                existing = {partition: offset for partition, offset in committed.items() if offset >= 0}
                self._notify_application(f"committed: {_offsets_text(existing) or 'nothing'}")
                return
            for partition, offset in committed.items():
                if partition in self._owned_partitions:
                    # Without a committed offset auto.offset.reset decides, and the log of a simulated topic begins at 0.
                    self.positions.setdefault(partition, max(offset, 0))

        self._environment.send(self, OffsetFetch((GroupToFetch(self._group_id, _by_topic(requested)),)), on_answer)

    def _commit_request(self, offsets: Mapping[TopicPartition, int]) -> OffsetCommit:
        to_commit = tuple(OffsetToCommit(topic, number, offset) for (topic, number), offset in offsets.items())
        return OffsetCommit(self._group_id, to_commit, self.generation, self.member_id, self.settings.group_instance_id)

    def _commit_ignoring_errors(self, then: Callable[[], None]) -> None:
        """Commit the positions before a rebalance or before close(), and call ``then`` whether the commit succeeds or fails."""

        def on_answer(answer: OffsetCommitAnswer | None) -> None:
            self._is_blocked = False
            then()

        self._is_blocked = True
        self._environment.send(self, self._commit_request(self.positions), on_answer)

    def _send_commit(self, commit: _PendingCommit) -> None:
        if self.phase is Phase.CLOSED:
            self._end_commit(commit, "IllegalStateException: the consumer has failed or is closed")
        elif self.phase is not Phase.STABLE:
            # Without a generation no request is sent (ConsumerCoordinator.sendOffsetCommitRequest).
            is_rebalancing = self.phase in (Phase.JOINING, Phase.SYNCING)
            self._end_commit(commit, f"{'RebalanceInProgressException' if is_rebalancing else 'CommitFailedException'}, nothing was sent")
        else:
            loses_answer, commit.loses_answer = commit.loses_answer, False
            self._environment.send(
                self, self._commit_request(commit.offsets), lambda answer: self._on_commit(commit, answer), loses_answer=loses_answer
            )

    def _on_commit(self, commit: _PendingCommit, answer: OffsetCommitAnswer | None) -> None:
        errors = (Error.REQUEST_TIMED_OUT,) if answer is None else tuple(answer.errors.values())
        error = next((answer_error for answer_error in errors if answer_error is not Error.NONE), Error.NONE)
        if error in RETRIABLE_ERRORS:
            reason = "the connection closed without an answer" if answer is None else error.name
            if not commit.is_sync:
                if error in COORDINATOR_LOST_ERRORS:
                    self._find_coordinator(lambda: None)
                self._end_commit(commit, f"RetriableCommitFailedException ({reason})", is_retriable=True)
            elif self._environment.now_ms >= commit.deadline_ms:
                self._end_commit(commit, f"TimeoutException ({reason})")
            elif error in COORDINATOR_LOST_ERRORS:
                self._find_coordinator_after_backoff(lambda: self._send_commit(commit))
            else:
                self._schedule(self.settings.retry_backoff_ms, lambda: self._send_commit(commit))
        elif error is Error.NONE:
            self._end_commit(commit, "done")
        elif error in MEMBERSHIP_LOST_ERRORS:
            self._end_commit(commit, f"CommitFailedException ({error.name})", then=lambda: self._rejoin_after(error))
        elif error is Error.REBALANCE_IN_PROGRESS:
            self._end_commit(commit, "RebalanceInProgressException", then=self._request_rejoin)
        elif error is Error.FENCED_INSTANCE_ID:
            self._end_commit(commit, "FencedInstanceIdException", then=lambda: self._fail_for_good(error))
        else:
            self._end_commit(commit, f"fails for good: {error.name}")

    def _rejoin_after(self, error: Error) -> None:
        self._reset_membership(error)
        self._request_rejoin()

    def _end_commit(
        self, commit: _PendingCommit, outcome: str, *, is_retriable: bool = False, then: Callable[[], None] | None = None
    ) -> None:
        def callback() -> None:
            self._notify_application(f"{commit.call}: {outcome}" if commit.is_sync else f"callback of {commit.call}: {outcome}")
            if is_retriable and commit.retry_after_ms is not None:
                self._schedule(commit.retry_after_ms, lambda: self.commit(commit.offsets, is_sync=False))

        if commit.is_sync:
            self._is_blocked = False
            self._run_callbacks()
            callback()
        else:
            self._callbacks.append(callback)
        if then is not None:
            then()
        self._poll()

    def _run_callbacks(self) -> None:
        """Call the callbacks of commitAsync in the order in which the commits were completed. Done at a poll and at the next commit."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _schedule(self, delay_ms: int, do: Callable[[], None]) -> None:
        self._environment.schedule(delay_ms, self, do)

    def _notify_application(self, text: str) -> None:
        self._environment.notify_application(self, text)


@dataclass(slots=True)
class _PendingCommit:
    """A commit of the application that is not completed."""

    call: str
    offsets: Mapping[TopicPartition, int]
    is_sync: bool
    deadline_ms: int
    loses_answer: bool
    retry_after_ms: int | None


def _assignor_member(member: JoinedMember, assignor: str) -> assignors.Member:
    subscription = decode_subscription(member.metadata)
    if subscription is None:
        return assignors.Member(member.member_id, (), member.group_instance_id)
    owned, generation = subscription.owned_partitions, subscription.generation_id
    if assignor == "sticky":
        user_data = decode_sticky_user_data(subscription.user_data)
        owned, generation = user_data.previous_assignment, NO_GENERATION if user_data.generation is None else user_data.generation
    elif assignor == COOPERATIVE and generation == NO_GENERATION:
        generation = decode_cooperative_sticky_generation(subscription.user_data) or NO_GENERATION
    return assignors.Member(
        member.member_id,
        subscription.topics,
        instance_id=member.group_instance_id,
        rack=subscription.rack_id,
        owned=tuple(_topic_partitions(owned)),
        generation=generation,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return {topic: tuple(listed) for topic, listed in numbers.items()}


def _topic_partitions(by_topic: Partitions) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, partition) for topic, numbers in by_topic.items() for partition in numbers)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """The partitions as ``orders:0,1;payments:3``, the form of the describe command; "" without partitions."""
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in _by_topic(partitions).items())


def _offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    return " ".join(f"{topic}-{number}={offset}" for (topic, number), offset in offsets.items())
