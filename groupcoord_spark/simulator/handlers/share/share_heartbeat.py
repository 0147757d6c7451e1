"""ShareGroupHeartbeat: members of share groups join, get partitions and leave (KIP-932; Kafka: ``GroupMetadataManager``).

A member takes its target over at once, since several members may have the same partition: there is nothing to wait for.
Rules: docs/reference/coordinator.md, chapter 13.6.
"""

from functools import partial
from typing import Final

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.simple import simple_assignment
from groupcoord_spark.coordinator.groups.share import ReplayedShareGroup
from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.broker.group_step import GroupStep, topic_ids, topic_names, with_names
from groupcoord_spark.simulator.groups import ClassicGroup, ShareGroup, TimerKind
from groupcoord_spark.simulator.messages import Call, Error, RefusedError, refuse_if
from groupcoord_spark.simulator.messages.answers import ShareGroupHeartbeatAnswer
from groupcoord_spark.simulator.messages.partition_lists import topic_partitions
from groupcoord_spark.simulator.messages.requests import LEAVE_EPOCH, ShareGroupHeartbeat

SHARE_STATE_MS: Final = 1
"""How long the share coordinator of the simulated cluster takes to make the state of partitions."""


def share_group_heartbeat(broker: Broker, call: Call, request: ShareGroupHeartbeat) -> None:
    """Answer with the member's epoch, and with its assignment if that is new to the member."""
    error = coordinator_error(broker, request, request.group_id)
    if error is Error.INVALID_GROUP_ID or (error is Error.NONE and _is_incomplete(request)):
        error = Error.INVALID_REQUEST
    refuse_if(error)
    ShareStep(broker, request.group_id or "").answer_heartbeat(call)


def _is_incomplete(request: ShareGroupHeartbeat) -> bool:
    joins_without_topics = request.member_epoch == 0 and not request.topics
    return (
        not request.group_id or not request.member_id or request.rack_id == "" or request.member_epoch < LEAVE_EPOCH or joins_without_topics
    )


