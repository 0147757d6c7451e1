"""A simulated consumer of the classic protocol: what the Java client sends, and does with the coordinator's answers.

Heartbeats come from a thread of their own. Rules: docs/reference/coordinator.md, chapters 9.5 and 14.
"""

from collections.abc import Iterable

from groupcoord_spark import assignors
from groupcoord_spark.assignors import CLIENT_ASSIGNORS, NO_GENERATION, TopicPartition
from groupcoord_spark.protocol import consumer_protocol
from groupcoord_spark.simulator.clients.client_core import COORDINATOR_LOST_ERRORS, MEMBERSHIP_LOST_ERRORS, Phase
from groupcoord_spark.simulator.clients.client_settings import COOPERATIVE
from groupcoord_spark.simulator.clients.consumer import Consumer
from groupcoord_spark.simulator.messages import Error, requests
from groupcoord_spark.simulator.messages.answers import ErrorAnswer, JoinedMember, JoinGroupAnswer, SyncGroupAnswer
from groupcoord_spark.simulator.messages.partition_lists import by_topic, difference, partitions_text, topic_partitions
from groupcoord_spark.simulator.messages.re2j import matches


class ClassicConsumer(Consumer):
    """A consumer whose leader assigns the partitions."""

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription. The next poll joins the group again with it."""
        self._pattern = None
        self._subscribed_topics = tuple(topics)
        self._learn_topics(self._subscribed_topics)
        self._request_rejoin()

    def unsubscribe(self) -> None:
        """unsubscribe(): give up the partitions and leave the group, without a commit. A static member only stops its heartbeats."""
        self._notify_listener("onPartitionsRevoked", self._owned_partitions)
        if self.member_id and self.settings.group_instance_id is None:
            self._send_leave_group()
        self._pattern, self._subscribed_topics = None, ()
        self._owned_partitions = ()
        self.positions.clear()
        self._forget_membership()
        self._needs_rejoin = False

    # Joining, syncing

    def _join(self) -> None:
        if self.phase is Phase.CLOSED:
            return
        self._needs_rejoin = False
        self.phase = Phase.JOINING
        self._join_attempt += 1
        self._heartbeat_epoch += 1
        attempt = self._join_attempt
        request = requests.JoinGroup(
            self._group_id,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
            protocols=tuple((name, self._subscription(name)) for name in self.settings.partition_assignment_strategy),
            client_id=self.settings.client_id,
        )
        self._send(request, lambda answer: self._on_join(answer) if attempt == self._join_attempt else None)

    def _subscription(self, assignor: str) -> bytes:
        user_data = None
        if assignor == "sticky" and self._owned_generation != NO_GENERATION:
            user_data = consumer_protocol.encode_sticky_user_data(
                consumer_protocol.StickyUserData(by_topic(self._last_assignment), self._owned_generation)
            )
        elif assignor == COOPERATIVE:
            user_data = consumer_protocol.encode_cooperative_sticky_generation(self._owned_generation)
        owned = self._owned_partitions if self.settings.is_cooperative else ()
        generation = self._owned_generation if self.settings.is_cooperative else NO_GENERATION
        return consumer_protocol.encode_subscription(
            consumer_protocol.Subscription(
                self.settings.subscription_version,
                self._subscribed_topics,
                user_data,
                by_topic(owned),
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
        """Return the assignments that the leader sends. From now on the leader also watches the group's topics."""
        members = [_assignor_member(member, self._protocol or "") for member in answer.members]
        group_topics = {topic for member in members for topic in member.topics}
        self._learn_topics(group_topics)
        self._assigned_counts = {topic: self._topics.get(topic) for topic in sorted(group_topics)}
        if answer.skip_assignment:
            return ()
        cluster = {name: assignors.Topic(partitions) for name, partitions in self._topics.items()}
        assignment = CLIENT_ASSIGNORS[self._protocol or ""](members, cluster)
        return tuple(
            (
                member_id,
                consumer_protocol.encode_assignment(
                    consumer_protocol.Assignment(self.settings.subscription_version, by_topic(partitions), None)
                ),
            )
            for member_id, partitions in assignment.items()
        )

    def _sync(self, assignments: tuple[tuple[str, bytes], ...]) -> None:
        attempt = self._join_attempt
        request = requests.SyncGroup(
            self._group_id,
            self.generation,
            self.member_id,
            self.settings.group_instance_id,
            protocol_type="consumer",
            protocol=self._protocol,
            assignments=assignments,
        )
        self._send(request, lambda answer: self._on_sync(answer) if attempt == self._join_attempt else None)

    def _on_sync(self, answer: SyncGroupAnswer | None) -> None:
        error = Error.REQUEST_TIMED_OUT if answer is None else answer.error
        if answer is not None and error is Error.NONE:
            self.phase = Phase.STABLE
            assignment = consumer_protocol.decode_assignment(answer.assignment)
            self._apply_assignment(tuple(topic_partitions(assignment.partitions)) if assignment is not None else ())
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
        added, revoked = difference(assigned, self._owned_partitions), difference(self._owned_partitions, assigned)
        self._owned_partitions, self._last_assignment, self._owned_generation = assigned, assigned, self.generation
        for partition in revoked:
            self.positions.pop(partition, None)
        self._notify_listener("onPartitionsRevoked", revoked)
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

    def _join_if_needed(self) -> None:
        if self._needs_rejoin and self.phase in (Phase.STABLE, Phase.UNJOINED, Phase.SYNCING):
            self._needs_rejoin = False
            if self.settings.enable_auto_commit and self._owned_partitions:
                self._commit_ignoring_errors(self._revoke_and_join)
            else:
                self._revoke_and_join()

    def _revoke_and_join(self) -> None:
        if not self.settings.is_cooperative:
            self._notify_listener("onPartitionsRevoked", self._owned_partitions)
            self.positions.clear()
            self._owned_partitions = ()
        self._join()

    def _reset_membership(self, error: Error) -> None:
        if error is not Error.ILLEGAL_GENERATION:
            self.member_id = ""
        self.generation = self._owned_generation = NO_GENERATION
        self.phase = Phase.UNJOINED
        self._heartbeat_epoch += 1
        self._join_attempt += 1
        self._lose_partitions()

    def _forget_membership(self) -> None:
        self.member_id = ""
        self.generation = NO_GENERATION
        self.phase = Phase.UNJOINED
        self._assigned_counts = None
        self._heartbeat_epoch += 1
        self._join_attempt += 1

    def _leave(self, *, leaves: bool) -> None:
        # A static member sends no LeaveGroup of its own accord (KIP-345): it may come back within its session timeout.
        if leaves:
            self._send_leave_group()

    def _send_leave_group(self) -> None:
        leaving = requests.Leaving(self.member_id, self.settings.group_instance_id)
        self._send(requests.LeaveGroup(self._group_id, (leaving,)), lambda answer: None)

    def _leave_until_next_poll(self) -> None:
        if self.member_id and self.settings.group_instance_id is None:
            self._send_leave_group()
        self._forget_membership()
        self._needs_rejoin = True

    def _come_back(self) -> None:
        if self._owned_partitions:
            self._reset_membership(Error.NONE)

    # Heartbeats

    def _start_heartbeats(self) -> None:
        self._heartbeat_epoch += 1
        heartbeat_epoch = self._heartbeat_epoch
        self._schedule(self.settings.heartbeat_interval_ms, lambda: self._send_heartbeat(heartbeat_epoch))

    def _send_heartbeat(self, heartbeat_epoch: int) -> None:
        if heartbeat_epoch != self._heartbeat_epoch:
            return
        request = requests.Heartbeat(self._group_id, self.generation, self.member_id, self.settings.group_instance_id)
        self._send(request, lambda answer: self._on_heartbeat_answer(answer, heartbeat_epoch))
        self._schedule(self.settings.heartbeat_interval_ms, lambda: self._send_heartbeat(heartbeat_epoch))

    def _on_heartbeat_answer(self, answer: ErrorAnswer | None, heartbeat_epoch: int) -> None:
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

    def _watch_topics(self) -> None:
        """Join again where the topics of the subscription or of the client's own assignment have changed."""
        if self._pattern is not None:
            matching = tuple(sorted(topic for topic in self._topics if matches(self._pattern, topic)))
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


def _assignor_member(member: JoinedMember, assignor: str) -> assignors.Member:
    subscription = consumer_protocol.decode_subscription(member.metadata)
    if subscription is None:
        return assignors.Member(member.member_id, (), member.group_instance_id)
    owned, generation = subscription.owned_partitions, subscription.generation_id
    if assignor == "sticky":
        user_data = consumer_protocol.decode_sticky_user_data(subscription.user_data)
        owned, generation = user_data.previous_assignment, NO_GENERATION if user_data.generation is None else user_data.generation
    elif assignor == COOPERATIVE and generation == NO_GENERATION:
        generation = consumer_protocol.decode_cooperative_sticky_generation(subscription.user_data) or NO_GENERATION
    return assignors.Member(
        member.member_id,
        subscription.topics,
        instance_id=member.group_instance_id,
        rack=subscription.rack_id,
        owned=tuple(topic_partitions(owned)),
        generation=generation,
    )
