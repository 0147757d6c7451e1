"""StreamsGroupHeartbeat: members of streams groups join, get tasks, give them up and leave (KIP-1071; Kafka: ``GroupMetadataManager``).

Rules: docs/reference/coordinator.md, chapter 13.7.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.sticky_tasks import Task, TaskMember, sticky_tasks
from groupcoord_spark.coordinator.groups.streams import ReplayedStreamsGroup
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.broker.group_step import GroupStep, known_topics
from groupcoord_spark.simulator.broker.settings import RACK_AWARE_TAGS_OF_GROUP
from groupcoord_spark.simulator.groups import StreamsGroup, TimerKind
from groupcoord_spark.simulator.groups.modern_group import REFRESH_MS, cancel_timer, metadata_hash
from groupcoord_spark.simulator.groups.streams_group import NO_TASKS
from groupcoord_spark.simulator.groups.streams_tasks import (
    ACTIVE,
    KINDS,
    NOTHING,
    STANDBY,
    UNREVOKED,
    CurrentTasks,
    Owned,
    reconciled,
    tasks_by_subtopology,
)
from groupcoord_spark.simulator.groups.streams_topology import (
    ConfiguredTopology,
    configured_topology,
    is_same_topology,
    required_topics,
    source_subtopologies,
    topology_value,
)
from groupcoord_spark.simulator.handlers.streams.streams_checks import (
    has_unknown_tasks,
    is_fenced,
    reported_tasks,
    request_error,
    topics_error,
)
from groupcoord_spark.simulator.messages import Call, Error, RecordToWrite, RefusedError, WrittenRecord, refuse_if
from groupcoord_spark.simulator.messages.answers import Answer, EndpointPartitions, Status, StatusCode, StreamsGroupHeartbeatAnswer
from groupcoord_spark.simulator.messages.requests import LEFT_FOR_A_WHILE, StreamsGroupHeartbeat, Tasks

INTERNAL_TOPICS_MS: Final = 1
"""How long the simulated cluster takes to make internal topics."""
STANDBY_REPLICAS: Final = "num.standby.replicas"
RACK_AWARE_TAGS: Final = "rack.aware.assignment.tags"
_FIRST_VERSION_WITH_MISSING_TAGS: Final = 1
_EPOCH_FIELDS_OF_STATIC_MEMBERS: Final = ("topology_epoch", "rack_id", "client_tags", "process_id")
"""A change of these fields makes a new group epoch where the member is static; of a dynamic member a change of any field does."""
_NOT_VALIDATED: Final = -1
_FIRST_ASSIGNMENT_EPOCH: Final = 1
"""Of members that wait for the first assignment: in 4.2, too, where a group is made with epoch 0 and gets epoch 2 first, as since 4.3."""


def streams_group_heartbeat(broker: Broker, call: Call, request: StreamsGroupHeartbeat) -> None:
    """Answer with the member's epoch, with its tasks if they are new to the member, and with what keeps the group from more tasks.

    Raises UsageError where every topic exists: nobody knows then how many partitions the sources have.
    """
    if broker.settings.topics is None and request.topology is not None:
        raise UsageError("A streams group needs the topics of the cluster: name those that exist, with their numbers of partitions.")
    refuse_if(topics_error(request, broker.denied))
    if broker.is_active:
        refuse_if(request_error(request, is_since_4_4=broker.release.has_streams_of_4_4))
    refuse_if(coordinator_error(broker, request, request.group_id))
    step = StreamsStep(broker, request.group_id or "")
    step.answer_heartbeat(call)
    if step.configured is not None and step.configured.missing:
        make_internal_topics(broker, request.group_id or "", step.configured.missing)


class _Targets(NamedTuple):
    """Target assignment of one member: the target epoch and its tasks."""

    epoch: int
    of_member: Owned


class StreamsStep(GroupStep[StreamsGroup]):
    """The records of one request or timer. The group changes when they are in the log: until then every rule sees it as it was."""

    kind = StreamsGroup
    changeable = ("last_configs", "configured", "active_processes", "other_processes", "slots")

    def __init__(self, broker: Broker, group_id: str) -> None:
        super().__init__(broker, group_id)
        self.configured: ConfiguredTopology | None = None
        """What the group's topology makes of the topics, once this step has looked at them."""
        self._is_new = self.group is None
        self._deadline_ms: int | None = None
        self._replaced_id: str | None = None
        """The static member in whose place the sender comes back with a new member id."""
        self._topology: Mapping[str, Any] = {}

    def copied(self, group: StreamsGroup | None) -> Mapping[str, Any]:
        """Copy the state that records change, so that the group stays unchanged until their append completes."""
        return super().copied(group) if self.broker.log.is_slow(self.partition) else {}

    def add(self, record: RecordToWrite) -> None:
        """Keep a record for the append."""
        self.records.append(record)

    # Requests

    def heartbeat(self, request: StreamsGroupHeartbeat) -> StreamsGroupHeartbeatAnswer:
        group, member_id = self.group_for(request, ReplayedStreamsGroup(self.broker.release.semantics)), request.member_id
        self._check_size(group, request)
        current = self._current_of(group, request)
        status: list[Status] = []
        old_metadata = group.metadata_of(self._replaced_id or member_id)
        metadata = group.changed_metadata(self._replaced_id or member_id, request)
        if request.member_epoch == 0 and request.user_endpoint is None and self.broker.release.has_streams_of_4_4:
            metadata["user_endpoint"] = None
        if metadata != old_metadata:
            self.records.append(group.member_record(member_id, metadata))
        counts = metadata if request.group_instance_id is None else _EPOCH_FIELDS_OF_STATIC_MEMBERS
        changes = any(metadata[name] != old_metadata[name] for name in counts)
        topology = self._topology = self._topology_for(group, request)
        of_group = group.replayed.topology
        if of_group is not None and metadata["topology_epoch"] < of_group["epoch"]:
            status.append(Status(StatusCode.STALE_TOPOLOGY, f"{metadata['topology_epoch']} < {of_group['epoch']}"))
        epoch, configured = self._group_epoch(group, request, topology, bumps=changes)
        self._start_initial_delay(group)
        targets = self._update_targets(group, epoch, configured, status, {member_id: metadata})
        new_tasks = self._reconcile(group, request, current, metadata, targets)
        endpoint_changed = metadata["user_endpoint"] != old_metadata["user_endpoint"]
        self.restart_session(group, member_id)
        if request.shutdown_application and group.shutdown_by is None:
            group.shutdown_by = member_id
        return self._answer(group, request, current, new_tasks, metadata, status, endpoint_changed=endpoint_changed)

    def leave(self, request: StreamsGroupHeartbeat) -> Answer:
        if self.group is not None and request.shutdown_application and self.group.shutdown_by is None:
            self.group.shutdown_by = request.member_id
        return super().leave(request)

    def bump_epoch(self, group: StreamsGroup) -> None:
        """Make a new group epoch. The next heartbeat looks at the topics."""
        self.add(group.epoch_record(group.epoch + 1, group.metadata_hash))

    def end_initial_delay(self) -> bool:
        """Compute the target assignment after the initial delay. Return False if there is nothing to assign."""
        group = self.group
        if group is None or not group.members or group.configured is None or group.epoch <= group.replayed.assignment_epoch:
            return False
        self._update_targets(group, group.epoch, group.configured, [], {})
        self.write()
        return bool(self.records)

    # Steps of a heartbeat

    def _check_size(self, group: StreamsGroup, request: StreamsGroupHeartbeat) -> None:
        is_known = self.broker.release.size_limit_spares_known_members and (
            request.member_id in group.members or group.static_member_id(request.group_instance_id or "") is not None
        )
        if request.member_epoch == 0 and not is_known and len(group.members) >= self.broker.settings.group_streams_max_size:
            raise RefusedError(Error.GROUP_MAX_SIZE_REACHED)

    def _replace(self, group: StreamsGroup, old_id: str, new_id: str) -> CurrentTasks:
        """Replace a static member that returns; it keeps its target and its tasks. Raises RefusedError if it has not left."""
        current = group.current_of(old_id)
        if current.epoch != LEFT_FOR_A_WHILE:
            raise RefusedError(Error.UNRELEASED_INSTANCE_ID)
        self._replaced_id, current = old_id, current._replace(epoch=0, previous_epoch=0)
        self.replace_member(group, old_id, new_id, current)
        return current

    def _current_of(self, group: StreamsGroup, request: StreamsGroupHeartbeat) -> CurrentTasks:
        """Return the member's tasks. Raises RefusedError if no member may send this epoch."""
        if request.group_instance_id is not None and request.member_epoch == 0:
            static_id = group.static_member_id(request.group_instance_id)
            return group.current_of(request.member_id) if static_id is None else self._replace(group, static_id, request.member_id)
        refuse_if(group.static_error(request.member_id, request.group_instance_id))
        if request.member_id not in group.members and request.member_epoch != 0:
            raise RefusedError(Error.UNKNOWN_MEMBER_ID)
        current = group.current_of(request.member_id)
        if is_fenced(current, request):
            raise RefusedError(Error.FENCED_MEMBER_EPOCH)
        return current

    def _topology_for(self, group: StreamsGroup, request: StreamsGroupHeartbeat) -> Mapping[str, Any]:
        """Return the topology of the group, which its first member sets. Raises RefusedError if the request has a different one."""
        of_group: Mapping[str, Any] | None = group.replayed.topology
        if request.topology is None:
            if of_group is None:
                raise RefusedError(Error.UNKNOWN_SERVER_ERROR)
            return of_group
        value = topology_value(request.topology)
        if of_group is None:
            self.records.append(group.topology_record(value))
            return value
        if of_group["epoch"] <= value["epoch"] and not is_same_topology(of_group, value):
            raise RefusedError(Error.INVALID_REQUEST)
        return of_group

    def _group_epoch(
        self, group: StreamsGroup, request: StreamsGroupHeartbeat, topology: Mapping[str, Any], *, bumps: bool
    ) -> tuple[int, ConfiguredTopology]:
        """Return the group epoch and the configured topology. A change of the topology, the topics or a setting starts a new epoch."""
        configured, new_hash = group.configured, group.metadata_hash
        is_old = group.refreshes_metadata or self.broker.now_ms >= group.metadata_deadline_ms
        if configured is None or is_old:
            topics = known_topics(self.broker, required_topics(topology))
            new_hash = metadata_hash(topics)
            bumps = bumps or new_hash != group.metadata_hash
            if configured is None or new_hash != group.metadata_hash:
                configured = configured_topology(topology, topics)
        self.configured = configured
        if configured.is_ready and has_unknown_tasks(request, configured):
            raise RefusedError(Error.INVALID_REQUEST)
        if request.task_offsets is not None:
            group.task_offsets[request.member_id] = request.task_offsets
        validated, configs = topology["epoch"] if configured.is_ready else _NOT_VALIDATED, self._configs()
        bumps = bumps or validated != group.replayed.validated_topology_epoch or configs != group.last_configs
        if not bumps:
            return group.epoch, configured
        self._deadline_ms = self.broker.now_ms + REFRESH_MS
        epoch = max(group.epoch, _FIRST_ASSIGNMENT_EPOCH) + 1
        self.records.append(group.configured_epoch_record(epoch, new_hash, validated, configs))
        return epoch, configured

    def _configs(self) -> dict[str, str]:
        tags = self._rack_aware_tags()
        configs = {STANDBY_REPLICAS: str(self._setting("streams.num.standby.replicas"))}
        return {**configs, RACK_AWARE_TAGS: ",".join(tags)} if tags else configs

    def _metadata(self, group: StreamsGroup) -> dict[str, Mapping[str, Any]]:
        """Member id -> metadata, in the order of Kafka's map of members. Without a static member that is being replaced."""
        return {member_id: group.metadata_of(member_id) for member_id in group.members_in_order() if member_id != self._replaced_id}

    def _start_initial_delay(self, group: StreamsGroup) -> None:
        """Let an Empty group wait for more members, unless it waits already."""
        delay_ms, delays = self._setting("streams.initial.rebalance.delay.ms"), self.partition.streams_initial_delays
        if not group.members and delay_ms > 0 and self.group_id not in delays:
            fire = partial(_end_initial_delay, self.broker, self.group_id)
            delays[self.group_id] = self.broker.clock.start(TimerKind.INITIAL_DELAY, delay_ms, self.group_id, "", fire)

    def _update_targets(
        self,
        group: StreamsGroup,
        epoch: int,
        configured: ConfiguredTopology,
        status: list[Status],
        sending: Mapping[str, Mapping[str, Any]],
    ) -> _Targets:
        """Compute the target assignment of a new group epoch, once in an interval (KIP-1263) and not while the group waits for members.

        sending: id -> metadata of the member that sends the heartbeat, whose tasks are asked for; empty: a timer asks.
        """
        sender = next(iter(sending), None)
        of_sender = NO_TASKS if sender is None else group.target_of(self._replaced_id or sender)
        configs = group.last_configs if sender is None else self._configs()
        last_epoch, last_ms = group.replayed.assignment_epoch, group.assignment_timestamp_ms
        if self.group_id in self.partition.streams_initial_delays:
            status.append(Status(StatusCode.ASSIGNMENT_DELAYED, "streams.initial.rebalance.delay.ms"))
            return _Targets(max(last_epoch, _FIRST_ASSIGNMENT_EPOCH), NO_TASKS)
        if last_epoch >= epoch:
            return _Targets(last_epoch, of_sender)
        interval_ms = self._setting("streams.assignment.interval.ms")
        if last_ms and interval_ms and self.broker.now_ms < last_ms + interval_ms:
            status.append(Status(StatusCode.ASSIGNMENT_DELAYED, "streams.assignment.interval.ms"))
            return _Targets(last_epoch, of_sender)
        members = {**self._metadata(group), **sending}
        old_targets = {member_id: group.target_of(member_id) for member_id in members} | dict.fromkeys(sending, of_sender)
        before: Mapping[str, Mapping[str, Iterable[Task]]] = old_targets
        if self.broker.release.has_streams_of_4_4:
            ids = {member_id: self._replaced_id or member_id if member_id == sender else member_id for member_id in members}
            before = {member_id: group.current_of(id_).assigned for member_id, id_ in ids.items()}
        of_members = {
            member_id: TaskMember(
                metadata["process_id"], before[member_id][ACTIVE], before[member_id][STANDBY], group.task_offsets.get(member_id, {})
            )
            for member_id, metadata in members.items()
        }
        targets = self._targets(of_members, configured, int(configs.get(STANDBY_REPLICAS, 0)))
        has_target = {*group.replayed.targets, *(sending if self._replaced_id is not None else ())}
        for member_id in in_hash_order(members, hash_of_text):
            if member_id not in has_target or targets[member_id] != old_targets[member_id]:
                self.records.append(group.target_record(member_id, targets[member_id]))
        self.records.append(group.target_epoch_record(epoch, self.target_timestamp_ms))
        return _Targets(epoch, of_sender if sender is None else targets[sender])

    def _targets(self, members: Mapping[str, TaskMember], configured: ConfiguredTopology, replicas: int) -> dict[str, Owned]:
        """Compute the target assignment; it is empty while topics are missing or do not fit."""
        if configured.subtopologies is None or not configured.is_ready:
            return dict.fromkeys(members, NO_TASKS)
        release = self.broker.release
        assigned = sticky_tasks(
            members,
            configured.subtopologies,
            replicas,
            passes_over_holders=release.sticky_passes_over_holders,
            computes_processes=release.has_streams_of_4_4,
        )
        return {member_id: {**NO_TASKS, ACTIVE: tasks.active, STANDBY: tasks.standby} for member_id, tasks in assigned.items()}

    def _reconcile(
        self, group: StreamsGroup, request: StreamsGroupHeartbeat, current: CurrentTasks, metadata: Mapping[str, Any], targets: _Targets
    ) -> CurrentTasks:
        """Move the member one step towards its target."""
        process_id: str = metadata["process_id"]
        changes_roles = self.broker.release.has_streams_of_4_4
        own = current.assigned if changes_roles else NOTHING
        new_tasks = reconciled(
            current,
            targets.of_member,
            targets.epoch,
            reported_tasks(request),
            lambda kind, task: group.is_held(kind, task, process_id, own),
            changes_roles=changes_roles,
        )
        if new_tasks is None:
            raise RefusedError(Error.FENCED_MEMBER_EPOCH)
        if new_tasks != current:
            self.records.append(group.assignment_record(request.member_id, new_tasks))
            cancel_timer(group.rebalance_timers, request.member_id)
            if new_tasks.state == UNREVOKED:
                self.start_rebalance_timer(group, request.member_id, new_tasks.epoch, metadata["rebalance_timeout_ms"])
        return new_tasks

    def session_timeout_ms(self, group: StreamsGroup, member_id: str) -> int:
        return int(self._setting("streams.session.timeout.ms"))

    def _setting(self, name: str) -> Any:
        return self.broker.streams_setting(self.group_id, name)

    def _rack_aware_tags(self) -> list[str]:
        """Return the client tags that standbys are distributed by."""
        return [tag.strip() for tag in self._setting(RACK_AWARE_TAGS_OF_GROUP).split(",") if tag.strip()]

    def _answer(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeat,
        old_tasks: CurrentTasks,
        new_tasks: CurrentTasks,
        metadata: Mapping[str, Any],
        status: list[Status],
        *,
        endpoint_changed: bool,
    ) -> StreamsGroupHeartbeatAnswer:
        tasks_changed = new_tasks.assigned != old_tasks.assigned
        shows = request.member_epoch == 0 or tasks_changed
        has_endpoint = metadata["user_endpoint"] is not None
        if self.broker.release.has_streams_of_4_4:
            group.endpoint_epoch += endpoint_changed or (tasks_changed and has_endpoint)
        else:
            group.endpoint_epoch += shows and has_endpoint
        endpoints = None
        if group.endpoint_epoch != request.endpoint_information_epoch:
            endpoints = self._endpoints(group, request.member_id, metadata, new_tasks)
        if self.configured is not None and self.configured.problem is not None:
            status.append(self.configured.problem)
        if group.shutdown_by is not None:
            status.append(Status(StatusCode.SHUTDOWN_APPLICATION, group.shutdown_by))
        tags = {tag["key"] for tag in metadata["client_tags"]}
        missing = [tag for tag in self._rack_aware_tags() if tag not in tags]
        if missing and self.broker.release.version_of(request) >= _FIRST_VERSION_WITH_MISSING_TAGS:
            status.append(Status(StatusCode.MISSING_CLIENT_TAGS, ", ".join(missing)))
        is_known = self.group_id in self.partition.groups
        return StreamsGroupHeartbeatAnswer(
            Error.NONE,
            request.member_id,
            new_tasks.epoch,
            self._setting("streams.heartbeat.interval.ms"),
            status=tuple(status),
            task_offset_interval_ms=self._setting("streams.task.offset.interval.ms"),
            acceptable_recovery_lag=self._setting("streams.acceptable.recovery.lag"),
            endpoint_information_epoch=group.endpoint_epoch if is_known else 0,
            partitions_by_user_endpoint=endpoints,
            **{f"{kind}_tasks": tasks_by_subtopology(new_tasks.assigned[kind]) for kind in KINDS if shows},
        )

    def _endpoints(
        self, group: StreamsGroup, member_id: str, metadata: Mapping[str, Any], new_tasks: CurrentTasks
    ) -> tuple[EndpointPartitions, ...]:
        """Return the partitions of each member that has an endpoint, the sender last. Kafka fails while the topics do not fit."""
        members = [(name, group.metadata_of(name), group.current_of(name)) for name in self._metadata(group) if name != member_id]
        with_endpoint = [(of, tasks) for _, of, tasks in (*members, (member_id, metadata, new_tasks)) if of["user_endpoint"] is not None]
        if with_endpoint and (self.configured is None or self.configured.subtopologies is None):
            raise RefusedError(Error.UNKNOWN_SERVER_ERROR)
        topics = known_topics(self.broker, required_topics(self._topology))
        return tuple(_endpoint_partitions(of["user_endpoint"], tasks, self._topology, topics) for of, tasks in with_endpoint)

    # Records

    def finish(self, written: list[WrittenRecord]) -> None:
        """Apply the records after they have been written."""
        super().finish(written)
        group = self.group
        assert group is not None
        if self._is_new:
            group.shutdown_by, group.endpoint_epoch, group.task_offsets = None, 0, {}
        elif self.configured is not None:
            group.configured, group.refreshes_metadata = self.configured, False
            group.metadata_deadline_ms = group.metadata_deadline_ms if self._deadline_ms is None else self._deadline_ms
        for record, in_log in zip(self.records, written, strict=True):
            if record.key_type != KeyType.GROUP_METADATA:
                group.apply(in_log.record_offset, record)

    @classmethod
    def load(cls, broker: Broker, group_id: str, replayed: Any, records: Iterable[WrittenRecord]) -> None:
        """Load a group from its records, and remember which process has each task."""
        super().load(broker, group_id, replayed, records)
        group = broker.group_of(group_id, StreamsGroup)
        assert group is not None
        for member_id in group.members:
            group.note_tasks(member_id)


