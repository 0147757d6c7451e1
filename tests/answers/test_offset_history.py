"""A group's commits in their order, against the coordinator's own store, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.answers.offset_history import COMMIT_COLUMNS, counted_commits, pieces_of, with_gaps
from groupcoord_spark.answers.removals import OffsetRemoval, Place
from groupcoord_spark.answers.timeline import LowerCommit, RemovedOffsets, Stretch, Transaction
from groupcoord_spark.coordinator import JAVA, SCALA, Semantics, StoredOffset
from groupcoord_spark.coordinator.transactions import OffsetStore
from groupcoord_spark.protocol.record_types import MarkerType
from groupcoord_spark.warehouse import TABLES
from tests.examples import examples
from tests.warehouse.nights import AS_OF_MS, commit, marker

Step = tuple[str, int, int, int]
"""What (commit, tombstone, commit marker, abort marker), partition, committed offset, producer id (-1: none)."""

EVERY_STEP: list[Step] = list(product(("commit", "commit", "commit", "tombstone", "C", "A"), range(2), range(4), range(-1, 3)))
STEPS = st.lists(st.sampled_from(EVERY_STEP), min_size=8, max_size=14)
REMOVAL = OffsetRemoval(Place(0, 0), "g", "t", 0, 0, None, "expired", "certain", None, "", None, None, None, None, None)


def tables(steps: Sequence[Step], step_ms: int = 1_000) -> tuple[pa.Table, pa.Table]:
    """Return the rows of offset_commits and transactions for such records; the n-th has offset n and the time n steps."""
    commits: list[dict[str, Any]] = []
    markers: list[dict[str, Any]] = []
    for at, (what, partition, committed_offset, producer) in enumerate(steps):
        time = {"record_timestamp_ms": AS_OF_MS + at * step_ms}
        if what in "CA":
            if producer >= 0:
                markers.append(marker(at, producer, "committed" if what == "C" else "aborted", **time))
            continue
        by = {"producer_id": producer, "is_transactional": producer >= 0, "partition": partition, "commit_timestamp_ms": AS_OF_MS, **time}
        is_tombstone = what == "tombstone"
        value = {"committed_offset": None if is_tombstone else committed_offset, "value_version": -1 if is_tombstone else 3}
        commits.append(commit(at, **{**by, **value, "is_tombstone": is_tombstone}))
    rows = TABLES["offset_commits"].from_rows(commits).select(COMMIT_COLUMNS[1:])
    return rows, TABLES["transactions"].from_rows(markers)


def pieces(steps: Sequence[Step], semantics: Semantics = JAVA, step_ms: int = 1_000, **limits: int) -> tuple[list[Any], list[Transaction]]:
    commits, markers = tables(steps, step_ms)
    open_ones = {(row["record_offset"], row["topic"], row["partition"], row["producer_id"]) for row in commits.to_pylist()}
    counted = counted_commits(commits, markers, semantics, open_ones, limits.get("to_ms"))
    removals = dict.fromkeys(range(len(steps)), REMOVAL)
    return pieces_of(counted.rows, {one.at for one in counted.transactions}, removals, **limits), counted.transactions


@dataclass
class Truth:
    """What the coordinator's store does with the same records."""

    counted: list[tuple[int, int, int]] = field(default_factory=list)
    """Where a commit began to count, its partition, its committed offset."""
    lower: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    """Where, partition, from, to, whether a removal was in between."""
    aborted: int = 0
    pending: set[int] = field(default_factory=set)


class Store(OffsetStore):
    def __init__(self, semantics: Semantics) -> None:
        super().__init__(semantics)
        self.truth, self.at = Truth(), 0
        self.last: dict[int, int] = {}

    def put(self, group_id: str, topic: str, partition: int, stored: StoredOffset) -> None:
        self.truth.counted.append((self.at, partition, stored.committed_offset))
        is_there = (topic, partition) in self.committed.get(group_id, {})
        if stored.committed_offset < self.last.get(partition, -1):
            self.truth.lower.append((self.at, partition, self.last[partition], stored.committed_offset, not is_there))
        self.last[partition] = stored.committed_offset
        super().put(group_id, topic, partition, stored)


