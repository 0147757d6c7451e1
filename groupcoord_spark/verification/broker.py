"""The answers of a running cluster, through the Admin API of confluent-kafka. Import this module only to ask a cluster."""

from __future__ import annotations

import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH
from groupcoord_spark.verification.answers import Answers, Row
from groupcoord_spark.verification.comparison import Place

PROTOCOL_TYPES: Final = frozenset({"", "consumer"})
"""Protocol types of the groups that the client lists: consumer groups and simple groups, but no groups of Connect, share or streams."""

TIMEOUT_SECONDS: Final = 30.0
MAX_OPEN_REQUESTS: Final = 200
"""So many requests are sent before the first answer is awaited."""

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


def ask(servers: str, settings: Mapping[str, str], open_offsets: Iterable[Place] = ()) -> Answers:
    """The present answers of a cluster about its consumer groups.

    Args:
        servers: Bootstrap servers.
        settings: Settings of the client, with librdkafka's names. No message shows their values.
        open_offsets: Places with an offset in an open transaction. A broker lists no partition whose only offset is in an open transaction,
            so these places are asked about as well.
    Raises:
        UsageError: The client refuses the settings.
        GroupcoordError: The cluster does not answer, or not completely.
    """
    client = _Client(servers, settings)
    began = _now_ms()
    groups = client.groups()
    offsets, topics_with_offsets = client.offsets([row["group"] for row in groups])
    topics_of_group: dict[str, set[str]] = {row["group"]: _assigned(row) | topics_with_offsets.get(row["group"], set()) for row in groups}
    for group_id, topic, _ in open_offsets:
        if group_id in topics_of_group:
            topics_of_group[group_id].add(topic)
    partitions = client.partitions()
    places = {
        *((row["group"], row["topic"], row["partition"]) for row in offsets),
        *(place for place in open_offsets if place[0] in topics_of_group),
        *(
            (group_id, topic, n)
            for group_id, topics in topics_of_group.items()
            for topic in topics
            for n in range(partitions.get(topic, 0))
        ),
    }
    pending = client.pending(places)
    return Answers(
        source=f"kafka://{servers}",
        asked_at_ms=(began, _now_ms()),
        protocol_types=PROTOCOL_TYPES,
        groups=groups,
        offsets=offsets,
        pending=pending,
        pending_topics={group_id: sorted(topics) for group_id, topics in topics_of_group.items() if topics},
        topic_ids=client.topic_ids(sorted(partitions)),
    )


class _Client:
    """An Admin client. Its methods raise GroupcoordError with a sentence for the user."""

    def __init__(self, servers: str, settings: Mapping[str, str]) -> None:
        self._servers = servers
        # Without a logger the client writes to stderr, even if --log-level forbids it.
        logger = logging.getLogger(__name__)
        try:
            self._admin = AdminClient({"client.id": "groupcoord-verify", **settings, "bootstrap.servers": servers}, logger=logger)
        except (KafkaException, ValueError, TypeError) as e:
            raise UsageError(f"The Kafka client refuses its settings: {_hide(_error_text(e), settings.values())}.") from None

    def groups(self) -> list[Row]:
        """The description of every group of PROTOCOL_TYPES, except groups that were removed since the list was made."""
        listed = self._answer("its groups", self._admin.list_consumer_groups(request_timeout=TIMEOUT_SECONDS))
        if listed.errors:
            raise GroupcoordError(
                f"kafka://{self._servers} did not tell all of its groups: {_error_text(listed.errors[0])}."
                " Check the address, and whether the cluster wants to know who asks (--command-config)."
            )
        is_simple = {group.group_id: group.is_simple_consumer_group for group in listed.valid}
        rows: list[Row] = []
        for group_ids in _in_parts(sorted(is_simple)):
            for group_id, future in self._admin.describe_consumer_groups(group_ids, request_timeout=TIMEOUT_SECONDS).items():
                described = self._answer(f"group {group_id!r}", future)
                if described.state != ConsumerGroupState.DEAD:
                    rows.append(_group_row(described, is_simple[group_id]))
        return rows

    def offsets(self, group_ids: Sequence[str]) -> tuple[list[Row], dict[str, set[str]]]:
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

    def pending(self, places: Iterable[Place]) -> list[Row]:
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
                yield group_id, self._answer(f"offsets of group {group_id!r}", future).topic_partitions

    def partitions(self) -> dict[str, int]:
        """Topic -> number of its partitions."""
        metadata = self._called("its topics", lambda: self._admin.list_topics(timeout=TIMEOUT_SECONDS))
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic -> topic id."""
        ids: dict[str, str] = {}
        for part in _in_parts(topics):
            for name, future in self._admin.describe_topics(TopicCollection(part), request_timeout=TIMEOUT_SECONDS).items():
                ids[name] = _uuid_text(self._answer(f"topic {name!r}", future).topic_id)
        return ids

    def _answer(self, what: str, future: Future[T]) -> T:
        return self._called(what, future.result)

    def _called(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except KafkaException as e:
            raise GroupcoordError(f"kafka://{self._servers} did not tell {what}: {_error_text(e)}.") from e


def _group_row(described: Any, is_simple: bool) -> Row:
    group_type = described.type.name.lower()
    state = _STATES.get(described.state.name)
    # A broker does not describe the assignor and the assignments of a classic group during a rebalance.
    has_assignment = group_type == "consumer" or state == "Stable"
    return {
        "group": described.group_id,
        "type": group_type,
        "state": state,
        "protocol_type": "" if is_simple else "consumer",
        "protocol": described.partition_assignor if has_assignment else None,
        "members": [_member_row(member, has_assignment) for member in described.members],
    }


def _member_row(member: Any, has_assignment: bool) -> Row:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
        "assignment": _partition_lists(member.assignment) if has_assignment else None,
        "target_assignment": _partition_lists(member.target_assignment),
    }


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
    return {topic for member in group["members"] for topic, _ in member["assignment"] or ()}


def _in_parts(things: Sequence[T]) -> Iterator[list[T]]:
    for at in range(0, len(things), MAX_OPEN_REQUESTS):
        yield list(things[at : at + MAX_OPEN_REQUESTS])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _error_text(error: BaseException | KafkaError) -> str:
    """The text of an error of the client, in one line and without a full stop."""
    reason = error.args[0] if isinstance(error, KafkaException) and error.args else error
    text = reason.str() if isinstance(reason, KafkaError) else str(reason)
    return " ".join(text.split()).rstrip(".")


def _hide(text: str, values: Iterable[str]) -> str:
    """The text with an ellipsis in place of each value."""
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, "…")
    return text
