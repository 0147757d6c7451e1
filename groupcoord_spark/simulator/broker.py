"""The state of the simulated broker, which all requests share: clock, settings, log, and offsets partitions with groups and offsets."""

from collections.abc import Callable, Iterable

from groupcoord_spark.coordinator.transactions import OffsetKey, OffsetStore, StoredOffset
from groupcoord_spark.protocol import offsets_partition_for
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from groupcoord_spark.simulator.answers import Answer
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.clock import Clock, Timer, TimerKind
from groupcoord_spark.simulator.consumer_group import ConsumerGroup
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.group import Group
from groupcoord_spark.simulator.permissions import Denied
from groupcoord_spark.simulator.records import RecordToWrite, WrittenRecord
from groupcoord_spark.simulator.release import Release
from groupcoord_spark.simulator.settings import MemberIds, Settings
from groupcoord_spark.simulator.share_group import ShareGroup
from groupcoord_spark.simulator.states import State
from groupcoord_spark.simulator.streams_group import StreamsGroup

LOGGED_ERRORS = frozenset({Error.NONE, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.REQUEST_TIMED_OUT})
"""Results of an append after which the records are in the log of the leader. A later load of the partition finds them there."""


class AppendInFlight:
    """An append whose result is not known. ``end`` is called with the result, once."""

    __slots__ = ("end", "group_id", "timer")

    def __init__(self, group_id: str, end: Callable[[Error], None]) -> None:
        self.group_id = group_id
        self.end = end
        self.timer: Timer | None = None