def truth_of(steps: Sequence[Step], semantics: Semantics) -> Truth:
    store = Store(semantics)
    waiting: dict[int, int] = {}
    for store.at, (what, partition, committed_offset, producer) in enumerate(steps):
        stored = StoredOffset(committed_offset, -1, "", AS_OF_MS, -1, None, 3, producer, 0, store.at, AS_OF_MS)
        if what in "CA":
            store.truth.aborted += waiting.pop(producer, 0) if what == "A" else 0 * waiting.pop(producer, 0)
            store.end_transaction(producer, MarkerType.COMMIT if what == "C" else MarkerType.ABORT)
        elif what == "tombstone":
            store.delete("g", "t", partition, producer, producer >= 0)
        elif producer >= 0:
            waiting[producer] = waiting.get(producer, 0) + 1
            store.stage("g", "t", partition, producer, stored)
        else:
            store.put("g", "t", partition, stored)
    store.truth.pending = {one.record_offset for by_producer in store.pending.values() for one in by_producer.values()}
    return store.truth


@examples(40)
@given(semantics=st.sampled_from([JAVA, SCALA]), steps=STEPS)
def test_what_counts_and_what_goes_back_is_what_the_coordinators_store_says(semantics: Semantics, steps: list[Step]) -> None:
    truth = truth_of(steps, semantics)
    found, transactions = pieces(steps, semantics)
    lower = sorted((p.at, p.partition, p.from_committed_offset, p.to_committed_offset) for p in found if isinstance(p, LowerCommit))
    assert lower == sorted(one[:4] for one in truth.lower)
    if semantics is JAVA:
        after = {(p.at, p.partition): p.is_after_removal for p in found if isinstance(p, LowerCommit)}
        assert all(after[at, partition] == is_after for at, partition, _, _, is_after in truth.lower)
    stretches = [p for p in found if isinstance(p, Stretch)]
    assert sum(one.commits for p in stretches for one in p.partitions) + len(lower) == len(truth.counted)
    assert sum(one.commits for t in transactions if t.result == "aborted" for one in t.partitions) == truth.aborted
    assert sum(one.commits for t in transactions if t.result == "open" for one in t.partitions) == len(truth.pending)
    # The commits of a stretch are successive ones of the truth, lower commits left out.
    lower_at = {(at, partition) for at, partition, *_ in truth.lower}
    rising = [one for one in truth.counted if one[:2] not in lower_at]
    for number in (0, 1):
        values = iter([value for _, partition, value in rising if partition == number])
        for one in (one for p in stretches for one in p.partitions if one.partition == number and one.commits):
            of_piece = [next(values) for _ in range(one.commits)]
            assert (one.lowest, one.highest) == (min(of_piece), max(of_piece))
            assert of_piece == sorted(of_piece)


def lower_of(*steps: Step) -> list[tuple[int, int, bool]]:
    return [(p.from_committed_offset, p.to_committed_offset, p.is_after_removal) for p in pieces(steps)[0] if isinstance(p, LowerCommit)]


def test_a_rewind_of_one_is_a_rewind_and_the_same_offset_again_is_none() -> None:
    assert lower_of(("commit", 0, 5, -1), ("commit", 0, 5, -1), ("commit", 0, 4, -1), ("commit", 0, 4, -1)) == [(5, 4, False)]


def test_a_commit_after_a_removal_is_no_rewind_even_if_the_offset_is_lower() -> None:
    assert lower_of(("commit", 0, 5, -1), ("tombstone", 0, 0, -1), ("commit", 0, 2, -1), ("commit", 0, 1, -1)) == [
        (5, 2, True),
        (2, 1, False),
    ]


def test_an_aborted_commit_neither_goes_back_nor_is_gone_back_from() -> None:
    steps: list[Step] = [
        ("commit", 0, 5, -1),
        ("commit", 0, 9, 7),
        ("A", 0, 0, 7),
        ("commit", 0, 6, -1),
        ("commit", 0, 1, 7),
        ("A", 0, 0, 7),
    ]
    assert lower_of(*steps) == []


