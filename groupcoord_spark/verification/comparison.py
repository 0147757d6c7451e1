"""State of a warehouse against answers of a broker: every difference, one by one.

Only what was told is compared. What a broker answers about a group is in its coordinator's memory; the answer and the log agree where the
coordinator has written down what it knows, which a group between two generations has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

from groupcoord_spark.verification.answers import Answers, Row
from groupcoord_spark.warehouse import Warehouse

Place = tuple[str, str, int]
"""Group, topic, partition."""

Holding = tuple[str, int]
"""Topic and partition, or subtopology and task."""


class Difference(NamedTuple):
    """One thing that a warehouse and a broker say differently; None: that side does not have it."""

    group: str
    what: str
    ours: str | int | None
    theirs: str | int | None


@dataclass(frozen=True, slots=True)
class State:
    """The rows of one night that brokers answer about: tables of the warehouse by their keys."""

    groups: Mapping[str, Row]
    members: Mapping[str, Mapping[str, Row]]
    assignments: Mapping[tuple[str, str], Sequence[Row]]
    offsets: Mapping[Place, Row]
    pending: frozenset[Place]


@dataclass(slots=True)
class Comparison:
    """Every difference by group, and how much was compared; unasked: groups of ours that the answers are not about."""

    differences: list[Difference] = field(default_factory=list)
    groups: int = 0
    members: int = 0
    offsets: int = 0
    pending: int = 0
    unasked: int = 0


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
_NULL_SAYS_NONE: Final = frozenset({"instance_id", "rack_id", "subscribed_regex"})

_HOLDINGS: Final[Mapping[str, tuple[str, tuple[str | None, ...]]]] = {
    "assignment": ("current", (None, "active")),
    "target_assignment": ("target", (None, "active")),
    "standby_tasks": ("current", ("standby",)),
    "warmup_tasks": ("current", ("warmup",)),
}
"""What a broker tells of a member's partitions or tasks -> kind and task types of its rows in assignments."""

_NOTHING: Final = ""
"""Group, member and protocol: Kafka answers with the empty text where there is none."""


def state_of(warehouse: Warehouse, cluster: str, *, at_ms: int | None = None) -> State:
    """The state of a cluster's newest night, or of that of ``at_ms``."""

    def rows(table: str, *columns: str) -> list[dict[str, Any]]:
        return list(warehouse.read(table, cluster=cluster, columns=columns, at_ms=at_ms).to_pylist())

    members: dict[str, dict[str, Row]] = {}
    for row in rows("members", "group_id", "member_id", "subscribed_topics", *_MEMBER_FIELDS.values()):
        members.setdefault(row["group_id"], {})[row["member_id"]] = row
    assignments: dict[tuple[str, str], list[Row]] = {}
    for row in rows("assignments", "group_id", "member_id", "kind", "topic", "topic_id", "subtopology", "task_type", "partition"):
        assignments.setdefault((row["group_id"], row["member_id"]), []).append(row)
    of_place = itemgetter("group_id", "topic", "partition")
    offsets = rows("committed_offsets", "group_id", "topic", "partition", "committed_offset", "leader_epoch", "metadata")
    return State(
        {row["group_id"]: row for row in rows("groups", "group_id", *_GROUP_FIELDS.values())},
        members,
        assignments,
        {of_place(row): row for row in offsets},
        frozenset(map(of_place, rows("pending_offsets", "group_id", "topic", "partition"))),
    )


def compare(ours: State, theirs: Answers, *, pending_revocation_is_assigned: bool = True) -> Comparison:
    """Every difference between a night's state and a broker's answers, by group; a group that one side lacks is one difference.

    pending_revocation_is_assigned: whether the broker's release answers partitions that a member of a consumer group has yet to give up as
    assigned to the member (``Semantics.describes_pending_revocation``: since 4.3).
    """
    comparison = _Comparing(ours, theirs, pending_revocation_is_assigned)
    if theirs.groups is not None:
        comparison.groups({row["group"]: row for row in theirs.groups})
    if theirs.offsets is not None:
        comparison.offsets({_place(row): row for row in theirs.offsets})
    if theirs.pending is not None:
        comparison.pending({_place(row) for row in theirs.pending})
    # sorting keeps the order of what was found within a group
    comparison.found.differences.sort(key=lambda difference: difference.group)
    return comparison.found


