"""The client against a broker in a thread, which authenticates, hides groups and topics, and answers with kafka-python's own messages.

A real broker is asked in tests/integration.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.verification import compare, connected
from groupcoord_spark.verification.comparison import StateOfRun

pytest.importorskip("kafka.net", reason="the package kafka-python 3 is not installed")

GROUPS = 1_000
LONGEST_METADATA = 300
TOPIC_ID = UUID(int=(-3 << 64) % (1 << 128) | (-9 % (1 << 64)))
NO_GROUP_ACCESS, NO_TOPIC_ACCESS, UNSTABLE, LOADING = 30, 29, 88, 14
USER, PASSWORD = "reader", "reader-secret"
PROPERTIES = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}";',
}
ALPHABET = "aß€\U0001f642 \x01\"'\\\tz\0"


def metadata_of(n: int) -> str:
    return "".join(ALPHABET[(n + at) % len(ALPHABET)] for at in range(n % (LONGEST_METADATA + 1)))


class OneBroker(socketserver.ThreadingTCPServer):
    """Knows the groups g-0, g-1 and so on with one offset each, and hides the groups ``secret`` and ``listed`` and the topic ``hidden``."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.loads_for = 1
        """How often the broker says that it is still loading its groups."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Connection(socketserver.BaseRequestHandler):
    server: OneBroker

    def handle(self) -> None:
        from kafka.protocol import admin, consumer, metadata, sasl

        rooms = (admin, consumer, metadata, sasl)
        names = ("ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata", "ListGroups", "DescribeGroups", "OffsetFetch")
        requests = {}
        for name in (*names, "FindCoordinator"):
            request, response = (
                next(getattr(room, name + end) for room in rooms if hasattr(room, name + end)) for end in ("Request", "Response")
            )
            requests[int(request.API_KEY)] = name, request, response
        while len(size := self.request.recv(4, socket.MSG_WAITALL)) == 4:
            frame = self.request.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
            api_key, version = struct.unpack(">hh", frame[:4])
            name, request_type, response_type = requests[api_key]
            asked = request_type.decode(frame, version=version, header=True)
            answer = response_type(version=version, **getattr(self, name)(asked, response_type, requests))
            answer.with_header(correlation_id=asked.header.correlation_id)
            self.request.sendall(answer.encode(framed=True, header=True))

    def ApiVersions(self, _: Any, response: Any, requests: Any) -> dict[str, Any]:  # noqa: N802
        keys = [response.ApiVersion(api_key=key, min_version=0, max_version=one.max_version) for key, (_, one, _) in requests.items()]
        return {"error_code": 0, "api_keys": keys, "throttle_time_ms": 0}

    def SaslHandshake(self, *_: Any) -> dict[str, Any]:  # noqa: N802
        return {"error_code": 0, "mechanisms": ["PLAIN"]}

    def SaslAuthenticate(self, asked: Any, *_: Any) -> dict[str, Any]:  # noqa: N802
        is_right = bytes(asked.auth_bytes).split(b"\0")[-2:] == [USER.encode(), PASSWORD.encode()]
        message = None if is_right else "Authentication failed: Invalid username or password"
        return {"error_code": 0 if is_right else 58, "error_message": message, "auth_bytes": b"", "session_lifetime_ms": 0}

    def Metadata(self, asked: Any, response: Any, _: Any) -> dict[str, Any]:  # noqa: N802
        topic, host = response.MetadataResponseTopic, self.server.server_address
        if asked.topics is None:
            partition = topic.MetadataResponsePartition(error_code=0, partition_index=0, leader_id=1)
            topics = [topic(error_code=0, name="orders", topic_id=TOPIC_ID, partitions=[partition])]
        else:
            topics = [
                topic(error_code=NO_TOPIC_ACCESS if one.name == "hidden" else 3, name=one.name, partitions=[]) for one in asked.topics
            ]
        brokers = [response.MetadataResponseBroker(node_id=1, host=host[0], port=host[1], rack=None)]
        return {"brokers": brokers, "cluster_id": "an-id", "controller_id": 1, "topics": topics}

    def ListGroups(self, _: Any, response: Any, __: Any) -> dict[str, Any]:  # noqa: N802
        self.server.loads_for -= 1
        group_ids = [*(f"g-{n}" for n in range(GROUPS)), "listed"]
        groups = [response.ListedGroup(group_id=one, protocol_type="", group_state="Empty", group_type="Classic") for one in group_ids]
        return {"error_code": LOADING if self.server.loads_for >= 0 else 0, "groups": groups}

    def DescribeGroups(self, asked: Any, response: Any, _: Any) -> dict[str, Any]:  # noqa: N802
        facts = {"group_state": "Empty", "protocol_type": "", "protocol_data": "", "members": []}
        errors = {"listed": NO_GROUP_ACCESS}
        return {"groups": [response.DescribedGroup(error_code=errors.get(one, 0), group_id=one, **facts) for one in asked.groups]}

    def OffsetFetch(self, asked: Any, response: Any, _: Any) -> dict[str, Any]:  # noqa: N802
        group, topic = response.OffsetFetchResponseGroup, response.OffsetFetchResponseGroup.OffsetFetchResponseTopics
        (one,) = asked.groups
        if one.group_id == "listed":
            return {"groups": [group(group_id=one.group_id, topics=[], error_code=NO_GROUP_ACCESS)]}
        n = int(one.group_id.removeprefix("g-"))
        is_open = asked.require_stable and n == 7
        answer = {"committed_offset": n, "committed_leader_epoch": -1, "metadata": metadata_of(n), "error_code": UNSTABLE if is_open else 0}
        partition = topic.OffsetFetchResponsePartitions(partition_index=0, **answer)
        return {"groups": [group(group_id=one.group_id, topics=[topic(name="orders", partitions=[partition])], error_code=0)]}

    def FindCoordinator(self, asked: Any, response: Any, _: Any) -> dict[str, Any]:  # noqa: N802
        codes = [NO_GROUP_ACCESS if key == "secret" else 0 for key in asked.coordinator_keys]
        found = [
            response.Coordinator(key=key, node_id=1, host="", port=0, error_code=code)
            for key, code in zip(asked.coordinator_keys, codes, strict=True)
        ]
        return {"coordinators": found}


@pytest.fixture
def broker() -> Iterator[OneBroker]:
    with OneBroker() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def state() -> StateOfRun:
    """Return what a run over the log of the broker has; the group ``deleted`` is not there any more."""
    names = [*(f"g-{n}" for n in range(GROUPS)), "secret", "listed", "deleted"]
    group = {"group_type": "classic", "state": "Empty", "protocol_type": None, "protocol": None}
    empty = dict.fromkeys(("generation", "assignment_epoch", "leader_id"))
    offsets = {
        (f"g-{n}", "orders", 0): {"committed_offset": n, "leader_epoch": None, "metadata": metadata_of(n) or None} for n in range(GROUPS)
    }
    offsets["g-0", "hidden", 0] = {"committed_offset": 5, "leader_epoch": None, "metadata": None}
    return StateOfRun({name: {**group, **empty} for name in names}, {}, {}, offsets, frozenset({("g-7", "orders", 0)}))


def test_every_metadata_is_read_whole_and_what_the_client_may_not_see_is_named(broker: OneBroker) -> None:
    with connected(f"kafka://{broker.address}", PROPERTIES, "client.properties") as cluster:
        assert (cluster.cluster_id, dict(cluster.partitions)) == ("an-id", {"orders": 1})
        answers = cluster.answers(state())
    assert answers.topic_ids == {"orders": "__________3_________9w"}
    found = compare(state(), answers)
    assert [(each.group, each.what) for each in found.differences] == [("deleted", "group")]
    assert (found.unasked, found.unasked_topics) == (["listed", "secret"], ["hidden"])
    assert (found.groups, found.offsets, found.pending) == (GROUPS + 1, GROUPS, 1)


def test_a_wrong_password_is_one_sentence(broker: OneBroker) -> None:
    wrong = {**PROPERTIES, "sasl.jaas.config": PROPERTIES["sasl.jaas.config"].replace(PASSWORD, "wrong-secret")}
    with (
        pytest.raises(GroupcoordError, match=r"no broker answers: .*Authentication failed") as raised,
        connected(f"kafka://{broker.address}", wrong, "client.properties"),
    ):
        pass
    assert "wrong-secret" not in str(raised.value)


def test_a_topic_without_an_id_has_none() -> None:
    from groupcoord_spark.verification.broker import _uuid_text

    assert _uuid_text(UUID(int=0)) is None
