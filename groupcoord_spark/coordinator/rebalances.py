"""What happened to groups: each new generation or epoch, who came and went with it, what moved, and why, as far as the records tell.

Classic groups write a record when the leader has handed in the assignment and when nobody is left: the cause of a generation is inferred
from two of them in succession, from their times and from the timeouts of the members. Groups of the new protocols write what changed
right before the epoch that it brought about. A row says how sure its cause is; where the records do not tell, it says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, Literal, NamedTuple

from groupcoord_spark.coordinator.classic import CONNECT, CONSUMER, connect_tasks, readable
from groupcoord_spark.protocol import assigned_partitions, decode_subscription

Cause = Literal[
    "member_joined",
    "member_left",
    "member_expelled",
    "member_gone",
    "member_restarted",
    "subscription_changed",
    "partitions_changed",
    "follow_up",
    "leader_rejoined",
    "coordinator_moved",
    "group_converted",
    "unknown",
]
Confidence = Literal["certain", "likely", "possible"]
Value = Mapping[str, Any]
Holding = frozenset[tuple[str, int]]
"""(topic, topic id, subtopology or connector; partition or task)."""

CLASSIC_KEY: Final = 2
NOT_KNOWN: Final = -1
_NAMED: Final = 3
"""So many members are named in a sentence; the row lists all of them."""

_LAST_FIRST_EPOCH: Final = 2
_STREAMS_CLIENT: Final = re.compile(r"-StreamThread-\d+(-consumer)?$")


class Roles(NamedTuple):
    """Key types of one of the new protocols, by what their records are about."""

    group_type: str
    epoch: int
    member: int
    assignment: int
    target: int
    topics: tuple[int, ...]
    """Records that tell of topics: their partitions, or which of them an expression matches."""


_ROLES: Final = (
    Roles("consumer", epoch=3, member=5, assignment=6, target=7, topics=(4, 16)),
    Roles("share", epoch=11, member=10, assignment=12, target=13, topics=(9, 15)),
    Roles("streams", epoch=17, member=19, assignment=20, target=21, topics=(23,)),
)
_ROLES_BY_KEY: Final = {
    key_type: roles for roles in _ROLES for key_type in (roles.epoch, roles.member, roles.assignment, roles.target, *roles.topics)
}
KEY_TYPES: Final = (CLASSIC_KEY, *sorted(_ROLES_BY_KEY))
"""Types of the records that this module reads."""


def roles_of(group_type: str) -> Roles:
    """Key types of consumer, share or streams groups."""
    return next(roles for roles in _ROLES if roles.group_type == group_type)


class GroupRecord(NamedTuple):
    """One record of a group, decoded. leader_epoch: of its batch; -1: not known."""

    record_offset: int
    timestamp_ms: int
    key_type: int
    key: Mapping[str, Any]
    value: Value | None
    leader_epoch: int = NOT_KNOWN


class Rebalance(NamedTuple):
    """One new generation of a classic group (``kind`` generation), one new group epoch or target assignment of the others.

    Counts and lists are None where the records before are not known; those of partitions also for share groups, whose members share them.
    ``from_generation``, ``to_generation``: of an assignment its epochs.
    """

    record_offset: int
    record_timestamp_ms: int
    group_id: str
    group_type: str
    kind: str
    protocol_type: str | None
    from_generation: int | None
    to_generation: int
    since_previous_ms: int | None
    member_count: int
    joined_count: int | None
    left_count: int | None
    kept_count: int | None
    members_joined: Sequence[str] | None
    members_left: Sequence[str] | None
    members_kept: Sequence[str] | None
    previous_leader_id: str | None
    leader_id: str | None
    previous_protocol: str | None
    protocol: str | None
    partitions_moved: int | None
    """From one member to another."""
    partitions_assigned: int | None
    """That had no owner before."""
    partitions_released: int | None
    """That have no owner any more."""
    cause: Cause
    confidence: Confidence | None
    evidence: str


class _Finding(NamedTuple):
    cause: Cause
    confidence: Confidence | None
    evidence: str


class _Moves(NamedTuple):
    moved: int
    assigned: int
    released: int


def rebalances(records: Iterable[GroupRecord], before: Iterable[GroupRecord] = ()) -> Iterator[Rebalance]:
    """Rows of successive records of any groups, in offset order. ``before``: records that lead to the state that they meet."""
    groups = GroupLives()
    groups.recall(before)
    for record in records:
        row = groups.apply(record)
        if row is not None:
            yield row


class GroupLives:
    """The groups of one offsets partition while their records pass by."""

    def __init__(self) -> None:
        self._groups: dict[str, _ClassicLife | _ModernLife] = {}

    def recall(self, records: Iterable[GroupRecord]) -> None:
        """Take up the state that these records make, as known from before."""
        for record in records:
            self.apply(record)
        for life in self._groups.values():
            if isinstance(life, _ModernLife):
                life.forget_what_moves()

    def forget(self) -> None:
        """Nothing is known any more: the records that follow do not continue those before."""
        self._groups.clear()

    def apply(self, record: GroupRecord) -> Rebalance | None:
        """The row that the record brings, if it brings one. Records of types that are not in KEY_TYPES bring none."""
        group_id = record.key["group_id"]
        roles = _ROLES_BY_KEY.get(record.key_type)
        if roles is None and record.key_type != CLASSIC_KEY:
            return None
        life = self._groups.get(group_id)
        wanted = "classic" if roles is None else roles.group_type
        if life is None or life.group_type != wanted:
            if record.value is None:
                return None
            before = _Converted.of(life, record) if life is not None else None
            life = _ClassicLife(before) if roles is None else _ModernLife(roles, before)
            self._groups[group_id] = life
        elif life.is_gone and record.value is not None:
            life = _ClassicLife(None) if roles is None else _ModernLife(roles, None)
            self._groups[group_id] = life
        return life.apply(record)


@dataclass(slots=True)
class _Converted:
    """What is left of a group that became one of another type under the same id."""

    group_type: str
    generation: int
    timestamp_ms: int
    members: Mapping[str, Value]

    @classmethod
    def of(cls, life: _ClassicLife | _ModernLife, record: GroupRecord) -> _Converted | None:
        """None: the group was gone before, and this one has only its name."""
        if life.generation is None or (life.is_gone and life.gone_at_ms != record.timestamp_ms):
            return None
        return cls(life.group_type, life.generation, life.timestamp_ms, life.members_at_change)


class _Generation:
    """What the record of one generation says, and what was read out of it so far."""

    __slots__ = ("held", "join_ended_ms", "leader_epoch", "members", "tells_join_end", "timestamp_ms", "value")

    def __init__(self, value: Value, timestamp_ms: int, leader_epoch: int) -> None:
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.leader_epoch = leader_epoch
        self.members: dict[str, Value] = {member["member_id"]: member for member in value["members"]}
        self.held: dict[str, Holding] = {}
        told = value.get("current_state_timestamp_ms")
        self.tells_join_end = told is not None and told != NOT_KNOWN
        self.join_ended_ms: int = told if told is not None and told != NOT_KNOWN else timestamp_ms
        """When all session timers began anew; until 2.1 no record tells it."""

    def holding(self, member_id: str) -> Holding:
        held = self.held.get(member_id)
        if held is None:
            held = self.held[member_id] = _held(self.value, self.members[member_id])
        return held


class _ClassicLife:
    """A classic group, generation after generation."""

    group_type = "classic"

    def __init__(self, before: _Converted | None) -> None:
        self._before = before
        self._now: _Generation | None = None
        self._partition_counts: dict[str, int] = {}
        """Topic -> partitions that members ever had; connector -> its tasks."""
        self._ever_had: set[tuple[str, int]] = set()
        self._was_converted = False
        self.is_gone = False
        self.gone_at_ms = NOT_KNOWN

    @property
    def generation(self) -> int | None:
        return None if self._now is None else int(self._now.value["generation"])

    @property
    def timestamp_ms(self) -> int:
        return NOT_KNOWN if self._now is None else self._now.timestamp_ms

    @property
    def members_at_change(self) -> Mapping[str, Value]:
        return {} if self._now is None else self._now.members

    def apply(self, record: GroupRecord) -> Rebalance | None:
        if record.value is None:
            self.is_gone, self.gone_at_ms = True, record.timestamp_ms
            return None
        old = self._now
        new = _Generation(record.value, record.timestamp_ms, record.leader_epoch)
        self._now = new
        if old is None:
            if not new.members and self._before is None and new.value["generation"] == 0:
                return None  # the group's creation (4.x): no generation has come to an end yet
            row = self._first(record, new)
            self._before = None
            self._learn_partition_counts(held for member_id in new.members for held in new.holding(member_id))
        elif old.value["generation"] == new.value["generation"] and _is_same_membership(old, new):
            new.timestamp_ms, new.join_ended_ms, new.tells_join_end = old.timestamp_ms, old.join_ended_ms, old.tells_join_end
            self._keep_holdings(old, new)
            return None  # a static member was replaced (2.7+), or the same was written again: no rebalance
        else:
            row = self._next(record, old, new)
        return row

    def _first(self, record: GroupRecord, new: _Generation) -> Rebalance:
        before, generation = self._before, new.value["generation"]
        if before is not None:
            finding = _Finding("group_converted", "certain", f"The group was a {before.group_type} group up to epoch {before.generation}.")
            since = _since(before.timestamp_ms, record.timestamp_ms)
            self._was_converted = True
            return _classic_row(record, None, new, before.generation, since, set(before.members), None, finding)
        if generation == 1 and new.members:
            finding = _Finding("member_joined", "certain", f"First generation of the group: {_names(new.members)} joined.")
            return _classic_row(record, None, new, None, None, set(), _moves_from_nothing(new), finding)
        finding = _Finding("unknown", None, "No record of the generation before is known: the log was compacted, or begins here.")
        return _classic_row(record, None, new, None, None, None, None, finding)

    def _next(self, record: GroupRecord, old: _Generation, new: _Generation) -> Rebalance:
        owner_before, owner_after = _owners_of_what_changed(old, new)
        moves = _moves_between(owner_before, owner_after)
        # nearly always none, and this runs for every generation
        first_had = owner_after.keys() - self._ever_had
        new_places = _never_had(first_had, self._partition_counts)
        finding = _cause_of_generation(old, new, moves, new_places, was_converted=self._was_converted)
        finding = _with_circumstances(finding, old, new)
        self._was_converted = False
        self._learn_partition_counts(first_had)
        since = _since(old.timestamp_ms, new.timestamp_ms)
        return _classic_row(record, old, new, old.value["generation"], since, old.members.keys(), moves, finding)

    def _keep_holdings(self, old: _Generation, new: _Generation) -> None:
        for member_id, member in new.members.items():
            if old.members.get(member_id) == member and member_id in old.held:
                new.held[member_id] = old.held[member_id]

    def _learn_partition_counts(self, held: Iterable[tuple[str, int]]) -> None:
        held = set(held)
        self._ever_had |= held
        for topic, partition in held:
            # 0 for a connector itself, of which no task is known yet
            if partition >= self._partition_counts.get(topic, NOT_KNOWN):
                self._partition_counts[topic] = partition + 1


def _owners_of_what_changed(old: _Generation, new: _Generation) -> tuple[dict[tuple[str, int], str], dict[tuple[str, int], str]]:
    """Partition -> member before and after, of the members whose assignment is another: the others keep what they have."""
    owner_before: dict[tuple[str, int], str] = {}
    owner_after: dict[tuple[str, int], str] = {}
    for member_id, member in new.members.items():
        before = old.members.get(member_id)
        if before is not None and before["assignment"] == member["assignment"] and not _is_connect(new.value):
            if member_id in old.held:
                new.held[member_id] = old.held[member_id]
            continue
        if before is not None:
            owner_before.update(dict.fromkeys(old.holding(member_id), member_id))
        owner_after.update(dict.fromkeys(new.holding(member_id), member_id))
    for member_id in old.members.keys() - new.members.keys():
        owner_before.update(dict.fromkeys(old.holding(member_id), member_id))
    return owner_before, owner_after


def _classic_row(
    record: GroupRecord,
    old: _Generation | None,
    new: _Generation,
    from_generation: int | None,
    since_ms: int | None,
    members_before: Collection[str] | None,
    moves: _Moves | None,
    finding: _Finding,
) -> Rebalance:
    return Rebalance(
        record_offset=record.record_offset,
        record_timestamp_ms=record.timestamp_ms,
        group_id=record.key["group_id"],
        group_type="classic",
        kind="generation",
        protocol_type=new.value["protocol_type"] or None,
        from_generation=from_generation,
        to_generation=new.value["generation"],
        since_previous_ms=since_ms,
        **_coming_and_going(members_before, new.members.keys()),
        previous_leader_id=None if old is None else old.value["leader"],
        leader_id=new.value["leader"],
        previous_protocol=None if old is None else old.value["protocol"],
        protocol=new.value["protocol"],
        partitions_moved=None if moves is None else moves.moved,
        partitions_assigned=None if moves is None else moves.assigned,
        partitions_released=None if moves is None else moves.released,
        cause=finding.cause,
        confidence=finding.confidence,
        evidence=finding.evidence,
    )


def _coming_and_going(before: Collection[str] | None, after: Collection[str]) -> dict[str, Any]:
    joined: list[str] | None
    left: list[str] | None
    kept: list[str] | None
    if before is None:
        joined = left = kept = None
    elif before == after:
        joined, left, kept = [], [], sorted(after)
    else:
        was, now = set(before), set(after)
        joined, left, kept = sorted(now - was), sorted(was - now), sorted(now & was)
    return {
        "member_count": len(after),
        "joined_count": None if joined is None else len(joined),
        "left_count": None if left is None else len(left),
        "kept_count": None if kept is None else len(kept),
        "members_joined": joined,
        "members_left": left,
        "members_kept": kept,
    }


def _cause_of_generation(old: _Generation, new: _Generation, moves: _Moves, new_places: Sequence[str], *, was_converted: bool) -> _Finding:
    """The first of these that the two records bear out; what is seen beside it stands in the evidence."""
    before, after = old.value["generation"], new.value["generation"]
    if after <= before:
        return _Finding(
            "coordinator_moved",
            "likely",
            f"The generation went from {before} to {after}, which no coordinator does: another one took over that lacked the last records.",
        )
    joined = [member for member_id, member in new.members.items() if member_id not in old.members]
    gone = [member for member_id, member in old.members.items() if member_id not in new.members]
    if joined and gone:
        return _cause_of_exchange(old, new, joined, gone)
    if joined:
        return _Finding("member_joined", "certain", f"{_names(_ids(joined))} joined {_a_group_of(len(old.members))}.")
    if gone:
        return _cause_of_leaving(old, new, gone)
    if not new.members:
        return _Finding("member_gone", "likely", "Nobody was left when the join phase ended: who had joined went again before it did.")
    return _cause_without_newcomers(old, new, moves, new_places, was_converted=was_converted)


def _is_same_membership(old: _Generation, new: _Generation) -> bool:
    """Whether the members are the same but for static ones under new ids."""
    if old.members.keys() == new.members.keys():
        return True
    return len(old.members) == len(new.members) and {_lasting_id(member) for member in old.members.values()} == {
        _lasting_id(member) for member in new.members.values()
    }


def _lasting_id(member: Value) -> tuple[str, str]:
    instance_id = member.get("group_instance_id")
    return ("member", member["member_id"]) if instance_id is None else ("instance", instance_id)


def _cause_of_exchange(old: _Generation, new: _Generation, joined: Sequence[Value], gone: Sequence[Value]) -> _Finding:
    both = f"{_names(_ids(joined))} joined and {_names(_ids(gone))} went in the same generation"
    instances = {member.get("group_instance_id") for member in joined} - {None}
    if all(member.get("group_instance_id") in instances for member in gone):
        return _Finding("member_restarted", "certain", f"{both}, with the same group.instance.id: static members came back under new ids.")
    clients = [_client(member) for member in joined]
    if len(joined) == len(gone) and sorted(clients) == sorted(_client(member) for member in gone):
        return _Finding("member_restarted", "likely", f"{both}, of the same client ids and hosts.")
    return _Finding("member_joined", "possible", f"{both}; which of it came first is not recorded. {_how_gone(old, new, gone).evidence}")


def _cause_of_leaving(old: _Generation, new: _Generation, gone: Sequence[Value]) -> _Finding:
    finding = _how_gone(old, new, gone)
    return finding._replace(evidence=f"{_names(_ids(gone))} went. {finding.evidence}")


def _how_gone(old: _Generation, new: _Generation, gone: Sequence[Value]) -> _Finding:
    """Left or expelled: the time since all timers began anew can rule the second out; nothing in a record rules the first out."""
    since_ms = new.join_ended_ms - old.join_ended_ms
    session_ms = min(int(member["session_timeout_ms"]) for member in gone)
    limit_ms = min(session_ms, _least_rebalance_timeout_ms(old, new))
    if 0 <= since_ms < limit_ms:
        which = "session" if limit_ms == session_ms else "rebalance"
        return _Finding(
            "member_left",
            "certain" if old.tells_join_end and new.tells_join_end else "likely",
            f"{_seconds(since_ms)} after its last join, before its {which} timeout of {_seconds(limit_ms)} could pass:"
            " it left, or the group was full.",
        )
    passed = f"{_seconds(since_ms)} passed since its last join, its session timeout is {_seconds(session_ms)}"
    if all(member.get("group_instance_id") is not None for member in gone):
        return _Finding("member_expelled", "likely", f"Static members do not leave when they close; {passed}.")
    if all(_STREAMS_CLIENT.search(member["client_id"]) for member in gone):
        return _Finding("member_expelled", "likely", f"Members of Kafka Streams do not leave when they close; {passed}.")
    # Where others remain one of them may have started it, and the member only missed it.
    confidence: Confidence = "likely" if new.members else "certain"
    return _Finding("member_gone", confidence, f"{passed}: whether it left or was expelled is not recorded.")


def _least_rebalance_timeout_ms(old: _Generation, new: _Generation) -> int:
    """What the group waited at least: the longest of its members', each of which may have changed its own as it joined again (3.x)."""
    timeouts = []
    for member_id, member in old.members.items():
        told = [_rebalance_timeout_ms(each) for each in (member, new.members.get(member_id)) if each is not None]
        timeouts.append(min(told))
    return max(timeouts)


