"""The answers of a running cluster, over connections of kafka-python. Import this module only to ask a cluster."""

import time
from base64 import urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, Final, TypeVar

import kafka.errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest, OffsetSpec
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from groupcoord_spark.coordinator.groups.classic import decoded_or_none
from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.moments import now_ms
from groupcoord_spark.protocol.consumer_protocol import decode_assignment, decode_subscription
from groupcoord_spark.verification.answers import Answers, Row
from groupcoord_spark.verification.comparison import Place, StateOfRun

TIMEOUT_SECONDS: Final = 30.0
MAX_OPEN_REQUESTS: Final = 200
"""The most requests that are sent before the first answer is awaited."""
_GROUPS_OF_REQUEST: Final = 100
"""The most groups that one request describes."""
_MAX_RESPONSE_BYTES: Final = (1 << 31) - 1

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})

_CONSUMER: Final = "consumer"
_IS_GONE: Final = frozenset({kafka_errors.GroupIdNotFoundError.errno, kafka_errors.UnknownTopicOrPartitionError.errno})

T = TypeVar("T")

_MESSAGES: Final = {
    name: type(ApiMessage)(name, (ApiMessage,), {}, load_json="groupcoord_spark.verification.messages")
    for kind in ("Consumer", "Share", "Streams")
    for name in (f"{kind}GroupDescribeRequest", f"{kind}GroupDescribeResponse")
}
"""Messages that kafka-python lacks, from definitions in the same form as its own."""

_REQUEST_OF_TYPE: Final[Mapping[str, Any]] = {
    "classic": lambda group_ids: DescribeGroupsRequest(groups=group_ids),
    _CONSUMER: lambda group_ids: _MESSAGES["ConsumerGroupDescribeRequest"](group_ids=group_ids),
    "share": lambda group_ids: _MESSAGES["ShareGroupDescribeRequest"](group_ids=group_ids),
    "streams": lambda group_ids: _MESSAGES["StreamsGroupDescribeRequest"](group_ids=group_ids),
}

_Listed = Mapping[str, tuple[int, str]]
"""Group id -> (node id of the coordinator, type of the group)."""


class _MovedError(Exception):
    """Raised when a coordinator moves to another broker or is still loading its groups."""


