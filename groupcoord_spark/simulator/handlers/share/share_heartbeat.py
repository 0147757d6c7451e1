"""ShareGroupHeartbeat: members of share groups join, get partitions and leave (KIP-932; Kafka: ``GroupMetadataManager``).

A member takes its target over at once, since several members may have the same partition: there is nothing to wait for.
Rules: docs/reference/coordinator.md, chapter 13.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.simple import simple_assignment
from groupcoord_spark.coordinator.groups.share import ShareGroup as ReplayedGroup
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.broker.coordinator_checks import coordinator_error
from groupcoord_spark.simulator.broker.group_step import REFRESH_MS, RETRY_MS, GroupStep, known_topics, topic_ids, topic_names
from groupcoord_spark.simulator.groups.clock import TimerKind
from groupcoord_spark.simulator.groups.consumer_group import metadata_hash
from groupcoord_spark.simulator.groups.share_group import (
    ShareGroup,
    assignment_record,
    epoch_record,
    group_tombstones,
    member_record,
    partitions_by_topic,
    removal_records,
    state_record,
    target_epoch_record,
    target_record,
)
from groupcoord_spark.simulator.messages.answers import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareGroupDescribeAnswer,
    ShareGroupHeartbeatAnswer,
)
from groupcoord_spark.simulator.messages.calls import Call
from groupcoord_spark.simulator.messages.errors import Error, RefusedError
from groupcoord_spark.simulator.messages.records import WrittenRecord
from groupcoord_spark.simulator.messages.requests import LEAVE_EPOCH, ShareGroupDescribe, ShareGroupHeartbeat

SHARE_STATE_MS: Final = 1
"""How long the share coordinator of the simulated cluster takes to make the state of partitions."""
ASSIGNOR: Final = "simple"


def share_group_heartbeat(broker: Broker, call: Call, request: ShareGroupHeartbeat) -> None:
    """Answer with the member's epoch, and with its assignment if that is new to the member."""
    error = coordinator_error(broker, ShareGroupHeartbeat, request.group_id)
    if error is Error.INVALID_GROUP_ID or (error is Error.NONE and _is_incomplete(request)):
        error = Error.INVALID_REQUEST
    if error is not Error.NONE:
        broker.answer(call, ShareGroupHeartbeatAnswer(error))
        return
    step = ShareStep(broker, request.group_id or "")
    try:
        answer = step.leave(request) if request.member_epoch == LEAVE_EPOCH else step.heartbeat(request)
    except RefusedError as refused:
        step.undo()
        broker.answer(call, ShareGroupHeartbeatAnswer(refused.error))
        return
    error = step.write()
    broker.answer(call, answer if error is Error.NONE else ShareGroupHeartbeatAnswer(error))


def _is_incomplete(request: ShareGroupHeartbeat) -> bool:
    joins_without_topics = request.member_epoch == 0 and not request.topics
    return (
        not request.group_id or not request.member_id or request.rack_id == "" or request.member_epoch < LEAVE_EPOCH or joins_without_topics
    )


