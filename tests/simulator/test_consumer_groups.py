"""Consumer groups of the new protocol (KIP-848): heartbeats, fencing, reconciliation, and records that replay to the same state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.assignors.group import stand_in_topic_id
from groupcoord_spark.coordinator.groups.consumer import ReplayedConsumerGroup
from groupcoord_spark.coordinator.semantics import semantics_for
from groupcoord_spark.protocol import decode_key, decode_value
from groupcoord_spark.protocol.record_types import CONSUMER_GROUP_KEY_TYPES
from groupcoord_spark.simulator import (
    AddPartitions,
    CleanUp,
    ClusterTopic,
    CreateTopic,
    DeleteTopic,
    Error,
    FailAppends,
    LoadPartition,
    LosePartition,
)
from groupcoord_spark.simulator.groups.consumer_group import ConsumerGroup, current_assignment
from groupcoord_spark.simulator.messages.answers import ConsumerGroupHeartbeatAnswer, FetchedOffset
from groupcoord_spark.simulator.messages.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    GroupToFetch,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from groupcoord_spark.simulator.messages.written_records import WrittenRecord
from tests.examples import examples
from tests.simulator.rules import plays
from tests.simulator.scene import GROUP, Scene

TOPICS = {"t": ClusterTopic(4, stand_in_topic_id("t")), "u": ClusterTopic(3, stand_in_topic_id("u"))}
SESSION_MS = 45_000


class Crowd(Scene):
    """A scene with clients of the new protocol, which report what they own in every heartbeat."""

    def __init__(self, version: str = "4.3.1", **fields: Any) -> None:
        super().__init__(version, topics=TOPICS, **fields)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[str, tuple[int, ...]]] = {}

    def beat(self, name: str, epoch: int | None = None, **fields: Any) -> ConsumerGroupHeartbeatAnswer:
        """Return one heartbeat of a client, which joins first. The client takes over and gives up partitions at once."""
        epoch = self.epochs.get(name, 0) if epoch is None else epoch
        request: dict[str, Any] = {"partitions": self.owned.get(name, {})}
        if epoch == 0:
            request = {"partitions": {}, "topics": ("t",), "rebalance_timeout_ms": 60_000}
        elif epoch < 0:
            request = {}
        answer = self.ask(ConsumerGroupHeartbeat(GROUP, name, epoch, **{**request, **fields}))
        if answer.error is Error.NONE:
            self.epochs[name] = max(answer.member_epoch, 0)
            if answer.assignment is not None:
                self.owned[name] = dict(answer.assignment)
        return answer

    def group_epoch(self) -> int:
        """Return the group epoch."""
        return self.simulator.broker.group_of(GROUP, ConsumerGroup).epoch

    def settle(self, *names: str) -> None:
        """Heartbeats until nothing changes any more."""
        for _ in range(6):
            self.pass_time(1_000)
            for name in names:
                self.beat(name)


def test_the_first_member_gets_everything_and_the_second_one_waits_for_the_first() -> None:
    crowd = Crowd()
    assert crowd.beat("a").assignment == {"t": (0, 1, 2, 3)}
    crowd.pass_time(1_000)
    assert crowd.beat("b").assignment == {}
    assert crowd.beat("a").assignment == {"t": (0, 1)}
    assert crowd.beat("b").assignment is None, "a has not reported yet that it gave them up"
    crowd.beat("a")
    assert crowd.beat("b").assignment == {"t": (2, 3)}
    assert crowd.simulator.broker.group_of(GROUP, ConsumerGroup).replayed.state == "Stable"


def test_the_records_of_a_first_heartbeat_come_in_kafkas_order() -> None:
    crowd = Crowd()
    crowd.beat("a")
    assert [record.key_type for record in crowd.records] == [5, 3, 7, 6, 8]
    count = len(crowd.records)
    crowd.beat("a", -1)
    assert [(record.key_type, record.value is None) for record in crowd.records[count:]] == [(8, True), (7, True), (5, True), (3, False)]


@plays("C-13.4.1-3", "C-13.4.8", "C-13.4.10-11")
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "z", "epoch": 3}, Error.UNKNOWN_MEMBER_ID),
        ({"name": "a", "epoch": 9}, Error.FENCED_MEMBER_EPOCH),
        ({"name": "a", "epoch": 1, "partitions": {"t": (0,)}}, Error.FENCED_MEMBER_EPOCH),
        ({"name": "a", "epoch": -3}, Error.INVALID_REQUEST),
        ({"name": "a", "epoch": -2}, Error.INVALID_REQUEST),
        ({"name": "", "epoch": 0}, Error.INVALID_REQUEST),
        ({"name": "n", "epoch": 0, "rebalance_timeout_ms": None}, Error.INVALID_REQUEST),
        ({"name": "n", "epoch": 0, "partitions": {"t": (0,)}}, Error.INVALID_REQUEST),
        ({"name": "n", "epoch": 0, "topics": None}, Error.INVALID_REQUEST),
        ({"name": "n", "epoch": 0, "server_assignor": "sticky"}, Error.UNSUPPORTED_ASSIGNOR),
        ({"name": "n", "epoch": 0, "topics": None, "topic_regex": "("}, Error.INVALID_REGULAR_EXPRESSION),
        ({"name": "n", "epoch": 0, "group_instance_id": ""}, Error.INVALID_REQUEST),
        ({"name": "z", "epoch": -1}, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_that_is_refused_writes_nothing(fields: dict[str, Any], error: Error) -> None:
    crowd = Crowd()
    crowd.beat("a")
    crowd.settle("a")
    count = len(crowd.records)
    assert crowd.beat(**fields).error is error
    assert len(crowd.records) == count and list(crowd.simulator.broker.group_of(GROUP, ConsumerGroup).members) == ["a"]


@plays("C-13.4.4-5")
def test_a_group_that_is_not_there_or_not_empty_cannot_be_a_consumer_group() -> None:
    crowd = Crowd(group_consumer_migration_policy="disabled")
    assert crowd.beat("a", 3).error is Error.GROUP_ID_NOT_FOUND
    assert crowd.beat("a", -1).error is Error.GROUP_ID_NOT_FOUND
    crowd.stabilize("c")
    assert crowd.beat("a").error is Error.GROUP_ID_NOT_FOUND
    crowd.leave("c")
    count = len(crowd.records)
    assert crowd.beat("a").error is Error.NONE
    assert (crowd.records[count].key_type, crowd.records[count].value) == (2, None)


def test_a_lost_answer_is_repeated() -> None:
    crowd = Crowd()
    first = crowd.beat("a")
    again = crowd.beat("a", 0)
    assert (again.member_epoch, again.assignment) == (first.member_epoch, first.assignment)


def test_a_silent_member_is_removed_after_the_session_timeout() -> None:
    crowd = Crowd()
    crowd.beat("a")
    crowd.pass_time(SESSION_MS - 1)
    assert "a" in crowd.simulator.broker.group_of(GROUP, ConsumerGroup).members
    crowd.pass_time(1)
    assert crowd.simulator.broker.group_of(GROUP, ConsumerGroup).replayed.state == "Empty"
    assert crowd.beat("a").error is Error.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_its_partitions_is_removed_after_the_rebalance_timeout() -> None:
    crowd = Crowd(group_consumer_session_timeout_ms=600_000)
    crowd.beat("a", rebalance_timeout_ms=20_000)
    crowd.pass_time(1_000)
    crowd.beat("b")
    crowd.beat("a")
    for _ in range(4):
        crowd.pass_time(4_999)
        assert crowd.beat("a", partitions={"t": (0, 1, 2, 3)}).error is Error.NONE
    crowd.pass_time(5_000)
    assert list(crowd.simulator.broker.group_of(GROUP, ConsumerGroup).members) == ["b"]


@plays("C-13.4.7", "C-13.4.9")
def test_a_static_member_comes_back_with_its_partitions() -> None:
    crowd = Crowd()
    crowd.beat("a", group_instance_id="i")
    crowd.settle("a")
    assert crowd.beat("b", 0, group_instance_id="i").error is Error.UNRELEASED_INSTANCE_ID
    assert crowd.beat("z", 2, group_instance_id="i").error is Error.FENCED_INSTANCE_ID
    epoch = crowd.simulator.broker.group_of(GROUP, ConsumerGroup).epoch
    assert crowd.beat("a", -2, group_instance_id="i").member_epoch == -2
    assert crowd.beat("b", 0, group_instance_id="i").assignment == {"t": (0, 1, 2, 3)}
    group = crowd.simulator.broker.group_of(GROUP, ConsumerGroup)
    assert (list(group.members), group.epoch) == (["b"], epoch), "no rebalance"


def test_topics_that_change_are_noticed_by_the_next_heartbeat() -> None:
    crowd = Crowd()
    crowd.beat("a")
    crowd.settle("a")
    crowd.simulator.act(AddPartitions("t", 6))
    assert crowd.beat("a").assignment == {"t": (0, 1, 2, 3, 4, 5)}


def test_an_expression_is_resolved_by_the_broker() -> None:
    crowd = Crowd()
    assert crowd.beat("a", topics=None, topic_regex="u.*").assignment == {}
    crowd.pass_time(1_000)
    assert crowd.beat("a").assignment == {"u": (0, 1, 2)}
    crowd.simulator.act(CreateTopic("u2", 1))
    for _ in range(3):
        crowd.pass_time(5_000)
        crowd.beat("a")
    assert crowd.owned["a"] == {"u": (0, 1, 2), "u2": (0,)}
    count = len(crowd.records)
    crowd.beat("a", -1)
    assert [(record.key_type, record.value is None) for record in crowd.records[count:]] == [
        *[(8, True), (7, True), (5, True)],
        (16, True),
        (3, False),
    ]


def test_since_4_3_assignments_are_a_second_apart() -> None:
    for version, assignment in (("4.2.0", {"t": (0, 1)}), ("4.3.1", None)):
        crowd = Crowd(version)
        crowd.pass_time(1)
        crowd.beat("a")
        crowd.pass_time(10)
        crowd.beat("b")
        assert crowd.beat("a").assignment == assignment, version


def commit(crowd: Crowd, name: str, epoch: int, partition: int = 0) -> Error:
    answer = crowd.ask(OffsetCommit(GROUP, (OffsetToCommit("t", partition, 5),), epoch, name))
    error: Error = answer.errors["t", partition]
    return error


def test_commits_are_checked_by_the_member_epoch() -> None:
    crowd = Crowd()
    crowd.beat("a")
    crowd.settle("a")
    crowd.beat("b")
    crowd.settle("a", "b")
    epoch = crowd.epochs["a"]
    assert commit(crowd, "a", epoch) is Error.NONE
    assert commit(crowd, "a", epoch + 1) is Error.STALE_MEMBER_EPOCH
    assert commit(crowd, "a", epoch - 1) is Error.NONE, "the partition was assigned in that epoch"
    assert commit(crowd, "b", epoch - 1, partition=2) is Error.STALE_MEMBER_EPOCH
    assert commit(crowd, "z", epoch) is Error.UNKNOWN_MEMBER_ID
    assert commit(crowd, "", -1) is Error.UNKNOWN_MEMBER_ID
    fetched = crowd.ask(OffsetFetch((GroupToFetch(GROUP, {"t": (0,)}, "a", epoch), GroupToFetch(GROUP, None, "a", epoch - 1))))
    assert [group.error for group in fetched.groups] == [Error.NONE, Error.STALE_MEMBER_EPOCH]


def test_a_consumer_group_is_listed_described_and_deleted() -> None:
    crowd = Crowd()
    crowd.beat("a")
    crowd.settle("a")
    (listed,) = crowd.ask(ListGroups(types=("consumer",))).groups
    assert (listed.group_id, listed.state, listed.group_type) == (GROUP, "Stable", "consumer")
    (described,) = crowd.ask(ConsumerGroupDescribe((GROUP,))).groups
    assert described.members[0].assignment == described.members[0].target == {"t": (0, 1, 2, 3)}
    assert crowd.ask(DescribeGroups((GROUP,))).groups[0].error is Error.GROUP_ID_NOT_FOUND
    assert crowd.ask(DeleteGroups((GROUP,))).errors == {GROUP: Error.NON_EMPTY_GROUP}
    crowd.beat("a", -1)
    commit(crowd, "", -1)
    assert crowd.ask(DeleteGroups((GROUP,))).errors == {GROUP: Error.NONE}
    assert crowd.simulator.broker.group_of(GROUP, ConsumerGroup) is None and crowd.records[-1].value is None


def test_offsets_of_a_consumer_group_are_deleted_with_their_topic_and_by_hand() -> None:
    crowd = Crowd()
    crowd.beat("a", topics=("t",))
    crowd.settle("a")
    commit(crowd, "a", crowd.epochs["a"])
    offsets = (OffsetToCommit("u", 0, 7), OffsetToCommit("u", 1, 7))
    crowd.ask(OffsetCommit(GROUP, offsets, crowd.epochs["a"], "a"))
    deleted = crowd.ask(OffsetDelete(GROUP, {"t": (0,), "u": (0,)})).errors
    assert deleted == {("t", 0): Error.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): Error.NONE}
    crowd.simulator.act(DeleteTopic("u"))
    assert crowd.ask(OffsetFetch((GroupToFetch(GROUP),))).groups[0].topics == {"t": {0: FetchedOffset(5)}}


def test_offsets_of_a_consumer_group_expire_and_the_group_goes_with_the_last_one() -> None:
    crowd = Crowd(offsets_retention_ms=120_000)
    crowd.beat("a")
    crowd.settle("a")
    commit(crowd, "a", crowd.epochs["a"])
    crowd.ask(OffsetCommit(GROUP, (OffsetToCommit("u", 0, 7),), crowd.epochs["a"], "a"))
    for _ in range(6):
        crowd.pass_time(30_000)
        crowd.beat("a")
    crowd.simulator.act(CleanUp())
    assert crowd.ask(OffsetFetch((GroupToFetch(GROUP),))).groups[0].topics == {"t": {0: FetchedOffset(5)}}, "t has a reader"
    crowd.beat("a", -1)
    crowd.simulator.act(CleanUp())
    assert crowd.simulator.broker.group_of(GROUP, ConsumerGroup) is None
    assert [record.key_type for record in crowd.records[-4:]] == [1, 6, 4, 3]


def test_a_heartbeat_that_cannot_be_written_changes_nothing() -> None:
    crowd = Crowd()
    crowd.beat("a")
    crowd.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
    assert crowd.beat("b").error is Error.COORDINATOR_NOT_AVAILABLE
    assert list(crowd.simulator.broker.group_of(GROUP, ConsumerGroup).members) == ["a"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["beat"] * 8 + ["join", "leave", "leave for a while", "grow", "move", "other topics"]),
        st.sampled_from(["a", "b", "c", "s"]),
        st.sampled_from([0, 1, 400, 1_000, 20_000]),
    ),
    min_size=10,
    max_size=60,
)


@given(STEPS, st.sampled_from(["4.0.2", "4.1.1", "4.2.0", "4.3.1"]), st.sampled_from(["uniform", "range"]))
@examples(60)
def test_after_any_heartbeats_the_records_replay_to_the_same_state(steps: list[tuple[str, str, int]], version: str, assignor: str) -> None:
    crowd = Crowd(version)
    for what, name, wait_ms in steps:
        crowd.pass_time(wait_ms)
        static = {"group_instance_id": "i"} if name == "s" else {}
        if what == "join" or (what == "beat" and not crowd.epochs.get(name)):
            crowd.beat(name, 0, server_assignor=assignor, **static)
        elif what == "beat":
            if crowd.beat(name, **static).error is not Error.NONE:
                crowd.epochs[name] = 0
        elif what == "other topics":
            crowd.beat(name, topics=("t", "u"), **static)
        elif what == "grow":
            topics = crowd.simulator.broker.settings.topics
            assert topics is not None
            crowd.simulator.act(AddPartitions("t", topics["t"].partitions + 1))
        elif what == "move":
            number = crowd.simulator.broker.partition_number(GROUP)
            crowd.simulator.act(LosePartition(number))
            crowd.simulator.act(LoadPartition(number, tuple(crowd.records)))
        elif crowd.epochs.get(name):
            crowd.beat(name, -2 if static and what == "leave for a while" else -1, **static)
            crowd.epochs[name] = 0
        group = crowd.simulator.broker.group_of(GROUP, ConsumerGroup)
        if group is not None:
            owned = [place for member in group.members.values() for place in current_assignment(member).assigned]
            assert len(owned) == len(set(owned)), "no partition has two owners"
    replayed = ReplayedConsumerGroup(semantics_for(None, version))
    for record in crowd.records:
        if record.key_type not in CONSUMER_GROUP_KEY_TYPES:
            continue
        assert record.key_bytes is not None
        key, value = decode_key(record.key_bytes), record.value_bytes
        decoded = decode_value(record.key_type, value)
        replayed.apply(record.record_offset, record.key_type, key.fields, None if decoded is None else decoded.fields)
    group = crowd.simulator.broker.group_of(GROUP, ConsumerGroup)
    if group is not None:
        assert _facts(replayed) == _facts(group.replayed)
        if group.replayed.state == "Stable":
            targets = sorted(place for member_id in group.members for place in group.target_of(member_id))
            assert targets == sorted(place for member in group.members.values() for place in current_assignment(member).assigned)


def _facts(group: ReplayedConsumerGroup) -> object:
    members = {member_id: (member.metadata, current_assignment(member)) for member_id, member in group.members.items()}
    return group.generation, group.assignment_epoch, group.state, members, group.targets, group.resolved_regexes


OBSERVED = [
    (5, "one"),
    (3, 2),
    (7, "one"),
    (6, 2),
    (8, "one", 2, 0, 0, {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2}, {}),
    (5, "two"),
    (3, 3),
    (8, "two", 2, 0, 0, {}, {}),
    (7, "two"),
    (7, "one"),
    (6, 3),
    (8, "two", 3, 2, 2, {}, {}),
    (8, "one", 2, 2, 1, {0: 2, 1: 2, 2: 2}, {3: 2, 4: 2, 5: 2}),
    (8, "one", 3, 2, 0, {0: 2, 1: 2, 2: 2}, {}),
    (8, "two", 3, 3, 0, {3: 3, 4: 3, 5: 3}, {}),
    (8, "two", -2, 3, 0, {3: 0, 4: 0, 5: 0}, {}),
    (8, "one", -2, 2, 0, {0: 0, 1: 0, 2: 0}, {}),
    (8, "one", None),
    (7, "one", None),
    (5, "one", None),
    (5, "three"),
    (7, "three"),
    (8, "three", 0, 0, 0, {0: 0, 1: 0, 2: 0}, {}),
    (5, "three"),
    (8, "three", 3, 0, 0, {0: 0, 1: 0, 2: 0}, {}),
]
"""The records of group k-static in tests/golden/kip848, which a broker 4.3.1 wrote: two static members, of which one comes back."""


def test_a_real_broker_wrote_the_same_records() -> None:
    crowd = Scene(topics={"t": ClusterTopic(6, stand_in_topic_id("t"))})

    def beat(member_id: str, epoch: int, instance_id: str, partitions: tuple[int, ...] | None = None, client_id: str = "c") -> None:
        joins: dict[str, Any] = {"topics": ("t",), "rebalance_timeout_ms": 60_000, "partitions": {}} if epoch == 0 else {}
        reported = {} if partitions is None else {"partitions": {"t": partitions}}
        answer = crowd.ask(ConsumerGroupHeartbeat(GROUP, member_id, epoch, instance_id, client_id=client_id, **{**joins, **reported}))
        assert answer.error is Error.NONE

    crowd.pass_time(1)
    beat("one", 0, "i1")
    crowd.pass_time(10)
    beat("two", 0, "i2")
    crowd.pass_time(1_000)
    beat("two", 2, "i2")
    beat("one", 2, "i1")
    beat("one", 2, "i1", (0, 1, 2))
    beat("two", 3, "i2")
    beat("two", -2, "i2")
    beat("one", -2, "i1")
    beat("three", 0, "i1", client_id="other")
    assert sorted(map(_seen, crowd.records), key=str) == sorted(OBSERVED, key=str)
    assert [_seen(record) for record in crowd.records if record.key_type != 7] == [seen for seen in OBSERVED if seen[0] != 7]


def _seen(record: WrittenRecord) -> tuple[Any, ...]:
    """Return a record without ids, hashes and times of the clock."""
    assert record.key is not None and record.key_type is not None
    key_type = int(record.key_type)
    value, member_id = record.value, record.key.get("member_id")
    if value is None:
        return key_type, member_id, None
    if key_type in (3, 6):
        return key_type, value.get("epoch", value.get("assignment_epoch"))
    if key_type != 8:
        return key_type, member_id
    held = [
        {number: epoch for topic in value[name] for number, epoch in zip(topic["partitions"], topic["assignment_epochs"], strict=True)}
        for name in ("assigned_partitions", "partitions_pending_revocation")
    ]
    return 8, member_id, value["member_epoch"], value["previous_member_epoch"], value["state"], *held


class TestKafka44:
    @pytest.mark.parametrize(("version", "key_types"), [("4.3.1", [8, 7, 5, 3]), ("4.4.0", [8, 7, 5, 3, 6])])
    def test_the_last_member_that_goes_leaves_a_target_assignment_of_the_new_epoch(self, version: str, key_types: list[int]) -> None:
        crowd = Crowd(version)
        crowd.beat("a")
        count = len(crowd.records)
        crowd.beat("a", -1)
        assert [record.key_type for record in crowd.records[count:]] == key_types
        epoch, last = crowd.records[count + 3].value, crowd.records[-1].value
        assert epoch is not None and last is not None and epoch["epoch"] == crowd.group_epoch()
        if version == "4.4.0":
            assert last == {"assignment_epoch": epoch["epoch"], "assignment_timestamp_ms": 0}

    @pytest.mark.parametrize(("version", "bumps"), [("4.3.1", 0), ("4.4.0", 1)])
    def test_a_changed_server_assignor_makes_a_new_group_epoch(self, version: str, bumps: int) -> None:
        crowd = Crowd(version)
        crowd.beat("a")
        crowd.settle("a")
        before = crowd.group_epoch()
        crowd.beat("a", server_assignor="range")
        assert crowd.group_epoch() == before + bumps

    @pytest.mark.parametrize(("version", "error"), [("4.3.1", Error.UNKNOWN_MEMBER_ID), ("4.4.0", Error.NONE)])
    def test_a_member_with_another_instance_id_is_forgotten_by_its_former_one(self, version: str, error: Error) -> None:
        crowd = Crowd(version)
        crowd.beat("a", group_instance_id="i")
        crowd.beat("a", 0, group_instance_id="j")
        assert crowd.beat("a", group_instance_id="j").error is Error.NONE
        crowd.beat("a", -1, group_instance_id="j")
        assert crowd.beat("b", group_instance_id="i").error is error

    @pytest.mark.parametrize(("version", "error"), [("4.3.1", Error.GROUP_MAX_SIZE_REACHED), ("4.4.0", Error.NONE)])
    def test_a_static_member_comes_back_to_a_full_group(self, version: str, error: Error) -> None:
        crowd = Crowd(version, group_consumer_max_size=1)
        crowd.beat("a", group_instance_id="i")
        crowd.beat("a", -2, group_instance_id="i")
        assert crowd.beat("b", group_instance_id="i").error is error

    @pytest.mark.parametrize(
        ("version", "request_version", "errors"),
        [
            ("4.3.1", 5, [Error.ILLEGAL_GENERATION, Error.ILLEGAL_GENERATION]),
            ("4.4.0", 5, [Error.ILLEGAL_GENERATION, Error.ILLEGAL_GENERATION]),
            ("4.4.0", 6, [Error.STALE_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND]),
        ],
    )
    def test_txn_offset_commit_tells_its_errors_by_its_version(self, version: str, request_version: int, errors: list[Error]) -> None:
        crowd = Crowd(version)
        crowd.beat("a")
        offsets = (OffsetToCommit("t", 0, 5),)
        told = []
        for group_id in (GROUP, "none"):
            request = TxnOffsetCommit(group_id, 7, offsets, generation=9, member_id="a", version=request_version)
            told.append(crowd.ask(request).errors["t", 0])
        assert told == errors


@pytest.mark.parametrize(("version", "error"), [("4.1.2", Error.FENCED_MEMBER_EPOCH), ("4.2.0", Error.NONE)])
def test_a_known_member_may_join_again_since_4_2(version: str, error: Error) -> None:
    crowd = Crowd(version)
    for name in ("a", "b"):
        crowd.beat(name)
        crowd.settle("a", *([name] if name == "b" else []))
    assert crowd.beat("a", 0).error is error


@pytest.mark.parametrize("version", ["4.0.1", "4.3.1", "4.4.0"])
def test_a_static_member_cannot_join_again_before_it_has_left(version: str) -> None:
    crowd = Crowd(version)
    crowd.beat("a", group_instance_id="i")
    assert crowd.beat("a", 0, group_instance_id="i").error is Error.UNRELEASED_INSTANCE_ID


def test_of_two_assignors_with_as_many_votes_the_new_one_wins() -> None:
    crowd = Crowd("4.4.0")
    crowd.beat("a", server_assignor="uniform")
    crowd.settle("a")
    before = crowd.group_epoch()
    crowd.beat("b", server_assignor="uniform")
    crowd.settle("a", "b")
    assert crowd.group_epoch() == before + 1
    crowd.beat("b", server_assignor="range")
    assert crowd.group_epoch() == before + 2