class _Comparing:
    """Two sides, and what was found so far."""

    def __init__(self, ours: State, theirs: Answers, pending_revocation_is_assigned: bool) -> None:
        self.found = Comparison()
        self._ours = ours
        self._theirs = theirs
        self._pending_revocation_is_assigned = pending_revocation_is_assigned
        self._topic_of_id = {topic_id: topic for topic, topic_id in theirs.topic_ids.items()}
        self._on_one_side: set[str] = set()
        self._unasked = self._unasked_groups()
        self.found.unasked = len(self._unasked)

    def _unasked_groups(self) -> set[str]:
        asked = self._theirs.protocol_types
        if asked is None:
            return set()
        told = {row["group"] for row in self._theirs.groups or ()}
        return {
            group_id
            for group_id, row in self._ours.groups.items()
            if (row["protocol_type"] or _NOTHING) not in asked and group_id not in told
        }

    def _differ(self, group_id: str, what: str, ours: Any, theirs: Any) -> None:
        self.found.differences.append(Difference(group_id, what, ours, theirs))

    def groups(self, theirs: Mapping[str, Row]) -> None:
        ours = self._ours.groups
        for group_id in [*ours, *(each for each in theirs if each not in ours)]:
            if group_id in self._unasked:
                continue
            self.found.groups += 1
            if group_id not in theirs or group_id not in ours:
                self._on_one_side.add(group_id)
                state_there = (theirs[group_id].get("state") or "listed") if group_id in theirs else None
                self._differ(group_id, "group", ours[group_id]["state"] if group_id in ours else None, state_there)
                continue
            for told, column in _GROUP_FIELDS.items():
                value = theirs[group_id].get(told)
                here = ours[group_id][column]
                if value is not None and (here or _NOTHING if isinstance(value, str) else here) != value:
                    self._differ(group_id, told.replace("_", " "), here, value)
            if theirs[group_id].get("members") is not None:
                self._members(group_id, theirs[group_id])

    def _members(self, group_id: str, group: Row) -> None:
        ours = self._ours.members.get(group_id, {})
        theirs = {row["member_id"]: row for row in group["members"]}
        for member_id in [*ours, *(each for each in theirs if each not in ours)]:
            self.found.members += 1
            if member_id not in theirs or member_id not in ours:
                here, there = ((side[member_id].get("client_id") or "there") if member_id in side else None for side in (ours, theirs))
                self._differ(group_id, f"member {member_id}", here, there)
                continue
            self._member(group_id, group.get("type"), ours[member_id], theirs[member_id])

    def _member(self, group_id: str, group_type: str | None, ours: Row, theirs: Row) -> None:
        member_id = ours["member_id"]
        topics = theirs.get("subscribed_topics")
        for told, column in _MEMBER_FIELDS.items():
            value = theirs.get(told)
            is_told = value is not None or (told in theirs and told in _NULL_SAYS_NONE)
            if told == "rack_id" and value is None and topics is None:
                # a classic member's rack is inside of its subscription: not told where that was not read
                is_told = False
            if is_told and _or_none(ours[column]) != _or_none(value):
                self._differ(group_id, f"{told.replace('_', ' ')} of {member_id}", ours[column], value)
        if topics is not None and set(topics) != set(ours["subscribed_topics"] or ()):
            here, there = (", ".join(sorted(set(side or ()))) or None for side in (ours["subscribed_topics"], topics))
            self._differ(group_id, f"subscribed topics of {member_id}", here, there)
        for holding in _HOLDINGS:
            if theirs.get(holding) is not None:
                there_held = {(name, number) for name, numbers in theirs[holding] for number in numbers}
                here_held = self._held(group_id, member_id, group_type, holding)
                if here_held != there_held:
                    what = f"{holding.replace('_', ' ')} of {member_id}"
                    self._differ(group_id, what, _listed(here_held - there_held), _listed(there_held - here_held))

    def _held(self, group_id: str, member_id: str, group_type: str | None, holding: str) -> set[Holding]:
        kind, task_types = _HOLDINGS[holding]
        kinds = {kind}
        if holding == "assignment" and group_type == "consumer" and self._pending_revocation_is_assigned:
            kinds.add("pending_revocation")
        return {
            (self._name(row), row["partition"])
            for row in self._ours.assignments.get((group_id, member_id), ())
            if row["kind"] in kinds and row["task_type"] in task_types and self._exists(row)
        }

    def _name(self, row: Row) -> str:
        return row["subtopology"] or row["topic"] or self._topic_of_id.get(row["topic_id"]) or row["topic_id"] or _NOTHING

    def _exists(self, row: Row) -> bool:
        """Topics that are gone are not described; another of their name, made later, has another id."""
        return not self._topic_of_id or row["topic_id"] is None or row["topic_id"] in self._topic_of_id

    def _is_compared(self, group_id: str) -> bool:
        """Whether offsets of a group may be held against each other: a group that one side lacks has its difference already."""
        return group_id not in self._on_one_side and group_id not in self._unasked

    def offsets(self, theirs: Mapping[Place, Row]) -> None:
        ours = self._ours.offsets
        for place in [*ours, *(each for each in theirs if each not in ours)]:
            group_id, topic, partition = place
            if not self._is_compared(group_id):
                continue
            self.found.offsets += 1
            here, there = ours.get(place), theirs.get(place)
            committed = None if here is None else here["committed_offset"]
            answered = None if there is None else there["offset"]
            if committed != answered:
                self._differ(group_id, f"offset of {topic}-{partition}", committed, answered)
            if here is None or there is None:
                continue
            epoch = there.get("leader_epoch")
            if epoch is not None and epoch != (-1 if here["leader_epoch"] is None else here["leader_epoch"]):
                self._differ(group_id, f"leader epoch of {topic}-{partition}", here["leader_epoch"], None if epoch == -1 else epoch)
            metadata = there.get("metadata")
            if metadata is not None and not _is_same_note(here["metadata"] or _NOTHING, metadata):
                self._differ(group_id, f"metadata of {topic}-{partition}", here["metadata"], metadata)

    def pending(self, theirs: set[Place]) -> None:
        asked = self._theirs.pending_topics
        ours = {place for place in self._ours.pending if asked is None or place[1] in asked.get(place[0], ())}
        for place in sorted(ours | theirs):
            if not self._is_compared(place[0]):
                continue
            self.found.pending += 1
            if (place in ours) != (place in theirs):
                here, there = ("open" if place in side else None for side in (ours, theirs))
                self._differ(place[0], f"transaction of {place[1]}-{place[2]}", here, there)


def _is_same_note(ours: str, theirs: str) -> bool:
    """Clients in C (librdkafka's) hand metadata on up to its first NUL, and some of them write one at its end."""
    return theirs in (ours, ours.partition("\0")[0])


def _or_none(value: Any) -> Any:
    """The empty text is none, as old clients have it; the number 0 is not."""
    return None if value == _NOTHING else value


def _place(row: Row) -> Place:
    return row["group"], row["topic"], row["partition"]


def _listed(holdings: Iterable[Holding]) -> str | None:
    """``orders:0,1;payments:3``, as Kafka's own tool writes assignments."""
    numbers: dict[str, list[int]] = {}
    for name, number in sorted(holdings):
        numbers.setdefault(name, []).append(number)
    return ";".join(f"{name}:{','.join(map(str, of))}" for name, of in numbers.items()) or None
