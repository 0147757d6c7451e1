"""Whether the doctor foresees what the log cleaner makes of a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.coordinator import JAVA, Semantics, semantics_for
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.replay.after_cleaning import AfterCleaning, check_after_cleaning
from tests.coordinator.records import (
    Record,
    classic_group,
    consumer_member,
    current_assignment,
    group_epoch,
    marker,
    member,
    offset_commit,
    streams_group_epoch,
    subscription,
    target,
    target_metadata,
    tombstone,
    transactional_commit,
)
from tests.coordinator.test_properties import logs_of_two_groups
from tests.examples import examples
from tests.pipeline.cleanings import answers_of_every_cleaning, foreseen

GOLDEN = Path(__file__).parent.parent / "golden"
RELEASES = st.sampled_from([JAVA, *(semantics_for(broker_version=release) for release in ("4.0.0", "4.1.1", "4.2.0", "4.4.0", "3.9.1"))])


def answers(outcome: AfterCleaning) -> dict[str, set[str]]:
    by_group: dict[str, set[str]] = {}
    for found in outcome.exposures:
        by_group.setdefault(found.group_id, set()).add(found.answer)
    return by_group


class Writes:
    """What a coordinator of 4.x writes for one group, as batches: commits, members of both protocols, conversions and deletions."""

    def __init__(self) -> None:
        self.batches: list[list[Record]] = []
        self.epoch = 1
        self.generation = 0
        self.owned: dict[str, set[int]] = {}
        self.kind: str | None = None

    def commit(self, place: str, committed_offset: int | None) -> None:
        self.batches.append([offset_commit(place, committed_offset)])

    def rebalance_classic(self, *_: object) -> None:
        if self.kind in (None, "classic"):
            self.kind, self.generation = "classic", self.generation + 1
            self.batches.append([classic_group(generation=self.generation, members=[member("c", subscription("t"))], protocol="range")])

    def join(self, name: str, *_: object) -> None:
        """Let a member join, and divide the partitions again: each is given up before another member takes it."""
        begin = []
        if self.kind == "classic":
            begin = [tombstone(2)]
            self.owned = {}
        self.kind = "consumer"
        self.epoch += 1
        self.owned.setdefault(name, set())
        members = sorted(self.owned)
        targets = {one: {number for number in range(3) if members[number % len(members)] == one} for one in members}
        first = [*begin, consumer_member(name, "t"), group_epoch(self.epoch)]
        self.batches.append([*first, *(target(one, *sorted(targets[one])) for one in members), target_metadata(6, self.epoch)])
        for give_up in (True, False):
            for one in members:
                self.owned[one] = self.owned[one] & targets[one] if give_up else targets[one]
                self.batches.append([current_assignment(one, self.epoch, *sorted(self.owned[one]))])

    def leave(self, name: str, *_: object) -> None:
        if self.kind == "consumer" and name in self.owned:
            del self.owned[name]
            self.epoch += 1
            gone = [tombstone(key_type, member_id=name) for key_type in (8, 7, 5)]
            self.batches.append([*gone, group_epoch(self.epoch)])

    def pause(self, name: str, *_: object) -> None:
        """Let a static member leave for a while: its epoch is -2."""
        if self.kind == "consumer" and name in self.owned:
            self.batches.append([current_assignment(name, -2, *sorted(self.owned[name]))])

    def _removed(self) -> list[Record]:
        members = sorted(self.owned)
        parts = [[tombstone(key_type, member_id=one) for one in members] for key_type in (8, 7, 5)]
        return [*parts[0], *parts[1], tombstone(6), *parts[2], tombstone(3)]

    def downgrade(self, *_: object) -> None:
        if self.kind == "consumer":
            self.batches.append([*self._removed(), classic_group(generation=self.epoch, members=[member("c")], protocol="range")])
            self.kind, self.generation, self.owned = "classic", self.epoch, {}

    def delete(self, *_: object) -> None:
        if self.kind is not None:
            self.batches.append(self._removed() if self.kind == "consumer" else [tombstone(2)])
            self.kind, self.owned = None, {}


def written(steps: Sequence[tuple[str, tuple[object, ...]]], *, split: bool) -> tuple[list[Record], list[int]]:
    """Return the records and the numbers of their batches. split: each record is a batch, as after a full offset map."""
    writes = Writes()
    for name, arguments in steps:
        getattr(writes, name)(*arguments)
    log = [(record, number) for number, records in enumerate(writes.batches) for record in records]
    return [record for record, _ in log], list(range(len(log))) if split else [number for _, number in log]


STEPS = st.lists(
    st.tuples(st.just("commit"), st.tuples(st.sampled_from(["t0", "t1"]), st.none() | st.integers(0, 3)))
    | st.tuples(
        st.sampled_from(["rebalance_classic", "join", "join", "leave", "pause", "downgrade", "delete"]), st.tuples(st.sampled_from("mn"))
    ),
    max_size=9,
)


def assert_foreseen(log: Sequence[Record], batches: Sequence[int] | None, broker: Semantics) -> None:
    """Check that the groups that some cleaning makes fail or differ are named, and no others."""
    if not log:
        return
    with TemporaryDirectory() as directory:
        outcome = foreseen(Path(directory), log, broker, batches=batches)
    if not outcome.now.loads:
        return
    numbers = list(range(len(log))) if batches is None else batches
    assert {found.cleaning.cleaned_to for found in outcome.exposures} <= {*map(numbers.index, numbers), len(log)}
    expected, ours = answers_of_every_cleaning(log, broker, batches=batches), answers(outcome)
    assert expected.keys() - ours.keys() == set(), "missed"
    assert {group: of_group for group, of_group in ours.items() if not of_group <= expected.get(group, set())} == {}, "invented"


@examples(60)
@given(STEPS, st.booleans(), RELEASES)
def test_what_a_cleaning_does_to_groups_that_change_is_foreseen(
    steps: Sequence[tuple[str, tuple[object, ...]]], split: bool, broker: Semantics
) -> None:
    assert_foreseen(*written(steps, split=split), broker)


@examples(60)
@given(logs_of_two_groups, RELEASES)
def test_what_a_cleaning_does_to_odd_logs_is_foreseen(log: Sequence[Record], broker: Semantics) -> None:
    """Logs as no broker writes them."""
    assert_foreseen(log, None, broker)


def checked(log: Sequence[Record], directory: Path, release: str = "4.3.1") -> AfterCleaning:
    return foreseen(directory, log, semantics_for(broker_version=release))


def test_offset_of_key_type_1_comes_back_once_its_tombstone_of_key_type_0_is_dropped(tmp_path: Path) -> None:
    outcome = checked([offset_commit("t0", 5), offset_commit("t0", None, key_type=0)], tmp_path)
    (found,) = outcome.exposures
    assert (found.answer, found.differences) == ("other_state", ("offset of t-0: none before, 5 after",))
    assert found.cleaning.drops_tombstones


def test_offset_of_a_deleted_group_comes_back_once_the_groups_tombstone_is_dropped(tmp_path: Path) -> None:
    outcome = checked([offset_commit("t0", 5), classic_group(generation=3), tombstone(2)], tmp_path)
    assert [found.differences for found in outcome.exposures] == [("offset of t-0: none before, 5 after",)]


def test_offset_comes_back_whose_tombstone_was_in_an_aborted_transaction(tmp_path: Path) -> None:
    outcome = checked([offset_commit("t0", 5), transactional_commit(7, "t0", None), marker(7, 0)], tmp_path)
    assert [found.answer for found in outcome.exposures] == ["other_state"]


def test_offset_that_is_deleted_under_its_own_key_stays_deleted(tmp_path: Path) -> None:
    outcome = checked([offset_commit("t0", 5), offset_commit("t0", None), classic_group(generation=3), tombstone(2)], tmp_path)
    assert (outcome.exposures, outcome.now.loads) == ((), True)


def test_streams_group_over_the_offsets_of_a_classic_one_is_refused_before_kafka_20254_is_mended(tmp_path: Path) -> None:
    log = [offset_commit("t0", 5), classic_group(generation=3), tombstone(2), streams_group_epoch(4)]
    (found,) = checked(log, tmp_path, "4.2.0").exposures
    assert found.refusal is not None
    assert (found.answer, found.refusal.code, found.refusal.record_offset, found.issue) == ("refused", "R-3.5", 3, "KAFKA-20254")
    assert "from 4.2.1 on" in found.remedy
    assert checked(log, tmp_path, "4.2.1").exposures == ()


def test_deletion_on_both_sides_of_the_cleaners_end_is_refused(tmp_path: Path) -> None:
    # The epoch's tombstone is dropped, the group's stays: it finds a simple group, made by the offset, whose epoch was never removed.
    log = [offset_commit("t0", 5), group_epoch(2), target_metadata(6, 2), tombstone(6), tombstone(3)]
    refused = [found for found in checked(log, tmp_path).exposures if found.refusal is not None]
    assert [(found.refusal.code, found.refusal.record_offset, found.cleaning.cleaned_to) for found in refused if found.refusal] == [
        ("R-3.9", 4, 4)
    ]
    in_one_batch = foreseen(tmp_path, log, JAVA, batches=[0, 1, 1, 2, 2])
    assert [found.answer for found in in_one_batch.exposures] == ["other_state"]


def test_the_cleaner_ends_between_two_batches_also_if_other_groups_share_them(tmp_path: Path) -> None:
    other = offset_commit("t0", 1, group="other")
    log = [offset_commit("t0", 5), group_epoch(2), target_metadata(6, 2), tombstone(6), other, other, tombstone(3), other]
    exposures = foreseen(tmp_path, log, JAVA, batches=[0, 1, 1, 2, 2, 3, 3, 3]).exposures
    assert [(found.answer, found.cleaning.cleaned_to) for found in exposures] == [("refused", 5)]


@pytest.mark.parametrize(
    ("corpus", "group", "rule", "issue"),
    [("kip848", "k-static", "R-3.14", "KAFKA-19862"), ("convert", "mig-back-and-forth", "R-3.4", "KAFKA-21117")],
)
def test_load_that_meets_the_cleaner_may_fail_on_logs_of_real_brokers(corpus: str, group: str, rule: str, issue: str) -> None:
    logs = plan_logs([str(GOLDEN / corpus / "logs")]).partitions
    (found,) = [found for log in logs for found in check_after_cleaning(log, [JAVA])[0].exposures]
    assert found.refusal is not None
    assert (found.answer, found.group_id, found.refusal.code, found.issue) == ("refused_while_cleaning", group, rule, issue)


@pytest.mark.parametrize("corpus", ["classic-modern", "compacted", "connect", "expiry", "share", "streams", "transactions", "vanished"])
def test_logs_of_real_brokers_load_after_every_cleaning(corpus: str) -> None:
    logs = plan_logs([str(GOLDEN / corpus / "logs")]).partitions
    assert [found for log in logs for found in check_after_cleaning(log, [JAVA])[0].exposures] == []
