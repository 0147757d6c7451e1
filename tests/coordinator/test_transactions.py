"""Commits, tombstones and markers: the table of transactions, one row a test."""

import pytest

from groupcoord_spark.coordinator import JAVA, SCALA, PartitionReplay, Semantics
from groupcoord_spark.coordinator.transactions import OffsetStore, StoredOffset
from groupcoord_spark.protocol.record_types import KeyType
from tests.coordinator.records import (
    Record,
    aborted,
    classic_group,
    codes_of,
    committed,
    group_epoch,
    group_of,
    marker,
    offset_commit,
    offsets_of,
    orphans_of,
    pending_of,
    replayed,
    tombstone,
    transactional_commit,
)

EMPTY = ("classic", "Empty")
STORED = StoredOffset(5, -1, "", 1_000, -1, None, 3, -1, -1, 0, 1_000)
TABLE = {
    "T1 a plain commit before the marker wins": ([transactional_commit(7, "t0", 10), offset_commit("t0", 20), committed(7)], {"t0": 20}),
    "T2 a transactional commit after a plain one wins": (
        [offset_commit("t0", 20), transactional_commit(7, "t0", 10), committed(7)],
        {"t0": 10},
    ),
    "T3 a tombstone drops what is pending": ([transactional_commit(7, "t0", 10), offset_commit("t0", None), committed(7)], {}),
    "T4 a tombstone inside an aborted transaction counts": ([offset_commit("t0", 20), transactional_commit(7, "t0", None), aborted(7)], {}),
    "T5 records are ordered, not markers": (
        [transactional_commit(7, "t0", 10), transactional_commit(8, "t0", 11), committed(8), committed(7)],
        {"t0": 11},
    ),
    "T6 an open transaction leaves the older offset": ([offset_commit("t0", 3), transactional_commit(7, "t0", 10)], {"t0": 3}),
    "T7 a producer runs one transaction after another": (
        [transactional_commit(7, "t0", 5), committed(7), transactional_commit(7, "t0", 6), aborted(7)],
        {"t0": 5},
    ),
    "T8 what a tombstone dropped does not come back": (
        [offset_commit("t0", 1), transactional_commit(7, "t0", 2), offset_commit("t0", None), offset_commit("t0", 3), committed(7)],
        {"t0": 3},
    ),
    "T9 the later record of a transaction wins": (
        [transactional_commit(7, "t0", 5), transactional_commit(7, "t0", 4), committed(7)],
        {"t0": 4},
    ),
}


@pytest.mark.parametrize(("records", "expected"), TABLE.values(), ids=TABLE.keys())
def test_table_of_transactions(records: list[Record], expected: dict[str, int]) -> None:
    state = replayed(records)
    assert offsets_of(state) == expected
    assert group_of(state) == EMPTY
    assert state.groups()[0].is_simple
    assert codes_of(state) == []


def test_t6_the_open_transaction_is_pending() -> None:
    state = replayed(TABLE["T6 an open transaction leaves the older offset"][0])
    assert pending_of(state) == {("t0", 7): 10}
    assert state.groups()[0].pending_offset_count == 1


def test_t10_commit_of_a_removed_group_is_an_orphan() -> None:
    state = replayed([classic_group(generation=4), transactional_commit(7, "t0", 5), tombstone(KeyType.GROUP_METADATA), committed(7)])
    assert group_of(state) is None
    assert (offsets_of(state), orphans_of(state)) == ({}, {"t0": 5})
    assert codes_of(state) == [(2, "R-1.26")]


@pytest.mark.parametrize("row", ["T1", "T2", "T5"])
def test_scala_agrees_where_its_loader_was_run(row: str) -> None:
    records, expected = next(value for name, value in TABLE.items() if name.startswith(row + " "))
    assert offsets_of(replayed(records, SCALA)) == expected


def test_the_producer_of_a_committed_transaction_is_told() -> None:
    rows = replayed([transactional_commit(7, "t0", 5, epoch=2), committed(7), offset_commit("t1", 1)]).committed_offsets()
    producers = [(row.topic, row.partition, row.commit.producer_id, row.commit.producer_epoch) for row in rows]
    assert producers == [("t", 0, 7, 2), ("t", 1, -1, -1)]


def test_orphans_come_back_with_the_next_commit_of_the_group() -> None:
    records = [offset_commit("t0", 5), classic_group(), tombstone(KeyType.GROUP_METADATA)]
    assert orphans_of(replayed(records)) == {"t0": 5}
    assert offsets_of(replayed([*records, offset_commit("t1", 6)])) == {"t0": 5, "t1": 6}


def test_commit_of_a_transaction_brings_no_group_into_being() -> None:
    assert group_of(replayed([transactional_commit(7, "t0", 5), tombstone(KeyType.GROUP_METADATA), committed(7)])) is None


def test_simple_group_outlives_its_offsets_and_its_aborted_transaction() -> None:
    assert group_of(replayed([offset_commit("t0", 5), offset_commit("t0", None)])) == EMPTY
    assert group_of(replayed([transactional_commit(7, "t0", 5), aborted(7)])) == EMPTY


