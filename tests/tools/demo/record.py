"""Records the logs of `groupcoord demo`: a shop's cluster on three nights, written by a real broker and real clients.

``python -m tests.tools.demo.record`` writes groupcoord_spark/cli/demo.tar.xz in a few minutes. The broker's clock is set forward hour by
hour, so that twelve days pass; sessions and timers go by the monotonic clock, which stays. The planted faults and their times are in
``FAULTS`` of tests/cli/test_demo.py.
"""

from __future__ import annotations

import io
import json
import math
import mmap
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from groupcoord_spark.cli.demo import ARCHIVE, NIGHTS
from tests.integration.kafka import JAVA_OPTIONS, VERSION, Broker, fetched_jars, free_ports, java, running_broker

TOPICS = {"orders": 4, "payments": 3, "shipments": 2, "product-updates": 3, "clicks": 3, "invoices": 2, "newsletter": 2, "ledger": 1}
RECORDS_OF_A_BUSY_HOUR = {"orders": 90, "payments": 70, "shipments": 30, "product-updates": 60, "clicks": 150, "newsletter": 6}

KEPT = ("meta.properties", "*-checkpoint", "__consumer_offsets-*", "__share_group_state-*", "__transaction_state-*", "__cluster_metadata-0")
"""What docs/how-to/copy-a-dump.md says to copy."""

BROKER = {
    "offsets.topic.num.partitions": 10,
    "offsets.retention.check.interval.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 300,
    "transaction.max.timeout.ms": 86_400_000,
    "metadata.max.idle.interval.ms": 0,
    "metadata.log.max.snapshot.interval.ms": 0,
    # Clients live at the machine's time, and the broker before it.
    "log.message.timestamp.after.max.ms": (1 << 63) - 1,
}

PATIENCE_S = 180


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


NIGHT_OF = {datetime.fromtimestamp(as_of_ms / 1000, UTC): f"night-{number}" for number, as_of_ms in enumerate(NIGHTS, 1)}
SECONDS_OF_A_COPY = 20


class Clock:
    """The clock of processes that are started inside ``preloaded``."""

    def __init__(self, place: Path) -> None:
        self._file = place / "clock"
        self._file.write_bytes(bytes(mmap.PAGESIZE))
        self._library = place / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self._library, source, "-ldl"], check=True)
        self.ahead_ms = 0

    def set(self, moment: datetime) -> None:
        self.ahead_ms = int((moment.timestamp() - time.time()) * 1000)
        with self._file.open("r+b") as file:
            file.write(self.ahead_ms.to_bytes(8, sys.byteorder, signed=True))

    @contextmanager
    def preloaded(self) -> Iterator[None]:
        os.environ.update(LD_PRELOAD=str(self._library), DEMO_CLOCK=str(self._file))
        try:
            yield
        finally:
            del os.environ["LD_PRELOAD"], os.environ["DEMO_CLOCK"]


@dataclass
class Service:
    """Consumers of one group that poll, and commit what they have read.

    poison: a partition that is no longer committed. most: records that each consumer reads in a round.
    """

    servers: str
    group_id: str
    topics: Sequence[str]
    client_ids: Sequence[str]
    settings: dict[str, Any] = field(default_factory=dict)
    poison: tuple[str, int] | None = None
    most: int = 10_000
    consumers: list[Consumer] = field(default_factory=list)

    def start(self, others: Sequence[Service] = ()) -> Service:
        """Join the group. others: services that have to poll until the group is balanced."""
        usual = {"bootstrap.servers": self.servers, "auto.offset.reset": "earliest", "log_level": 0, "enable.auto.commit": False}
        usual |= {"enable.auto.offset.store": False, "group.id": self.group_id}
        for client_id in self.client_ids:
            self.consumers.append(Consumer({**usual, "client.id": client_id, **self.settings}))
            self.consumers[-1].subscribe(list(self.topics))
        deadline = time.monotonic() + PATIENCE_S
        while not all(consumer.assignment() for consumer in self.consumers):
            assert time.monotonic() < deadline, self.group_id
            for service in (self, *others):
                service._poll(0.05)
        return self

    def work(self) -> None:
        """Read the available records, and commit."""
        self._poll(0.15)
        for consumer in self.consumers:
            self._commit(consumer)

    def stop(self) -> None:
        for consumer in self.consumers:
            consumer.close()
        self.consumers.clear()

    def _poll(self, patience_s: float) -> None:
        for consumer in self.consumers:
            for _ in range(self.most):
                message = consumer.poll(patience_s)
                if message is None:
                    break
                if message.error() is None and (message.topic(), message.partition()) != self.poison:
                    consumer.store_offsets(message)

    def _commit(self, consumer: Consumer) -> None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            consumer.commit(asynchronous=False)
        except KafkaException as e:
            if e.args[0].code() != KafkaError._NO_OFFSET:
                raise


