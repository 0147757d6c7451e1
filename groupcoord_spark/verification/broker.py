"""Answers of a running cluster, through the Admin API of confluent-kafka; imported only where a cluster is asked."""

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
from groupcoord_spark.verification.answers import Answers, Row
from groupcoord_spark.verification.comparison import Place

PROTOCOL_TYPES: Final = frozenset({"", "consumer"})
"""The client lists groups of consumers and those that only hold offsets; groups of Connect, share and streams groups it leaves out."""

TIMEOUT_SECONDS: Final = 30.0
AT_ONCE: Final = 200
"""Groups asked about side by side."""

_STATES: Final = {
    "STABLE": "Stable",
    "EMPTY": "Empty",
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}
"""The client's names of states -> Kafka's own. Those of KIP-848 it does not know (Assigning, Reconciling): then none is told."""

_NO_OFFSET: Final = -1001

T = TypeVar("T")

_Asked = tuple[str, list[TopicPartition] | None]
"""A group and its partitions; None: all that have an offset."""


def ask(servers: str, settings: Mapping[str, str], open_offsets: Iterable[Place] = ()) -> Answers:
    """Everything a cluster answers about its consumer groups now.

    settings: of the client, in librdkafka's names. open_offsets: places to ask about with require_stable beside those that the cluster
    itself names; a partition whose only offset is in an open transaction is in no list that a broker gives.
    Raises UsageError for settings that are refused, GroupcoordError where no whole answer is to be had. No setting is ever shown.
    """
    client = _Client(servers, settings)
    began = _now_ms()
    groups = client.groups()
    offsets, topics_of = client.offsets([row["group"] for row in groups])
    asked: dict[str, set[str]] = {row["group"]: _assigned(row) | topics_of.get(row["group"], set()) for row in groups}
    for group_id, topic, _ in open_offsets:
        if group_id in asked:
            asked[group_id].add(topic)
    partitions = client.partitions()
    places = {
        *((row["group"], row["topic"], row["partition"]) for row in offsets),
        *(place for place in open_offsets if place[0] in asked),
        *((group_id, topic, n) for group_id, topics in asked.items() for topic in topics for n in range(partitions.get(topic, 0))),
    }
    pending = client.pending(places)
    return Answers(
        source=f"kafka://{servers}",
        asked_at_ms=(began, _now_ms()),
        protocol_types=PROTOCOL_TYPES,
        groups=groups,
        offsets=offsets,
        pending=pending,
        pending_topics={group_id: sorted(topics) for group_id, topics in asked.items() if topics},
        topic_ids=client.topic_ids(sorted(partitions)),
    )


