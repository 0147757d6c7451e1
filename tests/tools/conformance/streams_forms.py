"""The requests of streams groups in the form of the protocol, and a broker's answers in the form of the simulator's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from groupcoord_spark.simulator.messages.answers import EndpointPartitions
from groupcoord_spark.simulator.messages.requests import InternalTopic, StreamsGroupHeartbeat, Subtopology, Tasks


def streams_form(request: StreamsGroupHeartbeat) -> dict[str, Any]:
    """Return the fields of a heartbeat as its schema names them."""
    endpoint, tags = request.user_endpoint, request.client_tags
    names = ("group_id", "member_id", "member_epoch", "endpoint_information_epoch", "rack_id", "process_id")
    return {
        **{name: getattr(request, name) for name in names},
        "instance_id": request.group_instance_id,
        "rebalance_timeout_ms": -1 if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms,
        "topology": None if request.topology is None else _topology(request.topology.epoch, request.topology.subtopologies),
        "active_tasks": _listed(request.active_tasks),
        "standby_tasks": _listed(request.standby_tasks),
        "warmup_tasks": _listed(request.warmup_tasks),
        "user_endpoint": None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]},
        "client_tags": None if tags is None else [{"key": key, "value": value} for key, value in tags.items()],
        "task_offsets": None if request.task_offsets is None else _offsets(request.task_offsets),
        "task_end_offsets": None,
        "shutdown_application": int(request.shutdown_application),
    }


def _topology(epoch: int, subtopologies: Iterable[Subtopology]) -> dict[str, Any]:
    listed = [
        {
            "subtopology_id": one.subtopology_id,
            "source_topics": list(one.source_topics),
            "source_topic_regex": list(one.source_topic_regex),
            "state_changelog_topics": list(map(_topic, one.state_changelog_topics)),
            "repartition_sink_topics": list(one.repartition_sink_topics),
            "repartition_source_topics": list(map(_topic, one.repartition_source_topics)),
            "copartition_groups": [
                {
                    "source_topics": list(group.source_topics),
                    "source_topic_regex": [],
                    "repartition_source_topics": list(group.repartition_source_topics),
                }
                for group in one.copartition_groups
            ],
        }
        for one in subtopologies
    ]
    return {"epoch": epoch, "subtopologies": listed}


def _topic(topic: InternalTopic) -> dict[str, Any]:
    configs = [{"key": key, "value": value} for key, value in topic.configs]
    return {"name": topic.name, "partitions": topic.partitions, "replication_factor": topic.replication_factor, "topic_configs": configs}


def _listed(tasks: Tasks | None) -> list[dict[str, Any]] | None:
    return None if tasks is None else [{"subtopology_id": name, "partitions": list(numbers)} for name, numbers in tasks.items()]


def _offsets(offsets: Mapping[Any, int]) -> list[dict[str, Any]]:
    return [{"subtopology_id": name, "partition": number, "offset": offset} for (name, number), offset in offsets.items()]


def plain_streams_answer(answer: Mapping[str, Any]) -> Any:
    """Return an answer with the simulator's names of its fields."""
    endpoints = answer["partitions_by_user_endpoint"]
    return SimpleNamespace(
        error=answer["error_code"],
        member_epoch=answer["member_epoch"],
        status=[SimpleNamespace(code=one["status_code"]) for one in answer["status"] or ()],
        active_tasks=_tasks(answer["active_tasks"]),
        standby_tasks=_tasks(answer["standby_tasks"]),
        warmup_tasks=_tasks(answer["warmup_tasks"]),
        endpoint_information_epoch=answer["endpoint_information_epoch"],
        partitions_by_user_endpoint=None if endpoints is None else list(map(_endpoint, endpoints)),
    )


def _tasks(listed: Iterable[Mapping[str, Any]] | None) -> Tasks | None:
    return None if listed is None else {one["subtopology_id"]: tuple(one["partitions"]) for one in listed}


def _endpoint(one: Mapping[str, Any]) -> EndpointPartitions:
    endpoint = one["user_endpoint"]
    active, standby = ({of["topic"]: tuple(of["partitions"]) for of in one[kind]} for kind in ("active_partitions", "standby_partitions"))
    return EndpointPartitions(endpoint["host"], endpoint["port"], active, standby)


def plain_streams_description(answer: Mapping[str, Any]) -> Any:
    """Return the answer to StreamsGroupDescribe with the simulator's names of its fields."""
    return SimpleNamespace(groups=[_group(one) for one in answer["groups"]])


def _group(one: Mapping[str, Any]) -> Any:
    topology = one["topology"] or {"epoch": None, "subtopologies": ()}
    return SimpleNamespace(
        error=one["error_code"],
        state=one["group_state"],
        group_epoch=one["group_epoch"],
        assignment_epoch=one["assignment_epoch"],
        topology_epoch=topology["epoch"],
        subtopologies=[
            SimpleNamespace(
                subtopology_id=of["subtopology_id"],
                source_topics=of["source_topics"],
                repartition_sink_topics=of["repartition_sink_topics"],
                repartition_source_topics={topic["name"]: topic["partitions"] for topic in of["repartition_source_topics"]},
                state_changelog_topics={topic["name"]: topic["partitions"] for topic in of["state_changelog_topics"]},
            )
            for of in topology["subtopologies"] or ()
        ],
        members=list(map(_member, one["members"])),
    )


def _member(one: Mapping[str, Any]) -> Any:
    endpoint = one["user_endpoint"]
    return SimpleNamespace(
        **{name: one[name] for name in ("member_id", "member_epoch", "rack_id", "client_id", "topology_epoch", "process_id")},
        user_endpoint=None if endpoint is None else (endpoint["host"], endpoint["port"]),
        client_tags={tag["key"]: tag["value"] for tag in one["client_tags"]},
        assignment=_of_member(one["assignment"]),
        target=_of_member(one["target_assignment"]),
    )


def _of_member(assignment: Mapping[str, Any]) -> Any:
    return SimpleNamespace(**{kind: _tasks(assignment[f"{kind}_tasks"]) for kind in ("active", "standby", "warmup")})
