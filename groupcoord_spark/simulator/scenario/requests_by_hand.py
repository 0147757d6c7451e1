"""The requests that the step ``send`` of a scenario can send: their fields, and the request that is made from them.

A field that the step does not name has the value that the member in ``as`` would send, or, without ``as``, that a client outside of the
group would send.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

from groupcoord_spark.assignors import NO_GENERATION
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from groupcoord_spark.simulator.clients.consumer import Consumer
from groupcoord_spark.simulator.groups.streams_tasks import KINDS
from groupcoord_spark.simulator.handlers.classic.membership import FIRST_VERSION_WITH_LIST
from groupcoord_spark.simulator.messages import requests
from groupcoord_spark.simulator.messages.requests import Topology
from groupcoord_spark.simulator.scenario.streams_values import ENDPOINT, TAGS, TASK_OFFSETS, TASKS, TOPOLOGY
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
    ValueKind,
)

ADMIN: Final = "admin"
"""The client id of a request that no member sends."""
_REBALANCE_TIMEOUT_MS: Final = 300_000


class Sender(NamedTuple):
    """Who sends a request: the group of the scenario, the member that ``as`` names (None: no member), and the members that have started."""

    group_id: str
    member: Consumer | None
    started: Mapping[str, Consumer] = {}
    topology: Topology | None = None
    """Of the scenario: what a member of a streams group sends when it joins."""


Values = Mapping[str, Any]
"""Field -> value: the fields that the step names, and the defaults of the fields that the form declares before."""
Default = Callable[[Sender, Values], Any]
"""Computes the value of a field that the step does not name, from the sender and the other fields."""


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of a request.

    without: value sent if the step does not name the field, in words. default: the same as a function; None: the default of the request.
    since, until: the versions of the request that have the field. lacking: the value for the coordinator in a version without the field.
    """

    name: str
    kind: ValueKind
    without: str
    default: Default | None = None
    is_required: bool = False
    since: int = 0
    until: int | None = None
    lacking: Any = None

    def is_in(self, version: int) -> bool:
        """Return whether this version of the request has the field."""
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

    made: the fields of the request that are made of several fields of the step. in_zookeeper: version 0 is about offsets in ZooKeeper.
    """

    kind: type[requests.Request]
    fields: tuple[RequestField, ...]
    made: Callable[[Sender, Values], Values]
    in_zookeeper: bool

    def request(self, sender: Sender, written: Values, newest_version: int) -> requests.Request:
        """Build the request in the version that the step names, else in the newest. Fields that the version lacks are left out.

        Raises UsageError: the step names a version and a field that this version lacks, or a version that is about ZooKeeper.
        """
        name = self.kind.__name__
        version: int = written.get("version", newest_version)
        if version == 0 and self.in_zookeeper:
            raise UsageError(f"{name} version 0 is about offsets in ZooKeeper, which no coordinator keeps. Use version 1 or later.")
        for field in self.fields:
            if "version" in written and field.name in written and not field.is_in(version):
                where = f"in {field.versions}" if field.until is not None else field.versions
                raise UsageError(f"{name} version {version} has no {field.name}: the field is there {where}.")
        values = {**written, "version": version}
        for field in self.fields:
            if field.default is not None and field.name not in values:
                values[field.name] = field.default(sender, values)
        values |= self.made(sender, values)
        values |= {field.name: field.lacking for field in self.fields if not field.is_in(version)}
        return self.kind(**{name: values[name] for name in self.kind.__struct_fields__ if name in values})


def _of_member(attribute: str, otherwise: Any) -> Default:
    """Return the sending member's value of this attribute, or ``otherwise`` if no member sends the request."""
    of = attrgetter(attribute)
    return lambda sender, values: otherwise if sender.member is None else of(sender.member)


def _to_join(default: Default) -> Default:
    """Apply the default only to a heartbeat that joins; later heartbeats send None (unchanged)."""
    return lambda sender, values: default(sender, values) if values["member_epoch"] == 0 else None


def _epoch(sender: Sender, values: Values) -> int:
    return sender.member.generation if sender.member is not None and sender.member.member_id else 0


def _subscribed_topics(sender: Sender, values: Values) -> tuple[str, ...] | None:
    joins_by_name = values["member_epoch"] == 0 and "topic_regex" not in values
    return (sender.member.settings.topics if sender.member is not None else ()) if joins_by_name else None


def _tasks(sender: Sender, values: Values) -> Mapping[str, tuple[int, ...]] | None:
    reports = values["member_epoch"] == 0 or any(values.get(f"{kind}_tasks") is not None for kind in KINDS)
    return {} if reports else None


def _nothing(sender: Sender, values: Values) -> Values:
    return {}


def _join(sender: Sender, values: Values) -> Values:
    metadata = encode_subscription(Subscription(0, values["topics"], None, {}, NO_GENERATION, None))
    return {"protocols": tuple((name, metadata) for name in values["protocols"])}


