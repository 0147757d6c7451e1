"""The requests that the step ``send`` of a scenario can send: their fields, and the request that is made from them.

A field that the step does not name is the one that the member in ``as`` would send; without ``as`` it is that of a client outside of the
group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from groupcoord_spark.assignors import NO_GENERATION
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from groupcoord_spark.simulator.clients.classic_client import Consumer
from groupcoord_spark.simulator.handlers.classic.leave import FIRST_VERSION_WITH_LIST
from groupcoord_spark.simulator.messages import requests
from groupcoord_spark.simulator.messages.streams_requests import StreamsGroupDescribe, StreamsGroupHeartbeat, Topology
from groupcoord_spark.simulator.scenario.streams_by_hand import streams_heartbeat
from groupcoord_spark.simulator.scenario.streams_values import ENDPOINT, TAGS, TASKS, TOPOLOGY
from groupcoord_spark.simulator.scenario.values import (
    ASSIGNMENTS,
    DURATION,
    DURATION_32,
    FLAG,
    INT32,
    OFFSETS,
    PARTITIONS,
    TEXT,
    TEXTS,
    WHOLE,
    Kind,
)

ADMIN: Final = "admin"
"""The client id of a request that no member sends."""


class Sender(NamedTuple):
    """Who sends a request: the group of the scenario, the member that ``as`` names (None: no member), and the members that have started."""

    group_id: str
    member: Consumer | None
    started: Mapping[str, Consumer] = {}
    topology: Topology | None = None
    """Of the scenario: what a member of a streams group sends when it joins."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a request.

    without: what is sent if the step does not name the field. since, until: the versions of the request that have the field.
    lacking: the value for the coordinator in a version without the field.
    """

    name: str
    kind: Kind
    without: str
    is_required: bool = False
    since: int = 0
    until: int | None = None
    lacking: Any = None

    def is_in(self, version: int) -> bool:
        """Whether this version of the request has the field."""
        return self.since <= version and (self.until is None or version <= self.until)

    @property
    def versions(self) -> str:
        """The versions that have the field, in a few words; "" for all versions."""
        if self.until is not None:
            return f"versions {self.since} to {self.until}" if self.until > self.since else f"version {self.since}"
        return f"since version {self.since}" if self.since else ""


@dataclass(frozen=True, slots=True)
class RequestForm:
    """A request that can be sent by hand.

    make: the request, from its sender and the fields that the step names. in_zookeeper: its version 0 is about offsets in ZooKeeper.
    """

    kind: type[requests.Request]
    fields: tuple[Field, ...]
    make: Callable[[Sender, Mapping[str, Any]], requests.Request]
    in_zookeeper: bool = False

    def request(self, sender: Sender, given: Mapping[str, Any], newest_version: int) -> requests.Request:
        """The request in the version that the step names, else in the newest. Fields that the version lacks are left out.

        Raises UsageError: the step names a version and a field that this version lacks, or a version that is about ZooKeeper.
        """
        name = self.kind.__name__
        version: int = given.get("version", newest_version)
        if version == 0 and self.in_zookeeper:
            raise UsageError(f"{name} version 0 is about offsets in ZooKeeper, which no coordinator keeps. Use version 1 or later.")
        for field in self.fields:
            if "version" in given and field.name in given and not field.is_in(version):
                where = f"in {field.versions}" if field.until is not None else field.versions
                raise UsageError(f"{name} version {version} has no {field.name}: the field is there {where}.")
        request = self.make(sender, {**given, "version": version})
        of_request = {field.name for field in fields(self.kind)}
        lacking = {field.name: field.lacking for field in self.fields if not field.is_in(version) and field.name in of_request}
        return replace(request, version=version, **lacking)


GROUP_ID: Final = Field("group_id", TEXT, "the scenario's group")
GENERATION: Final = Field("generation", INT32, "the member's, else -1")
MEMBER_ID: Final = Field("member_id", TEXT, "the member's, else empty")
INSTANCE_ID: Final = Field("group_instance_id", TEXT, "the member's, else none")
METADATA: Final = Field("metadata", TEXT, "empty")
OFFSETS_FIELD: Final = Field("offsets", OFFSETS, "", is_required=True)
GROUP_IDS: Final = Field("group_ids", TEXTS, "the group of `group_id`")
PRODUCER: Final = (Field("producer_id", WHOLE, "", is_required=True), Field("producer_epoch", WHOLE, "0"))
VERSION: Final = Field("version", WHOLE, "the newest that the release knows")


def _group_id(sender: Sender, fields: Mapping[str, Any]) -> str:
    group_id: str = fields.get("group_id", sender.group_id)
    return group_id


def _generation(sender: Sender, fields: Mapping[str, Any]) -> int:
    generation: int = fields.get("generation", sender.member.generation if sender.member else NO_GENERATION)
    return generation


def _member(sender: Sender, fields: Mapping[str, Any]) -> requests.Leaving:
    member = sender.member
    return requests.Leaving(
        fields.get("member_id", member.member_id if member else ""),
        fields.get("group_instance_id", member.settings.group_instance_id if member else None),
    )


def _offsets(fields: Mapping[str, Any]) -> tuple[requests.OffsetToCommit, ...]:
    return tuple(
        requests.OffsetToCommit(
            *(topic, partition, offset),
            metadata=fields.get("metadata", ""),
            **_given(fields, "leader_epoch", "commit_timestamp_ms"),
        )
        for (topic, partition), offset in fields["offsets"].items()
    )


def _group_ids(sender: Sender, fields: Mapping[str, Any]) -> tuple[str, ...]:
    group_ids: tuple[str, ...] = fields.get("group_ids", (_group_id(sender, fields),))
    return group_ids


def _given(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The fields of these names that the step names: for the others the request has a default of its own."""
    return {name: fields[name] for name in names if name in fields}


