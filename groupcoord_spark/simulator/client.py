"""A simulated consumer of the classic protocol: what the Java client sends, and does with the coordinator's answers.

The thread of the application polls all the time, except while it is busy or blocked in commitSync. Heartbeats come from a thread of their
own. The client reports calls of rebalance listeners and commit callbacks, and exceptions, to its ``Environment``.
Rules: docs/reference/coordinator.md, chapters 9.5 and 14.
"""

from __future__ import annotations

import re
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
from groupcoord_spark.simulator.client_settings import COOPERATIVE, ClientSettings
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.request_versions import Versions, known_versions
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

    def send(self, client: Consumer, request: Request, then: Callable[[Any], None], *, loses_answer: bool = False) -> None:
        """Send a request. ``then`` is called with the answer, or with None if the connection closes without an answer."""

    def name_member(self, client: Consumer, member_id: str) -> None:
        """The client has made its own member id."""

    def schedule(self, delay_ms: int, client: Consumer, do: Callable[[], None]) -> None:
        """Call ``do`` after ``delay_ms`` milliseconds if the client is alive then."""

    def notify_application(self, client: Consumer, text: str) -> None:
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


class Consumer:
    """One process with one consumer. After ``die`` the environment makes none of its scheduled calls."""

    _first_request: type = JoinGroup
    """The request with which the client joins its group."""

    def __init__(
        self, name: str, group_id: str, settings: ClientSettings, broker_versions: Mapping[type, Versions], environment: Environment
    ) -> None:
        """A consumer that has not started. ``broker_versions``: the versions of requests that the broker knows."""
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
        """Goes up with each refresh of the topics, so that one that was scheduled before is not made."""
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
        """When the client last sent or received something; None: there is no connection to the coordinator."""
        self._auto_commit_epoch = 0
        """Goes up with each auto commit, so that one that was scheduled before is not made."""

    @property
    def protocol(self) -> str | None:
        """The assignor of the member's generation; None before the first answer to JoinGroup."""
        return self._protocol

    # What the application does

    def start(self) -> None:
        """Subscribe and poll."""
        for kind in (FindCoordinator, self._first_request, OffsetFetch, OffsetCommit):
            own, of_broker = self._own_versions[kind], self._broker_versions.get(kind)
            if of_broker is None:
                self._notify_application(f"UnsupportedVersionException: the broker does not know {kind.__name__}")
                self.phase = Phase.CLOSED
                return
            if max(own.oldest, of_broker.oldest) > min(own.newest, of_broker.newest):
                spans = f"the client knows versions {own.oldest} to {own.newest}, the broker {of_broker.oldest} to {of_broker.newest}"
                self._notify_application(f"UnsupportedVersionException: {kind.__name__}, {spans}")
                self.phase = Phase.CLOSED
                return
        self._refresh_topics()
        self._needs_rejoin = False
        if self.settings.enable_auto_commit:
            self._schedule_auto_commit(self.settings.auto_commit_interval_ms)
        self._find_coordinator(self._join)

    def die(self) -> None:
        """End the process. Nothing is sent."""
        self.is_alive = False

    def close(self, *, leaves: bool | None = None) -> None:
        """close(): commit the positions if enable.auto.commit is set, and leave the group.

        Args:
            leaves: whether the client sends LeaveGroup (KIP-1092); None: if it is dynamic and internal.leave.group.on.close is set.
        """
        if leaves is None:
            leaves = self.settings.group_instance_id is None and self.settings.internal_leave_group_on_close
        if self.settings.enable_auto_commit and self._owned_partitions:
            self._commit_ignoring_errors(lambda: self._leave_and_stop(leaves))
        else:
            self._leave_and_stop(leaves)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription. The next poll joins the group again with it."""
        self._pattern = None
        self._subscribed_topics = tuple(topics)
        self._learn_topics(self._subscribed_topics)
        self._request_rejoin()

    def unsubscribe(self) -> None:
        """unsubscribe(): give up the partitions and leave the group, without a commit. A static member only stops its heartbeats."""
        if self._owned_partitions:
            self._notify_application(f"onPartitionsRevoked({partitions_text(self._owned_partitions)})")
        if self.member_id and self.settings.group_instance_id is None:
            self._send_leave_group()
        self._pattern, self._subscribed_topics = None, ()
        self._owned_partitions = ()
        self.positions.clear()
        self._forget_membership()
        self._needs_rejoin = False

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
            error = Error.COORDINATOR_NOT_AVAILABLE if answer is None else answer.coordinators[0].error
            if error is Error.NONE:
                then()
            elif error not in RETRIABLE_ERRORS:
                self._fail_for_good(error)
            else:
                self._schedule(self.settings.retry_backoff_ms, lambda: self._find_coordinator(then))

        self._send(FindCoordinator((self._group_id,), version=self._version(FindCoordinator)), on_answer)

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
            version=self._version(JoinGroup),
        )
        self._send(request, lambda answer: self._on_join(answer) if attempt == self._join_attempt else None)

    def _subscription(self, assignor: str) -> bytes:
        user_data = None
        if assignor == "sticky" and self._owned_generation != NO_GENERATION:
            user_data = encode_sticky_user_data(StickyUserData(_by_topic(self._last_assignment), self._owned_generation))
        elif assignor == COOPERATIVE:
            user_data = encode_cooperative_sticky_generation(self._owned_generation)
        owned = self._owned_partitions if self.settings.is_cooperative else ()
        generation = self._owned_generation if self.settings.is_cooperative else NO_GENERATION
        return encode_subscription(
            Subscription(
                self.settings.subscription_version,
                self._subscribed_topics,
                user_data,
                _by_topic(owned),
                generation,
                self.settings.client_rack,
            )
        )

    def _on_join(self, answer: JoinGroupAnswer | None) -> None:
        error = Error.REQUEST_TIMED_OUT if answer is None else answer.error
        if answer is not None and error is Error.NONE:
            self.member_id, self.generation, self._protocol = answer.member_id, answer.generation, answer.protocol
            self.phase = Phase.SYNCING
            self._start_heartbeats()
            self._sync(self._lead(answer) if answer.leader == answer.member_id else ())
        elif answer is not None and error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif error is Error.UNKNOWN_MEMBER_ID:
            self._reset_membership(error)
            self._join()
        else:
            self._join_again_or_fail(error)

    def _lead(self, answer: JoinGroupAnswer) -> tuple[tuple[str, bytes], ...]:
        """The assignments that a leader sends. The leader also watches the topics of the group from now on."""
        members = [_assignor_member(member, self._protocol or "") for member in answer.members]
        group_topics = {topic for member in members for topic in member.topics}
        self._learn_topics(group_topics)
        self._assigned_counts = {topic: self._topics.get(topic) for topic in sorted(group_topics)}
        if answer.skip_assignment:
            return ()
        cluster = {name: assignors.Topic(partitions) for name, partitions in self._topics.items()}
        assignment = CLIENT_ASSIGNORS[self._protocol or ""](members, cluster)
        return tuple(
            (member_id, encode_assignment(Assignment(self.settings.subscription_version, _by_topic(partitions), None)))
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
            version=self._version(SyncGroup),
        )
        self._send(request, lambda answer: self._on_sync(answer) if attempt == self._join_attempt else None)

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
        if self._auto_commit_is_due and self.phase is Phase.STABLE:
            self._auto_commit()
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
            # Rebalance listeners have onPartitionsLost since 2.4 (KIP-429).
            callback = "onPartitionsLost" if self._release >= (2, 4) else "onPartitionsRevoked"
            self._notify_application(f"{callback}({partitions_text(self._owned_partitions)})")
        self._owned_partitions = ()
        self.positions.clear()

    def _forget_membership(self) -> None:
        self.member_id = ""
        self.generation = NO_GENERATION
        self.phase = Phase.UNJOINED
        self._assigned_counts = None
        self._heartbeat_epoch += 1
        self._join_attempt += 1

    def _fail_for_good(self, error: Error) -> None:
        self._notify_application(f"fails for good: {error.name}")
        self.phase = Phase.CLOSED
        self._heartbeat_epoch += 1

    def _leave_and_stop(self, leaves: bool) -> None:
        # A static member sends no LeaveGroup of its own accord (KIP-345): it may come back within its session timeout.
        if self.member_id and leaves and self.phase is not Phase.CLOSED:
            self._send_leave_group()
        self.phase = Phase.CLOSED
        self._heartbeat_epoch += 1
        self._schedule(0, self.die)

    def _send_leave_group(self) -> None:
        leaving = Leaving(self.member_id, self.settings.group_instance_id)
        self._send(LeaveGroup(self._group_id, (leaving,), self._version(LeaveGroup)), lambda answer: None)

    def _poll_expired(self) -> None:
        if not self._is_busy or self.phase is Phase.CLOSED:
            return
        self._notify_application("max.poll.interval.ms has passed without a poll")
        if self.member_id and self.settings.group_instance_id is None:
            self._send_leave_group()
        self._forget_membership()
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
        request = Heartbeat(
            self._group_id, self.generation, self.member_id, self.settings.group_instance_id, version=self._version(Heartbeat)
        )
        self._send(request, lambda answer: self._on_heartbeat_answer(answer, heartbeat_epoch))
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

    # Topics

    def _refresh_topics(self) -> None:
        """Ask the cluster for its topics: at the start, and then every metadata.max.age.ms."""
        if self.phase is Phase.CLOSED:
            return
        self._metadata_epoch += 1
        epoch = self._metadata_epoch
        self._schedule(self.settings.metadata_max_age_ms, lambda: self._refresh_topics() if epoch == self._metadata_epoch else None)
        self._topics = dict(self._environment.topics)
        if self._pattern is not None:
            matching = tuple(sorted(topic for topic in self._topics if re.fullmatch(self._pattern, topic)))
            is_changed = matching != self._subscribed_topics
            self._subscribed_topics = matching
            if is_changed and self._join_attempt:
                self._request_rejoin()
                return
        counts = self._assigned_counts
        if counts is not None and any(self._topics.get(topic) != count for topic, count in counts.items()):
            # Only the client that made the assignment watches the numbers of partitions: it joins again to make a new assignment.
            self._assigned_counts = None
            self._request_rejoin()

    def _learn_topics(self, names: Iterable[str]) -> None:
        """Ask the cluster for topics that the client has not known. Those that it knows may be out of date."""
        for name in names:
            if name not in self._topics and name in self._environment.topics:
                self._topics[name] = self._environment.topics[name]

    def notice_topic(self, name: str) -> None:
        """A topic was created or deleted: a client that asks for it, or reads from it, gets an error and refreshes its topics soon."""
        if name in self._subscribed_topics or name in (self._assigned_counts or ()):
            self._schedule(self.settings.retry_backoff_ms, self._refresh_topics)

    # Offsets

    def _schedule_auto_commit(self, delay_ms: int) -> None:
        """The first poll after that time commits the positions: an interval later, or soon if the last commit may be repeated."""
        self._auto_commit_epoch += 1
        epoch = self._auto_commit_epoch

        def come_due() -> None:
            if epoch == self._auto_commit_epoch and self.phase is not Phase.CLOSED:
                self._auto_commit_is_due = True
                self._poll()

        self._schedule(delay_ms, come_due)

    def _auto_commit(self) -> None:
        self._auto_commit_is_due = False
        self._schedule_auto_commit(self.settings.auto_commit_interval_ms)
        if self.positions:
            self._send_commit(_PendingCommit("auto commit", dict(self.positions), False, 0, False, None, is_auto=True))

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
            fetched = {partition: group.topics[partition.topic][partition.partition] for partition in requested}
            if any(offset.error in RETRIABLE_ERRORS for offset in fetched.values()):
                self._schedule(self.settings.retry_backoff_ms, lambda: self._fetch_offsets(requested, is_committed_call=is_committed_call))
                return
            if failed := [offset.error for offset in fetched.values() if offset.error is not Error.NONE]:
                self._fail_for_good(failed[0])
                return
            committed = {partition: offset.committed_offset for partition, offset in fetched.items()}
            if is_committed_call:
                existing = {partition: offset for partition, offset in committed.items() if offset >= 0}
                self._notify_application(f"committed: {_offsets_text(existing) or 'nothing'}")
                return
            for partition, offset in committed.items():
                if partition in self._owned_partitions:
                    # Without a committed offset auto.offset.reset decides, and the log of a simulated topic begins at 0.
                    self.positions.setdefault(partition, max(offset, 0))

        version = self._version(OffsetFetch)
        # Since 2.5 consumers wait for the end of transactions that may change their offsets (KIP-447).
        groups = (GroupToFetch(self._group_id, _by_topic(requested)),)
        self._send(OffsetFetch(groups, version >= FIRST_VERSION_WITH_REQUIRE_STABLE, version), on_answer)

    def _commit_request(self, offsets: Mapping[TopicPartition, int]) -> OffsetCommit:
        to_commit = tuple(OffsetToCommit(topic, number, offset) for (topic, number), offset in offsets.items())
        version = self._version(OffsetCommit)
        return OffsetCommit(self._group_id, to_commit, self.generation, self.member_id, self.settings.group_instance_id, version=version)

    def _commit_ignoring_errors(self, then: Callable[[], None]) -> None:
        """Commit the positions before a rebalance or before close(), and call ``then`` whether the commit succeeds or fails."""

        offsets = dict(self.positions)

        def on_answer(answer: OffsetCommitAnswer | None) -> None:
            self._is_blocked = False
            if answer is not None and all(error is Error.NONE for error in answer.errors.values()):
                self._tell_interceptors(offsets)
            then()

        self._is_blocked = True
        self._send(self._commit_request(offsets), on_answer)

    def _tell_interceptors(self, offsets: Mapping[TopicPartition, int]) -> None:
        for interceptor in self.settings.interceptor_classes:
            self._notify_application(f"onCommit({_offsets_text(offsets)}) of {interceptor}")

    def _send_commit(self, commit: _PendingCommit) -> None:
        if self.phase is Phase.CLOSED:
            self._end_commit(commit, "IllegalStateException: the consumer has failed or is closed")
        elif self.phase is not Phase.STABLE:
            # Without a generation no request is sent (ConsumerCoordinator.sendOffsetCommitRequest).
            is_rebalancing = self.phase in (Phase.JOINING, Phase.SYNCING)
            self._end_commit(commit, f"{'RebalanceInProgressException' if is_rebalancing else 'CommitFailedException'}, nothing was sent")
        else:
            loses_answer, commit.loses_answer = commit.loses_answer, False
            self._send(
                self._commit_request(commit.offsets), lambda answer: self._on_commit(commit, answer), loses_answer=loses_answer
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
            exception = "RebalanceInProgressException" if self._release >= (2, 5) else f"CommitFailedException ({error.name})"
            self._end_commit(commit, exception, then=self._request_rejoin)
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
        if outcome == "done":
            self._tell_interceptors(commit.offsets)

        def callback() -> None:
            if commit.is_auto:
                if outcome != "done":
                    self._notify_application(f"auto commit fails: {outcome}")
                if is_retriable:
                    self._schedule_auto_commit(self.settings.retry_backoff_ms)
                return
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

    def _version(self, kind: type) -> int:
        """The newest version of a request that both the client and the broker know."""
        return min(self._own_versions[kind].newest, self._broker_versions[kind].newest)

    def _send(self, request: Request, then: Callable[[Any], None], *, loses_answer: bool = False) -> None:
        """Send a request. If the connection was closed because it was idle, the client looks for the coordinator first.

        A connection is idle even while a request waits for its answer: the answer is lost when the connection is closed.
        """
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
    is_auto: bool = False


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
