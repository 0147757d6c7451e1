"""What members put into their group's record: subscriptions and assignments of consumers and of Connect workers.

The broker hands these bytes from member to member and owns none of them, so clients of all kinds write them. They are read here as far
as they go; what cannot be read costs its own fields and never the group. One function, ``subscribed_topics``, reads as the broker does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any

from . import primitives
from .errors import (
    AssignmentMalformed,
    ConnectMalformed,
    FieldFault,
    Finding,
    LengthBeyondEnd,
    SubscriptionMalformed,
    SubscriptionUnknown,
    Underflow,
)
from .fields import REQUIRED, Int16, Message
from .messages.connect import CONNECT_ASSIGNMENT, CONNECT_METADATA
from .messages.embedded import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
    COOPERATIVE_STICKY_USER_DATA,
    STICKY_USER_DATA,
)
from .scalar import FieldReader, write_message

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")

Partitions = Mapping[str, tuple[int, ...]]
"""Partitions by topic, or tasks by connector, in the order in which they are first named; what is named twice is joined."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer asked for. ``version`` is as stored; fields that it lacks have Kafka's defaults."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned_partitions: Partitions
    generation_id: int
    rack_id: str | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader of a consumer group gave one member."""

    version: int
    partitions: Partitions
    user_data: bytes | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class StickyUserData:
    """What a member of the sticky assignor says it held; ``generation`` is None where it does not say when."""

    previous_assignment: Partitions
    generation: int | None


@dataclass(frozen=True, slots=True)
class ConnectAssignment:
    """What the leader of a Connect cluster gave one worker. Task -1 is the connector itself. ``error`` 1: configurations differ."""

    version: int
    error: int
    leader: str
    leader_url: str
    config_offset: int
    assignment: Partitions
    revoked: Partitions
    delay_ms: int
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectMetadata:
    """What a Connect worker told when it joined. ``allocation`` is what it ran then; None: not told."""

    version: int
    url: str
    config_offset: int
    allocation: ConnectAssignment | None
    findings: tuple[Finding, ...] = ()


def subscribed_topics(subscription: bytes) -> frozenset[str]:
    """The topics of a subscription as the broker reads them when it loads a group.

    The broker reads the layout of version 0 whatever the version says and ignores what follows. Raises SubscriptionUnknown where the
    bytes end inside a fixed-size field (the group loads, its topics are unknown), SubscriptionMalformed for every other fault, which a
    broker's load does not survive (R-2.4).
    """
    message = CONSUMER_PROTOCOL_SUBSCRIPTION
    try:
        _, at = primitives.read_integer(subscription, 0, Int16)
        fields, _ = FieldReader(subscription, message, 0).read_struct(message.fields, at)
    except LengthBeyondEnd as fault:
        raise SubscriptionMalformed(fault.sentence(message.name)) from fault
    except Underflow as fault:
        raise SubscriptionUnknown(fault.sentence(message.name)) from fault
    except FieldFault as fault:
        raise SubscriptionMalformed(fault.sentence(message.name)) from fault
    return frozenset(fields["topics"])


def decode_subscription(data: bytes) -> Subscription | None:
    """A consumer's subscription, read leniently; None where the client sent no bytes at all.

    Topics and user data must be there, whatever the version says: else SubscriptionMalformed. Of the fields that later versions add, the
    ones from which the bytes end are at their defaults; if one is there and cannot be read, all of them are, with the finding
    ``subscription_truncated``. Versions above 3 are read as 3.
    """
    if not data:
        return None
    message = CONSUMER_PROTOCOL_SUBSCRIPTION
    reader = FieldReader(data, message, 0)
    try:
        version, at = primitives.read_integer(data, 0, Int16)
        fields, at = reader.read_struct(message.fields, at)
    except FieldFault as fault:
        raise SubscriptionMalformed(fault.sentence(message.name)) from fault
    layout = min(version, message.versions[1])
    defaults = {field.name: field.absent_value() for field in message.fields if field.first_version > 0}
    findings = reader.findings
    try:
        later, more = _read_fields(message, layout, data, at, skip=len(fields))
        fields = {**defaults, **fields, **later}
        findings = findings + more
    except FieldFault as fault:
        fields = {**defaults, **fields}
        findings = [*findings, Finding("subscription_truncated", fault.sentence(message.name))]
    return Subscription(
        version, tuple(fields["topics"]), fields["user_data"], _joined(fields["owned_partitions"], "topic", "partitions"),
        fields["generation_id"], fields["rack_id"] or None, tuple(findings),
    )  # fmt: skip


def decode_assignment(data: bytes) -> Assignment | None:
    """The assignment of a consumer; None where the leader sent nothing. Raises AssignmentMalformed. Bytes that follow are ignored."""
    if not data:
        return None
    message = CONSUMER_PROTOCOL_ASSIGNMENT
    try:
        version, at = _read_version(data)
        fields, findings = _read_fields(message, min(version, message.versions[1]), data, at)
    except FieldFault as fault:
        raise AssignmentMalformed(fault.sentence(message.name)) from fault
    partitions = _joined(fields["assigned_partitions"], "topic", "partitions")
    return Assignment(version, partitions, fields["user_data"], tuple(findings))


@lru_cache(maxsize=4096)
def assigned_partitions(data: bytes) -> frozenset[tuple[str, int]]:
    """(topic, partition) of all that ``decode_assignment`` finds; many times faster where nothing is wrong with the bytes.

    An assignor cuts the same topics into the same parts again and again: what was read lately is remembered.
    """
    try:
        (topics,) = _INT32.unpack_from(data, 2)
        at, held = 6, list[tuple[str, int]]()
        for _ in range(topics):
            (length,) = _INT16.unpack_from(data, at)
            topic = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = _INT32.unpack_from(data, at)
            if length < 0:
                raise ValueError(length)
            held += zip(repeat(topic), struct.unpack_from(f">{count}i", data, at + 4), strict=False)
            at += 4 + 4 * count
        return frozenset(held)
    except (struct.error, ValueError):
        decoded = decode_assignment(data)
        partitions = {} if decoded is None else decoded.partitions
        return frozenset((topic, partition) for topic, numbers in partitions.items() for partition in numbers)


def decode_sticky_user_data(user_data: bytes | None) -> StickyUserData:
    """What a member of the assignor ``sticky`` held, from the user data of its subscription.

    The bytes carry no version: the later layout is tried, then the earlier one, which has no generation. No user data: nothing held, no
    generation. Not readable: nothing held, generation -1 (as StickyAssignor.memberData).
    """
    if user_data is None:
        return StickyUserData({}, None)
    for version in (1, 0):
        try:
            fields, _ = _read_fields(STICKY_USER_DATA, version, user_data, 0)
        except FieldFault:
            continue
        return StickyUserData(_joined(fields["previous_assignment"], "topic", "partitions"), fields.get("generation"))
    return StickyUserData({}, -1)


def decode_cooperative_sticky_generation(user_data: bytes | None) -> int | None:
    """The generation in the user data of the assignor ``cooperative-sticky``; None: no user data; -1: none yet, or not readable."""
    if user_data is None:
        return None
    try:
        fields, _ = _read_fields(COOPERATIVE_STICKY_USER_DATA, 0, user_data, 0)
    except FieldFault:
        return -1
    generation: int = fields["generation"]
    return generation


def decode_connect_metadata(data: bytes, protocol: str | None = None) -> ConnectMetadata | None:
    """What a Connect worker told, from its ``subscription``; None for no bytes. Raises ConnectMalformed.

    ``protocol`` is the group's (``default``, ``compatible``, ``sessioned``): workers choose the layout by it. Without it the version
    number decides. An allocation that cannot be read is None, with the finding ``connect_malformed``.
    """
    if not data:
        return None
    version, fields, findings = _read_connect(CONNECT_METADATA, data, protocol)
    allocation = None
    if fields.get("allocation") is not None:
        try:
            allocation = decode_connect_assignment(fields["allocation"])
        except ConnectMalformed as fault:
            findings.append(Finding(fault.code, f"allocation: {fault.detail}"))
    return ConnectMetadata(version, fields["url"], fields["config_offset"], allocation, tuple(findings))


def decode_connect_assignment(data: bytes, protocol: str | None = None) -> ConnectAssignment | None:
    """What the leader gave a Connect worker, from its ``assignment``; None for no bytes. Raises ConnectMalformed."""
    if not data:
        return None
    version, fields, findings = _read_connect(CONNECT_ASSIGNMENT, data, protocol)
    return ConnectAssignment(
        version, fields["error"], fields["leader"], fields["leader_url"], fields["config_offset"],
        _joined(fields["assignment"] or (), "connector", "tasks"), _joined(fields.get("revoked") or (), "connector", "tasks"),
        fields.get("delay_ms", 0), tuple(findings),
    )  # fmt: skip


def encode_subscription(subscription: Subscription) -> bytes:
    """A consumer's subscription as a client of its version writes it. Raises EncodeError where a field does not fit."""
    return _encode(
        CONSUMER_PROTOCOL_SUBSCRIPTION,
        subscription.version,
        {
            "topics": list(subscription.topics),
            "user_data": subscription.user_data,
            "owned_partitions": _listed(subscription.owned_partitions),
            "generation_id": subscription.generation_id,
            "rack_id": subscription.rack_id,
        },
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """What a leader gives one member, as a client of its version writes it. Raises EncodeError where a field does not fit."""
    fields = {"assigned_partitions": _listed(assignment.partitions), "user_data": assignment.user_data}
    return _encode(CONSUMER_PROTOCOL_ASSIGNMENT, assignment.version, fields)


def encode_sticky_user_data(held: StickyUserData) -> bytes:
    """What a member of the assignor ``sticky`` tells of what it held; without a generation in the earlier layout."""
    version = 0 if held.generation is None else 1
    fields = {"previous_assignment": _listed(held.previous_assignment), "generation": held.generation}
    return write_message(STICKY_USER_DATA, version, fields)


def encode_cooperative_sticky_generation(generation: int) -> bytes:
    """The user data of the assignor ``cooperative-sticky``."""
    return write_message(COOPERATIVE_STICKY_USER_DATA, 0, {"generation": generation})


def _encode(message: Message, version: int, fields: Mapping[str, Any]) -> bytes:
    known = {field.name for field in message.fields_of(version)}
    of_version = {name: value for name, value in fields.items() if name in known}
    return primitives.write_integer(version, Int16) + write_message(message, version, of_version)


def _listed(partitions: Partitions) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": list(numbers)} for topic, numbers in partitions.items()]


_CONNECT_LAYOUTS = {"default": 0, "compatible": 1, "sessioned": 2}


def _read_connect(message: Message, data: bytes, protocol: str | None) -> tuple[int, dict[str, Any], list[Finding]]:
    try:
        version, at = _read_version(data)
        layout = min(version, message.versions[1]) if protocol is None else _CONNECT_LAYOUTS.get(protocol, version)
        fields, findings = _read_fields(message, min(layout, message.versions[1]), data, at)
    except FieldFault as fault:
        raise ConnectMalformed(fault.sentence(message.name)) from fault
    return version, fields, findings


def _read_version(data: bytes) -> tuple[int, int]:
    version, at = primitives.read_integer(data, 0, Int16)
    if version < 0:
        raise FieldFault(f"version {version} is negative")
    return version, at


def _read_fields(message: Message, version: int, data: bytes, at: int, *, skip: int = 0) -> tuple[dict[str, Any], list[Finding]]:
    """The fields of a version after the first ``skip``; where the bytes end before a field that has a default, that is its value."""
    reader = FieldReader(data, message, version)
    out: dict[str, Any] = {}
    for field in message.fields_of(version)[skip:]:
        if at == len(data) and field.default is not REQUIRED:
            out[field.name] = field.absent_value()
        else:
            out[field.name], at = reader.read_field(field, at)
    return out, reader.findings


def _joined(entries: Iterable[Mapping[str, Any]], name: str, numbers: str) -> Partitions:
    joined: dict[str, Sequence[int]] = {}
    for entry in entries:
        joined[entry[name]] = (*joined.get(entry[name], ()), *entry[numbers])
    return {each: tuple(found) for each, found in joined.items()}