def _join(sender: Sender, fields: Mapping[str, Any]) -> requests.Request:
    member = sender.member
    topics = fields.get("topics", member.settings.topics if member else ())
    metadata = encode_subscription(Subscription(0, topics, None, {}, NO_GENERATION, None))
    member_id, instance_id = _member(sender, fields)
    return requests.JoinGroup(
        _group_id(sender, fields),
        member_id=member_id,
        group_instance_id=instance_id,
        protocols=tuple((name, metadata) for name in fields.get("protocols", ("range",))),
        client_id=fields.get("client_id", member.name if member else ADMIN),
        **_given(fields, "session_timeout_ms", "rebalance_timeout_ms", "protocol_type"),
    )


def _sync(sender: Sender, fields: Mapping[str, Any]) -> requests.Request:
    assignments = tuple(
        (member_id, encode_assignment(Assignment(0, partitions, None))) for member_id, partitions in fields.get("assignments", {}).items()
    )
    return requests.SyncGroup(
        _group_id(sender, fields),
        _generation(sender, fields),
        *_member(sender, fields),
        protocol_type=fields.get("protocol_type", "consumer"),
        protocol=fields.get("protocol", sender.member.protocol if sender.member else None),
        assignments=assignments,
    )


def _leave(sender: Sender, fields: Mapping[str, Any]) -> requests.Request:
    named = [*fields.get("member_ids", ()), *fields.get("group_instance_ids", ()), *fields.get("names", ())]
    leaving = [requests.Leaving(member_id) for member_id in fields.get("member_ids", ())]
    leaving += [requests.Leaving("", instance_id) for instance_id in fields.get("group_instance_ids", ())]
    for name in fields.get("names", ()):
        member = sender.started.get(name)
        if member is None:
            raise UsageError(f"`names` of LeaveGroup: member {name!r} has not been started by then, and has no ids to send.")
        leaving.append(requests.Leaving(member.member_id, member.settings.group_instance_id))
    if not named:
        leaving.append(_member(sender, fields))
    if fields["version"] < FIRST_VERSION_WITH_LIST:
        leaving = [requests.Leaving(one.member_id) for one in leaving]
    return requests.LeaveGroup(_group_id(sender, fields), tuple(leaving))


