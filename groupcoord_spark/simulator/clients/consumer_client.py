"""A simulated consumer of the new protocol (``group.protocol=consumer``, KIP-848): the broker assigns, and heartbeats carry everything.

A rebalance listener takes no time. So the client gives up partitions as soon as the broker asks for them, and reports that at once with
another heartbeat.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from groupcoord_spark.assignors import TopicPartition
from groupcoord_spark.simulator.clients.client_core import COORDINATOR_LOST_ERRORS, Phase
from groupcoord_spark.simulator.clients.consumer import Consumer
from groupcoord_spark.simulator.messages import Error
from groupcoord_spark.simulator.messages.answers import ConsumerGroupHeartbeatAnswer
from groupcoord_spark.simulator.messages.partition_lists import by_topic, difference
from groupcoord_spark.simulator.messages.requests import LEAVE_EPOCH, LEFT_FOR_A_WHILE, ConsumerGroupHeartbeat

_ID_SPAN_MS: Final = 100_000_000
_FENCED: Final = frozenset({Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID})
"""Errors after which the client gives up its partitions and joins again with epoch 0."""


class NewProtocolConsumer(Consumer):
    """A consumer whose generation is its member epoch. Its member id is its own, and stays the same as long as the process lives."""

    _first_request = ConsumerGroupHeartbeat

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription: the next heartbeat, which is sent at once, names it."""
        self._pattern = None
        self._subscribed_topics = tuple(topics)
        self._names_subscription = True
        self._beat_at_once()

    def unsubscribe(self) -> None:
        """Give up the partitions and leave the group."""
        self._revoke(self._owned_partitions)
        self._send_leave(LEAVE_EPOCH)
        self._forget_membership()
        self._subscribed_topics, self._pattern = (), None

    # The membership

    def _join(self) -> None:
        if self.phase is Phase.CLOSED or not (self._subscribed_topics or self._pattern):
            return
        self.phase = Phase.JOINING
        if not self.member_id:
            # A real client generates a random UUID. A readable member id makes a timeline easier to follow.
            self.member_id = f"{self.name}-{self._environment.now_ms % _ID_SPAN_MS}"
            self._environment.name_member(self, self.member_id)
        self.generation = 0
        self._heartbeat_epoch += 1
        self._send_new_heartbeat(self._heartbeat_epoch)

    def _send_new_heartbeat(self, sequence: int, *, owned: bool = False) -> None:
        """Send a heartbeat: all fields when joining, later only fields that changed. ``owned`` includes the owned partitions."""
        if sequence != self._heartbeat_epoch or self.phase is Phase.CLOSED:
            return
        joins, settings = self.generation == 0, self.settings
        names_subscription, self._names_subscription = joins or self._names_subscription, False
        partitions: Mapping[str, tuple[int, ...]] | None = None
        if joins or owned:
            partitions = {} if joins else by_topic(self._owned_partitions)
        request = ConsumerGroupHeartbeat(
            self._group_id,
            self.member_id,
            self.generation,
            settings.group_instance_id,
            settings.client_rack if joins else None,
            settings.max_poll_interval_ms if joins else None,
            (self._subscribed_topics if self._pattern is None else ()) if names_subscription else None,
            (self._pattern or "") if names_subscription and (self._pattern or not joins) else None,
            settings.group_remote_assignor if joins else None,
            partitions,
            settings.client_id,
        )
        self._send(request, lambda answer: self._on_new_heartbeat(answer, sequence))

    def _on_new_heartbeat(self, answer: ConsumerGroupHeartbeatAnswer | None, sequence: int) -> None:
        if sequence != self._heartbeat_epoch:
            return
        error = Error.REQUEST_TIMED_OUT if answer is None else answer.error
        if answer is not None and error is Error.NONE:
            self.generation, self.phase = answer.member_epoch, Phase.STABLE
            self._schedule(answer.heartbeat_interval_ms, lambda: self._send_new_heartbeat(sequence))
            if answer.assignment is not None:
                self._reconcile(tuple(TopicPartition(topic, number) for topic, numbers in answer.assignment.items() for number in numbers))
            self._poll()
        elif error in _FENCED:
            self._lose_partitions()
            self._join()
        elif error in COORDINATOR_LOST_ERRORS:
            self._find_coordinator_after_backoff(lambda: self._send_new_heartbeat(sequence))
        elif error in (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.UNRELEASED_INSTANCE_ID):
            self._schedule(self.settings.retry_backoff_ms, lambda: self._send_new_heartbeat(sequence))
        else:
            self._fail_for_good(error)

    def _reconcile(self, assigned: tuple[TopicPartition, ...]) -> None:
        """Give up and take over partitions, and report what the client owns now."""
        added, revoked = difference(assigned, self._owned_partitions), difference(self._owned_partitions, assigned)
        if not added and not revoked:
            return
        self._revoke(revoked)
        self._owned_partitions = assigned
        self._notify_listener("onPartitionsAssigned", added)
        self._fetch_offsets(added)
        self._beat_at_once(owned=True)

    def _beat_at_once(self, *, owned: bool = False) -> None:
        if self.phase is Phase.STABLE:
            self._heartbeat_epoch += 1
            self._send_new_heartbeat(self._heartbeat_epoch, owned=owned)
        elif self.phase is Phase.UNJOINED:
            self._join()

    def _revoke(self, revoked: Collection[TopicPartition]) -> None:
        self._notify_listener("onPartitionsRevoked", revoked)
        self._owned_partitions = difference(self._owned_partitions, revoked)
        for partition in revoked:
            self.positions.pop(partition, None)

    def _rejoin_after(self, error: Error) -> None:
        self._lose_partitions()
        self._join()

    def _request_rejoin(self) -> None:
        """Do nothing: the broker watches topics and subscriptions, so the client never asks to rejoin."""

    def _leave_until_next_poll(self) -> None:
        self._send_leave(LEAVE_EPOCH if self.settings.group_instance_id is None else LEFT_FOR_A_WHILE)
        self.phase = Phase.UNJOINED
        self._heartbeat_epoch += 1

    def _come_back(self) -> None:
        self._lose_partitions()
        self._join()

    def _leave(self, *, leaves: bool) -> None:
        self._revoke(self._owned_partitions)
        if leaves:
            self._send_leave(LEAVE_EPOCH)
        elif self.settings.group_instance_id is not None:
            self._send_leave(LEFT_FOR_A_WHILE)

    def _send_leave(self, epoch: int) -> None:
        if self.member_id:
            settings = self.settings
            request = ConsumerGroupHeartbeat(
                self._group_id, self.member_id, epoch, settings.group_instance_id, client_id=settings.client_id
            )
            self._send(request, lambda answer: None)

    def _forget_membership(self) -> None:
        self.generation = 0
        self.phase = Phase.UNJOINED
        self._heartbeat_epoch += 1
