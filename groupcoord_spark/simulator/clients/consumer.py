"""A simulated consumer of either protocol: what its application does, and when it polls, leaves and looks at the topics.

The thread of the application polls all the time, except while it is busy or blocked in commitSync. The client reports calls of rebalance
listeners and commit callbacks, and exceptions, to its ``Environment``. Rules: docs/reference/coordinator.md, chapters 9.5 and 14.
"""

from collections.abc import Collection, Iterable

from groupcoord_spark.assignors import TopicPartition
from groupcoord_spark.simulator.clients.client_core import Phase
from groupcoord_spark.simulator.clients.client_offsets import OffsetsClient
from groupcoord_spark.simulator.messages import requests
from groupcoord_spark.simulator.messages.partition_lists import offsets_text, partitions_text


class Consumer(OffsetsClient):
    """A consumer. Each protocol has a subclass, which joins, keeps and leaves the group."""

    # What the application does

    def start(self) -> None:
        """Subscribe and poll."""
        for kind in (requests.FindCoordinator, self._first_request, requests.OffsetFetch, requests.OffsetCommit):
            own, of_broker = self._own_versions[kind], self._broker_versions.get(kind)
            if of_broker is None:
                problem = f"the broker does not know {kind.__name__}"
            elif max(own.oldest, of_broker.oldest) > min(own.newest, of_broker.newest):
                spans = f"the client knows versions {own.oldest} to {own.newest}, the broker {of_broker.oldest} to {of_broker.newest}"
                problem = f"{kind.__name__}, {spans}"
            else:
                continue
            self._notify_application(f"UnsupportedVersionException: {problem}")
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
            leaves: whether the client leaves the group (KIP-1092); None: if it is dynamic and internal.leave.group.on.close is set.
        """
        if leaves is None:
            leaves = self.settings.group_instance_id is None and self.settings.internal_leave_group_on_close
        if self.settings.enable_auto_commit and self._owned_partitions:
            self._commit_ignoring_errors(lambda: self._leave_and_stop(leaves))
        else:
            self._leave_and_stop(leaves)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription."""
        raise NotImplementedError

    def unsubscribe(self) -> None:
        """unsubscribe(): give up the partitions and leave the group, without a commit."""
        raise NotImplementedError

    def process(self, records: int) -> None:
        """Advance the position of each owned partition by this many records."""
        for partition in self.positions:
            self.positions[partition] += records
        self._notify_application(
            f"processes to {offsets_text(self.positions)}" if self.positions else "holds no partition, processes nothing"
        )

    def stop_polling(self, duration_ms: int) -> None:
        """Do not poll for ``duration_ms``. After max.poll.interval.ms the heartbeat thread leaves the group (KIP-62)."""
        self._is_busy = True
        self._notify_application(f"does not poll for {duration_ms / 1000:g} s")
        if duration_ms > self.settings.max_poll_interval_ms:
            self._schedule(self.settings.max_poll_interval_ms, self._poll_expired)
        self._schedule(duration_ms, self._resume_polling)

    # What each protocol does

    def _join(self) -> None:
        """Join the group, unless the consumer is closed."""
        raise NotImplementedError

    def _leave(self, *, leaves: bool) -> None:
        """Send the last request to the group before the consumer closes, if one is due. ``leaves`` has the same meaning as in ``close``."""
        raise NotImplementedError

    def _leave_until_next_poll(self) -> None:
        """Leave the group, because the application has not polled for too long."""
        raise NotImplementedError

    def _come_back(self) -> None:
        """Resume polling: drop the state that the consumer lost while it was out of the group."""
        raise NotImplementedError

    def _join_if_needed(self) -> None:
        """Join again at a poll, where the client has to begin a rebalance."""

    def _watch_topics(self) -> None:
        """Refresh the topics that the client knows."""

    # Polls and the end of a membership

    def _poll(self) -> None:
        if self._is_busy or self._is_blocked:
            return
        self._run_callbacks()
        if self._auto_commit_is_due and self.phase is Phase.STABLE:
            self._auto_commit()
        self._join_if_needed()

    def _poll_expired(self) -> None:
        if self._is_busy and self.phase is not Phase.CLOSED:
            self._notify_application("max.poll.interval.ms has passed without a poll")
            self._leave_until_next_poll()

    def _resume_polling(self) -> None:
        self._is_busy = False
        self._notify_application("polls again")
        if self.phase is Phase.UNJOINED:
            self._come_back()
        self._poll()

    def _lose_partitions(self) -> None:
        # Rebalance listeners have onPartitionsLost since 2.4 (KIP-429).
        self._notify_listener("onPartitionsLost" if self._release >= (2, 4) else "onPartitionsRevoked", self._owned_partitions)
        self._owned_partitions = ()
        self.positions.clear()

    def _notify_listener(self, callback: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._notify_application(f"{callback}({partitions_text(partitions)})")

    def _leave_and_stop(self, leaves: bool) -> None:
        if self.member_id and self.phase is not Phase.CLOSED:
            self._leave(leaves=leaves)
        self.phase = Phase.CLOSED
        self._heartbeat_epoch += 1
        self._schedule(0, self.die)

    # Topics

    def _refresh_topics(self) -> None:
        """Ask the cluster for its topics: at the start, and then every metadata.max.age.ms."""
        if self.phase is Phase.CLOSED:
            return
        self._metadata_epoch += 1
        epoch = self._metadata_epoch
        self._schedule(self.settings.metadata_max_age_ms, lambda: self._refresh_topics() if epoch == self._metadata_epoch else None)
        self._topics = dict(self._environment.topics)
        self._watch_topics()

    def notice_topic(self, name: str) -> None:
        """React to a topic that was created or deleted: a client that subscribes to it or reads from it gets an error and refreshes its
        metadata soon."""
        if name in self._subscribed_topics or name in (self._assigned_counts or ()):
            self._schedule(self.settings.retry_backoff_ms, self._refresh_topics)