class RunningCluster:
    """A running cluster. Its methods raise GroupcoordError, one sentence, where a broker does not answer, or not completely."""

    def __init__(self, uri: str, servers: str, settings: Mapping[str, Any]) -> None:
        """Connect to a broker.

        Args:
            uri: the address as the user wrote it, for messages.
            servers: HOST:PORT[,HOST:PORT...].
            settings: of the connections, with the names of kafka-python.

        Raises:
            GroupcoordError: no broker answers.
        """
        self._uri = uri
        self._not_described: dict[str, str] = {}
        config = {
            "client_id": "groupcoord-verify",
            "max_in_flight_requests_per_connection": MAX_OPEN_REQUESTS + 1,
            "receive_message_max_bytes": _MAX_RESPONSE_BYTES,
            **settings,
            "bootstrap_servers": servers.split(","),
        }
        self._net = NetworkSelector(**config)
        self._manager = KafkaConnectionManager(self._net, **config)
        self._metadata = self._connect()
        self.cluster_id: str | None = self._metadata.cluster_id
        """Kafka's cluster id; None if the brokers do not report it."""
        self.partitions: Mapping[str, int] = {topic.name: len(topic.partitions) for topic in self._metadata.topics if not topic.error_code}
        """Topic -> number of its partitions, of the topics that the client may see."""

    def _connect(self) -> Any:
        """Connect to the first broker that answers, and return the cluster's metadata."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for node in cycle(self._manager.cluster.bootstrap_brokers()):
            self._manager.reset_backoff(node.node_id)
            try:
                metadata = self._manager.run(self._first_answer, node.node_id)
                self._manager.cluster.update_metadata(metadata)
                return metadata
            # Mechanisms raise OSError, RuntimeError and ValueError, for example where a package is missing or a token server is down.
            except (kafka_errors.KafkaError, OSError, RuntimeError, ValueError) as e:
                is_refused = isinstance(e, kafka_errors.SaslAuthenticationFailedError | kafka_errors.UnsupportedSaslMechanismError)
                if is_refused or "[SSL" in str(e) or not isinstance(e, kafka_errors.KafkaError) or time.monotonic() > deadline:
                    raise GroupcoordError(
                        f"{self._uri}: no broker answers: {_error_text(e)}. Check the address, and whether the cluster wants to"
                        " know who asks (--command-config)."
                    ) from None
                time.sleep(0.2)
        raise AssertionError("an address has at least one broker")

    async def _first_answer(self, node_id: str) -> Any:
        connection = self._manager.get_connection(node_id, timeout_ms=TIMEOUT_SECONDS * 1000, refresh_metadata_on_err=False)
        await connection
        return await connection.send_request(MetadataRequest(topics=MetadataRequest.ALL_TOPICS, min_version=1))

    def close(self) -> None:
        """Close the connections."""
        self._manager.close()
        self._net.close()

    def answers(self, known: StateOfRun | None = None) -> Answers:
        """Query the groups of the cluster.

        Args:
            known: The state that the answers are for. A broker neither lists a group that the client may not describe nor a partition whose
                only offset is in an open transaction, so the groups, topics and open transactions of this state are asked about as well.
        """
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            self._not_described = {}
            try:
                return self._answers(known)
            except _MovedError as e:
                if time.monotonic() > deadline:
                    sentence = f"{self._uri} did not tell all of its groups: {e}. Ask again once all of its brokers are up."
                    raise GroupcoordError(sentence) from None
                time.sleep(0.5)

    def _answers(self, known: StateOfRun | None) -> Answers:
        began = now_ms()
        listed = self._listed()
        groups = self._described(listed)
        # Share groups commit no offsets.
        with_offsets = {group_id: node for group_id, (node, group_type) in listed.items() if group_type != "share"}
        offsets = self._offsets(with_offsets)
        topics_of_group = {row["group"]: _assigned(row) for row in groups}
        for row in offsets:
            topics_of_group.setdefault(row["group"], set()).add(row["topic"])
        open_offsets = known.pending or () if known is not None else ()
        for group_id, topic, _ in open_offsets:
            if group_id in with_offsets:
                topics_of_group.setdefault(group_id, set()).add(topic)
        places = {
            *((row["group"], row["topic"], row["partition"]) for row in offsets),
            *(place for place in open_offsets if place[0] in with_offsets),
            *((group_id, t, n) for group_id, topics in topics_of_group.items() for t in topics for n in range(self.partitions.get(t, 0))),
        }
        pending = self._pending(places, with_offsets)
        if known is not None:
            self._note_hidden_groups(sorted(known.groups.keys() - listed.keys()))
        return Answers(
            source=self._uri,
            asked_at_ms=(began, now_ms()),
            groups=[row for row in groups if row["group"] not in self._not_described],
            offsets=offsets,
            pending=pending,
            pending_topics={group_id: sorted(topics) for group_id, topics in topics_of_group.items() if topics},
            topic_ids={topic.name: text for topic in self._metadata.topics if (text := _uuid_text(topic.topic_id)) is not None},
            not_described=dict(sorted(self._not_described.items())),
            hidden_topics=[] if known is None else self._hidden_topics(known),
        )

    def log_extents(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) -> start and end offset of the log, of every topic but Kafka's internal ones.

        A partition without an answering broker is left out.
        """
        led: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic in self._metadata.topics:
            for partition in topic.partitions:
                if topic.name not in INTERNAL_TOPICS and partition.leader_id >= 0:
                    led[partition.leader_id][topic.name].append(partition.partition_index)
        starts: dict[tuple[str, int], int] = {}
        ends: dict[tuple[str, int], int] = {}
        for offsets, moment in ((starts, OffsetSpec.EARLIEST), (ends, OffsetSpec.LATEST)):
            asked = [(node_id, _list_offsets(partitions, moment.value)) for node_id, partitions in led.items()]
            for response in self._ask("the ends of its logs", asked):
                for topic in response.topics:
                    for partition in topic.partitions:
                        if not partition.error_code:
                            offsets[topic.name, partition.partition_index] = partition.offset
        return {place: (starts[place], end) for place, end in sorted(ends.items()) if place in starts}

    def _ask(self, subject: str, requests: Iterable[tuple[int, Any]]) -> list[Any]:
        """Send each request to its node and return the responses in the same order."""

        async def answer(node_id: int, request: Any, deadline: float) -> Any:
            while True:
                try:
                    return await self._manager.send(request, node_id=node_id)
                except kafka_errors.NodeNotReadyError:  # the broker throttles this client, or the connection was just lost
                    if time.monotonic() > deadline:
                        raise
                    await self._net.sleep(0.1)

        async def answers(part: list[tuple[int, Any]]) -> list[Any]:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            futures = [self._manager.call_soon(answer, node_id, request, deadline) for node_id, request in part]
            return [await future for future in futures]

        try:
            return [response for part in _in_parts(list(requests), MAX_OPEN_REQUESTS) for response in self._manager.run(answers, part)]
        except kafka_errors.KafkaError as e:
            raise GroupcoordError(f"{self._uri} did not tell {subject}: {_error_text(e)}.") from e

    def _listed(self) -> _Listed:
        """Return every group that a broker lists. Only the coordinator of a group lists it."""
        nodes = [broker.node_id for broker in self._manager.cluster.brokers()]
        groups: dict[str, tuple[int, str]] = {}
        for node_id, response in zip(nodes, self._ask("its groups", ((node_id, ListGroupsRequest()) for node_id in nodes)), strict=True):
            self._is_allowed(None, "its groups", response.error_code)
            # Brokers before 3.8 do not report the type.
            groups.update((group.group_id, (node_id, group.group_type.lower() or "classic")) for group in response.groups)
        return groups

    def _described(self, listed: _Listed) -> list[Row]:
        """Return the description of every group. Groups that are not described to this client go to ``not_described``."""
        of_request: dict[tuple[str, int], list[str]] = defaultdict(list)
        for group_id, (node_id, group_type) in sorted(listed.items()):
            if group_type in _REQUEST_OF_TYPE:
                of_request[group_type, node_id].append(group_id)
            else:
                self._not_described[group_id] = f"The client does not know groups of the type {group_type}"
        parts = [(key, part) for key, group_ids in of_request.items() for part in _in_parts(group_ids, _GROUPS_OF_REQUEST)]
        responses = self._ask("its groups", [(node_id, _REQUEST_OF_TYPE[group_type](part)) for (group_type, node_id), part in parts])
        rows: list[Row] = []
        for ((group_type, _), _), response in zip(parts, responses, strict=True):
            row_of = _classic_row if group_type == "classic" else _streams_row if group_type == "streams" else _modern_row
            for group in response.groups:
                if self._is_allowed(group.group_id, f"group {group.group_id!r}", group.error_code) and group.group_state != "Dead":
                    rows.append({"group": group.group_id, "type": group_type, "state": group.group_state, **row_of(group_type, group)})
        return sorted(rows, key=lambda row: str(row["group"]))

    def _offsets(self, nodes: Mapping[str, int]) -> list[Row]:
        """Return rows of the committed offsets."""
        rows: list[Row] = []
        for place, partition in self._fetched({group_id: (node_id, None) for group_id, node_id in nodes.items()}):
            if self._is_allowed(None, f"the offset of {place}", partition.error_code):
                offset = {"offset": partition.committed_offset, "leader_epoch": partition.committed_leader_epoch}
                rows.append({**place, **offset, "metadata": partition.metadata or ""})
        return rows

    def _pending(self, places: Iterable[Place], nodes: Mapping[str, int]) -> list[Row] | None:
        """Return rows for the places with an offset in an open transaction, or None if the brokers are too old for the question."""
        if self._version_of(OffsetFetchRequest) < 7:
            return None
        partitions_of_group: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for group_id, topic, partition in sorted(places):
            partitions_of_group[group_id][topic].append(partition)
        queries = {group_id: (nodes[group_id], partitions) for group_id, partitions in partitions_of_group.items()}
        unstable = kafka_errors.UnstableOffsetCommitError.errno
        return [place for place, partition in self._fetched(queries, require_stable=True) if partition.error_code == unstable]

    def _fetched(
        self, queries: Mapping[str, tuple[int, Mapping[str, Sequence[int]] | None]], *, require_stable: bool = False
    ) -> Iterator[tuple[Row, Any]]:
        """Yield the place and the answer for each partition. No partitions: all that have an offset."""
        has_groups = self._version_of(OffsetFetchRequest) >= 8
        asked = [(node_id, _offset_fetch(group_id, topics, require_stable, has_groups)) for group_id, (node_id, topics) in queries.items()]
        for group_id, response in zip(queries, self._ask("committed offsets", asked), strict=True):
            group = response.groups[0] if has_groups else response
            if self._is_allowed(group_id, f"offsets of group {group_id!r}", group.error_code):
                for topic in group.topics:
                    for partition in topic.partitions:
                        yield {"group": group_id, "topic": topic.name, "partition": partition.partition_index}, partition

    def _version_of(self, request: Any) -> int:
        return int(self._manager.broker_version_data.api_version(request))

    def _note_hidden_groups(self, group_ids: Sequence[str]) -> None:
        """Add the groups that this client may not describe to ``not_described``."""
        node_id = self._manager.cluster.brokers()[0].node_id
        if self._version_of(FindCoordinatorRequest) >= 4:
            parts = _in_parts(group_ids, _GROUPS_OF_REQUEST)
            responses = self._ask("its groups", ((node_id, FindCoordinatorRequest(coordinator_keys=part, min_version=4)) for part in parts))
            found = [(row.key, row.error_code) for response in responses for row in response.coordinators]
        else:
            responses = self._ask("its groups", ((node_id, FindCoordinatorRequest(key=group_id)) for group_id in group_ids))
            found = [(group_id, response.error_code) for group_id, response in zip(group_ids, responses, strict=True)]
        for group_id, error_code in found:
            self._is_allowed(group_id, f"the coordinator of group {group_id!r}", error_code)

    def _hidden_topics(self, known: StateOfRun) -> list[str]:
        """Return the topics with an offset that this client may not describe. Brokers leave out their offsets."""
        unseen = sorted({topic for _, topic, _ in known.offsets.keys() | (known.pending or frozenset())} - self.partitions.keys())
        if not unseen:
            return []
        topics = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in unseen]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False, min_version=4)
        [response] = self._ask("its topics", [(self._manager.cluster.brokers()[0].node_id, request)])
        refused = kafka_errors.TopicAuthorizationFailedError.errno
        return [topic.name for topic in response.topics if topic.error_code == refused]

    def _is_allowed(self, group_id: str | None, subject: str, error_code: int) -> bool:
        """Return whether there is an answer: not if the subject is gone by now or the client is not authorized for the group.

        Raises:
            _MovedError: the coordinator is not there now.
            GroupcoordError: the broker answered with another error.
        """
        if not error_code:
            return True
        if error_code in _IS_GONE:
            return False
        error = kafka_errors.for_code(error_code)
        if group_id is not None and issubclass(error, kafka_errors.AuthorizationError):
            self._not_described[group_id] = error.message
            return False
        if issubclass(error, kafka_errors.RetriableError):
            raise _MovedError(error.message)
        raise GroupcoordError(f"{self._uri} did not tell {subject}: {error.message}.")


