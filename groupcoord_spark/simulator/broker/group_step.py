"""One step of a group whose partitions the broker assigns: its records, and the timers of its members."""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.broker.rebalance import refuse_waiting
from groupcoord_spark.simulator.broker.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.groups import ClassicGroup, ModernGroup, TimerKind
from groupcoord_spark.simulator.groups.modern_group import cancel_timer, metadata_hash
from groupcoord_spark.simulator.messages import Call, Error, RecordToWrite, RefusedError, WrittenRecord, refuse_if
from groupcoord_spark.simulator.messages.answers import Answer
from groupcoord_spark.simulator.messages.calls import WITH_ONE_ERROR
from groupcoord_spark.simulator.messages.partition_lists import by_topic
from groupcoord_spark.simulator.messages.requests import LEFT_FOR_A_WHILE

RETRY_MS: Final = 500
"""How long a Java coordinator waits before it repeats what a timer began, if the append has failed."""
_CHANGEABLE: Final = ("replayed", "metadata_hash", "metadata_deadline_ms", "refreshes_metadata", "assignment_timestamp_ms")

M = TypeVar("M", bound=ModernGroup)


class GroupStep(Generic[M]):
    """Records of one request or timer, and the group they apply to (None if it does not exist yet).

    Each group type has a subclass. ``kind`` is the class of its groups. ``changeable`` lists the attributes that records change in addition
    to the attributes common to all groups.
    """

    kind: ClassVar[type[ModernGroup]]
    changeable: ClassVar[tuple[str, ...]]

    def __init__(self, broker: Broker, group_id: str) -> None:
        self.broker = broker
        self.group_id = group_id
        self.partition = broker.partition_of(group_id)
        self.records: list[RecordToWrite] = []
        self.group: M | None = broker.group_of(group_id, self.kind)  # type: ignore[assignment]
        self._saved_state: Mapping[str, Any] = self.copied(self.group)
        """State of the group before the step, as far as records may change it; empty if the group did not exist."""
        self.replaced_classic: ClassicGroup | None = None
        self._put_classic_back: Callable[[], None] | None = None

    def copied(self, group: M | None) -> Mapping[str, Any]:
        """Copy the state that records change, to restore it if the append fails; empty without a group."""
        return {} if group is None else {name: copy.deepcopy(getattr(group, name)) for name in (*_CHANGEABLE, *self.changeable)}

    def add(self, record: RecordToWrite) -> None:
        """Apply a record to the group, and keep it for the append."""
        assert self.group is not None
        record_offset = self.partition.next_record_offset + len(self.records)
        self.records.append(record)
        self.group.replayed.apply(record_offset, record.key_type, record.key, record.value)

    # Requests

    def answer_heartbeat(self, call: Call) -> None:
        """Write the records of a heartbeat and answer it. Raises RefusedError if the group rejects the heartbeat or the append fails."""
        request: Any = call.request
        try:
            answer = self.leave(request) if request.member_epoch < 0 else self.heartbeat(request)
        except RefusedError:
            self.undo()
            raise
        refuse_if(self.write())
        self.broker.answer(call, answer)

    def heartbeat(self, request: Any) -> Answer:
        """Handle a heartbeat of a member that joins or stays."""
        raise NotImplementedError

    def leave(self, request: Any) -> Answer:
        """Remove a member, either for good or until its static instance returns."""
        group: Any = self.group
        if group is None:
            raise RefusedError(Error.GROUP_ID_NOT_FOUND)
        refuse_if(group.static_error(request.member_id, getattr(request, "group_instance_id", None)))
        if request.member_id not in group.members:
            raise RefusedError(Error.UNKNOWN_MEMBER_ID)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            self.add(group.assignment_record(request.member_id, group.left_for_a_while(request.member_id)))
        else:
            self.remove(group, [request.member_id])
        answer: Answer = WITH_ONE_ERROR[type(request)](Error.NONE, request.member_id, request.member_epoch)
        return answer

    def group_for(self, request: Any, replayed: Any) -> M:
        """Return the group of a heartbeat. A first heartbeat creates it from ``replayed`` and may replace a classic group
        (``may_replace``)."""
        if self.group is not None:
            return self.group
        existing = self.partition.groups.get(self.group_id)
        is_in_the_way = existing is not None and not (isinstance(existing, ClassicGroup) and self.may_replace(existing))
        if request.member_epoch != 0 or is_in_the_way:
            raise RefusedError(Error.GROUP_ID_NOT_FOUND)
        group: Any = self.kind(self.group_id, replayed)
        self.group = group
        if isinstance(existing, ClassicGroup):
            self.take_over(group, existing)
            self.replaced_classic = existing
        created: M = group
        return created

    def may_replace(self, classic: ClassicGroup) -> bool:
        """Return whether a first heartbeat replaces this classic group."""
        return classic.is_empty

    def take_over(self, group: M, classic: ClassicGroup) -> None:
        """Write what ends the classic group that the group replaces."""
        self.records += classic.tombstones()

    # Members

    def session_timeout_ms(self, group: M, member_id: str) -> int:
        """Return the session timeout of a member."""
        raise NotImplementedError

    def restart_session(self, group: M, member_id: str) -> None:
        """Restart the session of a member."""
        cancel_timer(group.session_timers, member_id)
        fire = partial(self.fence_member, self.broker, self.group_id, member_id)
        timeout_ms = self.session_timeout_ms(group, member_id)
        group.session_timers[member_id] = self.broker.clock.start(TimerKind.SESSION, timeout_ms, self.group_id, member_id, fire)

    def start_rebalance_timer(self, group: M, member_id: str, epoch: int, timeout_ms: int) -> None:
        """Give a member its rebalance timeout: with the same epoch then, it is removed."""
        fire = partial(self.fence_if_unrevoked, self.broker, self.group_id, member_id, epoch)
        group.rebalance_timers[member_id] = self.broker.clock.start(TimerKind.REVOCATION, timeout_ms, self.group_id, member_id, fire)

    @classmethod
    def fence_member(cls, broker: Broker, group_id: str, member_id: str) -> bool:
        """Remove a member that was silent, or gave up its partitions too late (Kafka: ``consumerGroupFenceMember``). False: it has left."""
        step = cls(broker, group_id)
        group = step.group
        if group is None or member_id not in group.members:
            return False
        step.remove(group, [member_id])

        def repeat() -> None:
            fire = partial(cls.fence_member, broker, group_id, member_id)
            group.session_timers[member_id] = broker.clock.start(TimerKind.SESSION, RETRY_MS, group_id, member_id, fire)

        step.write(repeat)
        return True

    @classmethod
    def fence_if_unrevoked(cls, broker: Broker, group_id: str, member_id: str, epoch: int) -> bool:
        """Remove a member whose epoch is still the same. False: it has given up what it had to, or it has left already."""
        group = broker.group_of(group_id, cls.kind)
        if group is None or member_id not in group.members or group.members[member_id].member_epoch != epoch:
            return False
        return cls.fence_member(broker, group_id, member_id)

    def replace_member(self, group: Any, old_id: str, new_id: str, current: Any) -> None:
        """Replace a static member that returns with a new member id. It keeps its metadata, its target and its assignment (``current``)."""
        metadata, target = group.metadata_of(old_id), group.target_of(old_id)
        for record in group.removal_records(old_id):
            self.add(record)
        self.add(group.member_record(new_id, metadata))
        self.add(group.target_record(new_id, target))
        self.add(group.assignment_record(new_id, current))

    def members_in_order(self, group: M, sender: str) -> list[str]:
        """Return the member ids in the order that Kafka passes to an assignor: a sender that is new comes last."""
        replayed = self._saved_state.get("replayed")
        is_new = replayed is None or sender not in replayed.members
        order = group.members_in_order()
        return [member_id for member_id in order if member_id != sender] + [sender] if is_new else order

    def remove(self, group: M, member_ids: Iterable[str]) -> None:
        """Remove members: the tombstones of each, and a new group epoch; since 4.4 its target assignment too, if nobody stays."""
        member_ids = list(member_ids)
        nobody_stays, epoch = group.members.keys() <= set(member_ids), group.epoch + 1
        for member_id in member_ids:
            for record in group.removal_records(member_id):
                self.add(record)
            # The broker stops the timers before it writes, and a failed append does not start them again.
            group.cancel_timers(member_id)
        self.forget_unused_regexes(group)
        self.bump_epoch(group)
        if nobody_stays and self.broker.release.last_leave_writes_target_epoch:
            self.add(group.target_epoch_record(epoch, 0))
            group.assignment_timestamp_ms = 0

    def forget_unused_regexes(self, group: M) -> None:
        """Write tombstones for regular expressions that no member uses any more. Only consumer groups have them."""

    def bump_epoch(self, group: M) -> None:
        """Make a new group epoch of the topics as they are now."""
        group.metadata_hash = self._present_hash(group)
        self.add(group.epoch_record(group.epoch + 1, group.metadata_hash))

    def refresh_metadata_if_due(self, group: M, *, bumps: bool) -> bool:
        """Check the topics of the group. A change of the topics, or of the members (``bumps``), starts a new group epoch.

        Returns:
            Whether there was a reason to look at the topics.
        """
        if not bumps and not group.refreshes_metadata and self.broker.now_ms < group.metadata_deadline_ms:
            return False
        if bumps or self._present_hash(group) != group.metadata_hash:
            self.bump_epoch(group)
        group.trust_metadata(self.broker.now_ms)
        return True

    def _present_hash(self, group: M) -> int:
        return metadata_hash(known_topics(self.broker, self.subscribed_topics(group)))

    def subscribed_topics(self, group: M) -> Collection[str]:
        """Return the topics of which a new group epoch stores the hash."""
        topics: Collection[str] = group.replayed.subscribed_topics
        return topics

    def waits_for_interval(self, group: M, interval_ms: int) -> bool:
        """Return whether the last target assignment is more recent than the minimum interval (KIP-1263)."""
        last_ms = group.assignment_timestamp_ms
        return bool(last_ms) and self.broker.now_ms < last_ms + interval_ms

    @property
    def target_timestamp_ms(self) -> int:
        """The time of a target assignment as its record has it."""
        return self.broker.now_ms if self.broker.release.stores_assignment_timestamp else 0

    # The append

    def write(self, then_undo: Callable[[], None] | None = None) -> Error:
        """Append the records. If the append fails, now or later, the group goes back to what it was.

        then_undo: called after that.
        """
        written: list[WrittenRecord] = []
        if self.records:

            def undo() -> None:
                self.undo_finished()
                if then_undo is not None:
                    then_undo()

            error, written = self.broker.log.append(self.group_id, self.records, undo=undo, shown=self.group_until_now())
            if error is not Error.NONE:
                self.undo()
                if then_undo is not None:
                    then_undo()
                return self.broker.release.group_append_errors.get(error, error)
        self.finish(written)
        return Error.NONE

    def group_until_now(self) -> Any:
        """Return the group before the step, possibly a classic group, or None."""
        return copy.copy(self.replaced_classic) if self.group is None or not self._saved_state else replace(self.group, **self._saved_state)

    def undo(self) -> None:
        """Forget the records. The timers stay as they are, as in Kafka."""
        for name, value in self._saved_state.items():
            setattr(self.group, name, value)

    def finish(self, written: list[WrittenRecord]) -> None:
        """Complete the step after its records are written: add the group, and ask members of a replaced classic group to rejoin."""
        classic = self.replaced_classic
        if classic is not None:
            for member in classic.members:
                refuse_waiting(self.broker, classic, member, Error.REBALANCE_IN_PROGRESS)
            self._put_classic_back = self.broker.remove_group(classic)
        if self.group is not None:
            self.partition.groups[self.group_id] = self.group
            self.group.grow(len(self.group.members) + 1)

    def undo_finished(self) -> None:
        """Take back the step after ``finish``: the append has failed later."""
        self.undo()
        if self.group is None:
            return
        if self._saved_state:
            self.partition.groups[self.group_id] = self.group
            self.group.cancel_timers_without_member()
        else:
            self.partition.groups.pop(self.group_id, None)
            self.group.end(self.broker.now_ms)
        if self._put_classic_back is not None:
            self._put_classic_back()

    # The load of a partition

    @classmethod
    def load(cls, broker: Broker, group_id: str, replayed: Any, records: Iterable[WrittenRecord]) -> None:
        """Load a group from its records. All session and revocation timers start now. The map of members has grown with each of them, also
        with those that have left."""
        group: Any = cls.kind(group_id, replayed)
        member_ids: set[str] = set()
        for record in records:
            if record.key is not None and record.key.get("group_id") == group_id:
                group.note(record.key_type, record.value)
                if record.key_type == group.key_types.member and record.value is None:
                    member_ids.discard(record.key["member_id"])
                elif record.key_type in (group.key_types.member, group.key_types.current) and record.value is not None:
                    group.grow(len(member_ids) + 1)
                    member_ids.add(record.key["member_id"])
        broker.partition_of(group_id).groups[group_id] = group
        step = cls(broker, group_id)
        for member_id in group.members:
            step.restart_session(group, member_id)
            if group.is_revoking(member_id):
                step.start_rebalance_timer(
                    group, member_id, group.member_epoch(member_id), group.metadata_of(member_id)["rebalance_timeout_ms"]
                )


def topic_ids(broker: Broker) -> dict[str, str]:
    """Return the topic ids by name, for topics that exist."""
    return {name: topic.topic_id for name, topic in (broker.settings.topics or {}).items() if topic.topic_id != NO_TOPIC_ID}


def topic_names(broker: Broker) -> dict[str, str]:
    """Topic id -> name, for the topics that exist."""
    return {topic_id: name for name, topic_id in topic_ids(broker).items()}


def with_names(broker: Broker, partitions: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Partitions by topic id as topic -> partitions, in order. A topic that does not exist any more has its id."""
    names = topic_names(broker)
    return by_topic(sorted((names.get(topic_id, topic_id), number) for topic_id, number in partitions))


def known_topics(broker: Broker, names: Iterable[str]) -> dict[str, int]:
    """Return the partition counts by name, for the given topics that exist."""
    topics: Mapping[str, Any] = broker.settings.topics or {}
    return {name: topics[name].partitions for name in names if name in topics}