def _cause_without_newcomers(
    old: _Generation, new: _Generation, moves: _Moves, new_places: Sequence[str], *, was_converted: bool
) -> _Finding:
    if old.value["protocol"] != new.value["protocol"] or old.value["protocol_type"] != new.value["protocol_type"]:
        return _Finding(
            "subscription_changed",
            "certain",
            f"The same members joined with other protocols: {old.value['protocol']} became {new.value['protocol']}.",
        )
    changed = [member_id for member_id, member in new.members.items() if _asks_otherwise(old, member_id, member, new)]
    if changed:
        return _Finding("subscription_changed", "certain", f"{_names(changed)} joined again with another subscription.")
    if was_converted:
        return _Finding(
            "group_converted", "likely", "The first generation of the classic group that the group became: its members join again."
        )
    if new_places:
        return _Finding("partitions_changed", "likely", f"Nobody ever had before: {_names(new_places)}.")
    if moves.assigned:
        return _Finding(
            "follow_up",
            "likely",
            f"{moves.assigned} partitions that were taken from their owners in an earlier generation are handed on now.",
        )
    if _moved(old.leader_epoch, new.leader_epoch):
        return _Finding(
            "coordinator_moved", "likely", f"Same members, subscriptions and partitions. {_move(old.leader_epoch, new.leader_epoch)}"
        )
    return _Finding(
        "leader_rejoined",
        "likely",
        "Same members, subscriptions and partitions: a leader (in Connect any worker) that joins again leaves no other trace, nor does"
        " a member that changes protocols which are not in use.",
    )