class OffsetsPartition:
    """One partition of ``__consumer_offsets`` that the broker leads, with its groups and their offsets."""

    __slots__ = (
        "appends_in_flight",
        "consumer_groups",
        "groups",
        "in_flight",
        "is_loading",
        "next_record_offset",
        "number",
        "offsets",
        "producers_with_open_transaction",
        "share_groups",
        "streams_groups",
        "streams_initial_delays",
        "waiting_fetches",
    )

    def __init__(self, number: int, release: Release) -> None:
        self.number = number
        self.is_loading = False
        self.groups: dict[str, Group] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.share_groups: dict[str, ShareGroup] = {}
        self.streams_groups: dict[str, StreamsGroup] = {}
        self.streams_initial_delays: dict[str, Timer] = {}
        """Group id -> the timer of a streams group that waits for more members. It runs on even if the group is not written."""
        self.offsets = OffsetStore(release.semantics)
        self.appends_in_flight: list[AppendInFlight] = []
        self.in_flight: dict[OffsetKey, StoredOffset] = {}
        """Commits in flight: their records are being appended. Of two commits of the same key the later one is here."""
        self.waiting_fetches: list[Callable[[], None]] = []
        """OffsetFetch requests of 4.x that are answered when no append is in flight."""
        self.producers_with_open_transaction: dict[str, set[int]] = {}
        """Group id -> producer ids whose open transaction has staged offsets of the group, even if all of these offsets were deleted since.
        Only the rules of Scala brokers ask for it."""
        self.next_record_offset = 0

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
        self.group_settings: dict[str, dict[str, int]] = {}
        """Group id -> settings that an administrator has given to the group."""
        self.append_takes_ms = 0
        """How long the appends of commits and assignments take."""
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
        self.partitions = {number: OffsetsPartition(number, self.release) for number in range(self.settings.offsets_topic_num_partitions)}

    # Groups

    def partition_number(self, group_id: str) -> int:
        """The number of the offsets partition that the group belongs to."""
        return offsets_partition_for(group_id, self.settings.offsets_topic_num_partitions)

    def partition_of(self, group_id: str) -> OffsetsPartition:
        """The group's offsets partition. The broker has to lead it, which coordinator_checks.py makes sure of."""
        return self.partitions[self.partition_number(group_id)]

    def group(self, group_id: str) -> Group | None:
        """The classic group, or None if there is no classic group of that id."""
        partition = self.partitions.get(self.partition_number(group_id))
        return None if partition is None else partition.groups.get(group_id)

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The consumer group, or None if there is no consumer group of that id."""
        partition = self.partitions.get(self.partition_number(group_id))
        return None if partition is None else partition.consumer_groups.get(group_id)

    def share_group(self, group_id: str) -> ShareGroup | None:
        """The share group, or None if there is no share group of that id."""
        partition = self.partitions.get(self.partition_number(group_id))
        return None if partition is None else partition.share_groups.get(group_id)

    def refuses_classic_members(self, group_id: str) -> bool:
        """Whether a classic JoinGroup is refused: by every share group and by streams groups with members."""
        streams_group = self.streams_group(group_id)
        return self.share_group(group_id) is not None or (streams_group is not None and bool(streams_group.members))

    @property
    def share_assignment_interval_ms(self) -> int:
        """group.share.assignment.interval.ms; the default of the release if it is not set."""
        interval_ms = self.settings.group_share_assignment_interval_ms
        return self.release.share_assignment_interval_ms if interval_ms is None else interval_ms

    @property
    def consumer_assignment_interval_ms(self) -> int:
        """group.consumer.assignment.interval.ms; the default of the release if it is not set."""
        interval_ms = self.settings.group_consumer_assignment_interval_ms
        return self.release.consumer_assignment_interval_ms if interval_ms is None else interval_ms

    def streams_group(self, group_id: str) -> StreamsGroup | None:
        """The streams group, or None if there is no streams group of that id."""
        partition = self.partitions.get(self.partition_number(group_id))
        return None if partition is None else partition.streams_groups.get(group_id)

    def create_group(self, group_id: str) -> Group:
        """Create a group: Empty, generation 0."""
        group = Group(group_id, self.now_ms, like_java=self.release.like_java_maps)
        self.partition_of(group_id).groups[group_id] = group
        return group

    def remove_group(self, group: Group) -> None:
        """Remove a group from the broker's memory: it becomes Dead and its timers are cancelled. Writes no record."""
        group.transition_to(State.DEAD, self.now_ms)
        timers = [group.join_timer, group.sync_timer, *group.pending_members.values(), *(member.session_timer for member in group.members)]
        for timer in timers:
            if timer is not None:
                timer.is_cancelled = True
        self.partition_of(group.group_id).groups.pop(group.group_id, None)

    def new_member_id(self, name: str, client_id: str) -> str:
        """Make a member id for a client. ``name``: the client id of a dynamic member, the instance id of a static member."""
        member_id = self._new_member_id(name)
        self.member_ids_by_client_id.setdefault(client_id, []).append(member_id)
        return member_id

    # Time, answers, log

    def start_timer(self, kind: TimerKind, delay_ms: int, group: Group, member_id: str, fire: Callable[[], bool]) -> Timer:
        """Start a timer of a group, or of one of its members (``member_id`` "" means none)."""
        return self.clock.start(kind, delay_ms, group.group_id, member_id, fire)

    def answer(self, call: Call, answer: Answer) -> None:
        """Answer a request at the current time."""
        call.answer = answer
        call.answered_at_ms = self.clock.now_ms
        self.answered_calls.append(call)

    def append(
        self, group_id: str, records: Iterable[RecordToWrite], producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
    ) -> tuple[Error, list[WrittenRecord]]:
        """Write records of one group as one batch. Returns (NONE, the written records), or (the error of the log, no records)."""
        error = self.append_error
        if error not in LOGGED_ERRORS:
            return error, []
        written = self._log(group_id, records, producer_id, producer_epoch)
        return (Error.NONE, written) if error is Error.NONE else (error, [])

    def append_slowly(
        self,
        group_id: str,
        records: Iterable[RecordToWrite],
        producer_id: int,
        producer_epoch: int,
        end: Callable[[Error, list[WrittenRecord]], None],
        end_late: Callable[[list[WrittenRecord]], None],
    ) -> None:
        """Write records of one group as one batch, which takes ``append_takes_ms``.

        Args:
            end: called with the result and the records in the log: after the append, or after offsets.commit.timeout.ms with
                REQUEST_TIMED_OUT.
            end_late: called when an append succeeds after that timeout.
        """
        error, takes_ms, timeout_ms = self.append_error, self.append_takes_ms, self.settings.offsets_commit_timeout_ms
        written = self._log(group_id, records, producer_id, producer_epoch) if error in LOGGED_ERRORS else []
        partition = self.partition_of(group_id)
        append = AppendInFlight(group_id, lambda result: end(result, written))

        def fire() -> bool:
            partition.appends_in_flight.remove(append)
            if takes_ms <= timeout_ms:
                append.end(error)
            elif error is Error.NONE:
                end_late(written)
            self._answer_waiting_fetches(partition)
            return True

        def time_out() -> bool:
            append.end(Error.REQUEST_TIMED_OUT)
            append.end = lambda result: None
            append.timer = self.clock.start(TimerKind.APPEND, takes_ms - timeout_ms, group_id, "", fire)
            return True

        append.timer = self.clock.start(
            TimerKind.APPEND, min(takes_ms, timeout_ms), group_id, "", fire if takes_ms <= timeout_ms else time_out
        )
        partition.appends_in_flight.append(append)

    def fail_appends_in_flight(self, partition: OffsetsPartition) -> None:
        """The broker loses the partition: whoever waits for an append hears that the leader is another one."""
        for append in partition.appends_in_flight:
            if append.timer is not None:
                append.timer.is_cancelled = True
            append.end(Error.NOT_LEADER_OR_FOLLOWER)
        partition.appends_in_flight.clear()
        self._answer_waiting_fetches(partition)

    def _answer_waiting_fetches(self, partition: OffsetsPartition) -> None:
        if not partition.appends_in_flight:
            waiting, partition.waiting_fetches = partition.waiting_fetches, []
            for answer in waiting:
                answer()

    def _log(self, group_id: str, records: Iterable[RecordToWrite], producer_id: int, producer_epoch: int) -> list[WrittenRecord]:
        partition = self.partition_of(group_id)
        self._batch += 1
        written = []
        for record in records:
            written.append(self.record(partition, record, partition.next_record_offset, producer_id, producer_epoch))
            partition.next_record_offset += 1
        self.written_records.extend(written)
        return written

    def record(
        self, partition: OffsetsPartition, record: RecordToWrite, record_offset: int, producer_id: int, producer_epoch: int
    ) -> WrittenRecord:
        """A record as it stands in the log, in the batch that is written now."""
        return WrittenRecord(
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

    def append_marker(self, partition: OffsetsPartition, producer_id: int, producer_epoch: int, control: str) -> None:
        """Write a transaction marker. ``append_error`` does not apply to markers."""
        self._batch += 1
        self.written_records.append(
            WrittenRecord(
                offsets_partition=partition.number,
                record_offset=partition.next_record_offset,
                batch=self._batch,
                timestamp_ms=self.clock.now_ms,
                key_type=None,
                key=None,
                value_version=None,
                value=None,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=True,
                control=control,
            )
        )
        partition.next_record_offset += 1