class ShareStep(GroupStep):
    """The records of one request or timer, and the share group to which they are applied."""

    group: ShareGroup | None

    def __init__(self, broker: Broker, group_id: str) -> None:
        super().__init__(broker, group_id)
        self.group = self.partition.share_groups.get(group_id)
        if self.group is not None:
            self.remember(self.group, _CHANGEABLE)

    # Requests

    def heartbeat(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatAnswer:
        """One heartbeat of a member that joins or stays."""
        group, member_id = self._group_for(request), request.member_id
        self._check_member(group, request)
        before = group.members[member_id].metadata if member_id in group.members else None
        metadata = _changed_metadata(before, request)
        if metadata != before:
            self.add(member_record(self.group_id, member_id, metadata))
        topics_changed = before is None or before["subscribed_topic_names"] != metadata["subscribed_topic_names"]
        self._refresh_metadata(group, bumps=topics_changed or self._has_unassigned_topics(group))
        self._update_targets(group)
        assigned_before = group.assigned_to(member_id)
        self._take_target_over(group, member_id)
        self._initialize(group)
        self.restart_session(group, member_id)
        assigned = group.assigned_to(member_id)
        shows = request.member_epoch == 0 or request.topics is not None or assigned != assigned_before
        return ShareGroupHeartbeatAnswer(
            Error.NONE,
            member_id,
            group.members[member_id].member_epoch,
            self.broker.settings.group_share_heartbeat_interval_ms,
            _with_names(self.broker, assigned) if shows else None,
        )

    def leave(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatAnswer:
        """A member leaves."""
        group = self.group
        if group is None:
            raise RefusedError(Error.GROUP_ID_NOT_FOUND)
        if request.member_id not in group.members:
            raise RefusedError(Error.UNKNOWN_MEMBER_ID)
        self.remove(group, request.member_id)
        return ShareGroupHeartbeatAnswer(Error.NONE, request.member_id, request.member_epoch)

    def remove(self, group: ShareGroup, member_id: str) -> None:
        """Remove a member: its tombstones, and a new group epoch."""
        for record in removal_records(self.group_id, member_id):
            self.add(record)
        # The broker stops the timer before it writes, and a failed append does not start it again.
        group.cancel_session(member_id)
        group.metadata_hash = metadata_hash(known_topics(self.broker, group.replayed.subscribed_topics))
        self.add(epoch_record(self.group_id, group.epoch + 1, group.metadata_hash))

    # Steps of a heartbeat

    def _group_for(self, request: ShareGroupHeartbeat) -> ShareGroup:
        """The share group. A first heartbeat creates it, if the id belongs to no group of another type."""
        if self.group is None:
            others = (self.partition.groups, self.partition.consumer_groups, self.partition.streams_groups)
            if request.member_epoch != 0 or any(self.group_id in groups for groups in others):
                raise RefusedError(Error.GROUP_ID_NOT_FOUND)
            self.group = ShareGroup(self.group_id, ReplayedGroup(self.broker.release.semantics))
        return self.group

    def _check_member(self, group: ShareGroup, request: ShareGroupHeartbeat) -> None:
        member, epoch = group.members.get(request.member_id), request.member_epoch
        if member is None:
            if epoch != 0:
                raise RefusedError(Error.UNKNOWN_MEMBER_ID)
            if len(group.members) >= self.broker.settings.group_share_max_size:
                raise RefusedError(Error.GROUP_MAX_SIZE_REACHED)
        elif epoch not in (0, member.member_epoch, member.previous_member_epoch):
            raise RefusedError(Error.FENCED_MEMBER_EPOCH)

    def _has_unassigned_topics(self, group: ShareGroup) -> bool:
        """Whether the state of a partition has been made since the last target, so that nobody has the partition.

        A group epoch that is newer than the target needs no further one: the target is computed anew in any case.
        """
        if group.epoch > group.replayed.assignment_epoch:
            return False
        assigned: dict[str, set[int]] = {}
        for member_id in group.members:
            for topic_id, numbers in group.target_of(member_id).items():
                assigned.setdefault(topic_id, set()).update(numbers)
        subscribed = {topic_ids(self.broker).get(name) for name in group.replayed.subscribed_topics}
        return any(topic in subscribed and numbers - assigned.get(topic, set()) for topic, numbers in group.initialized.items())

    def _refresh_metadata(self, group: ShareGroup, *, bumps: bool) -> None:
        """Look at the topics of the group. A change of them, or of what is to be assigned (``bumps``), makes a new group epoch."""
        if not bumps and not group.refreshes_metadata and self.broker.now_ms < group.metadata_deadline_ms:
            return
        new_hash = metadata_hash(known_topics(self.broker, group.replayed.subscribed_topics))
        if bumps or new_hash != group.metadata_hash:
            self.add(epoch_record(self.group_id, group.epoch + 1, new_hash))
        group.metadata_hash, group.refreshes_metadata = new_hash, False
        group.metadata_deadline_ms = self.broker.now_ms + REFRESH_MS

    def _update_targets(self, group: ShareGroup) -> None:
        """Compute the target assignment of a new group epoch, once in an interval (KIP-1263)."""
        now_ms, last_ms = self.broker.now_ms, group.assignment_timestamp_ms
        if group.replayed.assignment_epoch >= group.epoch:
            return
        if last_ms and now_ms < last_ms + self.broker.share_assignment_interval_ms:
            return
        ids = topic_ids(self.broker)
        named = {member_id: (member.metadata or _NEW_MEMBER)["subscribed_topic_names"] for member_id, member in group.members.items()}
        targets = simple_assignment(
            {member_id: [ids[name] for name in in_hash_order(names, hash_of_text) if name in ids] for member_id, names in named.items()},
            {member_id: group.target_of(member_id) for member_id in group.members},
            {topic_id: sorted(numbers) for topic_id, numbers in group.initialized.items()},
            is_homogeneous=len(set(map(frozenset, named.values()))) == 1,
        )
        for member_id, target in targets.items():
            if member_id not in group.replayed.targets or target != group.target_of(member_id):
                self.add(target_record(self.group_id, member_id, target))
        timestamp_ms = now_ms if self.broker.release.stores_assignment_timestamp else 0
        self.add(target_epoch_record(self.group_id, group.epoch, timestamp_ms))
        group.assignment_timestamp_ms = now_ms

    def _take_target_over(self, group: ShareGroup, member_id: str) -> None:
        """The member gets its target, without topics to which it does not subscribe."""
        member, ids = group.members[member_id], topic_ids(self.broker)
        if member.member_epoch == group.replayed.assignment_epoch:
            return
        subscribed = {ids.get(name) for name in (member.metadata or _NEW_MEMBER)["subscribed_topic_names"]}
        target = {topic: numbers for topic, numbers in group.target_of(member_id).items() if topic in subscribed and numbers}
        epoch, previous = group.replayed.assignment_epoch, max(member.member_epoch, 0)
        self.add(assignment_record(self.group_id, member_id, epoch, previous, target))

    def _initialize(self, group: ShareGroup) -> None:
        """Have the share coordinator make the state of partitions that have none."""
        topics, ids = self.broker.settings.topics or {}, topic_ids(self.broker)
        is_new = False
        for name in sorted(group.replayed.subscribed_topics):
            if name in ids:
                known = group.initialized.get(ids[name], set()) | group.initializing.get(ids[name], set())
                missing = set(range(topics[name].partitions)) - known
                if missing:
                    group.initializing.setdefault(ids[name], set()).update(missing)
                    is_new = True
        if is_new:
            self.add(state_record(self.group_id, group.initializing, group.initialized, (), topic_names(self.broker)))
        if group.initializing and not group.initializes:
            group.initializes = True
            fire = partial(end_initialization, self.broker, self.group_id)
            self.broker.clock.start(TimerKind.SHARE_STATE, SHARE_STATE_MS, self.group_id, "", fire)

    def restart_session(self, group: ShareGroup, member_id: str) -> None:
        """Restart the session of a member."""
        group.cancel_session(member_id)
        timeout_ms = self.broker.settings.group_share_session_timeout_ms
        fire = partial(fence_share_member, self.broker, self.group_id, member_id)
        group.session_timers[member_id] = self.broker.clock.start(TimerKind.SESSION, timeout_ms, self.group_id, member_id, fire)

    # Records

    def finish(self) -> None:
        """The group is known."""
        if self.group is not None:
            self.partition.share_groups[self.group_id] = self.group

    def undo_finished(self) -> None:
        """Take back the step after ``finish``: the append has failed later."""
        self.undo()
        if self.group is None:
            return
        for member_id in [member_id for member_id in self.group.session_timers if not self._before or member_id not in self.group.members]:
            self.group.cancel_session(member_id)
        if not self._before:
            self.partition.share_groups.pop(self.group_id, None)


_CHANGEABLE: Final = (
    "replayed",
    "metadata_hash",
    "metadata_deadline_ms",
    "refreshes_metadata",
    "assignment_timestamp_ms",
    "initializing",
    "initialized",
)
"""What the records of a step change in a share group."""
_NEW_MEMBER: Final[Mapping[str, Any]] = {"rack_id": None, "client_id": "", "client_host": "", "subscribed_topic_names": []}


def _changed_metadata(before: Mapping[str, Any] | None, request: ShareGroupHeartbeat) -> dict[str, Any]:
    """The member's metadata with what the request changes; null fields of the request change nothing."""
    changes = {"rack_id": request.rack_id, "subscribed_topic_names": None if request.topics is None else sorted(set(request.topics))}
    given = {name: value for name, value in changes.items() if value is not None}
    return {**(before or _NEW_MEMBER), **given, "client_id": request.client_id, "client_host": request.client_host}


def fence_share_member(broker: Broker, group_id: str, member_id: str) -> bool:
    """Remove a member whose session has ended. False: it has left already."""
    step = ShareStep(broker, group_id)
    group = step.group
    if group is None or member_id not in group.members:
        return False
    step.remove(group, member_id)

    def repeat() -> None:
        fire = partial(fence_share_member, broker, group_id, member_id)
        group.session_timers[member_id] = broker.clock.start(TimerKind.SESSION, RETRY_MS, group_id, member_id, fire)

    step.write(repeat)
    return True


def end_initialization(broker: Broker, group_id: str) -> bool:
    """The share coordinator has made the state of the group's partitions. The next heartbeat assigns them."""
    partition = broker.partitions.get(broker.partition_number(group_id))
    group = None if partition is None else partition.share_groups.get(group_id)
    if group is None:
        return False
    group.initializes = False
    if not group.initializing:  # the append of the heartbeat that asked for the state has failed
        return False
    made = {topic: group.initialized.get(topic, set()) | numbers for topic, numbers in group.initializing.items()}
    initialized = {**group.initialized, **made}
    before = group.initialized, group.initializing

    def undo() -> None:
        group.initialized, group.initializing = before

    error, _ = broker.append(group_id, [state_record(group_id, {}, initialized, (), topic_names(broker))], undo=undo)
    if error is Error.NONE:
        group.initialized, group.initializing = initialized, {}
    return True


def delete_share_group(broker: Broker, group: ShareGroup) -> Error:
    """Delete a share group: first the share state of its partitions, then the group."""
    if group.members:
        return Error.NON_EMPTY_GROUP
    topics = dict.fromkeys((*group.initialized, *group.initializing))
    batches = [[state_record(group.group_id, {}, {}, topics, topic_names(broker))]] if topics else []
    groups = broker.partition_of(group.group_id).share_groups

    def undo() -> None:
        groups[group.group_id] = group

    for records in (*batches, group_tombstones(group.group_id)):
        error, _ = broker.append(group.group_id, records, undo=undo, before=group)
        if error is not Error.NONE:
            return broker.release.group_append_errors.get(error, error)
    del groups[group.group_id]
    return Error.NONE


def share_group_describe(broker: Broker, call: Call, request: ShareGroupDescribe) -> None:
    """Answer with the state, the epochs and the members of each share group."""
    broker.answer(call, ShareGroupDescribeAnswer(tuple(_described(broker, group_id) for group_id in request.group_ids)))


def _described(broker: Broker, group_id: str) -> DescribedShareGroup:
    error = coordinator_error(broker, ShareGroupDescribe, group_id)
    group = broker.shown(group_id, ShareGroup, broker.share_group(group_id)) if error is Error.NONE else None
    if group is None:
        return DescribedShareGroup(group_id, error if error is not Error.NONE else Error.GROUP_ID_NOT_FOUND)
    members = tuple(
        DescribedShareMember(
            member_id,
            (member.metadata or _NEW_MEMBER)["client_id"],
            member.member_epoch,
            tuple((member.metadata or _NEW_MEMBER)["subscribed_topic_names"]),
            _with_names(broker, group.assigned_to(member_id)),
        )
        for member_id, member in group.members.items()
    )
    replayed = group.replayed
    return DescribedShareGroup(group_id, Error.NONE, replayed.state, group.epoch, replayed.assignment_epoch, ASSIGNOR, members)


def load_share_group(broker: Broker, group_id: str, replayed: ReplayedGroup, records: Iterable[WrittenRecord]) -> None:
    """A share group after the load of its partition. All sessions start now."""
    group = ShareGroup(group_id, replayed)
    for record in records:
        if record.key is None or record.key.get("group_id") != group_id or record.value is None:
            continue
        if record.key_type == KeyType.SHARE_GROUP_METADATA:
            group.metadata_hash = record.value.get("metadata_hash", 0)
        elif record.key_type == KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA:
            group.assignment_timestamp_ms = record.value.get("assignment_timestamp_ms", 0)
        elif record.key_type == KeyType.SHARE_GROUP_STATE_PARTITION_METADATA:
            for name in ("initializing", "initialized"):
                listed = partitions_by_topic(record.value[f"{name}_topics"])
                setattr(group, name, {topic: set(numbers) for topic, numbers in listed.items()})
    broker.partition_of(group_id).share_groups[group_id] = group
    step = ShareStep(broker, group_id)
    for member_id in group.members:
        step.restart_session(group, member_id)


# Topics


def _with_names(broker: Broker, partitions: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
    names = topic_names(broker)
    named = {names.get(topic_id, topic_id): tuple(sorted(numbers)) for topic_id, numbers in partitions.items()}
    return dict(sorted(named.items()))