def _asks_otherwise(old: _Generation, member_id: str, member: Value, new: _Generation) -> bool:
    before = old.members[member_id]["subscription"]
    after = member["subscription"]
    if before == after:
        return False
    if new.value["protocol_type"] != CONSUMER:
        # A Connect worker tells in every join what it runs: only what it was given tells whether anything else changed.
        return not _is_connect(new.value)
    # What it owns and the assignor's own data change from one generation to the next; the topics are what it asks for.
    topics_before, topics_after = _topics(before), _topics(after)
    return topics_before is not None and topics_after is not None and topics_before != topics_after


def _never_had(held: Iterable[tuple[str, int]], partition_counts: Mapping[str, int]) -> list[str]:
    first_and_last: dict[str, tuple[int, int]] = {}
    for topic, partition in held:
        if partition >= partition_counts.get(topic, NOT_KNOWN):
            first, last = first_and_last.get(topic, (partition, partition))
            first_and_last[topic] = min(first, partition), max(last, partition)
    return [
        f"{topic} {first}" if first == last else f"{topic} {first} to {last}" for topic, (first, last) in sorted(first_and_last.items())
    ]


def _with_circumstances(finding: _Finding, old: _Generation, new: _Generation) -> _Finding:
    """What the two records tell beside the cause, and what it takes from its certainty."""
    if finding.cause != "coordinator_moved" and _moved(old.leader_epoch, new.leader_epoch):
        finding = finding._replace(evidence=f"{finding.evidence} {_move(old.leader_epoch, new.leader_epoch)}")
    first, last = old.value["generation"] + 1, new.value["generation"] - 1
    if first > last:
        return finding
    which = f"Generation {first}" if first == last else f"Generations {first} to {last}"
    evidence = f"{finding.evidence} {which} left no record: no assignment was handed in, or the log was compacted."
    return finding._replace(confidence="likely" if finding.confidence == "certain" else finding.confidence, evidence=evidence)


