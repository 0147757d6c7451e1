"""The same requests to a real broker and to the simulator, and what each of them answers and writes, as lines of text.

``python -m tests.tools.conformance.transcripts --release 4.4.0`` starts a broker of that release, plays every script against it, and prints
where the simulator differs; with ``--record`` it writes the broker's lines to ``tests/golden/transcripts``, and the tests compare
the simulator's lines with them.
A script is a list of steps, each (who, what, fields). The simulator gets the broker's member ids and topic ids: both decide orders.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groupcoord_spark.log.decode.definition import ByteRange, read_records
from groupcoord_spark.protocol import decode_key, decode_value, key_json, offsets_partition_for, value_json
from groupcoord_spark.protocol.consumer_protocol import Assignment, Subscription, decode_assignment, encode_assignment, encode_subscription
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator import BrokerAction, ClusterTopic, Simulator, WrittenRecord, read_settings, release_for
from groupcoord_spark.simulator.messages.requests import (
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetToCommit,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    SyncGroup,
)
from tests.tools.conformance.raw_requests import Pending, RawClient
from tests.tools.conformance.streams_steps import StreamsSteps

VERSION = "4.3.1"
"""The release of recorded transcripts that name none."""
GOLDEN = Path(__file__).parents[2] / "golden" / "transcripts"
SETTINGS: Mapping[str, int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.share.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "offsets.retention.check.interval.ms": 3_600_000,
}
"""Of the broker, in addition to the settings that the integration tests have."""
LIMITS: Mapping[str, int] = {"group.streams.min.session.timeout.ms": 500, "group.streams.min.heartbeat.interval.ms": 300}
"""Of the broker, too: they allow the settings that scripts give to groups."""
TOPICS = ("t", "u")
"""The topics that the broker must have. Topics that a script makes have the group in their names."""
STEP_MS = 50
"""How far the simulator's clock moves with each step. A real broker takes about as long."""
BATCH_HEADER, CONTROL = 61, 32
UUID_OF_CONSUMER_GROUPS = 22
"""Length of the ids that a consumer group makes for classic members; ids of classic groups begin with the name of the client."""
PATIENCE_SECONDS = 0.4
"""How long a JoinGroup or SyncGroup waits for its answer before the next step begins."""
MOST_ANSWER_SECONDS = 20.0
"""How long the other requests wait, which no coordinator holds back."""
SHARE_STATE_SECONDS, MOST_SHARE_STATE_SECONDS = 0.3, 20.0
"""How long a broker may take to begin the state of share partitions, and to end it: the first group waits for a topic."""

PLAYS = 3
"""How often a script is played that differs: a broker may be late once."""
APPEND_SECONDS = 0.1
"""How long a broker may take to write records after its answer: a JoinGroup that needs a member id does not wait for them."""
ACTION_SECONDS = 0.4
"""How long the coordinator of a broker may take to hear of a topic or of a setting of a group."""

Step = tuple[str, str, dict[str, Any]]


class Client:
    """What one client of a script knows: its ids, its generation or epoch, and what it owns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = 0
        self.owned: Mapping[str, tuple[int, ...]] = {}
        self.tasks: dict[str, Mapping[str, tuple[int, ...]]] = {}
        """Of a streams group's member: kind -> subtopology -> partitions."""


def text_of(partitions: Mapping[str, Any] | None) -> str:
    """Partitions by topic in a few characters; ``-``: not in the answer."""
    if partitions is None:
        return "-"
    return " ".join(f"{topic}:{','.join(map(str, sorted(numbers)))}" for topic, numbers in sorted(partitions.items()) if numbers) or "none"


