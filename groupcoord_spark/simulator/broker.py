"""What all requests share: the broker's clock and settings, the offsets partitions it leads with their groups and offsets, its log."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from groupcoord_spark.coordinator.transactions import NO_PRODUCER_ID, OffsetStore
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol import offsets_partition_for
from groupcoord_spark.simulator.answers import Answer
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.clock import Clock, Timer, TimerKind
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.group import Group
from groupcoord_spark.simulator.records import RecordToWrite, WrittenRecord
from groupcoord_spark.simulator.release import Release
from groupcoord_spark.simulator.settings import MemberIds, Settings
from groupcoord_spark.simulator.states import State


class ModernGroup(NamedTuple):
    """What is kept of a group that is not classic."""

    group_type: str
    member_count: int

    @property
    def shuts_out_classic_members(self) -> bool:
        """Share groups always, streams groups with members; consumer groups take them in."""
        return self.group_type == "share" or (self.group_type == "streams" and self.member_count > 0)


class OffsetsPartition:
    """One partition of ``__consumer_offsets`` that this broker leads: the groups in it and their offsets."""

    __slots__ = ("groups", "is_loading", "modern_groups", "next_record_offset", "number", "offsets", "producers_with_open_transaction")

    def __init__(self, number: int, release: Release) -> None:
        self.number = number
        self.is_loading = False
        self.groups: dict[str, Group] = {}
        self.modern_groups: dict[str, ModernGroup] = {}
        """Groups that are not classic, by id. They are loaded and kept, and only turn away; what they take in is not simulated."""
        self.offsets = OffsetStore(release.semantics)
        self.producers_with_open_transaction: dict[str, set[int]] = {}
        """Scala: producers that staged offsets of a group and have not ended their transaction, even if nothing of it is left."""
        self.next_record_offset = 0

    def pending_partitions(self, group_id: str) -> list[tuple[str, int]]:
        """(topic, partition) of the group's offsets in open transactions."""
        return [(topic, partition) for pending_group, topic, partition in self.offsets.pending if pending_group == group_id]


class Broker:
    """State of one simulated broker. It answers, writes and keeps time; the rules are in the files named for the requests."""

    def __init__(self, release: Release, settings: Settings, new_member_id: MemberIds, start_ms: int) -> None:
        self.release = release
        self.settings = settings
        self.clock = Clock(start_ms)
        self.is_active = True
        self.append_error = Error.NONE
        """What every append to the log fails with, until it is set back to NONE."""
        self.partitions: dict[int, OffsetsPartition] = {
            number: OffsetsPartition(number, release) for number in range(settings.offsets_topic_num_partitions)
        }
        """The offsets partitions this broker leads, by number; at the start all."""
        self.transactions: dict[int, set[int]] = {}
        """Producer id -> offsets partitions its open transaction has reached."""
        self.answered_calls: list[Call] = []
        """Calls answered by the present event."""
        self.written_records: list[WrittenRecord] = []
        """Records written by the present event."""
        self.member_ids_by_client_id: dict[str, list[str]] = {}
        """Client id -> member ids it was given, in order."""
        self._new_member_id = new_member_id
        self._batch = 0

    @property
    def now_ms(self) -> int:
        """The simulated now."""
        return self.clock.now_ms

    @property
    def max_session_timeout_ms(self) -> int:
        """group.max.session.timeout.ms, that of the release if it is not set."""
        limit = self.settings.group_max_session_timeout_ms
        return limit if limit is not None else self.release.max_session_timeout_ms

    @property
    def retention_ms(self) -> int:
        """offsets.retention.minutes in milliseconds, that of the release if it is not set."""
        kept = self.settings.offsets_retention_ms
        return kept if kept is not None else self.release.semantics.default_retention_ms

    # Groups

    def partition_number(self, group_id: str) -> int:
        """The offsets partition a group belongs to."""
        return offsets_partition_for(group_id, self.settings.offsets_topic_num_partitions)

    def partition_of(self, group_id: str) -> OffsetsPartition:
        """The group's offsets partition, which this broker leads: admission has asked before."""
        return self.partitions[self.partition_number(group_id)]

    def group(self, group_id: str) -> Group | None:
        """The group, or None if there is none. Raises UsageError for a group that is not classic."""
        partition = self.partitions.get(self.partition_number(group_id))
        if partition is None:
            return None
        group = partition.groups.get(group_id)
        if group is None and group_id in partition.modern_groups:
            kind = partition.modern_groups[group_id].group_type
            raise UsageError(f"Group {group_id!r} is a {kind} group: only classic groups are simulated.")
        return group

    def modern_group(self, group_id: str) -> ModernGroup | None:
        """The group, if it is one of the new protocols."""
        partition = self.partitions.get(self.partition_number(group_id))
        return None if partition is None else partition.modern_groups.get(group_id)

    def create_group(self, group_id: str) -> Group:
        """A new group: Empty, generation 0."""
        group = Group(group_id, self.now_ms, like_java=self.release.like_java_maps)
        self.partition_of(group_id).groups[group_id] = group
        return group

    def remove_group(self, group: Group) -> None:
        """The group is Dead and gone; nothing is written."""
        group.transition_to(State.DEAD, self.now_ms)
        timers = [group.join_timer, group.sync_timer, *group.pending_members.values(), *(member.session_timer for member in group.members)]
        for timer in timers:
            if timer is not None:
                timer.is_cancelled = True
        self.partition_of(group.group_id).groups.pop(group.group_id, None)

    def new_member_id(self, name: str, client_id: str) -> str:
        """A new member id for a client; ``name`` is its client id or its instance id."""
        member_id = self._new_member_id(name)
        self.member_ids_by_client_id.setdefault(client_id, []).append(member_id)
        return member_id

    # Time, answers, log

    def start_timer(self, kind: TimerKind, delay_ms: int, group: Group, member_id: str, fire: Callable[[], bool]) -> Timer:
        """A timer of a group or of one of its members."""
        return self.clock.start(kind, delay_ms, group.group_id, member_id, fire)

    def answer(self, call: Call, answer: Answer) -> None:
        """Answer a request, now."""
        call.answer = answer
        call.answered_at_ms = self.clock.now_ms
        self.answered_calls.append(call)

    def append(
        self, group_id: str, records: Iterable[RecordToWrite], producer_id: int = NO_PRODUCER_ID, producer_epoch: int = -1
    ) -> tuple[Error, list[WrittenRecord]]:
        """Write records of one group as one batch. What was written, or the error the log gave and nothing written."""
        if self.append_error is not Error.NONE:
            return self.append_error, []
        partition = self.partition_of(group_id)
        self._batch += 1
        written = []
        for record in records:
            written.append(
                WrittenRecord(
                    offsets_partition=partition.number,
                    record_offset=partition.next_record_offset,
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
            )
            partition.next_record_offset += 1
        self.written_records.extend(written)
        return Error.NONE, written

    def append_marker(self, partition: OffsetsPartition, producer_id: int, producer_epoch: int, control: str) -> None:
        """Write a transaction marker; those of other brokers' transactions do not fail here."""
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
