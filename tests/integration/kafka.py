"""A real Kafka broker for the tests: its jars, one process of it, its log directory, and Kafka's own command line tools.

The jars come from Maven Central by the Ivy that pyspark brings along, once, into the user's cache directory. Where they cannot be had the
tests are skipped with the reason. KAFKA_LIBS names a directory of jars (the ``libs`` of a Kafka release) to take instead.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

VERSION = "4.3.1"

OFFSETS_PARTITIONS = 5

MODULES = """<ivy-module version="2.0">
  <info organisation="groupcoord" module="broker"/>
  <configurations defaultconfmapping="default->default"><conf name="default"/></configurations>
  <dependencies>
    {dependencies}
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36"/>
  </dependencies>
</ivy-module>
"""

PASSWORDS = {"reader": "reader-secret", "lister": "lister-secret"}
"""User -> password, on the listener SASL_PLAINTEXT."""

SETTINGS = {
    "node.id": 1,
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
    "offsets.retention.check.interval.ms": 60_000,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    + "".join(f' user_{name}="{password}"' for name, password in PASSWORDS.items())
    + ";",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
}

FETCH_SECONDS = 300
START_SECONDS = 90

JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def java() -> str:
    """Return the java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        pytest.skip("a broker needs Java 17 or newer, and there is none")
    return found


def broker_jars(version: str = VERSION) -> Path:
    """Return the directory of Kafka's jars, fetched if need be; the test is skipped where that fails."""
    given = os.environ.get("KAFKA_LIBS")
    if given:
        return Path(given)
    # kafka-tools alone needs Connect and a web server, and none of what is used here does.
    tools = f'<dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" transitive="false"/>'
    return fetched_jars(f"kafka-{version}", "kafka_2.13", version, tools)


def fetched_jars(directory: str, module: str, version: str, more_dependencies: str = "") -> Path:
    """Return a directory with the jars of a module of Kafka and of all it needs; skip the test where they cannot be fetched."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "groupcoord-spark"
    jars = cache / directory
    if jars.is_dir():
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        fetched = Path(work) / "jars"
        modules = Path(work) / "ivy.xml"
        dependency = f'<dependency org="org.apache.kafka" name="{module}" rev="{version}"/>'
        modules.write_text(MODULES.format(dependencies=dependency + more_dependencies))
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        pattern = f"{fetched}/[organisation]_[artifact]-[revision](-[classifier]).[ext]"
        command = [java(), "-jar", str(ivy), "-m2compatible", "-ivy", str(modules), "-cache", str(cache / "ivy"), "-retrieve", pattern]
        try:
            done = subprocess.run([*command, "-types", "jar", "bundle"], capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.skip(f"Kafka's jars did not come from Maven Central within {FETCH_SECONDS} s; KAFKA_LIBS may name a directory of them")
        if done.returncode or not list(fetched.glob(f"*_{module}-{version}.jar")):
            found = re.search(r"Server access error.*|unresolved dependency.*", done.stdout)
            why = found[0].strip(": ") if found else f"Ivy ended with {done.returncode}"
            pytest.skip(f"Kafka's jars cannot be fetched from Maven Central ({why}); KAFKA_LIBS may name a directory of them")
        fetched.rename(jars)
    return jars


@dataclass(frozen=True)
class Broker:
    """A running broker. servers: host and port. log_dir: its log.dirs. sasl_servers: host and port of the listener SASL_PLAINTEXT."""

    servers: str
    log_dir: Path
    jars: Path
    sasl_servers: str

    @property
    def against(self) -> str:
        """As ``--against`` takes it."""
        return f"kafka://{self.servers}"

    def copy_offsets_log(self, to: Path) -> Path:
        """Return the part of the log directory that a nightly needs, copied as docs/how-to/copy-a-dump.md says, while the broker works."""
        to.mkdir(parents=True)
        for name in ("meta.properties", "log-start-offset-checkpoint"):
            if (self.log_dir / name).exists():
                shutil.copy(self.log_dir / name, to / name)
        for partition in sorted(self.log_dir.glob("__consumer_offsets-*")):
            shutil.copytree(partition, to / partition.name, ignore=shutil.ignore_patterns("*.index", "*.timeindex", "*.snapshot"))
        return to

    def run_tool(self, main_class: str, *args: str) -> str:
        """Return what one of Kafka's command line tools prints about this broker; AssertionError with its words where it fails."""
        return run_class(self.jars, main_class, "--bootstrap-server", self.servers, *args)

    def consumer_groups(self, *args: str) -> str:
        """kafka-consumer-groups: ``consumer_groups("--reset-offsets", "--group", "g", "--from-file", "plan.csv", "--execute")``."""
        return self.run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *args)


def run_class(jars: Path, main_class: str, *args: str) -> str:
    """Return the output of one of Kafka's classes."""
    command = [java(), *JAVA_OPTIONS, "-cp", f"{jars}/*", main_class, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running_broker(place: Path, more_settings: Mapping[str, object] | None = None, version: str = VERSION) -> Iterator[Broker]:
    """Yield one process that is broker and controller, on free ports of this machine; it ends with the block."""
    jars = broker_jars(version)
    ports = free_ports(3)
    listeners = [f"PLAINTEXT://127.0.0.1:{ports[0]}", f"SASL_PLAINTEXT://127.0.0.1:{ports[2]}", f"CONTROLLER://127.0.0.1:{ports[1]}"]
    log_dir = place / "log"
    settings = {
        **SETTINGS,
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners[:2]),
        "controller.quorum.voters": f"1@127.0.0.1:{ports[1]}",
        "log.dirs": log_dir,
        **(more_settings or {}),
    }
    properties = place / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    run_class(jars, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", str(properties))
    with (place / "broker.log").open("w") as log:
        command = [java(), *JAVA_OPTIONS, "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        servers = f"127.0.0.1:{ports[0]}"
        await_answer(servers, process, place / "broker.log")
        yield Broker(servers, log_dir, jars, f"127.0.0.1:{ports[2]}")
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def await_answer(servers: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns once the broker answers; AssertionError with its log where it does not."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if admin.list_topics(timeout=1).brokers:
                return
        except KafkaException:
            time.sleep(0.2)
    raise AssertionError(f"the broker did not start:\n{log.read_text()[-4000:]}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
