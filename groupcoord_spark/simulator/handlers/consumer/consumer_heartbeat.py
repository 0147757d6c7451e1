"""ConsumerGroupHeartbeat: members of the new protocol join, reconcile and leave (KIP-848; Kafka: ``GroupMetadataManager``).

Every change is a list of records. The group applies each record at once, so that the next step of the same heartbeat sees it. If the append
fails, the group goes back to what it was.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

from groupcoord_spark import assignors
from groupcoord_spark.assignors import SERVER_ASSIGNORS, TopicPartition
from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS
from groupcoord_spark.coordinator.groups.consumer import ReplayedConsumerGroup
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.broker.group_step import GroupStep, known_topics, topic_ids, topic_names, with_names
from groupcoord_spark.simulator.groups import CONSUMER, ClassicGroup, ConsumerGroup, TimerKind, consumer_group
from groupcoord_spark.simulator.groups.modern_group import cancel_timer, metadata_hash
from groupcoord_spark.simulator.handlers.consumer import conversion
from groupcoord_spark.simulator.messages import Call, Error, RecordToWrite, RefusedError, WrittenRecord, re2j, refuse_if
from groupcoord_spark.simulator.messages.answers import ConsumerGroupHeartbeatAnswer
from groupcoord_spark.simulator.messages.requests import LEFT_FOR_A_WHILE, ConsumerGroupHeartbeat

REGEX_MS: Final = 1
"""How long the broker's background thread takes to resolve an expression in the simulator."""
REGEX_REFRESH_MIN_MS: Final = 10_000
_FIRST_VERSION_WITH_CLIENT_IDS: Final = 1
_SETS_SUBSCRIPTION_TYPE: Final = (KeyType.CONSUMER_GROUP_MEMBER_METADATA, KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)


def consumer_group_heartbeat(broker: Broker, call: Call, request: ConsumerGroupHeartbeat) -> None:
    """Answer with the member's epoch, and with its assignment if that is new to the member."""
    error = coordinator_error(broker, request, request.group_id)
    refuse_if(Error.INVALID_REQUEST if error is Error.INVALID_GROUP_ID else error)
    refuse_if(_request_error(broker, request))
    ConsumerStep(broker, request.group_id or "").answer_heartbeat(call)


def _request_error(broker: Broker, request: ConsumerGroupHeartbeat) -> Error:
    is_joining = request.member_epoch == 0
    is_incomplete = (
        (broker.release.version_of(request) >= _FIRST_VERSION_WITH_CLIENT_IDS or not is_joining) and not request.member_id
    ) or "" in (request.group_instance_id, request.rack_id)
    if is_joining:
        is_incomplete |= request.rebalance_timeout_ms is None or request.partitions is None or bool(request.partitions)
        is_incomplete |= request.topics is None and request.topic_regex is None
    elif request.member_epoch == LEFT_FOR_A_WHILE:
        is_incomplete |= request.group_instance_id is None
    if is_incomplete or request.member_epoch < LEFT_FOR_A_WHILE:
        return Error.INVALID_REQUEST
    if request.server_assignor is not None and request.server_assignor not in SERVER_ASSIGNORS:
        return Error.UNSUPPORTED_ASSIGNOR
    return Error.NONE