class _ModernLife:
    """A group of the new protocols, epoch after epoch."""

    def __init__(self, roles: Roles, before: _Converted | None) -> None:
        self.group_type = roles.group_type
        self._roles = roles
        self._before = before
        self._members: dict[str, Value] = {}
        self._told_at_ms: dict[str, int] = {}
        """When each member's newest record was written."""
        self._targets: dict[str, Holding] = {}
        self._targets_before: dict[str, Holding] = {}
        """Of the members whose target changed since the last assignment."""
        self._knows_targets_before = True
        self._hash: int | None = None
        self._topics_told: dict[str, Value | None] = {}
        self._topic_changes: list[str] = []
        self._finding = _Finding("unknown", None, "The records tell of no new group epoch before it.")
        self._epochs_since_assignment = 0
        self._assignment_epoch: int | None = None
        self._assignment_ms = NOT_KNOWN
        self._leader_epoch = NOT_KNOWN
        self._began = False
        """Whether the records go back to the group's first epoch."""
        self.generation: int | None = None
        self.timestamp_ms = NOT_KNOWN
        self.members_at_change: Mapping[str, Value] = {} if before is None else before.members
        self.is_gone = False
        self.gone_at_ms = NOT_KNOWN

    def apply(self, record: GroupRecord) -> Rebalance | None:
        roles, key_type, value = self._roles, record.key_type, record.value
        if key_type == roles.epoch:
            if value is None:
                self.is_gone, self.gone_at_ms = True, record.timestamp_ms
                return None
            return self._new_epoch(record, value)
        if key_type == roles.assignment:
            return None if value is None else self._new_assignment(record, value)
        if key_type == roles.target:
            self._new_target(record.key["member_id"], value)
        elif key_type in roles.topics:
            self._learn_topics(record)
        elif value is not None:
            self._members[record.key["member_id"]] = value
            self._told_at_ms[record.key["member_id"]] = record.timestamp_ms
        else:
            self._members.pop(record.key["member_id"], None)
            self._told_at_ms.pop(record.key["member_id"], None)
        return None

    def forget_what_moves(self) -> None:
        """Where the target assignment of the epoch is yet to come: what members that are gone had is not known any more."""
        self._knows_targets_before = self.generation == self._assignment_epoch

    def _new_epoch(self, record: GroupRecord, value: Value) -> Rebalance | None:
        epoch, old_epoch = value["epoch"], self.generation
        old_hash, self._hash = self._hash, value.get("metadata_hash")
        if epoch == old_epoch:
            return None
        before = self._before
        members_before: Mapping[str, Value] | None = self.members_at_change
        self._began = self._began or (old_epoch is None and self._is_first_epoch(record, epoch))
        if old_epoch is None and before is None and not self._began:
            members_before = None
        if before is not None:
            self._finding = _Finding(
                "group_converted", "certain", f"The group was a {before.group_type} group up to generation {before.generation}."
            )
            old_epoch, self.timestamp_ms, self._before = before.generation, before.timestamp_ms, None
        elif members_before is None:
            self._finding = _Finding("unknown", None, "No record of the epoch before is known: the log was compacted, or begins here.")
        else:
            self._finding = self._cause_of_epoch(record, members_before, old_hash)
        since_ms = _since(self.timestamp_ms, record.timestamp_ms)
        row = self._row(record, "group_epoch", old_epoch, epoch, since_ms, members_before, None)
        self.generation, self.timestamp_ms, self.members_at_change = epoch, record.timestamp_ms, dict(self._members)
        self._leader_epoch = record.leader_epoch
        self._topic_changes = []
        self._epochs_since_assignment += 1
        return row

    def _is_first_epoch(self, record: GroupRecord, epoch: int) -> bool:
        """Groups begin at epoch 1, since 4.2 at 2, with the records of their first member in the same batch."""
        return epoch <= _LAST_FIRST_EPOCH and all(self._told_at_ms.get(member) == record.timestamp_ms for member in self._members)

    def _new_assignment(self, record: GroupRecord, value: Value) -> Rebalance | None:
        epoch, old_epoch = value["assignment_epoch"], self._assignment_epoch
        if epoch == old_epoch:
            return None
        moves = None
        if (old_epoch is not None or self._began) and self._knows_targets_before and self.group_type != "share":
            owner_before: dict[tuple[str, int], str] = {}
            owner_after: dict[tuple[str, int], str] = {}
            for member, held in self._targets_before.items():
                owner_before.update(dict.fromkeys(held, member))
                owner_after.update(dict.fromkeys(self._targets.get(member, ()), member))
            moves = _moves_between(owner_before, owner_after)
        if self._epochs_since_assignment > 1:
            counted = f"It answers {self._epochs_since_assignment} group epochs; the cause is that of the last. "
            self._finding = self._finding._replace(evidence=counted + self._finding.evidence)
        since_ms = _since(self._assignment_ms, record.timestamp_ms)
        row = self._row(record, "assignment", old_epoch, epoch, since_ms, self.members_at_change, moves)
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
        members_before: Mapping[str, Value] | None,
        moves: _Moves | None,
    ) -> Rebalance:
        return Rebalance(
            record_offset=record.record_offset,
            record_timestamp_ms=record.timestamp_ms,
            group_id=record.key["group_id"],
            group_type=self.group_type,
            kind=kind,
            protocol_type=self.group_type,
            from_generation=old,
            to_generation=new,
            since_previous_ms=since_ms,
            **_coming_and_going(None if members_before is None else members_before.keys(), self._members.keys()),
            previous_leader_id=None,
            leader_id=None,
            previous_protocol=None,
            protocol=None,
            partitions_moved=None if moves is None else moves.moved,
            partitions_assigned=None if moves is None else moves.assigned,
            partitions_released=None if moves is None else moves.released,
            cause=self._finding.cause,
            confidence=self._finding.confidence,
            evidence=self._finding.evidence,
        )

    def _new_target(self, member_id: str, value: Value | None) -> None:
        self._targets_before.setdefault(member_id, self._targets.get(member_id, frozenset()))
        if value is None:
            self._targets.pop(member_id, None)
        else:
            self._targets[member_id] = _target(value)

    def _learn_topics(self, record: GroupRecord) -> None:
        """Partitions of topics (until 4.0), matches of an expression, or a topology: what is new in them since the last epoch."""
        about = str(record.key.get("regular_expression", record.key_type))
        before = self._topics_told.get(about)
        self._topics_told[about] = record.value
        if record.value is None or record.value == before:
            return
        if "initialized_topics" in record.value:
            if record.value["initialized_topics"] != (() if before is None else before["initialized_topics"]):
                self._topic_changes.append("Partitions of topics got their share state, and can be given out")
            return
        if before is None:
            return
        if "regular_expression" in record.key:
            if sorted(before["topics"]) != sorted(record.value["topics"]):
                self._topic_changes.append(f"Expression {about!r} matches other topics than before")
        elif "subtopologies" in record.value:
            self._topic_changes.append("The topology is another one")
        else:
            self._topic_changes.append(_partition_changes(before, record.value))

    def _cause_of_epoch(self, record: GroupRecord, before: Mapping[str, Value], old_hash: int | None) -> _Finding:
        after = self._members
        joined = {member_id: member for member_id, member in after.items() if member_id not in before}
        gone = {member_id: member for member_id, member in before.items() if member_id not in after}
        if joined and gone:
            instances = {member.get("instance_id") for member in joined.values()} - {None}
            both = f"{_names(joined)} joined and {_names(gone)} went in the same epoch"
            if all(member.get("instance_id") in instances for member in gone.values()):
                return _Finding("member_restarted", "certain", f"{both}, with the same group.instance.id.")
            return _Finding("member_joined", "possible", f"{both}; which of it came first is not recorded.")
        if joined:
            return _Finding("member_joined", "certain", f"{_names(joined)} joined {_a_group_of(len(before))}.")
        if gone:
            if all(member.get("instance_id") is not None for member in gone.values()):
                return _Finding("member_expelled", "likely", f"{_names(gone)} went: a static member is taken out when it stays away.")
            return _Finding("member_gone", "certain", f"{_names(gone)} went: whether it left or was expelled is not recorded.")
        changed = [member_id for member_id, member in after.items() if _wishes(member) != _wishes(before[member_id])]
        if changed:
            return _Finding("subscription_changed", "certain", f"{_names(changed)} asked for other topics, another assignor or topology.")
        if self._topic_changes:
            # A partition count belongs to the topic, what an expression matches and a topology to the members' wishes.
            is_count = all(change.startswith("Partitions") for change in self._topic_changes)
            return _Finding("partitions_changed" if is_count else "subscription_changed", "certain", f"{'; '.join(self._topic_changes)}.")
        if old_hash is not None and self._hash is not None and old_hash != self._hash:
            return _Finding(
                "partitions_changed", "certain", "Members and subscriptions are the same; the hash of their topics' metadata changed."
            )
        if old_hash is None and self._hash:
            return _Finding(
                "partitions_changed", "possible", "Members and subscriptions are the same; the hash of their topics before is not known."
            )
        if _moved(self._leader_epoch, record.leader_epoch):
            return _Finding("coordinator_moved", "possible", f"Nothing else is new. {_move(self._leader_epoch, record.leader_epoch)}")
        return _Finding("unknown", None, "Members, subscriptions and topics are the same as in the epoch before.")


