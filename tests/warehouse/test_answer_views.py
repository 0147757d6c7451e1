"""The views of the folder sql on small tables, with rows worked out by hand."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from tests.warehouse.nights import AS_OF_MS, DAY_MS, assignment, group, marker, member, offset
from tests.warehouse.view_rows import (
    HOUR_MS,
    SHARE_TOPIC_ID,
    acl,
    at,
    change,
    committed_by,
    end,
    gone,
    log_part,
    record,
    rows,
    share_batch,
    share_offset,
    topic,
)


class TestCountedCommits:
    def test_a_transactional_commit_counts_from_its_marker_on_and_only_if_nothing_replaced_it(self) -> None:
        commits = [
            at(0, 5, producer_id=1, is_transactional=True),
            at(2, 6, producer_id=2, is_transactional=True),
            at(4, 7, producer_id=3, is_transactional=True),
            at(5, 3),
            at(7, 8, producer_id=4, is_transactional=True),
        ]
        markers = [marker(1, 1, "committed"), marker(3, 2, "aborted"), marker(6, 3, "committed")]
        found = rows("counted_commits", "record_offset, counted_offset", offset_commits=commits, transactions=markers)
        assert found == [(0, 1), (5, 5)]


class TestCutover:
    offsets = "last_committed_there, first_committed_here, rewound_by, commits_there_after"
    columns = f"from_cluster, to_cluster, partition, {offsets}, completeness"

    def test_a_group_that_began_lower_in_the_new_cluster_went_back_and_one_that_began_higher_skipped(self) -> None:
        there = [at(0, 50, 0), at(1, 60, 5), at(2, 90, 6, partition=1), at(3, 7, 7, partition=2)]
        here = [at(0, 40, 10), at(1, 41, 11), at(3, 99, 12, partition=1), at(4, 1, 12, group_id="other")]
        found = rows("cutover", self.columns, offset_commits=[*there, *({**row, "cluster": "new"} for row in here)])
        assert found == [("prod", "new", 0, 60, 40, 20, 0, 0.8), ("prod", "new", 1, 90, 99, -9, 0, 0.8)]

    def test_commits_in_the_old_cluster_after_the_first_one_in_the_new_cluster_are_counted(self) -> None:
        commits = [at(0, 50, 0), at(1, 60, 20), at(2, 61, 21), {**at(0, 55, 10), "cluster": "new"}]
        assert rows("cutover", self.columns, offset_commits=commits) == [("prod", "new", 0, 61, 55, 6, 2, 1.0)]


def event(record_offset: int, from_offset: int, to_offset: int, cause: str, **fields: Any) -> dict[str, Any]:
    """Return a row of offset_events: by default a rewind of partition 0."""
    place = {"group_id": "g", "topic": "t", "partition": 0, "offsets_partition": 0, "incarnation": 0, "record_offset": record_offset}
    values = {"from_committed_offset": from_offset, "to_committed_offset": to_offset, "from_record_offset": record_offset - 1}
    times = {"event_timestamp_ms": AS_OF_MS + record_offset}
    return {**place, **values, **times, "kind": "rewound", "cause": cause, "certainty": "likely", "evidence": ".", "run_id": "r", **fields}


class TestRewinds:
    def kinds(self, *events: Mapping[str, Any]) -> list[tuple[int, str]]:
        return sorted((at_offset, kind) for kind, at_offset in rows("rewinds", "kind, record_offset", offset_events=events))

    def test_a_rewind_has_its_cause_and_how_far_it_went(self) -> None:
        columns = "topic, partition, from_committed_offset, to_committed_offset, back_by, kind, from_record_offset, record_offset"
        found = rows("rewinds", columns, offset_events=[event(5, 60, 3, "reset"), event(9, 1, 4, "reset", kind="skipped")])
        assert found == [("t", 0, 60, 3, 57, "reset", 4, 5)]

    def test_two_rising_series_are_two_writers(self) -> None:
        series = [event(10, 100, 10, "seek"), event(30, 101, 11, "seek"), event(50, 102, 12, "seek")]
        assert self.kinds(*series) == [(10, "two_writers"), (30, "two_writers"), (50, "two_writers")]
        assert self.kinds(*(row | {"partition": n} for n, row in enumerate(series))) == [(10, "seek"), (30, "seek"), (50, "seek")]

    def test_one_reader_that_goes_back_twice_is_not_two_writers(self) -> None:
        assert self.kinds(event(20, 100, 50, "seek"), event(70, 120, 110, "seek")) == [(20, "seek"), (70, "seek")]
        assert self.kinds(event(20, 100, 98, "seek"), event(50, 200, 150, "seek")) == [(20, "seek"), (50, "seek")]

    def test_an_admin_who_resets_twice_is_not_two_writers(self) -> None:
        resets = [event(n, 100 + n, n, "reset", certainty="certain") for n in (10, 30)]
        assert self.kinds(*resets) == [(10, "reset"), (30, "reset")]

    def test_partitions_of_one_request_are_counted(self) -> None:
        at_once = [event(n, 60, 3, "reset", partition=n, event_timestamp_ms=AS_OF_MS) for n in range(3)]
        found = rows("rewinds", "record_offset, partitions_at_once", offset_events=[*at_once, event(9, 60, 3, "reset")])
        assert found == [(0, 3), (1, 3), (2, 3), (9, 1)]


class TestSkips:
    def test_a_skip_has_its_cause_and_the_records_that_were_never_read(self) -> None:
        skip = event(5, 3, 60, "reset", kind="skipped", certainty="certain", records_skipped=57, counts_are_exact=True)
        columns = "group_id, topic, partition, from_committed_offset, to_committed_offset, records_skipped, cause, certainty"
        assert rows("skips", columns, offset_events=[skip, event(7, 60, 3, "seek")]) == [("g", "t", 0, 3, 60, 57, "reset", "certain")]


class TestReaders:
    tables: ClassVar = {
        "groups": [
            group("live", member_count=1, state="Stable", subscribed_topics=["orders", "regex-topic"]),
            group("idle", state_timestamp_ms=AS_OF_MS - DAY_MS),
            group("simple", is_simple=True),
        ],
        "members": [member("live", "m", subscribed_topics=["orders"])],
        "assignments": [
            assignment("live", "m", "orders", 0),
            assignment("live", "m", "orders", 1),
            assignment("live", "m", "regex-topic", 0),
        ],
        "committed_offsets": [
            offset("live", "orders", 0, 5, leader_epoch=3),
            offset("idle", "gone", 0, 5, commit_timestamp_ms=AS_OF_MS - 2 * DAY_MS),
            offset("idle", "orders", 0, 5, commit_timestamp_ms=AS_OF_MS - 2 * DAY_MS, leader_epoch=1),
            offset("simple", "orders", 0, 9),
        ],
    }

    def test_readers_of_a_topic_commit_or_have_a_partition_or_subscribe(self) -> None:
        columns = "topic, group_id, committed_partitions, assigned_partitions, members, subscribed"
        assert rows("topic_readers", columns, **self.tables) == [
            ("gone", "idle", 1, 0, 0, None),
            ("orders", "idle", 1, 0, 0, None),
            ("orders", "live", 1, 2, 1, "name"),
            ("orders", "simple", 1, 0, 0, None),
            ("regex-topic", "live", 0, 1, 1, "expression"),
        ]

    def test_a_topic_without_a_live_reader_is_an_orphan(self) -> None:
        assert rows("orphan_topics", "topic, groups_with_offsets, partitions, offsets", **self.tables) == [("gone", 1, 1, 1)]

    def test_idle_groups_have_no_members_and_count_from_the_later_of_two_times(self) -> None:
        columns = "group_id, is_simple, topics, offsets, CAST(idle_since AS VARCHAR)"
        assert rows("idle_groups", columns, **self.tables) == [
            ("idle", False, 2, 2, "2025-12-31 00:00:00+00"),
            ("simple", True, 1, 1, "2026-01-01 00:00:00+00"),
        ]

    def test_partitions_of_members_without_a_committed_offset(self) -> None:
        pending = [offset("live", "regex-topic", 0, 4, producer_id=7)]
        history = {"offset_commits": [at(0, 3, group_id="live", topic="orders", partition=1), at(3, 3)], "offsets_partitions": [log_part()]}
        columns = "topic, partition, has_pending, commits, completeness"
        assert rows("assigned_never_committed", columns, **self.tables, pending_offsets=pending, **history) == [
            ("orders", 1, False, 1, 0.5),
            ("regex-topic", 0, True, 0, 0.5),
        ]

    def test_offsets_without_leader_epoch_are_counted_by_group_and_topic(self) -> None:
        found = rows("no_leader_epoch", "group_id, topic, offsets, offsets_without_epoch", **self.tables)
        assert found == [("idle", "gone", 1, 1), ("simple", "orders", 1, 1)]

    def test_members_with_disjoint_topics_share_a_group_id(self) -> None:
        apart = [member("live", "n", subscribed_topics=["gone"])]
        offsets = [*self.tables["committed_offsets"], offset("live", "gone", 0, 1)]
        tables = {**self.tables, "members": [*self.tables["members"], *apart], "committed_offsets": offsets}
        found = rows("shared_group_id", "group_id, member_pairs_apart, first_topic, other_topic", **tables)
        assert found == [("live", 1, "orders", "gone")]
        together = [member("live", "n", subscribed_topics=["gone", "orders"])]
        assert rows("shared_group_id", "group_id", **{**tables, "members": [*self.tables["members"], *together]}) == []


def test_a_partition_is_stalled_when_the_median_of_its_group_advances() -> None:
    owned = [assignment("g", "m", "t", partition) for partition in range(4)]
    commits = [at(partition, 10, 0, partition=partition) for partition in range(4)]
    commits += [at(4, 30, 10, partition=0), at(5, 50, 10, partition=1), at(6, 10, 10, partition=2), at(7, 20, 10, partition=3)]
    tables = {
        "assignments": owned,
        "groups": [group("g", member_count=1)],
        "members": [member("g", "m")],
        "committed_offsets": committed_by(commits),
        "offsets_partitions": [log_part()],
    }
    columns = "topic, partition, member_id, commits, advance, median_advance, partitions, completeness"
    assert rows("stalled", columns, offset_commits=commits, **tables) == [("t", 2, "m", 2, 0, 15.0, 4, 1.0)]
    only_the_first = {**tables, "committed_offsets": committed_by(commits[:4])}
    assert rows("stalled", columns, offset_commits=commits[:4], **only_the_first) == []


def test_commits_are_counted_by_hour_with_what_compaction_left() -> None:
    commits = [at(0, 1), at(1, 2, 59), gone(3, record_timestamp_ms=AS_OF_MS), at(4, 5, 60), at(9, 6, 61, group_id="h")]
    columns = "group_id, CAST(bucket_start AS VARCHAR), commits, tombstones, bytes, completeness, window_is_complete"
    assert rows("commit_rate", columns, offset_commits=commits) == [
        ("g", "2026-01-01 00:00:00+00", 2, 1, 84, 0.75, True),
        ("g", "2026-01-01 01:00:00+00", 1, 0, 36, 1 / 3, False),
        ("h", "2026-01-01 01:00:00+00", 1, 0, 36, 1 / 3, False),
    ]


def test_hot_committers_repeat_themselves() -> None:
    commits = [at(0, 1), at(1, 1), at(2, 1), at(3, 2), at(4, 2, partition=1), at(5, 1, group_id="h")]
    columns = "group_id, partitions, commits, bytes, duplicates, duplicate_share, ROUND(share_of_commits, 3), completeness"
    assert rows("hot_committers", columns, offset_commits=commits) == [
        ("g", 2, 5, 180, 2, 0.4, 0.833, 1.0),
        ("h", 1, 1, 36, 0, 0.0, 0.167, 1.0),
    ]


def test_groups_are_born_and_go_and_their_ids_have_templates() -> None:
    uuid = "0b5e1f0a-6a8c-4f0e-9a51-0c2d3e4f5a6b"
    commits = [at(0, 1, group_id="console-consumer-12345"), at(1, 1, 24 * 60, group_id="console-consumer-7")]
    commits += [at(2, 1, group_id=f"job-{uuid}"), at(4, 2, 1, group_id="console-consumer-7")]
    ends = [record(3, group_id="console-consumer-12345", is_tombstone=True, value_size=-1, record_timestamp_ms=AS_OF_MS + HOUR_MS)]
    tables = {"offset_commits": commits, "group_records": ends, "groups": [group("console-consumer-7", offset_count=3)]}
    columns = "group_id, template, is_there, CAST(removed_at AS VARCHAR), records, bytes, committed_offsets, completeness"
    assert rows("group_lifetimes", columns, **tables) == [
        ("console-consumer-12345", "console-consumer-<n>", False, "2026-01-01 01:00:00+00", 2, 41, None, 1.0),
        ("console-consumer-7", "console-consumer-<n>", True, None, 2, 72, 3, 1.0),
        (f"job-{uuid}", "job-<uuid>", False, None, 1, 36, None, 1.0),
    ]
    columns = "template, group_ids, group_ids_there, births_a_day, records, bytes, committed_offsets"
    assert rows("group_templates", columns, **tables) == [
        ("console-consumer-<n>", 2, 1, 1.0, 4, 113, 3),
        ("job-<uuid>", 1, 0, 0.5, 1, 36, 0),
    ]


def test_a_number_of_any_length_is_one_n() -> None:
    ids = [f"a{'7' * digits}b{'10' * digits}#" for digits in range(1, 40)]
    found = rows("group_lifetimes", "template", offset_commits=[at(n, 1, group_id=group_id) for n, group_id in enumerate(ids)])
    assert found == [("a<n>b<n>#",)] * len(ids)


def test_clients_are_counted_by_what_they_are() -> None:
    members = [
        member("g", "rdkafka-1", client_id="rdkafka", session_timeout_ms=45000),
        member("g", "rdkafka-2", client_id="rdkafka", session_timeout_ms=45000),
        member("k", "x", client_id="orders-service", instance_id="i", uses_classic_protocol=True, server_assignor="uniform"),
        member("k", "y", client_id="consumer-k-1", client_host="/10.0.0.2"),
    ]
    groups = [group("g", protocol="range"), group("k", group_type="consumer", protocol="uniform")]
    columns = "client_id, client_host, library, protocol, is_static, assignor, session_timeout_ms, members, group_ids"
    assert rows("client_inventory", columns, members=members, groups=groups) == [
        ("consumer-k-1", "/10.0.0.2", "Java", "consumer", False, "uniform", None, 1, 1),
        ("orders-service", "/10.0.0.1", None, "classic", True, "uniform", None, 1, 1),
        ("rdkafka", "/10.0.0.1", "librdkafka", "classic", False, "range", 45000, 2, 1),
    ]


def test_what_keeps_a_group_from_the_consumer_protocol() -> None:
    groups = [
        group(name, protocol=protocol, member_count=1)
        for name, protocol in [("a", "range"), ("b", "mine"), ("c", "sticky"), ("d", "range")]
    ]
    groups += [group("e", protocol_type="connect"), group("f", group_type="consumer"), group("s", is_simple=True, protocol_type=None)]
    members = [
        member("a", "m", session_timeout_ms=45000, subscribed_topics=["t"]),
        member("b", "m", session_timeout_ms=300000, user_data=b"x"),
        member("c", "m", session_timeout_ms=60000, user_data=b"x", subscribed_topics=["t"]),
        member("d", "m", session_timeout_ms=10000, user_data=b"", subscribed_topics=["t"]),
    ]
    assert rows("protocol_readiness", "group_id, is_ready, obstacles", groups=groups, members=members) == [
        ("a", True, ""),
        (
            "b",
            False,
            "custom assignor, user data in the subscription, a subscription that cannot be read, session timeout outside of the bounds",
        ),
        ("c", True, ""),
        ("d", False, "session timeout outside of the bounds"),
    ]


def test_generations_an_hour_survive_compaction() -> None:
    rebalances = [
        change(1, 1, record_timestamp_ms=AS_OF_MS - 4 * HOUR_MS, to_generation=10, members_joined=["a"]),
        change(8, 1, record_timestamp_ms=AS_OF_MS - HOUR_MS, to_generation=29, cause="member_left", members_left=["a"]),
        change(9, 1, record_timestamp_ms=AS_OF_MS - HOUR_MS, to_generation=30, members_joined=["b"]),
    ]
    tables = {"rebalances": rebalances, "groups": [group("g")], "members": [member("g", "a"), member("g", "b")]}
    columns = "first_generation, last_generation, rebalances, lifetime_hours, rebalances_an_hour, busiest_hour_rebalances"
    columns += ", main_cause, main_cause_times, main_member, main_member_times, ROUND(completeness, 3)"
    assert rows("rebalance_storms", columns, **tables) == [(10, 30, 20, 4.0, 5.0, 2, "member_joined", 2, "a", 2, 0.143)]
    # A group that is not there any more lived up to its last rebalance.
    assert rows("rebalance_storms", "lifetime_hours", rebalances=rebalances) == [(3.0,)]


def test_open_transactions_say_since_when() -> None:
    since = {"record_timestamp_ms": AS_OF_MS - HOUR_MS}
    pending = [
        offset("g", "t", partition, 5, producer_id=7, producer_epoch=2, record_offset=partition + 3, **since) for partition in range(2)
    ]
    columns = "group_id, producer_id, producer_epoch, offsets, topics, first_record_offset, CAST(open_for AS VARCHAR)"
    assert rows("open_transactions", columns, pending_offsets=pending) == [("g", 7, 2, 2, 1, 3, "01:00:00")]


def test_a_topic_with_two_ids_was_made_anew() -> None:
    old, new = "MkTRaXlSRfWvFLT1M3hZWA", "Uz_G2kQIRWC33YW4WQUDVQ"
    commits = [at(0, 5, topic_id=old), at(1, 2, 5, topic_id=new), at(2, 9, topic="u", topic_id=old)]
    offsets = [offset("g", "t", 0, 2, topic_id=new), offset("h", "t", 0, 2, topic_id=old), offset("h", "t", 1, 2)]
    columns = "topic, evidence, topic_ids, newest_topic_id, stale_offsets"
    assert rows("topic_recreated", columns, offset_commits=commits, committed_offsets=offsets) == [("t", "topic_id", 2, new, 1)]


def test_storage_is_what_the_cleaner_leaves_of_each_group() -> None:
    commits = [at(0, 5), at(1, 6), at(2, 1, partition=1), gone(3, partition=1)]
    tables = {"offset_commits": commits, "group_records": [record(4), record(5)]}
    columns = "group_id, records, bytes, live_records, live_bytes, tombstone_records, completeness"
    assert rows("storage_by_group", columns, **tables) == [("g", 6, 170, 2, 61, 1, 1.0)]


def test_lag_is_of_the_newest_sample_and_says_what_it_cannot_know() -> None:
    offsets = [
        offset("g", "t", 0, 80),
        offset("g", "t", 1, 100),
        offset("g", "t", 2, -1),
        offset("g", "t", 3, 500, commit_timestamp_ms=AS_OF_MS + 3 * HOUR_MS),
        offset("g", "t", 4, 500),
        offset("h", "gone", 0, 5),
        offset("h", "never", 0, 5),
        offset("i", "t", 3, 500),
        offset("i", "t", 5, 90),
    ]
    ends = [end("t", 0, 70), end("t", 0, 90, 1), end("t", 0, 120, 2, start_offset=20), end("gone", 0, 9, 1), end("t", 5, 100, 1)]
    ends += [end("t", partition, 110, 2) for partition in (1, 2, 3, 4)]
    columns = "topic, partition, lag, remark, CAST(behind_since AS VARCHAR), share_of_log, group_lag, group_max_lag, group_lag_is_partial"
    assert rows("lag", columns, committed_offsets=offsets, log_ends=ends) == [
        ("gone", 0, None, "topic_gone", None, None, None, None, True),
        ("never", 0, None, "no_sample", None, None, None, None, True),
        ("t", 0, 40, None, "2026-01-01 00:00:00+00", 0.4, 50, 40, False),
        ("t", 1, 10, None, None, None, 50, 40, False),
        ("t", 2, None, "nothing_read", None, None, 50, 40, False),
        ("t", 3, -390, "beyond_end", None, None, 0, 0, True),
        ("t", 3, -390, "sample_is_older", None, None, 50, 40, False),
        ("t", 4, -390, "beyond_end", None, None, 50, 40, False),
        ("t", 5, None, "no_sample", None, None, 0, 0, True),  # the newest sample has other partitions of the topic
    ]


def test_offset_beyond_the_end_in_a_checkpoint_has_lag_0_where_the_checkpoint_may_be_too_old() -> None:
    offsets = [offset("g", "t", 0, 80), offset("g", "t", 1, 500, commit_timestamp_ms=AS_OF_MS - 4_000)]
    offsets.append(offset("g", "t", 2, 500, commit_timestamp_ms=AS_OF_MS - HOUR_MS))
    ends = [end("t", partition, 110, source="checkpoint") for partition in range(3)]
    columns = "partition, lag, remark, group_lag, source"
    expected = [(0, 30, None, 30, "checkpoint"), (1, 0, "sample_is_older", 30, "checkpoint"), (2, -390, "beyond_end", 30, "checkpoint")]
    assert rows("lag", columns, committed_offsets=offsets, log_ends=ends) == expected
    commits = [at(0, 500)]
    assert rows("lag_history", "lag", offset_commits=commits, log_ends=ends) == [(0,)]
    later = [{**row, "sampled_at_ms": row["sampled_at_ms"] + HOUR_MS} for row in ends]
    assert rows("lag_history", "lag", offset_commits=commits, log_ends=later) == [(-390,)]


def test_lag_history_says_when_the_group_has_caught_up() -> None:
    commits = [at(0, 10), at(1, 60, 90), at(2, 65, 200)]
    ends = [end("t", 0, 100), end("t", 0, 130, 2), end("t", 0, 230, 4)]
    columns = "CAST(sampled_at AS VARCHAR), committed_offset, end_offset, lag, produced, consumed, hours_to_clear, completeness"
    assert rows("lag_history", columns, offset_commits=commits, log_ends=ends) == [
        ("2026-01-01 00:00:00+00", 10, 100, 90, None, None, None, 1.0),
        ("2026-01-01 02:00:00+00", 60, 130, 70, 30, 50, 7.0, 1.0),
        ("2026-01-01 04:00:00+00", 65, 230, 165, 100, 5, None, 1.0),
    ]


@pytest.mark.parametrize(
    ("version", "stream_time_ms"), [(1, 1_795_231_840_584), (2, 1_795_231_840_584), (2, 0), (1, 1_262_304_000_000), (2, -1), (1, -1)]
)
def test_kafka_streams_writes_its_stream_time_into_the_metadata(version: int, stream_time_ms: int) -> None:
    metadata = base64.b64encode(struct.pack(">bq", version, stream_time_ms)).decode()
    offsets = [offset("app", "t", 0, 5, metadata=metadata)]
    expected = None if stream_time_ms == -1 else stream_time_ms
    assert rows("commit_notes", "kind, stream_time_ms, encoding", committed_offsets=offsets) == [("kafka_streams", expected, None)]


def test_notes_of_other_clients_are_told_apart_by_their_form() -> None:
    done = base64.b64encode(b"o" + struct.pack(">i", 16) + b"\x05\x01").decode()
    notes = ["", "begun in run 2", done, "loadtest", "beside"]
    offsets = [offset("g", "t", partition, 5, metadata=note) for partition, note in enumerate(notes)]
    assert rows("commit_notes", "partition, kind, encoding", committed_offsets=offsets) == [
        (1, "text", None),
        (2, "parallel_consumer", "bit set, version 2"),
        (3, "text", None),
        (4, "text", None),
    ]


class TestShareLag:
    columns = "partition, start_offset, end_offset, lag, remark, acknowledged, archived, available_again, untouched_or_in_flight"

    def test_lag_is_what_lies_between_start_and_high_watermark_and_needs_delivery(self) -> None:
        offsets = [
            share_offset(0, start_offset=10, delivery_complete_count=3),
            share_offset(1, start_offset=None, delivery_complete_count=0),
            share_offset(2, start_offset=5, delivery_complete_count=None),
            share_offset(3, start_offset=5, delivery_complete_count=0),
            share_offset(4, start_offset=40, delivery_complete_count=1),
        ]
        batches = [share_batch(0, 10, 11, 2), share_batch(0, 12, 12, 4), share_batch(0, 15, 16, 0)]
        ends = [end("t", partition, 30, source="checkpoint") for partition in (0, 1, 2, 4)]
        assert rows("share_lag", self.columns, share_offsets=offsets, share_batches=batches, log_ends=ends) == [
            (0, 10, 30, 17, None, 2, 1, 2, 15),
            (1, None, 30, None, "nothing_read", 0, 0, 0, None),
            (2, 5, 30, None, "no_count", 0, 0, 0, 25),
            (3, 5, None, None, "no_sample", 0, 0, 0, None),
            (4, 40, 30, 0, None, 0, 0, 0, 0),
        ]

    def test_log_end_of_a_topic_made_anew_says_nothing_of_the_deleted_one(self) -> None:
        old, new = share_offset(0, start_offset=1, delivery_complete_count=0), "Uz_G2kQIRWC33YW4WQUDVw"
        for known in ([topic("t", new)], [topic("t", new), topic("t", SHARE_TOPIC_ID, is_deleted=True)]):
            found = rows("share_lag", "lag, remark, end_offset", share_offsets=[old], log_ends=[end("t", 0, 9)], topics=known)
            assert found == [(None, "topic_gone", None)]
        not_all = [topic("u", new, all_topics_known=False)]
        assert rows("share_lag", "lag, remark", share_offsets=[old], log_ends=[end("t", 0, 9)], topics=not_all) == [(8, None)]


class TestLagByGroup:
    def test_lag_of_groups_of_every_type_counts_offsets_beyond_the_end_and_partitions_without_an_end(self) -> None:
        offsets = [offset("g", "t", 0, 5), offset("g", "t", 1, 90, commit_timestamp_ms=AS_OF_MS - HOUR_MS)]
        offsets += [offset("g", "u", 0, 1), offset("none", "u", 0, 1)]
        counts = ((2, 10, 3), (3, 5, None))
        shares = [share_offset(number, start_offset=start, delivery_complete_count=count) for number, start, count in counts]
        ends = [end("t", partition, 30) for partition in (0, 1, 2, 3)]
        columns = "group_id, lag, max_lag, partitions, partitions_with_lag, partitions_without_end, beyond_end"
        assert rows("lag_by_group", columns, committed_offsets=offsets, share_offsets=shares, log_ends=ends) == [
            ("g", 25, 25, 3, 2, 1, 1),
            ("none", None, None, 1, 0, 1, 0),
            ("share", 17, 17, 2, 1, 1, 0),
        ]


class TestOrphanTopics:
    def state(self, *topics: Mapping[str, Any], **fields: Any) -> Sequence[tuple[Any, ...]]:
        offsets = [offset("g", "t", 0, 5, **fields)]
        return rows("orphan_topics", "topic_state", groups=[group("g")], committed_offsets=offsets, topics=topics)

    def test_state_of_the_topic_is_what_the_metadata_tells(self) -> None:
        now, old = SHARE_TOPIC_ID, "MkTRaXlSRfWvFLT1M3hZWA"
        assert self.state() == [("not known",)]
        assert self.state(topic("u", now, all_topics_known=False)) == [("not known",)]
        assert self.state(topic("u", now)) == [("deleted",)]
        assert self.state(topic("t", old, is_deleted=True, all_topics_known=False)) == [("deleted",)]
        assert self.state(topic("t", now)) == [("exists",)]
        assert self.state(topic("t", now), topic_id=now) == [("exists",)]
        assert self.state(topic("t", now), topic_id=old) == [("recreated",)]
        assert self.state(topic("t", now, created_at_ms=AS_OF_MS + 1)) == [("recreated",)]
        assert self.state(topic("t", now, created_at_ms=AS_OF_MS - 1)) == [("exists",)]
        gone_since = topic("t", old, is_deleted=True, deleted_at_ms=AS_OF_MS + 5)
        assert self.state(topic("t", now), gone_since) == [("recreated",)]


class TestMayRead:
    columns = "principal, host, permission, resource_name, pattern_type, is_overruled"

    def test_rules_of_the_group_its_prefix_and_all_groups_count_and_deny_wins(self) -> None:
        acls = [
            acl("User:a", "app-1"),
            acl("User:b", "app-", pattern_type="PREFIXED", operation="ALL"),
            acl("User:c", "*", host="10.0.0.1"),
            acl("User:c", "app-1", permission="DENY"),
            acl("User:b", "app-1", permission="DENY", host="10.0.0.2"),
            acl("User:x", "app-", operation="READ"),
            acl("User:x", "app-2"),
            acl("User:x", "app-1", operation="DESCRIBE"),
            acl("User:x", "app-1", resource_type="TOPIC"),
        ]
        assert rows("may_read", self.columns, groups=[group("app-1")], acls=acls) == [
            ("User:a", "*", "ALLOW", "app-1", "LITERAL", False),
            ("User:b", "*", "ALLOW", "app-", "PREFIXED", False),
            ("User:b", "10.0.0.2", "DENY", "app-1", "LITERAL", None),
            ("User:c", "*", "DENY", "app-1", "LITERAL", None),
            ("User:c", "10.0.0.1", "ALLOW", "*", "LITERAL", True),
        ]
