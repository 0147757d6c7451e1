"""Plays a scenario against the simulated broker, which gives a timeline.

A member is a ``Consumer``; the step ``send`` sends a single request of any kind, as an administrator or another client would.
"""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator.broker import actions
from groupcoord_spark.simulator.broker.coordinator_checks import Denied
from groupcoord_spark.simulator.broker.release import Release
from groupcoord_spark.simulator.clients.classic_client import ClassicConsumer
from groupcoord_spark.simulator.clients.client_core import ClientCore
from groupcoord_spark.simulator.clients.client_settings import CONSUMER_PROTOCOL
from groupcoord_spark.simulator.clients.consumer import Consumer
from groupcoord_spark.simulator.clients.consumer_client import NewProtocolConsumer
from groupcoord_spark.simulator.groups import TimerKind
from groupcoord_spark.simulator.messages import Call, Error, WrittenRecord
from groupcoord_spark.simulator.messages.answers import Answer, JoinGroupAnswer
from groupcoord_spark.simulator.messages.requests import ConsumerGroupHeartbeat, Heartbeat, Request, ShareGroupHeartbeat
from groupcoord_spark.simulator.scenario.reading import Scenario, ScenarioStep, too_many_partitions
from groupcoord_spark.simulator.scenario.requests_by_hand import ADMIN, REQUESTS, Sender
from groupcoord_spark.simulator.scenario.timeline_text import answer_text, request_text
from groupcoord_spark.simulator.simulator import Simulator, TimelineEntry
from groupcoord_spark.wording import counted

BROKER: Final = "broker"
MOST_WORK: Final = 500_000
"""How much a scenario may have to do, in events."""
MOST_CPU_S: Final = 180
"""The same in seconds of a processor: the assignment of many partitions to many members is one event."""
EVENTS_PER_PARTITION: Final = 0.02
"""Work of an event that writes records, for each partition of the cluster: an assignment lists them all."""
EVENTS_PER_TIMER: Final = 0.05
"""Work of an event for each running timer of its group: a row of the timeline lists them."""
NETWORK_MS: Final = 5
"""Time from the broker's answer to its receipt by the client. A timeline row of a request has the time of its receipt by the broker."""