def _moved(epoch_before: int, epoch: int) -> bool:
    return NOT_KNOWN not in (epoch_before, epoch) and epoch_before != epoch


def _move(epoch_before: int, epoch: int) -> str:
    return f"In between the partition's leader epoch went from {epoch_before} to {epoch}: the coordinator moved or was restarted."


def _moves_from_nothing(new: _Generation) -> _Moves:
    return _moves_between({}, {each: member_id for member_id in new.members for each in new.holding(member_id)})


def _moves_between(before: Mapping[tuple[str, int], str], after: Mapping[tuple[str, int], str]) -> _Moves:
    in_both = len(before.keys() & after.keys())
    return _Moves(in_both - len(before.items() & after.items()), len(after) - in_both, len(before) - in_both)


def _held(value: Value, member: Value) -> Holding:
    """What the member has in this generation; nothing where its bytes do not parse."""
    if value["protocol_type"] == CONSUMER:
        return readable(assigned_partitions, member["assignment"]) or frozenset()
    if value["protocol_type"] == CONNECT:
        return frozenset(connect_tasks(member["subscription"], member["assignment"], value["protocol"]).current)
    return frozenset()


def _target(value: Value) -> Holding:
    name, held = ("topic_id", "topic_partitions") if "topic_partitions" in value else ("subtopology_id", "active_tasks")
    return frozenset(chain.from_iterable(zip(repeat(each[name]), each["partitions"], strict=False) for each in value[held]))