class Pipeline:
    """Reads payments and writes them to the ledger, exactly once.

    dies: its next transaction stays open.
    """

    dies = False
    _is_dead = False

    def __init__(self, servers: str) -> None:
        usual = {"bootstrap.servers": servers, "log_level": 0}
        consumer = {"group.id": "ledger", "client.id": "ledger-1", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({**usual, **consumer})
        self._consumer.subscribe(["payments"])
        self._producer = Producer({**usual, "transactional.id": "ledger-writer", "transaction.timeout.ms": 86_400_000})
        self._producer.init_transactions(PATIENCE_S)

    def work(self) -> None:
        """Read the available records in one transaction."""
        if self._is_dead:
            return
        self._producer.begin_transaction()
        read = False
        for patience_s in [2.0] + [0.15] * 10_000:
            message = self._consumer.poll(patience_s)
            if message is None:
                break
            read = True
            self._producer.produce("ledger", message.value())
        places = [place for place in self._consumer.position(self._consumer.assignment()) if place.offset >= 0]
        if read:
            self._producer.send_offsets_to_transaction(places, self._consumer.consumer_group_metadata(), PATIENCE_S)
        if self.dies:
            self._producer.flush()
            self._is_dead = True
        elif read:
            self._producer.commit_transaction(PATIENCE_S)
        else:
            self._producer.abort_transaction(PATIENCE_S)


class Shop:
    """The cluster, hour by hour."""

    def __init__(self, broker: Broker, clock: Clock, place: Path) -> None:
        self._broker, self._clock, self._place = broker, clock, place
        self._random = random.Random(11)
        self._admin = AdminClient({"bootstrap.servers": broker.servers})
        self._producer = Producer({"bootstrap.servers": broker.servers, "linger.ms": 5})
        made = self._admin.create_topics([NewTopic(topic, partitions, 1) for topic, partitions in TOPICS.items()])
        for created in made.values():
            created.result()
        self._produced = dict.fromkeys(TOPICS, 0)
        self.services: dict[str, Service] = {}
        self.pipeline: Pipeline | None = None
        self.processes: list[subprocess.Popen[bytes]] = []

    def service(self, group_id: str, topics: Sequence[str], client_ids: Sequence[str], **settings: Any) -> Service:
        kind = settings or {"group.protocol": "classic", "heartbeat.interval.ms": 300}
        service = Service(self._broker.servers, group_id, topics, client_ids, kind)
        others = [each for each in self.services.values() if each.group_id == group_id]
        self.services[client_ids[0]] = service.start(others)
        return service

    def produce(self, topic: str, count: int) -> None:
        for _ in range(count):
            number = self._produced[topic]
            self._produced[topic] += 1
            self._producer.produce(topic, b"%d" % number, partition=number % TOPICS[topic])

    def hour(self, moment: datetime, since_hours: float = 1) -> None:
        """Let the time pass to some minutes after the moment; the shop sells, and every service reads."""
        self._clock.set(moment + timedelta(seconds=self._random.uniform(0, 240)))
        by_day = 0.15 + 0.85 * math.sin(math.pi * (moment.hour - 5) / 18) if 5 < moment.hour < 23 else 0.15
        for topic, records in RECORDS_OF_A_BUSY_HOUR.items():
            self.produce(topic, round(records * by_day * since_hours * self._random.uniform(0.8, 1.2)))
        self._producer.flush()
        for service in self.services.values():
            service.work()
        if self.pipeline is not None:
            self.pipeline.work()
        print(f"{moment:%d %H:%M}", end=" ", flush=True)

    def streams(self) -> None:
        jars = fetched_jars(f"kafka-streams-{VERSION}", "kafka-streams", VERSION)
        source = str(Path(__file__).parents[2] / "integration" / "StreamsApp.java")
        place = self._place / "streams"
        self._java([f"{self._broker.jars}/*:{jars}/*", source, self._broker.servers, "fraud-scores", "payments", str(place)])

    def share_group(self) -> None:
        tool = "org.apache.kafka.tools.VerifiableShareConsumer"
        args = ["--bootstrap-server", self._broker.servers, "--topic", "orders", "--group-id", "email-sender", "--max-messages", "-1"]
        self._java([f"{self._broker.jars}/*", tool, *args, "--offset-reset-strategy", "earliest"])

    def connect(self) -> None:
        """Run a worker with a sink that archives orders into a file."""
        extra = f'<dependency org="org.apache.kafka" name="connect-runtime" rev="{VERSION}"/>'
        jars = fetched_jars(f"connect-{VERSION}", "connect-file", VERSION, extra)
        port = free_ports(1)[0]
        converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
        settings = {
            "bootstrap.servers": self._broker.servers,
            "group.id": "connect-cluster",
            "listeners": f"http://127.0.0.1:{port}",
            "key.converter": converter,
            "value.converter": converter,
            "offset.flush.interval.ms": 1000,
            "plugin.discovery": "only_scan",
            **{f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")},
            **{f"{name}.storage.replication.factor": 1 for name in ("config", "offset", "status")},
            **{f"{name}.storage.partitions": 1 for name in ("offset", "status")},
        }
        properties = self._place / "connect.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._java([f"{jars}/*", "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)])
        sink = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "topics": "orders", "tasks.max": "1"}
        sink |= {"file": str(self._place / "orders.archive"), "value.converter": "org.apache.kafka.connect.storage.StringConverter"}
        body = json.dumps({"name": "orders-archive", "config": sink}).encode()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/connectors", body, {"Content-Type": "application/json"})
            try:
                urllib.request.urlopen(request, timeout=10).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "Connect does not answer"
                time.sleep(1)

    def _java(self, args: Sequence[str]) -> None:
        with (self._place / f"{len(list(self._place.glob('*.out')))}.out").open("w") as out:
            command = [java(), *JAVA_OPTIONS, "-cp", *args]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT))

    def copy(self, to: Path, moment: datetime) -> None:
        """Copy the internal topics and checkpoints just before the moment, with the broker's times."""
        self._clock.set(moment - timedelta(seconds=SECONDS_OF_A_COPY))
        time.sleep(3)
        for pattern in KEPT:
            for source in sorted(self._broker.log_dir.glob(pattern)):
                ignored = shutil.ignore_patterns("*.index", "*.timeindex", "*.checkpoint.part")
                if source.is_dir():
                    shutil.copytree(source, to / source.name, ignore=ignored)
                else:
                    to.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, to / source.name)
        for path in to.rglob("*"):
            shifted = path.stat().st_mtime + self._clock.ahead_ms / 1000
            os.utime(path, (shifted, shifted))


def record(broker: Broker, clock: Clock, place: Path) -> None:
    """Play the twelve days. A copy of each night is left in ``place``."""
    shop = Shop(broker, clock, place)
    modern = {"group.protocol": "consumer"}
    sticky = {"group.protocol": "classic", "heartbeat.interval.ms": 300, "partition.assignment.strategy": "cooperative-sticky"}
    try:
        shop.streams()
        shop.share_group()
        shop.connect()
        shop.service("checkout", ["orders"], ["checkout-1", "checkout-2"], **sticky)
        shop.service("payment-service", ["payments"], ["payment-service-1"], **modern)
        shipping = shop.service("shipping", ["orders", "shipments"], ["shipping-1", "shipping-2"], **modern)
        search = shop.service("search-indexer", ["product-updates"], ["search-indexer-1"])
        shop.service("backend", ["product-updates"], ["pricing-1"])
        mailer = shop.service("newsletter-mailer", ["newsletter"], ["newsletter-mailer-1"])
        pipeline = shop.pipeline = Pipeline(broker.servers)
        for day in range(9, 17):
            for hour in (8, 14, 20):
                if (day, hour) == (11, 8):
                    shop.produce("invoices", 400)
                    shop.hour(at(11, 5), 0)
                    invoices = shop.service("invoice-run", ["invoices"], ["invoice-run-nov-11"])
                    invoices.work()
                    invoices.stop()
                    del shop.services["invoice-run-nov-11"]
                shop.hour(at(day, hour), 3)
            if day == 15:
                mailer.stop()
                del shop.services["newsletter-mailer-1"]
        for day, hours in ((17, range(7, 24)), (18, range(24)), (19, range(24)), (20, range(3))):
            for hour in hours:
                moment = at(day, hour)
                if moment in NIGHT_OF:
                    shop.copy(place / NIGHT_OF[moment], moment)
                if (day, hour) == (18, 10):  # a rolling deployment
                    shop.services.pop("checkout-1").stop()
                    shop.service("checkout", ["orders"], ["checkout-1", "checkout-2"], **sticky)
                if (day, hour) == (19, 12):
                    shop.service("backend", ["clicks"], ["recommendations-1"])
                if (day, hour) == (19, 9):
                    shop.services.pop("invoice-run-nov-19").stop()
                if (day, hour) == (19, 16):
                    search.most = 5
                if (day, hour) == (19, 19):
                    shipping.poison = "orders", 2
                shop.hour(moment)
                if (day, hour) == (19, 5):
                    clock.set(at(19, 5, 10))
                    again = shop.service("invoice-run", ["invoices"], ["invoice-run-nov-19"])
                    again.most = 150
                    again.work()
                if (day, hour) == (19, 21):
                    clock.set(at(19, 21, 30))
                    shop.services.pop("search-indexer-1").stop()
                    reset = ("--reset-offsets", "--group", "search-indexer", "--topic", "product-updates", "--to-latest", "--execute")
                    print(broker.consumer_groups(*reset))
                    search = shop.service("search-indexer", ["product-updates"], ["search-indexer-1"])
                if (day, hour) >= (19, 21):
                    for minute in (20, 40):
                        moment = at(day, hour, minute)
                        if (day, hour, minute) != (19, 21, 20):
                            shop.hour(moment, 0.33)
                        if (day, hour, minute) == (20, 0, 20):
                            pipeline.dies = True
        shop.copy(place / "night-3", at(20, 3))
    finally:
        for process in shop.processes:
            process.kill()
            process.wait()


def pack(place: Path) -> None:
    """Write the archive of the three nights."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:xz", preset=9, format=tarfile.GNU_FORMAT) as archive:
        for night in sorted(place.glob("night-*")):
            for path in sorted(night.rglob("*")):
                if path.is_file():
                    entry = archive.gettarinfo(path, str(path.relative_to(place)))
                    entry.uid = entry.gid = 0
                    entry.uname = entry.gname = ""
                    with path.open("rb") as file:
                        archive.addfile(entry, file)
    ARCHIVE.write_bytes(held.getvalue())
    print(f"\n{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clock = Clock(place)
        clock.set(at(9, 6))
        with clock.preloaded():
            broker = stack.enter_context(running_broker(place, BROKER))
        record(broker, clock, place)
        pack(place)
