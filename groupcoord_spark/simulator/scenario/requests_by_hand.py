"""The requests that the step ``send`` of a scenario can send: their fields, and the request that is made from them.

A field that the step does not name is the one that the member in ``as`` would send; without ``as`` it is that of a client outside of the
group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from groupcoord_spark.assignors import NO_GENERATION
from groupcoord_spark.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from groupcoord_spark.simulator.client import Consumer
from groupcoord_spark.simulator.requests import (
    AddOffsetsToTxn,
    DeleteGroups,
    DescribeGroups,
    EndTxn,
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    SyncGroup,
    TxnOffsetCommit,
)
from groupcoord_spark.simulator.scenario.values import ASSIGNMENTS, DURATION, FLAG, INTEGER, OFFSETS, PARTITIONS, TEXT, TEXTS, WHOLE, Kind

ADMIN: Final = "admin"
"""The client id of a request that no member sends."""


class Sender(NamedTuple):
    """Who sends a request: the group of the scenario, and the member that ``as`` names (None: no member)."""

    group_id: str
    member: Consumer | None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a request. without: what is sent if the step does not name the field."""

    name: str
    kind: Kind
    without: str
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class RequestForm:
    """A request that can be sent by hand. make: the request, from its sender and the fields that the step names."""

    fields: tuple[Field, ...]
    make: Callable[[Sender, Mapping[str, Any]], Request]


GROUP_ID: Final = Field("group_id", TEXT, "the scenario's group")
GENERATION: Final = Field("generation", INTEGER, "the member's, else -1")
MEMBER_ID: Final = Field("member_id", TEXT, "the member's, else empty")
INSTANCE_ID: Final = Field("group_instance_id", TEXT, "the member's, else none")
MEMBERSHIP: Final = (GROUP_ID, GENERATION, MEMBER_ID, INSTANCE_ID)
METADATA: Final = Field("metadata", TEXT, "empty")
PRODUCER: Final = (Field("producer_id", WHOLE, "", is_required=True), Field("producer_epoch", WHOLE, "0"))
VERSION: Final = Field("version", WHOLE, "the newest that the release knows")


def _group_id(sender: Sender, fields: Mapping[str, Any]) -> str:
    group_id: str = fields.get("group_id", sender.group_id)
    return group_id


def _generation(sender: Sender, fields: Mapping[str, Any]) -> int:
    generation: int = fields.get("generation", sender.member.generation if sender.member else NO_GENERATION)
    return generation


def _member(sender: Sender, fields: Mapping[str, Any]) -> Leaving:
    member = sender.member
    return Leaving(
        fields.get("member_id", member.member_id if member else ""),
        fields.get("group_instance_id", member.settings.group_instance_id if member else None),
    )


def _offsets(fields: Mapping[str, Any]) -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(topic, partition, offset, metadata=fields.get("metadata", ""))
        for (topic, partition), offset in fields["offsets"].items()
    )


