"""The simulated broker: takes requests and actions in the order of their time, gives answers, records and a timeline."""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator.broker import Broker, actions
from groupcoord_spark.simulator.broker.coordinator_checks import is_denied
from groupcoord_spark.simulator.broker.release import Release, refuse_unknown_request, release_for
from groupcoord_spark.simulator.broker.settings import SETTINGS_SINCE_4_4, MemberIds, Settings, numbered_member_ids
from groupcoord_spark.simulator.groups import Group, Timer, TimerKind
from groupcoord_spark.simulator.handlers.classic.join import join_group
from groupcoord_spark.simulator.handlers.classic.membership import heartbeat, leave_group, sync_group
from groupcoord_spark.simulator.handlers.commit import offset_commit
from groupcoord_spark.simulator.handlers.consumer.consumer_heartbeat import consumer_group_heartbeat
from groupcoord_spark.simulator.handlers.deletion import clean_up, delete_groups, delete_topic, offset_delete
from groupcoord_spark.simulator.handlers.describe import (
    describe_group,
    describe_groups,
    describe_modern_groups,
    find_coordinator,
    list_groups,
)
from groupcoord_spark.simulator.handlers.fetch import offset_fetch
from groupcoord_spark.simulator.handlers.held_answers import hold_answer
from groupcoord_spark.simulator.handlers.leadership import begin_loading, load_partition, unload_partition
from groupcoord_spark.simulator.handlers.share.share_heartbeat import share_group_heartbeat
from groupcoord_spark.simulator.handlers.streams.streams_heartbeat import streams_group_heartbeat
from groupcoord_spark.simulator.handlers.transactions import add_offsets_to_txn, end_txn, write_kept_markers, write_txn_markers
from groupcoord_spark.simulator.messages import Call, Error, RefusedError, WrittenRecord, requests
from groupcoord_spark.simulator.messages.answers import DescribedGroup, ErrorAnswer

G = TypeVar("G", bound=Group)

_HANDLERS: dict[type, Callable[[Broker, Call, Any], None]] = {
    requests.JoinGroup: join_group,
    requests.SyncGroup: sync_group,
    requests.Heartbeat: heartbeat,
    requests.LeaveGroup: leave_group,
    requests.OffsetCommit: offset_commit,
    requests.TxnOffsetCommit: offset_commit,
    requests.OffsetFetch: offset_fetch,
    requests.AddOffsetsToTxn: add_offsets_to_txn,
    requests.EndTxn: end_txn,
    requests.WriteTxnMarkers: write_txn_markers,
    requests.ShareGroupHeartbeat: share_group_heartbeat,
    requests.StreamsGroupHeartbeat: streams_group_heartbeat,
    requests.ConsumerGroupHeartbeat: consumer_group_heartbeat,
    requests.ConsumerGroupDescribe: describe_modern_groups,
    requests.ShareGroupDescribe: describe_modern_groups,
    requests.StreamsGroupDescribe: describe_modern_groups,
    requests.FindCoordinator: find_coordinator,
    requests.DescribeGroups: describe_groups,
    requests.ListGroups: list_groups,
    requests.DeleteGroups: delete_groups,
    requests.OffsetDelete: offset_delete,
}


class TimelineEntry(Struct, frozen=True):
    """One event and its effects. The event is a request (``call``), an action or a timer: one of the three is not None.

    member_id: the member of the timer; "" or None if it has none.
    answered: the calls that the event answered, including earlier calls that waited.
    records: what the event wrote to the log.
    state, generation: of the event's group after the event; None if the event is not about one group, or the group does not exist.
    """

    at_ms: int
    call: Call | None
    action: actions.BrokerAction | None
    timer: TimerKind | None
    group_id: str | None
    member_id: str | None
    answered: tuple[Call, ...]
    records: tuple[WrittenRecord, ...]
    state: str | None
    generation: int | None


