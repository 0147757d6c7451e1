"""The answers of a running cluster, through the Admin API of confluent-kafka. Import this module only to ask a cluster."""

from __future__ import annotations

import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as client

from groupcoord_spark.coordinator.groups.classic import decoded_or_none
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.moments import now_ms
from groupcoord_spark.properties import without_values
from groupcoord_spark.protocol.consumer_protocol import decode_subscription
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH
from groupcoord_spark.verification.answers import Answers, Row
from groupcoord_spark.verification.comparison import Place

TIMEOUT_SECONDS: Final = 30.0
MAX_OPEN_REQUESTS: Final = 200
"""The most requests that are sent before the first answer is awaited."""

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})

_CONSUMER: Final = "consumer"
_IS_HOPELESS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
"""Errors after which no broker will answer, however long the client tries."""
_IS_GONE: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART})

_STATES: Final = {
    "STABLE": "Stable",
    "EMPTY": "Empty",
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}
"""The client's name of a state -> Kafka's name. The client does not know the states of KIP-848 (Assigning, Reconciling)."""

_NO_OFFSET: Final = -1001

T = TypeVar("T")

_OffsetQuery = tuple[str, list[TopicPartition] | None]
"""(group id, partitions); None: all partitions that have an offset."""


class RunningCluster:
    """A running cluster. Its methods raise GroupcoordError, one sentence, where a broker does not answer, or not completely."""

    def __init__(self, uri: str, servers: str, settings: Mapping[str, str]) -> None:
        """Connects to a broker. settings: of the client, with librdkafka's names. No message shows their values.

        Raises UsageError where the client refuses the settings, GroupcoordError where no broker answers.
        """
        self._uri = uri
        self._errors: list[KafkaError] = []
        self._not_described: dict[str, str] = {}
        # What the client would log of its attempts, a line for each, comes through error_cb.
        defaults: dict[str, Any] = {"client.id": "groupcoord-verify", "error_cb": self._errors.append, "log_level": 0}
        try:
            self._admin = client.AdminClient({**defaults, **settings, "bootstrap.servers": servers})
        except (KafkaException, ValueError, TypeError) as e:
            raise UsageError(f"The Kafka client refuses its settings: {without_values(_error_text(e), settings)}.") from None
        metadata = self._connected()
        self.cluster_id: str | None = metadata.cluster_id
        """Kafka's id of the cluster; None: the brokers do not tell."""
        self.partitions: Mapping[str, int] = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        """Topic -> number of its partitions, of the topics that the client may see."""

    def _connected(self) -> Any:
        """The metadata of the cluster."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                return self._admin.list_topics(timeout=min(2.0, TIMEOUT_SECONDS))
            except KafkaException as e:
                self._admin.poll(0)  # calls error_cb
                hopeless = [error for error in self._errors if error.code() in _IS_HOPELESS]
                if hopeless or time.monotonic() > deadline:
                    errors: list[BaseException | KafkaError] = [e, *self._errors, *hopeless]
                    raise GroupcoordError(
                        f"{self._uri}: no broker answers: {_error_text(errors[-1])}. Check the address, and whether the cluster wants to"
                        " know who asks (--command-config)."
                    ) from None

    def answers(self, open_offsets: Iterable[Place] = ()) -> Answers:
        """What the cluster answers now about its groups.

        open_offsets: Places with an offset in an open transaction. A broker lists no partition whose only offset is in an open transaction,
        so these places are asked about as well.
        """
        began = now_ms()
        groups = self._groups()
        offsets, topics_with_offsets = self._offsets([row["group"] for row in groups])
        topics_of_group = {row["group"]: _assigned(row) | topics_with_offsets.get(row["group"], set()) for row in groups}
        for group_id, topic, _ in open_offsets:
            if group_id in topics_of_group:
                topics_of_group[group_id].add(topic)
        places = {
            *((row["group"], row["topic"], row["partition"]) for row in offsets),
            *(place for place in open_offsets if place[0] in topics_of_group),
            *(
                (group_id, topic, n)
                for group_id, topics in topics_of_group.items()
                for topic in topics
                for n in range(self.partitions.get(topic, 0))
            ),
        }
        pending = self._pending(places)
        return Answers(
            source=self._uri,
            asked_at_ms=(began, now_ms()),
            groups=[row for row in groups if row["group"] not in self._not_described],
            offsets=offsets,
            pending=pending,
            pending_topics={group_id: sorted(topics) for group_id, topics in topics_of_group.items() if topics},
            topic_ids=self._topic_ids(sorted(self.partitions)),
            not_described=dict(sorted(self._not_described.items())),
        )

    def log_extents(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) -> start and end offset of the log, of every topic but Kafka's internal ones.

        A partition of which no broker answers is left out.
        """
        places = [TopicPartition(t, n) for t, count in self.partitions.items() if t not in INTERNAL_TOPICS for n in range(count)]
        sides: list[dict[tuple[str, int], int]] = []
        of_spec: Any = client.OffsetSpec
        for spec in (of_spec.earliest(), of_spec.latest()):
            asked = self._admin.list_offsets(dict.fromkeys(places, spec), request_timeout=TIMEOUT_SECONDS) if places else {}
            sides.append({(at.topic, at.partition): future.result().offset for at, future in asked.items() if future.exception() is None})
        starts, ends = sides
        return {place: (starts[place], end) for place, end in sorted(ends.items()) if place in starts}

    def _groups(self) -> list[Row]:
        """The description of every classic group and consumer group; what the client cannot describe is in ``not_described``."""
        listed = self._answer("its groups", self._admin.list_consumer_groups(request_timeout=TIMEOUT_SECONDS))
        if listed.errors:
            raise GroupcoordError(f"{self._uri} did not tell all of its groups: {_error_text(listed.errors[0])}.")
        # The older requests know groups of every protocol type, and the subscriptions of classic members. The client deprecates them
        # and has nothing in their place.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            answer: Any = self._called("its groups", lambda: self._admin.list_groups(timeout=TIMEOUT_SECONDS))
        older = {group.id: group for group in answer}
        is_simple = {group.group_id: group.is_simple_consumer_group for group in listed.valid}
        rows: list[Row] = []
        for group_ids in _in_parts(sorted(is_simple)):
            for group_id, future in self._admin.describe_consumer_groups(group_ids, request_timeout=TIMEOUT_SECONDS).items():
                described = self._allowed(group_id, f"group {group_id!r}", future)
                if described is not None and described.state != ConsumerGroupState.DEAD:
                    rows.append(_group_row(described, is_simple[group_id], older.get(group_id)))
        for group_id in sorted(older.keys() - is_simple.keys()):
            group = older[group_id]
            if group.error is None and group.state != "Dead":
                rows.append(_row_of_other_type(group))
            else:
                self._not_described[group_id] = (
                    "The client knows no groups of its type" if group.error is None else _error_text(group.error)
                )
        return rows

    def _offsets(self, group_ids: Sequence[str]) -> tuple[list[Row], dict[str, set[str]]]:
        """Rows of the committed offsets, and group id -> topics with a committed offset."""
        rows: list[Row] = []
        topics: dict[str, set[str]] = {}
        for group_id, offsets in self._fetched(((group_id, None) for group_id in group_ids), require_stable=False):
            for offset in offsets:
                if offset.error is not None:
                    raise GroupcoordError(
                        f"Offset of {offset.topic}-{offset.partition} in group {group_id!r}: {_error_text(offset.error)}."
                    )
                if offset.offset == _NO_OFFSET:
                    continue
                topics.setdefault(group_id, set()).add(offset.topic)
                place = {"group": group_id, "topic": offset.topic, "partition": offset.partition}
                epoch = NO_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch
                rows.append({**place, "offset": offset.offset, "leader_epoch": epoch, "metadata": offset.metadata or ""})
        return rows, topics

    def _pending(self, places: Iterable[Place]) -> list[Row]:
        """Rows of the places that have an offset in an open transaction."""
        partitions_of_group: dict[str, list[TopicPartition]] = {}
        for group_id, topic, partition in sorted(places):
            partitions_of_group.setdefault(group_id, []).append(TopicPartition(topic, partition))
        rows: list[Row] = []
        for group_id, offsets in self._fetched(partitions_of_group.items(), require_stable=True):
            for offset in offsets:
                if offset.error is not None and offset.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                    rows.append({"group": group_id, "topic": offset.topic, "partition": offset.partition})
                elif offset.error is not None:
                    where = f"Stable offset of {offset.topic}-{offset.partition} in group {group_id!r}"
                    raise GroupcoordError(f"{where}: {_error_text(offset.error)}.")
        return rows

    def _fetched(self, queries: Iterable[_OffsetQuery], *, require_stable: bool) -> Iterator[tuple[str, list[Any]]]:
        """(group id, offsets) for each query."""
        for part in _in_parts(list(queries)):
            # The client accepts one group in a call.
            futures = [
                self._admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group_id, partitions)], require_stable=require_stable, request_timeout=TIMEOUT_SECONDS
                )[group_id]
                for group_id, partitions in part
            ]
            for (group_id, _), future in zip(part, futures, strict=True):
                answer = self._allowed(group_id, f"offsets of group {group_id!r}", future)
                if answer is not None:
                    yield group_id, answer.topic_partitions

    def _topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic -> topic id."""
        ids: dict[str, str] = {}
        for part in _in_parts(topics):
            for name, future in self._admin.describe_topics(TopicCollection(part), request_timeout=TIMEOUT_SECONDS).items():
                described = self._allowed(None, f"topic {name!r}", future)
                if described is not None:
                    ids[name] = _uuid_text(described.topic_id)
        return ids

    def _allowed(self, group_id: str | None, subject: str, future: Future[T]) -> T | None:
        """The answer; None for what is gone meanwhile, and for a group about which the client may not ask."""
        error = future.exception()
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        if error is not None and group_id is not None and code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._not_described[group_id] = _error_text(error)
            return None
        return None if code in _IS_GONE else self._answer(subject, future)

    def _answer(self, subject: str, future: Future[T]) -> T:
        return self._called(subject, future.result)

    def _called(self, subject: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except KafkaException as e:
            raise GroupcoordError(f"{self._uri} did not tell {subject}: {_error_text(e)}.") from e


def _group_row(described: Any, is_simple: bool, older: Any | None) -> Row:
    """older: the answer to the older request, which has the subscriptions of a classic group's members."""
    group_type = described.type.name.lower()
    state = _STATES.get(described.state.name)
    # A broker does not describe the assignor and the assignments of a classic group during a rebalance.
    has_assignment = group_type == "consumer" or state == "Stable"
    subscriptions = {} if older is None else {member.id: member.metadata for member in older.members}
    return {
        "group": described.group_id,
        "type": group_type,
        "state": state,
        "protocol_type": "" if is_simple else _CONSUMER,
        "protocol": described.partition_assignor if has_assignment else None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.host,
                "assignment": _partition_lists(member.assignment) if has_assignment else None,
                "target_assignment": _partition_lists(member.target_assignment),
                **_of_subscription(subscriptions.get(member.member_id)),
            }
            for member in described.members
        ],
    }


