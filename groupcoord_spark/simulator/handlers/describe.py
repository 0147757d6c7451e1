"""FindCoordinator, ListGroups and the descriptions of groups: requests that change nothing.

Rules: docs/reference/coordinator.md, chapters 3.1, 9.6 and 13.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS
from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.broker.group_step import topic_names, with_names
from groupcoord_spark.simulator.groups import ClassicGroup, ConsumerGroup, GroupState, ShareGroup, StreamsGroup, TimerKind
from groupcoord_spark.simulator.groups.consumer_group import Partition, current_assignment
from groupcoord_spark.simulator.groups.streams_tasks import KINDS, tasks_by_subtopology
from groupcoord_spark.simulator.groups.streams_topology import required_topics
from groupcoord_spark.simulator.messages import Call, Error, RefusedError, answers, requests
from groupcoord_spark.simulator.messages.calls import DESCRIPTIONS
from groupcoord_spark.simulator.messages.partition_lists import by_topic, topic_partitions

FIRST_VERSION_WITH_SEVERAL_KEYS = 4
OFFSETS_TOPIC_CREATION_MS = 500
"""How long the simulated cluster takes to create ``__consumer_offsets`` and to elect its leaders. A real one takes about as long."""


def find_coordinator(broker: Broker, call: Call, request: requests.FindCoordinator) -> None:
    """Answer with the offsets partition of each group, whose leader is the group's coordinator."""
    version = broker.release.version_of(request)
    if not broker.offsets_topic_exists and broker.offsets_topic_timer is None:
        broker.offsets_topic_timer = broker.clock.start(
            TimerKind.OFFSETS_TOPIC, OFFSETS_TOPIC_CREATION_MS, "", "", partial(_create_offsets_topic, broker)
        )
    coordinators = []
    for key in request.keys:
        if not broker.offsets_topic_exists:
            coordinators.append(answers.FoundCoordinator(key, Error.COORDINATOR_NOT_AVAILABLE, -1))
        elif not key and version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
            coordinators.append(answers.FoundCoordinator(key, Error.INVALID_GROUP_ID, -1))
        else:
            coordinators.append(answers.FoundCoordinator(key, Error.NONE, broker.partition_number(key)))
    broker.answer(call, answers.FindCoordinatorAnswer(tuple(coordinators)))


def _create_offsets_topic(broker: Broker) -> bool:
    broker.offsets_topic_exists = True
    broker.lead_all_partitions()
    return True


def describe_groups(broker: Broker, call: Call, request: requests.DescribeGroups) -> None:
    """Answer with the current state and members of each group."""
    broker.answer(call, answers.Descriptions(tuple(describe_group(broker, request, group_id) for group_id in request.group_ids)))


def describe_group(broker: Broker, request: requests.DescribeGroups, group_id: str) -> answers.DescribedGroup:
    """Return the current state and members of a group in this version of DescribeGroups."""
    error = coordinator_error(broker, request, group_id)
    if error is not Error.NONE:
        return answers.DescribedGroup(group_id, error)
    group = broker.shown_of(group_id, ClassicGroup)
    if group is None or group.is_dead:
        since = broker.release.unknown_group_is_error_since
        is_error = since is not None and broker.release.version_of(request) >= since
        return answers.DescribedGroup(group_id, Error.GROUP_ID_NOT_FOUND if is_error else Error.NONE, GroupState.DEAD.value)
    is_stable = group.state is GroupState.STABLE
    if is_stable and group.protocol is None:
        # A Stable group without a protocol comes only from a record that no broker writes; the broker throws IllegalStateException.
        return answers.DescribedGroup(group_id, Error.UNKNOWN_SERVER_ERROR)
    members = tuple(
        answers.DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata_for(group.protocol) if is_stable else b"",
            member.assignment if is_stable or broker.release.shows_last_assignment else b"",
        )
        for member in group.members
    )
    protocol = (group.protocol or "") if is_stable else ""
    return answers.DescribedGroup(group_id, Error.NONE, broker.state_name(group), group.protocol_type or "", protocol, members)


def list_groups(broker: Broker, call: Call, request: requests.ListGroups) -> None:
    """Answer with the groups of all offsets partitions that the broker leads."""
    if not broker.is_active:
        raise RefusedError(Error.COORDINATOR_NOT_AVAILABLE)
    if any(partition.is_loading for partition in broker.partitions.values()):
        raise RefusedError(Error.COORDINATOR_LOAD_IN_PROGRESS)
    ignores_case = broker.release.state_filter_ignores_case
    wanted_states = {state.lower() if ignores_case else state for state in request.states}
    wanted_types = {group_type.lower() for group_type in request.types}
    listed = []

    def is_wanted(name: str, group_type: str) -> bool:
        return (not wanted_types or group_type in wanted_types) and (
            not wanted_states or (name.lower() if ignores_case else name) in wanted_states
        )

    for partition in broker.partitions.values():
        for group in filter(None, partition.shown_groups().values()):
            name = broker.state_name(group)
            if is_wanted(name, group.group_type):
                listed.append(answers.ListedGroup(group.group_id, group.protocol_type or "", name, group.group_type))
    broker.answer(call, answers.ListGroupsAnswer(Error.NONE, tuple(sorted(listed))))


