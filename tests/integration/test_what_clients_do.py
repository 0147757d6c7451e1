"""Clients of several libraries do what the views are about, on a real broker; each view must show it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from groupcoord_spark.sources.end_offsets import read_end_offsets
from tests.cli.warehouse import groupcoord
from tests.integration.kafka import JAVA_OPTIONS, VERSION, Broker, fetched_jars, java
from tests.running import run
from tests.shown_rows import connect

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from tests.local_session import LocalSession

pytestmark = pytest.mark.broker

TOPIC, PARTITIONS, RECORDS_OF_PARTITION = "clicks", 4, 40
FIRST_RECORD_MS = 1_700_000_000_000
"""Timestamp of the first record of the topic; each further record is a second later."""
PATIENCE_S = 120


@dataclass
class Clients:
    """Groups of one broker, each with the clients that do one thing."""

    servers: str
    members: list[Consumer] = field(default_factory=list)
    group_ids: list[str] = field(default_factory=list)

    def client(self, group_id: str, **settings: Any) -> Consumer:
        from confluent_kafka import Consumer

        if group_id not in self.group_ids:
            self.group_ids.append(group_id)
        usual = {"bootstrap.servers": self.servers, "group.id": group_id, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        client = Consumer({**usual, "group.protocol": "classic", "heartbeat.interval.ms": 300, "log_level": 0, **settings})
        self.members.append(client)
        return client

    def member(self, group_id: str, **settings: Any) -> Consumer:
        """Return a consumer that has partitions."""
        client = self.client(group_id, **settings)
        client.subscribe([TOPIC])
        poll_until([client], lambda: bool(client.assignment()))
        return client

    def leave(self, client: Consumer) -> None:
        client.close()
        self.members.remove(client)


def poll_until(clients: list[Consumer], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "the group did not come to rest"
        for client in clients:
            client.poll(0.05)


def commit(client: Consumer, offsets: Mapping[int, int]) -> None:
    """Commits of these offsets by partition, in one request."""
    from confluent_kafka import TopicPartition

    from tests.integration.groups import commit_when_coordinator_is_there

    commit_when_coordinator_is_there(client, [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()])


def everywhere(offset: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), offset)


def reset_by_a_tool(clients: Clients) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    commit(clients.client("reset"), {0: 30, 1: 31})
    to_earliest = ConsumerGroupTopicPartitions("reset", [TopicPartition(TOPIC, 0, 0), TopicPartition(TOPIC, 1, 0)])
    admin = AdminClient({"bootstrap.servers": clients.servers})
    admin.alter_consumer_group_offsets([to_earliest])["reset"].result()


def start_anew(clients: Clients) -> None:
    first = clients.member("restart")
    commit(first, everywhere(20))
    clients.leave(first)
    second = clients.member("restart")
    commit(second, {0: 1})
    clients.leave(second)


def seek(clients: Clients) -> None:
    from confluent_kafka import TopicPartition

    client, place = clients.member("seek"), TopicPartition(TOPIC, 2, 3)
    # A client that has partitions may still wait for their committed offsets, which would then replace the place of a seek.
    poll_until([client], lambda: client.position([place])[0].offset >= 0)
    commit(client, everywhere(20))
    client.seek(place)
    read: list[Any] = []

    def has_read() -> bool:
        message = client.poll(0.1)
        if message is not None and (message.partition(), message.offset()) == (2, 3):
            read.append(message)
        return bool(read)

    poll_until([], has_read)
    client.commit(message=read[0], asynchronous=False)


def write_twice(clients: Clients) -> None:
    ahead, behind = clients.client("two-writers"), clients.client("two-writers")
    for n in range(3):
        commit(ahead, {0: 30 + n})
        commit(behind, {0: 5 + n})


def own_late(clients: Clients) -> None:
    first = clients.member("late-owner")
    commit(first, everywhere(30))
    second = clients.client("late-owner")
    second.subscribe([TOPIC])
    poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2)
    commit(second, {second.assignment()[0].partition: 20})


def stall(clients: Clients) -> None:
    client = clients.member("stalled")
    for n in (10, 20, 30):
        commit(client, {0: 5, 1: n, 2: n, 3: n})


def fill(servers: str) -> None:
    """Create the topic, with the same number of records in each partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": servers})
    for n in range(PARTITIONS * RECORDS_OF_PARTITION):
        producer.produce(TOPIC, b"%d" % n, partition=n % PARTITIONS, timestamp=FIRST_RECORD_MS + 1000 * n)
    producer.flush()