class Backend(StreamsSteps):
    """Plays scripts. The two kinds of backends send a request and read the log; lines are made here."""

    topics: Mapping[str, ClusterTopic]

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.lines: list[str] = []
        self.member_ids: list[str] = []
        self.group = ""

    def play(self, group: str, steps: list[Step]) -> list[str]:
        """Return the lines of a script."""
        self.group, self.clients, self.lines, self.member_ids = group, {}, [], []
        for who, what, fields in steps:
            client = self.clients.setdefault(who, Client(who))
            answer = "" if what == "wait" else getattr(self, f"_{what}")(client, **fields)
            if what == "wait":
                self.pass_time(fields["ms"])
            if what == "share":
                self.await_share_state()
            request = f"{who} {what} {' '.join(f'{name}={value}' for name, value in fields.items())}".strip()
            lines = [f"{request} -> {answer}", *self._late_lines(), *self._record_lines()]
            self.lines += [line.replace(group, "GROUP") for line in lines]
        return self.lines

    # Requests, which a backend sends

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        raise NotImplementedError

    def act(self, action: BrokerAction) -> None:
        """Have an administrator change something, and wait until the coordinator knows."""
        raise NotImplementedError

    def await_share_state(self) -> None:
        """Wait until the share coordinator has made the state that a heartbeat asked for."""

    def ask(self, request: Any, client: Client, note: Callable[[Any], str]) -> str:
        """Send a request and return the line of its answer; ``waits`` before there is one."""
        raise NotImplementedError

    def new_records(self) -> list[tuple[int, dict[str, Any], dict[str, Any] | None]]:
        """Return the group's records since the last call: (key type, key, value), in Kafka's JSON."""
        raise NotImplementedError

    def _late_lines(self) -> list[str]:
        raise NotImplementedError

    def _join(
        self, client: Client, *, topics: str = "t", owned: bool = False, protocols: str = "range", version: int = 9, **fields: Any
    ) -> str:
        subscription = Subscription(1, tuple(topics.split()), None, client.owned if owned else {}, -1, None)
        metadata = encode_subscription(subscription)
        request = JoinGroup(
            self.group,
            **{"session_timeout_ms": 10_000, "rebalance_timeout_ms": 5_000, "member_id": client.member_id, **fields},
            protocols=tuple((name, metadata) for name in protocols.split()),
            client_id=client.name,
            version=version,
        )

        def note(answer: Any) -> str:
            if answer.member_id:
                client.member_id = answer.member_id
                if answer.member_id not in (request.member_id, *self.member_ids):
                    self.member_ids.append(answer.member_id)
            if answer.error == 0:
                client.generation = answer.generation
            leader = self._label(answer.leader) or "none"
            protocol = answer.protocol or "none"
            return f"{int(answer.error)} generation {answer.generation} {protocol} leader {leader} members {len(answer.members)}"

        return self.ask(request, client, note)

    def _sync(self, client: Client, **assignments: Any) -> str:
        fields = {name: assignments.pop(name) for name in ("generation", "protocol") if name in assignments}
        encoded = tuple(
            (self.clients[name].member_id, encode_assignment(Assignment(1, {"t": tuple(numbers)}, None)))
            for name, numbers in assignments.items()
            if name in self.clients
        )
        request = SyncGroup(
            self.group,
            **{"generation": client.generation, "protocol": "range", **fields},
            member_id=client.member_id,
            protocol_type="consumer",
            assignments=encoded,
            version=5,
        )

        def note(answer: Any) -> str:
            if answer.error:
                return str(int(answer.error))
            decoded = decode_assignment(answer.assignment) if answer.assignment else None
            client.owned = {} if decoded is None else decoded.partitions
            return f"0 {answer.protocol} {'empty' if decoded is None else text_of(client.owned)}"

        return self.ask(request, client, note)

    def _beat(self, client: Client, **fields: Any) -> str:
        request = Heartbeat(self.group, **{"generation": client.generation, "member_id": client.member_id, **fields}, version=4)
        return self.ask(request, client, lambda answer: str(int(answer.error)))

    def _leave(self, client: Client, *, of: str = "", **fields: Any) -> str:
        leaving = Leaving(**{"member_id": self.clients[of or client.name].member_id, **fields})
        return self.ask(
            LeaveGroup(self.group, (leaving,), version=5), client, lambda answer: " ".join(str(int(one.error)) for one in answer.members)
        )

    def _new(self, client: Client, **fields: Any) -> str:
        """Return a heartbeat of the new protocol, whose client takes over and gives up partitions at once."""
        epoch = fields.get("member_epoch", client.generation)
        client.member_id = client.member_id or client.name
        first = {"rebalance_timeout_ms": 5_000, "topics": ("t",), "partitions": {}}
        request = ConsumerGroupHeartbeat(
            self.group,
            **{
                "member_id": client.member_id,
                "member_epoch": epoch,
                "client_id": client.name,
                **(first if epoch == 0 else {} if epoch < 0 else {"partitions": client.owned}),
                **fields,
            },
            version=1,
        )

        def note(answer: Any) -> str:
            if answer.error == 0:
                client.generation = max(answer.member_epoch, 0)
                client.owned = client.owned if answer.assignment is None else answer.assignment
            return f"{int(answer.error)} epoch {answer.member_epoch} {text_of(answer.assignment)}"

        return self.ask(request, client, note)

    def _share(self, client: Client, **fields: Any) -> str:
        """Return a heartbeat of a share group's member."""
        epoch = fields.get("member_epoch", client.generation)
        client.member_id = client.member_id or client.name
        first = {"topics": ("t",)} if epoch == 0 else {}
        request = ShareGroupHeartbeat(
            self.group,
            **{"member_id": client.member_id, "member_epoch": epoch, "client_id": client.name, **first, **fields},
            version=1,
        )

        def note(answer: Any) -> str:
            if answer.error == 0:
                client.generation = max(answer.member_epoch, 0)
            return f"{int(answer.error)} epoch {answer.member_epoch} {text_of(answer.assignment)}"

        return self.ask(request, client, note)

    def _show(self, client: Client) -> str:
        """Return what ShareGroupDescribe shows."""

        def note(answer: Any) -> str:
            (group,) = answer.groups
            members = " ".join(
                sorted(f"{self._label(one.member_id)}:{one.member_epoch}:{text_of(one.assignment)}" for one in group.members)
            )
            return f"{int(group.error)} {group.state} epoch {group.group_epoch} {group.assignment_epoch} {group.assignor} {members}".strip()

        return self.ask(ShareGroupDescribe((self.group,), version=1), client, note)

    def _list(self, client: Client) -> str:
        """Return what ListGroups and DescribeGroups say of the group."""

        def listed(answer: Any) -> str:
            return " ".join(f"{one.protocol_type}/{one.state}/{one.group_type}" for one in answer.groups if one.group_id == self.group)

        def described(answer: Any) -> str:
            (group,) = answer.groups
            return f"{int(group.error)} {group.state}"

        text = self.ask(ListGroups(version=5), client, listed)
        return f"{text or 'not listed'}, {self.ask(DescribeGroups((self.group,), version=6), client, described)}"

    def _commit(self, client: Client, *, older: int = 0, version: int = 9) -> str:
        request = OffsetCommit(self.group, (OffsetToCommit("t", 0, 5),), client.generation - older, client.member_id, version=version)
        return self.ask(request, client, lambda answer: str(int(answer.errors["t", 0])))

    def _delete(self, client: Client) -> str:
        return self.ask(DeleteGroups((self.group,), version=2), client, lambda answer: str(int(answer.errors[self.group])))

    # Lines

    def _label(self, member_id: str | None) -> str:
        return next((client.name for client in self.clients.values() if client.member_id == member_id), member_id or "")

    def _record_lines(self) -> list[str]:
        """Return a line for each record. Neighbours of one type are sorted: members come in the order of a hash map."""
        lines: list[tuple[int, int, str]] = []
        block = 0
        for key_type, key, value in self.new_records():
            block += not lines or lines[-1][1] != key_type
            who = self._label(key.get("memberId"))
            lines.append((block, key_type, f"    {key_type}{f' {who}' if who else ''} {self._value_text(value)}"))
        return [text for _, _, text in sorted(lines)]

    def _value_text(self, value: dict[str, Any] | None) -> str:
        if value is None:
            return "tombstone"
        # Of a resolved expression the time, and the offset in the metadata log ("version").
        shown = {name: part for name, part in value.items() if not name.endswith(("Timestamp", "timestamp", "Hash", "Host", "version"))}
        return json.dumps(self._plain(shown), sort_keys=True, ensure_ascii=False)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list):
            parts = [self._plain(part) for part in value]
            return sorted(parts, key=json.dumps)
        if isinstance(value, dict):
            return {name: self._plain(part) for name, part in value.items() if not name.endswith("Host")}
        if isinstance(value, str):
            topic = next((name for name, topic in self.topics.items() if topic.topic_id == value), None)
            return topic if topic is not None else self._label(value)
        return value