def _list_offsets(partitions: Mapping[str, Sequence[int]], moment: int) -> Any:
    topic, partition = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    topics = [
        topic(name=name, partitions=[partition(partition_index=n, timestamp=moment) for n in numbers])
        for name, numbers in partitions.items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, min_version=1, max_version=9)


def _offset_fetch(group_id: str, topics: Mapping[str, Sequence[int]] | None, require_stable: bool, has_groups: bool) -> Any:
    """Return a request for the offsets of one group. Version 10 names topics by id, and offsets of deleted topics have none."""
    entry = OffsetFetchRequest.OffsetFetchRequestGroup if has_groups else OffsetFetchRequest
    topic = entry.OffsetFetchRequestTopics if has_groups else entry.OffsetFetchRequestTopic
    listed = None if topics is None else [topic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    if has_groups:
        group = entry(group_id=group_id, topics=listed)
        return OffsetFetchRequest(groups=[group], require_stable=require_stable, min_version=8, max_version=9)
    return OffsetFetchRequest(group_id=group_id, topics=listed, require_stable=require_stable, min_version=2)


def _classic_row(_: str, group: Any) -> Row:
    # A broker does not describe the assignor and the assignments of a classic group during a rebalance.
    is_stable, is_consumer = group.group_state == "Stable", group.protocol_type == _CONSUMER
    return {
        "protocol_type": group.protocol_type,
        "protocol": group.protocol_data if is_stable else None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                **(_of_protocol(member, is_stable) if is_consumer else {}),
            }
            for member in group.members
        ],
    }


