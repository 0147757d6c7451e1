"""What holds after any requests at any moments, for any release."""

import uuid
from collections import Counter
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from groupcoord_spark.coordinator.replay import PartitionReplay
from groupcoord_spark.protocol import decode_key, decode_value
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator import (
    CleanUp,
    Error,
    FailAppends,
    GroupState,
    LoadPartition,
    LosePartition,
    Release,
    Settings,
    Simulator,
    release_for,
)
from groupcoord_spark.simulator.groups.classic_group import ClassicGroup
from groupcoord_spark.simulator.handlers.commit import stored_offset
from groupcoord_spark.simulator.messages.requests import (
    DeleteGroups,
    EndTxn,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
    TxnOffsetCommit,
)
from tests.examples import examples
from tests.simulator.scene import subscription

VERSIONS = ["0.10.2.2", "1.0.0", "2.0.1", "2.2.0", "2.4.1", "2.7.2", "2.8.2", "3.1.0", "3.9.1", "4.0.0", "4.3.1"]
CLIENTS = ["a", "b", "c", "i-d", "i-e"]
LISTS = [
    (("range", subscription("t")), ("sticky", subscription("t"))),
    (("sticky", subscription("t", "u")), ("range", subscription("t", "u"))),
    (("range", subscription("u")),),
    (("range", b"?"),),
]
TIMEOUTS = [0, 50, 400, 3_000]

# (what, client, a number to choose by, time to let pass first)
Step = tuple[str, str, int, int]
WHAT = [
    *(["join"] * 8 + ["sync"] * 6 + ["beat"] * 2 + ["leave", "leave two", "commit", "commit", "commit outside"]),
    *("txn commit", "end", "fetch", "delete", "offset delete", "clean up"),
]
EVERY_STEP: list[Step] = list(product(WHAT, CLIENTS, range(12), [0, 0, 0, 1, 30, 200, 1_000]))
STEPS = st.lists(st.sampled_from(EVERY_STEP), min_size=20, max_size=60)
"""A step is drawn at once: hypothesis takes four times as long to draw its parts."""


class Crowd:
    """Clients of one group that perform the steps, each with the member id and the generation of its last JoinGroup answer."""

    def __init__(self, simulator: Simulator, group_id: str) -> None:
        self.simulator, self.group_id = simulator, group_id
        self.generations = dict.fromkeys(CLIENTS, 0)
        self.calls = []

    def member_id(self, client):
        ids = self.simulator.broker.member_ids_by_client_id.get(f"{self.group_id}{client}", [])
        return ids[-1] if ids else ""

    def take(self, step: Step) -> None:
        what, client, number, wait_ms = step
        self.simulator.advance_to(self.simulator.broker.now_ms + wait_ms)
        request = self._request(what, client, number)
        if request is None:
            self.simulator.act(CleanUp())
            return
        self.calls.append((client, self.simulator.send(request)))
        for name, call in self.calls:
            if isinstance(call.request, JoinGroup) and call.answer is not None and call.answer.generation > 0:
                self.generations[name] = call.answer.generation

    def _request(self, what, client, number):
        group, member_id = self.group_id, self.member_id(client)
        statics = self.simulator.release.has_static_members
        instance = f"{group}-{client}" if client.startswith("i-") and statics else None
        generation = self.generations[client] - (number == 0)
        offsets = (OffsetToCommit("tu"[number % 2], number % 3, number),)
        knows = self.simulator.release.semantics.broker_version
        old = tuple(int(one) for one in knows.split("."))
        match what:
            case "join":
                if number % 4 == 0 or (instance is not None and number % 2):
                    member_id = ""
                return JoinGroup(
                    group,
                    [60, 300, 2_000][number % 3],
                    TIMEOUTS[number % 4],
                    member_id,
                    instance,
                    "consumer" if number != 7 else "connect",
                    LISTS[number % 5 % 4],
                    f"{group}{client}",
                )
            case "sync":
                members = self.simulator.broker.group(group)
                everybody = tuple((member.member_id, client.encode()) for member in members.members) if members is not None else ()
                return SyncGroup(group, generation, member_id, instance, assignments=everybody)
            case "beat":
                return Heartbeat(group, generation, member_id, instance)
            case "leave":
                return LeaveGroup(group, (Leaving(member_id, instance),))
            case "leave two" if old >= (2, 4):
                return LeaveGroup(group, (Leaving(member_id), Leaving(self.member_id(CLIENTS[number % 5]))))
            case "commit":
                return OffsetCommit(group, offsets, generation, member_id, instance)
            case "txn commit" if old >= (0, 11):
                return TxnOffsetCommit(group, number % 2, offsets)
            case "end" if old >= (0, 11):
                return EndTxn(number % 2, committed=number > 4)
            case "fetch":
                return OffsetFetch((GroupToFetch(group),), require_stable=number > 5)
            case "delete" if old >= (1, 1):
                return DeleteGroups((group,))
            case "offset delete" if old >= (2, 4):
                return OffsetDelete(group, {"tu"[number % 2]: (number % 3,)})
            case "clean up":
                return None
        return OffsetCommit(group, offsets)