class Simulated(Backend):
    """The simulator, with the member ids that the broker has made."""

    def __init__(
        self,
        topics: Mapping[str, ClusterTopic],
        member_ids: list[str],
        settings: Mapping[str, int] = SETTINGS,
        release: str = VERSION,
    ) -> None:
        super().__init__()
        self.topics = topics
        self._records: list[WrittenRecord] = []
        self._producer_id = 0
        self._waiting: list[tuple[str, Any, Callable[[Any], str]]] = []
        left = list(member_ids)
        self.simulator = Simulator(
            release_for(None, release),
            read_settings(settings, topics),
            start_ms=1_767_225_600_000,
            new_member_id=lambda name: _taken_member_id(left, name),
            on_entry=lambda entry: self._records.extend(entry.records),
        )

    def pass_time(self, ms: int) -> None:
        self.simulator.advance_to(self.simulator.broker.now_ms + ms)

    def act(self, action: BrokerAction) -> None:
        self.simulator.act(action)
        self.pass_time(STEP_MS)

    def producer(self) -> tuple[int, int]:
        self._producer_id += 1
        return self._producer_id, 0

    def ask(self, request: Any, client: Client, note: Callable[[Any], str]) -> str:
        call = self.simulator.send(request)
        self.pass_time(STEP_MS)
        if call.answer is None:
            self._waiting.append((client.name, call, note))
            return "waits"
        return note(call.answer)

    def _late_lines(self) -> list[str]:
        answered = [(name, note(call.answer)) for name, call, note in self._waiting if call.answer is not None]
        self._waiting = [waiting for waiting in self._waiting if waiting[1].answer is None]
        return [f"    {name} is answered: {text}" for name, text in answered]

    def new_records(self) -> list[tuple[int, dict[str, Any], dict[str, Any] | None]]:
        records, self._records = self._records, []
        read = []
        for record in records:
            if record.key_type is not None and record.key_bytes is not None:
                value = None if record.value_bytes is None else decode_value(record.key_type, record.value_bytes)
                key = key_json(decode_key(record.key_bytes))
                read.append((record.key_type, key, None if value is None else value_json(value)))
        return read


