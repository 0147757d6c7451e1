"""Scenario files: reads a scenario from YAML and plays it against the simulated broker, which gives a timeline.

A scenario has one group, its members with their client settings, and steps. A member is a ``client.Consumer``; the step ``send`` sends a
single request of any kind, as an administrator or another client would.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml

from groupcoord_spark.assignors import NO_GENERATION, TopicPartition
from groupcoord_spark.coordinator.retention import read_duration
from groupcoord_spark.errors import InputError, UsageError
from groupcoord_spark.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from groupcoord_spark.simulator.actions import (
    Action,
    BeginLoad,
    CleanUp,
    DeleteTopic,
    FailAppends,
    LoadPartition,
    LosePartition,
)
from groupcoord_spark.simulator.answers import JoinGroupAnswer
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.client import ClientSettings, Consumer, read_client_settings
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.records import WrittenRecord
from groupcoord_spark.simulator.release import Release
from groupcoord_spark.simulator.requests import (
    DeleteGroups,
    DescribeGroups,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    SyncGroup,
)
from groupcoord_spark.simulator.settings import Settings, Topic, read_settings
from groupcoord_spark.simulator.simulator import Simulator, TimelineEntry
from groupcoord_spark.simulator.timeline_text import answer_text, request_text

BROKER, ADMIN = "broker", "admin"
NETWORK_MS: Final = 5
"""Time from the broker's answer to its receipt by the client. A timeline row of a request has the time at which the broker gets it."""
_DEFAULT_START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_AFTER_LAST_STEP_MS: Final = 60_000
_MOVE_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Step:
    """One step: each member in ``who``, or the broker if it is empty, performs ``verb`` with the options."""

    at_ms: int
    verb: str
    who: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as its file has it. Times of steps and ``until_ms`` are milliseconds since its start, ``start_ms`` since the epoch.

    broker_version: None if the file does not name one.
    """

    title: str
    group_id: str
    topics: Mapping[str, int]
    members: Mapping[str, ClientSettings]
    steps: tuple[Step, ...]
    settings: Settings
    broker_version: str | None
    start_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One row of a timeline.

    at_ms: milliseconds since the start of the scenario.
    kind: request (with its answer if the broker answered at once), answer (to an earlier request), timer, action, or application (a call
        of a member's application, or of a client to its application).
    state, generation: of the group after the row; None if the row is not about one group.
    """

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a scenario: its timeline, all records in the log, and the broker at the end."""

    rows: tuple[TimelineRow, ...]
    records: tuple[WrittenRecord, ...]
    simulator: Simulator


# Reading

_KEYS: Final = frozenset({"title", "group", "topics", "members", "client", "broker", "start", "steps", "until"})
_OPTIONS_BY_VERB: Final[Mapping[str, frozenset[str]]] = {
    "start": frozenset(),
    "close": frozenset(),
    "crash": frozenset(),
    "freeze": frozenset({"for"}),
    "busy": frozenset({"for"}),
    "subscribe": frozenset({"topics"}),
    "process": frozenset({"records"}),
    "commit": frozenset({"mode", "offsets", "answer", "retry_after"}),
    "fetch": frozenset(),
    "send": frozenset({"as", "with"}),
    "move_coordinator": frozenset({"for"}),
    "fail_appends": frozenset(),
    "delete_topic": frozenset(),
    "clean_up": frozenset(),
}
_MEMBER_VERBS: Final = frozenset({"start", "close", "crash", "freeze", "busy", "subscribe", "process", "commit", "fetch"})


def shipped_scenarios() -> dict[str, str]:
    """The scenarios that come with this release: name -> text."""
    folder = files("groupcoord_spark.simulator") / "scenarios"
    scenario_files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): file.read_text("utf-8") for file in scenario_files}


def find_scenario(name: str) -> Scenario:
    """The scenario in a file, or the shipped scenario of that name.

    Raises:
        InputError: there is no such file and no shipped scenario of that name, or the file cannot be read.
        UsageError: the scenario has a mistake.
    """
    path = Path(name)
    if path.is_file():
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise InputError(f"Scenario {name} cannot be read: {e}.") from e
        return read_scenario(text, name)
    shipped = shipped_scenarios()
    if name.removesuffix(".yaml") in shipped:
        return read_scenario(shipped[name.removesuffix(".yaml")], name)
    raise InputError(f"Scenario {name!r} is neither a file nor one of those shipped: {', '.join(shipped)}.")


def read_scenario(text: str, source: str) -> Scenario:
    """The scenario in a YAML text. Raises UsageError, which names ``source`` and the mistake."""
    try:
        return _read(yaml.safe_load(text))
    except yaml.YAMLError as e:
        raise UsageError(f"Scenario {source} is not YAML: {' '.join(str(e).split())}") from e
    except UsageError as e:
        raise UsageError(f"Scenario {source}: {e}") from e


def _read(content: Any) -> Scenario:
    fields = _mapping(content, "the file")
    _refuse_unknown(fields, _KEYS, "the file")
    broker = _mapping(fields.get("broker", {}), "broker")
    _refuse_unknown(broker, frozenset({"version", "settings"}), "broker")
    topics = {str(name): _whole(partitions, f"topic {name!r}") for name, partitions in _mapping(fields.get("topics", {}), "topics").items()}
    common = _mapping(fields.get("client", {}), "client")
    members = {
        str(name): read_client_settings(str(name), {**common, **_mapping(own or {}, f"member {name!r}")}, _milliseconds)
        for name, own in _mapping(fields.get("members", {}), "members").items()
    }
    listed = fields.get("steps")
    if not isinstance(listed, list) or not listed:
        raise UsageError("steps are missing: a list such as [{at: 0s, start: a}].")
    steps: list[Step] = []
    for number, step in enumerate(listed, 1):
        steps.append(_read_step(_mapping(step, f"step {number}"), number, members))
        if len(steps) > 1 and steps[-1].at_ms < steps[-2].at_ms:
            raise UsageError(f"step {number} is at {step['at']}, before the one above it: put them in the order of their time.")
    until_ms = _milliseconds(fields["until"], "until") if "until" in fields else steps[-1].at_ms + _AFTER_LAST_STEP_MS
    if until_ms < steps[-1].at_ms:
        raise UsageError("until is before the last step.")
    properties = _mapping(broker.get("settings", {}), "broker settings")
    return Scenario(
        title=str(fields.get("title", "")),
        group_id=str(fields.get("group", "group")),
        topics=topics,
        members=members,
        steps=tuple(steps),
        settings=read_settings(properties, {name: Topic(partitions) for name, partitions in topics.items()} if topics else None),
        broker_version=str(broker["version"]) if "version" in broker else None,
        start_ms=_start(fields["start"]) if "start" in fields else _DEFAULT_START_MS,
        until_ms=until_ms,
    )


def _read_step(step: Mapping[str, Any], number: int, members: Mapping[str, ClientSettings]) -> Step:
    where = f"step {number}"
    verbs = [key for key in step if key in _OPTIONS_BY_VERB]
    if "at" not in step or len(verbs) != 1:
        raise UsageError(f"{where} needs `at` and exactly one of {', '.join(_OPTIONS_BY_VERB)}.")
    verb = verbs[0]
    _refuse_unknown(step, _OPTIONS_BY_VERB[verb] | {"at", verb}, f"{where} ({verb})")
    options = {key: value for key, value in step.items() if key not in ("at", verb)}
    for key in ("for", "retry_after"):
        if key in options:
            options[key] = _milliseconds(options[key], f"`{key}` of {where}")
    who = step[verb]
    if verb in _MEMBER_VERBS:
        who = [who] if isinstance(who, str) else who
        if not isinstance(who, list) or not all(isinstance(name, str) for name in who):
            raise UsageError(f"{where}: {verb} wants the name of a member, or a list of names.")
        unknown = [name for name in who if name not in members]
        if unknown:
            raise UsageError(f"{where}: {unknown[0]!r} is not under members.")
    else:
        options["what"] = who
        who = ()
    if verb in ("freeze", "busy") and "for" not in options:
        raise UsageError(f"{where}: {verb} wants `for`, how long.")
    if verb == "send" and options.get("as") not in (None, *members):
        raise UsageError(f"{where}: {options['as']!r} is not under members.")
    if verb == "send" and options["what"] not in _REQUESTS:
        raise UsageError(f"{where}: {options['what']!r} cannot be sent by hand. Known are {', '.join(_REQUESTS)}.")
    if verb == "commit" and options.get("mode", "sync") not in ("sync", "async"):
        raise UsageError(f"{where}: mode {options['mode']!r} is neither sync nor async.")
    if verb == "commit" and options.get("answer", "lost") != "lost":
        raise UsageError(f"{where}: answer {options['answer']!r} is not `lost`.")
    if verb == "commit" and "offsets" in options:
        options["offsets"] = _offsets(options["offsets"], where)
    if verb == "process":
        options["records"] = _whole(options.get("records", 1), f"records of {where}")
    if verb == "subscribe" and not isinstance(options.get("topics"), list):
        raise UsageError(f"{where}: subscribe wants `topics`, a list.")
    if verb == "fail_appends" and options["what"] not in Error.__members__:
        raise UsageError(f"{where}: {options['what']!r} is no error the log gives, such as NOT_ENOUGH_REPLICAS; NONE ends the failure.")
    return Step(_milliseconds(step["at"], f"`at` of {where}"), verb, tuple(who), options)


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{what} is {value!r}, where names with values are expected.")
    return value


def _refuse_unknown(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(str(key) for key in given if key not in known)
    if unknown:
        raise UsageError(f"{where} has {unknown[0]!r}, which means nothing there. Known are {', '.join(sorted(known))}.")


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{what} is {value!r}, not a whole number.")
    return value


def _milliseconds(value: Any, what: str) -> int:
    if isinstance(value, str):
        try:
            return read_duration(value)
        except UsageError:
            raise UsageError(f"{what} is {value!r}, not a time. Write for example 500ms, 30s or 5m.") from None
    return _whole(value, what)


def _start(value: Any) -> int:
    try:
        # YAML knows moments; without an offset they are UTC, as everywhere.
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise UsageError(f"start is {value!r}, not a time such as 2026-01-01T00:00:00Z.") from None
    return int((moment if moment.tzinfo else datetime.fromisoformat(f"{moment.isoformat()}+00:00")).timestamp() * 1000)


def _offsets(value: Any, where: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for name, offset in _mapping(value, f"offsets of {where}").items():
        topic, _, partition = str(name).rpartition("-")
        if not topic or not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
            raise UsageError(f"offsets of {where}: write for example {{orders-0: 42}}, not {{{name}: {offset}}}.")
        offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


# Requests by hand

_Fields = Mapping[str, Any]


def _member_fields(group_id: str, member: Consumer | None, fields: _Fields) -> tuple[str, int, str, str | None]:
    """Group id, generation, member id and instance id of a request: the fields of the step, else those that the member would send."""
    return (
        str(fields.get("group_id", group_id)),
        int(fields.get("generation", member.generation if member else NO_GENERATION)),
        str(fields.get("member_id", member.member_id if member else "")),
        fields.get("group_instance_id", member.settings.group_instance_id if member else None),
    )


def _join(group_id: str, member: Consumer | None, fields: _Fields) -> Request:
    group, _, member_id, instance = _member_fields(group_id, member, fields)
    topics = tuple(fields.get("topics", member.settings.topics if member else ()))
    metadata = encode_subscription(Subscription(0, topics, None, {}, NO_GENERATION, None))
    return JoinGroup(
        group,
        fields.get("session_timeout_ms", 45_000),
        fields.get("rebalance_timeout_ms", 300_000),
        member_id,
        instance,
        fields.get("protocol_type", "consumer"),
        tuple((name, metadata) for name in fields.get("protocols", ["range"])),
        fields.get("client_id", member.name if member else ADMIN),
    )


def _sync(group_id: str, member: Consumer | None, fields: _Fields) -> Request:
    group, generation, member_id, instance = _member_fields(group_id, member, fields)
    assignments = tuple(
        (member_id, encode_assignment(Assignment(0, partitions, None))) for member_id, partitions in fields.get("assignments", {}).items()
    )
    return SyncGroup(group, generation, member_id, instance, assignments=assignments)


def _commit(group_id: str, member: Consumer | None, fields: _Fields) -> Request:
    offsets = tuple(
        OffsetToCommit(topic, number, offset) for (topic, number), offset in _offsets(fields.get("offsets", {}), "send").items()
    )
    group, generation, member_id, instance = _member_fields(group_id, member, fields)
    return OffsetCommit(group, offsets, generation, member_id, instance)


def _leave(group_id: str, member: Consumer | None, fields: _Fields) -> Request:
    group, _, member_id, instance = _member_fields(group_id, member, fields)
    return LeaveGroup(group, (Leaving(member_id, instance),))


_REQUESTS: Final[Mapping[str, Callable[[str, Consumer | None, _Fields], Request]]] = {
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "Heartbeat": lambda group_id, member, fields: Heartbeat(*_member_fields(group_id, member, fields)),
    "LeaveGroup": _leave,
    "OffsetCommit": _commit,
    "OffsetFetch": lambda group_id, member, fields: OffsetFetch((GroupToFetch(fields.get("group_id", group_id)),)),
    "DescribeGroups": lambda group_id, member, fields: DescribeGroups((fields.get("group_id", group_id),)),
    "ListGroups": lambda group_id, member, fields: ListGroups(),
    "DeleteGroups": lambda group_id, member, fields: DeleteGroups((fields.get("group_id", group_id),)),
    "OffsetDelete": lambda group_id, member, fields: OffsetDelete(
        fields.get("group_id", group_id), {topic: tuple(numbers) for topic, numbers in fields.get("partitions", {}).items()}
    ),
}


# Playing


def play(scenario: Scenario, release: Release) -> Outcome:
    """Play a scenario from start to end. The same scenario and release always have the same outcome.

    Raises:
        UsageError: for the reasons of ``Simulator.send``, or a step needs a member that is not running.
    """
    scenario_run = _ScenarioRun(scenario, release)
    scenario_run.run()
    return Outcome(tuple(scenario_run.rows), tuple(scenario_run.log), scenario_run.simulator)


@dataclass(order=True, slots=True)
class _ScheduledAction:
    at_ms: int
    number: int
    actor: Consumer | None = field(compare=False)
    do: Callable[[], None] = field(compare=False)


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    """A request without an answer. ``sender`` None: no client waits for it. ``loses_answer``: the client gets None instead."""

    sender: Consumer | None
    then: Callable[[Any], None]
    loses_answer: bool


class _ScenarioRun:
    """One play of a scenario. It is the environment of the clients: their next actions are in one queue, beside the broker's timers."""

    def __init__(self, scenario: Scenario, release: Release) -> None:
        self.rows: list[TimelineRow] = []
        self.log: list[WrittenRecord] = []
        self.simulator = Simulator(release, scenario.settings, start_ms=scenario.start_ms, on_entry=self._add_timeline_entry)
        self._scenario = scenario
        self._clients: dict[str, Consumer] = {}
        self._queue: list[_ScheduledAction] = []
        self._count = 0
        self._pending: dict[int, _PendingRequest] = {}
        self._answered: list[Call] = []
        self._names: dict[str, str] = {}
        self._sender_of: dict[int, str] = {}
        self._sender = BROKER
        self._answer_is_lost = False
        self._last_heartbeat: dict[str, tuple[str | None, int | None]] = {}

    @property
    def now_ms(self) -> int:
        return self.simulator.now_ms

    # The environment of the clients

    def send(self, client: Consumer, request: Request, then: Callable[[Any], None], *, loses_answer: bool = False) -> None:
        self._send_request(client.name, request, _PendingRequest(client, then, loses_answer))

    def schedule(self, delay_ms: int, client: Consumer, do: Callable[[], None]) -> None:
        self._schedule(self.now_ms + delay_ms, client, do)

    def notify_application(self, client: Consumer, text: str) -> None:
        self._add_row("application", client.name, text)

    # The run

    def run(self) -> None:
        scenario = self._scenario
        for step in scenario.steps:
            for name in step.who or (None,):
                self._schedule(scenario.start_ms + step.at_ms, None, self._action_of_step(step, name))
        end_ms = scenario.start_ms + scenario.until_ms
        while True:
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

    def _run_scheduled_action(self, due: _ScheduledAction) -> None:
        actor = due.actor
        if actor is not None and not actor.is_alive:
            return
        if actor is not None and actor.frozen_until_ms > due.at_ms:
            self._schedule(actor.frozen_until_ms, actor, due.do)
            return
        self.simulator.advance_to(due.at_ms)
        due.do()

    def _schedule(self, at_ms: int, actor: Consumer | None, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, _ScheduledAction(at_ms, self._count, actor, do))

    def _send_request(self, name: str, request: Request, pending: _PendingRequest) -> None:
        self._sender, self._answer_is_lost = name, pending.loses_answer
        call = self.simulator.send(request)
        self._pending[call.number] = pending

    def _schedule_answers(self) -> None:
        while self._answered:
            answered, self._answered = self._answered, []
            for call in answered:
                pending = self._pending.pop(call.number, None)
                if pending is not None and pending.sender is not None:
                    answer = None if pending.loses_answer else call.answer
                    self._schedule(self.now_ms + NETWORK_MS, pending.sender, _hand_over(pending.then, answer))

    # Steps

    def _action_of_step(self, step: Step, name: str | None) -> Callable[[], None]:
        return lambda: self._perform_member_step(step, name) if name is not None else self._perform_broker_step(step)

    def _perform_member_step(self, step: Step, name: str) -> None:
        options, client = step.options, self._clients.get(name)
        if step.verb == "start":
            self._add_row("application", name, "starts")
            client = Consumer(name, self._scenario.group_id, self._scenario.members[name], self._scenario.topics, self)
            self._clients[name] = client
            client.start()
            return
        if client is None or not client.is_alive:
            raise UsageError(f"{step.verb} at {step.at_ms} ms: member {name!r} is not running then.")
        if step.verb == "crash":
            self._add_row("application", name, "crashes")
            client.die()
        elif step.verb == "close":
            self._add_row("application", name, "close()")
            client.close()
        elif step.verb == "freeze":
            self._add_row("application", name, f"freezes for {options['for'] / 1000:g} s, heartbeats too")
            client.frozen_until_ms = self.now_ms + options["for"]
        elif client.frozen_until_ms > self.now_ms:
            self._schedule(client.frozen_until_ms, client, lambda: self._perform_member_step(step, name))
        elif step.verb == "busy":
            client.stop_polling(options["for"])
        elif step.verb == "subscribe":
            self._add_row("application", name, f"subscribe({', '.join(options['topics'])})")
            client.subscribe(options["topics"])
        elif step.verb == "process":
            client.process(options["records"])
        elif step.verb == "commit":
            client.commit(
                options.get("offsets"),
                is_sync=options.get("mode", "sync") == "sync",
                loses_answer="answer" in options,
                retry_after_ms=options.get("retry_after"),
            )
        else:
            client.fetch()

    def _perform_broker_step(self, step: Step) -> None:
        options, what = step.options, step.options["what"]
        if step.verb == "send":
            name = options.get("as")
            try:
                request = _REQUESTS[what](self._scenario.group_id, self._clients.get(name) if name else None, options.get("with", {}))
            except (TypeError, ValueError, AttributeError) as e:
                raise UsageError(f"{what} at {step.at_ms} ms cannot be made from {options.get('with')!r}: {e}.") from e
            self._send_request(name or ADMIN, request, _PendingRequest(None, lambda answer: None, False))
        elif step.verb == "move_coordinator":
            number = self.simulator.offsets_partition_of(self._scenario.group_id)
            self.simulator.act(LosePartition(number))
            half_ms = options.get("for", _MOVE_MS) // 2
            self._schedule(self.now_ms + half_ms, None, lambda: self.simulator.act(BeginLoad(number)))
            self._schedule(self.now_ms + 2 * half_ms, None, lambda: self.simulator.act(LoadPartition(number, self._log_of(number))))
        elif step.verb == "fail_appends":
            self.simulator.act(FailAppends(Error[what]))
        elif step.verb == "delete_topic":
            self.simulator.act(DeleteTopic(str(what)))
        else:
            self.simulator.act(CleanUp())

    def _log_of(self, number: int) -> tuple[WrittenRecord, ...]:
        return tuple(record for record in self.log if record.offsets_partition == number)

    # Rows of the timeline

    def _add_timeline_entry(self, entry: TimelineEntry) -> None:
        self.log += entry.records
        self._answered += entry.answered
        if entry.call is not None:
            self._sender_of[entry.call.number] = self._sender
        for call in entry.answered:
            if isinstance(call.answer, JoinGroupAnswer) and call.answer.member_id:
                self._names[call.answer.member_id] = self._sender_of[call.number]
        state, generation = entry.state, entry.generation
        if entry.call is not None:
            kind, who, what = "request", self._sender, request_text(entry.call.request, self._names)
            answer = answer_text(entry.call, self._names) if entry.call in entry.answered else "(waits)"
            if self._answer_is_lost:
                answer = f"{answer} (lost on the way)"
        elif entry.action is not None:
            kind, who, what, answer = "action", BROKER, _action_text(entry.action), None
        else:
            member_name = self._names.get(entry.member_id or "", entry.member_id)
            kind, who, answer = "timer", BROKER, None
            what = "" if entry.timer is None else entry.timer.value
            what = f"{what} of {member_name}" if member_name else what
        if entry.call is not None and isinstance(entry.call.request, Heartbeat):
            result = (answer, generation)
            is_routine = answer == "NONE" or self._last_heartbeat.get(who) == result
            self._last_heartbeat[who] = result
        else:
            is_routine = kind == "timer" and entry.group_id == "" and not entry.records
        self._add_row(kind, who, what, answer, state, generation, entry.records, is_routine)
        for call in entry.answered:
            if call is not entry.call:
                what = f"{type(call.request).__name__} of {(call.sent_at_ms - self._scenario.start_ms) / 1000:.3f}"
                self._add_row("answer", self._sender_of[call.number], what, answer_text(call, self._names), state, generation)

    def _add_row(
        self,
        kind: str,
        who: str,
        what: str,
        answer: str | None = None,
        state: str | None = None,
        generation: int | None = None,
        records: tuple[WrittenRecord, ...] = (),
        is_routine: bool = False,
    ) -> None:
        at_ms = self.now_ms - self._scenario.start_ms
        self.rows.append(TimelineRow(at_ms, kind, who, what, answer, state, generation, records, is_routine))


def _hand_over(then: Callable[[Any], None], answer: Any) -> Callable[[], None]:
    return lambda: then(answer)


def _action_text(action: Action) -> str:
    match action:
        case BeginLoad(number):
            return f"starts to read __consumer_offsets-{number}"
        case LoadPartition(number, records):
            return f"has read __consumer_offsets-{number}: {len(records)} records"
        case LosePartition(number):
            return f"loses __consumer_offsets-{number}"
        case FailAppends(error):
            return "appends work again" if error is Error.NONE else f"appends fail: {error.name}"
        case DeleteTopic(topic):
            return f"topic {topic} is deleted"
        case CleanUp():
            return "offsets retention check"
        case _:
            return type(action).__name__