def simulator_of(version, delay_ms, entries, new_member_id=None):
    settings_ = Settings(
        group_min_session_timeout_ms=1,
        group_initial_rebalance_delay_ms=delay_ms,
        group_max_size=4,
        offsets_retention_ms=2_000,
        offsets_retention_check_interval_ms=10**12,
    )
    return Simulator(release_for(None, version), settings_, new_member_id=new_member_id, on_entry=entries.append)


def member_ids_counted_per_name():
    """Return a maker of member ids whose number counts the ids of one client or instance alone, whatever ids other clients get."""
    counts = Counter()

    def new_member_id(name):
        counts[name] += 1
        return f"{name}-{uuid.UUID(int=counts[name])}"

    return new_member_id


def check_group(group: ClassicGroup, release: Release) -> None:
    """Check the invariants of a group."""
    members = list(group.members)
    assert group.waiting_joins == sum(member.awaiting_join is not None for member in members)
    assert (group.leader is None) == (not members) or group.leader in group.members
    assert set(group.static_members.values()) == {member.member_id for member in members if member.is_static}
    assert not set(group.pending_members) & set(group.members.keys())
    for name in ("range", "sticky"):
        assert group.supporters.get(name, 0) == sum(name in dict(member.protocols) for member in members)
    if group.state is GroupState.EMPTY:
        assert not members and group.protocol is None and group.join_timer is None
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        assert members and group.waiting_joins == 0
        # From 2.3 to 2.6 a static member may restart with other protocols without a rebalance.
        if release.static_restart_is_written or not release.has_static_members:
            assert all(group.protocol in dict(member.protocols) for member in members)
    if group.state is not GroupState.COMPLETING_REBALANCE:
        assert not any(member.awaiting_sync for member in members)
    if group.state is GroupState.PREPARING_REBALANCE:
        assert not group.join_timer.is_cancelled
    for member in members:
        # Every member has a running session or a waiting request, so that no member stays for ever.
        assert member.session_timer is not None or member.awaiting_join is not None or member.awaiting_sync is not None


@examples(120)
@given(st.sampled_from(VERSIONS), st.sampled_from([0, 0, 100]), STEPS, st.sampled_from([None, 20, 40]))
def test_a_group_is_never_in_a_state_that_makes_no_sense(version, delay_ms, steps, failing_from):
    entries = []
    simulator = simulator_of(version, delay_ms, entries)
    crowd = Crowd(simulator, "g")
    generation = 0
    for number, step in enumerate(steps):
        if number == failing_from:
            simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
        crowd.take(step)
        group = simulator.broker.group("g")
        if group is None:
            generation = 0
        else:
            check_group(group, simulator.release)
            assert group.generation >= generation
            generation = group.generation
    answered = [call.number for entry in entries for call in entry.answered]
    assert len(answered) == len(set(answered))
    # After long enough all sessions have ended and all timers have fired.
    simulator.advance_to(simulator.broker.now_ms + 10**6)
    group = simulator.broker.group("g")
    assert group is None or group.state is GroupState.EMPTY