class Simulator:
    """One simulated broker, which leads all offsets partitions at the start.

    Time only goes forward. Timers that are due before or at the time of an event fire before the event.
    """

    def __init__(
        self,
        release: Release | None = None,
        settings: Settings | None = None,
        *,
        start_ms: int = 0,
        new_member_id: MemberIds | None = None,
        on_entry: Callable[[TimelineEntry], None] | None = None,
    ) -> None:
        """Create a broker at the time ``start_ms``.

        Args:
            release: the rules; None: Kafka 4.3.
            new_member_id: makes member ids; None: ``numbered_member_ids``.
            on_entry: called with the timeline entry of each event; None: no timeline is made.
        """
        self.release = release if release is not None else release_for()
        self.settings = settings if settings is not None else Settings()
        ids = new_member_id if new_member_id is not None else numbered_member_ids()
        self.broker = Broker(self.release, self.settings, ids, start_ms)
        self._on_entry = on_entry
        self._calls = 0
        self._start_cleanup_timer()

    def send(self, request: requests.Request, at_ms: int | None = None) -> Call:
        """Send a request to the broker at a time (None: now). The returned call has the answer, or gets it in a later event.

        Raises:
            UsageError: the time is in the past, or the release does not know the request.
        """
        if at_ms is not None:
            self.advance_to(at_ms)
        kind = type(request)
        refuse_unknown_request(self.release, request)
        self._calls += 1
        call = Call(self._calls, request, self.broker.now_ms)
        if request.version is not None and request.version not in self.release.request_versions[kind]:
            self.broker.answer(call, ErrorAnswer(Error.UNSUPPORTED_VERSION))
        elif is_denied(request, self.broker.denied):
            self.broker.refuse(call, Error.GROUP_AUTHORIZATION_FAILED)
        else:
            try:
                _HANDLERS[kind](self.broker, call, request)
            except RefusedError as refusal:
                self.broker.refuse(call, refusal.error)
            if self.broker.log.in_flight and self.release.applies_before_append:
                hold_answer(self.broker, call)
        self._close_event(call, None, None)
        return call

    def act(self, action: actions.BrokerAction, at_ms: int | None = None) -> None:
        """Perform an action at a time (None: now). Raises UsageError if the time is in the past."""
        if at_ms is not None:
            self.advance_to(at_ms)
        broker = self.broker
        match action:
            case actions.BeginLoad(number):
                begin_loading(broker, number)
            case actions.LoadPartition(number, records):
                load_partition(broker, number, records)
                write_kept_markers(broker)
            case actions.LosePartition(number):
                unload_partition(broker, number)
            case actions.SetActive(is_active):
                broker.is_active = is_active
            case actions.FailAppends(error, takes_ms):
                broker.log.error, broker.log.takes_ms = error, takes_ms
                write_kept_markers(broker)
            case actions.CreateTopic(topic, partitions) | actions.AddPartitions(topic, partitions):
                broker.settings = broker.settings.with_topic(topic, partitions)
                broker.topics_have_changed()
            case actions.DeleteTopic(topic):
                delete_topic(broker, topic)
                broker.settings = broker.settings.without_topic(topic)
                broker.topics_have_changed()
            case actions.Deny(denied):
                broker.denied = denied
            case actions.ConfigureGroup(group_id, name, value):
                if name in SETTINGS_SINCE_4_4 and not broker.release.has_streams_of_4_4:
                    version = broker.release.semantics.broker_version
                    raise UsageError(f"Kafka {version} does not know {name}: the setting came with 4.4. Leave it out, or simulate 4.4.")
                broker.group_settings.setdefault(group_id, {})[name] = value
            case actions.CleanUp():
                clean_up(broker)
        self._close_event(None, action, None)

    def advance_to(self, at_ms: int) -> None:
        """Let time pass until ``at_ms``: every timer that is due fires. Raises UsageError if the time is in the past."""
        clock = self.broker.clock
        if at_ms < clock.now_ms:
            raise UsageError(f"An event at {at_ms} ms comes after one at {clock.now_ms} ms: put them in the order of their time.")
        while (timer := clock.take_next_due(at_ms)) is not None:
            if timer.fire():
                self._close_event(None, None, timer)
        clock.now_ms = at_ms

    def next_due_ms(self) -> int | None:
        """Return the due time of the next timer, or None. A session timer that fires may find that the session has been extended."""
        return self.broker.clock.next_due_ms()

    def timers(self, group_id: str) -> list[Timer]:
        """Return the group's pending timers in the order of their due times."""
        return [timer for timer in self.broker.clock.timers() if timer.group_id == group_id]

    def describe(self, group_id: str, version: int = 5) -> DescribedGroup:
        """Describe the group as DescribeGroups does, without a request in the timeline."""
        return describe_group(self.broker, requests.DescribeGroups((group_id,), version=version), group_id)

    def _start_cleanup_timer(self) -> None:
        interval_ms = self.settings.offsets_retention_check_interval_ms
        self.broker.clock.start(TimerKind.CLEANUP, interval_ms, "", "", self._run_cleanup)

    def _run_cleanup(self) -> bool:
        self._start_cleanup_timer()
        return clean_up(self.broker)

    def _close_event(self, call: Call | None, action: actions.BrokerAction | None, timer: Timer | None) -> None:
        broker = self.broker
        if self._on_entry is not None:
            group_id = getattr(call.request, "group_id", None) if call is not None else timer.group_id if timer is not None else None
            group = broker.group(group_id) if group_id is not None else None
            state, generation = (None, None) if group is None else (broker.state_name(group), group.epoch)
            self._on_entry(
                TimelineEntry(
                    at_ms=broker.now_ms,
                    call=call,
                    action=action,
                    timer=timer.kind if timer is not None else None,
                    group_id=group_id,
                    member_id=timer.member_id if timer is not None else None,
                    answered=tuple(broker.answered_calls),
                    records=tuple(broker.log.written),
                    state=state,
                    generation=generation,
                )
            )
        broker.answered_calls.clear()
        broker.log.written.clear()