def test_tombstone_never_creates_a_group() -> None:
    assert group_of(replayed([offset_commit("t0", None), transactional_commit(7, "t1", None)])) is None


def test_marker_without_anything_pending_does_nothing() -> None:
    assert group_of(replayed([committed(7), aborted(8)])) is None


def test_key_type_0_and_1_are_the_same_entry() -> None:
    assert offsets_of(replayed([offset_commit("t0", 5), offset_commit("t0", 6, key_type=0)])) == {"t0": 6}
    assert offsets_of(replayed([offset_commit("t0", 5), offset_commit("t0", None, key_type=0)])) == {}


def test_group_record_inside_a_transaction_counts_at_once() -> None:
    record = group_epoch(4)
    state = replayed([Record(record.key, record.value, producer_id=7, is_transactional=True)])
    assert group_of(state) == ("consumer", "Empty")


def test_overtaken_transaction_stays_pending_with_a_warning() -> None:
    state = replayed([transactional_commit(7, "t0", 5, epoch=1), transactional_commit(7, "t1", 6, epoch=2)])
    assert pending_of(state) == {("t0", 7): 5, ("t1", 7): 6}
    assert codes_of(state) == [(0, "R-4.6")]
    assert codes_of(replayed([transactional_commit(7, "t0", 5, epoch=1), committed(7), transactional_commit(7, "t1", 6, epoch=2)])) == []


@pytest.mark.parametrize("semantics", [JAVA, SCALA], ids=["java", "scala"])
def test_undecodable_record_changes_nothing_and_is_warned_of(semantics: Semantics) -> None:
    broken = Record(key=offset_commit("t0", 1).key, value=b"\0\3\0")
    state = replayed([offset_commit("t0", 5), broken, Record(key=b"\0"), Record(key=None)], semantics)
    assert offsets_of(state) == {"t0": 5}
    assert codes_of(state) == [(1, "R-1.10"), (2, "R-1.8"), (3, "R-1.7")]


def test_unknown_key_type_is_skipped_with_a_warning() -> None:
    assert codes_of(replayed([Record(key=b"\0\x18\0\1g"), Record(key=b"\xff\xff")])) == [(0, "R-1.6"), (1, "R-1.6")]


def test_topic_names_are_learned_from_every_commit_that_has_an_id() -> None:
    replay = PartitionReplay()
    one, two = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    for position, record in enumerate(
        [offset_commit("t0", 1, topic_id=one), transactional_commit(7, "u0", 1, topic_id=two), aborted(7), offset_commit("t0", 2)]
    ):
        record.apply_to(replay, position)
    assert replay.finish().topic_names == {one: "t", two: "u"}


def test_offsets_of_different_groups_do_not_meet() -> None:
    state = replayed([offset_commit("t0", 1, group="a"), offset_commit("t0", 2, group="b"), tombstone(KeyType.GROUP_METADATA, group="a")])
    assert [(row.group_id, row.commit.committed_offset) for row in state.committed_offsets()] == [("b", 2)]
    assert [(row.group_id, row.commit.committed_offset) for row in state.orphan_offsets()] == [("a", 1)]


@pytest.mark.parametrize("dropped", range(8))
def test_a_commit_that_a_tombstone_dropped_hides_no_other_of_its_transaction(dropped: int) -> None:
    places = [f"t{n}" for n in range(8)]
    staged = [transactional_commit(7, place, 5) for place in places]
    state = replayed([*staged, offset_commit(places[dropped], None), committed(7)])
    assert offsets_of(state) == {place: 5 for place in places if place != places[dropped]}


@pytest.mark.parametrize("semantics", [JAVA, SCALA], ids=["java", "scala"])
def test_an_ended_transaction_leaves_the_pending_offset_of_another_producer(semantics: Semantics) -> None:
    both = [transactional_commit(7, "t0", 5), transactional_commit(8, "t0", 6), aborted(7)]
    assert pending_of(replayed(both, semantics)) == {("t0", 8): 6}
    assert offsets_of(replayed([*both, committed(8)], semantics)) == {"t0": 6}


def test_a_marker_of_an_unknown_type_aborts_in_scala_only() -> None:
    records = [transactional_commit(7, "t0", 5), marker(7, 9)]
    assert pending_of(replayed(records, JAVA)) == {("t0", 7): 5}
    assert pending_of(replayed(records, SCALA)) == {}
    assert offsets_of(replayed([*records, committed(7)], JAVA)) == {"t0": 5}
    assert offsets_of(replayed([*records, committed(7)], SCALA)) == {}


@pytest.mark.parametrize("semantics", [JAVA, SCALA], ids=["java", "scala"])
def test_a_store_keeps_nothing_of_a_group_whose_last_offset_is_deleted(semantics: Semantics) -> None:
    store = OffsetStore(semantics)
    store.put("g", "t", 0, STORED)
    store.delete("g", "t", 1, -1, is_transactional=False)
    assert store.committed == {"g": {("t", 0): STORED}}
    store.delete("g", "t", 0, -1, is_transactional=False)
    assert store.committed == {}