class ConsumerStep(GroupStep[ConsumerGroup]):
    """Records of one request or timer, and the consumer group they apply to."""

    kind = ConsumerGroup
    changeable = ("regexes_resolved_at_ms", "regexes_are_old", "is_homogeneous")

    def __init__(self, broker: Broker, group_id: str) -> None:
        super().__init__(broker, group_id)
        self.replaced: list[str] = []
        self.returning: list[str] = []
        self.downgraded: ClassicGroup | None = None
        self._put_group_back: Callable[[], None] | None = None
        self._rebalances = True
        self._assignor = KAFKAS_ASSIGNORS.consumer
        self._is_homogeneous = self.group is None or self.group.is_homogeneous
        """The subscription type for the next target assignment: as it was before this step, unless the step looks at the topics."""
        self._epoch_before = 0 if self.group is None else self.group.epoch
        self._votes = Counter[str]() if self.group is None else self.group.assignor_votes()
        self._has_new_targets = False
        self._forgotten_regexes: list[str] = []
        self._regexes_of_leaving: set[str] = set()

    def add(self, record: RecordToWrite) -> None:
        """Apply a record to the group, and keep it for the append. A member's record sets the subscription type."""
        super().add(record)
        if self.group is not None and record.key_type in _SETS_SUBSCRIPTION_TYPE:
            self.group.is_homogeneous = self.group.has_equal_subscriptions()

    def write(self, then_undo: Callable[[], None] | None = None) -> Error:
        """Append the records. Until then the topics of expressions that nobody uses any more count, as in Kafka."""
        if self.group is not None and self._forgotten_regexes:
            for regex in self._forgotten_regexes:
                self.group.replayed.resolved_regexes.pop(regex, None)
            if any(record.key_type == self.group.key_types.current for record in self.records):
                self.group.is_homogeneous = self.group.has_equal_subscriptions()
        return super().write(then_undo)

    # Requests

    def heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatAnswer:
        broker = self.broker
        group = self.group_for(request, ReplayedConsumerGroup(broker.release.semantics))
        if self.is_full(group, request.member_id, request.group_instance_id):
            raise RefusedError(Error.GROUP_MAX_SIZE_REACHED)
        reported = None if request.partitions is None else self.with_ids(request.partitions)
        assignor = group.replayed.protocol(KAFKAS_ASSIGNORS)
        member_id = request.member_id or broker.new_member_id(request.client_id, request.client_id)
        self._check_or_create_member(group, request, member_id, reported)
        old_metadata = group.members[member_id].metadata if member_id in group.members else None
        metadata = group.changed_metadata(member_id, request)
        self.elect_assignor(group, member_id, metadata)
        if metadata != old_metadata:
            self.add(group.member_record(member_id, metadata))
        assignor_changed = broker.release.changed_assignor_bumps_epoch and assignor != self._assignor
        base = old_metadata or ConsumerGroup.new_member
        topics_changed = base["subscribed_topic_names"] != metadata["subscribed_topic_names"]
        regex_is_resolved = self.update_regexes(group, base, metadata)
        self.refresh_metadata_if_due(group, bumps=topics_changed or regex_is_resolved or assignor_changed)
        self.update_targets(group, member_id)
        assigned_before = consumer_group.current_assignment(group.members[member_id]).assigned
        regex_changed = base["subscribed_topic_regex"] != metadata["subscribed_topic_regex"]
        self.reconcile(group, member_id, reported, subscription_changed=topics_changed or regex_changed)
        self.restart_session(group, member_id)
        current = consumer_group.current_assignment(group.members[member_id])
        is_full = (
            request.rebalance_timeout_ms is not None
            and (request.topics is not None or request.topic_regex is not None)
            and request.partitions is not None
        )
        shows = request.member_epoch == 0 or is_full or set(assigned_before) != set(current.assigned)
        return ConsumerGroupHeartbeatAnswer(
            Error.NONE,
            member_id,
            current.epoch,
            broker.settings.group_consumer_heartbeat_interval_ms,
            with_names(broker, current.assigned) if shows else None,
        )

    def elect_assignor(self, group: ConsumerGroup, member_id: str, metadata: Mapping[str, Any]) -> None:
        """Take the server assignor that the members vote for once the member has this metadata. Before the metadata is written."""
        self._assignor = group.elected_assignor(self._votes, member_id, metadata["server_assignor"]) or KAFKAS_ASSIGNORS.consumer

    def is_full(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> bool:
        """Return whether the group has reached its maximum size without this member."""
        spares_static = self.broker.release.size_limit_spares_known_members and instance_id is not None
        is_known = member_id in group.members or (spares_static and group.static_member_id(instance_id or "") is not None)
        return not is_known and len(group.members) >= self.broker.settings.group_consumer_max_size

    def remove(self, group: ConsumerGroup, member_ids: Iterable[str]) -> None:
        """Remove members: write their tombstones, the tombstones of regular expressions no longer in use, and a new group epoch.

        The group becomes a classic group instead, if all other members use the classic protocol.
        """
        member_ids = list(member_ids)
        if conversion.may_be_downgraded(self.broker, group, member_ids):
            self.downgrade(group, member_ids)
            return
        self._regexes_of_leaving = {group.metadata_of(member_id)["subscribed_topic_regex"] for member_id in member_ids}
        super().remove(group, member_ids)

    def downgrade(self, group: ConsumerGroup, leaving: Iterable[str], *, rebalances: bool = True) -> None:
        """Make a classic group of the members that stay. rebalances: whether it begins with a rebalance."""
        self._rebalances = rebalances
        self.downgraded, records = conversion.downgraded(self.broker, group, leaving, topic_names(self.broker), self._epoch_before)
        self.records += records

    # Steps of a heartbeat

    def may_replace(self, classic: ClassicGroup) -> bool:
        return classic.is_empty or self.broker.settings.allows_upgrades

    def take_over(self, group: ConsumerGroup, classic: ClassicGroup) -> None:
        """Make consumer members of the members of a classic group, if it has any."""
        if classic.is_empty:
            super().take_over(group, classic)
            return
        group.metadata_hash = metadata_hash(known_topics(self.broker, conversion.subscribed_topics_of(classic)))
        records = conversion.upgrade_records(classic, group, topic_ids(self.broker)) if classic.protocol_type == CONSUMER else None
        if records is None:
            raise RefusedError(Error.GROUP_ID_NOT_FOUND)
        self.records.append(records[0])
        for record in records[1:]:
            self.add(record)

    def _check_or_create_member(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeat, member_id: str, reported: Collection[consumer_group.Partition] | None
    ) -> None:
        epoch, instance_id = request.member_epoch, request.group_instance_id
        if instance_id is not None and epoch == 0:
            if group.is_left_behind(instance_id):
                raise RefusedError(Error.UNKNOWN_MEMBER_ID)
            static_id = group.static_member_id(instance_id)
            if static_id is not None:
                static = group.members[static_id]
                if static.member_epoch != LEFT_FOR_A_WHILE and not consumer_group.uses_classic_protocol(static):
                    raise RefusedError(Error.UNRELEASED_INSTANCE_ID)
                self.replace(group, static_id, member_id)
            return
        refuse_if(group.static_error(member_id, instance_id))
        member = group.members.get(member_id)
        if member is None:
            if epoch != 0:
                raise RefusedError(Error.UNKNOWN_MEMBER_ID)
            return
        if epoch == 0 and self.broker.release.known_member_may_join_again:
            return
        if epoch > member.member_epoch:
            raise RefusedError(Error.FENCED_MEMBER_EPOCH)
        if epoch < member.member_epoch:
            assigned = consumer_group.current_assignment(member).assigned
            # The answer to the member's last heartbeat may have been lost.
            if epoch != member.previous_member_epoch or reported is None or not set(reported) <= set(assigned):
                raise RefusedError(Error.FENCED_MEMBER_EPOCH)

    def replace(self, group: ConsumerGroup, old_id: str, new_id: str) -> None:
        """Replace a static member that returns with a new member id. It keeps its target and its partitions."""
        if new_id not in group.replayed.targets:
            self.returning.append(new_id)
        if old_id != new_id:
            self.replaced.append(old_id)
        current = consumer_group.current_assignment(group.members[old_id])
        self.replace_member(group, old_id, new_id, current._replace(epoch=0, previous_epoch=0))

    def update_regexes(self, group: ConsumerGroup, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Forget the member's old expression if nobody uses it, and have new expressions resolved.

        Returns:
            Whether the member has another expression whose topics are known, or none any more.
        """
        regex, old_regex, resolved = new["subscribed_topic_regex"], old["subscribed_topic_regex"], group.replayed.resolved_regexes
        if regex != old_regex:
            if old_regex and old_regex not in group.used_regexes:
                self._forgotten_regexes.append(old_regex)
                self.records.append(group.regex_record(old_regex, None))
            if regex and regex not in resolved:
                try:
                    re2j.parsed(regex)
                except re2j.InvalidExpressionError:
                    raise RefusedError(Error.INVALID_REGULAR_EXPRESSION) from None
        used, now_ms = group.used_regexes, self.broker.now_ms
        last_ms = group.regexes_resolved_at_ms if resolved else None
        waits = last_ms is not None and now_ms <= last_ms + REGEX_REFRESH_MIN_MS
        is_missing = any(used_regex not in resolved for used_regex in used)
        is_due = last_ms is not None and now_ms > last_ms + self.broker.settings.group_consumer_regex_refresh_interval_ms
        if used and not group.resolves_regexes and not waits and (is_missing or group.regexes_are_old or is_due):
            group.resolves_regexes = True
            fire = partial(resolve_regexes, self.broker, self.group_id)
            self.broker.clock.start(TimerKind.REGEX, REGEX_MS, self.group_id, "", fire)
        return regex != old_regex and (not regex or regex in resolved)

    def refresh_metadata_if_due(self, group: ConsumerGroup, *, bumps: bool) -> bool:
        """Check the topics of the group. Whoever looks at the topics also looks at the subscription type."""
        looks = super().refresh_metadata_if_due(group, bumps=bumps)
        if looks:
            self._is_homogeneous = group.has_equal_subscriptions()
        return looks

    def subscribed_topics(self, group: ConsumerGroup) -> Collection[str]:
        """Return the topics without those of expressions that this step forgets: they count in the type of subscription alone."""
        if not self._forgotten_regexes:
            return super().subscribed_topics(group)
        by_name = (metadata["subscribed_topic_names"] for metadata in map(group.metadata_of, group.members))
        by_regex = (topics for regex, topics in group.replayed.resolved_regexes.items() if regex not in self._forgotten_regexes)
        return {topic for topics in (*by_name, *by_regex) for topic in topics}

    def forget_unused_regexes(self, group: ConsumerGroup) -> None:
        for regex in sorted(self._regexes_of_leaving - {"", *group.used_regexes}):
            self.add(group.regex_record(regex, None))

    def update_targets(self, group: ConsumerGroup, sender: str) -> None:
        """Compute the targets of a new group epoch (Kafka: ``updateTargetAssignment``); since 4.3 once in an interval (KIP-1263)."""
        if group.replayed.assignment_epoch >= group.epoch or self.waits_for_interval(group, self.broker.assignment_interval_ms("consumer")):
            return
        names = topic_names(self.broker)
        members = []
        for member_id in self.members_in_order(group, sender):
            member = group.members[member_id]
            owned = tuple(TopicPartition(names[topic_id], number) for topic_id, number in group.target_of(member_id) if topic_id in names)
            metadata = member.metadata or ConsumerGroup.new_member
            topics = tuple(sorted(group.topics_of(member)))
            members.append(assignors.Member(member_id, topics, metadata["instance_id"], metadata["rack_id"], owned))
        assignor = SERVER_ASSIGNORS[self._assignor]
        existing = self.broker.settings.topics or {}
        topics_of_cluster = {name: assignors.Topic(topic.partitions, topic_id=topic.topic_id) for name, topic in existing.items()}
        ids = topic_ids(self.broker)
        returning = self.returning if self.broker.release.writes_target_of_returning_member else ()
        for member_id, partitions in assignor(members, topics_of_cluster, is_homogeneous=self._is_homogeneous).items():
            target = [(ids[topic], number) for topic, number in partitions]
            is_known = member_id in group.replayed.targets and member_id not in returning
            if not is_known or set(target) != set(group.target_of(member_id)):
                self.add(group.target_record(member_id, target))
        self.add(group.target_epoch_record(group.epoch, self.target_timestamp_ms))
        group.assignment_timestamp_ms = self.broker.now_ms
        self._has_new_targets = True

    def reconcile(
        self, group: ConsumerGroup, member_id: str, reported: Collection[consumer_group.Partition] | None, *, subscription_changed: bool
    ) -> None:
        """Move the member one step towards its target. ``reported`` lists the partitions that its client owns; None if the client did
        not report them."""
        member = group.members[member_id]
        ids = topic_ids(self.broker)
        subscribed = {ids[topic] for topic in group.topics_of(member) if topic in ids}
        current = consumer_group.current_assignment(member)
        changed = consumer_group.reconciled(
            current,
            () if self._is_new_static_member(group, member_id) and not self._has_new_targets else group.target_of(member_id),
            group.replayed.assignment_epoch,
            subscribed,
            reported,
            group.owned_partitions,
            self.broker.release.reconciliation,
            subscription_changed=subscription_changed,
        )
        if changed == current:
            return
        self.add(group.assignment_record(member_id, changed))
        cancel_timer(group.rebalance_timers, member_id)
        # A classic member has a timer for its next JoinGroup, and one for its SyncGroup.
        if changed.state == consumer_group.UNREVOKED and not consumer_group.uses_classic_protocol(member):
            self.start_rebalance_timer(group, member_id, changed.epoch, group.metadata_of(member_id)["rebalance_timeout_ms"])

    def _is_new_static_member(self, group: ConsumerGroup, member_id: str) -> bool:
        """Return whether the member has an instance id that no member had before. Kafka looks its last target up by that id."""
        instance_id, before = group.metadata_of(member_id)["instance_id"], self._saved_state.get("replayed")
        return instance_id is not None and (before is None or before.static_members.get(instance_id) not in before.members)

    def waits_for_others(self, group: ConsumerGroup, member_id: str) -> bool:
        """Return whether another member still owns a partition of this member's target."""
        own = consumer_group.current_assignment(group.members[member_id]).assigned
        wanted = [partition for partition in group.target_of(member_id) if partition not in own]
        return bool(wanted) and not group.owned_partitions().isdisjoint(wanted)

    def session_timeout_ms(self, group: ConsumerGroup, member_id: str) -> int:
        """Return the session timeout of a member, which depends on its protocol."""
        classic = group.metadata_of(member_id)[consumer_group.CLASSIC_MEMBER]
        return self.broker.settings.group_consumer_session_timeout_ms if classic is None else int(classic["session_timeout_ms"])

    # Topics

    def with_ids(self, partitions: Mapping[str, Iterable[int]]) -> set[consumer_group.Partition]:
        """Partitions by topic name as (topic id, partition), without topics that do not exist."""
        ids = topic_ids(self.broker)
        return {(ids[topic], number) for topic, numbers in partitions.items() if topic in ids for number in numbers}

    # Records

    def finish(self, written: list[WrittenRecord]) -> None:
        """Complete the step: add the group, end the group that it replaced, and cancel the timers of members that have left."""
        super().finish(written)
        group = self.group
        if group is None:
            return
        if self.replaced_classic is not None:
            for member_id, _ in conversion.classic_members(group):
                self.restart_session(group, member_id)
        if self.downgraded is not None:
            self._put_group_back = self.broker.remove_group(group)
            conversion.begin_classic_group(self.broker, self.downgraded, rebalances=self._rebalances)
        else:
            for member_id in self.replaced:
                group.cancel_timers(member_id)

    def undo_finished(self) -> None:
        if self.downgraded is not None:
            self.broker.remove_group(self.downgraded)
        if self._put_group_back is not None:
            self._put_group_back()
        super().undo_finished()
        if self.group is not None and self._saved_state:
            for member_id in self.replaced:
                self.restart_session(self.group, member_id)


def resolve_regexes(broker: Broker, group_id: str) -> bool:
    """Store the topics that each expression of a group matches. A new group epoch follows if one of them matches other topics."""
    if broker.partitions.get(broker.partition_number(group_id)) is None:
        return False
    step = ConsumerStep(broker, group_id)
    group = step.group
    if group is None:
        return False
    group.resolves_regexes, group.regexes_are_old, group.regexes_resolved_at_ms = False, False, broker.now_ms
    has_changed = False
    for regex in group.used_regexes:
        topics = sorted(topic for topic in broker.settings.topics or {} if re2j.matches(regex, topic))
        has_changed |= topics != group.replayed.resolved_regexes.get(regex, [])
        step.add(group.regex_record(regex, topics, broker.now_ms))
    if has_changed or metadata_hash(known_topics(broker, group.replayed.subscribed_topics)) != group.metadata_hash:
        step.bump_epoch(group)
        group.trust_metadata(broker.now_ms)
    step.write()
    return True