def _commit(sender: Sender, fields: Mapping[str, Any]) -> requests.Request:
    return requests.OffsetCommit(
        _group_id(sender, fields),
        _offsets(fields),
        _generation(sender, fields),
        *_member(sender, fields),
        **_given(fields, "retention_ms"),
    )


def _commit_in_transaction(sender: Sender, fields: Mapping[str, Any]) -> requests.Request:
    member_id, instance_id = _member(sender, fields)
    return requests.TxnOffsetCommit(
        _group_id(sender, fields),
        fields["producer_id"],
        _offsets(fields),
        generation=_generation(sender, fields),
        member_id=member_id,
        group_instance_id=instance_id,
        **_given(fields, "producer_epoch"),
    )


def _consumer_heartbeat(sender: Sender, fields: Mapping[str, Any]) -> requests.Request:
    member = sender.member
    member_id, instance_id = _member(sender, fields)
    epoch = fields.get("member_epoch", member.generation if member and member.member_id else 0)
    joins: dict[str, Any] = {}
    if epoch == 0:
        joins = {"rebalance_timeout_ms": 300_000, "partitions": {}}
        if "topic_regex" not in fields:
            joins["topics"] = member.settings.topics if member else ()
    given = _given(fields, "rack_id", "rebalance_timeout_ms", "topics", "topic_regex", "server_assignor", "partitions")
    return requests.ConsumerGroupHeartbeat(
        _group_id(sender, fields),
        member_id,
        epoch,
        instance_id,
        client_id=fields.get("client_id", member.name if member else ADMIN),
        **{**joins, **given},
    )


def _share_heartbeat(sender: Sender, fields: Mapping[str, Any]) -> requests.Request:
    return requests.ShareGroupHeartbeat(
        _group_id(sender, fields),
        fields["member_id"],
        fields["member_epoch"],
        client_id=fields.get("client_id", fields["member_id"]),
        **_given(fields, "rack_id", "topics"),
    )


def _fetch(sender: Sender, fields: Mapping[str, Any]) -> requests.Request:
    group = requests.GroupToFetch(_group_id(sender, fields), fields.get("partitions"), **_given(fields, "member_id", "member_epoch"))
    return requests.OffsetFetch((group,), **_given(fields, "require_stable"))


_REJOINS: Final = (GROUP_ID, GENERATION, MEMBER_ID, replace(INSTANCE_ID, since=3))

