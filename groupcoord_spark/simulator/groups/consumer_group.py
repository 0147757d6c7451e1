"""A consumer group of the new protocol (KIP-848) in a running broker: its records, and one step of a member's reconciliation.

The state of the group is what a replay of its records gives, as in Kafka 4.x: each change is a record, and is applied when it is written.
Rules: docs/reference/coordinator.md, chapter 13, and docs/reference/replay-rules.md, chapter 3.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from groupcoord_spark.coordinator.groups.consumer import ConsumerGroup as ReplayedGroup
from groupcoord_spark.coordinator.groups.consumer import ConsumerMember
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.groups.clock import Clock, Timer
from groupcoord_spark.simulator.messages.records import RecordToWrite

Partition = tuple[str, int]
"""(topic id, partition)"""

STABLE, UNREVOKED, UNRELEASED = "STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS"
_STATE_NUMBERS: Final = {STABLE: 0, UNREVOKED: 1, UNRELEASED: 2}
VALUE_VERSION: Final = 0


class CurrentAssignment(NamedTuple):
    """What a member owns. assigned, pending_revocation: partition -> epoch at which the member got it."""

    epoch: int
    previous_epoch: int
    state: str
    assigned: Mapping[Partition, int]
    pending_revocation: Mapping[Partition, int]


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A consumer group with what only the running broker knows: its timers, and when it last looked at the topics."""

    group_id: str
    replayed: ReplayedGroup
    metadata_hash: int = 0
    assignment_timestamp_ms: int = 0
    refreshes_metadata: bool = False
    """A topic has changed: the next heartbeat of any member looks at the topics again."""
    metadata_deadline_ms: int = 0
    regexes_resolved_at_ms: int | None = None
    regexes_are_old: bool = False
    resolves_regexes: bool = False
    session_timers: dict[str, Timer] = field(default_factory=dict)
    rebalance_timers: dict[str, Timer] = field(default_factory=dict)
    join_timers: dict[str, Timer] = field(default_factory=dict)
    """Of classic members that have been told to join again."""
    sync_timers: dict[str, Timer] = field(default_factory=dict)
    """Of classic members that have joined and not sent SyncGroup yet."""

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        """Member id -> member."""
        return self.replayed.members

    @property
    def epoch(self) -> int:
        """The group epoch."""
        return self.replayed.generation

    def static_member_id(self, instance_id: str) -> str | None:
        """The id of the member with an instance id, or None."""
        return next((id_ for id_, member in self.members.items() if (member.metadata or {}).get("instance_id") == instance_id), None)

    def target_of(self, member_id: str) -> list[Partition]:
        """The target assignment of a member, in the order of its record."""
        return _partitions((self.replayed.targets.get(member_id) or {"topic_partitions": []})["topic_partitions"])

    def owned_partitions(self) -> frozenset[Partition]:
        """The partitions that a member has, or still has to give up."""
        owned = (topic for member in self.members.values() for topic in member.owned_partitions())
        return frozenset((topic_id, number) for topic_id, numbers in owned for number in numbers)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member subscribes to: by name, and by the topics of its expression."""
        metadata = member.metadata or {}
        by_regex = self.replayed.resolved_regexes.get(metadata.get("subscribed_topic_regex") or "", [])
        return frozenset((*metadata.get("subscribed_topic_names", ()), *by_regex))

    @property
    def _timers(self) -> tuple[dict[str, Timer], ...]:
        return self.session_timers, self.rebalance_timers, self.join_timers, self.sync_timers

    def cancel_timers(self, member_id: str) -> None:
        """Cancel the timers of a member that has left."""
        for timers in self._timers:
            self.cancel_timer(timers, member_id)

    def cancel_timers_without_member(self) -> None:
        """Cancel the timers of those who are not members."""
        for timers in self._timers:
            for member_id in [member_id for member_id in timers if member_id not in self.members]:
                self.cancel_timer(timers, member_id)

    def stop_timers(self) -> Callable[[Clock], None]:
        """Cancel the timers of all members. Returns what lets them run again."""
        stopped = [(timers, dict(timers)) for timers in self._timers]
        for timers, running in stopped:
            for member_id in running:
                self.cancel_timer(timers, member_id)

        def run_again(clock: Clock) -> None:
            for timers, running in stopped:
                timers.update(running)
                for timer in running.values():
                    clock.revive(timer)

        return run_again

    @staticmethod
    def cancel_timer(timers: dict[str, Timer], member_id: str) -> None:
        """Cancel one timer of a member, if it runs."""
        timer = timers.pop(member_id, None)
        if timer is not None:
            timer.is_cancelled = True


def current_assignment(member: ConsumerMember) -> CurrentAssignment:
    """What a member owns."""
    return CurrentAssignment(
        member.member_epoch,
        member.previous_member_epoch,
        member.state,
        _with_epochs(member.assigned, member.member_epoch),
        _with_epochs(member.pending_revocation, member.member_epoch),
    )


def reconciled(
    current: CurrentAssignment,
    target: Iterable[Partition],
    target_epoch: int,
    reported: Collection[Partition] | None,
    owned_partitions: Callable[[], Collection[Partition]],
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """One step of a member towards its target (chapter 13.3).

    Args:
        target: the member's target assignment, without topics to which it does not subscribe.
        reported: the partitions that the client says it owns; None: it says nothing.
        owned_partitions: gives the partitions that still belong to a member.
    """
    if current.state == STABLE and current.epoch == target_epoch and not subscription_changed:
        return current
    if current.state == UNREVOKED and _still_owns(reported, current.pending_revocation):
        return current
    targeted = dict.fromkeys(target)
    keep = {partition: epoch for partition, epoch in current.assigned.items() if partition in targeted}
    revoked = {partition: epoch for partition, epoch in current.assigned.items() if partition not in targeted}
    if revoked and _still_owns(reported, revoked):
        return CurrentAssignment(current.epoch, current.epoch, UNREVOKED, keep, revoked)
    wanted = [partition for partition in targeted if partition not in keep]
    owned = owned_partitions() if wanted else ()
    free = {partition: target_epoch for partition in wanted if partition not in owned}
    state = STABLE if len(free) == len(wanted) else UNRELEASED
    return CurrentAssignment(target_epoch, current.epoch, state, {**keep, **free}, {})


def _still_owns(reported: Collection[Partition] | None, revoked: Iterable[Partition]) -> bool:
    """A client that says nothing about its partitions may still own them."""
    return reported is None or any(partition in reported for partition in revoked)


# Records


def member_record(group_id: str, member_id: str, metadata: Mapping[str, Any] | None) -> RecordToWrite:
    """The record of a member's metadata; None: its tombstone."""
    return _record(KeyType.CONSUMER_GROUP_MEMBER_METADATA, {"group_id": group_id, "member_id": member_id}, metadata)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> RecordToWrite:
    """The record of the group epoch."""
    return _record(KeyType.CONSUMER_GROUP_METADATA, {"group_id": group_id}, {"epoch": epoch, "metadata_hash": metadata_hash})


