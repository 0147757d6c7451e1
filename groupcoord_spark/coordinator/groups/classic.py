"""Classic groups: from a value of key type 2, or without one for a group that only has offsets."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from groupcoord_spark.coordinator.broker_settings import DefaultAssignors
from groupcoord_spark.coordinator.groups.group import LOAD_FAILS, AssignmentRow, MemberRow, Refusal, ReplayedGroup
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol import (
    DecodeError,
    SubscriptionMalformed,
    SubscriptionUnknown,
    decode_assignment,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_subscription,
    subscribed_topics,
)
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP

CONSUMER = "consumer"
CONNECT = "connect"
_CONNECTOR_ITSELF = -1


class ClassicMember(NamedTuple):
    """One entry of the record's member list, with the names of its fields."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class ReplayedClassicGroup(ReplayedGroup):
    """A classic group in the state after a load: Empty or Stable, never in a rebalance, because rebalances are not stored.

    Without arguments: the simple group of a group id that has offsets and no group record (R-1.25).
    """

    group_type: ClassVar[str] = "classic"

    state: str = "Empty"
    protocol_type: str | None = None
    assignor: str | None = None
    generation: int = 0
    leader_id: str | None = None
    state_timestamp_ms: int | None = None
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    subscribed_topics: frozenset[str] | None = None

    @property
    def is_simple(self) -> bool:
        """Whether the group is Empty and has no protocol type, as Kafka tests it. A record from before the first join is simple too."""
        return self.protocol_type is None and self.state == "Empty"

    @property
    def member_count(self) -> int:
        return len(self.members)

    def protocol(self, default_assignors: DefaultAssignors) -> str | None:
        return self.assignor

    def member_rows(self, group_id: str) -> Iterator[MemberRow]:
        for member in self.members.values():
            is_consumer = self.protocol_type == CONSUMER
            subscription = decoded_or_none(decode_subscription, member.subscription) if is_consumer else None
            yield MemberRow(
                group_id=group_id,
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rack_id=None if subscription is None else subscription.rack_id,
                is_leader=member.member_id == self.leader_id,
                uses_classic_protocol=True,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                subscribed_topics=None if subscription is None else tuple(sorted(set(subscription.topics))),
                subscription=member.subscription,
                assignment=member.assignment,
                user_data=None if subscription is None else subscription.user_data,
                record_offset=self.record_offset,
            )

    def assignment_rows(self, group_id: str, topic_names: Mapping[str, str]) -> Iterator[AssignmentRow]:
        """Yield rows from the members' assignments and subscriptions. Malformed bytes give no rows, as no broker reads them."""
        for member in self.members.values():
            if self.protocol_type == CONSUMER:
                yield from _consumer_rows(group_id, member)
            elif self.protocol_type == CONNECT:
                yield from _connect_rows(group_id, member, self.assignor)


_Decoded = TypeVar("_Decoded")


def decoded_or_none(decode: Callable[[bytes], _Decoded | None], encoded: bytes) -> _Decoded | None:
    """Return the decoded bytes, or None if they are empty or malformed."""
    try:
        return decode(encoded)
    except DecodeError:
        return None


def _consumer_rows(group_id: str, member: ClassicMember) -> Iterator[AssignmentRow]:
    """Yield one row for each partition that the member is assigned or reported as owned when it joined."""
    assignment = decoded_or_none(decode_assignment, member.assignment)
    subscription = decoded_or_none(decode_subscription, member.subscription)
    for kind, topics in (
        ("current", {} if assignment is None else assignment.partitions),
        ("owned", {} if subscription is None else subscription.owned_partitions),
    ):
        for topic, partitions in topics.items():
            for partition in partitions:
                yield AssignmentRow(group_id, member.member_id, kind, topic, None, None, None, partition)


class ConnectTasks(NamedTuple):
    """Sets of (connector, task) of a Connect worker; task -1 is the connector itself."""

    current: frozenset[tuple[str, int]]
    revoked: frozenset[tuple[str, int]]
    owned: frozenset[tuple[str, int]]


def connect_tasks(subscription: bytes, assignment: bytes, protocol: str | None) -> ConnectTasks:
    """Return the tasks that a worker runs, must stop and ran before; empty sets if the bytes are malformed.

    subscription: what the worker sent with JoinGroup. assignment: what the leader gave it. protocol: eager, compatible or sessioned.
    """
    new_tasks = decoded_or_none(partial(decode_connect_assignment, protocol=protocol), assignment)
    metadata = decoded_or_none(partial(decode_connect_metadata, protocol=protocol), subscription)
    owned = _tasks(metadata.allocation.assignment) if metadata is not None and metadata.allocation is not None else frozenset()
    revoked = _tasks(new_tasks.revoked) if new_tasks is not None else frozenset()
    # Since KIP-415 an assignment names only new and revoked tasks. The tasks that the worker keeps are in its subscription.
    current = _tasks(new_tasks.assignment) | (owned - revoked) if new_tasks is not None else frozenset()
    return ConnectTasks(current, revoked, owned)