def _given(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The fields of these names that the step names: for the others the request has a default of its own."""
    return {name: fields[name] for name in names if name in fields}


def _join(sender: Sender, fields: Mapping[str, Any]) -> Request:
    member = sender.member
    topics = fields.get("topics", member.settings.topics if member else ())
    metadata = encode_subscription(Subscription(0, topics, None, {}, NO_GENERATION, None))
    member_id, instance_id = _member(sender, fields)
    return JoinGroup(
        _group_id(sender, fields),
        member_id=member_id,
        group_instance_id=instance_id,
        protocols=tuple((name, metadata) for name in fields.get("protocols", ("range",))),
        client_id=fields.get("client_id", member.name if member else ADMIN),
        **_given(fields, "session_timeout_ms", "rebalance_timeout_ms", "protocol_type", "version"),
    )


def _sync(sender: Sender, fields: Mapping[str, Any]) -> Request:
    assignments = tuple(
        (member_id, encode_assignment(Assignment(0, partitions, None))) for member_id, partitions in fields.get("assignments", {}).items()
    )
    return SyncGroup(
        _group_id(sender, fields),
        _generation(sender, fields),
        *_member(sender, fields),
        assignments=assignments,
        **_given(fields, "protocol_type", "protocol", "version"),
    )


def _leave(sender: Sender, fields: Mapping[str, Any]) -> Request:
    return LeaveGroup(_group_id(sender, fields), (_member(sender, fields),), **_given(fields, "version"))


def _commit(sender: Sender, fields: Mapping[str, Any]) -> Request:
    return OffsetCommit(
        _group_id(sender, fields),
        _offsets(fields),
        _generation(sender, fields),
        *_member(sender, fields),
        **_given(fields, "retention_ms", "version"),
    )


def _commit_in_transaction(sender: Sender, fields: Mapping[str, Any]) -> Request:
    member_id, instance_id = _member(sender, fields)
    return TxnOffsetCommit(
        _group_id(sender, fields),
        fields["producer_id"],
        _offsets(fields),
        generation=_generation(sender, fields),
        member_id=member_id,
        group_instance_id=instance_id,
        **_given(fields, "producer_epoch"),
    )


def _fetch(sender: Sender, fields: Mapping[str, Any]) -> Request:
    group = GroupToFetch(_group_id(sender, fields), fields.get("partitions"))
    return OffsetFetch((group,), **_given(fields, "require_stable"))


REQUESTS: Final[Mapping[str, RequestForm]] = {
    "JoinGroup": RequestForm(
        (
            *(GROUP_ID, MEMBER_ID, INSTANCE_ID),
            Field("session_timeout_ms", DURATION, "45 s"),
            Field("rebalance_timeout_ms", DURATION, "300 s"),
            Field("protocol_type", TEXT, "consumer"),
            Field("protocols", TEXTS, "range"),
            Field("topics", TEXTS, "the member's topics, else none"),
            Field("client_id", TEXT, f"the member's name, else {ADMIN}"),
            VERSION,
        ),
        _join,
    ),
    "SyncGroup": RequestForm(
        (
            *MEMBERSHIP,
            Field("protocol_type", TEXT, "none"),
            Field("protocol", TEXT, "none"),
            Field("assignments", ASSIGNMENTS, "none"),
            VERSION,
        ),
        _sync,
    ),
    "Heartbeat": RequestForm(
        MEMBERSHIP,
        lambda sender, fields: Heartbeat(_group_id(sender, fields), _generation(sender, fields), *_member(sender, fields)),
    ),
    "LeaveGroup": RequestForm((GROUP_ID, MEMBER_ID, INSTANCE_ID, VERSION), _leave),
    "OffsetCommit": RequestForm(
        (
            *MEMBERSHIP,
            Field("offsets", OFFSETS, "", is_required=True),
            METADATA,
            Field("retention_ms", DURATION, "that of the broker"),
            VERSION,
        ),
        _commit,
    ),
    "OffsetFetch": RequestForm(
        (GROUP_ID, Field("partitions", PARTITIONS, "all that have an offset"), Field("require_stable", FLAG, "false")), _fetch
    ),
    "OffsetDelete": RequestForm(
        (GROUP_ID, Field("partitions", PARTITIONS, "", is_required=True)),
        lambda sender, fields: OffsetDelete(_group_id(sender, fields), fields["partitions"]),
    ),
    "AddOffsetsToTxn": RequestForm(
        (GROUP_ID, *PRODUCER),
        lambda sender, fields: AddOffsetsToTxn(_group_id(sender, fields), fields["producer_id"], **_given(fields, "producer_epoch")),
    ),
    "TxnOffsetCommit": RequestForm(
        (*MEMBERSHIP, *PRODUCER, Field("offsets", OFFSETS, "", is_required=True), METADATA), _commit_in_transaction
    ),
    "EndTxn": RequestForm(
        (*PRODUCER, Field("committed", FLAG, "", is_required=True)),
        lambda sender, fields: EndTxn(fields["producer_id"], fields["committed"], **_given(fields, "producer_epoch")),
    ),
    "FindCoordinator": RequestForm(
        (GROUP_ID, VERSION), lambda sender, fields: FindCoordinator((_group_id(sender, fields),), **_given(fields, "version"))
    ),
    "DescribeGroups": RequestForm(
        (GROUP_ID, VERSION), lambda sender, fields: DescribeGroups((_group_id(sender, fields),), **_given(fields, "version"))
    ),
    "ListGroups": RequestForm((Field("states", TEXTS, "all"),), lambda sender, fields: ListGroups(**_given(fields, "states"))),
    "DeleteGroups": RequestForm((GROUP_ID,), lambda sender, fields: DeleteGroups((_group_id(sender, fields),))),
}
"""Kafka's name of each request -> its fields, and how it is made."""