def _sync(sender: Sender, values: Values) -> Values:
    assignments = values.get("assignments", {}).items()
    return {"assignments": tuple((member_id, encode_assignment(Assignment(0, of_member, None))) for member_id, of_member in assignments)}


def _leave(sender: Sender, values: Values) -> Values:
    leaving = [requests.Leaving(member_id) for member_id in values.get("member_ids", ())]
    leaving += [requests.Leaving("", instance_id) for instance_id in values.get("group_instance_ids", ())]
    for name in values.get("names", ()):
        member = sender.started.get(name)
        if member is None:
            raise UsageError(f"`names` of LeaveGroup: member {name!r} has not been started by then, and has no ids to send.")
        leaving.append(requests.Leaving(member.member_id, member.settings.group_instance_id))
    if not any(values.get(name) for name in ("member_ids", "group_instance_ids", "names")):
        leaving.append(requests.Leaving(values["member_id"], values["group_instance_id"]))
    if values["version"] < FIRST_VERSION_WITH_LIST:
        leaving = [requests.Leaving(member_id) for member_id, _ in leaving]
    return {"members": tuple(leaving)}


def _offsets(sender: Sender, values: Values) -> Values:
    common = {name: values[name] for name in ("metadata", "leader_epoch", "commit_timestamp_ms") if name in values}
    offsets = values["offsets"].items()
    return {"offsets": tuple(requests.OffsetToCommit(topic, number, offset, **common) for (topic, number), offset in offsets)}


def _fetch(sender: Sender, values: Values) -> Values:
    of_group = {name: values[name] for name in ("partitions", "member_id", "member_epoch") if name in values}
    return {"groups": (requests.GroupToFetch(values["group_id"], **of_group),)}


GROUP_ID: Final = RequestField("group_id", TEXT, "the scenario's group", lambda sender, values: sender.group_id)
GENERATION: Final = RequestField("generation", INT32, "the member's, else -1", _of_member("generation", NO_GENERATION))
MEMBER_ID: Final = RequestField("member_id", TEXT, "the member's, else empty", _of_member("member_id", ""))
INSTANCE_ID: Final = RequestField("group_instance_id", TEXT, "the member's, else none", _of_member("settings.group_instance_id", None))
OFFSETS_TO_COMMIT: Final = (RequestField("offsets", OFFSETS, "", is_required=True), RequestField("metadata", TEXT, "empty"))
GROUP_IDS: Final = RequestField("group_ids", TEXTS, "the group of `group_id`", lambda sender, values: (values["group_id"],))
PRODUCER: Final = (RequestField("producer_id", WHOLE, "", is_required=True), RequestField("producer_epoch", WHOLE, "0"))
COMMITTED: Final = RequestField("committed", FLAG, "", is_required=True)
CLIENT_ID: Final = RequestField("client_id", TEXT, f"the member's name, else {ADMIN}", _of_member("name", ADMIN))
OWN_CLIENT_ID: Final = RequestField("client_id", TEXT, "the member id", lambda sender, values: values["member_id"])
OWN_ID_AND_EPOCH: Final = (RequestField("member_id", TEXT, "", is_required=True), RequestField("member_epoch", INT32, "", is_required=True))
REBALANCE_TIMEOUT: Final = RequestField(
    "rebalance_timeout_ms", DURATION_32, "as before; 300 s with epoch 0", _to_join(lambda *_: _REBALANCE_TIMEOUT_MS)
)
VERSION: Final = RequestField("version", WHOLE, "the newest that the release knows")
_REJOINS: Final = (GROUP_ID, GENERATION, MEMBER_ID, replace(INSTANCE_ID, since=3))


def _form(
    kind: type[requests.Request], *of_request: RequestField, made: Callable[[Sender, Values], Values] = _nothing, in_zookeeper: bool = False
) -> RequestForm:
    return RequestForm(kind, (*of_request, VERSION), made, in_zookeeper)


