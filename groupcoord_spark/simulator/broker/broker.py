"""The state of the simulated broker, which all requests share: clock, settings, log, and offsets partitions with groups and offsets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from groupcoord_spark.coordinator.transactions import OffsetKey, OffsetStore, StoredOffset
from groupcoord_spark.protocol import offsets_partition_for
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from groupcoord_spark.simulator.broker.appends import ERRORS_OF_REPLICATION, LOGGED_ERRORS, NO_VIEW, AppendInFlight, Waiter
from groupcoord_spark.simulator.broker.permissions import Denied
from groupcoord_spark.simulator.broker.release import Release
from groupcoord_spark.simulator.broker.settings import MemberIds, Settings
from groupcoord_spark.simulator.groups import ClassicGroup, Clock, Group, State, Timer, TimerKind
from groupcoord_spark.simulator.groups.modern_group import cancel_timer
from groupcoord_spark.simulator.messages import Call, Error, RecordToWrite, WrittenRecord
from groupcoord_spark.simulator.messages.answers import Answer
from groupcoord_spark.simulator.messages.calls import refused

G = TypeVar("G", bound=Group)


@dataclass(slots=True, eq=False)
class OffsetsPartition:
    """One partition of ``__consumer_offsets`` that the broker leads, with its groups and their offsets."""

    number: int
    offsets: OffsetStore
    is_loading: bool = False
    next_record_offset: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    streams_initial_delays: dict[str, Timer] = field(default_factory=dict)
    """Group id -> the timer of a streams group that waits for more members. It runs on even if the group is not written."""
    appends_in_flight: list[AppendInFlight] = field(default_factory=list)
    """Oldest first."""
    failing_batch: AppendInFlight | None = None
    """The batch of a Java coordinator whose append is going to fail. What is written meanwhile goes into the same batch."""
    in_flight: dict[OffsetKey, StoredOffset] = field(default_factory=dict)
    """Commits in flight: their records are being appended. Of two commits of the same key the later one is here."""
    deleted_in_flight: dict[OffsetKey, StoredOffset] = field(default_factory=dict)
    """Commits in flight that a deletion has overtaken. It may still be taken back."""
    producers_with_open_transaction: dict[str, set[int]] = field(default_factory=dict)
    """Group id -> producer ids whose open transaction has staged offsets of the group, even if all of these offsets were deleted since.
    Only the rules of Scala brokers ask for it."""

    def pending_partitions(self, group_id: str) -> list[tuple[str, int]]:
        """(topic, partition) of the group's pending offsets."""
        return [(topic, partition) for pending_group, topic, partition in self.offsets.pending if pending_group == group_id]