def _of_protocol(member: Any, is_stable: bool) -> Row:
    """Return the fields of a classic consumer's subscription and assignment, as far as the broker sent their bytes."""
    metadata, assigned = bytes(member.member_metadata or b""), bytes(member.member_assignment or b"")
    subscription = decoded_or_none(decode_subscription, metadata) if metadata else None
    assignment = decoded_or_none(decode_assignment, assigned) if assigned else None
    partitions = {} if assignment is None else assignment.partitions
    return {
        "assignment": sorted([topic, sorted(numbers)] for topic, numbers in partitions.items()) if is_stable else None,
        **({} if subscription is None else {"subscribed_topics": sorted(subscription.topics), "rack_id": subscription.rack_id}),
    }


def _modern_row(group_type: str, group: Any) -> Row:
    """Return the fields of a consumer group or a share group."""
    has_target = group_type == _CONSUMER
    return {
        **_of_epochs(group_type, group),
        "protocol": group.assignor_name,
        "members": [
            {
                **_of_modern_member(member),
                "subscribed_topics": sorted(member.subscribed_topic_names),
                "assignment": _partition_lists(member.assignment),
                **({"subscribed_regex": member.subscribed_topic_regex, "instance_id": member.instance_id} if has_target else {}),
                "target_assignment": _partition_lists(member.target_assignment) if has_target else None,
            }
            for member in group.members
        ],
    }