def _taken_member_id(left: list[str], name: str) -> str:
    """Take the first of a broker's ids that it can have made for a client. A waiting request learns its id late, or never."""
    fits = (one for one in left if len(one) == UUID_OF_CONSUMER_GROUPS or one.startswith(f"{name}-"))
    member_id = next(fits, f"{name}-{len(left):036}")
    if member_id in left:
        left.remove(member_id)
    return member_id


class RealBroker(Backend):
    """A running broker, whose log directory is at hand."""

    def __init__(self, servers: str, log_dir: Path, jars: Path) -> None:
        super().__init__()
        self._client = RawClient(servers, jars)
        self._log_dir = log_dir
        self._seen = 0
        self._waiting: list[tuple[str, type, Pending, Callable[[Any], str]]] = []
        while self._client.ask("FindCoordinator", 4, key_type=0, coordinator_keys=["any"])["coordinators"][0]["error_code"]:
            time.sleep(PATIENCE_SECONDS)  # the broker makes __consumer_offsets
        of_all_partitions = {"groups": list("0123456789"), "include_authorized_operations": 0}
        while any(group["error_code"] for group in self._client.ask("DescribeGroups", 5, **of_all_partitions)["groups"]):
            time.sleep(PATIENCE_SECONDS)  # it loads them
        named = self._client.ask("Metadata", 12, topics=None)["topics"]
        self.topics = {one["name"]: ClusterTopic(len(one["partitions"]), one["topic_id"]) for one in named if not one["is_internal"]}

    def play(self, group: str, steps: list[Step]) -> list[str]:
        self._seen, self._waiting = 0, []
        return super().play(group, steps)

    def pass_time(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def producer(self) -> tuple[int, int]:
        answer: dict[str, Any] = {"error_code": -1}
        while answer["error_code"]:
            time.sleep(PATIENCE_SECONDS)
            self._client.ask("FindCoordinator", 4, key_type=1, coordinator_keys=[self.group])
            answer = self._client.ask("InitProducerId", 5, transactional_id=self.group, transaction_timeout_ms=60_000)
        return answer["producer_id"], answer["producer_epoch"]

    def act(self, action: BrokerAction) -> None:
        from tests.tools.conformance.raw_forms import form_of_action

        api, version, fields = form_of_action(action)
        answer = self._client.ask(api, version, **fields)
        results = answer.get("responses", answer.get("topics", answer.get("results")))
        assert all(one["error_code"] == 0 for one in results), answer
        time.sleep(ACTION_SECONDS)

    def await_share_state(self) -> None:
        deadline = time.monotonic() + MOST_SHARE_STATE_SECONDS
        time.sleep(SHARE_STATE_SECONDS)
        while time.monotonic() < deadline:
            states = [value for key_type, _, value in self._records() if key_type == KeyType.SHARE_GROUP_STATE_PARTITION_METADATA]
            if not states or states[-1] is None or not states[-1]["initializingTopics"]:
                return
            time.sleep(SHARE_STATE_SECONDS)

    def ask(self, request: Any, client: Client, note: Callable[[Any], str]) -> str:
        from tests.tools.conformance.raw_forms import form_of, plain_answer

        pending = self._client.start(type(request).__name__, request.version, form_of(request, self.topics), client.name)
        answer = pending.answer(PATIENCE_SECONDS if isinstance(request, JoinGroup | SyncGroup) else MOST_ANSWER_SECONDS)
        if answer is None:
            self._waiting.append((client.name, type(request), pending, note))
            return "waits"
        return note(plain_answer(type(request), answer, self.topics))

    def _late_lines(self) -> list[str]:
        from tests.tools.conformance.raw_forms import plain_answer

        lines, waiting = [], []
        for name, kind, pending, note in self._waiting:
            answer = pending.answer(0.05)
            if answer is None:
                waiting.append((name, kind, pending, note))
            else:
                lines.append(f"    {name} is answered: {note(plain_answer(kind, answer, self.topics))}")
        self._waiting = waiting
        return lines

    def new_records(self) -> list[tuple[int, dict[str, Any], dict[str, Any] | None]]:
        time.sleep(APPEND_SECONDS)
        read = self._records()
        new, self._seen = read[self._seen :], len(read)
        return new

    def _records(self) -> list[tuple[int, dict[str, Any], dict[str, Any] | None]]:
        """Return all records of the group."""
        partition = self._log_dir / f"__consumer_offsets-{offsets_partition_for(self.group, 5)}"
        data = (partition / f"{0:020}.log").read_bytes()
        read, at = [], 0
        while at + BATCH_HEADER < len(data):
            (size,) = struct.unpack_from(">i", data, at + 8)
            attributes, count = struct.unpack_from(">h", data, at + 21)[0], struct.unpack_from(">i", data, at + 57)[0]
            assert attributes & 0b111 == 0, "a compressed batch"
            if not attributes & CONTROL:
                for record in read_records(data, at + BATCH_HEADER, at + 12 + size, count):
                    key_bytes = _bytes(data, record.key)
                    key = decode_key(key_bytes)
                    if _group_of(key_json(key)) == self.group:
                        value = decode_value(key.key_type, _bytes(data, record.value))
                        read.append((key.key_type, key_json(key), None if value is None else value_json(value)))
            at += 12 + size
        return read


def _bytes(data: bytes, place: ByteRange | None) -> bytes | None:
    return None if place is None else data[place.start : place.end]


def _group_of(key: Mapping[str, Any]) -> str | None:
    return key.get("groupId", key.get("group"))


def load(name: str) -> dict[str, Any]:
    """Return a recorded transcript: topics, member_ids and lines."""
    recorded: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    return recorded


def simulated_lines(steps: list[Step], recorded: Mapping[str, Any], group: str) -> list[str]:
    """Return the simulator's lines for a script, with the topics and the member ids of a recorded transcript."""
    topics = {name: ClusterTopic(*topic) for name, topic in recorded["topics"].items()}
    return Simulated(topics, list(recorded["member_ids"]), release=recorded.get("release", VERSION)).play(group, steps)


@contextmanager
def broker_with(topics: Mapping[str, int], release: str) -> Iterator[RealBroker]:
    """Start a broker of a release that has the settings of the scripts and these topics, each with its number of partitions."""
    from tests.integration.kafka import running_broker

    with tempfile.TemporaryDirectory() as place, running_broker(Path(place), {**SETTINGS, **LIMITS}, release) as started:
        created = [{"name": name, "num_partitions": size, "replication_factor": 1} for name, size in topics.items()]
        RawClient(started.servers, started.jars).ask("CreateTopics", 7, topics=created, timeout_ms=10_000)
        yield RealBroker(started.servers, started.log_dir, started.jars)


def main(arguments: list[str]) -> int:
    """Play every script against a broker and against the simulator. Returns the number of scripts that differ."""
    from tests.tools.conformance.scripts import SCRIPTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default=VERSION)
    parser.add_argument("--record", action="store_true", help="write the lines of the broker to tests/golden/transcripts")
    parser.add_argument("--only", default="", help="play the scripts with this text in their names")
    chosen = parser.parse_args(arguments)
    different = 0
    names = sorted((name for name in SCRIPTS if chosen.only in name), key=_topic_sizes)
    for sizes, of_sizes in itertools.groupby(names, _topic_sizes):
        with broker_with(dict(zip(TOPICS, sizes, strict=True)), chosen.release) as broker:
            for name in of_sizes:
                different += _differs(name, SCRIPTS[name], broker, chosen.release, records=chosen.record)
    print(f"{len(names)} scripts on {chosen.release}, {different} differ")
    return different


