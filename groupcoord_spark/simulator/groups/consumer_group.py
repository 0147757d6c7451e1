"""A consumer group of the new protocol (KIP-848) in a running broker: its records, and one step of a member's reconciliation.

Rules: docs/reference/coordinator.md, chapter 13, and docs/reference/replay-rules.md, chapter 3.2.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from msgspec.structs import replace

from groupcoord_spark.coordinator.groups.consumer import ConsumerMember
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.groups.clock import Timer
from groupcoord_spark.simulator.groups.modern_group import ModernGroup
from groupcoord_spark.simulator.messages import RecordToWrite
from groupcoord_spark.simulator.messages.partition_lists import by_topic
from groupcoord_spark.simulator.messages.requests import LEFT_FOR_A_WHILE, ConsumerGroupHeartbeat, OffsetToCommit

Partition = tuple[str, int]
"""(topic id, partition)"""

STABLE, UNREVOKED, UNRELEASED = "STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS"
CLASSIC_MEMBER: Final = "classic_member_metadata"
"""The field of a member's record that only members of the classic protocol have."""
_ASSIGNORS_IN_MAP_ORDER: Final = ("uniform", "range")
_STATE_NUMBERS: Final = {STABLE: 0, UNREVOKED: 1, UNRELEASED: 2}


class CurrentAssignment(NamedTuple):
    """Partitions that a member owns. ``assigned`` and ``pending_revocation`` map a partition to the epoch of its assignment."""

    epoch: int
    previous_epoch: int
    state: str
    assigned: Mapping[Partition, int]
    pending_revocation: Mapping[Partition, int]


class ReconciliationRules(NamedTuple):
    """Rules of a member's reconciliation that differ between releases.

    takes_back_own_partitions: a partition that returns to the target while its member gives it up is free for that member.
    revocation_raises_epoch: a member that has given up its partitions takes its next step with its epoch + 1.
    narrows_at_once: a changed subscription takes topics away from a member that waits for nothing else.
    narrowing_sets_previous_epoch: the record of that step has the member epoch as previous epoch, too.
    """

    takes_back_own_partitions: bool
    revocation_raises_epoch: bool
    narrows_at_once: bool
    narrowing_sets_previous_epoch: bool