def _topics(subscription: bytes) -> frozenset[str] | None:
    decoded = readable(decode_subscription, subscription)
    return None if decoded is None else frozenset(decoded.topics)


def _partition_changes(before: Value, after: Value) -> str:
    counts_before = {topic["topic_name"]: topic["num_partitions"] for topic in before["topics"]}
    counts = {topic["topic_name"]: topic["num_partitions"] for topic in after["topics"]}
    changed = [
        f"{name} {counts_before.get(name, 'none')} to {counts.get(name, 'none')}"
        for name in sorted(counts.keys() | counts_before.keys())
        if counts.get(name) != counts_before.get(name)
    ]
    return f"Partitions of topics changed: {_names(changed)}" if changed else "Partitions of topics moved to other racks"


def _wishes(member: Value) -> tuple[Any, ...]:
    topics = tuple(sorted(set(member.get("subscribed_topic_names") or ())))
    return (topics, member.get("subscribed_topic_regex") or None, member.get("server_assignor"), member.get("topology_epoch"))


def _is_connect(value: Value) -> bool:
    return bool(value["protocol_type"] == CONNECT)


def _rebalance_timeout_ms(member: Value) -> int:
    told = member.get("rebalance_timeout_ms", NOT_KNOWN)
    return int(member["session_timeout_ms"] if told in (NOT_KNOWN, None) else told)


def _client(member: Value) -> tuple[str, str]:
    return member["client_id"], member["client_host"]


def _ids(members: Iterable[Value]) -> list[str]:
    return [member["member_id"] for member in members]


def _names(names: Collection[str]) -> str:
    first = ", ".join(sorted(names)[:_NAMED])
    return first if len(names) <= _NAMED else f"{first} and {len(names) - _NAMED} more"


def _a_group_of(members: int) -> str:
    return f"a group of {members}" if members else "an empty group"


def _since(before_ms: int, now_ms: int) -> int | None:
    return None if NOT_KNOWN in (before_ms, now_ms) else now_ms - before_ms


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
