"""Rebalances of a consumer, share or streams group: one row for each new group epoch and each new target assignment.

The broker writes the records of a change right before the record of the new epoch, so the change is the cause of the epoch. The target
assignment that follows has the same cause.
"""

from collections.abc import Mapping
from typing import Any, Final

from groupcoord_spark.coordinator.groups.group import Value
from groupcoord_spark.coordinator.rebalances.causes import Reason, coordinator_moved, group_of_size, move_sentence, names_of
from groupcoord_spark.coordinator.rebalances.group_life import GroupLife
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN, ConvertedGroup, GroupRecord
from groupcoord_spark.coordinator.rebalances.moves import Moves, PartitionSet, moves_between
from groupcoord_spark.coordinator.rebalances.rows import MOST_KEPT, MemberChange, Rebalance, elapsed_ms, row_of
from groupcoord_spark.protocol.record_types import KeyType, ModernKeyTypes

_NO_LEADER_AND_PROTOCOL: Final = dict.fromkeys(("previous_leader_id", "leader_id", "previous_protocol", "protocol"))
"""Modern groups have neither."""
_HIGHEST_FIRST_EPOCH: Final = 2


class ModernEpochs(GroupLife):
    """The present group epoch and target assignment of a modern group. Apply the group's records in order."""

    def __init__(self, key_types: ModernKeyTypes, former_group: ConvertedGroup | None) -> None:
        super().__init__()
        self.group_type = self.protocol_type = key_types.group_type
        self._key_types = key_types
        self._former_group = former_group
        self._members: dict[str, Value] = {}
        self._before: dict[str, Value | None] = {} if former_group is None else dict(former_group.members)
        """Member id -> its value at the present epoch, None if it was not a member then, for members whose records have come since."""
        self._member_record_ms: dict[str, int] = {}
        """Member id -> timestamp of the member's newest record."""
        self._targets: dict[str, Value] = {}
        self._targets_before: dict[str, Value | None] = {}
        """Member id -> target before the last assignment, for members whose target changed since then."""
        self._knows_targets_before = True
        self._metadata_hash: int | None = None
        self._topic_values: dict[str, Value | None] = {}
        """Regular expression or key type -> its newest value."""
        self._topic_changes: list[str] = []
        self._reason = Reason("unknown", None, "The records have no new group epoch before it.")
        self._epochs_since_assignment = 0
        self._assignment_epoch: int | None = None
        self._assignment_ms = NOT_KNOWN
        self._leader_epoch = NOT_KNOWN
        self._has_first_epoch = False
        """Whether the first epoch of the group is in the records."""
        self._generation: int | None = None
        self.timestamp_ms = NOT_KNOWN

    def apply(self, record: GroupRecord) -> Rebalance | None:
        """Apply a record. Return the rebalance that it starts, or None if it starts neither an epoch nor a target assignment."""
        key_types, key_type, value = self._key_types, record.key_type, record.value
        if key_type == key_types.group:
            if value is None:
                self.is_removed, self.removed_at_ms = True, record.timestamp_ms
                return None
            return self._new_epoch(record, value)
        if key_type == key_types.target_epoch:
            return None if value is None else self._new_assignment(record, value)
        if key_type == key_types.target:
            self._new_target(record.key["member_id"], value)
        elif key_type in key_types.others:
            self._learn_topics(record)
        else:
            self._new_member(record.key["member_id"], value, record.timestamp_ms)
        return None

    @property
    def generation(self) -> int | None:
        return self._generation

    @property
    def members(self) -> Mapping[str, Value]:
        return self._members

    @property
    def state_timestamp_ms(self) -> None:
        return None

    @property
    def subscribed_topics(self) -> frozenset[str]:
        if self.group_type == "streams":
            return _topics_of_topology(self._topic_values.get(str(KeyType.STREAMS_GROUP_TOPOLOGY)))
        topics = (value["topics"] for value in self._topic_values.values() if value is not None)
        matched = ((topic for topic in of_value if isinstance(topic, str)) for of_value in topics)  # others have objects
        return frozenset[str]().union(*(member.get("subscribed_topic_names") or () for member in self._members.values()), *matched)

    def partitions_of(self, member_id: str) -> PartitionSet:
        return _target_partitions(self._targets.get(member_id))

    @property
    def members_of_generation(self) -> Mapping[str, Value]:
        """Member id -> value of the members at the present epoch."""
        members: dict[str, Value | None] = {**self._members, **self._before}
        return {member_id: value for member_id, value in members.items() if value is not None}

    def _new_member(self, member_id: str, value: Value | None, timestamp_ms: int) -> None:
        self._before.setdefault(member_id, self._members.get(member_id))
        if value is not None:
            self.had_members = True
            self._members[member_id] = value
            self._member_record_ms[member_id] = timestamp_ms
        else:
            self._members.pop(member_id, None)
            self._member_record_ms.pop(member_id, None)

    def _change(self) -> MemberChange:
        """Return the change of the members since the present epoch. Only members with a record since then are looked at."""
        joined = sorted(member_id for member_id, before in self._before.items() if before is None and member_id in self._members)
        left = sorted(member_id for member_id, before in self._before.items() if before is not None and member_id not in self._members)
        kept_count = len(self._members) - len(joined)
        kept = sorted(self._members.keys() - joined) if kept_count <= MOST_KEPT else None
        return MemberChange(len(self._members), joined, left, kept, kept_count)

    def end_recall(self) -> None:
        """Go on from the last record of each key: a member may have been written again after the epoch that it belongs to.

        No moves are counted for the next target assignment if it belongs to the present epoch: targets of removed members are not known.
        """
        self._before = {}
        self._knows_targets_before = self.generation == self._assignment_epoch

    def _new_epoch(self, record: GroupRecord, value: Value) -> Rebalance | None:
        epoch, old_epoch = value["epoch"], self.generation
        old_hash, self._metadata_hash = self._metadata_hash, value.get("metadata_hash")
        if epoch == old_epoch:
            return None
        former_group = self._former_group
        self._has_first_epoch = self._has_first_epoch or (old_epoch is None and self._is_first_epoch(record, epoch))
        knows_members_before = old_epoch is not None or former_group is not None or self._has_first_epoch
        change = self._change() if knows_members_before else MemberChange(len(self._members))
        if former_group is not None:
            former = f"The group was a {former_group.group_type} group up to generation {former_group.generation}."
            self._reason = Reason("group_converted", "certain", former)
            old_epoch, self.timestamp_ms, self._former_group = former_group.generation, former_group.timestamp_ms, None
        elif not knows_members_before:
            self._reason = Reason("unknown", None, "No record of the epoch before is known: the log was compacted, or begins here.")
        else:
            self._reason = self._cause_of_epoch(record, change, old_hash)
        since_ms = elapsed_ms(self.timestamp_ms, record.timestamp_ms)
        row = self._row(record, "group_epoch", old_epoch, epoch, since_ms, change, None)
        self._generation, self.timestamp_ms, self._before = epoch, record.timestamp_ms, {}
        self._leader_epoch = record.leader_epoch
        self._topic_changes = []
        self._epochs_since_assignment += 1
        return row

    def _is_first_epoch(self, record: GroupRecord, epoch: int) -> bool:
        """Return whether this epoch created the group: 1, since 4.2 also 2, with the records of the first member at the same time."""
        return epoch <= _HIGHEST_FIRST_EPOCH and all(self._member_record_ms.get(member) == record.timestamp_ms for member in self._members)

    def _new_assignment(self, record: GroupRecord, value: Value) -> Rebalance | None:
        epoch, old_epoch = value["assignment_epoch"], self._assignment_epoch
        if epoch == old_epoch:
            return None
        moves = None
        if self.group_type != "share":
            partitions_before = {member_id: _target_partitions(target) for member_id, target in self._targets_before.items()}
            partitions = {member_id: self.partitions_of(member_id) for member_id in self._targets_before}
            self._end_assignments(record.timestamp_ms, partitions_before)
            self._new_partitions(partitions)
            if (old_epoch is not None or self._has_first_epoch) and self._knows_targets_before:
                moves = moves_between(partitions_before, partitions)
        if self._epochs_since_assignment > 1:
            epochs = f"It answers {self._epochs_since_assignment} group epochs; the cause is that of the last. "
            self._reason = self._reason._replace(evidence=epochs + self._reason.evidence)
        since_ms = elapsed_ms(self._assignment_ms, record.timestamp_ms)
        row = self._row(record, "assignment", old_epoch, epoch, since_ms, self._change(), moves)
        self._assignment_epoch, self._assignment_ms, self._epochs_since_assignment = epoch, record.timestamp_ms, 0
        self._targets_before, self._knows_targets_before = {}, True
        return row

    def _row(
        self,
        record: GroupRecord,
        kind: str,
        old: int | None,
        new: int,
        since_ms: int | None,
        change: MemberChange,
        moves: Moves | None,
    ) -> Rebalance:
        return row_of(
            record,
            change,
            moves,
            self._reason,
            group_type=self.group_type,
            kind=kind,
            protocol_type=self.group_type,
            from_generation=old,
            to_generation=new,
            since_previous_ms=since_ms,
            **_NO_LEADER_AND_PROTOCOL,
        )

    def _new_target(self, member_id: str, value: Value | None) -> None:
        target_before = self._targets.get(member_id)
        if target_before is value:  # Each epoch writes the targets of all members, even of members whose target is the same.
            return
        self._targets_before.setdefault(member_id, target_before)
        if value is None:
            del self._targets[member_id]
        else:
            self._targets[member_id] = value

    def _learn_topics(self, record: GroupRecord) -> None:
        """Add a text for each change of partitions, of topics that match a regular expression, or of the topology."""
        subject = str(record.key.get("regular_expression", record.key_type))
        earlier_value = self._topic_values.get(subject)
        self._topic_values[subject] = record.value
        if record.value is None or record.value == earlier_value:
            return
        if "initialized_topics" in record.value:
            initialized, initialized_before = _initialized(record.value), _initialized(earlier_value)
            if changed := sorted({topic for topic, _ in initialized - initialized_before}):
                self._topic_changes.append(f"Partitions can be assigned now that their share state is initialized: {names_of(changed)}")
            elif changed := sorted({topic for topic, _ in initialized_before - initialized}):
                self._topic_changes.append(f"Partitions are no longer initialized for the share group: {names_of(changed)}")
            return
        if earlier_value is None:
            return
        if "regular_expression" in record.key:
            if sorted(earlier_value["topics"]) != sorted(record.value["topics"]):
                self._topic_changes.append(f"Expression {subject!r} matches other topics than before")
        elif "subtopologies" in record.value:
            self._topic_changes.append("The topology is another one")
        else:
            self._topic_changes.append(_partition_changes(earlier_value, record.value))

    def _cause_of_epoch(self, record: GroupRecord, change: MemberChange, old_hash: int | None) -> Reason:
        members = self._members
        joined = {member_id: members[member_id] for member_id in change.joined or ()}
        before = {member_id: value for member_id, value in self._before.items() if value is not None}
        left = {member_id: before[member_id] for member_id in change.left or ()}
        if joined and left:
            instances = {member.get("instance_id") for member in joined.values()} - {None}
            both = f"{names_of(joined)} joined and {names_of(left)} went in the same epoch"
            if all(member.get("instance_id") in instances for member in left.values()):
                return Reason("member_restarted", "certain", f"{both}, with the same group.instance.id.")
            return Reason("member_joined", "possible", f"{both}; which of it came first is not recorded.")
        if joined:
            return Reason("member_joined", "certain", f"{names_of(joined)} joined {group_of_size((change.kept_count or 0) + len(left))}.")
        if left:
            if all(member.get("instance_id") is not None for member in left.values()):
                return Reason("member_expelled", "likely", f"{names_of(left)} went: a static member is taken out when it stays away.")
            return Reason("member_gone", "certain", f"{names_of(left)} went: whether it left or was expelled is not recorded.")
        changed = [member_id for member_id, value in before.items() if _subscription(members[member_id]) != _subscription(value)]
        if changed:
            return Reason("subscription_changed", "certain", f"{names_of(changed)} asked for other topics, another assignor or topology.")
        if self._topic_changes:
            # Matches of a regular expression and the topology count as a change of the subscription.
            is_count = all(change.startswith("Partitions") for change in self._topic_changes)
            # Several records before one epoch often have the same change.
            changes = "; ".join(dict.fromkeys(self._topic_changes))
            return Reason("partitions_changed" if is_count else "subscription_changed", "certain", f"{changes}.")
        if old_hash is not None and self._metadata_hash is not None and old_hash != self._metadata_hash:
            return Reason(
                "partitions_changed", "certain", "Members and subscriptions are the same; the hash of their topics' metadata changed."
            )
        if old_hash is None and self._metadata_hash:
            return Reason(
                "partitions_changed", "possible", "Members and subscriptions are the same; the hash of their topics before is not known."
            )
        if coordinator_moved(self._leader_epoch, record.leader_epoch):
            return Reason("coordinator_moved", "possible", f"Nothing else is new. {move_sentence(self._leader_epoch, record.leader_epoch)}")
        return Reason("unknown", None, "Members, subscriptions and topics are the same as in the epoch before.")