@examples(60)
@given(st.sampled_from(VERSIONS), STEPS)
def test_the_log_tells_another_broker_what_this_one_knows(version, steps):
    entries = []
    simulator = simulator_of(version, 0, entries)
    crowd = Crowd(simulator, "g")
    if not simulator.release.deletion_writes_pending:
        # Scala writes no tombstone for a pending offset that it drops, so a load brings the offset back.
        steps = [step for step in steps if step[0] != "txn commit"]
    for step in steps:
        crowd.take(step)
    number = simulator.broker.partition_number("g")
    records = tuple(record for entry in entries for record in entry.records)
    assert [record.record_offset for record in records] == list(range(len(records)))
    here, there = simulator.broker.group("g"), simulator_of(version, 0, [])
    there.advance_to(simulator.broker.now_ms)
    there.act(LoadPartition(number, records))
    fetch = OffsetFetch((GroupToFetch("g"),))
    assert there.send(fetch).answer == simulator.send(fetch).answer
    moved = there.broker.group("g")
    # From 2.3 to 2.6 the restart of a static member was not written to the log (KAFKA-10284).
    is_written = simulator.release.static_restart_is_written or not simulator.release.has_static_members
    if is_written and here is not None and here.state in (GroupState.STABLE, GroupState.EMPTY) and here.generation > 0:
        assert moved.state is here.state
        assert (moved.generation, moved.protocol, moved.leader) == (here.generation, here.protocol, here.leader)
        assignments = [{member.member_id: member.assignment for member in group.members} for group in (here, moved)]
        assert assignments[0] == assignments[1]
    # To lose the partition and load it again changes nothing.
    simulator.act(LosePartition(number))
    simulator.act(LoadPartition(number, records))
    assert simulator.describe("g") == there.describe("g")


# The leader does not join again, so the first in map order of the two members that have joined becomes the leader.
NEW_LEADER_BY_MAP_ORDER = [
    *[("join", "a", 0, 0)] * 8,
    ("join", "i-d", 0, 0),
    ("sync", "a", 0, 0),
    ("leave two", "a", 0, 0),
    *[("sync", "a", 0, 0)] * 4,
    ("join", "c", 0, 0),
    ("join", "c", 2, 0),
    ("join", "i-e", 1, 0),
    ("join", "a", 0, 200),
    ("sync", "c", 1, 0),
]


@examples(60)
@given(st.sampled_from(VERSIONS), STEPS, STEPS)
@example("2.7.2", NEW_LEADER_BY_MAP_ORDER, [("join", "a", 0, 0)] * 20)
def test_one_group_never_changes_another(version, steps, others):
    # Member ids decide the order of the broker's map and with it the next leader, so both runs give each client the same ids.
    first = Crowd(simulator_of(version, 0, [], member_ids_counted_per_name()), "g")
    for step in steps:
        first.take(step)
    simulator = simulator_of(version, 0, [], member_ids_counted_per_name())
    crowd, neighbour = Crowd(simulator, "g"), Crowd(simulator, "h")
    remaining = list(others)
    for step in steps:
        for _ in range(2):
            if remaining:
                what, client, number, _ = remaining.pop(0)
                if what not in ("end", "clean up"):
                    neighbour.take((what, client, number, 0))
        crowd.take(step)

    def errors(crowd_):
        compared = ("error", "errors", "generation", "leader")
        return [(call.answered_at_ms, *(getattr(call.answer, name, None) for name in compared)) for _, call in crowd_.calls]

    assert errors(crowd) == errors(first)


@examples(60)
@given(st.sampled_from(VERSIONS), STEPS)
def test_every_record_reads_back_from_its_bytes(version, steps):
    entries = []
    simulator = simulator_of(version, 0, entries)
    crowd = Crowd(simulator, "g")
    for step in steps:
        crowd.take(step)
    replay = PartitionReplay(simulator.release.semantics)
    for record in (record for entry in entries for record in entry.records if record.control is None):
        key, value = decode_key(record.key_bytes), decode_value(record.key_type, record.value_bytes)
        assert (key.key_type, key.fields, key.doubts) == (record.key_type, record.key, ())
        if record.value is None:
            assert value is None and record.value_bytes is None
        else:
            assert (value.version, value.fields, value.doubts) == (record.value_version, record.value, ())
        if record.key_type == KeyType.OFFSET_COMMIT:
            assert (stored_offset(record) is None) == (record.value is None)
        else:
            replay.apply_group_record(record.record_offset, 0, KeyType.GROUP_METADATA, record.key, record.value_version, record.value)
    # A broker of the same release loads all of it; warns of a subscription that cannot be decoded.
    assert {warning.code for warning in replay.finish().warnings()} <= {"R-2.4"}
