"""The simulated broker as a whole: requests and actions in, in the order of their time; answers, records and a timeline out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator.actions import (
    Action,
    BeginLoad,
    CleanUp,
    DeleteTopic,
    FailAppends,
    LoadPartition,
    LosePartition,
    SetActive,
)
from groupcoord_spark.simulator.answers import DescribedGroup
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.clock import Timer, TimerKind
from groupcoord_spark.simulator.commit import offset_commit, txn_offset_commit
from groupcoord_spark.simulator.deletion import clean_up, delete_groups, delete_topic, offset_delete
from groupcoord_spark.simulator.describe import describe_group, describe_groups, find_coordinator, list_groups, state_name
from groupcoord_spark.simulator.fetch import offset_fetch
from groupcoord_spark.simulator.group import Group
from groupcoord_spark.simulator.heartbeat import heartbeat
from groupcoord_spark.simulator.join import join_group
from groupcoord_spark.simulator.leadership import begin_loading, load_partition, unload_partition
from groupcoord_spark.simulator.leave import leave_group
from groupcoord_spark.simulator.records import WrittenRecord
from groupcoord_spark.simulator.release import Release, refuse_unknown_request, release_for
from groupcoord_spark.simulator.requests import (
    AddOffsetsToTxn,
    DeleteGroups,
    DescribeGroups,
    EndTxn,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Request,
    SyncGroup,
    TxnOffsetCommit,
)
from groupcoord_spark.simulator.settings import MemberIds, Settings, numbered_member_ids
from groupcoord_spark.simulator.sync import sync_group
from groupcoord_spark.simulator.transactions import add_offsets_to_txn, end_txn

_HANDLERS: dict[type, Callable[[Broker, Call, Any], None]] = {
    JoinGroup: join_group,
    SyncGroup: sync_group,
    Heartbeat: heartbeat,
    LeaveGroup: leave_group,
    OffsetCommit: offset_commit,
    TxnOffsetCommit: txn_offset_commit,
    OffsetFetch: offset_fetch,
    AddOffsetsToTxn: add_offsets_to_txn,
    EndTxn: end_txn,
    FindCoordinator: find_coordinator,
    DescribeGroups: describe_groups,
    ListGroups: list_groups,
    DeleteGroups: delete_groups,
    OffsetDelete: offset_delete,
}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One event and all it led to. Its cause is a request, an action or a timer (``timer``; then ``member_id`` tells whose it was).

    ``answered``: the calls answered by it, earlier ones that waited included. ``state`` and ``generation`` are those of the event's group
    afterwards; None where the event concerns no single group, or the group is gone.
    """

    at_ms: int
    call: Call | None
    action: Action | None
    timer: TimerKind | None
    group_id: str | None
    member_id: str | None
    answered: tuple[Call, ...]
    records: tuple[WrittenRecord, ...]
    state: str | None
    generation: int | None


class Event(NamedTuple):
    """A request or an action, and when it reaches the broker."""

    at_ms: int
    what: Request | Action


