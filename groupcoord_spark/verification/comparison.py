"""The differences between the state in a warehouse and the answers of a broker.

Only fields that the broker answered are compared. A broker answers from its memory. During a rebalance the coordinator's memory has newer
facts than the log, so a group in a rebalance can differ although both sides are right.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

from groupcoord_spark.coordinator.semantics import JAVA, Semantics
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.verification.answers import Answers, Row
from groupcoord_spark.warehouse import Run, Warehouse

Place = tuple[str, str, int]
"""(group id, topic, partition)."""

Assigned = tuple[str, int]
"""(topic, partition) or (subtopology, task)."""


class Difference(NamedTuple):
    """One difference between a warehouse (ours) and a broker (theirs). None: this side does not have it."""

    group: str
    what: str
    ours: str | int | None
    theirs: str | int | None


@dataclass(frozen=True, slots=True)
class StateOfRun:
    """The rows of one run that a broker can be asked about, by their keys."""

    groups: Mapping[str, Row]
    members: Mapping[str, Mapping[str, Row]]
    assignments: Mapping[tuple[str, str], Sequence[Row]]
    offsets: Mapping[Place, Row]
    pending: frozenset[Place] | None
    """None: the run's input does not have them."""


@dataclass(slots=True)
class BrokerComparison:
    """Differences sorted by group, the counts of compared items, and the groups and topics of the run that were not queried."""

    differences: list[Difference] = field(default_factory=list)
    groups: int = 0
    members: int = 0
    offsets: int = 0
    pending: int = 0
    unasked: Sequence[str] = ()
    unasked_topics: Sequence[str] = ()


_GROUP_FIELDS: Final = {
    "type": "group_type",
    "state": "state",
    "protocol_type": "protocol_type",
    "protocol": "protocol",
    "generation": "generation",
    "assignment_epoch": "assignment_epoch",
    "leader": "leader_id",
}
_MEMBER_FIELDS: Final = {
    "instance_id": "instance_id",
    "client_id": "client_id",
    "client_host": "client_host",
    "rack_id": "rack_id",
    "epoch": "member_epoch",
    "subscribed_regex": "subscribed_topic_regex",
}
_NULL_MEANS_NONE: Final = frozenset({"instance_id", "rack_id", "subscribed_regex"})

_ASSIGNMENTS: Final[Mapping[str, tuple[str, tuple[str | None, ...]]]] = {
    "assignment": ("current", (None, "active")),
    "target_assignment": ("target", (None, "active")),
    "standby_tasks": ("current", ("standby",)),
    "warmup_tasks": ("current", ("warmup",)),
}
"""Field of a broker's answer about a member -> kind and task types of the member's rows in the table ``assignments``."""

_EMPTY: Final = ""
"""Kafka answers with an empty string for a missing protocol, client or other text."""


def state_of(warehouse: Warehouse, cluster: str, *, run: Run | None = None) -> StateOfRun:
    """Return the state after a run, by default the cluster's newest one."""
    run = warehouse.run(cluster) if run is None else run
    is_over_admin_api = run.input_kind == InputKind.ADMIN

    def rows(table: str, *columns: str) -> list[dict[str, Any]]:
        return list(warehouse.read(table, cluster=cluster, columns=columns, run=run).to_pylist())

    members: dict[str, dict[str, Row]] = {}
    for row in rows("members", "group_id", "member_id", "subscribed_topics", *_MEMBER_FIELDS.values()):
        members.setdefault(row["group_id"], {})[row["member_id"]] = row
    assignments: dict[tuple[str, str], list[Row]] = {}
    for row in rows("assignments", "group_id", "member_id", "kind", "topic", "topic_id", "subtopology", "task_type", "partition"):
        assignments.setdefault((row["group_id"], row["member_id"]), []).append(row)
    of_place = itemgetter("group_id", "topic", "partition")
    offsets = rows("committed_offsets", "group_id", "topic", "partition", "committed_offset", "leader_epoch", "metadata")
    return StateOfRun(
        {row["group_id"]: row for row in rows("groups", "group_id", *_GROUP_FIELDS.values())},
        members,
        assignments,
        {of_place(row): row for row in offsets},
        None if is_over_admin_api else frozenset(map(of_place, rows("pending_offsets", "group_id", "topic", "partition"))),
    )


