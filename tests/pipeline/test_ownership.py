"""What a look at the ownership of partitions leaves out of the replay, and what it leaves to the record-by-record rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.coordinator.semantics import JAVA, SCALA
from groupcoord_spark.pipeline.exchange.kept_records import kept_records
from groupcoord_spark.pipeline.read.decode import decode_chunk
from groupcoord_spark.pipeline.replay import redundant_assignments
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay
from groupcoord_spark.pipeline.replay.redundant_assignments import find_redundant_records
from groupcoord_spark.protocol import DecodeError, decode_value, encode_value
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.protocol.slices import Slices
from tests.coordinator.records import TOPIC_ID, Record, consumer_member, current_assignment, group_epoch, target, target_metadata, tombstone
from tests.examples import examples
from tests.pipeline.logs import log_of
from tests.pipeline.logs import member_tombstones as leaves
from tests.pipeline.logs import records_of as columns_of

pytestmark = pytest.mark.usefixtures("with_loops")


def joins(member_id: str) -> Record:
    return consumer_member(member_id, "t")


def assigned(member_id: str, *partitions: int) -> Record:
    return current_assignment(member_id, 5, *partitions)


def redundant_rows(records: list[Record], before: list[Record] | None = None) -> list[int] | None:
    """Find the records that need no replay; None where the group is left to the rule."""
    replay = KeptRecordsReplay(JAVA)
    if before:
        replay.apply(kept_records(columns_of(log_of(before)), np.arange(len(before)), np.ones(len(before), np.bool_)))
    columns = columns_of(log_of(records, 100))
    redundant = find_redundant_records(decode_chunk(columns, JAVA), replay.coordinator)
    assert redundant.without_collisions | redundant.others == {"g"}
    return np.flatnonzero(redundant.is_redundant).tolist() if redundant.without_collisions else None


def test_of_a_member_that_came_and_went_nothing_is_replayed() -> None:
    records = [group_epoch(1), joins("a"), target("a", 0), assigned("a", 0), *leaves("a"), group_epoch(2)]
    assert redundant_rows(records) == [1, 2, 3, 4, 5, 6]


def test_of_assignments_in_a_row_the_last_is_replayed() -> None:
    assert redundant_rows([group_epoch(1), joins("a"), assigned("a", 0), assigned("a", 0, 1), assigned("a", 1)]) == [2, 3]


def test_a_partition_may_go_from_hand_to_hand() -> None:
    records = [group_epoch(1), joins("a"), joins("b"), assigned("a", 0, 1), assigned("a", 1), assigned("b", 0), assigned("b", 0, 2)]
    assert redundant_rows(records) == [3, 5]


def test_two_owners_of_a_partition_leave_the_group_to_the_rule() -> None:
    assert redundant_rows([group_epoch(1), joins("a"), joins("b"), assigned("a", 0), assigned("b", 0), assigned("a", 1)]) is None


def test_a_partition_named_twice_leaves_the_group_to_the_rule() -> None:
    assert redundant_rows([group_epoch(1), joins("a"), assigned("a", 0, 0)]) is None


def test_what_members_held_before_counts() -> None:
    before = [group_epoch(1), joins("a"), assigned("a", 0)]
    assert redundant_rows([joins("b"), assigned("b", 0), group_epoch(2)], before) is None
    assert redundant_rows([joins("b"), assigned("a", 1), assigned("b", 0), assigned("b", 0), group_epoch(2)], before) == [2]


def test_a_group_with_a_collision_behind_it_stays_with_the_rule() -> None:
    before = [group_epoch(1), joins("a"), joins("b"), assigned("a", 0), assigned("b", 0)]
    assert redundant_rows([assigned("a", 1), assigned("a", 2)], before) is None


def test_of_a_member_that_was_there_before_the_tombstones_stay() -> None:
    records = [joins("a"), target("a", 0), assigned("a", 0), *leaves("a"), group_epoch(2)]
    assert redundant_rows(records, [group_epoch(1), joins("a")]) == [0, 1, 2]


def test_a_member_whose_tombstone_may_be_refused_is_replayed_whole() -> None:
    without_target = [record for record in leaves("a") if record.key != target("a").key]
    assert redundant_rows([group_epoch(1), joins("a"), target("a", 0), assigned("a", 0), *without_target, group_epoch(2)]) == []


@pytest.mark.parametrize("key_type", [KeyType.CONSUMER_GROUP_METADATA, KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA])
def test_the_end_of_a_group_is_left_to_the_rule(key_type: int) -> None:
    assert redundant_rows([group_epoch(1), joins("a"), target("a", 0), assigned("a", 0), *leaves("a"), tombstone(key_type)]) is None


def test_of_settings_in_a_row_the_last_is_replayed() -> None:
    records = [group_epoch(1), joins("a"), group_epoch(2), target("a", 0), target("a", 1), group_epoch(3), target("a", 2)]
    assert redundant_rows(records) == [2, 3, 4]
    assert redundant_rows([group_epoch(4), target("a", 0), group_epoch(5), target("a", 1)], [group_epoch(1), joins("a")]) == [0, 1]


def test_the_first_and_the_last_record_of_a_member_are_replayed() -> None:
    records = [group_epoch(1), joins("a"), joins("a"), consumer_member("a", "u"), group_epoch(2)]
    assert redundant_rows(records) == [2]
    assert redundant_rows([joins("a"), joins("a"), leaves("a")[-1], joins("a"), joins("a")], [group_epoch(1)]) == []


def test_epochs_of_the_target_assignment_that_may_be_refused_are_replayed() -> None:
    def epoch(number: int, timestamp_ms: int = 0) -> Record:
        return target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, number, timestamp_ms)

    before = [group_epoch(1), joins("a")]
    assert redundant_rows([epoch(1), epoch(2, 5), epoch(3), epoch(4, 6)], before) == [0, 1, 2]
    assert redundant_rows([epoch(1), epoch(-2), epoch(2), epoch(2, -5), epoch(-1)], before) == [0]


def test_a_target_stays_before_the_tombstone_of_its_member() -> None:
    assert redundant_rows([target("a", 0), target("a", 1), leaves("a")[-1], target("a", 2)], [group_epoch(1), joins("a")]) == [0]


def test_what_makes_the_group_and_what_tells_its_place_stay() -> None:
    only_a = [joins("a"), target("a", 0), assigned("a", 0), *leaves("a")]
    assert redundant_rows(only_a) == []
    assert redundant_rows([*only_a, joins("b"), target("b", 0), assigned("b", 0), *leaves("b")]) == [6, 7, 8, 9, 10]


def test_a_coordinator_that_does_not_know_consumer_groups_settles_none() -> None:
    columns = columns_of(log_of([group_epoch(1), joins("a"), assigned("a", 0)]))
    redundant = find_redundant_records(decode_chunk(columns, SCALA), KeptRecordsReplay(SCALA).coordinator)
    assert not redundant.without_collisions and not redundant.is_redundant.any()


claimed = st.lists(
    st.fixed_dictionaries(
        {"topic_id": st.sampled_from([TOPIC_ID, "B" * 21 + "A"]), "partitions": st.lists(st.integers(-2, 9), max_size=4)}
    ),
    max_size=2,
)
claims = st.tuples(claimed, claimed, st.integers(0, 2), st.integers(1, 5), st.sampled_from([None, None, None, *range(2, 40)]))


def groups_by_decoded_values(rows: Any, ends: dict[int, int]) -> set[int]:
    """Return the groups with a collision, or with a value that does not decode cleanly, one decoded value after another."""
    colliding = set()
    for row, group in enumerate(rows.group.tolist()):
        try:
            decoded = decode_value(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, rows.value.row(row))
        except DecodeError:
            decoded = None
        if decoded is None or decoded.doubts:
            colliding.add(group)
            continue
        for topic in (*decoded.fields["assigned_partitions"], *decoded.fields["partitions_pending_revocation"]):
            for name in redundant_assignments._partition_numbers(topic["topic_id"], topic["partitions"], group).tolist():
                if rows.since[row] < ends.get(name, -1):
                    colliding.add(group)
                ends[name] = rows.until[row]
    return colliding


@examples(60)
@given(st.lists(claims, min_size=1, max_size=8), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 5)), max_size=3))
def test_loops_find_the_collisions_that_decoded_values_have(drawn: list[Any], before: list[tuple[int, int, int]]) -> None:
    """Claims: what is assigned and pending, the group, for how many records the claim lasts, and where the value is cut."""
    key_type, epochs = KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, {"member_epoch": 1, "previous_member_epoch": 0, "state": 0}
    values = [
        encode_value(key_type, 0, epochs | {"assigned_partitions": assigned, "partitions_pending_revocation": pending})[:cut]
        for assigned, pending, _, _, cut in drawn
    ]
    since, group, lasts = (
        np.arange(len(drawn)),
        np.array([group for _, _, group, _, _ in drawn]),
        np.array([rows for _, _, _, rows, _ in drawn]),
    )
    rows = redundant_assignments._Assignments(np.zeros(len(drawn), np.int16), Slices.of(values), group, since, since + lasts)
    names = [redundant_assignments._partition_numbers(TOPIC_ID, [partition], code) for code, partition, _ in before]
    owned_before = redundant_assignments._OwnedPartitions(
        np.concatenate([np.zeros(0, np.int64), *names]), np.array([until for *_, until in before], np.int64)
    )
    ends = {name: until for of_name, (*_, until) in zip(names, before, strict=True) for name in of_name.tolist()}
    assert set(redundant_assignments._groups_with_two_owners(rows, owned_before).tolist()) == groups_by_decoded_values(rows, ends)