_FORMS: Final = (
    _form(
        requests.JoinGroup,
        *(GROUP_ID, MEMBER_ID, replace(INSTANCE_ID, since=5)),
        RequestField("session_timeout_ms", DURATION_32, "45 s"),
        RequestField("rebalance_timeout_ms", DURATION_32, "300 s", since=1),
        RequestField("protocol_type", TEXT, "consumer"),
        RequestField("protocols", TEXTS, "range", lambda *_: ("range",)),
        RequestField("topics", TEXTS, "the member's topics, else none", _of_member("settings.topics", ())),
        CLIENT_ID,
        made=_join,
    ),
    _form(
        requests.SyncGroup,
        *_REJOINS,
        RequestField("protocol_type", TEXT, "consumer", lambda *_: "consumer", since=5),
        RequestField("protocol", TEXT, "the member's, else none", _of_member("protocol", None), since=5),
        RequestField("assignments", ASSIGNMENTS, "none"),
        made=_sync,
    ),
    _form(requests.Heartbeat, *_REJOINS),
    _form(
        requests.LeaveGroup,
        *(GROUP_ID, MEMBER_ID, replace(INSTANCE_ID, since=3)),
        RequestField("names", TEXTS, "the sender alone", since=3),
        RequestField("member_ids", TEXTS, "none", since=3),
        RequestField("group_instance_ids", TEXTS, "none", since=3),
        made=_leave,
    ),
    _form(
        requests.ConsumerGroupHeartbeat,
        *(GROUP_ID, MEMBER_ID, INSTANCE_ID),
        RequestField("member_epoch", INT32, "the member's, else 0", _epoch),
        RequestField("rack_id", TEXT, "none"),
        REBALANCE_TIMEOUT,
        RequestField("topics", TEXTS, "as before; with epoch 0 the member's topics, else none", _subscribed_topics),
        RequestField("topic_regex", TEXT, "as before", since=1),
        RequestField("server_assignor", TEXT, "as before"),
        RequestField("partitions", PARTITIONS, "as before; none with epoch 0", _to_join(lambda *_: {})),
        CLIENT_ID,
    ),
    _form(requests.ConsumerGroupDescribe, GROUP_ID, GROUP_IDS),
    _form(
        requests.ShareGroupHeartbeat,
        *(GROUP_ID, *OWN_ID_AND_EPOCH),
        RequestField("rack_id", TEXT, "as before"),
        RequestField("topics", TEXTS, "as before"),
        OWN_CLIENT_ID,
    ),
    _form(requests.ShareGroupDescribe, GROUP_ID, GROUP_IDS),
    _form(
        requests.StreamsGroupHeartbeat,
        *(GROUP_ID, RequestField("group_instance_id", TEXT, "none"), *OWN_ID_AND_EPOCH),
        RequestField("topology", TOPOLOGY, "none; with epoch 0 that of the scenario", _to_join(lambda sender, _: sender.topology)),
        *(RequestField(f"{kind}_tasks", TASKS, "as before; none with epoch 0 or another list of tasks", _tasks) for kind in KINDS),
        REBALANCE_TIMEOUT,
        RequestField("process_id", TEXT, "as before; the member id with epoch 0", _to_join(lambda _, values: values["member_id"])),
        RequestField("rack_id", TEXT, "as before"),
        RequestField("client_tags", TAGS, "as before"),
        RequestField("user_endpoint", ENDPOINT, "as before"),
        RequestField("task_offsets", TASK_OFFSETS, "as before"),
        RequestField("endpoint_information_epoch", INT32, "0"),
        RequestField("shutdown_application", FLAG, "false"),
        OWN_CLIENT_ID,
    ),
    _form(requests.StreamsGroupDescribe, GROUP_ID, GROUP_IDS),
    _form(
        requests.OffsetCommit,
        *(GROUP_ID, GENERATION, MEMBER_ID, replace(INSTANCE_ID, since=7)),
        *OFFSETS_TO_COMMIT,
        RequestField("leader_epoch", INT32, "-1", since=6),
        RequestField("commit_timestamp_ms", WHOLE, "the time of the broker", since=1, until=1),
        RequestField("retention_ms", DURATION, "that of the broker", since=2, until=4, lacking=-1),
        made=_offsets,
        in_zookeeper=True,
    ),
    _form(
        requests.OffsetFetch,
        GROUP_ID,
        RequestField("partitions", PARTITIONS, "all that have an offset"),
        RequestField("member_id", TEXT, "none", since=9),
        RequestField("member_epoch", INT32, "-1", since=9),
        RequestField("require_stable", FLAG, "false", since=7, lacking=False),
        made=_fetch,
        in_zookeeper=True,
    ),
    _form(requests.OffsetDelete, GROUP_ID, RequestField("partitions", PARTITIONS, "", is_required=True)),
    _form(requests.AddOffsetsToTxn, GROUP_ID, *PRODUCER),
    _form(
        requests.TxnOffsetCommit,
        GROUP_ID,
        replace(GENERATION, since=3, lacking=NO_GENERATION),
        replace(MEMBER_ID, since=3, lacking=""),
        replace(INSTANCE_ID, since=3),
        *(*PRODUCER, *OFFSETS_TO_COMMIT),
        RequestField("leader_epoch", INT32, "-1", since=2),
        made=_offsets,
    ),
    _form(requests.EndTxn, *PRODUCER, COMMITTED),
    _form(requests.WriteTxnMarkers, GROUP_ID, *PRODUCER, COMMITTED),
    _form(requests.FindCoordinator, GROUP_ID, replace(GROUP_IDS, since=4), made=lambda sender, values: {"keys": values["group_ids"]}),
    _form(requests.DescribeGroups, GROUP_ID, GROUP_IDS),
    _form(
        requests.ListGroups,
        RequestField("states", TEXTS, "all", since=4, lacking=()),
        RequestField("types", TEXTS, "all", since=5, lacking=()),
    ),
    _form(requests.DeleteGroups, GROUP_ID, GROUP_IDS),
)
REQUESTS: Final[Mapping[str, RequestForm]] = {form.kind.__name__: form for form in _FORMS}
"""Kafka's name of each request -> its fields, and how it is made."""
