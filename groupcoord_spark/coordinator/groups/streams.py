"""Streams groups of KIP-1071: key types 17 and 19 to 23, rules R-3.22 to R-3.30 of docs/reference/replay-rules.md."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from groupcoord_spark.coordinator.broker_settings import DefaultAssignors
from groupcoord_spark.coordinator.groups.group import AssignmentRow, Value
from groupcoord_spark.coordinator.groups.modern import ModernMember, RefusalError, Refusals, ReplayedModernGroup
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol import UNKNOWN_TAGS

_MEMBER_FIELDS = ("instance_id", "client_id", "client_host", "rack_id", "rebalance_timeout_ms", "process_id", "topology_epoch")
_TASK_TYPES = ("active", "standby", "warmup")

_NO_DESCRIPTION = -1
_STORED_DESCRIPTION_TAG = 2
"""Number of the tagged field StoredDescriptionTopologyEpoch of StreamsGroupMetadataValue, an int32. Releases before 4.4 ignore the tag."""


class ReplayedStreamsGroup(ReplayedModernGroup):
    """A streams group in the state of Kafka's StreamsGroup after the same records."""

    __slots__ = ("_stored_description_epoch", "topology", "validated_topology_epoch")

    group_type = "streams"
    member_states: ClassVar = {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}  # not the numbers of other groups
    refusals = Refusals("R-3.22", None, "R-3.23", "R-3.27", "R-3.24", "R-3.25")
    type_conflict = "R-3.5"

    def __init__(self, semantics: Semantics) -> None:
        super().__init__(semantics)
        self.topology: Value | None = None
        """Value of key type 23; None without a topology."""
        self.validated_topology_epoch: int = semantics.initial_validated_topology_epoch
        """Epoch of the topology that was checked against the topics; -1: topics were missing or did not fit."""
        self._stored_description_epoch = _NO_DESCRIPTION

    def _apply_epoch(self, value: Value) -> None:
        super()._apply_epoch(value)
        self.validated_topology_epoch = value["validated_topology_epoch"]
        self._stored_description_epoch = _stored_description_epoch(value)

    def _apply_other(self, key_type: int, key: Value, value: Value | None) -> None:
        """Store or remove the topology."""
        if value is not None and value["epoch"] < 0:
            raise RefusalError("R-3.30", f"Topology of group {key['group_id']!r} skipped: its epoch {value['epoch']} is negative.")
        self.topology = value

    def _new_member(self) -> ModernMember:
        return ModernMember(None, None, None)  # as in Kafka: what no record has set is not known

    def _check_member_can_be_removed(self, member_id: str, member_epoch: int | None) -> None:
        if member_epoch is None:
            raise RefusalError("R-3.26", f"Tombstone of member {member_id!r} skipped: the member never had a current assignment.")
        super()._check_member_can_be_removed(member_id, member_epoch)

    def members_without_timeout(self) -> Iterator[tuple[str, ModernMember]]:
        """(member id, member) of the members whose rebalance timer a broker cannot start after the load (R-3.29)."""
        for member_id, member in self.members.items():
            if member.metadata is None and member.state == "UNREVOKED_TASKS":
                yield member_id, member

    @property
    def state(self) -> str:
        """The first state of R-3.28 that fits: Empty, NotReady, Assigning, Reconciling, Stable."""
        if not self.members:
            return "Empty"
        if not self._semantics.validates_topology or self.topology is None or self.topology["epoch"] != self.validated_topology_epoch:
            return "NotReady"
        return self._state_of_assignment()

    def protocol(self, default_assignors: DefaultAssignors) -> None:
        return None

    @property
    def topology_epoch(self) -> int | None:
        return None if self.topology is None else self.topology["epoch"]

    @property
    def has_stored_description(self) -> bool:
        return self._stored_description_epoch != _NO_DESCRIPTION

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Source topics and repartition source topics of the topology. Topics of a regular expression are not in the log."""
        if self.topology is None:
            return frozenset()
        topics: set[str] = set()
        for subtopology in self.topology["subtopologies"]:
            topics.update(subtopology["source_topics"])
            topics.update(topic["name"] for topic in subtopology["repartition_source_topics"])
        return frozenset(topics)

    def _fields_of_record(self, metadata: Value) -> dict[str, Any]:
        return {name: metadata.get(name) for name in _MEMBER_FIELDS}

    def assignment_rows(self, group_id: str, topic_names: Mapping[str, str]) -> Iterator[AssignmentRow]:
        for member_id, member in self.members.items():
            for task_type in _TASK_TYPES:
                for kind, tasks in (("current", f"{task_type}_tasks"), ("pending_revocation", f"{task_type}_tasks_pending_revocation")):
                    yield from _task_rows(group_id, member_id, kind, task_type, member.current.get(tasks, ()))
        for member_id, target in self.targets.items():
            for task_type in _TASK_TYPES:
                yield from _task_rows(group_id, member_id, "target", task_type, target[f"{task_type}_tasks"])


def _stored_description_epoch(value: Value) -> int:
    """Topology epoch of the description that the broker's plugin has stored; -1: no description, -2: there may be a description."""
    tag = value.get(UNKNOWN_TAGS, {}).get(_STORED_DESCRIPTION_TAG)
    return _NO_DESCRIPTION if tag is None else int.from_bytes(tag, "big", signed=True)


def _task_rows(group_id: str, member_id: str, kind: str, task_type: str, tasks: Any) -> Iterator[AssignmentRow]:
    """Yield one row for each partition in a list of {subtopology_id, partitions}."""
    for subtopology in tasks:
        for partition in subtopology["partitions"]:
            yield AssignmentRow(group_id, member_id, kind, None, None, subtopology["subtopology_id"], task_type, partition)
