"""The offsets of a simulated consumer: commits of the application, auto commits, and fetches of committed offsets."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from groupcoord_spark.assignors import TopicPartition
from groupcoord_spark.simulator.clients import client_core
from groupcoord_spark.simulator.messages import Error
from groupcoord_spark.simulator.messages.answers import OffsetCommitAnswer, OffsetFetchAnswer
from groupcoord_spark.simulator.messages.partition_lists import by_topic, offsets_text
from groupcoord_spark.simulator.messages.requests import GroupToFetch, OffsetCommit, OffsetFetch, OffsetToCommit


class OffsetsClient(client_core.ClientCore):
    """A client that commits and fetches offsets. Rules: docs/reference/coordinator.md, chapter 9.5."""

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
        call = f"{'commitSync' if is_sync else 'commitAsync'}({offsets_text(to_commit)})"
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

    def _schedule_auto_commit(self, delay_ms: int) -> None:
        """Schedule an auto commit for the first poll after ``delay_ms``: the commit interval, or less if the last commit may be retried."""
        self._auto_commit_epoch += 1
        epoch = self._auto_commit_epoch

        def come_due() -> None:
            if epoch == self._auto_commit_epoch and self.phase is not client_core.Phase.CLOSED:
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
            if group is None or group.error in client_core.RETRIABLE_ERRORS:
                self._find_coordinator_after_backoff(lambda: self._fetch_offsets(requested, is_committed_call=is_committed_call))
                return
            if group.error is not Error.NONE:
                self._fail_for_good(group.error)
                return
            fetched = {partition: group.topics[partition.topic][partition.partition] for partition in requested}
            if any(offset.error in client_core.RETRIABLE_ERRORS for offset in fetched.values()):
                self._schedule(self.settings.retry_backoff_ms, lambda: self._fetch_offsets(requested, is_committed_call=is_committed_call))
                return
            if failed := [offset.error for offset in fetched.values() if offset.error is not Error.NONE]:
                self._fail_for_good(failed[0])
                return
            committed = {partition: offset.committed_offset for partition, offset in fetched.items()}
            if is_committed_call:
                existing = {partition: offset for partition, offset in committed.items() if offset >= 0}
                self._notify_application(f"committed: {offsets_text(existing) or 'nothing'}")
                return
            owned = frozenset(self._owned_partitions)
            for partition, offset in committed.items():
                if partition in owned:
                    # Without a committed offset auto.offset.reset decides, and the log of a simulated topic begins at 0.
                    self.positions.setdefault(partition, max(offset, 0))

        # Since 2.5 consumers wait for the end of transactions that may change their offsets (KIP-447).
        waits = self._version(OffsetFetch) >= client_core.FIRST_VERSION_WITH_REQUIRE_STABLE
        self._send(OffsetFetch((GroupToFetch(self._group_id, by_topic(requested)),), waits), on_answer)

    def _commit_request(self, offsets: Mapping[TopicPartition, int]) -> OffsetCommit:
        to_commit = tuple(OffsetToCommit(topic, number, offset) for (topic, number), offset in offsets.items())
        return OffsetCommit(self._group_id, to_commit, self.generation, self.member_id, self.settings.group_instance_id)

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
            self._notify_application(f"onCommit({offsets_text(offsets)}) of {interceptor}")

    def _send_commit(self, commit: "_PendingCommit") -> None:
        if self.phase is client_core.Phase.CLOSED:
            self._end_commit(commit, "IllegalStateException: the consumer has failed or is closed")
        elif self.phase is not client_core.Phase.STABLE:
            # Without a generation no request is sent (ConsumerCoordinator.sendOffsetCommitRequest).
            is_rebalancing = self.phase in (client_core.Phase.JOINING, client_core.Phase.SYNCING)
            self._end_commit(commit, f"{'RebalanceInProgressException' if is_rebalancing else 'CommitFailedException'}, nothing was sent")
        else:
            loses_answer, commit.loses_answer = commit.loses_answer, False
            self._send(self._commit_request(commit.offsets), lambda answer: self._on_commit(commit, answer), loses_answer=loses_answer)

    def _on_commit(self, commit: "_PendingCommit", answer: OffsetCommitAnswer | None) -> None:
        errors = (Error.REQUEST_TIMED_OUT,) if answer is None else tuple(answer.errors.values())
        error = next((answer_error for answer_error in errors if answer_error is not Error.NONE), Error.NONE)
        if error in client_core.RETRIABLE_ERRORS:
            reason = "the connection closed without an answer" if answer is None else error.name
            if not commit.is_sync:
                if error in client_core.COORDINATOR_LOST_ERRORS:
                    self._find_coordinator(lambda: None)
                self._end_commit(commit, f"RetriableCommitFailedException ({reason})", is_retriable=True)
            elif self._environment.now_ms >= commit.deadline_ms:
                self._end_commit(commit, f"TimeoutException ({reason})")
            elif error in client_core.COORDINATOR_LOST_ERRORS:
                self._find_coordinator_after_backoff(lambda: self._send_commit(commit))
            else:
                self._schedule(self.settings.retry_backoff_ms, lambda: self._send_commit(commit))
        elif error is Error.NONE:
            self._end_commit(commit, "done")
        elif error in client_core.MEMBERSHIP_LOST_ERRORS:
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
        self, commit: "_PendingCommit", outcome: str, *, is_retriable: bool = False, then: Callable[[], None] | None = None
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
        """Run the commitAsync callbacks in completion order, on a poll or on the next commit."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


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