def test_commits_of_transactions_count_in_the_order_of_the_markers() -> None:
    # The commit of 3 is written first and counts last, unless a later record has counted before.
    assert lower_of(("commit", 0, 3, 7), ("commit", 1, 1, -1), ("C", 0, 0, 7), ("commit", 0, 2, -1)) == [(3, 2, False)]
    assert lower_of(("commit", 0, 3, 7), ("commit", 0, 9, 8), ("C", 0, 0, 8), ("C", 0, 0, 7)) == []


def test_a_stretch_cut_by_a_range_keeps_its_own_bounds_and_the_rewind_at_its_beginning() -> None:
    steps: list[Step] = [("commit", 0, value, -1) for value in (10, 20, 30, 7, 8, 9)]
    (rewind, stretch), _ = pieces(steps, from_ms=AS_OF_MS + 3_000, to_ms=AS_OF_MS + 5_000)
    assert (rewind.from_committed_offset, rewind.to_committed_offset) == (30, 7)
    assert [(one.lowest, one.highest) for one in stretch.partitions] == [(8, 8)]
    (first,), _ = pieces(steps, from_ms=AS_OF_MS + 1_000, to_ms=AS_OF_MS + 3_000)
    assert [(one.lowest, one.highest) for one in first.partitions] == [(20, 30)]


def test_a_transaction_that_ends_after_the_range_is_open_in_it() -> None:
    found, (transaction,) = pieces([("commit", 0, 5, 7), ("commit", 1, 1, -1), ("C", 0, 0, 7)], to_ms=AS_OF_MS + 2_000)
    assert (transaction.result, transaction.ended_later, transaction.ended_ms) == ("open", "committed", AS_OF_MS + 2_000)
    assert [one.partition for p in found for one in p.partitions] == [1]


def test_an_open_transaction_that_the_newest_night_does_not_know_has_an_unknown_end() -> None:
    commits, markers = tables([("commit", 0, 5, 7)])
    assert [t.result for t in counted_commits(commits, markers, JAVA, set()).transactions] == ["unknown"]


def test_a_value_that_the_loader_refuses_does_not_count() -> None:
    rows = [commit(0, committed_offset=9), commit(1, committed_offset=5, key_version=0, value_version=3), commit(2, committed_offset=10)]
    commits = TABLES["offset_commits"].from_rows(rows).select(COMMIT_COLUMNS[1:])
    counted = counted_commits(commits, tables([])[1], JAVA, set())
    assert counted.rows["committed_offset"].to_pylist() == [9, 10]


def test_tombstones_of_one_write_and_one_cause_are_one_piece() -> None:
    steps: list[Step] = [("commit", 0, 1, -1), ("commit", 1, 1, -1), ("tombstone", 0, 0, -1), ("tombstone", 1, 0, -1)]
    assert [len(p.removals) for p in pieces(steps, step_ms=0)[0] if isinstance(p, RemovedOffsets)] == [2]
    assert [len(p.removals) for p in pieces(steps, step_ms=1_000)[0] if isinstance(p, RemovedOffsets)] == [1, 1]


def test_what_compaction_took_unread_before_a_rewind_is_said() -> None:
    (rewind,) = [
        p for p in pieces([("commit", 0, 9, -1), *[("commit", 1, 1, -1)] * 8, ("commit", 0, 2, -1)])[0] if isinstance(p, LowerCommit)
    ]
    whole, kept = ("first", 0, 10), ("second", 0, 1)
    assert [one.may_miss_commits for one in with_gaps([rewind], [whole])] == [False]
    # One run read both, and a hole between them: the cleaner keeps no record that a later one superseded.
    assert [one.may_miss_commits for one in with_gaps([rewind], [kept, ("second", 7, 10)])] == [False]
    assert [one.may_miss_commits for one in with_gaps([rewind], [("first", 0, 4), ("second", 7, 10)])] == [True]
    assert [one.may_miss_commits for one in with_gaps([rewind], [("first", 0, 4), ("second", 4, 10)])] == [False]