def target_record(group_id: str, member_id: str, partitions: Iterable[Partition] | None) -> RecordToWrite:
    """The record of a member's target assignment; None: its tombstone."""
    value = None if partitions is None else {"topic_partitions": _by_topic_id(partitions)}
    return _record(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, {"group_id": group_id, "member_id": member_id}, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> RecordToWrite:
    """The record of the epoch of the target assignment."""
    value = {"assignment_epoch": epoch, "assignment_timestamp_ms": timestamp_ms}
    return _record(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": group_id}, value)


def assignment_record(group_id: str, member_id: str, current: CurrentAssignment | None) -> RecordToWrite:
    """The record of what a member owns; None: its tombstone."""
    value = None
    if current is not None:
        value = {
            "member_epoch": current.epoch,
            "previous_member_epoch": current.previous_epoch,
            "state": _STATE_NUMBERS[current.state],
            "assigned_partitions": _held(current.assigned),
            "partitions_pending_revocation": _held(current.pending_revocation),
        }
    return _record(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, {"group_id": group_id, "member_id": member_id}, value)


def regex_record(group_id: str, regex: str, topics: Sequence[str] | None, now_ms: int = 0) -> RecordToWrite:
    """The record of the topics that an expression matches; None: its tombstone."""
    value = None if topics is None else {"topics": list(topics), "version": 0, "timestamp_ms": now_ms}
    return _record(KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION, {"group_id": group_id, "regular_expression": regex}, value)


def removal_records(group_id: str, member_id: str) -> list[RecordToWrite]:
    """The tombstones of a member that leaves."""
    return [
        assignment_record(group_id, member_id, None),
        target_record(group_id, member_id, None),
        member_record(group_id, member_id, None),
    ]


def group_tombstones(group: ConsumerGroup) -> list[RecordToWrite]:
    """The tombstones of a consumer group that is removed or becomes a classic group."""
    group_id, members = group.group_id, list(group.members)
    return [
        *(assignment_record(group_id, member_id, None) for member_id in members),
        *(target_record(group_id, member_id, None) for member_id in list(group.replayed.targets)),
        _record(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": group_id}, None),
        *(member_record(group_id, member_id, None) for member_id in members),
        *(regex_record(group_id, regex, None) for regex in group.replayed.resolved_regexes),
        _record(KeyType.CONSUMER_GROUP_PARTITION_METADATA, {"group_id": group_id}, None),
        _record(KeyType.CONSUMER_GROUP_METADATA, {"group_id": group_id}, None),
    ]


def metadata_hash(topics: Mapping[str, int]) -> int:
    """A number that changes with the topics of a group. Kafka's own hash is another one; nothing in the log depends on its value."""
    text = ",".join(f"{topic}:{partitions}" for topic, partitions in sorted(topics.items()))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True) if topics else 0


def _record(key_type: int, key: dict[str, Any], value: Mapping[str, Any] | None) -> RecordToWrite:
    return RecordToWrite(key_type, key, None if value is None else VALUE_VERSION, None if value is None else dict(value))


def _held(partitions: Mapping[Partition, int]) -> list[dict[str, Any]]:
    listed = _by_topic_id(partitions)
    for topic in listed:
        topic["assignment_epochs"] = [partitions[topic["topic_id"], number] for number in topic["partitions"]]
    return listed


def _by_topic_id(partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    numbers: dict[str, list[int]] = {}
    for topic_id, number in partitions:
        numbers.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": listed} for topic_id, listed in numbers.items()]


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
