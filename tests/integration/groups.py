"""Groups of every kind that confluent-kafka makes: running, empty, deleted, simple, and with transactions committed, aborted and open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = {"orders": 4, "payments": 2}
RECORDS = 40

CLASSIC: Mapping[str, Any] = {"group.protocol": "classic", "heartbeat.interval.ms": 300}
MODERN: Mapping[str, Any] = {"group.protocol": "consumer"}

JOIN_SECONDS = 60


@dataclass
class Worker:
    """One consumer in a thread of its own: polls all the time, and commits what it has read while it may."""

    settings: Mapping[str, Any]
    topics: list[str]
    may_commit: threading.Event
    assigned: set[tuple[str, int]] = field(default_factory=set)
    commits: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _idle: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer({**self.settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(self.topics)
        again = 0
        while not self._stopped.is_set():
            consumer.poll(0.05)
            self.assigned = {(each.topic, each.partition) for each in consumer.assignment()}
            if not self.may_commit.is_set():
                self._idle.set()
                continue
            self._idle.clear()
            again += 1
            offset = min(again, RECORDS // max(TOPICS.values()))  # below the log end, as positions of readers are
            try:
                places = [TopicPartition(topic, n, offset, metadata=f"round {again}") for topic, n in sorted(self.assigned)]
                if places:
                    consumer.commit(offsets=places, asynchronous=False)
                    self.commits += 1
            except KafkaException:
                pass  # a rebalance came between; the next round commits again
        consumer.close()

    def await_idle(self) -> None:
        """Returns once no commit is under way."""
        assert self._idle.wait(JOIN_SECONDS)

    def stop(self) -> None:
        """Leaves the group."""
        self._stopped.set()
        self._thread.join(JOIN_SECONDS)


def commit_when_coordinator_is_there(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commits as soon as the group's coordinator answers: on a slow machine not at the first attempt."""
    not_there = (
        *(KafkaError._WAIT_COORD, KafkaError.NOT_COORDINATOR),
        *(KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
    )
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException as e:
            if e.args[0].code() not in not_there or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class Groups:
    """What is there: ``running-classic`` and ``running-modern`` with two consumers each, ``empty``, ``simple``, ``transactional`` and
    ``only-open``; ``deleted`` was there."""

    def __init__(self, servers: str) -> None:
        self._client: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self._may_commit = threading.Event()
        self._workers: list[Worker] = []
        self._producers: list[Producer] = []

    def __enter__(self) -> Groups:
        admin = AdminClient(self._client)
        for created in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
            created.result()
        producer = Producer(self._client)
        for topic, count in TOPICS.items():
            for n in range(RECORDS):
                producer.produce(topic, b"%d" % n, partition=n % count)
        producer.flush()
        self._may_commit.set()
        for group_id, protocol in (("running-classic", CLASSIC), ("running-modern", MODERN)):
            for n in (1, 2):
                self._worker(group_id, protocol, client_id=f"{group_id}-{n}", **({"group.instance.id": "first"} if n == 1 else {}))
        leaving = self._worker("empty", CLASSIC, client_id="leaving")
        self.commit_as_tools_do("simple", [TopicPartition("orders", 1, 7, metadata="a note"), TopicPartition("payments", 0, 0)])
        self.commit_as_tools_do("deleted", [TopicPartition("orders", 0, 5)])
        self.delete("deleted")
        self._transaction("transactional", [TopicPartition("orders", 0, 11), TopicPartition("orders", 1, 12)], Producer.commit_transaction)
        self._transaction("transactional", [TopicPartition("orders", 0, 99)], Producer.abort_transaction)
        self._transaction("transactional", [TopicPartition("orders", 1, 55), TopicPartition("payments", 1, 3)])
        self._transaction("only-open", [TopicPartition("payments", 0, 8)])
        self._await_shared()
        self._await(lambda: leaving.commits > 0, "a commit of the consumer that leaves")
        leaving.stop()
        self._workers.remove(leaving)
        return self

    def rest(self) -> None:
        """Stops all commits; consumers stay members and go on polling."""
        self._may_commit.clear()
        for worker in self._workers:
            worker.await_idle()

    def work(self) -> None:
        """Commits go on, and have begun to."""
        before = {id(worker): worker.commits for worker in self._workers}
        self._may_commit.set()
        self._await(lambda: all(worker.commits > before[id(worker)] for worker in self._workers), "commits of every consumer")

    def _worker(self, group_id: str, protocol: Mapping[str, Any], *, client_id: str, **settings: Any) -> Worker:
        given = {**self._client, **protocol, "group.id": group_id, "client.id": client_id, **settings}
        self._workers.append(Worker(given, sorted(TOPICS), self._may_commit))
        return self._workers[-1]

    def _await_shared(self) -> None:
        """Until each running group's partitions are divided among its two consumers."""
        everything = {(topic, n) for topic, count in TOPICS.items() for n in range(count)}

        def is_shared() -> bool:
            for group_id in ("running-classic", "running-modern"):
                held = [worker.assigned for worker in self._workers if worker.settings["group.id"] == group_id]
                if not all(held) or sum(map(len, held)) != len(everything) or set.union(*held) != everything:
                    return False
            return True

        self._await(is_shared, "assignments")

    def _await(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, f"{what} did not come"
            time.sleep(0.05)

    def commit_as_tools_do(self, group_id: str, offsets: list[TopicPartition]) -> None:
        consumer = Consumer({**self._client, "group.id": group_id})
        commit_when_coordinator_is_there(consumer, offsets)
        consumer.close()

    def delete(self, group_id: str) -> None:
        admin = AdminClient(self._client)  # a client that nobody holds any more does not answer
        admin.delete_consumer_groups([group_id])[group_id].result()

    def _transaction(self, group_id: str, offsets: list[TopicPartition], end: Callable[[Producer], object] | None = None) -> None:
        """Offsets of a group in a transaction of its own, which stays open without ``end``."""
        # Longer than the tests take: the broker aborts an open transaction after this time, by default a minute.
        limits = {"transaction.timeout.ms": 900_000}
        producer = Producer({**self._client, **limits, "transactional.id": f"{group_id}-{len(self._producers)}"})
        consumer = Consumer({**self._client, "group.id": group_id})
        producer.init_transactions(JOIN_SECONDS)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), JOIN_SECONDS)
        if end is not None:
            end(producer)
        consumer.close()
        self._producers.append(producer)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.stop()
        self._producers.clear()
