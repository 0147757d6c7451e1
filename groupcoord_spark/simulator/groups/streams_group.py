"""A streams group (KIP-1071) in a running broker: its records, and what only the running broker knows of it.

The state of the group is what a replay of its records gives: each change is a record, and is applied when it is written.
Rules: docs/reference/coordinator.md, chapter 13.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.sticky_tasks import Task
from groupcoord_spark.coordinator.groups.streams import StreamsGroup as ReplayedGroup
from groupcoord_spark.coordinator.groups.streams import StreamsMember
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.groups.clock import Timer
from groupcoord_spark.simulator.groups.streams_tasks import (
    ACTIVE,
    KINDS,
    CurrentTasks,
    Owned,
    current_tasks,
    current_value,
    tasks_of,
    tasks_value,
)
from groupcoord_spark.simulator.groups.streams_topology import ConfiguredTopology
from groupcoord_spark.simulator.messages.records import RecordToWrite
from groupcoord_spark.simulator.messages.streams_requests import StreamsGroupHeartbeat

VALUE_VERSION: Final = 0
NEW_MEMBER: Final[Mapping[str, Any]] = {
    "instance_id": None,
    "rack_id": None,
    "client_id": "",
    "client_host": "",
    "rebalance_timeout_ms": -1,
    "topology_epoch": -1,
    "process_id": "",
    "user_endpoint": None,
    "client_tags": [],
}
NO_TASKS: Final[Owned] = {kind: frozenset() for kind in KINDS}
_FIRST_SLOTS: Final = 2
_FROM_RECORDS: Final = (
    *("replayed", "metadata_hash", "assignment_timestamp_ms", "last_configs", "configured", "refreshes_metadata", "metadata_deadline_ms"),
    *("active_processes", "other_processes", "slots"),
)
_KEY_TYPES_OF_MEMBERS: Final = (KeyType.STREAMS_GROUP_MEMBER_METADATA, KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT)
_GOLDEN_RATIO: Final = -7046029254386353131


@dataclass(slots=True, eq=False)
class StreamsGroup:
    """A streams group with its timers, and when it last looked at the topics.

    What is not in the log is lost with a load: configured, shutdown_by and endpoint_epoch. It is lost, too, after the heartbeat that
    creates the group: Kafka makes the group anew from the records of that heartbeat.
    """

    group_id: str
    replayed: ReplayedGroup
    metadata_hash: int = 0
    assignment_timestamp_ms: int = 0
    last_configs: dict[str, str] = field(default_factory=dict)
    """The settings with which the last group epoch was made."""
    configured: ConfiguredTopology | None = None
    refreshes_metadata: bool = True
    """A topic has changed: the next heartbeat of any member looks at the topics again."""
    metadata_deadline_ms: int = 0
    shutdown_by: str | None = None
    """The member that has asked all members to stop."""
    endpoint_epoch: int = 0
    session_timers: dict[str, Timer] = field(default_factory=dict)
    rebalance_timers: dict[str, Timer] = field(default_factory=dict)
    active_processes: dict[Task, str] = field(default_factory=dict)
    """Active task -> the process that has it, or still has to give it up."""
    other_processes: dict[tuple[str, Task], set[str]] = field(default_factory=dict)
    """(kind, task) -> the processes that have the task. As in Kafka a process is in the set once, whichever of its members has the task."""
    slots: int = _FIRST_SLOTS
    """Of Kafka's map of members, which never shrinks."""

    @property
    def members(self) -> Mapping[str, StreamsMember]:
        """Member id -> member."""
        return self.replayed.members

    @property
    def epoch(self) -> int:
        """The group epoch."""
        return self.replayed.generation

    def members_in_order(self) -> list[str]:
        """The member ids in the order of Kafka's map of members (TimelineHashMap)."""
        return sorted(self.members, key=lambda member_id: _timeline_slot(member_id, self.slots))

    def metadata_of(self, member_id: str) -> Mapping[str, Any]:
        """The metadata of a member; of an unknown one: what a new member begins with."""
        member = self.members.get(member_id)
        return NEW_MEMBER if member is None or member.metadata is None else member.metadata

    def current_of(self, member_id: str) -> CurrentTasks:
        """What a member has."""
        member = self.members.get(member_id)
        if member is None or not member.current:
            return CurrentTasks()
        return current_tasks(member.current, member.member_epoch or 0, member.previous_member_epoch or 0, member.state or "")

    def target_of(self, member_id: str) -> Owned:
        """The target assignment of a member."""
        target = self.replayed.targets.get(member_id)
        return NO_TASKS if target is None else {kind: tasks_of(target[f"{kind}_tasks"]) for kind in KINDS}

    def is_held(self, kind: str, task: Task, process_id: str) -> bool:
        """Whether a task may not be given to a member of a process yet: another member runs it, or the process has it in any form."""
        runs = self.active_processes.get(task)
        return (
            runs == process_id
            or (kind == ACTIVE and runs is not None)
            or any(process_id in self.other_processes.get((other, task), ()) for other in KINDS)
        )

    def apply(self, record_offset: int, record: RecordToWrite) -> None:
        """Apply a record that is in the log."""
        is_of_member = record.key_type in _KEY_TYPES_OF_MEMBERS
        if is_of_member:
            self._forget_tasks(record.key["member_id"])
        self.replayed.apply(record_offset, record.key_type, record.key, record.value)
        if is_of_member:
            self.note_tasks(record.key["member_id"])
        self.note(record.key_type, record.value)
        self.grow(len(self.members))
        if not self.members:
            self.shutdown_by = None

    def grow(self, members: int) -> None:
        """Double the slots of the map of members as often as so many members ask for it."""
        while members * 3 > self.slots * 4:
            self.slots *= 2

    def _forget_tasks(self, member_id: str) -> None:
        process_id = self.metadata_of(member_id)["process_id"]
        for kind, task in self._held_by(member_id):
            if kind != ACTIVE:
                self.other_processes.get((kind, task), set()).discard(process_id)
            elif self.active_processes.get(task) == process_id:
                del self.active_processes[task]

    def note_tasks(self, member_id: str) -> None:
        """Remember which process has the tasks of a member."""
        process_id = self.metadata_of(member_id)["process_id"]
        for kind, task in self._held_by(member_id):
            if kind == ACTIVE:
                self.active_processes[task] = process_id
            else:
                self.other_processes.setdefault((kind, task), set()).add(process_id)

    def _held_by(self, member_id: str) -> Iterator[tuple[str, Task]]:
        """(kind, task) of the tasks that a member has, or still has to give up."""
        current = self.current_of(member_id)
        for held in (current.assigned, current.pending_revocation):
            for kind in KINDS:
                for task in held[kind]:
                    yield kind, task

    def note(self, key_type: int | None, value: Mapping[str, Any] | None) -> None:
        """Remember what the replay of a record does not keep."""
        if key_type == KeyType.STREAMS_GROUP_METADATA and value is not None:
            self.metadata_hash = value["metadata_hash"]
            self.last_configs = {one["key"]: one["value"] for one in value["last_assignment_configs"] or ()}
        elif key_type == KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA and value is not None:
            self.assignment_timestamp_ms = value["assignment_timestamp_ms"]

    def log_state(self) -> dict[str, Any]:
        """What records change in the group."""
        return {name: getattr(self, name) for name in _FROM_RECORDS}

    def take_back(self, before: Mapping[str, Any]) -> None:
        """Put back a copy of ``log_state``."""
        for name, value in before.items():
            setattr(self, name, value)

    def seen_as(self, before: Mapping[str, Any]) -> StreamsGroup:
        """The group with a copy of ``log_state``, as readers see it while its records are being written."""
        return replace(self, **before)

    def cancel_timers(self, member_id: str) -> None:
        """Cancel the timers of a member that has left."""
        self.cancel_timer(self.session_timers, member_id)
        self.cancel_timer(self.rebalance_timers, member_id)

    @staticmethod
    def cancel_timer(timers: dict[str, Timer], member_id: str) -> None:
        """Cancel one timer of a member, if it runs."""
        timer = timers.pop(member_id, None)
        if timer is not None:
            timer.is_cancelled = True