def compare(state: StateOfRun, answers: Answers, *, semantics: Semantics = JAVA) -> BrokerComparison:
    """Compare the state of a run with a broker's answers; differences are sorted by group.

    A group that only one side has is one difference. semantics: of the run; what a broker describes as assigned differs between releases.
    """
    comparer = _Comparer(state, answers, semantics)
    if answers.groups is not None:
        comparer.groups({row["group"]: row for row in answers.groups})
    if answers.offsets is not None:
        comparer.offsets({_place(row): row for row in answers.offsets})
    if answers.pending is not None and state.pending is not None:
        comparer.pending({_place(row) for row in answers.pending})
    # A stable sort keeps the order of the differences of one group.
    comparer.result.differences.sort(key=lambda difference: difference.group)
    return comparer.result


class _Comparer:
    """Compares the state of a run with answers, and collects the differences in ``result``."""

    def __init__(self, state: StateOfRun, answers: Answers, semantics: Semantics) -> None:
        self.result = BrokerComparison()
        self._state = state
        self._answers = answers
        self._semantics = semantics
        self._topic_of_id = {topic_id: topic for topic, topic_id in answers.topic_ids.items()}
        self._on_one_side: set[str] = set()
        self._unasked = self._unasked_groups()
        self._hidden_topics = frozenset(answers.hidden_topics)
        self.result.unasked = sorted(self._unasked)
        self.result.unasked_topics = sorted(self._hidden_topics)

    def _unasked_groups(self) -> set[str]:
        asked_types, answered = self._answers.protocol_types, {row["group"] for row in self._answers.groups or ()}
        return {
            group_id
            for group_id, row in self._state.groups.items()
            if group_id in self._answers.not_described
            or (asked_types is not None and (row["protocol_type"] or _EMPTY) not in asked_types and group_id not in answered)
        }

    def _differ(self, group_id: str, subject: str, stored: Any, answered: Any) -> None:
        self.result.differences.append(Difference(group_id, subject, stored, answered))

    def groups(self, answered: Mapping[str, Row]) -> None:
        stored = self._state.groups
        for group_id in [*stored, *(group_id for group_id in answered if group_id not in stored)]:
            if group_id in self._unasked:
                continue
            self.result.groups += 1
            if group_id not in answered or group_id not in stored:
                self._on_one_side.add(group_id)
                answered_state = (answered[group_id].get("state") or "listed") if group_id in answered else None
                self._differ(group_id, "group", stored[group_id]["state"] if group_id in stored else None, answered_state)
                continue
            for name, column in _GROUP_FIELDS.items():
                value = answered[group_id].get(name)
                stored_value = stored[group_id][column]
                if value is not None and (stored_value or _EMPTY if isinstance(value, str) else stored_value) != value:
                    self._differ(group_id, name.replace("_", " "), stored_value, value)
            if answered[group_id].get("members") is not None:
                self._members(group_id, answered[group_id])

    def _members(self, group_id: str, group: Row) -> None:
        stored = self._state.members.get(group_id, {})
        answered = {row["member_id"]: row for row in group["members"]}
        for member_id in [*stored, *(member_id for member_id in answered if member_id not in stored)]:
            self.result.members += 1
            if member_id not in answered or member_id not in stored:
                clients = ((side[member_id].get("client_id") or "there") if member_id in side else None for side in (stored, answered))
                self._differ(group_id, f"member {member_id}", *clients)
                continue
            self._member(group_id, group.get("type"), stored[member_id], answered[member_id])

    def _member(self, group_id: str, group_type: str | None, stored: Row, answered: Row) -> None:
        member_id = stored["member_id"]
        topics = answered.get("subscribed_topics")
        for name, column in _MEMBER_FIELDS.items():
            value = answered.get(name)
            is_answered = value is not None or (name in answered and name in _NULL_MEANS_NONE)
            if name == "rack_id" and value is None and topics is None:
                # The rack of a classic member is in its subscription: without subscribed topics the subscription was not read.
                is_answered = False
            if is_answered and _or_none(stored[column]) != _or_none(value):
                self._differ(group_id, f"{name.replace('_', ' ')} of {member_id}", stored[column], value)
        if topics is not None and set(topics) != set(stored["subscribed_topics"] or ()):
            lists = (", ".join(sorted(set(side or ()))) or None for side in (stored["subscribed_topics"], topics))
            self._differ(group_id, f"subscribed topics of {member_id}", *lists)
        for field_name in _ASSIGNMENTS:
            if answered.get(field_name) is not None:
                answered_partitions = {(name, number) for name, numbers in answered[field_name] for number in numbers}
                stored_partitions = self._assigned(group_id, member_id, group_type, field_name)
                if stored_partitions != answered_partitions:
                    subject = f"{field_name.replace('_', ' ')} of {member_id}"
                    ours, theirs = stored_partitions - answered_partitions, answered_partitions - stored_partitions
                    self._differ(group_id, subject, _listed(ours), _listed(theirs))

    def _assigned(self, group_id: str, member_id: str, group_type: str | None, field_name: str) -> set[Assigned]:
        """Return the partitions or tasks in the run's rows for a field of the broker's answer."""
        kind, task_types = _ASSIGNMENTS[field_name]

        def is_shown(row: Row) -> bool:
            is_of_kind = self._semantics.describes_as_assigned(group_type or "", row["kind"]) if kind == "current" else row["kind"] == kind
            return is_of_kind and row["task_type"] in task_types and self._exists(row)

        rows = self._state.assignments.get((group_id, member_id), ())
        return {(self._name(row), row["partition"]) for row in rows if is_shown(row)}

    def _name(self, row: Row) -> str:
        return row["subtopology"] or row["topic"] or self._topic_of_id.get(row["topic_id"]) or row["topic_id"] or _EMPTY

    def _exists(self, row: Row) -> bool:
        """Return whether the topic of a row exists. Brokers describe no deleted topics, and a new topic of the same name has a different
        id."""
        return not self._topic_of_id or row["topic_id"] is None or row["topic_id"] in self._topic_of_id

    def _is_compared(self, place: Place) -> bool:
        """Return whether an offset is compared. A group that only one side has already counts as a difference."""
        return place[0] not in self._on_one_side and place[0] not in self._unasked and place[1] not in self._hidden_topics

    def offsets(self, answered: Mapping[Place, Row]) -> None:
        stored = self._state.offsets
        for place in [*stored, *(place for place in answered if place not in stored)]:
            group_id, topic, partition = place
            if not self._is_compared(place):
                continue
            self.result.offsets += 1
            stored_row, answered_row = stored.get(place), answered.get(place)
            stored_offset = None if stored_row is None else stored_row["committed_offset"]
            answered_offset = None if answered_row is None else answered_row["offset"]
            if stored_offset != answered_offset:
                self._differ(group_id, f"offset of {topic}-{partition}", stored_offset, answered_offset)
            if stored_row is None or answered_row is None:
                continue
            epoch = answered_row.get("leader_epoch")
            stored_epoch = stored_row["leader_epoch"]
            if epoch is not None and epoch != (NO_LEADER_EPOCH if stored_epoch is None else stored_epoch):
                self._differ(group_id, f"leader epoch of {topic}-{partition}", stored_epoch, None if epoch == NO_LEADER_EPOCH else epoch)
            metadata = answered_row.get("metadata")
            if metadata is not None and not _is_same_metadata(stored_row["metadata"] or _EMPTY, metadata):
                self._differ(group_id, f"metadata of {topic}-{partition}", stored_row["metadata"], metadata)

    def pending(self, answered: set[Place]) -> None:
        topics = self._answers.pending_topics
        stored = {place for place in self._state.pending or () if topics is None or place[1] in topics.get(place[0], ())}
        for place in sorted(stored | answered):
            if not self._is_compared(place):
                continue
            self.result.pending += 1
            if (place in stored) != (place in answered):
                states = ("open" if place in side else None for side in (stored, answered))
                self._differ(place[0], f"transaction of {place[1]}-{place[2]}", *states)


def _is_same_metadata(stored: str, answered: str) -> bool:
    """Return whether the metadata is equal up to the first NUL, where librdkafka clients cut the text."""
    return answered in (stored, stored.partition("\0")[0])


def _or_none(value: Any) -> Any:
    """Return the value, or None for an empty string, which old clients use for none."""
    return None if value == _EMPTY else value


def _place(row: Row) -> Place:
    return row["group"], row["topic"], row["partition"]


def _listed(assigned: Iterable[Assigned]) -> str | None:
    """Partitions as text, as Kafka's own tool writes them: ``orders:0,1;payments:3``."""
    numbers: dict[str, list[int]] = {}
    for name, number in sorted(assigned):
        numbers.setdefault(name, []).append(number)
    return ";".join(f"{name}:{','.join(map(str, numbers_of_name))}" for name, numbers_of_name in numbers.items()) or None
