"""What members put into the record of their group: subscriptions and assignments of consumers and of Connect workers.

The broker passes these bytes from member to member and does not own their layout, so clients of all kinds write them. The functions here
read as much as they can: bytes that cannot be read cost their own fields and never the record of the group. One function,
``subscribed_topics``, reads exactly as the broker does.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any

from . import errors, primitives
from .definition import FieldReader, write_message
from .fields import REQUIRED, Int16, Message
from .messages.connect import CONNECT_ASSIGNMENT, CONNECT_METADATA
from .messages.embedded import CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION, COOPERATIVE_STICKY_USER_DATA, STICKY_USER_DATA

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")

PartitionsByTopic = Mapping[str, tuple[int, ...]]
"""Partitions by topic, or tasks by connector, in the order of the bytes. A topic that is there twice has one entry with all partitions."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer asked for when it joined. ``version`` is as stored; fields that the version lacks have Kafka's defaults."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned_partitions: PartitionsByTopic
    generation_id: int
    rack_id: str | None
    doubts: tuple[errors.Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that the leader of a consumer group assigned to one member."""

    version: int
    partitions: PartitionsByTopic
    user_data: bytes | None
    doubts: tuple[errors.Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class StickyUserData:
    """The previous assignment of a member with the assignor ``sticky``. ``generation`` is None if it is not recorded."""

    previous_assignment: PartitionsByTopic
    generation: int | None


@dataclass(frozen=True, slots=True)
class ConnectAssignment:
    """What the leader of a Connect cluster assigned to one worker. Task -1 is the connector itself. ``error`` 1: configurations differ."""

    version: int
    error: int
    leader: str
    leader_url: str
    config_offset: int
    assignment: PartitionsByTopic
    revoked: PartitionsByTopic
    delay_ms: int
    doubts: tuple[errors.Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectMetadata:
    """What a Connect worker sent when it joined. ``allocation``: what the worker ran at that time; None: not sent."""

    version: int
    url: str
    config_offset: int
    allocation: ConnectAssignment | None
    doubts: tuple[errors.Doubt, ...] = ()


def subscribed_topics(subscription: bytes, *, limits_values: bool = False) -> frozenset[str]:
    """Return the topics of a subscription as the broker reads them when it loads a group.

    The broker reads the layout of version 0 whatever the version says, and ignores the bytes after it.

    Args:
        subscription: the bytes.
        limits_values: ``Semantics.limits_values`` of the broker.

    Raises:
        SubscriptionUnknown: the bytes end inside a field of fixed size. The group loads, and its topics are not known.
        SubscriptionMalformed: any other fault. The broker's load fails (docs/reference/replay-rules.md#r-2.4).
    """
    message = CONSUMER_PROTOCOL_SUBSCRIPTION
    try:
        _, at = primitives.read_integer(subscription, 0, Int16)
        reader = FieldReader(subscription, message, 0)
        fields, _ = reader.read_struct(message.fields, at)
    except errors.LengthBeyondEnd as fault:
        raise errors.SubscriptionMalformed(fault.sentence(message.name)) from fault
    except errors.Underflow as fault:
        raise errors.SubscriptionUnknown(fault.sentence(message.name)) from fault
    except errors.FieldFault as fault:
        raise errors.SubscriptionMalformed(fault.sentence(message.name)) from fault
    if limits_values and (doubt := next((doubt for doubt in reader.doubts if doubt.code == errors.BEYOND_LIMITS), None)):
        raise errors.SubscriptionMalformed(doubt.detail)
    return frozenset(fields["topics"])


@lru_cache(maxsize=4096)
def decode_subscription(data: bytes) -> Subscription | None:
    """Decode a consumer's subscription leniently; return None if the client sent no bytes.

    Topics and user data must be there, whatever the version says: otherwise SubscriptionMalformed is raised. Fields of later versions have
    their defaults where the bytes end before them. If one of them is there and cannot be read, all of them have their defaults, with
    the doubt ``subscription_truncated``. Versions above 3 are read as version 3.

    Results are cached: several tables have rows from the same subscription, and many members send the same one.
    """
    if not data:
        return None
    message = CONSUMER_PROTOCOL_SUBSCRIPTION
    reader = FieldReader(data, message, 0)
    try:
        version, at = primitives.read_integer(data, 0, Int16)
        fields, at = reader.read_struct(message.fields, at)
    except errors.FieldFault as fault:
        raise errors.SubscriptionMalformed(fault.sentence(message.name)) from fault
    layout = min(version, message.versions[1])
    defaults = {field.name: field.absent_value() for field in message.fields if field.first_version > 0}
    doubts = reader.doubts
    try:
        later, later_doubts = _read_fields(message, layout, data, at, skip=len(fields))
        fields = {**defaults, **fields, **later}
        doubts = doubts + later_doubts
    except errors.FieldFault as fault:
        fields = {**defaults, **fields}
        doubts = [*doubts, errors.Doubt("subscription_truncated", fault.sentence(message.name))]
    return Subscription(
        version, tuple(fields["topics"]), fields["user_data"], _joined(fields["owned_partitions"], "topic", "partitions"),
        fields["generation_id"], fields["rack_id"] or None, tuple(doubts),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def decode_assignment(data: bytes) -> Assignment | None:
    """Decode a consumer's assignment; return None if the leader sent no bytes. Trailing bytes are ignored. Raises AssignmentMalformed.

    Results are cached: several tables have rows from the same assignment.
    """
    if not data:
        return None
    message = CONSUMER_PROTOCOL_ASSIGNMENT
    try:
        version, at = _read_version(data)
        fields, doubts = _read_fields(message, min(version, message.versions[1]), data, at)
    except errors.FieldFault as fault:
        raise errors.AssignmentMalformed(fault.sentence(message.name)) from fault
    partitions = _joined(fields["assigned_partitions"], "topic", "partitions")
    return Assignment(version, partitions, fields["user_data"], tuple(doubts))


@lru_cache(maxsize=4096)
def assigned_partitions(data: bytes) -> frozenset[tuple[str, int]]:
    """Return the (topic, partition) pairs of an assignment, the same as ``decode_assignment`` but many times faster for well-formed bytes.

    The result is cached, because an assignor divides the same topics in the same way again and again. Raises AssignmentMalformed.
    """
    try:
        (topics,) = _INT32.unpack_from(data, 2)
        at, assigned = 6, list[tuple[str, int]]()
        for _ in range(topics):
            (length,) = _INT16.unpack_from(data, at)
            topic = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = _INT32.unpack_from(data, at)
            if length < 0:
                raise ValueError(length)
            assigned += zip(repeat(topic), struct.unpack_from(f">{count}i", data, at + 4), strict=False)
            at += 4 + 4 * count
        return frozenset(assigned)
    except (struct.error, ValueError):
        decoded = decode_assignment(data)
        partitions = {} if decoded is None else decoded.partitions
        return frozenset((topic, partition) for topic, numbers in partitions.items() for partition in numbers)


def decode_sticky_user_data(user_data: bytes | None) -> StickyUserData:
    """Decode the previous assignment of a member with the assignor ``sticky`` from the user data of its subscription.

    The bytes carry no version: the later layout is tried first, then the earlier one, which has no generation. Without user data the
    assignment is empty and the generation None. Where the bytes cannot be read, the assignment is empty and the generation -1, as in
    StickyAssignor.memberData.
    """
    if user_data is None:
        return StickyUserData({}, None)
    for version in (1, 0):
        try:
            fields, _ = _read_fields(STICKY_USER_DATA, version, user_data, 0)
        except errors.FieldFault:
            continue
        return StickyUserData(_joined(fields["previous_assignment"], "topic", "partitions"), fields.get("generation"))
    return StickyUserData({}, -1)


def decode_cooperative_sticky_generation(user_data: bytes | None) -> int | None:
    """Return the generation in the user data of the assignor ``cooperative-sticky``: None without user data, -1 if absent or unreadable."""
    if user_data is None:
        return None
    try:
        fields, _ = _read_fields(COOPERATIVE_STICKY_USER_DATA, 0, user_data, 0)
    except errors.FieldFault:
        return -1
    generation: int = fields["generation"]
    return generation


def decode_connect_metadata(data: bytes, protocol: str | None = None) -> ConnectMetadata | None:
    """Decode the metadata that a Connect worker sent to join, from its ``subscription``; None for no bytes. Raises ConnectMalformed.

    An allocation that cannot be read is None, with the doubt ``connect_malformed``.

    ``protocol`` is the group's protocol (``default``, ``compatible``, ``sessioned``), which decides the layout. With None the version
    number decides.
    """
    if not data:
        return None
    version, fields, doubts = _read_connect(CONNECT_METADATA, data, protocol)
    allocation = None
    if fields.get("allocation") is not None:
        try:
            allocation = decode_connect_assignment(fields["allocation"])
        except errors.ConnectMalformed as fault:
            doubts.append(errors.Doubt(fault.code, f"allocation: {fault.detail}"))
    return ConnectMetadata(version, fields["url"], fields["config_offset"], allocation, tuple(doubts))


def decode_connect_assignment(data: bytes, protocol: str | None = None) -> ConnectAssignment | None:
    """Decode the assignment of a Connect worker; None for no bytes. Raises ConnectMalformed."""
    if not data:
        return None
    version, fields, doubts = _read_connect(CONNECT_ASSIGNMENT, data, protocol)
    return ConnectAssignment(
        version, fields["error"], fields["leader"], fields["leader_url"], fields["config_offset"],
        _joined(fields["assignment"] or (), "connector", "tasks"), _joined(fields.get("revoked") or (), "connector", "tasks"),
        fields.get("delay_ms", 0), tuple(doubts),
    )  # fmt: skip


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a consumer's subscription in the layout of its version. Raises EncodeError if a field does not fit."""
    return _encode(
        CONSUMER_PROTOCOL_SUBSCRIPTION,
        subscription.version,
        {
            "topics": list(subscription.topics),
            "user_data": subscription.user_data,
            "owned_partitions": listed_partitions(subscription.owned_partitions),
            "generation_id": subscription.generation_id,
            "rack_id": subscription.rack_id,
        },
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode a member's assignment in the layout of its version. Raises EncodeError if a field does not fit."""
    fields = {"assigned_partitions": listed_partitions(assignment.partitions), "user_data": assignment.user_data}
    return _encode(CONSUMER_PROTOCOL_ASSIGNMENT, assignment.version, fields)


def encode_sticky_user_data(user_data: StickyUserData) -> bytes:
    """Encode the user data of a member with the assignor ``sticky``, in the earlier layout if the generation is None."""
    version = 0 if user_data.generation is None else 1
    fields = {"previous_assignment": listed_partitions(user_data.previous_assignment), "generation": user_data.generation}
    return write_message(STICKY_USER_DATA, version, fields)


def encode_cooperative_sticky_generation(generation: int) -> bytes:
    """Encode the user data of a member with the assignor ``cooperative-sticky``."""
    return write_message(COOPERATIVE_STICKY_USER_DATA, 0, {"generation": generation})


def _encode(message: Message, version: int, fields: Mapping[str, Any]) -> bytes:
    names = {field.name for field in message.fields_of(version)}
    of_version = {name: value for name, value in fields.items() if name in names}
    return primitives.write_integer(version, Int16) + write_message(message, version, of_version)


def listed_partitions(partitions: PartitionsByTopic) -> list[dict[str, Any]]:
    """Partitions by topic as Kafka's JSON lists them."""
    return [{"topic": topic, "partitions": list(numbers)} for topic, numbers in partitions.items()]


_CONNECT_LAYOUTS = {"default": 0, "compatible": 1, "sessioned": 2}


def _read_connect(message: Message, data: bytes, protocol: str | None) -> tuple[int, dict[str, Any], list[errors.Doubt]]:
    try:
        version, at = _read_version(data)
        layout = min(version, message.versions[1]) if protocol is None else _CONNECT_LAYOUTS.get(protocol, version)
        fields, doubts = _read_fields(message, min(layout, message.versions[1]), data, at)
    except errors.FieldFault as fault:
        raise errors.ConnectMalformed(fault.sentence(message.name)) from fault
    return version, fields, doubts


def _read_version(data: bytes) -> tuple[int, int]:
    version, at = primitives.read_integer(data, 0, Int16)
    if version < 0:
        raise errors.FieldFault(f"version {version} is negative")
    return version, at


def _read_fields(message: Message, version: int, data: bytes, at: int, *, skip: int = 0) -> tuple[dict[str, Any], list[errors.Doubt]]:
    """Read the fields of a version after the first ``skip``. A field with a default takes it if the bytes end before the field."""
    reader = FieldReader(data, message, version)
    out: dict[str, Any] = {}
    for field in message.fields_of(version)[skip:]:
        if at == len(data) and field.default is not REQUIRED:
            out[field.name] = field.absent_value()
        else:
            out[field.name], at = reader.read_field(field, at)
    return out, reader.doubts


def _joined(entries: Iterable[Mapping[str, Any]], name: str, numbers: str) -> PartitionsByTopic:
    joined: dict[str, Sequence[int]] = {}
    for entry in entries:
        joined[entry[name]] = (*joined.get(entry[name], ()), *entry[numbers])
    return {entry_name: tuple(all_numbers) for entry_name, all_numbers in joined.items()}
