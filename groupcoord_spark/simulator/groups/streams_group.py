"""A streams group (KIP-1071) in a running broker: its records, and what only the running broker knows of it.

Rules: docs/reference/coordinator.md, chapter 13.7.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.sticky_tasks import Task
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.groups import streams_tasks
from groupcoord_spark.simulator.groups.group import CommitRules
from groupcoord_spark.simulator.groups.modern_group import ModernGroup
from groupcoord_spark.simulator.groups.streams_topology import ConfiguredTopology, source_subtopologies
from groupcoord_spark.simulator.messages import Error, RecordToWrite, requests

NO_TASKS: Final[streams_tasks.Owned] = {kind: frozenset() for kind in streams_tasks.KINDS}
_KEY_TYPES_OF_MEMBERS: Final = (KeyType.STREAMS_GROUP_MEMBER_METADATA, KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT)


@dataclass(slots=True, eq=False)
class StreamsGroup(ModernGroup):
    """A streams group, with what its topology makes of the topics and which process has each task.

    A load loses state that is not in the log: ``configured``, ``shutdown_by`` and ``endpoint_epoch``. The heartbeat that creates the group
    loses it as well, because Kafka builds the group again from that heartbeat's records.
    """

    refreshes_metadata: bool = True
    last_configs: dict[str, str] = field(default_factory=dict)
    """Settings that the last group epoch was created with."""
    configured: ConfiguredTopology | None = None
    shutdown_by: str | None = None
    """The member that has asked all members to stop."""
    endpoint_epoch: int = 0
    task_offsets: dict[str, Mapping[Task, int]] = field(default_factory=dict)
    """Member id -> sums of the changelog offsets of tasks, as the member reported them last. Lost like ``endpoint_epoch``."""
    active_processes: dict[Task, str] = field(default_factory=dict)
    """Active task -> the process that has it, or still has to give it up."""
    other_processes: dict[tuple[str, Task], set[str]] = field(default_factory=dict)
    """(kind, task) -> the processes that have the task. As in Kafka a process is in the set once, whichever of its members has the task."""

    group_type: ClassVar[str] = "streams"

    new_member: ClassVar[Mapping[str, Any]] = {
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

    def current_of(self, member_id: str) -> streams_tasks.CurrentTasks:
        """Return the tasks that a member has."""
        member = self.members.get(member_id)
        if member is None or not member.current:
            return streams_tasks.CurrentTasks()
        return streams_tasks.current_tasks(member.current, member.member_epoch or 0, member.previous_member_epoch or 0, member.state or "")

    def target_of(self, member_id: str) -> streams_tasks.Owned:
        """Return the target assignment of a member."""
        target = self.replayed.targets.get(member_id)
        return NO_TASKS if target is None else {kind: streams_tasks.tasks_of(target[f"{kind}_tasks"]) for kind in streams_tasks.KINDS}

    def is_held(self, kind: str, task: Task, process_id: str, own: streams_tasks.Held) -> bool:
        """Return whether a task cannot be given to a member of this process yet: another member runs it, or the process holds it in some
        role.

        own: tasks of the member itself, which do not count in another role.
        """
        runs = self.active_processes.get(task)
        if kind == streams_tasks.ACTIVE:
            is_run = runs is not None
        else:
            is_run = runs == process_id and (kind == streams_tasks.WARMUP or task not in own[streams_tasks.ACTIVE])
        return is_run or any(
            process_id in self.other_processes.get((role, task), ()) and (role == kind or task not in own[role])
            for role in (streams_tasks.STANDBY, streams_tasks.WARMUP)
        )

    def apply(self, record_offset: int, record: RecordToWrite) -> None:
        """Apply a record that is in the log."""
        is_of_member = record.key_type in _KEY_TYPES_OF_MEMBERS
        if is_of_member:
            self._forget_tasks(record.key["member_id"])
        members_before = len(self.members)
        self.replayed.apply(record_offset, record.key_type, record.key, record.value)
        if is_of_member:
            self.note_tasks(record.key["member_id"])
        self.note(record.key_type, record.value)
        if record.value is not None and record.key_type in (self.key_types.member, self.key_types.current):
            self.grow(members_before + 1)
        if record.key_type == self.key_types.member and record.value is None:
            self.task_offsets.pop(record.key["member_id"], None)
        if not self.members:
            self.shutdown_by = None

    def _forget_tasks(self, member_id: str) -> None:
        process_id = self.metadata_of(member_id)["process_id"]
        for kind, task in self._held_by(member_id):
            if kind != streams_tasks.ACTIVE:
                self.other_processes.get((kind, task), set()).discard(process_id)
            elif self.active_processes.get(task) == process_id:
                del self.active_processes[task]

    def note_tasks(self, member_id: str) -> None:
        """Remember which process has the tasks of a member."""
        process_id = self.metadata_of(member_id)["process_id"]
        for kind, task in self._held_by(member_id):
            if kind == streams_tasks.ACTIVE:
                self.active_processes[task] = process_id
            else:
                self.other_processes.setdefault((kind, task), set()).add(process_id)

    def _held_by(self, member_id: str) -> Iterator[tuple[str, Task]]:
        """(kind, task) of the tasks that a member has, or still has to give up."""
        current = self.current_of(member_id)
        for held in (current.assigned, current.pending_revocation):
            for kind in streams_tasks.KINDS:
                for task in held[kind]:
                    yield kind, task

    def note(self, key_type: int | None, value: Mapping[str, Any] | None) -> None:
        ModernGroup.note(self, key_type, value)
        if key_type == KeyType.STREAMS_GROUP_METADATA and value is not None:
            self.last_configs = {config["key"]: config["value"] for config in value["last_assignment_configs"] or ()}

    # Requests

    def changes_of(self, request: requests.StreamsGroupHeartbeat) -> dict[str, Any]:
        tags, endpoint = request.client_tags, request.user_endpoint
        return {
            "instance_id": request.group_instance_id,
            "rack_id": request.rack_id,
            "rebalance_timeout_ms": request.rebalance_timeout_ms,
            "topology_epoch": None if request.topology is None else request.topology.epoch,
            "process_id": request.process_id,
            "user_endpoint": None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]},
            "client_tags": None if tags is None else [{"key": key, "value": tags[key]} for key in in_hash_order(tags, hash_of_text)],
        }

    def left_for_a_while(self, member_id: str) -> streams_tasks.CurrentTasks:
        """Return the assignment that a static member keeps while it is away."""
        current = self.current_of(member_id)
        kept = {kind: dict.fromkeys(tasks, 0) for kind, tasks in current.assigned.items()}
        return current._replace(epoch=requests.LEFT_FOR_A_WHILE, assigned=kept, pending_revocation=streams_tasks.NOTHING)

    def member_epoch(self, member_id: str) -> int:
        return self.current_of(member_id).epoch

    def epochs_of(self, member_id: str, offsets: Iterable[requests.OffsetToCommit], topic_ids: Mapping[str, str]) -> list[int | None]:
        """Return the epoch of the assignment of each partition's active task to the member, or None if it does not have it."""
        current = self.current_of(member_id)
        subtopologies = source_subtopologies(self.replayed.topology or {"subtopologies": ()})
        since = {**current.pending_revocation[streams_tasks.ACTIVE], **current.assigned[streams_tasks.ACTIVE]}
        return [since.get(Task(subtopologies.get(offset.topic, ""), offset.partition)) for offset in offsets]

    def validate_commit(self, request: requests.OffsetCommit | requests.TxnOffsetCommit, rules: CommitRules) -> Error:
        """Return the error of a commit. Streams groups have accepted older epochs since their first release."""
        return ModernGroup.validate_commit(self, request, rules._replace(takes_older_epochs=True))

    # Records

    def topology_record(self, value: Mapping[str, Any] | None) -> RecordToWrite:
        """Return the record of the topology, or its tombstone for None."""
        return self.record(KeyType.STREAMS_GROUP_TOPOLOGY, value)

    def configured_epoch_record(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
    ) -> RecordToWrite:
        """Return the record of a new group epoch. ``validated_topology_epoch`` is the epoch of a topology whose topics all exist, else
        -1."""
        value = {
            "epoch": epoch,
            "metadata_hash": metadata_hash,
            "validated_topology_epoch": validated_topology_epoch,
            "last_assignment_configs": [{"key": key, "value": value} for key, value in sorted(configs.items())],
        }
        return self.record(self.key_types.group, value)

    def epoch_record(self, epoch: int, metadata_hash: int) -> RecordToWrite:
        """Return the record of a new group epoch that keeps the last topology and settings."""
        return self.configured_epoch_record(epoch, metadata_hash, self.replayed.validated_topology_epoch, self.last_configs)

    def target_record(self, member_id: str, target: streams_tasks.Owned) -> RecordToWrite:
        """Return the record of a member's target assignment."""
        return self.record(
            self.key_types.target,
            {f"{kind}_tasks": streams_tasks.tasks_value(target[kind]) for kind in streams_tasks.KINDS},
            member_id=member_id,
        )

    def assignment_record(self, member_id: str, current: streams_tasks.CurrentTasks) -> RecordToWrite:
        """Return the record of a member's current assignment."""
        return self.record(self.key_types.current, streams_tasks.current_value(current), member_id=member_id)

    def tombstones(self) -> list[RecordToWrite]:
        return [self.record(self.key_types.target_epoch, None), self.record(self.key_types.group, None), self.topology_record(None)]