def _endpoint_partitions(
    endpoint: Mapping[str, Any], tasks: CurrentTasks, topology: Mapping[str, Any], topics: Mapping[str, int]
) -> EndpointPartitions:
    """Return the partitions of a member's tasks, which it can answer queries about (KIP-535; Kafka: ``EndpointToPartitionsManager``)."""
    active, standby = (_source_partitions(tasks.assigned[kind], topology, topics) for kind in ("active", "standby"))
    return EndpointPartitions(endpoint["host"], endpoint["port"], active, standby)


def _source_partitions(tasks: Iterable[Task], topology: Mapping[str, Any], topics: Mapping[str, int]) -> Tasks:
    """Topic -> partitions. As in Kafka, a topic with fewer partitions than the member has tasks gets the first numbers of the tasks."""
    partitions: dict[str, tuple[int, ...]] = {}
    by_subtopology = tasks_by_subtopology(tasks)
    for topic, subtopology in sorted(source_subtopologies(topology).items()):
        if subtopology not in by_subtopology:
            continue
        if topic not in topics:
            raise RefusedError(Error.UNKNOWN_SERVER_ERROR)
        partitions[topic] = by_subtopology[subtopology][: topics[topic]]
    return partitions


# Timers


def _end_initial_delay(broker: Broker, group_id: str) -> bool:
    """End the wait for further members and compute the target assignment."""
    broker.partition_of(group_id).streams_initial_delays.pop(group_id, None)
    return StreamsStep(broker, group_id).end_initial_delay()


# Topics


def make_internal_topics(broker: Broker, group_id: str, topics: Mapping[str, int]) -> None:
    """Have the cluster make the internal topics of a group. topics: name -> partitions."""

    def fire() -> bool:
        missing = {topic: count for topic, count in topics.items() if topic not in (broker.settings.topics or {})}
        for topic, count in missing.items():
            broker.settings = broker.settings.with_topic(topic, count)
        if missing:
            broker.topics_have_changed()
        return bool(missing)

    broker.clock.start(TimerKind.INTERNAL_TOPICS, INTERNAL_TOPICS_MS, group_id, "", fire)
