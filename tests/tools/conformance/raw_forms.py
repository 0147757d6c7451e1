"""The simulator's requests in the form of the protocol, and a broker's answers in the form of the simulator's."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from groupcoord_spark.simulator import AddPartitions, BrokerAction, ClusterTopic, ConfigureGroup, CreateTopic, DeleteTopic
from groupcoord_spark.simulator.messages.requests import (
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Request,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    SyncGroup,
    TxnOffsetCommit,
)
from tests.tools.conformance.streams_forms import plain_streams_answer, plain_streams_description, streams_form

Topics = Mapping[str, ClusterTopic]


def form_of(request: Request, topics: Topics) -> dict[str, Any]:
    """Return the fields of a request as its schema names them."""
    match request:
        case JoinGroup():
            return {
                **_named(request, "group_id", "session_timeout_ms", "member_id", "group_instance_id", "protocol_type"),
                "rebalance_timeout_ms": request.rebalance_timeout_ms,
                "protocols": [{"name": name, "metadata": metadata} for name, metadata in request.protocols],
                "reason": None,
            }
        case SyncGroup():
            return {
                **_named(request, "group_id", "member_id", "group_instance_id", "protocol_type"),
                "generation_id": request.generation,
                "protocol_name": request.protocol,
                "assignments": [{"member_id": member_id, "assignment": data} for member_id, data in request.assignments],
            }
        case Heartbeat():
            return {**_named(request, "group_id", "member_id", "group_instance_id"), "generation_id": request.generation}
        case LeaveGroup():
            return {"group_id": request.group_id, "members": [{**leaving._asdict(), "reason": None} for leaving in request.members]}
        case ConsumerGroupHeartbeat():
            return {
                **_named(request, "group_id", "member_id", "member_epoch", "rack_id", "server_assignor"),
                "instance_id": request.group_instance_id,
                "rebalance_timeout_ms": -1 if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms,
                "subscribed_topic_names": None if request.topics is None else list(request.topics),
                "subscribed_topic_regex": request.topic_regex,
                "topic_partitions": None if request.partitions is None else by_id(request.partitions, topics),
            }
        case ShareGroupHeartbeat():
            return {
                **_named(request, "group_id", "member_id", "member_epoch", "rack_id"),
                "subscribed_topic_names": None if request.topics is None else list(request.topics),
            }
        case ShareGroupDescribe():
            return {"group_ids": list(request.group_ids), "include_authorized_operations": 0}
        case DescribeGroups():
            return {"groups": list(request.group_ids), "include_authorized_operations": 0}
        case ListGroups():
            return {"states_filter": list(request.states), "types_filter": list(request.types)}
        case OffsetCommit():
            offsets = [
                {
                    "partition_index": offset.partition,
                    "committed_offset": offset.committed_offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
                for offset in request.offsets
            ]
            return {
                **_named(request, "group_id", "member_id", "group_instance_id"),
                "generation_id_or_member_epoch": request.generation,
                "topics": [{"name": request.offsets[0].topic, "partitions": offsets}],
            }
        case DeleteGroups():
            return {"groups_names": list(request.group_ids)}
        case StreamsGroupHeartbeat():
            return streams_form(request)
        case StreamsGroupDescribe():
            return {"group_ids": list(request.group_ids), "include_authorized_operations": 0}
        case TxnOffsetCommit():
            (offset,) = request.offsets
            partition = {
                "partition_index": offset.partition,
                "committed_offset": offset.committed_offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            return {
                **_named(request, "group_id", "producer_id", "producer_epoch", "member_id", "group_instance_id"),
                "transactional_id": request.group_id,
                "generation_id": request.generation,
                "topics": [{"name": offset.topic, "partitions": [partition]}],
            }
        case OffsetDelete():
            listed = [
                {"name": topic, "partitions": [{"partition_index": number} for number in numbers]}
                for topic, numbers in request.partitions.items()
            ]
            return {"group_id": request.group_id, "topics": listed}
        case OffsetFetch():
            (group,) = request.groups
            return {
                "groups": [{"group_id": group.group_id, "member_id": group.member_id, "member_epoch": group.member_epoch, "topics": None}],
                "require_stable": int(request.require_stable),
            }
        case _:
            raise TypeError(f"{type(request).__name__} is in no script")


_INCREMENTAL_SET, _OF_GROUP = 0, 32


def form_of_action(action: BrokerAction) -> tuple[str, int, dict[str, Any]]:
    """Return what an administrator sends: the request, its version and its fields."""
    match action:
        case ConfigureGroup(group_id, name, value):
            setting = {"name": name, "config_operation": _INCREMENTAL_SET, "value": str(value)}
            resource = {"resource_type": _OF_GROUP, "resource_name": group_id, "configs": [setting]}
            return "IncrementalAlterConfigs", 1, {"resources": [resource]}
        case CreateTopic(topic, partitions):
            created = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
            return "CreateTopics", 7, {"topics": [created], "timeout_ms": 10_000}
        case AddPartitions(topic, partitions):
            grown = {"name": topic, "count": partitions, "assignments": None}
            return "CreatePartitions", 3, {"topics": [grown], "timeout_ms": 10_000}
        case DeleteTopic(topic):
            return "DeleteTopics", 6, {"topics": [{"name": topic}], "timeout_ms": 10_000}
        case _:
            raise TypeError(f"{type(action).__name__} is in no script")


def plain_answer(kind: type, answer: Mapping[str, Any], topics: Topics) -> Any:
    """Return an answer with the simulator's names of its fields."""
    plain = SimpleNamespace(error=answer.get("error_code", 0), **{name: value for name, value in answer.items() if name != "topics"})
    if kind is JoinGroup:
        plain.generation, plain.protocol = answer["generation_id"], answer["protocol_name"]
    elif kind is SyncGroup:
        plain.protocol = answer["protocol_name"]
    elif kind is LeaveGroup:
        plain.members = [SimpleNamespace(error=member["error_code"]) for member in answer["members"]]
    elif kind in (ConsumerGroupHeartbeat, ShareGroupHeartbeat):
        plain.assignment = None if answer["assignment"] is None else by_name(answer["assignment"]["topic_partitions"], topics)
    elif kind is StreamsGroupHeartbeat:
        return plain_streams_answer(answer)
    elif kind is StreamsGroupDescribe:
        return plain_streams_description(answer)
    elif kind is OffsetFetch:
        plain.groups = [SimpleNamespace(error=one["error_code"]) for one in answer["groups"]]
    elif kind in (OffsetCommit, OffsetDelete, TxnOffsetCommit):
        plain.errors = {
            (topic["name"], partition["partition_index"]): partition["error_code"]
            for topic in answer["topics"]
            for partition in topic["partitions"]
        }
    elif kind is DeleteGroups:
        plain.errors = {result["group_id"]: result["error_code"] for result in answer["results"]}
    elif kind is ListGroups:
        plain.groups = [SimpleNamespace(**one, state=one["group_state"]) for one in answer["groups"]]
    elif kind is DescribeGroups:
        plain.groups = [SimpleNamespace(error=one["error_code"], state=one["group_state"]) for one in answer["groups"]]
    elif kind is ShareGroupDescribe:
        plain.groups = [_share_group(one, topics) for one in answer["groups"]]
    return plain


def _share_group(group: Mapping[str, Any], topics: Topics) -> Any:
    members = []
    for member in group["members"]:
        assignment = by_name(member["assignment"]["topic_partitions"], topics)
        members.append(SimpleNamespace(**{**member, "assignment": assignment}))
    names = {"error": group["error_code"], "state": group["group_state"], "assignor": group["assignor_name"]}
    return SimpleNamespace(**{**group, **names, "members": members})


def by_id(partitions: Mapping[str, Any], topics: Topics) -> list[dict[str, Any]]:
    """Partitions by topic name as the protocol lists them."""
    return [{"topic_id": topics[topic].topic_id, "partitions": list(numbers)} for topic, numbers in partitions.items()]


def by_name(listed: list[dict[str, Any]], topics: Topics) -> dict[str, tuple[int, ...]]:
    """Partitions that the protocol lists by topic id, by topic name."""
    names = {topic.topic_id: name for name, topic in topics.items()}
    return {names[one["topic_id"]]: tuple(one["partitions"]) for one in listed}


def _named(request: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(request, name) for name in names}