class Simulator:
    """One broker that leads every offsets partition, driven by hand: ``send`` requests, ``act``, let time pass.

    Time only goes forward. Timers that fall due until an event's moment, that moment included, fire before it.
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
        """``release`` None: Kafka 4.3. ``on_entry`` is told of every event once it is done; without it no timeline is made."""
        self.release = release if release is not None else release_for()
        self.settings = settings if settings is not None else Settings()
        ids = new_member_id if new_member_id is not None else numbered_member_ids()
        self._broker = Broker(self.release, self.settings, ids, start_ms)
        self._on_entry = on_entry
        self._calls = 0
        self._known_requests: set[type] = set()
        self._start_cleanup_timer()

    @property
    def now_ms(self) -> int:
        """The simulated now."""
        return self._broker.now_ms

    def send(self, request: Request, at_ms: int | None = None) -> Call:
        """A request reaches the broker (None: now). Its answer is in the call, now or once a later event has set it free.

        Raises UsageError for a time that is past, for a request this release does not know, and for a group that is not classic.
        """
        if at_ms is not None:
            self.advance_to(at_ms)
        kind = type(request)
        if kind not in self._known_requests or not self.release.has_static_members:
            refuse_unknown_request(self.release, request)
            self._known_requests.add(kind)
        self._calls += 1
        call = Call(self._calls, request, self._broker.now_ms)
        _HANDLERS[kind](self._broker, call, request)
        self._close_event(call, None, None)
        return call

    def act(self, action: Action, at_ms: int | None = None) -> None:
        """Something other than a request happens to the broker (None: now). Raises UsageError for a time that is past."""
        if at_ms is not None:
            self.advance_to(at_ms)
        broker = self._broker
        match action:
            case BeginLoad(number):
                begin_loading(broker, number)
            case LoadPartition(number, records):
                load_partition(broker, number, records)
            case LosePartition(number):
                unload_partition(broker, number)
            case SetActive(is_active):
                broker.is_active = is_active
            case FailAppends(error):
                broker.append_error = error
            case DeleteTopic(topic):
                delete_topic(broker, topic)
            case CleanUp():
                clean_up(broker)
        self._close_event(None, action, None)

    def advance_to(self, at_ms: int) -> None:
        """Let time pass: every timer due until then fires. Raises UsageError for a time that is past."""
        clock = self._broker.clock
        if at_ms < clock.now_ms:
            raise UsageError(f"An event at {at_ms} ms comes after one at {clock.now_ms} ms: put them in the order of their time.")
        while (timer := clock.next_due(at_ms)) is not None:
            if timer.fire():
                self._close_event(None, None, timer)
        clock.now_ms = at_ms

    def next_due_ms(self) -> int | None:
        """The moment up to which nothing happens by itself, since the next timer falls due then. It may turn out to have been put off."""
        return self._broker.clock.next_due_ms()

    def group(self, group_id: str) -> Group | None:
        """The group as it is now, or None. Look, do not touch."""
        return self._broker.group(group_id)

    def describe(self, group_id: str, version: int = 5) -> DescribedGroup:
        """The group as DescribeGroups shows it now, without sending a request."""
        return describe_group(self._broker, group_id, version)

    def member_ids_of(self, client_id: str) -> tuple[str, ...]:
        """The member ids a client was given so far, in order."""
        return tuple(self._broker.member_ids_by_client_id.get(client_id, ()))

    def offsets_partition_of(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that the group belongs to."""
        return self._broker.partition_number(group_id)

    def _start_cleanup_timer(self) -> None:
        interval_ms = self.settings.offsets_retention_check_interval_ms
        self._broker.clock.start(TimerKind.CLEANUP, interval_ms, "", "", self._run_cleanup)

    def _run_cleanup(self) -> bool:
        self._start_cleanup_timer()
        return clean_up(self._broker)

    def _close_event(self, call: Call | None, action: Action | None, timer: Timer | None) -> None:
        broker = self._broker
        if self._on_entry is not None:
            group_id = getattr(call.request, "group_id", None) if call is not None else timer.group_id if timer is not None else None
            is_classic = group_id is not None and broker.modern_group(group_id) is None
            group = broker.group(group_id) if is_classic and group_id is not None else None
            self._on_entry(
                TimelineEntry(
                    at_ms=broker.now_ms,
                    call=call,
                    action=action,
                    timer=timer.kind if timer is not None else None,
                    group_id=group_id,
                    member_id=timer.member_id if timer is not None else None,
                    answered=tuple(broker.answered_calls),
                    records=tuple(broker.written_records),
                    state=state_name(broker, group) if group is not None else None,
                    generation=group.generation if group is not None else None,
                )
            )
        broker.answered_calls.clear()
        broker.written_records.clear()


def simulate(
    events: Iterable[Event],
    *,
    release: Release | None = None,
    settings: Settings | None = None,
    start_ms: int = 0,
    until_ms: int | None = None,
    new_member_id: MemberIds | None = None,
) -> Iterator[TimelineEntry]:
    """The timeline of a scenario: one entry for each event and each timer that did something, in the order they happen.

    Events come in the order of their time; an event may be made from what earlier entries told, since each is taken only when the
    entries before it have been given out. ``until_ms``: let time pass until then after the last event.
    """
    entries: list[TimelineEntry] = []
    simulator = Simulator(release, settings, start_ms=start_ms, new_member_id=new_member_id, on_entry=entries.append)
    for at_ms, what in events:
        if isinstance(what, Request):
            simulator.send(what, at_ms)
        else:
            simulator.act(what, at_ms)
        yield from entries
        entries.clear()
    if until_ms is not None:
        simulator.advance_to(until_ms)
        yield from entries