def _streams_row(group_type: str, group: Any) -> Row:
    """Return the fields of a streams group, whose members have tasks of subtopologies."""
    return {
        **_of_epochs(group_type, group),
        "protocol": None,
        "members": [
            {
                **_of_modern_member(member),
                "instance_id": member.instance_id,
                "assignment": _task_lists(member.assignment.active_tasks),
                "standby_tasks": _task_lists(member.assignment.standby_tasks),
                "warmup_tasks": _task_lists(member.assignment.warmup_tasks),
                "target_assignment": _task_lists(member.target_assignment.active_tasks),
            }
            for member in group.members
        ],
    }


def _of_epochs(group_type: str, group: Any) -> Row:
    return {"protocol_type": group_type, "generation": group.group_epoch, "assignment_epoch": group.assignment_epoch}


def _of_modern_member(member: Any) -> Row:
    names = {"epoch": member.member_epoch, "client_id": member.client_id, "client_host": member.client_host, "rack_id": member.rack_id}
    return {"member_id": member.member_id, **names}


def _partition_lists(assignment: Any) -> list[list[Any]]:
    return sorted([topic.topic_name, sorted(topic.partitions)] for topic in assignment.topic_partitions)


def _task_lists(tasks: Iterable[Any]) -> list[list[Any]]:
    return sorted([task.subtopology_id, sorted(task.partitions)] for task in tasks)


def _uuid_text(uuid: Any) -> str | None:
    """Return a topic id in base64url, as Kafka writes it, or None for the zero id of brokers without topic ids."""
    return urlsafe_b64encode(uuid.bytes).decode().rstrip("=") if uuid and uuid.int else None


def _assigned(group: Row) -> set[str]:
    """Return the topics of the members' partitions. Tasks of a streams group have subtopologies in place of topics."""
    return {topic for member in group["members"] for topic, _ in member.get("assignment") or () if group["type"] != "streams"}


def _in_parts(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for at in range(0, len(items), size):
        yield list(items[at : at + size])


def _error_text(error: BaseException) -> str:
    """Return the client's error text in one line without a full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