@dataclass(slots=True, eq=False)
class ConsumerGroup(ModernGroup):
    """A consumer group, with the expressions that its members subscribe to and the timers of its classic members."""

    regexes_resolved_at_ms: int | None = None
    regexes_are_old: bool = False
    resolves_regexes: bool = False
    is_homogeneous: bool = True
    """The subscription type of the group after the last record of a member (Kafka: ``subscriptionType``)."""
    join_timers: dict[str, Timer] = field(default_factory=dict)
    """Timers of classic members that must rejoin."""
    sync_timers: dict[str, Timer] = field(default_factory=dict)
    """Of classic members that have joined and not sent SyncGroup yet."""

    group_type: ClassVar[str] = "consumer"

    new_member: ClassVar[Mapping[str, Any]] = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "",
        "client_host": "",
        "subscribed_topic_names": [],
        "subscribed_topic_regex": "",
        "rebalance_timeout_ms": -1,
        "server_assignor": None,
        CLASSIC_MEMBER: None,
    }

    def __post_init__(self) -> None:
        self.is_homogeneous = self.has_equal_subscriptions()

    def has_equal_subscriptions(self) -> bool:
        """Return whether all members have the same topics: each of them by name, or all by one expression."""
        metadata = [self.metadata_of(member_id) for member_id in self.members]
        by_name = Counter(topic for of_member in metadata for topic in of_member["subscribed_topic_names"])
        by_regex = Counter(topic for topics in self.replayed.resolved_regexes.values() for topic in topics)
        regexes = Counter(of_member["subscribed_topic_regex"] for of_member in metadata if of_member["subscribed_topic_regex"])
        if not regexes:
            return all(by_name[topic] == len(metadata) for topic in by_name | by_regex)
        is_shared = len(regexes) == 1 and regexes.total() == len(metadata)
        return is_shared and all(by_regex[topic] == 1 and topic not in by_name for topic in by_name | by_regex)

    def static_member_id(self, instance_id: str) -> str | None:
        member_id: str | None = self.replayed.static_members.get(instance_id)
        return member_id if member_id in self.members else None

    def is_left_behind(self, instance_id: str) -> bool:
        """Return whether the instance id belonged to a member that has left, so that no member can join with it (before 4.4)."""
        return self.replayed.static_members.get(instance_id, "") not in ("", *self.members)

    def assignor_votes(self) -> Counter[str]:
        """Return how many members name each server-side assignor."""
        return Counter(name for id_ in self.members if (name := self.metadata_of(id_)["server_assignor"]) is not None)

    def elected_assignor(self, votes: Counter[str], member_id: str, assignor: str | None) -> str | None:
        """Return the server-side assignor with the most votes if a member votes for ``assignor``, or None without votes.

        votes: before the heartbeat, which may replace a static member.
        Of equal numbers the first in the order of Kafka's copy of the votes wins. Both names share a slot of its table, where the only vote
        for a name moves the name to the front when it is given again.
        """
        votes = votes.copy()
        names = [name for name in _ASSIGNORS_IN_MAP_ORDER if votes[name]]
        for name, change in ((self.metadata_of(member_id)["server_assignor"], -1), (assignor, 1)):
            if name is not None:
                votes[name] += change
                if not votes[name]:
                    names.remove(name)
                elif name not in names:
                    names.insert(0, name)
        return max(names, key=votes.__getitem__, default=None)

    def target_of(self, member_id: str) -> list[Partition]:
        """Return the member's target assignment in the order of its record."""
        return _partitions((self.replayed.targets.get(member_id) or {"topic_partitions": []})["topic_partitions"])

    def owned_partitions(self) -> frozenset[Partition]:
        """Return the partitions that members own or still have to revoke."""
        owned = (topic for member in self.members.values() for topic in member.owned_partitions())
        return frozenset((topic_id, number) for topic_id, numbers in owned for number in numbers)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member subscribes to by name or by regular expression."""
        metadata = member.metadata or {}
        by_regex = self.replayed.resolved_regexes.get(metadata.get("subscribed_topic_regex") or "", [])
        return frozenset((*metadata.get("subscribed_topic_names", ()), *by_regex))

    @property
    def used_regexes(self) -> list[str]:
        """The expressions that members use."""
        return sorted({(member.metadata or {}).get("subscribed_topic_regex") or "" for member in self.members.values()} - {""})

    @property
    def timers(self) -> tuple[dict[str, Timer], ...]:
        return self.session_timers, self.rebalance_timers, self.join_timers, self.sync_timers

    def note_changed_topics(self) -> None:
        """Look at the topics, and at the expressions, with the next heartbeat of any member."""
        self.refreshes_metadata = self.regexes_are_old = True

    # Requests

    def changes_of(self, request: ConsumerGroupHeartbeat) -> dict[str, Any]:
        return {
            "instance_id": request.group_instance_id,
            "rack_id": request.rack_id,
            "subscribed_topic_names": None if request.topics is None else sorted(set(request.topics)),
            "subscribed_topic_regex": request.topic_regex,
            "rebalance_timeout_ms": request.rebalance_timeout_ms,
            "server_assignor": request.server_assignor,
        }

    def changed_metadata(self, member_id: str, request: ConsumerGroupHeartbeat) -> dict[str, Any]:
        """Return the member's metadata updated by its heartbeat. The member uses the consumer protocol from now on."""
        return {**ModernGroup.changed_metadata(self, member_id, request), CLASSIC_MEMBER: None}

    def left_for_a_while(self, member_id: str) -> CurrentAssignment:
        """Return the assignment that a static member keeps while it is away."""
        current = current_assignment(self.members[member_id])
        return CurrentAssignment(LEFT_FOR_A_WHILE, current.previous_epoch, current.state, dict.fromkeys(current.assigned, 0), {})

    def speaks_classic_protocol(self, member_id: str) -> bool:
        return uses_classic_protocol(self.members[member_id])

    def epochs_of(self, member_id: str, offsets: Iterable[OffsetToCommit], topic_ids: Mapping[str, str]) -> list[int | None]:
        current = current_assignment(self.members[member_id])
        since = {**current.assigned, **current.pending_revocation}
        return [since.get((topic_ids.get(offset.topic, ""), offset.partition)) for offset in offsets]

    # Records

    def target_record(self, member_id: str, partitions: Iterable[Partition]) -> RecordToWrite:
        """Return the record of a member's target assignment."""
        return self.record(self.key_types.target, {"topic_partitions": _by_topic_id(partitions)}, member_id=member_id)

    def assignment_record(self, member_id: str, current: CurrentAssignment) -> RecordToWrite:
        """Return the record of a member's current assignment."""
        value = {
            "member_epoch": current.epoch,
            "previous_member_epoch": current.previous_epoch,
            "state": _STATE_NUMBERS[current.state],
            "assigned_partitions": _held(current.assigned),
            "partitions_pending_revocation": _held(current.pending_revocation),
        }
        return self.record(self.key_types.current, value, member_id=member_id)

    def converted_target_record(self, member_id: str, assigned: Mapping[str, Iterable[int]]) -> RecordToWrite:
        """Return the target of a member that a classic group had, with topics (by id) without partitions too."""
        listed = [{"topic_id": topic_id, "partitions": list(numbers)} for topic_id, numbers in assigned.items()]
        return self.record(self.key_types.target, {"topic_partitions": listed}, member_id=member_id)

    def converted_assignment_record(self, member_id: str, epoch: int, assigned: Mapping[str, Sequence[int]]) -> RecordToWrite:
        """Return the current assignment of a member that a classic group had, with topics (by id) without partitions too."""
        listed = [
            {"topic_id": topic_id, "partitions": list(numbers), "assignment_epochs": [epoch] * len(numbers)}
            for topic_id, numbers in assigned.items()
        ]
        record = self.assignment_record(member_id, CurrentAssignment(epoch, epoch, STABLE, {}, {}))
        return replace(record, value={**(record.value or {}), "assigned_partitions": listed})

    def regex_record(self, regex: str, topics: Sequence[str] | None, now_ms: int = 0) -> RecordToWrite:
        """Return the record of the topics that a regular expression matches, or its tombstone if ``topics`` is None."""
        value = None if topics is None else {"topics": list(topics), "version": 0, "timestamp_ms": now_ms}
        return self.record(KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION, value, regular_expression=regex)

    def tombstones(self) -> list[RecordToWrite]:
        key_types = self.key_types
        return [
            *(self.record(key_types.current, None, member_id=member_id) for member_id in self.members),
            *(self.record(key_types.target, None, member_id=member_id) for member_id in self.replayed.targets),
            self.record(key_types.target_epoch, None),
            *(self.member_record(member_id, None) for member_id in self.members),
            *(self.regex_record(regex, None) for regex in self.replayed.resolved_regexes),
            self.record(KeyType.CONSUMER_GROUP_PARTITION_METADATA, None),
            self.record(key_types.group, None),
        ]