REQUESTS: Final[Mapping[str, RequestForm]] = {
    "JoinGroup": RequestForm(
        requests.JoinGroup,
        (
            *(GROUP_ID, MEMBER_ID, replace(INSTANCE_ID, since=5)),
            Field("session_timeout_ms", DURATION_32, "45 s"),
            Field("rebalance_timeout_ms", DURATION_32, "300 s", since=1),
            Field("protocol_type", TEXT, "consumer"),
            Field("protocols", TEXTS, "range"),
            Field("topics", TEXTS, "the member's topics, else none"),
            Field("client_id", TEXT, f"the member's name, else {ADMIN}"),
            VERSION,
        ),
        _join,
    ),
    "SyncGroup": RequestForm(
        requests.SyncGroup,
        (
            *_REJOINS,
            Field("protocol_type", TEXT, "consumer", since=5),
            Field("protocol", TEXT, "the member's, else none", since=5),
            Field("assignments", ASSIGNMENTS, "none"),
            VERSION,
        ),
        _sync,
    ),
    "Heartbeat": RequestForm(
        requests.Heartbeat,
        (*_REJOINS, VERSION),
        lambda sender, fields: requests.Heartbeat(_group_id(sender, fields), _generation(sender, fields), *_member(sender, fields)),
    ),
    "LeaveGroup": RequestForm(
        requests.LeaveGroup,
        (
            *(GROUP_ID, MEMBER_ID, replace(INSTANCE_ID, since=3)),
            Field("names", TEXTS, "the sender alone", since=3),
            Field("member_ids", TEXTS, "none", since=3),
            Field("group_instance_ids", TEXTS, "none", since=3),
            VERSION,
        ),
        _leave,
    ),
    "ConsumerGroupHeartbeat": RequestForm(
        requests.ConsumerGroupHeartbeat,
        (
            *(GROUP_ID, MEMBER_ID, INSTANCE_ID),
            Field("member_epoch", INT32, "the member's, else 0"),
            Field("rack_id", TEXT, "none"),
            Field("rebalance_timeout_ms", DURATION_32, "as before; 300 s with epoch 0"),
            Field("topics", TEXTS, "as before; with epoch 0 the member's topics, else none"),
            Field("topic_regex", TEXT, "as before", since=1),
            Field("server_assignor", TEXT, "as before"),
            Field("partitions", PARTITIONS, "as before; none with epoch 0"),
            Field("client_id", TEXT, f"the member's name, else {ADMIN}"),
            VERSION,
        ),
        _consumer_heartbeat,
    ),
    "ConsumerGroupDescribe": RequestForm(
        requests.ConsumerGroupDescribe,
        (GROUP_ID, GROUP_IDS, VERSION),
        lambda sender, fields: requests.ConsumerGroupDescribe(_group_ids(sender, fields)),
    ),
    "ShareGroupHeartbeat": RequestForm(
        requests.ShareGroupHeartbeat,
        (
            GROUP_ID,
            Field("member_id", TEXT, "", is_required=True),
            Field("member_epoch", INT32, "", is_required=True),
            Field("rack_id", TEXT, "as before"),
            Field("topics", TEXTS, "as before"),
            Field("client_id", TEXT, "the member id"),
            VERSION,
        ),
        _share_heartbeat,
    ),
    "ShareGroupDescribe": RequestForm(
        requests.ShareGroupDescribe,
        (GROUP_ID, GROUP_IDS, VERSION),
        lambda sender, fields: requests.ShareGroupDescribe(_group_ids(sender, fields)),
    ),
    "StreamsGroupHeartbeat": RequestForm(
        StreamsGroupHeartbeat,
        (
            *(GROUP_ID, replace(INSTANCE_ID, without="none")),
            Field("member_id", TEXT, "", is_required=True),
            Field("member_epoch", INT32, "", is_required=True),
            Field("topology", TOPOLOGY, "none; with epoch 0 that of the scenario"),
            Field("active_tasks", TASKS, "as before; none with epoch 0 or another list of tasks"),
            Field("standby_tasks", TASKS, "as before; none with epoch 0 or another list of tasks"),
            Field("warmup_tasks", TASKS, "as before; none with epoch 0 or another list of tasks"),
            Field("rebalance_timeout_ms", DURATION_32, "as before; 300 s with epoch 0"),
            Field("process_id", TEXT, "as before; the member id with epoch 0"),
            Field("rack_id", TEXT, "as before"),
            Field("client_tags", TAGS, "as before"),
            Field("user_endpoint", ENDPOINT, "as before"),
            Field("endpoint_information_epoch", INT32, "0"),
            Field("shutdown_application", FLAG, "false"),
            Field("client_id", TEXT, "the member id"),
            VERSION,
        ),
        lambda sender, fields: streams_heartbeat(_group_id(sender, fields), sender.topology, fields),
    ),
    "StreamsGroupDescribe": RequestForm(
        StreamsGroupDescribe, (GROUP_ID, GROUP_IDS, VERSION), lambda sender, fields: StreamsGroupDescribe(_group_ids(sender, fields))
    ),
    "OffsetCommit": RequestForm(
        requests.OffsetCommit,
        (
            *(GROUP_ID, GENERATION, MEMBER_ID, replace(INSTANCE_ID, since=7)),
            *(OFFSETS_FIELD, METADATA),
            Field("leader_epoch", INT32, "-1", since=6),
            Field("commit_timestamp_ms", WHOLE, "the time of the broker", since=1, until=1),
            Field("retention_ms", DURATION, "that of the broker", since=2, until=4, lacking=-1),
            VERSION,
        ),
        _commit,
        in_zookeeper=True,
    ),
    "OffsetFetch": RequestForm(
        requests.OffsetFetch,
        (
            GROUP_ID,
            Field("partitions", PARTITIONS, "all that have an offset"),
            Field("member_id", TEXT, "none", since=9),
            Field("member_epoch", INT32, "-1", since=9),
            Field("require_stable", FLAG, "false", since=7, lacking=False),
            VERSION,
        ),
        _fetch,
        in_zookeeper=True,
    ),
    "OffsetDelete": RequestForm(
        requests.OffsetDelete,
        (GROUP_ID, Field("partitions", PARTITIONS, "", is_required=True), VERSION),
        lambda sender, fields: requests.OffsetDelete(_group_id(sender, fields), fields["partitions"]),
    ),
    "AddOffsetsToTxn": RequestForm(
        requests.AddOffsetsToTxn,
        (GROUP_ID, *PRODUCER, VERSION),
        lambda sender, fields: requests.AddOffsetsToTxn(
            _group_id(sender, fields), fields["producer_id"], **_given(fields, "producer_epoch")
        ),
    ),
    "TxnOffsetCommit": RequestForm(
        requests.TxnOffsetCommit,
        (
            GROUP_ID,
            replace(GENERATION, since=3, lacking=NO_GENERATION),
            replace(MEMBER_ID, since=3, lacking=""),
            replace(INSTANCE_ID, since=3),
            *(*PRODUCER, OFFSETS_FIELD, METADATA),
            Field("leader_epoch", INT32, "-1", since=2),
            VERSION,
        ),
        _commit_in_transaction,
    ),
    "EndTxn": RequestForm(
        requests.EndTxn,
        (*PRODUCER, Field("committed", FLAG, "", is_required=True), VERSION),
        lambda sender, fields: requests.EndTxn(fields["producer_id"], fields["committed"], **_given(fields, "producer_epoch")),
    ),
    "WriteTxnMarkers": RequestForm(
        requests.WriteTxnMarkers,
        (GROUP_ID, *PRODUCER, Field("committed", FLAG, "", is_required=True), VERSION),
        lambda sender, fields: requests.WriteTxnMarkers(
            _group_id(sender, fields), fields["producer_id"], fields["committed"], **_given(fields, "producer_epoch")
        ),
    ),
    "FindCoordinator": RequestForm(
        requests.FindCoordinator,
        (GROUP_ID, replace(GROUP_IDS, since=4), VERSION),
        lambda sender, fields: requests.FindCoordinator(_group_ids(sender, fields)),
    ),
    "DescribeGroups": RequestForm(
        requests.DescribeGroups, (GROUP_ID, GROUP_IDS, VERSION), lambda sender, fields: requests.DescribeGroups(_group_ids(sender, fields))
    ),
    "ListGroups": RequestForm(
        requests.ListGroups,
        (Field("states", TEXTS, "all", since=4, lacking=()), Field("types", TEXTS, "all", since=5, lacking=()), VERSION),
        lambda sender, fields: requests.ListGroups(**_given(fields, "states", "types")),
    ),
    "DeleteGroups": RequestForm(
        requests.DeleteGroups, (GROUP_ID, GROUP_IDS, VERSION), lambda sender, fields: requests.DeleteGroups(_group_ids(sender, fields))
    ),
}
"""Kafka's name of each request -> its fields, and how it is made."""
