"""Brokers that authenticate clients and hide groups and topics from them; commits with metadata of every length."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.warehouse import groupcoord
from tests.integration.kafka import PASSWORDS, VERSION, Broker, running_broker
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

pytestmark = pytest.mark.broker

GROUPS = int(os.environ.get("GROUPCOORD_TEST_GROUPS", "80"))
"""How many groups there are; 3,000 were tried too."""
HIDDEN = 3
PARTITIONS = 4
LONGEST_METADATA = 300
SETTINGS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS"}
ALPHABET = "aß€\U0001f642 \x01\"'\\\tz"


def metadata_of(length: int) -> str:
    return "".join(ALPHABET[(length + at) % len(ALPHABET)] for at in range(length))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    kafka = pytest.importorskip("kafka", reason="the package kafka-python is not installed")
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, NewTopic, ResourcePattern, ResourceType
    from kafka.structs import OffsetAndMetadata, TopicPartition

    version = os.environ.get("GROUPCOORD_TEST_KAFKA", VERSION)
    with running_broker(tmp_path_factory.mktemp("guarded"), SETTINGS, version) as broker:
        admin = kafka.KafkaAdminClient(bootstrap_servers=broker.servers)
        admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("orders", "hidden")])

        def allow(user: str, kind: ResourceType, name: str, pattern: ACLResourcePatternType) -> ACL:
            resource = ResourcePattern(kind, name, pattern)
            return ACL(f"User:{user}", "*", ACLOperation.DESCRIBE, ACLPermissionType.ALLOW, resource)

        literal, prefixed = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
        allowed = [allow("lister", ResourceType.CLUSTER, "kafka-cluster", literal)]
        for user in PASSWORDS:
            allowed += [allow(user, ResourceType.TOPIC, "orders", literal), allow(user, ResourceType.GROUP, "seen-", prefixed)]
        admin.create_acls(allowed)

        def commit(group_id: str, places: dict[TopicPartition, OffsetAndMetadata]) -> None:
            for _ in range(300):
                try:
                    if not any(error.errno for error in admin.alter_group_offsets(group_id, places).values()):
                        return
                except kafka.errors.RetriableError:  # the first group creates the offsets topic
                    pass
                time.sleep(0.1)
            raise AssertionError(f"no coordinator took the offsets of {group_id}")

        for n in range(GROUPS):
            places = {
                TopicPartition("orders", p): OffsetAndMetadata(n, metadata_of((n * PARTITIONS + p) % (LONGEST_METADATA + 1)), -1)
                for p in range(PARTITIONS)
            }
            commit(f"seen-{n}", places)
        commit("seen-0", {TopicPartition("hidden", 1): OffsetAndMetadata(5, "a note", -1)})
        for n in range(HIDDEN):
            commit(f"secret-{n}", {TopicPartition("orders", 0): OffsetAndMetadata(n, "", -1)})
        admin.close()
        yield broker


@pytest.fixture(scope="module")
def warehouse(guarded: Broker, local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("night")
    summary = run(local, place / "warehouse", guarded.copy_offsets_log(place / "logs"), cluster="real")
    assert (summary.groups, summary.committed_offsets) == (GROUPS + HIDDEN, GROUPS * PARTITIONS + 1 + HIDDEN)
    return str(place / "warehouse")


def test_metadata_of_every_length_is_equal(guarded: Broker, warehouse: str) -> None:
    stored = {row["metadata"] or "" for row in rows_of(Path(warehouse), "committed_offsets")}
    assert {metadata_of(length) for length in range(LONGEST_METADATA + 1)} <= stored
    done = groupcoord("verify", "--warehouse", warehouse, "--against", guarded.against)
    assert (done.exit_code, done.stdout) == (0, ""), (done.output, done.exc_info)
    assert done.stderr.startswith(f"No difference in {GROUPS + HIDDEN:,} groups"), done.stderr


def config_of(user: str, password: str, place: Path) -> str:
    path = place / "client.properties"
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{password}";'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\nrequest.timeout.ms=20000\n")
    return str(path)


@pytest.mark.parametrize("user", PASSWORDS)
def test_groups_and_topics_that_the_client_may_not_see_are_named(user: str, guarded: Broker, warehouse: str, tmp_path: Path) -> None:
    config = config_of(user, PASSWORDS[user], tmp_path)
    done = groupcoord("verify", "--warehouse", warehouse, "--against", f"kafka://{guarded.sasl_servers}", "--command-config", config)
    assert (done.exit_code, done.stdout) == (0, ""), (done.output, done.exc_info)
    assert done.stderr.startswith(f"No difference in {GROUPS:,} groups, 0 members, {GROUPS * PARTITIONS:,} committed offsets"), done.stderr
    assert f"{HIDDEN} groups could not be asked about: 'secret-0', 'secret-1', 'secret-2'." in done.stderr
    assert "1 topic could not be asked about: 'hidden'." in done.stderr


def test_a_wrong_password_is_one_sentence_without_the_password(guarded: Broker, warehouse: str, tmp_path: Path) -> None:
    config = config_of("reader", "wrong-secret", tmp_path)
    done = groupcoord("verify", "--warehouse", warehouse, "--against", f"kafka://{guarded.sasl_servers}", "--command-config", config)
    assert done.exit_code == 1
    assert "no broker answers" in done.stderr and "Authentication failed" in done.stderr
    assert "wrong-secret" not in done.output