def _timeline_slot(text: str, slots: int) -> int:
    """The slot of a text in a table of Kafka's ``TimelineHashMap``: the upper bits of its hash times the golden ratio."""
    java_hash = hash_of_text(text)
    signed = java_hash - (1 << 32) if java_hash >= 1 << 31 else java_hash
    return ((signed * _GOLDEN_RATIO) & ((1 << 64) - 1)) >> (65 - slots.bit_length())


def changed_metadata(before: Mapping[str, Any], request: StreamsGroupHeartbeat) -> dict[str, Any]:
    """The member's metadata with what the request changes; null fields of the request change nothing."""
    tags, endpoint = request.client_tags, request.user_endpoint
    changes = {
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": request.rebalance_timeout_ms,
        "topology_epoch": None if request.topology is None else request.topology.epoch,
        "process_id": request.process_id,
        "user_endpoint": None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]},
        "client_tags": None if tags is None else [{"key": key, "value": tags[key]} for key in in_hash_order(tags, hash_of_text)],
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return {**before, **given, "client_id": request.client_id, "client_host": request.client_host}


# Records


def member_record(group_id: str, member_id: str, metadata: Mapping[str, Any] | None) -> RecordToWrite:
    """The record of a member's metadata; None: its tombstone."""
    return _record(KeyType.STREAMS_GROUP_MEMBER_METADATA, {"group_id": group_id, "member_id": member_id}, metadata)