class Broker:
    """The state of one simulated broker: it answers requests, writes records and keeps the time.

    The rules are in the files that are named after the requests.
    """

    def __init__(self, release: Release, settings: Settings, new_member_id: MemberIds, start_ms: int) -> None:
        self.release = release
        self.settings = settings
        self.clock = Clock(start_ms)
        self.is_active = True
        self.denied = Denied()
        """What the authorizer refuses."""
        self.append_error = Error.NONE
        """The error of every append to the log; NONE while appends succeed."""
        self.partitions: dict[int, OffsetsPartition] = {}
        """Number -> offsets partition, for the partitions that the broker leads: at the start all of them."""
        self.offsets_topic_timer: Timer | None = None
        """Runs while ``__consumer_offsets`` is being created."""
        self.offsets_topic_exists = not settings.offsets_topic_is_missing
        if self.offsets_topic_exists:
            self.lead_all_partitions()
        self.group_settings: dict[str, dict[str, int | str]] = {}
        """Group id -> settings that an administrator has given to the group."""
        self.append_takes_ms = 0
        """How long appends take."""
        self.appends_in_flight = 0
        """The number of appends in flight in all partitions."""
        self.unwritten_markers: list[Callable[[], None]] = []
        """Write the markers of ended transactions whose append has failed: the transaction coordinator repeats them."""
        self.transactions: dict[int, set[int]] = {}
        """Producer id -> numbers of the offsets partitions that take part in its open transaction."""
        self.answered_calls: list[Call] = []
        """Calls that the current event has answered."""
        self.written_records: list[WrittenRecord] = []
        """Records that the current event has written."""
        self.member_ids_by_client_id: dict[str, list[str]] = {}
        """Client id -> member ids that the broker has made for it, oldest first."""
        self._new_member_id = new_member_id
        self._batch = 0

    @property
    def now_ms(self) -> int:
        """The simulated time, in milliseconds since the epoch."""
        return self.clock.now_ms

    @property
    def max_session_timeout_ms(self) -> int:
        """group.max.session.timeout.ms; the default of the release if it is not set."""
        limit = self.settings.group_max_session_timeout_ms
        return limit if limit is not None else self.release.max_session_timeout_ms

    @property
    def retention_ms(self) -> int:
        """offsets.retention.minutes in milliseconds; the default of the release if it is not set."""
        retention_ms = self.settings.offsets_retention_ms
        return retention_ms if retention_ms is not None else self.release.semantics.default_retention_ms

    def lead_all_partitions(self) -> None:
        """Become leader of all offsets partitions, which are empty."""
        self.partitions = {}
        for number in range(self.settings.offsets_topic_num_partitions):
            self.lead_partition(number)

    def lead_partition(self, number: int) -> OffsetsPartition:
        """Become leader of an offsets partition, which is empty."""
        partition = self.partitions[number] = OffsetsPartition(number, OffsetStore(self.release.semantics))
        return partition

    # Groups

    def partition_number(self, group_id: str) -> int:
        """The number of the offsets partition that the group belongs to."""
        return offsets_partition_for(group_id, self.settings.offsets_topic_num_partitions)

    def partition_of(self, group_id: str) -> OffsetsPartition:
        """The group's offsets partition. The broker has to lead it, which coordinator_checks.py makes sure of."""
        return self.partitions[self.partition_number(group_id)]

    def group(self, group_id: str) -> Group | None:
        """The group, or None if there is no group of that id."""
        partition = self.partitions.get(self.partition_number(group_id))
        return None if partition is None else partition.groups.get(group_id)

    def group_of(self, group_id: str, kind: type[G]) -> G | None:
        """The group, or None if there is no group of that id and that kind."""
        group = self.group(group_id)
        return group if isinstance(group, kind) else None

    def state_name(self, group: Group) -> str:
        """The name of the group's state in this release."""
        return self.release.completing_rebalance_name if group.state_name == State.COMPLETING_REBALANCE.value else group.state_name

    def assignment_interval_ms(self, group_type: str) -> int:
        """The broker's shortest time between two target assignments of a group of this type."""
        of_broker: int | None = getattr(self.settings, f"group_{group_type}_assignment_interval_ms")
        return self.release.assignment_interval_ms if of_broker is None else of_broker

    def topics_have_changed(self) -> None:
        """Let every group that the broker assigns look at its topics with the next heartbeat."""
        for partition in self.partitions.values():
            for group in partition.groups.values():
                group.note_changed_topics()

    def create_group(self, group_id: str) -> ClassicGroup:
        """Create a classic group: Empty, generation 0."""
        group = ClassicGroup(group_id, self.now_ms, like_java=self.release.like_java_maps)
        self.partition_of(group_id).groups[group_id] = group
        return group

    def remove_group(self, group: Group) -> Callable[[], None]:
        """Remove a group from the broker's memory, and stop its timers. Writes no record. Returns what puts the group back as it was."""
        partition = self.partition_of(group.group_id)
        run_again = group.end(self.now_ms)
        partition.groups.pop(group.group_id, None)
        cancel_timer(partition.streams_initial_delays, group.group_id)

        def put_back() -> None:
            partition.groups[group.group_id] = group
            run_again(self.clock)

        return put_back

    def new_member_id(self, name: str, client_id: str) -> str:
        """Make a member id for a client. ``name``: the client id of a dynamic member, the instance id of a static member."""
        member_id = self._new_member_id(name)
        self.member_ids_by_client_id.setdefault(client_id, []).append(member_id)
        return member_id

    # Time, answers, log

    def start_timer(self, kind: TimerKind, delay_ms: int, group: ClassicGroup, member_id: str, fire: Callable[[], bool]) -> Timer:
        """Start a timer of a group, or of one of its members (``member_id`` "" means none)."""
        return self.clock.start(kind, delay_ms, group.group_id, member_id, fire)

    def answer(self, call: Call, answer: Answer) -> None:
        """Answer a request at the current time."""
        call.answer = answer
        call.answered_at_ms = self.clock.now_ms
        self.answered_calls.append(call)

    def refuse(self, call: Call, error: Error) -> None:
        """Answer a request that is refused as a whole."""
        self.answer(call, refused(call.request, error))

    def take_back_answer(self, call: Call) -> None:
        """The answer of the current event to a request is not sent yet."""
        self.answered_calls.remove(call)
        call.answer = call.answered_at_ms = None

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
        error = self.append_error
        if self.release.applies_before_append and (self.append_takes_ms or self.partition_of(group_id).failing_batch is not None):
            append, written = self._start_append(group_id, records, producer_id, producer_epoch)
            if undo is not None:
                append.undos.append(undo)
            if shown is not NO_VIEW:
                append.views.setdefault(group_id, shown)
            append.deleted.update(deleted or {})
            return Error.NONE, written or self.as_written(group_id, records, producer_id, producer_epoch)
        if error not in LOGGED_ERRORS:
            return error, []
        written = self._log(group_id, records, producer_id, producer_epoch)
        return (Error.NONE, written) if error is Error.NONE else (error, [])

    def append_tombstones(
        self,
        group_id: str,
        records: Sequence[RecordToWrite],
        undo: Callable[[], None],
        shown: Any = NO_VIEW,
        deleted: Mapping[OffsetKey, StoredOffset] | None = None,
    ) -> Error:
        """Write the tombstones of a deletion. Returns the error that keeps the coordinator from deleting; NONE: it deletes.

        A Scala coordinator deletes whatever becomes of the tombstones, and does not wait for other replicas. The other arguments are those
        of ``append``.
        """
        if self.release.applies_before_append:
            error, _ = self.append(group_id, records, undo=undo, shown=shown, deleted=deleted)
            return self.release.group_append_errors.get(error, error)
        if self.append_error is Error.NONE or self.append_error in ERRORS_OF_REPLICATION:
            self._log(group_id, records, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return Error.NONE

    def append_slowly(
        self,
        group_id: str,
        records: Iterable[RecordToWrite],
        producer_id: int,
        producer_epoch: int,
        end: Callable[[Error, list[WrittenRecord]], None],
        end_late: Callable[[Error, list[WrittenRecord]], None],
    ) -> None:
        """Write records of one group as one batch, which takes ``append_takes_ms``.

        Args:
            end: called with the result and the records in the log: after the append, or after offsets.commit.timeout.ms with
                REQUEST_TIMED_OUT.
            end_late: called with the result of an append that outlasts that time.
        """
        append, written = self._start_append(group_id, records, producer_id, producer_epoch)
        self.wait_for(append, lambda error: end(error, written), lambda error: end_late(error, written))

    def wait_for(
        self, append: AppendInFlight, end: Callable[[Error], None], end_late: Callable[[Error], None] = lambda error: None
    ) -> None:
        """Wait for an append, at most for offsets.commit.timeout.ms. ``end`` and ``end_late`` as in ``append_slowly``."""
        waiter = Waiter(end, end_late)
        append.waiters.append(waiter)
        timeout_ms = self.settings.offsets_commit_timeout_ms
        if append.due_ms - self.now_ms > timeout_ms:

            def time_out() -> bool:
                end(Error.REQUEST_TIMED_OUT)
                return True

            waiter.timer = self.clock.start(TimerKind.APPEND, timeout_ms, append.group_id, "", time_out)

    def last_append_of(self, number: int) -> AppendInFlight | None:
        """The append of an offsets partition whose end is the end of all that was written so far; None: nothing is in flight."""
        partition = self.partitions.get(number)
        if partition is None or not partition.appends_in_flight:
            return None
        return partition.failing_batch or max(partition.appends_in_flight, key=lambda append: append.due_ms)

    def wait_for_appends(self, group_ids: frozenset[str], end: Callable[[Error, frozenset[str]], None]) -> bool:
        """Wait for everything that was written so far to the partitions of these groups.

        Args:
            end: called once, with (NONE, no groups), or with the error of an append as the client gets it and the groups that it concerns.

        Returns:
            Whether there is anything to wait for; if not, ``end`` is called at once.
        """
        by_partition: dict[int, set[str]] = {}
        for group_id in group_ids:
            by_partition.setdefault(self.partition_number(group_id), set()).add(group_id)
        appends = [(append, of) for number, of in by_partition.items() if (append := self.last_append_of(number)) is not None]
        failed: dict[str, Error] = {}
        remaining = len(appends)

        def count(error: Error, of: set[str]) -> None:
            nonlocal remaining
            remaining -= 1
            if error is not Error.NONE:
                failed.update(dict.fromkeys(of, self.release.group_append_errors.get(error, error)))
            if not remaining:
                end(next(iter(failed.values()), Error.NONE), frozenset(failed))

        for append, of in appends:
            self.wait_for(append, partial(count, of=of))
        if not appends:
            end(Error.NONE, frozenset())
        return bool(appends)

    def shown(self, group_id: str) -> Group | None:
        """The group as readers see it: a change of a Java coordinator is seen when its records are replicated."""
        partition = self.partitions.get(self.partition_number(group_id))
        for append in () if partition is None else partition.appends_in_flight:
            if group_id in append.views:
                group: Group | None = append.views[group_id]
                return group
        return self.group(group_id)

    def shown_of(self, group_id: str, kind: type[G]) -> G | None:
        """The group of that kind as readers see it."""
        group = self.shown(group_id)
        return group if isinstance(group, kind) else None

    def fail_appends_in_flight(self, partition: OffsetsPartition) -> None:
        """The broker loses the partition: whoever waits for an append hears that the leader is another one."""
        appends, partition.appends_in_flight, partition.failing_batch = partition.appends_in_flight, [], None
        self.appends_in_flight -= len(appends)
        for append in appends:
            if append.timer is not None:
                append.timer.is_cancelled = True
            append.undos.clear()
            append.finish(Error.NOT_LEADER_OR_FOLLOWER)

    def _start_append(
        self, group_id: str, records: Iterable[RecordToWrite], producer_id: int, producer_epoch: int
    ) -> tuple[AppendInFlight, list[WrittenRecord]]:
        """Start an append of records. Returns it and its records in the log; none if the append is going to fail."""
        append = self._start_append_to(self.partition_of(group_id), group_id)
        is_logged = append.error in LOGGED_ERRORS
        return append, self._log(group_id, records, producer_id, producer_epoch) if is_logged else []

    def _start_append_to(self, partition: OffsetsPartition, group_id: str) -> AppendInFlight:
        """Start an append that takes time, or join the batch that is going to fail."""
        if partition.failing_batch is not None:
            return partition.failing_batch
        append = AppendInFlight(group_id, self.append_error, self.now_ms + self.append_takes_ms)
        if self.release.applies_before_append and append.error not in LOGGED_ERRORS:
            partition.failing_batch = append

        def fire() -> bool:
            partition.appends_in_flight.remove(append)
            self.appends_in_flight -= 1
            if partition.failing_batch is append:
                partition.failing_batch = None
            append.finish(append.error)
            return True

        append.timer = self.clock.start(TimerKind.APPEND, self.append_takes_ms, group_id, "", fire)
        partition.appends_in_flight.append(append)
        self.appends_in_flight += 1
        return append

    def _log(self, group_id: str, records: Iterable[RecordToWrite], producer_id: int, producer_epoch: int) -> list[WrittenRecord]:
        self._batch += 1
        written = self.as_written(group_id, records, producer_id, producer_epoch)
        self.partition_of(group_id).next_record_offset += len(written)
        self.written_records.extend(written)
        return written

    def as_written(self, group_id: str, records: Iterable[RecordToWrite], producer_id: int, producer_epoch: int) -> list[WrittenRecord]:
        """Records as they stand in the log if they are written now."""
        partition = self.partition_of(group_id)
        return [
            WrittenRecord(
                offsets_partition=partition.number,
                record_offset=record_offset,
                batch=self._batch,
                timestamp_ms=self.clock.now_ms,
                key_type=record.key_type,
                key=record.key,
                value_version=record.value_version,
                value=record.value,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=producer_id != NO_PRODUCER_ID,
            )
            for record_offset, record in enumerate(records, partition.next_record_offset)
        ]

    def append_marker(
        self, partition: OffsetsPartition, producer_id: int, producer_epoch: int, control: str, end: Callable[[Error], None]
    ) -> None:
        """Write a transaction marker. ``end`` is called with the result of the append, whenever that is known."""
        error = self.append_error
        if self.append_takes_ms or partition.failing_batch is not None:
            append = self._start_append_to(partition, "")
            if append.error in LOGGED_ERRORS:
                self._log_marker(partition, producer_id, producer_epoch, control)
            append.waiters.append(Waiter(end, lambda error: None))
            return
        if error in LOGGED_ERRORS:
            self._log_marker(partition, producer_id, producer_epoch, control)
        end(error)

    def _log_marker(self, partition: OffsetsPartition, producer_id: int, producer_epoch: int, control: str) -> None:
        self._batch += 1
        self.written_records.append(
            WrittenRecord(
                offsets_partition=partition.number,
                record_offset=partition.next_record_offset,
                batch=self._batch,
                timestamp_ms=self.clock.now_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=True,
                control=control,
            )
        )
        partition.next_record_offset += 1