def _row_of_other_type(group: Any) -> Row:
    """A classic group of another protocol type than consumer: workers of Connect, for example."""
    members = [{"member_id": member.id, "client_id": member.client_id, "client_host": member.client_host} for member in group.members]
    answers = {"state": group.state, "protocol_type": group.protocol_type, "protocol": group.protocol}
    return {"group": group.id, "type": "classic", **answers, "members": members}


def _of_subscription(encoded: bytes | None) -> Row:
    """What the bytes of a classic member's subscription say; nothing where a broker has not sent them."""
    subscription = decoded_or_none(decode_subscription, encoded) if encoded else None
    return {} if subscription is None else {"subscribed_topics": sorted(subscription.topics), "rack_id": subscription.rack_id}


def _partition_lists(assignment: Any) -> list[list[Any]] | None:
    """[topic, [partition, ...]] for each topic; None: the broker gave no assignment."""
    if assignment is None:
        return None
    numbers: dict[str, list[int]] = {}
    for topic_partition in assignment.topic_partitions:
        numbers.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return [[topic, sorted(partitions)] for topic, partitions in sorted(numbers.items())]


def _uuid_text(uuid: Any) -> str:
    """A uuid in base64url, as Kafka writes it. The client's own text is in base64, with + and /."""
    halves = (uuid.get_most_significant_bits(), uuid.get_least_significant_bits())
    return urlsafe_b64encode(b"".join((half & (1 << 64) - 1).to_bytes(8, "big") for half in halves)).decode().rstrip("=")


def _assigned(group: Row) -> set[str]:
    return {topic for member in group["members"] for topic, _ in member.get("assignment") or ()}


def _in_parts(names: Sequence[T]) -> Iterator[list[T]]:
    for at in range(0, len(names), MAX_OPEN_REQUESTS):
        yield list(names[at : at + MAX_OPEN_REQUESTS])


def _error_text(error: BaseException | KafkaError) -> str:
    """The text of an error of the client, in one line and without a full stop."""
    reason = error.args[0] if isinstance(error, KafkaException) and error.args else error
    text = reason.str() if isinstance(reason, KafkaError) else str(reason)
    return " ".join(text.split()).rstrip(".")
