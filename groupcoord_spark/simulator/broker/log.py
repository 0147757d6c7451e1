"""The log of ``__consumer_offsets``: appends that succeed or fail, now or later (docs/reference/coordinator.md, chapter 9.7)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from groupcoord_spark.simulator.broker.offsets_partition import (
    ERRORS_OF_REPLICATION,
    LOGGED_ERRORS,
    NO_VIEW,
    AppendInFlight,
    OffsetsPartition,
    Waiter,
)
from groupcoord_spark.simulator.broker.release import Release
from groupcoord_spark.simulator.groups import Clock, TimerKind
from groupcoord_spark.simulator.messages import Error, RecordToWrite, WrittenRecord


class Log:
    """The log of the offsets partitions that the broker leads.

    partition_of: gives the offsets partition of a group. commit_timeout_ms: offsets.commit.timeout.ms.
    """

    def __init__(self, release: Release, clock: Clock, partition_of: Callable[[str], OffsetsPartition], commit_timeout_ms: int) -> None:
        self.error = Error.NONE
        """The error of every append; NONE while appends succeed."""
        self.takes_ms = 0
        """How long appends take."""
        self.in_flight = 0
        """The number of appends in flight in all partitions."""
        self.written: list[WrittenRecord] = []
        """Records that the current event has written."""
        self._release = release
        self._clock = clock
        self._partition_of = partition_of
        self._commit_timeout_ms = commit_timeout_ms
        self._batch = 0

    def is_slow(self, partition: OffsetsPartition) -> bool:
        """Return whether the result of the next append to the partition arrives later."""
        return bool(self.takes_ms) or partition.failing_batch is not None

    def append(
        self,
        group_id: str,
        records: Sequence[RecordToWrite],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        *,
        undo: Callable[[], None] | None = None,
        shown: Any = NO_VIEW,
        deleted: Mapping[OffsetKey, StoredOffset] | None = None,
    ) -> tuple[Error, list[WrittenRecord]]:
        """Write records of one group as one batch. Returns (NONE, the written records), or (the error of the log, no records).

        A Java coordinator whose appends take time goes on as if the append had succeeded, and hears of its result later: if the append is
        going to fail, the records are not in the log.

        Args:
            undo: takes back the changes of the records, if the append fails after that time.
            shown: the group as readers see it in that time; None: they see no group.
            deleted: offsets that readers see in that time.
        """
        partition = self._partition_of(group_id)
        if self._release.applies_before_append and self.is_slow(partition):
            append, written = self._start_append(group_id, records, producer_id, producer_epoch)
            if undo is not None:
                append.undos.append(undo)
            if shown is not NO_VIEW:
                append.views.setdefault(group_id, shown)
            append.deleted.update(deleted or {})
            return Error.NONE, written or self.as_written(partition, records, producer_id, producer_epoch)
        written = self._write(partition, records, producer_id, producer_epoch) if self.error in LOGGED_ERRORS else []
        return self.error, written if self.error is Error.NONE else []

    def append_tombstones(
        self,
        group_id: str,
        records: Sequence[RecordToWrite],
        undo: Callable[[], None],
        shown: Any = NO_VIEW,
        deleted: Mapping[OffsetKey, StoredOffset] | None = None,
    ) -> Error:
        """Write the tombstones of a deletion. Returns the error that keeps the coordinator from deleting; NONE: it deletes.

        A Scala coordinator deletes the offsets even if the append of the tombstones fails, and does not wait for other replicas. The other
        arguments are the same as for ``append``.
        """
        if self._release.applies_before_append:
            error, _ = self.append(group_id, records, undo=undo, shown=shown, deleted=deleted)
            return self._release.group_append_errors.get(error, error)
        if self.error is Error.NONE or self.error in ERRORS_OF_REPLICATION:
            self._write(self._partition_of(group_id), records, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return Error.NONE

    def append_slowly(
        self,
        group_id: str,
        records: Iterable[RecordToWrite],
        end: Callable[[Error, list[WrittenRecord]], None],
        end_late: Callable[[Error, list[WrittenRecord]], None] = lambda error, written: None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """Write records of one group as one batch, which takes ``takes_ms``.

        Args:
            end: called with the result and the records in the log: after the append, or after offsets.commit.timeout.ms with
                REQUEST_TIMED_OUT.
            end_late: called with the result of an append that outlasts that time.
        """
        append, written = self._start_append(group_id, records, producer_id, producer_epoch)
        self.wait_for(append, lambda error: end(error, written), lambda error: end_late(error, written))

    def append_marker(
        self, partition: OffsetsPartition, producer_id: int, producer_epoch: int, control: str, end: Callable[[Error], None]
    ) -> None:
        """Write a transaction marker. ``end`` is called with the result of the append, whenever that is known."""
        append = self._start_append_to(partition, "") if self.is_slow(partition) else None
        error = self.error if append is None else append.error
        if error in LOGGED_ERRORS:
            self._batch += 1
            marker = self._record_maker(partition, producer_id, producer_epoch)
            self.written.append(marker(record_offset=partition.next_record_offset, is_transactional=True, control=control))
            partition.next_record_offset += 1
        if append is None:
            end(error)
        else:
            append.waiters.append(Waiter(end, lambda error: None))

    def wait_for(
        self, append: AppendInFlight, end: Callable[[Error], None], end_late: Callable[[Error], None] = lambda error: None
    ) -> None:
        """Wait for an append, at most for offsets.commit.timeout.ms. ``end`` and ``end_late`` as in ``append_slowly``."""
        waiter = Waiter(end, end_late)
        append.waiters.append(waiter)
        if append.due_ms - self._clock.now_ms > self._commit_timeout_ms:

            def time_out() -> bool:
                end(Error.REQUEST_TIMED_OUT)
                return True

            waiter.timer = self._clock.start(TimerKind.APPEND, self._commit_timeout_ms, append.group_id, "", time_out)

    def fail_appends_in_flight(self, partition: OffsetsPartition) -> None:
        """Fail the appends in flight because the broker has lost the partition; waiting requests get NOT_LEADER."""
        appends, partition.appends_in_flight, partition.failing_batch = partition.appends_in_flight, [], None
        self.in_flight -= len(appends)
        for append in appends:
            if append.timer is not None:
                append.timer.is_cancelled = True
            append.undos.clear()
            append.finish(Error.NOT_LEADER_OR_FOLLOWER)

    def as_written(
        self, partition: OffsetsPartition, records: Iterable[RecordToWrite], producer_id: int, producer_epoch: int
    ) -> list[WrittenRecord]:
        """Return the records as they appear in the log if they are written now."""
        record_of = self._record_maker(partition, producer_id, producer_epoch)
        return [
            record_of(
                record_offset=record_offset,
                key_type=record.key_type,
                key=record.key,
                value_version=record.value_version,
                value=record.value,
                is_transactional=producer_id != NO_PRODUCER_ID,
            )
            for record_offset, record in enumerate(records, partition.next_record_offset)
        ]

    def _record_maker(self, partition: OffsetsPartition, producer_id: int, producer_epoch: int) -> Callable[..., WrittenRecord]:
        now_ms = self._clock.now_ms
        return partial(
            WrittenRecord, partition.number, batch=self._batch, timestamp_ms=now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )

    def _write(
        self, partition: OffsetsPartition, records: Iterable[RecordToWrite], producer_id: int, producer_epoch: int
    ) -> list[WrittenRecord]:
        self._batch += 1
        written = self.as_written(partition, records, producer_id, producer_epoch)
        partition.next_record_offset += len(written)
        self.written.extend(written)
        return written

    def _start_append(
        self, group_id: str, records: Iterable[RecordToWrite], producer_id: int, producer_epoch: int
    ) -> tuple[AppendInFlight, list[WrittenRecord]]:
        """Start an append of records. Returns it and its records in the log; none if the append is going to fail."""
        partition = self._partition_of(group_id)
        append = self._start_append_to(partition, group_id)
        is_logged = append.error in LOGGED_ERRORS
        return append, self._write(partition, records, producer_id, producer_epoch) if is_logged else []

    def _start_append_to(self, partition: OffsetsPartition, group_id: str) -> AppendInFlight:
        """Start an append that takes time, or join the batch that is going to fail."""
        if partition.failing_batch is not None:
            return partition.failing_batch
        append = AppendInFlight(group_id, self.error, self._clock.now_ms + self.takes_ms)
        if self._release.applies_before_append and append.error not in LOGGED_ERRORS:
            partition.failing_batch = append

        def fire() -> bool:
            partition.appends_in_flight.remove(append)
            self.in_flight -= 1
            if partition.failing_batch is append:
                partition.failing_batch = None
            append.finish(append.error)
            return True

        append.timer = self._clock.start(TimerKind.APPEND, self.takes_ms, group_id, "", fire)
        partition.appends_in_flight.append(append)
        self.in_flight += 1
        return append