def uses_classic_protocol(member: ConsumerMember) -> bool:
    """Return whether a member of a consumer group uses the classic protocol."""
    return (member.metadata or {}).get(CLASSIC_MEMBER) is not None


def current_assignment(member: ConsumerMember) -> CurrentAssignment:
    """Return the partitions that a member owns."""
    return CurrentAssignment(
        member.member_epoch,
        member.previous_member_epoch,
        member.state,
        _with_epochs(member.current.get("assigned_partitions", ()), member.member_epoch),
        _with_epochs(member.current.get("partitions_pending_revocation", ()), member.member_epoch),
    )


def reconciled(
    current: CurrentAssignment,
    target: Iterable[Partition],
    target_epoch: int,
    subscribed: Collection[str],
    reported: Collection[Partition] | None,
    owned_partitions: Callable[[], Collection[Partition]],
    rules: ReconciliationRules,
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """Move a member one step towards its target (chapter 13.3; Kafka: ``CurrentAssignmentBuilder``).

    Args:
        target: the member's target assignment.
        subscribed: ids of the member's subscribed topics.
        reported: the partitions that the client says it owns; None: it says nothing.
        owned_partitions: gives the partitions that still belong to a member.
    """
    is_revoking = current.state == UNREVOKED and _still_owns(reported, current.pending_revocation)
    if is_revoking or (current.state == STABLE and current.epoch == target_epoch):
        return _narrowed(current, subscribed, reported, rules) if subscription_changed and rules.narrows_at_once else current
    epoch = current.epoch + (current.state == UNREVOKED and rules.revocation_raises_epoch)
    targeted = dict.fromkeys(partition for partition in target if partition[0] in subscribed)
    keep = {partition: epoch for partition, epoch in current.assigned.items() if partition in targeted}
    revoked = {partition: epoch for partition, epoch in current.assigned.items() if partition not in targeted}
    if revoked and _still_owns(reported, revoked):
        return CurrentAssignment(epoch, current.epoch, UNREVOKED, keep, revoked)
    wanted = [partition for partition in targeted if partition not in keep]
    own = current.pending_revocation if rules.takes_back_own_partitions else ()
    owned = owned_partitions() if wanted else ()
    free = {partition: target_epoch for partition in wanted if partition in own or partition not in owned}
    state = STABLE if len(free) == len(wanted) else UNRELEASED
    return CurrentAssignment(target_epoch, current.epoch, state, {**keep, **free}, {})


def _narrowed(
    current: CurrentAssignment, subscribed: Collection[str], reported: Collection[Partition] | None, rules: ReconciliationRules
) -> CurrentAssignment:
    """Remove topics from a member's assignment that left its subscription (Kafka: ``updateCurrentAssignment``)."""
    keep = {partition: epoch for partition, epoch in current.assigned.items() if partition[0] in subscribed}
    if len(keep) == len(current.assigned):
        return current
    revoked = {**current.pending_revocation, **{held: epoch for held, epoch in current.assigned.items() if held not in keep}}
    previous_epoch = current.epoch if rules.narrowing_sets_previous_epoch else current.previous_epoch
    if _still_owns(reported, revoked):
        return CurrentAssignment(current.epoch, previous_epoch, UNREVOKED, keep, revoked)
    return current._replace(previous_epoch=previous_epoch, assigned=keep)


def _still_owns(reported: Collection[Partition] | None, revoked: Iterable[Partition]) -> bool:
    """Return whether a client may still own revoked partitions. It may if it does not report its partitions."""
    return reported is None or any(partition in reported for partition in revoked)


def _held(partitions: Mapping[Partition, int]) -> list[dict[str, Any]]:
    listed = _by_topic_id(partitions)
    for topic in listed:
        topic["assignment_epochs"] = [partitions[topic["topic_id"], number] for number in topic["partitions"]]
    return listed


def _by_topic_id(partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": list(numbers)} for topic_id, numbers in by_topic(partitions).items()]


def _partitions(topics: Iterable[Mapping[str, Any]]) -> list[Partition]:
    return [(topic["topic_id"], number) for topic in topics for number in topic["partitions"]]


def _with_epochs(topics: Iterable[Mapping[str, Any]], member_epoch: int) -> dict[Partition, int]:
    epochs: dict[Partition, int] = {}
    for topic in topics:
        listed = topic.get("assignment_epochs") or []
        is_complete = len(listed) == len(topic["partitions"])
        for at, number in enumerate(topic["partitions"]):
            epochs[topic["topic_id"], number] = listed[at] if is_complete else max(member_epoch, 0)
    return epochs