def has_compiler() -> bool:
    done = subprocess.run([java(), "--list-modules"], capture_output=True, text=True, check=False, timeout=60)
    return "jdk.compiler" in done.stdout


@dataclass(frozen=True)
class Night:
    """The run after all clients were at work."""

    warehouse: Path
    views: duckdb.DuckDBPyConnection
    has_streams: bool

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.views.execute(query).fetchall()

    def why(self, group_id: str) -> str:
        """Return the conclusion."""
        done = groupcoord("why", "--warehouse", str(self.warehouse), "--group", group_id, "--output", "json")
        assert done.exit_code == 0, done.output
        return str(json.loads(done.stdout.splitlines()[-1])["what"])


@pytest.fixture(scope="module")
def night(broker: Broker, local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    from confluent_kafka.admin import AdminClient

    kafka = pytest.importorskip("kafka", reason="the package kafka-python is not installed")
    place = tmp_path_factory.mktemp("clients")
    fill(broker.servers)
    clients, app = Clients(broker.servers), None
    if has_compiler():
        jars = fetched_jars(f"kafka-streams-{VERSION}", "kafka-streams", VERSION)
        source = str(Path(__file__).with_name("StreamsApp.java"))
        command = [java(), *JAVA_OPTIONS, "-cp", f"{broker.jars}/*:{jars}/*", source]
        command += [broker.servers, "streams-app", TOPIC, str(place / "state")]
        with (place / "app.log").open("w") as log:
            app = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
        clients.group_ids.append("streams-app")
    other_library = kafka.KafkaConsumer(TOPIC, bootstrap_servers=broker.servers, group_id="by-kafka-python", enable_auto_commit=False)
    clients.group_ids.append("by-kafka-python")
    admin = AdminClient({"bootstrap.servers": broker.servers})
    try:
        for act in (reset_by_a_tool, start_anew, seek, write_twice, own_late, stall):
            act(clients)
        poll_until([], lambda: bool(other_library.poll(timeout_ms=2_000) is not None and other_library.assignment()))
        if app is not None:
            poll_until([], lambda: committed(admin, "streams-app") == everywhere(RECORDS_OF_PARTITION))
        ends = place / "ends.txt"
        ends.write_text(broker.run_tool("org.apache.kafka.tools.GetOffsetShell", "--topic", TOPIC))
        sample = {"log_ends": read_end_offsets(str(ends)).offsets, "log_ends_sampled_at_ms": time.time_ns() // 1_000_000}
        copied = broker.copy_offsets_log(place / "logs")
        run(local, place / "warehouse", copied, cluster="real", as_of_ms=time.time_ns() // 1_000_000, **sample)
        yield Night(place / "warehouse", connect(place / "warehouse", "real"), app is not None)
    finally:
        for client in list(clients.members):
            clients.leave(client)
        other_library.close()
        if app is not None:
            app.communicate()
        # The tests of this broker that come after compare all of its groups.
        remove(admin, clients.group_ids)
        admin.delete_topics([TOPIC])[TOPIC].result()


def committed(admin: Any, group_id: str) -> dict[int, int]:
    """Return the committed offsets of the group by partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    try:
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result()
    except KafkaException:
        return {}
    return {place.partition: place.offset for place in answer.topic_partitions if place.offset >= 0}


def remove(admin: Any, group_ids: list[str]) -> None:
    """Deletes the groups as soon as each is without members: an application of Kafka Streams does not leave, its session ends."""
    from confluent_kafka import KafkaError, KafkaException

    left, deadline = list(group_ids), time.monotonic() + PATIENCE_S
    while left:
        for group_id, deleted in admin.delete_consumer_groups(left).items():
            try:
                deleted.result()
                left.remove(group_id)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    left.remove(group_id)  # no client of it came so far as to join
                assert time.monotonic() < deadline, f"group {group_id} cannot be deleted: {error}"
        time.sleep(0.5 if left else 0)


def test_every_rewind_is_there_with_its_kind_and_no_other(night: Night) -> None:
    names = "group_id, from_committed_offset, to_committed_offset, kind, partitions_at_once"
    assert sorted(night.rows(f"SELECT {names} FROM rewinds WHERE topic = '{TOPIC}'")) == [
        ("late-owner", 30, 20, "late_commit", 1),
        ("reset", 30, 0, "reset", 2),
        ("reset", 31, 0, "reset", 2),
        ("restart", 20, 1, "seek", 1),
        ("seek", 20, 4, "seek", 1),
        ("two-writers", 30, 5, "two_writers", 1),
        ("two-writers", 31, 6, "two_writers", 1),
        ("two-writers", 32, 7, "two_writers", 1),
    ]
    assert "went back from 20 to 4" in night.why("seek")
    assert "went back from 20 to 1" in night.why("restart")


def test_the_partition_that_does_not_advance_is_stalled(night: Night) -> None:
    names = "partition, committed_offset, commits, advance, median_advance"
    assert night.rows(f"SELECT {names} FROM stalled WHERE group_id = 'stalled'") == [(0, 5, 3, 0, 20.0)]


def test_lag_is_counted_from_what_kafka_get_offsets_says(night: Night) -> None:
    lags = night.rows("SELECT partition, end_offset, lag, group_lag, group_max_lag FROM lag WHERE group_id = 'stalled' ORDER BY partition")
    assert lags == [(0, 40, 35, 65, 35), (1, 40, 10, 65, 35), (2, 40, 10, 65, 35), (3, 40, 10, 65, 35)]


def test_members_are_known_by_library(night: Night) -> None:
    names = "library, protocol, assignor, members, group_ids, first_group_id"
    found = night.rows(f"SELECT {names} FROM client_inventory WHERE client_id = 'rdkafka' OR client_id LIKE 'kafka-python%'")
    assert sorted(found) == [
        ("kafka-python", "classic", "range", 1, 1, "by-kafka-python"),
        ("librdkafka", "classic", "range", 4, 3, "late-owner"),  # of late-owner two, of seek and of stalled one
    ]


def test_readers_of_the_topic_are_all_groups_and_those_that_never_committed_are_known(night: Night) -> None:
    readers = dict(night.rows(f"SELECT group_id, subscribed FROM topic_readers WHERE topic = '{TOPIC}' AND group_id <> 'streams-app'"))
    by_name = dict.fromkeys(("seek", "late-owner", "stalled", "by-kafka-python"), "name")
    assert readers == {**by_name, **dict.fromkeys(("reset", "restart", "two-writers"))}
    never = night.rows("SELECT partition, commits FROM assigned_never_committed WHERE group_id = 'by-kafka-python' ORDER BY partition")
    assert never == [(partition, 0) for partition in range(PARTITIONS)]


def test_kafka_streams_writes_the_time_of_the_newest_record_into_its_commits(night: Night) -> None:
    if not night.has_streams:
        pytest.skip("java has no compiler, and the application is a source file")
    newest = {p: FIRST_RECORD_MS + 1000 * (PARTITIONS * (RECORDS_OF_PARTITION - 1) + p) for p in range(PARTITIONS)}
    notes = night.rows("SELECT partition, kind, committed_offset, stream_time_ms FROM commit_notes WHERE group_id = 'streams-app'")
    assert sorted(notes) == [(p, "kafka_streams", RECORDS_OF_PARTITION, newest[p]) for p in range(PARTITIONS)]
    assert night.rows("SELECT library FROM client_inventory WHERE first_group_id = 'streams-app'") == [("Kafka Streams",)]
    obstacles = night.rows("SELECT obstacles FROM protocol_readiness WHERE group_id = 'streams-app'")
    assert "custom assignor, user data in the subscription" in obstacles[0][0]
