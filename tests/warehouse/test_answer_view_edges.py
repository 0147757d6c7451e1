"""Views where the log is odd: topics, groups and an offsets topic created again, samples with gaps, members of every kind."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from tests.warehouse.nights import AS_OF_MS, DAY_MS, assignment, group, marker, member, offset
from tests.warehouse.view_rows import HOUR_MS, at, change, committed_by, end, gone, log_part, record, rows

OLD_ID, NEW_ID = "MkTRaXlSRfWvFLT1M3hZWA", "Uz_G2kQIRWC33YW4WQUDVQ"


class TestRewinds:
    def test_offsets_of_a_topic_that_was_made_anew_begin_low_and_nobody_went_back(self) -> None:
        commits = [at(0, 60, topic_id=OLD_ID), at(1, 3, 1, topic_id=NEW_ID), at(2, 1, 2, topic_id=NEW_ID), at(3, 0, 3)]
        found = rows("rewinds", "record_offset, kind", offset_commits=commits)
        assert found == [(1, "topic_recreated"), (2, "reset"), (3, "reset")]

    def test_a_rewind_in_a_transaction_counts_from_its_marker_and_not_at_all_if_it_aborts(self) -> None:
        commits = [at(0, 60), at(1, 3, 1, producer_id=1, is_transactional=True), at(2, 70, 2), at(3, 5, 3, producer_id=2)]
        aborted = rows("rewinds", "record_offset", offset_commits=commits[:2], transactions=[marker(9, 1, "aborted")])
        assert aborted == []
        # The commit of producer 1 is older than the one that counts when its marker comes.
        markers = [marker(8, 1, "committed"), marker(9, 2, "committed", record_timestamp_ms=AS_OF_MS + 5)]
        found = rows("rewinds", "record_offset, from_committed_offset", offset_commits=commits, transactions=markers)
        assert found == [(3, 70)]

    def test_clusters_and_logs_begun_anew_are_apart(self) -> None:
        commits = [at(0, 60), at(0, 5, cluster="other"), at(0, 7, incarnation=1), at(1, 6, incarnation=1)]
        assert rows("rewinds", "cluster, incarnation, back_by", offset_commits=commits) == [("prod", 1, 1)]

    def test_the_same_offset_again_and_offsets_below_zero(self) -> None:
        commits = [at(0, 60), at(1, 60), at(2, -1), at(3, 4)]
        assert rows("rewinds", "record_offset, back_by", offset_commits=commits) == [(2, 61)]


class TestGroups:
    def test_a_log_begun_anew_is_one_life_of_the_group_and_counts_its_offsets_once(self) -> None:
        commits = [at(0, 1), at(1, 1), at(0, 1, 60, incarnation=1), at(3, 2, 61, incarnation=1)]
        tables = {"offset_commits": commits, "groups": [group("g", offset_count=3)]}
        assert rows("group_lifetimes", "group_id, records, ROUND(completeness, 3)", **tables) == [("g", 4, 0.667)]
        assert rows("group_templates", "committed_offsets", **tables) == [(3,)]
        assert rows("hot_committers", "commits, duplicates, ROUND(completeness, 3)", **tables) == [(4, 1, 0.667)]
        assert rows("commit_rate", "commits, completeness", offset_commits=[*commits[:2], at(0, 1, incarnation=1)]) == [(3, 1.0)]
        columns = "incarnation, records, live_records, live_bytes"
        assert rows("storage_by_group", columns, **tables) == [(0, 2, 0, 0), (1, 2, 1, 36)]

    def test_up_to_3_9_a_group_of_offsets_ends_with_its_last_one(self) -> None:
        commits = [at(0, 1), gone(1, record_timestamp_ms=AS_OF_MS + HOUR_MS)]
        assert rows("group_lifetimes", "CAST(removed_at AS VARCHAR)", offset_commits=commits) == [("2026-01-01 01:00:00+00",)]

    def test_births_are_spread_over_days_without_records(self) -> None:
        commits = [at(0, 1, group_id="run-1"), at(1, 1, 9 * 24 * 60, group_id="run-2")]
        assert rows("group_templates", "births_a_day", offset_commits=commits) == [(0.2,)]

    def test_what_the_cleaner_leaves_is_not_what_was_aborted(self) -> None:
        commits = [at(0, 5), at(1, 6, producer_id=1, is_transactional=True, value_size=100)]
        found = rows("storage_by_group", "live_records, live_bytes", offset_commits=commits, transactions=[marker(2, 1, "aborted")])
        assert found == [(1, 36)]

    def test_a_group_of_the_consumer_protocol_is_idle_since_its_newest_record(self) -> None:
        when = {"group_type": "consumer", "record_timestamp_ms": AS_OF_MS - HOUR_MS}
        groups = [group("c", **when), group("s", is_simple=True, record_timestamp_ms=AS_OF_MS)]
        found = rows("idle_groups", "group_id, CAST(empty_since AS VARCHAR), CAST(idle_since AS VARCHAR)", groups=groups)
        assert found == [("c", "2025-12-31 23:00:00+00", "2025-12-31 23:00:00+00"), ("s", None, None)]

    def test_generations_of_two_lives_of_a_group_are_apart(self) -> None:
        rebalances = [
            change(n, 1, to_generation=generation, record_timestamp_ms=AS_OF_MS + n * HOUR_MS)
            for n, generation in enumerate([1, 4, 9, 1, 3])
        ]
        columns = "first_generation, last_generation, rebalances, lifetime_hours, completeness"
        found = rows("rebalance_storms", columns, rebalances=rebalances, groups=[group("g")])
        assert found == [(1, 3, 2, 1.0, 2 / 3), (1, 9, 8, 2.0, 1 / 3)]
        anew = [change(0, 1, to_generation=1, incarnation=n, record_timestamp_ms=AS_OF_MS - HOUR_MS) for n in range(2)]
        found = rows("rebalance_storms", "incarnation, lifetime_hours", rebalances=anew, groups=[group("g")])
        assert found == [(0, 0.0), (1, 1.0)]


class TestMembers:
    def test_share_groups_never_commit_here(self) -> None:
        groups = [group("s", group_type="share", member_count=1), group("c", member_count=1)]
        owned = [assignment("s", "m", "t", 0), assignment("c", "m", "t", 0)]
        assert rows("assigned_never_committed", "group_id", groups=groups, assignments=owned) == [("c",)]

    def test_a_group_whose_subscription_cannot_be_known_may_read_its_topics(self) -> None:
        offsets = [offset("own", "t", 0, 5), offset("idle", "u", 0, 5)]
        groups = [group("own", member_count=1, protocol_type="mine"), group("idle")]
        assert rows("orphan_topics", "topic", groups=groups, committed_offsets=offsets) == [("u",)]

    def test_members_that_share_a_topic_which_no_table_names_are_together(self) -> None:
        members = [member("g", name, subscribed_topics=topics) for name, topics in [("a", ["x", "y"]), ("b", ["y", "z"]), ("c", [])]]
        members.append(member("g", "d", subscribed_topics=["elsewhere"], subscribed_topic_regex="x.*"))
        offsets = [offset("g", "x", 0, 1), offset("g", "z", 0, 1)]
        assert rows("shared_group_id", "*", members=members, committed_offsets=offsets) == []

    def test_the_pair_that_is_shown_is_a_pair_apart(self) -> None:
        members = [member("g", name, subscribed_topics=[topic]) for name, topic in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "q")]]
        offsets = [offset("g", topic, 0, 1) for topic in "xy"]
        columns = "member_pairs_apart, one_member_id, first_topic, other_member_id, other_topic"
        assert rows("shared_group_id", columns, members=members, committed_offsets=offsets) == [(5, "a", "x", "b", "y")]

    def test_kafkajs_is_known_by_the_name_of_its_assignor(self) -> None:
        tables = {"members": [member("g", "m")], "groups": [group("g", protocol="RoundRobinAssigner")]}
        assert rows("client_inventory", "library", **tables) == [("kafkajs",)]


class TestStalled:
    def stalled(
        self, commits: list[dict[str, Any]], others_minute: int = 0, as_of_ms: int | None = None, **log: Any
    ) -> list[tuple[Any, ...]]:
        judged = {"group_id": "g", "as_of_ms": as_of_ms, "removed": False, "tombstone_count": 0}
        tables = {
            "assignments": [assignment("g", "m", "t", partition) for partition in range(3)],
            "groups": [group("g", member_count=1)],
            "members": [member("g", "m")],
            "committed_offsets": committed_by(
                [*(row for row in commits if row.get("producer_id") is None), at(99, 1, others_minute, group_id="other")]
            ),
            "offsets_partitions": [log_part(**log)],
            "transactions": [marker(9, 1, "committed")],
            "group_expirations": [] if as_of_ms is None else [judged],
        }
        return rows("stalled", "partition, commits, advance, median_advance", offset_commits=commits, **tables)

    def test_a_partition_with_one_commit_in_the_hour_advanced_since_the_commit_before(self) -> None:
        before = [at(partition, 100, 0, partition=partition) for partition in range(3)]
        moved = [at(3, 150, 90, partition=0), at(4, 160, 95, partition=1)]
        assert self.stalled([*before, *moved, at(5, 140, 95, partition=2)]) == []
        assert self.stalled([*before, *moved, at(5, 100, 95, partition=2)]) == [(2, 1, 0, 50.0)]
        assert self.stalled([*before, *moved]) == [(2, 0, 0, 50.0)]

    def test_a_group_that_has_not_committed_for_a_day_does_not_move(self) -> None:
        commits = [at(3 * n + partition, 50 * n * (partition < 2), 90 * n, partition=partition) for n in range(2) for partition in range(3)]
        for minutes_later, has_rows in [(24 * 60, True), (24 * 60 + 1, False)]:
            assert bool(self.stalled(commits, others_minute=90 + minutes_later)) is has_rows

    def test_a_commit_from_a_wrong_clock_does_not_hide_the_others(self) -> None:
        commits = [at(3 * n + partition, 50 * n * (partition < 2), 90 * n, partition=partition) for n in range(2) for partition in range(3)]
        years_later = 50 * 365 * 24 * 60
        assert self.stalled(commits, years_later) == []
        assert self.stalled(commits, years_later, as_of_ms=AS_OF_MS) == [(2, 1, 0, 50.0)]

    def test_a_partition_whose_commit_before_is_older_than_two_days_may_have_advanced(self) -> None:
        moved = [at(3 * n + partition, 100 + 50 * n, 90 * n, partition=partition) for n in range(2) for partition in range(2)]
        commits = [at(0, 100, -3 * 24 * 60, partition=2), *moved, at(9, 140, 95, partition=2)]
        assert self.stalled(commits, first_record_timestamp_ms=commits[0]["record_timestamp_ms"]) == []
        assert self.stalled(commits[1:], first_record_timestamp_ms=commits[1]["record_timestamp_ms"]) == [(2, 1, 0, 50.0)]

    def test_an_offset_that_a_later_commit_replaced_before_its_marker_never_counts(self) -> None:
        in_transaction = at(0, 900, 0, partition=2, producer_id=1, is_transactional=True)
        commits = [at(1 + partition, 100, 0, partition=partition) for partition in range(3)]
        moved = [at(10, 150, 90, partition=0), at(11, 160, 95, partition=1)]
        assert self.stalled([in_transaction, *commits, *moved]) == [(2, 0, 0, 50.0)]

    def test_a_partition_that_went_back_does_move(self) -> None:
        commits = [at(n, 10 * n, n, partition=partition) for n in range(2) for partition in range(2)]
        back = [at(10, 90, 0, partition=2), at(11, 5, 1, partition=2)]
        assert self.stalled([{**row, "record_offset": n} for n, row in enumerate([*commits, *back])]) == []


def test_an_open_transaction_began_with_its_first_record_even_if_a_later_one_replaced_it() -> None:
    commits = [
        at(3, 1, -90, producer_id=7, is_transactional=True),
        at(5, 2, -60, producer_id=7, is_transactional=True),
        at(9, 4, -30, producer_id=7, is_transactional=True),
        at(6, 9, -50, producer_id=8, is_transactional=True),
    ]
    pending = [offset("g", "t", 0, 4, producer_id=7, record_offset=9, record_timestamp_ms=AS_OF_MS - HOUR_MS // 2)]
    tables = {"offset_commits": commits, "pending_offsets": pending, "offsets_partitions": [log_part(last_stable_offset=5)]}
    columns = "producer_id, offsets, first_record_offset, CAST(open_for AS VARCHAR)"
    assert rows("open_transactions", columns, **tables) == [(7, 1, 5, "01:00:00")]


class TestLag:
    def test_the_start_of_the_log_comes_near(self) -> None:
        ends = [end("t", 0, 500, start_offset=0), end("t", 0, 900, 24, start_offset=240), end("t", 0, 1000, 48, start_offset=480)]
        offsets = [offset("g", "t", 0, 600), offset("h", "t", 0, 400), offset("i", "t", 0, 1000), offset("j", "t", 0, -1001)]
        columns = "group_id, lag, remark, hours_behind, lost, hours_to_loss"
        assert rows("lag", columns, committed_offsets=offsets, log_ends=ends) == [
            ("g", 400, None, 42.0, 0, 12.0),
            ("h", 600, "lost", None, 80, None),
            ("i", 0, None, None, 0, None),
            ("j", None, "nothing_read", None, None, None),
        ]
        # Without start offsets nothing can be said of losses; samples of more than a week ago say nothing of the pace.
        unknown = [end("t", 0, 900, 24), end("t", 0, 1000, 48)]
        assert rows("lag", "lost, hours_to_loss", committed_offsets=offsets[:1], log_ends=unknown) == [(None, None)]
        old = [end("t", 0, 900, 0, start_offset=0), end("t", 0, 1000, 24 * 8, start_offset=480)]
        assert rows("lag", "lost, hours_to_loss", committed_offsets=offsets[:1], log_ends=old) == [(0, None)]

    def test_the_start_of_the_log_overtakes_a_group_that_reads_more_slowly(self) -> None:
        ends = [end("t", 0, 900, start_offset=0), end("t", 0, 1000, 24, start_offset=240), end("t", 0, 1100, 48, start_offset=480)]
        commits = [at(0, 100), at(1, 310, 60), at(2, 400, 25 * 60), at(3, 9, 60, partition=1)]
        columns = "committed_offset, lag, consumed, deleted, hours_to_loss"
        assert rows("lag_history", columns, offset_commits=commits, log_ends=ends) == [
            (100, 800, None, None, None),
            (310, 690, 210, 240, 56.0),
            (400, 700, 90, 240, 0.0),
        ]


def parallel(encoding: str, payload: bytes) -> str:
    return base64.b64encode(encoding.encode() + payload).decode()


@pytest.mark.parametrize(
    ("metadata", "done_beyond"),
    [
        (parallel("l", struct.pack(">h", 20) + b"\x06\xff\x0f\x00"), 14),
        (parallel("o", struct.pack(">i", 16) + b"\x05\x81\x00"), 4),
        (parallel("n", struct.pack(">5h", 2, 300, 1, 7, 4)), 307),
        (parallel("e", struct.pack(">4i", 1, 70_000, 3, 2)), 70_002),
        (parallel("L", b"\x00\x01\x01\x00\x01\x00"), 3),
        (parallel("e", struct.pack(">700i", *[3] * 700)), 1_050),
        (parallel("s", b"(\xb5/\xfd compressed"), None),
        (base64.b64encode(struct.pack(">bq", 2, 5)).decode(), None),
    ],
)
def test_the_offsets_that_parallel_consumer_has_done_are_counted(metadata: str, done_beyond: int | None) -> None:
    offsets = [offset("g", "t", 0, 5, metadata=metadata), offset("g", "t", 1, 5, metadata=None), offset("g", "t", 2, 5, metadata="note")]
    assert rows("commit_notes", "partition, done_beyond", committed_offsets=offsets) == [(0, done_beyond), (2, None)]


def test_views_over_an_empty_night_and_records_without_times() -> None:
    without = {"record_timestamp_ms": None, "commit_timestamp_ms": None}
    commits = [at(0, 5, **without), at(1, 3, **without)]
    assert rows("rewinds", "back_by, rewound_at", offset_commits=commits) == [(2, None)]
    assert rows("hot_committers", "commits, first_commit", offset_commits=commits) == [(2, None)]
    assert rows("group_templates", "group_ids, births_a_day", offset_commits=commits) == [(1, None)]
    assert rows("commit_rate", "*", offset_commits=commits) == []
    assert rows("cutover", "*", offset_commits=[*commits, at(0, 1, cluster="other", **without)]) == []
    assert rows("storage_by_group", "*") == rows("stalled", "*") == rows("lag_history", "*") == []
    assert rows("group_lifetimes", "removed_at", group_records=[record(0, record_timestamp_ms=None)]) == [(None,)]
    assert rows("idle_groups", "idle_since", groups=[group("g", state_timestamp_ms=None)]) == [(None,)]
    assert rows("no_leader_epoch", "offsets", committed_offsets=[offset("g", "t", 0, 1, commit_timestamp_ms=AS_OF_MS - DAY_MS)]) == [(1,)]