def _topics_of_topology(topology: Value | None) -> frozenset[str]:
    topics: set[str] = set()
    for subtopology in () if topology is None else topology["subtopologies"]:
        topics.update(subtopology["source_topics"])
        topics.update(topic["name"] for topic in subtopology["repartition_source_topics"])
    return frozenset(topics)


def _target_partitions(target: Value | None) -> PartitionSet:
    """(topic id or subtopology, partition) of the partitions, or active tasks, of a target assignment."""
    if target is None:
        return frozenset()
    name, topics = ("topic_id", "topic_partitions") if "topic_partitions" in target else ("subtopology_id", "active_tasks")
    return frozenset((topic[name], partition) for topic in target[topics] for partition in topic["partitions"])


def _initialized(value: Value | None) -> set[tuple[str, int]]:
    """(topic, partition) of the initialized partitions in a share group's value."""
    topics = () if value is None else value["initialized_topics"]
    return {(topic["topic_name"], number) for topic in topics for number in topic["partitions"]}


def _partition_changes(old_value: Value, new_value: Value) -> str:
    """Describe a change of partition counts or partition racks."""
    old_counts = {topic["topic_name"]: topic["num_partitions"] for topic in old_value["topics"]}
    new_counts = {topic["topic_name"]: topic["num_partitions"] for topic in new_value["topics"]}
    changed = [
        f"{name} {old_counts.get(name, 'none')} to {new_counts.get(name, 'none')}"
        for name in sorted(new_counts.keys() | old_counts.keys())
        if new_counts.get(name) != old_counts.get(name)
    ]
    return f"Partitions of topics changed: {names_of(changed)}" if changed else "Partitions of topics moved to other racks"


def _subscription(member: Value) -> tuple[Any, ...]:
    """Return the member fields that can start a new epoch: topics, regular expression, assignor, topology epoch."""
    topics = tuple(sorted(set(member.get("subscribed_topic_names") or ())))
    return (topics, member.get("subscribed_topic_regex") or None, member.get("server_assignor"), member.get("topology_epoch"))