def describe_modern_groups(
    broker: Broker, call: Call, request: requests.ConsumerGroupDescribe | requests.ShareGroupDescribe | requests.StreamsGroupDescribe
) -> None:
    """Answer with the state, the epochs and the members of each consumer, share or streams group."""
    described_group = DESCRIPTIONS[type(request)]
    kind, describe = _MODERN_GROUPS[type(request)]
    described = []
    for group_id in request.group_ids:
        error = coordinator_error(broker, request, group_id)
        group = broker.shown_of(group_id, kind) if error is Error.NONE else None
        if group is None:
            described.append(described_group(group_id, error if error is not Error.NONE else Error.GROUP_ID_NOT_FOUND))
        else:
            described.append(describe(broker, group))
    broker.answer(call, answers.Descriptions(tuple(described)))


def _consumer_group(broker: Broker, group: ConsumerGroup) -> answers.DescribedConsumerGroup:
    names = topic_names(broker)

    def listed(partitions: Iterable[Partition]) -> dict[str, tuple[int, ...]]:
        return by_topic(sorted((names[topic_id], number) for topic_id, number in partitions if topic_id in names))

    members = []
    for member_id, member in group.members.items():
        metadata, current = member.metadata or {}, current_assignment(member)
        shown = {**current.assigned, **(current.pending_revocation if broker.release.semantics.describes_pending_revocation else {})}
        members.append(
            answers.DescribedConsumer(
                member_id,
                metadata.get("instance_id"),
                metadata.get("client_id", ""),
                member.member_epoch,
                tuple(metadata.get("subscribed_topic_names", ())),
                metadata.get("subscribed_topic_regex") or None,
                listed(shown),
                listed(group.target_of(member_id)),
            )
        )
    replayed = group.replayed
    assignor = replayed.protocol(KAFKAS_ASSIGNORS)
    return answers.DescribedConsumerGroup(
        group.group_id, Error.NONE, replayed.state, group.epoch, replayed.assignment_epoch, assignor, tuple(members)
    )


def _share_group(broker: Broker, group: ShareGroup) -> answers.DescribedShareGroup:
    replayed = group.replayed
    members = tuple(
        answers.DescribedShareMember(
            member_id,
            group.metadata_of(member_id)["client_id"],
            member.member_epoch,
            tuple(group.metadata_of(member_id)["subscribed_topic_names"]),
            with_names(broker, topic_partitions(group.assigned_to(member_id))),
        )
        for member_id, member in group.members.items()
    )
    return answers.DescribedShareGroup(
        group.group_id, Error.NONE, replayed.state, group.epoch, replayed.assignment_epoch, KAFKAS_ASSIGNORS.share, members
    )


def _streams_group(broker: Broker, group: StreamsGroup) -> answers.DescribedStreamsGroup:
    replayed = group.replayed
    if replayed.topology is None:
        return answers.DescribedStreamsGroup(group.group_id, Error.UNKNOWN_SERVER_ERROR)
    if required_topics(replayed.topology) & broker.denied.topics:
        return answers.DescribedStreamsGroup(group.group_id, Error.TOPIC_AUTHORIZATION_FAILED)
    return answers.DescribedStreamsGroup(
        group.group_id,
        Error.NONE,
        replayed.state,
        group.epoch,
        replayed.assignment_epoch,
        replayed.topology_epoch,
        _subtopologies(group),
        tuple(_streams_member(group, member_id) for member_id in group.members_in_order()),
    )


def _subtopologies(group: StreamsGroup) -> tuple[answers.DescribedSubtopology, ...]:
    """Return the subtopologies by id. Once the topology is ready, internal topics have their decided partition counts."""
    topology, configured = group.replayed.topology or {"subtopologies": []}, group.configured
    decided = configured.internal_topics if configured is not None and configured.is_ready else {}
    return tuple(
        answers.DescribedSubtopology(
            subtopology["subtopology_id"],
            tuple(sorted(subtopology["source_topics"])),
            tuple(sorted(subtopology["repartition_sink_topics"])),
            {topic["name"]: decided.get(topic["name"], topic["partitions"]) for topic in subtopology["repartition_source_topics"]},
            {topic["name"]: decided.get(topic["name"], topic["partitions"]) for topic in subtopology["state_changelog_topics"]},
        )
        for subtopology in sorted(topology["subtopologies"], key=lambda subtopology: str(subtopology["subtopology_id"]))
    )


def _streams_member(group: StreamsGroup, member_id: str) -> answers.DescribedStreamsMember:
    metadata, current, target = group.metadata_of(member_id), group.current_of(member_id), group.target_of(member_id)
    endpoint = metadata["user_endpoint"]
    return answers.DescribedStreamsMember(
        member_id,
        current.epoch,
        metadata["rack_id"],
        metadata["client_id"],
        metadata["topology_epoch"],
        metadata["process_id"],
        None if endpoint is None else (endpoint["host"], endpoint["port"]),
        {tag["key"]: tag["value"] for tag in metadata["client_tags"]},
        answers.MemberTasks(*(tasks_by_subtopology(current.assigned[kind]) for kind in KINDS)),
        answers.MemberTasks(*(tasks_by_subtopology(target[kind]) for kind in KINDS)),
    )


_MODERN_GROUPS: Final[Mapping[type, tuple[type[Any], Callable[[Broker, Any], Any]]]] = {
    requests.ConsumerGroupDescribe: (ConsumerGroup, _consumer_group),
    requests.ShareGroupDescribe: (ShareGroup, _share_group),
    requests.StreamsGroupDescribe: (StreamsGroup, _streams_group),
}
"""Request -> the kind of groups that it asks for, and how one of them is described."""
