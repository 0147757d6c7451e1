"""Why groups rebalanced, from successive records: made by hand, of the simulator, and of real brokers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from groupcoord_spark.coordinator.rebalances import KEY_TYPES, GroupRecord, Rebalance, rebalances
from groupcoord_spark.coordinator.rebalances import modern as modern_epochs
from groupcoord_spark.coordinator.rebalances.rows import MOST_KEPT
from groupcoord_spark.protocol import decode_key, decode_value
from groupcoord_spark.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator import release_for
from groupcoord_spark.simulator.scenario import play, read_scenario, scenario_text
from tests.coordinator.records import GOLDEN, recorded

T0 = 1_000_000
SESSION_MS, REBALANCE_MS = 10_000, 300_000


def member(name: str, *partitions: int, topics: tuple[str, ...] = ("t",), **fields: Any) -> dict[str, Any]:
    return {
        "member_id": name,
        "group_instance_id": None,
        "client_id": name.split("#")[0],
        "client_host": "/h",
        "rebalance_timeout_ms": REBALANCE_MS,
        "session_timeout_ms": SESSION_MS,
        "subscription": encode_subscription(Subscription(1, topics, None, {}, -1, None)),
        "assignment": encode_assignment(Assignment(1, {"t": partitions} if partitions else {}, None)),
        **fields,
    }


def generation(number: int, at_ms: int, *members: Mapping[str, Any], epoch: int = -1, **fields: Any) -> GroupRecord:
    value = {
        "protocol_type": "consumer",
        "generation": number,
        "protocol": "range" if members else None,
        "leader": members[0]["member_id"] if members else None,
        "current_state_timestamp_ms": T0 + at_ms,
        "members": list(members),
        **fields,
    }
    return GroupRecord(number, T0 + at_ms, 2, {"group_id": "g"}, value, epoch)


def last(*records: GroupRecord) -> Rebalance:
    return list(rebalances(records))[-1]


def cause(*records: GroupRecord) -> tuple[str, str | None]:
    row = last(*records)
    return row.cause, row.confidence


FIRST = generation(1, 0, member("a", 0, 1, 2, 3))
BOTH = (member("a", 0, 1), member("b", 2, 3))
SECOND = generation(2, 1_000, *BOTH)


class TestClassicGenerations:
    def test_a_row_tells_who_came_and_what_moved(self) -> None:
        row = last(FIRST, SECOND)
        assert (row.kind, row.from_generation, row.to_generation, row.since_previous_ms) == ("generation", 1, 2, 1_000)
        assert (row.members_joined, row.members_left, row.members_kept) == (["b"], [], ["a"])
        assert (row.member_count, row.joined_count, row.left_count, row.kept_count) == (2, 1, 0, 1)
        assert (row.partitions_moved, row.partitions_assigned, row.partitions_released) == (2, 0, 0)
        assert (row.cause, row.confidence) == ("member_joined", "certain")

    def test_partitions_of_a_member_that_went_are_released_or_moved(self) -> None:
        row = last(SECOND, generation(3, 2_000, member("a", 0, 1, 2)))
        assert (row.partitions_moved, row.partitions_assigned, row.partitions_released) == (1, 0, 1)

    def test_the_record_of_a_creation_is_no_generation(self) -> None:
        created = generation(0, 0, protocol_type="")
        assert list(rebalances([created])) == []
        row = last(created, generation(1, 3_000, member("a", 0)))
        assert (row.from_generation, row.cause, row.members_joined) == (0, "member_joined", ["a"])

    def test_a_generation_whose_past_is_not_known_has_no_cause(self) -> None:
        row = last(generation(57, 0, *BOTH))
        assert (row.from_generation, row.members_joined, row.joined_count, row.cause, row.confidence) == (None, None, None, "unknown", None)

    def test_who_goes_before_its_session_can_end_has_left(self) -> None:
        assert cause(SECOND, generation(3, 1_000 + SESSION_MS - 1, member("a", 0))) == ("member_left", "certain")

    def test_who_goes_after_its_session_may_have_left_or_been_expelled(self) -> None:
        assert cause(SECOND, generation(3, 1_000 + SESSION_MS, member("a", 0))) == ("member_gone", "likely")
        assert cause(SECOND, generation(3, 1_000 + SESSION_MS)) == ("member_gone", "certain")

    def test_who_goes_after_the_rebalance_timeout_may_have_missed_a_rebalance(self) -> None:
        hasty = [member(name, rebalance_timeout_ms=2_000) for name in "ab"]
        assert cause(generation(1, 0, *hasty), generation(2, 1_999, hasty[0])) == ("member_left", "certain")
        assert cause(generation(1, 0, *hasty), generation(2, 2_000, hasty[0])) == ("member_gone", "likely")

    def test_a_rebalance_timeout_that_was_lowered_on_the_way_counts(self) -> None:
        slow, hasty = member("a", rebalance_timeout_ms=3_000), member("b", rebalance_timeout_ms=700)
        lowered = {**slow, "rebalance_timeout_ms": 700}
        assert cause(generation(1, 0, slow, hasty), generation(2, 1_000, slow)) == ("member_left", "certain")
        assert cause(generation(1, 0, slow, hasty), generation(2, 1_000, lowered)) == ("member_gone", "likely")

    def test_static_members_and_members_of_streams_do_not_leave_by_themselves(self) -> None:
        static, streams = member("i-1", group_instance_id="i"), member("x", client_id="app-5e-StreamThread-1-consumer")
        for one in (static, streams):
            assert cause(generation(1, 0, *BOTH, one), generation(2, 60_000, *BOTH)) == ("member_expelled", "likely")

    def test_before_2_1_no_record_tells_when_the_join_phase_ended(self) -> None:
        old = [generation(1, 0, *BOTH), generation(2, 5_000, BOTH[0])]
        for record in old:
            assert record.value is not None
            del record.value["current_state_timestamp_ms"]  # type: ignore[attr-defined]
        assert cause(*old) == ("member_left", "likely")

    def test_the_same_client_under_a_new_id_was_restarted(self) -> None:
        again = generation(3, 60_000, BOTH[0], member("b#2", 2, 3))
        assert cause(SECOND, again) == ("member_restarted", "likely")

    def test_newcomers_beside_leavers_are_the_likelier_cause(self) -> None:
        row = last(SECOND, generation(3, 60_000, BOTH[0], member("c", 2, 3)))
        assert (row.cause, row.confidence) == ("member_joined", "possible")
        assert "b went" in row.evidence

    def test_a_static_member_replaced_in_its_generation_is_no_rebalance(self) -> None:
        static = generation(3, 5_000, BOTH[0], member("i-1", 2, 3, group_instance_id="i"))
        replaced = generation(3, 5_500, BOTH[0], member("i-2", 2, 3, group_instance_id="i"))
        assert len(list(rebalances([SECOND, static, replaced]))) == 2
        row = last(SECOND, static, replaced, generation(4, 90_000, BOTH[0]))
        assert (row.members_left, row.cause) == (["i-2"], "member_expelled")

    def test_a_subscription_or_protocol_that_changed_is_told(self) -> None:
        wider = generation(3, 5_000, member("a", 0, 1, topics=("t", "u")), BOTH[1])
        assert cause(SECOND, wider) == ("subscription_changed", "certain")
        assert cause(SECOND, generation(3, 5_000, *BOTH, protocol="sticky")) == ("subscription_changed", "certain")

    def test_what_a_member_says_it_owns_is_no_change_of_its_subscription(self) -> None:
        owning = encode_subscription(Subscription(1, ("t",), b"sticky", {"t": (0, 1)}, 2, None))
        assert cause(SECOND, generation(3, 5_000, {**BOTH[0], "subscription": owning}, BOTH[1])) == ("leader_rejoined", "likely")

    def test_partitions_that_nobody_ever_had_are_new_to_the_topic(self) -> None:
        row = last(FIRST, SECOND, generation(3, 5_000, member("a", 0, 1, 4), member("b", 2, 3, 5)))
        assert (row.cause, row.confidence, row.partitions_assigned) == ("partitions_changed", "likely", 2)
        assert "t 4 to 5" in row.evidence

    def test_partitions_revoked_before_are_handed_on_in_a_follow_up(self) -> None:
        revoked = generation(2, 1_000, member("a", 0, 1), member("b"))
        assert cause(FIRST, revoked, generation(3, 1_200, *BOTH)) == ("follow_up", "likely")

    @pytest.mark.parametrize(
        ("scheduled_ms", "expected"),
        [
            (T0 + 600_000, ("probing", "certain")),
            (0, ("follow_up", "certain")),
            (T0 + 700_001, ("leader_rejoined", "likely")),  # not yet
            (2**63 - 1, ("leader_rejoined", "likely")),  # none
        ],
    )
    def test_a_rebalance_at_the_time_that_kafka_streams_had_set_is_probing(self, scheduled_ms: int, expected: tuple[str, str]) -> None:
        info = struct.pack(">ii", 11, 11) + bytes(20) + struct.pack(">iq", 0, scheduled_ms)
        assigned = encode_assignment(Assignment(1, {"t": (0, 1)}, info))
        members = {**BOTH[0], "assignment": assigned}, BOTH[1]
        before, after = (generation(number, at_ms, *members, protocol="stream") for number, at_ms in ((2, 0), (3, 700_000)))
        assert cause(before, after) == expected
        # Bytes of another assignor mean nothing.
        assert cause(*(generation(n, at_ms, *members) for n, at_ms in ((2, 0), (3, 700_000)))) == ("leader_rejoined", "likely")

    def test_a_probing_rebalance_tells_how_far_warm_up_tasks_have_come(self) -> None:
        info = struct.pack(">ii", 11, 11) + bytes(20) + struct.pack(">iq", 0, T0 + 600_000)
        assigned = encode_assignment(Assignment(1, {"t": (0, 1)}, info))

        def restored(offset_sum: int) -> dict[str, Any]:
            tasks = struct.pack(">iiiqh", 2, 0, 1, -2, -1) + struct.pack(">iiqh", 1, 2, offset_sum, -1)
            told = struct.pack(">ii", 11, 11) + bytes(16) + struct.pack(">i", 0) + tasks + struct.pack(">bii", 0, 0, 0)
            return {**BOTH[0], "assignment": assigned, "subscription": encode_subscription(Subscription(1, ("t",), told, {}, 2, None))}

        row = last(*(generation(n, at_ms, restored(n * 500), BOTH[1], protocol="stream") for n, at_ms in ((2, 0), (3, 700_000))))
        assert row.evidence.endswith(" Offsets restored for warm-up and standby tasks: 1_2 of a 1,500 (1,000 before).")

    def test_nothing_new_is_a_leader_that_joined_again_or_a_coordinator_that_moved(self) -> None:
        assert cause(SECOND, generation(3, 9_000, *BOTH)) == ("leader_rejoined", "likely")
        before, after = generation(2, 1_000, *BOTH, epoch=4), generation(3, 9_000, *BOTH, epoch=5)
        assert cause(before, after) == ("coordinator_moved", "likely")

    def test_a_generation_that_goes_back_is_of_another_coordinator(self) -> None:
        assert cause(generation(7, 0, *BOTH), generation(6, 5_000, BOTH[0])) == ("coordinator_moved", "likely")

    def test_generations_without_a_record_take_certainty_away(self) -> None:
        row = last(FIRST, generation(4, 1_000, *BOTH))
        assert (row.cause, row.confidence) == ("member_joined", "likely")
        assert "Generations 2 to 3 left no record" in row.evidence

    def test_a_join_phase_that_nobody_outlasts_has_no_members_before_and_after(self) -> None:
        assert cause(generation(0, 0, protocol_type=""), generation(1, 3_000)) == ("member_gone", "likely")

    def test_a_group_made_anew_after_its_tombstone_begins_anew(self) -> None:
        gone = GroupRecord(9, T0 + 9_000, 2, {"group_id": "g"}, None)
        row = last(SECOND, gone, generation(1, 20_000, member("a", 0)))
        assert (row.from_generation, row.members_joined, row.cause) == (None, ["a"], "member_joined")


def modern(offset: int, at_ms: int, key_type: int, value: Mapping[str, Any] | None, **key: str) -> GroupRecord:
    return GroupRecord(offset, T0 + at_ms, key_type, {"group_id": "g", **key}, value)


def joins(offset: int, at_ms: int, name: str, epoch: int, **fields: Any) -> list[GroupRecord]:
    wishes = {"instance_id": None, "client_id": "c", "subscribed_topic_names": ["t"], "server_assignor": None, **fields}
    return [modern(offset, at_ms, 5, wishes, member_id=name), modern(offset + 1, at_ms, 3, {"epoch": epoch, "metadata_hash": 7})]


def target(offset: int, at_ms: int, name: str, *partitions: int) -> GroupRecord:
    return modern(offset, at_ms, 7, {"topic_partitions": [{"topic_id": "T", "partitions": list(partitions)}]}, member_id=name)


ONE = [*joins(1, 0, "a", 1), target(3, 0, "a", 0, 1, 2, 3), modern(4, 0, 6, {"assignment_epoch": 1})]
TWO = [
    *ONE,
    *joins(5, 1_000, "b", 2),
    target(7, 1_000, "a", 0, 1),
    target(8, 1_000, "b", 2, 3),
    modern(9, 1_000, 6, {"assignment_epoch": 2}),
]


class TestModernEpochs:
    def test_epochs_tell_who_came_and_assignments_what_moved(self) -> None:
        rows = list(rebalances(TWO))
        assert [(row.kind, row.to_generation, row.cause, row.partitions_moved) for row in rows] == [
            ("group_epoch", 1, "member_joined", None),
            ("assignment", 1, "member_joined", 0),
            ("group_epoch", 2, "member_joined", None),
            ("assignment", 2, "member_joined", 2),
        ]
        assert rows[2].members_joined == ["b"] and rows[2].members_kept == ["a"] and rows[2].since_previous_ms == 1_000

    def test_who_went_left_or_was_expelled_but_for_static_members(self) -> None:
        for instance_id, expected in ((None, ("member_gone", "certain")), ("i", ("member_expelled", "likely"))):
            first = [*joins(1, 0, "a", 1), *joins(3, 0, "b", 2, instance_id=instance_id)]
            row = last(*first, modern(9, 50_000, 5, None, member_id="b"), modern(10, 50_000, 3, {"epoch": 3, "metadata_hash": 7}))
            assert (row.members_left, row.cause, row.confidence) == (["b"], *expected)

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ([modern(20, 5_000, 5, {"subscribed_topic_names": ["t", "u"]}, member_id="a")], ("subscription_changed", "certain")),
            ([], ("unknown", None)),
        ],
    )
    def test_what_members_ask_for_is_compared_with_the_epoch_before(
        self, changes: list[GroupRecord], expected: tuple[str, str | None]
    ) -> None:
        assert cause(*TWO, *changes, modern(30, 5_000, 3, {"epoch": 3, "metadata_hash": 7})) == expected

    def test_another_hash_alone_says_that_topics_changed(self) -> None:
        assert cause(*TWO, modern(30, 5_000, 3, {"epoch": 3, "metadata_hash": 8})) == ("partitions_changed", "certain")

    def test_partition_counts_of_releases_before_4_1_are_named(self) -> None:
        def counts(offset: int, at_ms: int, partitions: int) -> GroupRecord:
            return modern(offset, at_ms, 4, {"topics": [{"topic_name": "t", "num_partitions": partitions, "partition_metadata": []}]})

        row = last(counts(0, 0, 4), *TWO, counts(20, 5_000, 6), modern(30, 5_000, 3, {"epoch": 3}))
        assert (row.cause, row.confidence) == ("partitions_changed", "certain") and "t 4 to 6" in row.evidence

    def test_an_assignment_that_answers_several_epochs_says_so(self) -> None:
        row = last(*ONE, *joins(5, 1_000, "b", 2), *joins(7, 1_100, "c", 3), modern(9, 1_200, 6, {"assignment_epoch": 3}))
        assert (row.kind, row.from_generation, row.to_generation) == ("assignment", 1, 3) and "2 group epochs" in row.evidence

    def test_a_group_that_becomes_one_of_another_type_keeps_its_members(self) -> None:
        tombstone = GroupRecord(10, T0 + 5_000, 2, {"group_id": "g"}, None)
        row = last(SECOND, tombstone, *joins(11, 5_000, "a", 2)[:1], *joins(12, 5_000, "b", 2))
        assert (row.cause, row.from_generation, row.members_kept, row.members_joined) == ("group_converted", 2, ["a", "b"], [])


def share_state(offset: int, initializing: list[int], initialized: Mapping[str, list[int]]) -> GroupRecord:
    def topics(partitions: Mapping[str, list[int]]) -> list[dict[str, Any]]:
        return [{"topic_id": name, "topic_name": name, "partitions": numbers} for name, numbers in partitions.items()]

    waiting = {"orders": initializing} if initializing else {}
    return modern(offset, 0, 15, {"initializing_topics": topics(waiting), "initialized_topics": topics(initialized), "deleting_topics": []})


class TestShareState:
    JOINED = (modern(1, 0, 10, {"client_id": "c", "subscribed_topic_names": ["orders"]}, member_id="a"), modern(2, 0, 11, {"epoch": 2}))

    def evidence(self, *records: GroupRecord) -> tuple[str, str]:
        row = last(*self.JOINED, *records, modern(99, 1_000, 11, {"epoch": 3}))
        return row.cause, row.evidence

    def test_partitions_of_a_share_group_that_are_initialized_step_by_step_are_said_once(self) -> None:
        steps = share_state(3, [0, 1], {}), share_state(4, [1], {"orders": [0]}), share_state(5, [], {"orders": [0, 1]})
        sentence = "Partitions can be assigned now that their share state is initialized: orders."
        assert self.evidence(*steps) == ("partitions_changed", sentence)

    def test_a_topic_that_left_the_share_state_is_not_called_initialized(self) -> None:
        both, one = share_state(3, [], {"orders": [0], "gone": [0]}), share_state(5, [], {"orders": [0]})
        row = last(*self.JOINED, both, modern(4, 500, 11, {"epoch": 3}), one, modern(99, 1_000, 11, {"epoch": 4}))
        assert row.evidence == "Partitions are no longer initialized for the share group: gone."


def of_simulator(name: str) -> list[Rebalance]:
    written = play(read_scenario(scenario_text(name), name), release_for()).records
    return list(rebalances(_decoded((r.record_offset, r.timestamp_ms, r.key_bytes, r.value_bytes) for r in written if r.control is None)))


def _decoded(records: Iterable[tuple[int, int, bytes | None, bytes | None]]) -> Iterator[GroupRecord]:
    for record_offset, timestamp_ms, key_bytes, value_bytes in records:
        key = decode_key(key_bytes)
        if key.key_type in KEY_TYPES:
            decoded = decode_value(key.key_type, value_bytes)
            yield GroupRecord(record_offset, timestamp_ms, key.key_type, key.fields, None if decoded is None else decoded.fields)


@pytest.mark.parametrize(
    ("scenario", "causes"),
    [
        ("a-member-joins", ["member_joined", "member_joined"]),
        ("a-member-leaves", ["member_joined", "member_left", "member_left"]),
        ("a-member-crashes", ["member_joined", "member_gone"]),
        ("a-cooperative-rebalance", ["member_joined", "member_joined", "follow_up"]),
        ("static-rolling-restart", ["member_joined", "member_expelled", "member_joined"]),
    ],
)
def test_what_a_scenario_makes_happen_is_what_its_records_tell(scenario: str, causes: list[str]) -> None:
    assert [row.cause for row in of_simulator(scenario)] == causes


STATE_IS_ENOUGH_FOR = (
    *("group_id", "kind", "to_generation", "from_generation", "member_count", "members_joined", "members_left", "members_kept"),
    *("leader_id", "protocol", "partitions_moved", "partitions_assigned", "partitions_released"),
)


@pytest.mark.parametrize("name", ["classic-modern", "kip848", "convert", "connect", "streams", "share"])
@pytest.mark.parametrize("of_ten", [3, 5, 8])
def test_the_last_record_of_each_key_is_enough_to_go_on_from(name: str, of_ten: int) -> None:
    for partition in recorded(GOLDEN / name).values():
        records = [(n, one) for n, one in enumerate(partition) if one.control_type is None]
        cut = len(records) * of_ten // 10
        while 0 < cut < len(records) and records[cut][1].timestamp_ms == records[cut - 1][1].timestamp_ms:
            cut += 1  # a run ends between two batches
        if not 0 < cut < len(records):
            continue
        whole = list(rebalances(_decoded((n, one.timestamp_ms, one.key, one.value) for n, one in records)))
        last_of_keys = {one.key: (n, one.timestamp_ms, one.key, one.value) for n, one in records[:cut]}
        live = _decoded(record for record in sorted(last_of_keys.values()) if record[-1] is not None)
        rest = list(rebalances(_decoded((n, one.timestamp_ms, one.key, one.value) for n, one in records[cut:]), live))
        expected = [row for row in whole if row.record_offset >= records[cut][0]]
        assert [_comparable(row) for row in rest] == [
            # Half way through a rebalance the targets of members that are gone are in no table.
            _comparable(row if of_rest.partitions_moved is not None else row._replace(**NO_MOVES))
            for row, of_rest in zip(expected, rest, strict=True)
        ]


NO_MOVES: dict[str, Any] = dict.fromkeys(("partitions_moved", "partitions_assigned", "partitions_released"))


def _comparable(row: Rebalance) -> dict[str, Any]:
    return {field: getattr(row, field) for field in STATE_IS_ENOUGH_FOR}



def test_epochs_of_a_large_modern_group_cost_what_their_records_change(monkeypatch: pytest.MonkeyPatch) -> None:
    # A record names one member: neither the work nor the rows may grow with the number of members times the number of epochs.
    members, epochs = 1_000, 200
    compared, subscription_of = list[str](), modern_epochs._subscription
    monkeypatch.setattr(modern_epochs, "_subscription", lambda member: compared.append("") or subscription_of(member))
    value = {"instance_id": None, "subscribed_topic_names": ["t"]}

    def records() -> Iterator[GroupRecord]:
        for number in range(members):
            yield GroupRecord(number, T0, KeyType.CONSUMER_GROUP_MEMBER_METADATA, {"group_id": "g", "member_id": f"m{number}"}, value)
        for epoch in range(1, epochs + 1):
            key, at_ms = {"group_id": "g", "member_id": f"m{epoch}"}, T0 + epoch
            changed = {**value, "subscribed_topic_names": [f"t{epoch}"]}
            yield GroupRecord(members, at_ms, KeyType.CONSUMER_GROUP_MEMBER_METADATA, key, changed)
            yield GroupRecord(members, at_ms, KeyType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, {"epoch": epoch})
            assignment = {"assignment_epoch": epoch}
            yield GroupRecord(members, at_ms, KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": "g"}, assignment)

    rows = list(rebalances(records()))
    assert len(rows) == 2 * epochs and {row.cause for row in rows[2:]} == {"subscription_changed"}
    assert {(row.member_count, row.kept_count, row.members_kept) for row in rows[2:]} == {(members, members, None)}
    assert len(compared) <= 2 * epochs
    assert sum(len(row.members_joined or ()) for row in rows) <= members


def test_the_members_that_stayed_in_a_small_modern_group_are_named() -> None:
    rows = list(rebalances(_modern_records(MOST_KEPT)))
    assert rows[-1].members_kept == sorted(f"m{number}" for number in range(MOST_KEPT))
    assert list(rebalances(_modern_records(MOST_KEPT + 1)))[-1].members_kept is None


def _modern_records(members: int) -> Iterator[GroupRecord]:
    key, value = {"group_id": "g"}, {"instance_id": None, "subscribed_topic_names": ["t"]}
    for number in range(members):
        yield GroupRecord(number, T0, KeyType.CONSUMER_GROUP_MEMBER_METADATA, {**key, "member_id": f"m{number}"}, value)
    for epoch in (1, 2):
        yield GroupRecord(members + epoch, T0, KeyType.CONSUMER_GROUP_METADATA, key, {"epoch": epoch})