class ShareStep(GroupStep[ShareGroup]):
    """Records of one request or timer, and the share group they apply to."""

    kind = ShareGroup
    changeable = ("initializing", "initialized")

    # Requests

    def heartbeat(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatAnswer:
        group, member_id = self.group_for(request, ReplayedShareGroup(self.broker.release.semantics)), request.member_id
        self._check_member(group, request)
        old_metadata = group.members[member_id].metadata if member_id in group.members else None
        metadata = group.changed_metadata(member_id, request)
        if metadata != old_metadata:
            self.add(group.member_record(member_id, metadata))
        topics_changed = old_metadata is None or old_metadata["subscribed_topic_names"] != metadata["subscribed_topic_names"]
        self.refresh_metadata_if_due(group, bumps=topics_changed or self._has_unassigned_topics(group))
        self._update_targets(group, member_id)
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
            with_names(self.broker, topic_partitions(assigned)) if shows else None,
        )

    # Steps of a heartbeat

    def may_replace(self, classic: ClassicGroup) -> bool:
        return False

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
        """Return whether partitions have been initialized since the last target assignment, so that no member has them.

        A group epoch that is newer than the target needs no further bump, because the target is computed again in any case.
        """
        if group.epoch > group.replayed.assignment_epoch:
            return False
        assigned: dict[str, set[int]] = {}
        for member_id in group.members:
            for topic_id, numbers in group.target_of(member_id).items():
                assigned.setdefault(topic_id, set()).update(numbers)
        subscribed = {topic_ids(self.broker).get(name) for name in group.replayed.subscribed_topics}
        return any(topic in subscribed and numbers - assigned.get(topic, set()) for topic, numbers in group.initialized.items())

    def _update_targets(self, group: ShareGroup, sender: str) -> None:
        """Compute the target assignment of a new group epoch, once in an interval (KIP-1263)."""
        if group.replayed.assignment_epoch >= group.epoch or self.waits_for_interval(group, self.broker.assignment_interval_ms("share")):
            return
        ids = topic_ids(self.broker)
        named = {member_id: group.metadata_of(member_id)["subscribed_topic_names"] for member_id in self.members_in_order(group, sender)}
        targets = simple_assignment(
            {member_id: [ids[name] for name in in_hash_order(names, hash_of_text) if name in ids] for member_id, names in named.items()},
            {member_id: group.target_of(member_id) for member_id in group.members},
            {topic_id: sorted(numbers) for topic_id, numbers in group.initialized.items()},
            is_homogeneous=len(set(map(frozenset, named.values()))) == 1,
        )
        for member_id, target in targets.items():
            if member_id not in group.replayed.targets or target != group.target_of(member_id):
                self.add(group.target_record(member_id, target))
        self.add(group.target_epoch_record(group.epoch, self.target_timestamp_ms))
        group.assignment_timestamp_ms = self.broker.now_ms

    def _take_target_over(self, group: ShareGroup, member_id: str) -> None:
        """Assign the member its target, without topics that it does not subscribe to."""
        member, ids = group.members[member_id], topic_ids(self.broker)
        if member.member_epoch == group.replayed.assignment_epoch:
            return
        subscribed = {ids.get(name) for name in group.metadata_of(member_id)["subscribed_topic_names"]}
        target = {topic: numbers for topic, numbers in group.target_of(member_id).items() if topic in subscribed and numbers}
        epoch, previous = group.replayed.assignment_epoch, max(member.member_epoch, 0)
        self.add(group.assignment_record(member_id, epoch, previous, target))

    def _initialize(self, group: ShareGroup) -> None:
        """Have the share coordinator make the state of partitions that have none."""
        topics, ids = self.broker.settings.topics or {}, topic_ids(self.broker)
        is_new = False
        for name in sorted(group.replayed.subscribed_topics):
            if name in ids:
                with_state = group.initialized.get(ids[name], set()) | group.initializing.get(ids[name], set())
                missing = set(range(topics[name].partitions)) - with_state
                if missing:
                    group.initializing.setdefault(ids[name], set()).update(missing)
                    is_new = True
        if is_new:
            self.add(group.state_record(group.initializing, group.initialized, (), topic_names(self.broker)))
        if group.initializing and not group.initializes:
            group.initializes = True
            fire = partial(end_initialization, self.broker, self.group_id)
            self.broker.clock.start(TimerKind.SHARE_STATE, SHARE_STATE_MS, self.group_id, "", fire)

    def session_timeout_ms(self, group: ShareGroup, member_id: str) -> int:
        return self.broker.settings.group_share_session_timeout_ms


def end_initialization(broker: Broker, group_id: str) -> bool:
    """Mark the group's partitions as initialized by the share coordinator. The next heartbeat assigns them."""
    group = broker.group_of(group_id, ShareGroup)
    if group is None:
        return False
    group.initializes = False
    if not group.initializing:  # the append of the heartbeat that asked for the state has failed
        return False
    made = {topic: group.initialized.get(topic, set()) | numbers for topic, numbers in group.initializing.items()}
    initialized = {**group.initialized, **made}
    old_state = group.initialized, group.initializing

    def undo() -> None:
        group.initialized, group.initializing = old_state

    error, _ = broker.log.append(group_id, [group.state_record({}, initialized, (), topic_names(broker))], undo=undo)
    if error is Error.NONE:
        group.initialized, group.initializing = initialized, {}
    return True


def delete_share_state(broker: Broker, group: ShareGroup) -> Error:
    """Have the state of the group's partitions deleted, before the group is deleted. Returns the error of the append."""
    topics = dict.fromkeys((*group.initialized, *group.initializing))
    if not topics:
        return Error.NONE
    groups = broker.partition_of(group.group_id).groups

    def undo() -> None:
        groups[group.group_id] = group

    error, _ = broker.log.append(group.group_id, [group.state_record({}, {}, topics, topic_names(broker))], undo=undo, shown=group)
    return broker.release.group_append_errors.get(error, error)
