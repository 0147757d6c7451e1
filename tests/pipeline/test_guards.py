"""What a dump must not be, guard by guard: plans and earlier runs made by hand."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import pytest

from groupcoord_spark.coordinator.broker_settings import KAFKAS_DELETE_RETENTION, DeleteRetention
from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.errors import BadCopyError
from groupcoord_spark.log import EpochAt, LogPlan, PartitionLog, RecordMark
from groupcoord_spark.pipeline.accepted import ACCEPTED_WORDS
from groupcoord_spark.pipeline.exchange.counts import PartitionCounts
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport, VanishedKeys
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.guards import ComparedRun, Verdict, belongs_to, judge, judge_what_was_read
from groupcoord_spark.pipeline.plan.log_changes import LogChange
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.sources.inputs import InputKind

FIRST, NEWEST = RecordMark(0, 1_000, 11), RecordMark(99, 9_000, 22)
SEEN = PartitionHistory(end_offset=100, newest_timestamp_ms=9_000, first_offset=0, first_record=FIRST, newest_record=NEWEST)
UNSEEN = PartitionHistory(end_offset=100, newest_timestamp_ms=9_000, first_offset=0)
"""As SEEN, after a run that remembered no record."""


def other(mark: RecordMark, timestamp_ms: int | None = None) -> RecordMark:
    """Another record at the offset of the mark."""
    return RecordMark(mark.record_offset, mark.timestamp_ms if timestamp_ms is None else timestamp_ms, mark.crc + 1)


def evidence(*marks: RecordMark) -> Evidence:
    """Of a partition with these records."""
    return Evidence(marks[0], marks[-1], {mark.record_offset: mark for mark in marks}) if marks else Evidence()


GROWN = evidence(FIRST, NEWEST, RecordMark(149, 12_000, 33))


def log(number: int, end_offset: int, first_offset: int | None = 0, log_start: int | None = 0) -> PartitionLog:
    return PartitionLog(number, f"logs-{number}", (), first_offset, end_offset, 0, log_start)


def a_night(*logs: PartitionLog, seen: dict[int, Evidence] | None = None, **fields: Any) -> ComparedRun:
    """Of partitions 0 and 1 that have grown since the last run, but for what is given."""
    logs = logs or (log(0, 150), log(1, 150))
    request = RunRequest(("in",), "w", "prod", 1, 1, JAVA, accepted=frozenset(fields.pop("accept", ())), until=fields.pop("until", None))
    usual: dict[str, Any] = {
        "kind": InputKind.SEGMENTS,
        "last_run": {0: SEEN, 1: SEEN},
        "evidence": {partition.offsets_partition: GROWN for partition in logs} | (seen or {}),
    }
    for group_hash, number in fields.pop("placed_groups", ()):
        shown = usual["evidence"].get(number, Evidence())
        usual["evidence"][number] = replace(shown, group_hashes=shown.group_hashes | {group_hash})
    plan = LogPlan(logs, fields.pop("cluster_id", None), None, ())
    return ComparedRun(request, plan, **{**usual, **fields})


def refused(night: ComparedRun) -> str:
    with pytest.raises(BadCopyError) as failure:
        judge(night)
    assert failure.value.exit_code == 2
    return str(failure.value)


class TestACleanerThatWasAhead:
    def ahead(self, cleaned_ends: dict[int, int], **fields: Any) -> ComparedRun:
        night = a_night(**fields)
        return replace(night, plan=replace(night.plan, cleaned_ends=cleaned_ends))

    def test_of_the_copy_is_refused_also_on_the_first_night(self) -> None:
        for last_run in ({0: SEEN, 1: SEEN}, {}):
            sentence = refused(self.ahead({0: 150, 1: 151}, last_run=last_run))
            assert "logs-1: the log ends at offset 150" in sentence and "has been up to 151." in sentence

    def test_names_one_partition_and_counts_the_others(self) -> None:
        assert "up to 151; so it is with 1 offsets partition more." in refused(self.ahead({0: 151, 1: 160}))

    def test_was_not_ahead_where_the_log_is_longer_or_an_earlier_state_is_wanted(self) -> None:
        assert judge(night := self.ahead({0: 150, 1: 20, 2: 500})) == Verdict(night.plan, changes=night.changes)
        judge(self.ahead({0: 151}, until=Until("then", time_ms=1)))


class TestAGoodNight:
    def test_that_grew_goes_on_without_a_word(self) -> None:
        night = a_night()
        assert judge(night) == Verdict(night.plan, changes=night.changes)

    def test_that_is_the_same_dump_again_is_good(self) -> None:
        same = evidence(FIRST, NEWEST)
        night = a_night(log(0, 100), log(1, 100), seen={0: same, 1: same})
        assert judge(night) == Verdict(night.plan, changes=night.changes)

    def test_that_is_the_first_is_good_whatever_it_has(self) -> None:
        for logs in ((log(0, 5),), (log(0, 0, None),)):
            night = a_night(*logs, last_run={})
            assert judge(night) == Verdict(night.plan, changes=night.changes)

    def test_with_a_new_partition_is_good(self) -> None:
        night = a_night(log(0, 150), log(1, 150), log(2, 3))
        assert judge(night) == Verdict(night.plan, changes=night.changes)

    def test_after_a_cleaning_that_removed_all_remembered_records_is_good(self) -> None:
        cleaned = evidence(RecordMark(120, 12_000, 5))
        night = a_night(log(0, 150, 0), log(1, 150, 0), seen={0: cleaned, 1: cleaned})
        assert judge(night) == Verdict(night.plan, changes=night.changes)

    def test_whose_partition_has_lost_all_records_and_kept_its_end_is_good(self) -> None:
        night = a_night(log(0, 150), log(1, 100, None, 100), seen={1: evidence()})
        assert judge(night) == Verdict(night.plan, changes=night.changes)


class TestADumpOfTheCluster:
    def belongs(self, *seen: Evidence) -> bool:
        logs = tuple(log(number, 150) for number in range(len(seen)))
        return belongs_to(LogPlan(logs, None, None, ()), {0: SEEN, 1: SEEN}, dict(enumerate(seen)))

    def test_has_a_record_that_the_last_run_remembers_and_none_that_contradicts(self) -> None:
        assert self.belongs(GROWN, evidence()) and self.belongs(GROWN)
        assert not self.belongs(GROWN, evidence(other(FIRST)))
        assert not self.belongs(evidence(RecordMark(120, 12_000, 5)))
        assert not belongs_to(LogPlan((log(0, 150),), None, None, ()), {}, {0: GROWN})


class TestATruncatedLog:
    EPOCH_0 = replace(SEEN, leader_epoch=0)
    CUT = replace(GROWN, epochs=(EpochAt(1, 149), EpochAt(1, 97)), epoch_starts=((0, 0), (1, 95)))

    def test_is_read_whole_and_reported(self) -> None:
        verdict = judge(a_night(last_run={0: self.EPOCH_0, 1: SEEN}, seen={0: self.CUT}))
        (doubt,) = verdict.plan.doubts
        assert (doubt.code, doubt.offsets_partition, doubt.record_offset) == ("log_truncated", 0, 95)
        assert "at the offsets 95 (or below) to 99. They were of leader epoch 0, and the leader of epoch 1" in doubt.detail
        assert (verdict.changes[0], verdict.changes[1]) == (LogChange.TRUNCATED, LogChange.CONTINUED)

    def test_may_have_lost_live_keys_without_being_refused_for_a_hole(self) -> None:
        night = a_night(last_run={0: self.EPOCH_0, 1: SEEN}, seen={0: self.CUT}, last_as_of_ms=1)
        assert judge_what_was_read(night, judge(night), [PartitionReport(0, vanished=TestAHole.VANISHED)]).accepted == ()

    def test_of_a_deposed_leader_is_older(self) -> None:
        deposed = replace(GROWN, epochs=(EpochAt(0, 149),))
        night = a_night(last_run={0: replace(SEEN, leader_epoch=1), 1: SEEN}, seen={0: deposed})
        assert "1 of 2 offsets partitions (0) end with records of an older leader epoch than that run saw." in refused(night)


class TestNothingToRead:
    NIGHTLY = (log(0, 0, None), log(1, 0, None))
    NOTHING: Final = MappingProxyType({0: Evidence(), 1: Evidence()})

    def test_is_refused(self) -> None:
        sentence = refused(a_night(*self.NIGHTLY, seen=dict(self.NOTHING)))
        assert sentence == (
            "in: there is no record in 2 offsets partitions, and the last run had records in 2 offsets partitions (0, 1). Copy the dump"
            " again, or go on with --accept empty."
        )

    def test_is_refused_where_the_plan_has_no_partition_at_all(self) -> None:
        night = replace(a_night(kind=InputKind.KAFKA), plan=LogPlan((), None, None, ()))
        assert "there is no record in 0 offsets partitions" in refused(night)

    def test_is_accepted_and_nothing_is_carried_over(self) -> None:
        verdict = judge(a_night(*self.NIGHTLY, seen=dict(self.NOTHING), accept=["empty"]))
        assert (verdict.accepted, verdict.missing, len(verdict.plan.partitions)) == (("empty",), (), 2)
        assert verdict.remarks == ("empty: the input has no record: the state becomes empty, the history stays.",)

    def test_is_good_after_a_night_without_records(self) -> None:
        nothing = PartitionHistory()
        assert judge(a_night(*self.NIGHTLY, seen=dict(self.NOTHING), last_run={0: nothing, 1: nothing})).accepted == ()


class TestMissingPartitions:
    def test_are_carried_over(self) -> None:
        assert judge(a_night(log(1, 150))).missing == (0,)

    def test_are_dropped_if_accepted(self) -> None:
        verdict = judge(a_night(log(1, 150), accept=["missing"]))
        assert (verdict.missing, verdict.accepted) == ((), ("missing",))
        assert verdict.remarks[0].startswith("missing (1 offsets partition: 0): offsets partitions that the last run had")

    def test_that_were_dropped_before_are_not_missing_again(self) -> None:
        dropped = PartitionHistory(end_offset=100, first_offset=None)
        assert judge(a_night(log(1, 150), last_run={0: dropped, 1: SEEN})).missing == ()

    def test_are_also_those_whose_directory_is_empty(self) -> None:
        verdict = judge(a_night(log(0, 0, None), log(1, 150), seen={0: Evidence()}))
        assert verdict.missing == (0,)
        assert [partition.offsets_partition for partition in verdict.plan.partitions] == [1]

    def test_a_word_that_is_not_needed_changes_nothing(self) -> None:
        night = a_night(accept=list(ACCEPTED_WORDS))
        assert judge(night) == Verdict(night.plan, changes=night.changes)


class TestAnOlderDump:
    SAME = evidence(FIRST, RecordMark(40, 4_000, 7))

    def test_is_refused_with_partitions_and_ends(self) -> None:
        sentence = refused(a_night(log(0, 41), log(1, 150), seen={0: self.SAME}))
        assert sentence == (
            "in is older than the last run of cluster 'prod', or its end was replaced: 1 of 2 offsets partitions end before it, 0 at 41"
            " (last run 100). Give the newest dump, or go on with --accept older: the state goes back, the history stays."
        )

    def test_is_refused_where_nothing_else_is_known_than_the_ends(self) -> None:
        assert "--accept older" in refused(a_night(log(0, 41), log(1, 150), seen={0: self.SAME}, last_run={0: UNSEEN, 1: UNSEEN}))

    def test_is_refused_by_one_marker_that_is_not_there(self) -> None:
        with_marker, same = replace(SEEN, end_offset=101), evidence(FIRST, NEWEST)
        night = a_night(log(0, 100), log(1, 101), seen={0: same, 1: same}, last_run={0: with_marker, 1: with_marker})
        assert "0 at 100 (last run 101)" in refused(night)

    def test_is_a_log_whose_end_was_replaced(self) -> None:
        night = a_night(seen={0: evidence(FIRST, other(NEWEST))})
        assert "1 of 2 offsets partitions (0) have another record where that run saw its newest one." in refused(night)
        both = a_night(log(0, 150), log(1, 41), seen={0: evidence(FIRST, other(NEWEST)), 1: self.SAME})
        assert "end before it, 1 at 41 (last run 100); 1 of 2 offsets partitions (0) have another record" in refused(both)

    def test_is_accepted(self) -> None:
        verdict = judge(a_night(log(0, 41), log(1, 150), seen={0: self.SAME}, accept=["older"]))
        assert (verdict.older, verdict.recreated, verdict.accepted) == (frozenset({0}), frozenset(), ("older",))

    def test_rows_without_the_last_marker_are_not_older(self) -> None:
        newest = RecordMark(97, 9_000, 4)
        last_run = {0: replace(SEEN, newest_record=newest)}
        night = a_night(log(0, 98, 0, None), last_run=last_run, seen={0: evidence(FIRST, newest)}, kind=InputKind.PARQUET)
        assert judge(night).older == frozenset()

    def test_rows_whose_last_record_was_cleaned_are_not_older_if_other_partitions_went_on(self) -> None:
        logs, seen = (log(0, 41, 0, None), log(1, 150, 0, None)), {0: self.SAME}
        assert judge(a_night(*logs, seen=seen, kind=InputKind.JSON)).older == frozenset()
        assert "0 at 41" in refused(a_night(*logs, seen=seen, kind=InputKind.KAFKA))

    def test_rows_without_any_newer_record_are_older(self) -> None:
        logs = (log(0, 41, 0, None), log(1, 41, 0, None))
        assert "0 at 41 (last run 100), 1 at 41" in refused(a_night(*logs, seen={0: self.SAME, 1: self.SAME}, kind=InputKind.DELTA))


class TestAnotherLog:
    ANEW = evidence(other(FIRST, 20_000), RecordMark(3, 21_000, 5))
    FOREIGN = evidence(other(FIRST), other(NEWEST), RecordMark(300, 21_000, 5))

    def test_that_begins_later_than_the_last_night_ended_was_begun_anew(self) -> None:
        sentence = refused(a_night(log(0, 4), log(1, 150), seen={0: self.ANEW}))
        assert sentence.startswith(
            "in has other records than the last run of cluster 'prod' in 1 of 2 offsets partitions (0): partition 0 ends at offset 4"
            " (last run 100) and begins with offset 0 of 1970-01-01T00:00:20Z (newest of last run 1970-01-01T00:00:09Z)."
        )
        assert sentence.index("--accept recreated") < sentence.index("--cluster NAME")

    def test_that_overlaps_in_time_is_another_clusters_first_of_all(self) -> None:
        sentence = refused(a_night(log(0, 301), log(1, 301), seen={0: self.FOREIGN, 1: self.FOREIGN}))
        assert "in 2 of 2 offsets partitions (0, 1)" in sentence
        assert sentence.index("--cluster NAME") < sentence.index("--accept recreated")

    def test_is_not_accepted_as_an_older_one(self) -> None:
        assert "--accept recreated" in refused(a_night(log(0, 4), log(1, 150), seen={0: self.ANEW}, accept=["older"]))

    def test_is_accepted_with_the_partitions_that_have_no_record_yet(self) -> None:
        logs = (log(0, 4), log(1, 0, None))
        verdict = judge(a_night(*logs, seen={0: self.ANEW, 1: Evidence()}, accept=["recreated"]))
        assert (verdict.recreated, verdict.older, verdict.missing) == (frozenset({0, 1}), frozenset(), ())
        assert verdict.remarks[0].startswith("recreated (2 offsets partitions: 0, 1): the topic was deleted")

    def test_with_another_cluster_id_is_refused_whatever_is_accepted(self) -> None:
        night = a_night(cluster_id="b", last_cluster_id="a", accept=list(ACCEPTED_WORDS))
        sentence = "in is of the cluster with cluster.id 'b', and earlier runs of cluster 'prod' were of 'a'."
        assert refused(night) == f"{sentence} Name this cluster with --cluster NAME."

    def test_the_cluster_of_rows_is_a_name_and_not_compared(self) -> None:
        assert judge(a_night(cluster_id="b", last_cluster_id="a", kind=InputKind.PARQUET)).accepted == ()
        assert "cluster.id 'b'" in refused(a_night(cluster_id="b", last_cluster_id="a", kind=InputKind.KAFKA))

    def test_without_a_cluster_id_on_both_sides_nothing_is_compared(self) -> None:
        assert judge(a_night(cluster_id="b")).accepted == judge(a_night(last_cluster_id="b")).accepted == ()


class TestThePartitionCount:
    def test_that_fits_is_good(self) -> None:
        assert judge(a_night(placed_groups=[(10, 2), (7, 3)], last_partition_count=4)).plan.doubts == ()

    def test_that_was_not_certain_is_not_compared(self) -> None:
        assert judge(a_night(placed_groups=[(10, 3), (7, 2)])).plan.doubts == ()

    def test_that_most_groups_contradict_is_refused(self) -> None:
        night = a_night(placed_groups=[(10, 3), (7, 2), (8, 0)], last_partition_count=4)
        assert refused(night).startswith("in: 2 of 3 groups looked at are not in the offsets partition that the last run's 4 partitions")
        assert judge(a_night(placed_groups=[(10, 3)], last_partition_count=4, accept=["misplaced"])).accepted == ("misplaced",)

    def test_that_changed_is_a_warning(self) -> None:
        # Group hashes 12 n are in partition 0 of 4 partitions and of 6.
        placed = [(group_hash, group_hash % 6) for group_hash in (*range(1_000, 1_012), *range(12, 12 * 40, 12))]
        night = a_night(placed_groups=placed, last_partition_count=4)
        (doubt,) = judge(night).plan.doubts
        assert doubt.code == "partition_count_changed" and "they fit 6 partitions" in doubt.detail

    def test_of_a_topic_begun_anew_is_its_own_affair(self) -> None:
        anew = TestAnotherLog.ANEW
        count = {"placed_groups": [(7, 0)], "last_partition_count": 4}
        night = a_night(log(0, 4), seen={0: anew}, last_run={0: SEEN}, accept=["recreated"], **count)
        assert judge(night).accepted == ("recreated",)


class TestAGap:
    def test_is_a_warning_with_the_range(self) -> None:
        (doubt,) = judge(a_night(log(0, 150, 120, 110), log(1, 150), seen={0: evidence(RecordMark(120, 12_000, 5))})).plan.doubts
        assert (doubt.code, doubt.offsets_partition, doubt.record_offset) == ("gap_since_last_night", 0, 100)
        assert doubt.detail.startswith("Offsets 100 to 109 lie between the last run's end and the first record of this dump.")

    def test_of_rows_begins_at_the_first_record(self) -> None:
        night = a_night(log(0, 150, 120, None), seen={0: evidence(RecordMark(120, 12_000, 5))}, last_run={0: SEEN}, kind=InputKind.JSON)
        assert judge(night).plan.doubts[0].detail.startswith("Offsets 100 to 119 lie")

    def test_is_none_where_the_log_goes_on(self) -> None:
        assert judge(a_night(log(0, 150, 100, 100), log(1, 150))).plan.doubts == ()


class TestFirstSegmentsThatAreMissing:
    """The copy of a log whose first file is 50."""

    def codes(self, *, first: int = 50, start: int | None = None, last: PartitionHistory | None = None) -> list[str]:
        copied = replace(log(0, 150, first, first), files={first: 9, 120: 9}, checkpointed_start=start)
        night = a_night(copied, last_run={} if last is None else {0: last}, seen={0: evidence(NEWEST)})
        return [doubt.code for doubt in judge(night).plan.doubts]

    def test_are_reported_also_in_the_first_run_and_in_every_later_one(self) -> None:
        assert self.codes() == self.codes(start=0) == ["log_begins_late"]
        assert self.codes(last=replace(SEEN, first_offset=50)) == ["log_begins_late"]

    def test_are_none_where_the_log_begins_at_0_or_the_broker_moved_its_start(self) -> None:
        assert self.codes(first=0) == self.codes(start=50) == self.codes(start=60) == []

    def test_are_reported_as_a_hole_where_the_last_run_had_them(self) -> None:
        assert self.codes(last=SEEN) == []


class TestALookBack:
    def test_takes_an_older_and_partial_dump(self) -> None:
        night = a_night(log(0, 41), seen={0: TestAnOlderDump.SAME}, until=Until("then", time_ms=1))
        assert judge(night) == Verdict(night.plan, changes=night.changes)

    def test_refuses_another_log(self) -> None:
        assert "--cluster" in refused(a_night(seen={0: TestAnotherLog.FOREIGN}, until=Until("then", time_ms=1)))


class TestAnEarlierMoment:
    A_DAY_LATER = 86_400_000
    """A run by hand is as of 1 ms."""

    def test_is_refused_with_both_moments(self) -> None:
        assert refused(a_night(last_as_of_ms=self.A_DAY_LATER)) == (
            "This run is as of 1970-01-01T00:00:00Z, and the last run of cluster 'prod' as of 1970-01-02T00:00:00Z: `diff` and the"
            " views over runs would run backwards. Give --as-of that moment or a later one, look back with --until 1970-01-01T00:00:00Z,"
            " or go on with --accept earlier."
        )

    def test_names_a_last_night_whose_moment_has_not_come_yet(self) -> None:
        assert " as of 2100-01-01T00:00:00Z, which has not come yet: `diff`" in refused(a_night(last_as_of_ms=4_102_444_800_000))

    def test_is_taken_where_that_is_accepted(self) -> None:
        verdict = judge(a_night(last_as_of_ms=self.A_DAY_LATER, accept=["earlier"]))
        assert verdict.accepted == ("earlier",)
        assert verdict.remarks[0].startswith("earlier: the run is as of a moment before")

    def test_is_what_a_look_back_is_for_and_the_same_moment_is_not_earlier(self) -> None:
        judge(a_night(last_as_of_ms=self.A_DAY_LATER, until=Until("then", time_ms=1)))
        assert judge(a_night(last_as_of_ms=1)).accepted == ()


class TestWhatWasRead:
    def reports(self, good: int, malformed: int) -> list[PartitionReport]:
        counts = PartitionCounts(lost=malformed, control_records=good)
        counts.reasons["row_malformed"] = malformed
        return [PartitionReport(0, counts)]

    def judged(self, good: int, malformed: int, kind: InputKind = InputKind.JSON, accept: tuple[str, ...] = ()) -> Verdict:
        night = a_night(kind=kind, accept=accept)
        return judge_what_was_read(night, judge(night), self.reports(good, malformed))

    def test_of_which_more_than_half_is_malformed_is_refused(self) -> None:
        with pytest.raises(BadCopyError) as failure:
            self.judged(1_000, 1_001)
        assert str(failure.value) == (
            "in: 1,001 of 2,001 rows are malformed, more than half (row_malformed 1,001). Export the topic again, or go on with"
            " --accept malformed."
        )

    def test_of_which_half_is_malformed_goes_on(self) -> None:
        assert self.judged(5, 5).accepted == self.judged(0, 0).accepted == ()

    def test_is_accepted(self) -> None:
        assert self.judged(1, 2, accept=("malformed",)).remarks == ("malformed: more than half of the rows or lines are quarantined.",)

    def test_of_segments_is_never_refused(self) -> None:
        assert self.judged(1, 2, kind=InputKind.SEGMENTS).accepted == ()


class TestAHole:
    VANISHED = VanishedKeys(4, 9, "'billing', 'orders' and 1 more", 20, 70, (20, 35), 2)

    def judged(self, vanished: VanishedKeys, *, log_start: int = 0, nights_apart_ms: int = 0, accept: tuple[str, ...] = ()) -> Verdict:
        night = a_night(log(0, 150, log_start, log_start), log(1, 150), accept=accept, last_as_of_ms=1)
        night = replace(night, request=replace(night.request, as_of_ms=1 + nights_apart_ms))
        return judge_what_was_read(night, judge(night), [PartitionReport(0, vanished=vanished)])

    def test_in_the_midst_is_refused_while_no_tombstone_can_be_cleaned(self) -> None:
        with pytest.raises(BadCopyError) as failure:
            self.judged(self.VANISHED)
        assert str(failure.value) == (
            "logs-0: of the offsets 20 to 35, which the last run read, no live record is left: 4 of its 9 live keys (of 'billing',"
            " 'orders' and 1 more) lost their record, with neither a later one nor a tombstone. The copy lacks segments, or files of it"
            " are empty or cut. Copy again, or go on with --accept hole."
        )
        assert self.judged(self.VANISHED, nights_apart_ms=KAFKAS_DELETE_RETENTION.ms + 1).accepted == ()

    def test_at_the_front_is_refused_whatever_the_age(self) -> None:
        with pytest.raises(BadCopyError, match="of the offsets 0 to 39, which"):
            self.judged(self.VANISHED, log_start=40, nights_apart_ms=30 * KAFKAS_DELETE_RETENTION.ms)

    def test_keys_of_one_group_in_a_row_are_no_hole(self) -> None:
        assert self.judged(replace(self.VANISHED, groups_in_run=1)).accepted == ()

    def test_is_none_where_the_state_goes_on_with_the_keys(self) -> None:
        assert self.judged(replace(self.VANISHED, is_kept=True)).accepted == ()

    def test_in_the_midst_is_judged_by_the_retention_of_tombstones_that_the_topic_has(self) -> None:
        night = a_night(log(0, 150, 0, 0), log(1, 150), last_as_of_ms=1)
        retention = DeleteRetention(1_000, "by the settings file")
        night = replace(night, request=replace(night.request, as_of_ms=1_002, delete_retention=retention))
        assert judge_what_was_read(night, judge(night), [PartitionReport(0, vanished=self.VANISHED)]).accepted == ()

    def test_is_accepted(self) -> None:
        verdict = self.judged(self.VANISHED, accept=("hole",))
        assert (verdict.accepted, verdict.remarks[0][:42]) == (("hole",), "hole: the input lacks a range of offsets t")