def topology_record(group_id: str, value: Mapping[str, Any] | None) -> RecordToWrite:
    """The record of the topology; None: its tombstone."""
    return _record(KeyType.STREAMS_GROUP_TOPOLOGY, {"group_id": group_id}, value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]) -> RecordToWrite:
    """The record of the group epoch. validated_topology_epoch: that of a topology whose topics are all there, else -1."""
    value = {
        "epoch": epoch,
        "metadata_hash": metadata_hash,
        "validated_topology_epoch": validated_topology_epoch,
        "last_assignment_configs": [{"key": key, "value": value} for key, value in sorted(configs.items())],
    }
    return _record(KeyType.STREAMS_GROUP_METADATA, {"group_id": group_id}, value)


def target_record(group_id: str, member_id: str, target: Owned | None) -> RecordToWrite:
    """The record of a member's target assignment; None: its tombstone."""
    value = None if target is None else {f"{kind}_tasks": tasks_value(target[kind]) for kind in KINDS}
    return _record(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, {"group_id": group_id, "member_id": member_id}, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> RecordToWrite:
    """The record of the epoch of the target assignment."""
    value = {"assignment_epoch": epoch, "assignment_timestamp_ms": timestamp_ms}
    return _record(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": group_id}, value)


def assignment_record(group_id: str, member_id: str, current: CurrentTasks | None) -> RecordToWrite:
    """The record of what a member has; None: its tombstone."""
    value = None if current is None else current_value(current)
    return _record(KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, {"group_id": group_id, "member_id": member_id}, value)


def removal_records(group_id: str, member_id: str) -> list[RecordToWrite]:
    """The tombstones of a member that leaves."""
    return [
        assignment_record(group_id, member_id, None),
        target_record(group_id, member_id, None),
        member_record(group_id, member_id, None),
    ]


def group_tombstones(group_id: str) -> list[RecordToWrite]:
    """The tombstones of an Empty streams group."""
    return [
        _record(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": group_id}, None),
        _record(KeyType.STREAMS_GROUP_METADATA, {"group_id": group_id}, None),
        topology_record(group_id, None),
    ]


def _record(key_type: int, key: dict[str, Any], value: Mapping[str, Any] | None) -> RecordToWrite:
    return RecordToWrite(key_type, key, None if value is None else VALUE_VERSION, None if value is None else dict(value))