def _connect_rows(group_id: str, member: ClassicMember, protocol: str | None) -> Iterator[AssignmentRow]:
    """Yield one row for each connector and task of a Connect worker."""
    tasks = connect_tasks(member.subscription, member.assignment, protocol)
    for kind, tasks_of_kind in (("current", tasks.current), ("pending_revocation", tasks.revoked), ("owned", tasks.owned)):
        for connector, task in tasks_of_kind:
            task_type, number = ("connector", None) if task == _CONNECTOR_ITSELF else ("task", task)
            yield AssignmentRow(group_id, member.member_id, kind, None, None, connector, task_type, number)


def _tasks(by_connector: Mapping[str, tuple[int, ...]]) -> frozenset[tuple[str, int]]:
    return frozenset((connector, task) for connector, tasks in by_connector.items() for task in tasks)


def read_classic_group(value_version: int, value: Mapping[str, Any], semantics: Semantics) -> tuple[ReplayedClassicGroup, list[Refusal]]:
    """Return the group in a value of key type 2, and a refusal for each part that a loader would reject (R-2.1 to R-2.4)."""
    refusals: list[Refusal] = []
    members: dict[str, ClassicMember] = {}
    by_instance: dict[str, str] = {}
    entries = value["members"]
    for position, entry in enumerate(entries):
        member = _read_member(entry, semantics)
        instance_id = member.group_instance_id
        if instance_id is not None and instance_id in by_instance:
            both = f"{by_instance[instance_id]!r} and {member.member_id!r}"
            refusals.append(Refusal("R-2.1", f"Instance id {instance_id!r} belongs to members {both}: the last one is kept. {LOAD_FAILS}"))
            members.pop(by_instance[instance_id], None)
        elif member.member_id in members:
            ending = "" if position + 1 == len(entries) else f" Another member follows. {LOAD_FAILS}"
            refusals.append(Refusal("R-2.2", f"Member id {member.member_id!r} is in the record twice: the last entry is kept.{ending}"))
        if instance_id is not None:
            by_instance[instance_id] = member.member_id
        members[member.member_id] = member
    protocol_type: str | None = value["protocol_type"]
    if not protocol_type and not members:
        protocol_type = None
    leader_id = value["leader"]
    if leader_id is None and entries:
        leader_id = entries[0]["member_id"]
    state_timestamp_ms = value.get("current_state_timestamp_ms", NO_TIMESTAMP)
    if value_version == 3 and not semantics.takes_state_timestamp_of_value_3:
        state_timestamp_ms = NO_TIMESTAMP
    topics = _topics_of_group(protocol_type, value["protocol"], members, semantics, refusals)
    group = ReplayedClassicGroup(
        state="Stable" if members else semantics.state_without_members,
        protocol_type=protocol_type,
        assignor=value["protocol"],
        generation=value["generation"],
        leader_id=leader_id,
        state_timestamp_ms=None if state_timestamp_ms == NO_TIMESTAMP else state_timestamp_ms,
        members=members,
        subscribed_topics=topics,
    )
    return group, refusals


def _read_member(entry: Mapping[str, Any], semantics: Semantics) -> ClassicMember:
    member = ClassicMember._make(map(entry.get, ClassicMember._fields))
    if member.rebalance_timeout_ms is None or (member.rebalance_timeout_ms == -1 and semantics.stored_minus_one_means_session_timeout):
        return member._replace(rebalance_timeout_ms=member.session_timeout_ms)
    return member


def _topics_of_group(
    protocol_type: str | None, protocol: str | None, members: Mapping[str, ClassicMember], semantics: Semantics, refusals: list[Refusal]
) -> frozenset[str] | None:
    """Return all topics that members subscribe to as the broker reads them, or None if unknown (docs/reference/replay-rules.md 2.3)."""
    if protocol_type != CONSUMER:
        return None
    if not members:
        return frozenset()
    if protocol is None:
        return None
    topics: set[str] = set()
    is_known = True
    for member in members.values():
        try:
            topics |= subscribed_topics(member.subscription, limits_values=semantics.limits_values)
        except SubscriptionUnknown:
            is_known = False
        except SubscriptionMalformed as error:
            is_known = False
            if semantics.fails_over_subscriptions:
                detail = f"The subscription of member {member.member_id!r} cannot be read: {error} The group's topics are unknown."
                refusals.append(Refusal("R-2.4", f"{detail} {LOAD_FAILS}"))
    return frozenset(topics) if is_known else None