class _Client:
    """An Admin client, and its failures as sentences."""

    def __init__(self, servers: str, settings: Mapping[str, str]) -> None:
        self._servers = servers
        # Without a logger of its own the client writes to stderr, whatever --log-level says.
        logger = logging.getLogger(__name__)
        try:
            self._admin = AdminClient({"client.id": "groupcoord-verify", **settings, "bootstrap.servers": servers}, logger=logger)
        except (KafkaException, ValueError, TypeError) as e:
            raise UsageError(f"The Kafka client refuses its settings: {_without(_said(e), settings.values())}.") from None

    def groups(self) -> list[Row]:
        """Every group of PROTOCOL_TYPES, described; groups that went away meanwhile are left out."""
        listed = self._answer("its groups", self._admin.list_consumer_groups(request_timeout=TIMEOUT_SECONDS))
        if listed.errors:
            raise GroupcoordError(
                f"kafka://{self._servers} did not tell all of its groups: {_said(listed.errors[0])}."
                " Check the address, and whether the cluster wants to know who asks (--command-config)."
            )
        is_simple = {each.group_id: each.is_simple_consumer_group for each in listed.valid}
        rows: list[Row] = []
        for some in _in_parts(sorted(is_simple)):
            for group_id, future in self._admin.describe_consumer_groups(some, request_timeout=TIMEOUT_SECONDS).items():
                described = self._answer(f"group {group_id!r}", future)
                if described.state != ConsumerGroupState.DEAD:
                    rows.append(_group_row(described, is_simple[group_id]))
        return rows

    def offsets(self, group_ids: Sequence[str]) -> tuple[list[Row], dict[str, set[str]]]:
        """Committed offsets of the groups, and the topics that each group has some of."""
        rows: list[Row] = []
        topics: dict[str, set[str]] = {}
        for group_id, found in self._fetched(((group_id, None) for group_id in group_ids), require_stable=False):
            for each in found:
                if each.error is not None:
                    raise GroupcoordError(f"Offset of {each.topic}-{each.partition} in group {group_id!r}: {_said(each.error)}.")
                if each.offset == _NO_OFFSET:
                    continue
                topics.setdefault(group_id, set()).add(each.topic)
                place = {"group": group_id, "topic": each.topic, "partition": each.partition}
                epoch = -1 if each.leader_epoch is None else each.leader_epoch
                rows.append({**place, "offset": each.offset, "leader_epoch": epoch, "metadata": each.metadata or ""})
        return rows, topics

    def pending(self, places: Iterable[Place]) -> list[Row]:
        """Those of the places that have an offset in an open transaction."""
        asked: dict[str, list[TopicPartition]] = {}
        for group_id, topic, partition in sorted(places):
            asked.setdefault(group_id, []).append(TopicPartition(topic, partition))
        rows: list[Row] = []
        for group_id, found in self._fetched(asked.items(), require_stable=True):
            for each in found:
                if each.error is not None and each.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                    rows.append({"group": group_id, "topic": each.topic, "partition": each.partition})
                elif each.error is not None:
                    raise GroupcoordError(f"Stable offset of {each.topic}-{each.partition} in group {group_id!r}: {_said(each.error)}.")
        return rows

    def _fetched(self, asked: Iterable[_Asked], *, require_stable: bool) -> Iterator[tuple[str, list[Any]]]:
        for some in _in_parts(list(asked)):
            # one group a call is all that the client takes
            futures = [
                self._admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group_id, partitions)], require_stable=require_stable, request_timeout=TIMEOUT_SECONDS
                )[group_id]
                for group_id, partitions in some
            ]
            for (group_id, _), future in zip(some, futures, strict=True):
                yield group_id, self._answer(f"offsets of group {group_id!r}", future).topic_partitions

    def partitions(self) -> dict[str, int]:
        """Number of partitions of every topic."""
        metadata = self._called("its topics", lambda: self._admin.list_topics(timeout=TIMEOUT_SECONDS))
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic -> id."""
        ids: dict[str, str] = {}
        for some in _in_parts(topics):
            for name, future in self._admin.describe_topics(TopicCollection(some), request_timeout=TIMEOUT_SECONDS).items():
                ids[name] = _uuid_text(self._answer(f"topic {name!r}", future).topic_id)
        return ids

    def _answer(self, what: str, future: Future[T]) -> T:
        return self._called(what, future.result)

    def _called(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except KafkaException as e:
            raise GroupcoordError(f"kafka://{self._servers} did not tell {what}: {_said(e)}.") from e


def _group_row(described: Any, is_simple: bool) -> Row:
    group_type = described.type.name.lower()
    state = _STATES.get(described.state.name)
    # A classic group between two generations has neither assignor nor assignments to tell.
    is_settled = group_type == "consumer" or state == "Stable"
    return {
        "group": described.group_id,
        "type": group_type,
        "state": state,
        "protocol_type": "" if is_simple else "consumer",
        "protocol": described.partition_assignor if is_settled else None,
        "members": [_member_row(member, is_settled) for member in described.members],
    }


def _member_row(member: Any, is_settled: bool) -> Row:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
        "assignment": _holdings(member.assignment) if is_settled else None,
        "target_assignment": _holdings(member.target_assignment),
    }


def _holdings(assignment: Any) -> list[list[Any]] | None:
    if assignment is None:
        return None
    numbers: dict[str, list[int]] = {}
    for each in assignment.topic_partitions:
        numbers.setdefault(each.topic, []).append(each.partition)
    return [[topic, sorted(of_topic)] for topic, of_topic in sorted(numbers.items())]


def _uuid_text(uuid: Any) -> str:
    """A uuid as Kafka writes it, in base64url; the client's own text has + and / for - and _."""
    halves = (uuid.get_most_significant_bits(), uuid.get_least_significant_bits())
    return urlsafe_b64encode(b"".join((half & (1 << 64) - 1).to_bytes(8, "big") for half in halves)).decode().rstrip("=")


def _assigned(group: Row) -> set[str]:
    return {topic for member in group["members"] for topic, _ in member["assignment"] or ()}


def _in_parts(things: Sequence[T]) -> Iterator[list[T]]:
    for at in range(0, len(things), AT_ONCE):
        yield list(things[at : at + AT_ONCE])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _said(error: BaseException | KafkaError) -> str:
    """What the client says, in one line without a full stop."""
    reason = error.args[0] if isinstance(error, KafkaException) and error.args else error
    text = reason.str() if isinstance(reason, KafkaError) else str(reason)
    return " ".join(text.split()).rstrip(".")


def _without(text: str, values: Iterable[str]) -> str:
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, "…")
    return text