def _topic_sizes(name: str) -> tuple[int, ...]:
    """Return the partitions of ``TOPICS`` when the script was recorded; a new script has four and three."""
    return tuple(load(name)["topics"][topic][0] for topic in TOPICS) if (GOLDEN / f"{name}.json").exists() else (4, 3)


def _differs(name: str, steps: list[Step], broker: RealBroker, release: str, *, records: bool) -> bool:
    """Play one script on both sides, and print the difference. A script that is equal when it is played again differed by timing."""
    difference = ""
    for play in range(PLAYS):
        group = f"{name}-{time.time_ns()}"
        lines = broker.play(group, steps)
        topics = {topic: [broker.topics[topic].partitions, broker.topics[topic].topic_id] for topic in TOPICS}
        recorded = {"topics": topics, "member_ids": broker.member_ids, "group": group, "lines": lines}
        recorded |= {} if release == VERSION else {"release": release}
        difference = "\n".join(
            difflib.unified_diff(lines, simulated_lines(steps, recorded, group), "broker", "simulator", lineterm="", n=1)
        )
        if records:
            (GOLDEN / f"{name}.json").write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", "utf-8")
        if records or not difference:
            print(f"{name}: {'DIFFERENT' if difference else 'equal' if play == 0 else f'equal in play {play + 1}'}", flush=True)
            return bool(difference)
    print(f"{name}: DIFFERENT\n{difference}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