@dataclass(frozen=True, slots=True)
class RunningTimer:
    """A timer that has not fired. member_id: "" for a timer of the group. due_ms: milliseconds since the start of the scenario."""

    kind: TimerKind
    member_id: str
    due_ms: int


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One row of a timeline.

    id: the same in the timelines of all releases for the same event: the actor, the event and its count.
    at_ms: milliseconds since the start of the scenario.
    kind: request (with its answer if the broker answered at once), answer (to an earlier request), timer, action, or application (a call
        of a member's application, or of a client to its application).
    state, generation: of the group after the row; None if the row is not about one group.
    state_before, generation_before: the same before the row.
    request, response: of a row of the kind request or answer; ``response`` None: the request waits.
    timers: the group's timers after the row.
    """

    id: str
    at_ms: int
    kind: str
    who: str
    what: str
    answer: str | None = None
    state: str | None = None
    generation: int | None = None
    records: tuple[WrittenRecord, ...] = ()
    is_routine: bool = False
    """The row is a heartbeat with the answer NONE or the same answer as before, or a retention check that deletes nothing."""
    state_before: str | None = None
    generation_before: int | None = None
    request: Request | None = None
    response: Answer | None = None
    timers: tuple[RunningTimer, ...] = ()


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """The result of a scenario: its timeline, all records in the log, and the broker at the end."""

    rows: tuple[TimelineRow, ...]
    records: tuple[WrittenRecord, ...]
    simulator: Simulator


def play(scenario: Scenario, release: Release) -> ScenarioOutcome:
    """Play a scenario from start to end. The same scenario and release always have the same outcome.

    Raises:
        UsageError: for the reasons of ``Simulator.send``, or a step needs a member that is not running.
    """
    scenario_run = _ScenarioRun(scenario, release)
    scenario_run.run()
    return ScenarioOutcome(tuple(scenario_run.rows), tuple(scenario_run.log), scenario_run.simulator)


@dataclass(order=True, slots=True)
class _ScheduledAction:
    at_ms: int
    number: int
    actor: ClientCore | None = field(compare=False)
    do: Callable[[], None] = field(compare=False)


class _ScenarioRun:
    """One run of a scenario, and the environment of its clients: a queue holds their next actions next to the broker's timers."""

    def __init__(self, scenario: Scenario, release: Release) -> None:
        self.rows: list[TimelineRow] = []
        self.log: list[WrittenRecord] = []
        self.simulator = Simulator(release, scenario.settings, start_ms=scenario.start_ms, on_entry=self._add_timeline_entry)
        self._scenario = scenario
        self._clients: dict[str, Consumer] = {}
        self._queue: list[_ScheduledAction] = []
        self._count = 0
        self._waiting: dict[int, tuple[ClientCore, Callable[[Any], None]]] = {}
        """Number of a call -> the client that waits for its answer, and what the client does with it."""
        self._answered: list[Call] = []
        self._names: dict[str, str] = {}
        self._sender_of: dict[int, str] = {}
        self._id_of: dict[int, str] = {}
        """Number of a call -> id of the row of its request."""
        self._sender = BROKER
        self._answer_is_lost = False
        self._denied = Denied()
        self._last_heartbeat: dict[str, tuple[str | None, int | None]] = {}
        self._last_states: dict[str, tuple[str | None, int | None]] = {}
        """Group id -> state and generation after the group's newest row."""
        self._work, self._begun_s = 0.0, time.process_time()
        self._rows_by_name: Counter[str] = Counter()

    @property
    def now_ms(self) -> int:
        return self.simulator.broker.now_ms

    @property
    def topics(self) -> Mapping[str, int]:
        return {name: topic.partitions for name, topic in (self.simulator.broker.settings.topics or {}).items()}

    # The environment of the clients

    def send(self, client: ClientCore, request: Request, then: Callable[[Any], None], *, loses_answer: bool = False) -> None:
        call = self._send_request(client.name, request, answer_is_lost=loses_answer)
        self._waiting[call.number] = (client, (lambda answer: then(None)) if loses_answer else then)

    def name_member(self, client: ClientCore, member_id: str) -> None:
        self._names[member_id] = client.name

    def schedule(self, delay_ms: int, client: ClientCore, do: Callable[[], None]) -> None:
        self._schedule(self.now_ms + delay_ms, client, do)

    def notify_application(self, client: ClientCore, text: str) -> None:
        self._add_application_row(client.name, text)

    # The run

    def run(self) -> None:
        scenario = self._scenario
        for step in scenario.steps:
            actions_of_step = [partial(self._perform_member_step, step, name) for name in step.who]
            for action in actions_of_step or [partial(self._perform_broker_step, step)]:
                self._schedule(scenario.start_ms + step.at_ms, None, action)
        end_ms = scenario.start_ms + scenario.until_ms
        while True:
            self._add_work(1)
            timer_ms = self.simulator.next_due_ms()
            next_ms = self._queue[0].at_ms if self._queue else end_ms + 1
            if min(next_ms, end_ms + 1 if timer_ms is None else timer_ms) > end_ms:
                break
            if timer_ms is not None and timer_ms <= next_ms:
                self.simulator.advance_to(timer_ms)
            else:
                self._run_scheduled_action(heapq.heappop(self._queue))
            self._schedule_answers()
        self.simulator.advance_to(end_ms)

    def _add_work(self, events: float) -> None:
        """Refuse a scenario that would keep the machine busy for longer than anybody waits."""
        self._work += events
        if self._work > MOST_WORK or time.process_time() - self._begun_s > MOST_CPU_S:
            most = f"a simulation of {MOST_WORK:,} events" if self._work > MOST_WORK else f"a processor does in {MOST_CPU_S} s"
            seconds = (self.now_ms - self._scenario.start_ms) / 1000
            raise UsageError(
                f"Scenario {self._scenario.source} has more to do than {most}, and has come to {seconds:,.1f} s of"
                f" {self._scenario.until_ms / 1000:,.1f} s. Write a shorter `until`, longer intervals, or fewer members and partitions."
            )

    def _run_scheduled_action(self, due: _ScheduledAction) -> None:
        actor = due.actor
        if actor is not None and not actor.is_alive:
            return
        if actor is not None and actor.frozen_until_ms > due.at_ms:
            self._schedule(actor.frozen_until_ms, actor, due.do)
            return
        self.simulator.advance_to(due.at_ms)
        due.do()

    def _schedule(self, at_ms: int, actor: ClientCore | None, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, _ScheduledAction(at_ms, self._count, actor, do))

    def _send_request(self, name: str, request: Request, *, answer_is_lost: bool) -> Call:
        self._sender, self._answer_is_lost = name, answer_is_lost
        return self.simulator.send(request)

    def _schedule_answers(self) -> None:
        while self._answered:
            answered, self._answered = self._answered, []
            for call in answered:
                if call.number in self._waiting:
                    client, then = self._waiting.pop(call.number)
                    self._schedule(self.now_ms + NETWORK_MS, client, partial(then, call.answer))

    # Steps

    def _perform_member_step(self, step: ScenarioStep, name: str) -> None:
        options, client = step.options, self._clients.get(name)
        if step.verb == "start":
            if client is not None and client.is_alive:
                raise self._scenario.mistake(step, f"member {name!r} is running already. Let it `close` or `crash` first.")
            self._add_application_row(name, "starts")
            settings = self._scenario.members[name]
            kind = NewProtocolConsumer if settings.group_protocol == CONSUMER_PROTOCOL else ClassicConsumer
            client = kind(name, self._scenario.group_id, settings, self.simulator.release.request_versions, self)
            self._clients[name] = client
            client.start()
            return
        if client is None or not client.is_alive:
            raise self._scenario.mistake(step, f"member {name!r} is not running then. A step before has to `start` it.")
        if step.verb == "crash":
            self._add_application_row(name, "crashes")
            client.die()
        elif step.verb == "close":
            self._add_application_row(name, "close()")
            client.close(leaves=options["leave"])
        elif step.verb == "freeze":
            self._add_application_row(name, f"freezes for {options['for'] / 1000:g} s, heartbeats too")
            client.frozen_until_ms = self.now_ms + options["for"]
        elif client.frozen_until_ms > self.now_ms:
            self._schedule(client.frozen_until_ms, client, lambda: self._perform_member_step(step, name))
        elif step.verb == "busy":
            client.stop_polling(options["for"])
        elif step.verb == "subscribe":
            self._add_application_row(name, f"subscribe({', '.join(options['topics'])})")
            client.subscribe(options["topics"])
        elif step.verb == "unsubscribe":
            self._add_application_row(name, "unsubscribe()")
            client.unsubscribe()
        elif step.verb == "process":
            client.process(options["records"])
        elif step.verb == "commit":
            client.commit(
                options["offsets"],
                is_sync=options["mode"] == "sync",
                loses_answer=options["answer"] == "lost",
                retry_after_ms=options["retry_after"],
            )
        else:
            client.fetch()

    def _perform_broker_step(self, step: ScenarioStep) -> None:
        options = step.options
        if step.verb == "send":
            self._send_by_hand(step)
        elif step.verb == "move_coordinator":
            number = self.simulator.broker.partition_number(self._scenario.group_id)
            self.simulator.act(actions.LosePartition(number))
            half_ms = options["for"] // 2
            self._schedule(self.now_ms + half_ms, None, lambda: self.simulator.act(actions.BeginLoad(number)))
            self._schedule(self.now_ms + 2 * half_ms, None, lambda: self.simulator.act(actions.LoadPartition(number, self._log_of(number))))
        elif step.verb == "append":
            self.simulator.act(actions.FailAppends(Error[step.value["fails"]], step.value["takes"]))
        elif step.verb == "fail_appends":
            self.simulator.act(actions.FailAppends(Error[step.value]))
        elif step.verb in ("deny_group", "deny_topic"):
            denied = "group_operations" if step.verb == "deny_group" else "topics"
            self._denied = replace(self._denied, **{denied: frozenset(step.value)})
            self.simulator.act(actions.Deny(self._denied))
        elif step.verb in ("create_topic", "add_partitions"):
            action = actions.CreateTopic if step.verb == "create_topic" else actions.AddPartitions
            for topic, partitions in step.value.items():
                if (topic in self.topics) is (step.verb == "create_topic"):
                    state = "exists already" if step.verb == "create_topic" else "does not exist"
                    raise self._scenario.mistake(step, f"topic {topic!r} {state} then.")
                if too_many := too_many_partitions({**self.topics, topic: partitions}):
                    raise self._scenario.mistake(step, too_many)
                try:
                    self.simulator.act(action(topic, partitions))
                except UsageError as e:
                    raise self._scenario.mistake(step, str(e)) from e
                if step.verb == "create_topic":
                    self._let_clients_notice(topic)
        elif step.verb == "configure_group":
            for name, value in step.value.items():
                self.simulator.act(actions.ConfigureGroup(self._scenario.group_id, name, value))
        elif step.verb == "delete_topic":
            self.simulator.act(actions.DeleteTopic(step.value))
            self._let_clients_notice(step.value)
        else:
            self.simulator.act(actions.CleanUp())

    def _let_clients_notice(self, topic: str) -> None:
        for client in self._clients.values():
            if client.is_alive:
                client.notice_topic(topic)

    def _send_by_hand(self, step: ScenarioStep) -> None:
        name, member = step.options["as"], None
        if name is not None:
            member = self._clients.get(name)
            if member is None:
                raise self._scenario.mistake(step, f"member {name!r} has not been started by then, and has no ids to send.")
        form = REQUESTS[step.value]
        versions = self.simulator.release.request_versions.get(form.kind)
        sender = Sender(self._scenario.group_id, member, self._clients, self._scenario.topology)
        try:
            request = form.request(sender, step.options["with"], versions.newest if versions is not None else 0)
            self._send_request(name or ADMIN, request, answer_is_lost=False)
        except UsageError as e:
            raise self._scenario.mistake(step, str(e)) from e

    def _log_of(self, number: int) -> tuple[WrittenRecord, ...]:
        return tuple(record for record in self.log if record.offsets_partition == number)

    # Rows of the timeline

    def _add_timeline_entry(self, entry: TimelineEntry) -> None:
        call = entry.call
        self.log += entry.records
        if entry.records:
            self._add_work(len(entry.records) + EVENTS_PER_PARTITION * sum(self.topics.values()))
        self._answered += entry.answered
        if call is not None:
            self._sender_of[call.number] = self._sender
        for answered in entry.answered:
            if isinstance(answered.answer, JoinGroupAnswer) and answered.answer.member_id:
                self._names[answered.answer.member_id] = self._sender_of[answered.number]
        kind, who, what, answer = self._event_text(entry)
        row_id = self._next_id(who, what.split(":")[0] if call is None else type(call.request).__name__)
        if call is not None:
            self._id_of[call.number] = row_id
        group_id = entry.group_id
        state_before, generation_before = self._last_states.get(group_id, (None, None)) if group_id else (None, None)
        if group_id:
            self._last_states[group_id] = (entry.state, entry.generation)
        timers = tuple(
            RunningTimer(timer.kind, timer.member_id, timer.due_ms - self._scenario.start_ms)
            for timer in (self.simulator.timers(group_id) if group_id else ())
        )
        self._add_work(EVENTS_PER_TIMER * len(timers))
        row = TimelineRow(
            id=row_id,
            at_ms=self.now_ms - self._scenario.start_ms,
            kind=kind,
            who=who,
            what=what,
            answer=answer,
            state=entry.state,
            generation=entry.generation,
            records=entry.records,
            is_routine=self._is_routine(entry, who, answer),
            state_before=state_before,
            generation_before=generation_before,
            request=None if call is None else call.request,
            response=None if call is None else call.answer,
            timers=timers,
        )
        self.rows.append(row)
        for answered in entry.answered:
            if answered is not call:
                self.rows.append(
                    replace(
                        row,
                        id=f"{self._id_of[answered.number]}/answer",
                        kind="answer",
                        who=self._sender_of[answered.number],
                        what=f"{type(answered.request).__name__} of {(answered.sent_at_ms - self._scenario.start_ms) / 1000:.3f}",
                        answer=answer_text(answered, self._names),
                        records=(),
                        is_routine=False,
                        request=answered.request,
                        response=answered.answer,
                    )
                )

    def _event_text(self, entry: TimelineEntry) -> tuple[str, str, str, str | None]:
        """Return the kind of an event, its actor, its text and the answer to a request."""
        if entry.call is not None:
            answer = answer_text(entry.call, self._names) if entry.call in entry.answered else "(waits)"
            answer += " (lost on the way)" if self._answer_is_lost else ""
            return "request", self._sender, request_text(entry.call.request, self._names), answer
        if entry.action is not None:
            return "action", BROKER, _action_text(entry.action), None
        member_name = self._names.get(entry.member_id or "", entry.member_id)
        what = "" if entry.timer is None else entry.timer.value
        return "timer", BROKER, f"{what} of {member_name}" if member_name else what, None

    def _is_routine(self, entry: TimelineEntry, who: str, answer: str | None) -> bool:
        if entry.call is None or not isinstance(entry.call.request, (Heartbeat, ConsumerGroupHeartbeat, ShareGroupHeartbeat)):
            return entry.call is None and entry.action is None and entry.group_id == "" and not entry.records
        result = (answer, entry.generation)
        is_repeated = self._last_heartbeat.get(who) == result
        self._last_heartbeat[who] = result
        return not entry.records and (answer == "NONE" or is_repeated)

    def _next_id(self, who: str, name: str) -> str:
        name = f"{who}/{name}"
        self._rows_by_name[name] += 1
        return f"{name}/{self._rows_by_name[name]}"

    def _add_application_row(self, who: str, what: str) -> None:
        now_ms = self.now_ms - self._scenario.start_ms
        self.rows.append(TimelineRow(self._next_id(who, what.split("(")[0].split(" to ")[0]), now_ms, "application", who, what))


def _action_text(action: actions.BrokerAction) -> str:
    match action:
        case actions.BeginLoad(number):
            return f"starts to read __consumer_offsets-{number}"
        case actions.LoadPartition(number, records):
            return f"has read __consumer_offsets-{number}: {counted(len(records), 'record')}"
        case actions.LosePartition(number):
            return f"loses __consumer_offsets-{number}"
        case actions.FailAppends(error, takes_ms):
            text = "appends work again" if error is Error.NONE and not takes_ms else "appends"
            text += f" take {takes_ms / 1000:g} s" if takes_ms else ""
            return text if error is Error.NONE else f"{text}{' and' if takes_ms else ''} fail: {error.name}"
        case actions.CreateTopic(topic, partitions):
            return f"topic {topic} is created with {counted(partitions, 'partition')}"
        case actions.AddPartitions(topic, partitions):
            return f"topic {topic} gets more partitions: {partitions}"
        case actions.DeleteTopic(topic):
            return f"topic {topic} is deleted"
        case actions.Deny(denied):
            refused = [*(f"{operation} of groups" for operation in sorted(denied.group_operations)), *sorted(denied.topics)]
            return f"refuses {', '.join(refused)}" if refused else "refuses nothing any more"
        case actions.ConfigureGroup(group_id, name, value):
            return f"group {group_id} has {name}={value}"
        case actions.CleanUp():
            return "offsets retention check"
        case _:
            return type(action).__name__
