"""StreamsGroupDescribe: the state, the epochs, the topology and the members of streams groups (docs/reference/coordinator.md, 13.7)."""

from __future__ import annotations

from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.broker.coordinator_checks import coordinator_error
from groupcoord_spark.simulator.groups.streams_group import StreamsGroup
from groupcoord_spark.simulator.groups.streams_tasks import KINDS, tasks_by_subtopology
from groupcoord_spark.simulator.groups.streams_topology import required_topics
from groupcoord_spark.simulator.messages.calls import Call
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.streams_answers import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    MemberTasks,
    StreamsGroupDescribeAnswer,
)
from groupcoord_spark.simulator.messages.streams_requests import StreamsGroupDescribe


def streams_group_describe(broker: Broker, call: Call, request: StreamsGroupDescribe) -> None:
    """Answer with the state, the epochs, the topology and the members of each streams group."""
    broker.answer(call, StreamsGroupDescribeAnswer(tuple(_described(broker, group_id) for group_id in request.group_ids)))


def _described(broker: Broker, group_id: str) -> DescribedStreamsGroup:
    error = coordinator_error(broker, StreamsGroupDescribe, group_id)
    group = broker.shown_of(group_id, StreamsGroup) if error is Error.NONE else None
    if group is None:
        return DescribedStreamsGroup(group_id, error if error is not Error.NONE else Error.GROUP_ID_NOT_FOUND)
    replayed = group.replayed
    if replayed.topology is None:
        return DescribedStreamsGroup(group_id, Error.UNKNOWN_SERVER_ERROR)
    if required_topics(replayed.topology) & broker.denied.topics:
        return DescribedStreamsGroup(group_id, Error.TOPIC_AUTHORIZATION_FAILED)
    return DescribedStreamsGroup(
        group_id,
        Error.NONE,
        replayed.state,
        group.epoch,
        replayed.assignment_epoch,
        replayed.topology_epoch,
        _subtopologies(group),
        tuple(_member(group, member_id) for member_id in group.members_in_order()),
    )


def _subtopologies(group: StreamsGroup) -> tuple[DescribedSubtopology, ...]:
    """The subtopologies by id. Internal topics have the number of partitions that was decided for them once the topology is ready."""
    topology, configured = group.replayed.topology or {"subtopologies": []}, group.configured
    decided = configured.internal_topics if configured is not None and configured.is_ready else {}
    return tuple(
        DescribedSubtopology(
            one["subtopology_id"],
            tuple(sorted(one["source_topics"])),
            tuple(sorted(one["repartition_sink_topics"])),
            {topic["name"]: decided.get(topic["name"], topic["partitions"]) for topic in one["repartition_source_topics"]},
            {topic["name"]: decided.get(topic["name"], topic["partitions"]) for topic in one["state_changelog_topics"]},
        )
        for one in sorted(topology["subtopologies"], key=lambda one: str(one["subtopology_id"]))
    )


def _member(group: StreamsGroup, member_id: str) -> DescribedStreamsMember:
    metadata, current, target = group.metadata_of(member_id), group.current_of(member_id), group.target_of(member_id)
    endpoint = metadata["user_endpoint"]
    return DescribedStreamsMember(
        member_id,
        current.epoch,
        metadata["rack_id"],
        metadata["client_id"],
        metadata["topology_epoch"],
        metadata["process_id"],
        None if endpoint is None else (endpoint["host"], endpoint["port"]),
        {tag["key"]: tag["value"] for tag in metadata["client_tags"]},
        MemberTasks(*(tasks_by_subtopology(current.assigned[kind]) for kind in KINDS)),
        MemberTasks(*(tasks_by_subtopology(target[kind]) for kind in KINDS)),
    )
