"""Views: the SQL gives what it says, in DuckDB and in Spark."""

from __future__ import annotations

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.warehouse import TABLES, open_warehouse
from groupcoord_spark.warehouse.reasons import GROUP_STAYS_BECAUSE, OFFSET_STAYS_BECAUSE
from groupcoord_spark.warehouse.views import VIEWS, register
from tests.examples import examples
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, few_tables, few_views, marker, night

SOME_OF_EACH_KIND = ("groups", "offset_commits", "transactions", "runs", "log_ends")
"""Tables of the state, of history, of runs and of each run: Spark reads the log of each, at a version for each cluster."""

STEP = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from([None, 1, 2])),
    st.tuples(st.sampled_from(["committed", "aborted"]), st.sampled_from([1, 2])),
)


def resolved(commits, markers):
    """Return the view's rows in DuckDB: record offset -> result and offset of the marker."""
    connection = duckdb.connect()
    connection.register("offset_commits", with_cluster("offset_commits", commits))
    connection.register("transactions", with_cluster("transactions", markers))
    query = f"SELECT offsets_partition, record_offset, transaction_result, marker_offset FROM ({VIEWS['offset_commits_resolved']})"
    return {(partition, record): (result, end) for partition, record, result, end in connection.execute(query).fetchall()}


def with_cluster(table, rows):
    return TABLES[table].from_rows([{"cluster": "prod", **row} for row in rows]) if rows else TABLES[table].empty()


def test_the_first_marker_of_the_producer_after_the_record_counts():
    commits = [commit(1), commit(2, producer_id=7), commit(4, producer_id=7), commit(6, producer_id=7), commit(7, producer_id=9)]
    markers = [marker(3, 8, "aborted"), marker(5, 7, "committed"), marker(8, 7, "aborted"), marker(9, 7, "committed")]
    assert resolved(commits, markers) == {
        (0, 1): (None, None),
        (0, 2): ("committed", 5),
        (0, 4): ("committed", 5),
        (0, 6): ("aborted", 8),
        (0, 7): ("open", None),
    }


def test_markers_of_another_partition_or_incarnation_do_not_count():
    commits = [commit(1, producer_id=7), commit(1, producer_id=7, offsets_partition=1)]
    markers = [marker(2, 7, "committed", offsets_partition=1), marker(2, 7, "aborted", incarnation=1)]
    assert resolved(commits, markers) == {(0, 1): ("open", None), (1, 1): ("committed", 2)}


@examples(60)
@given(st.lists(STEP, max_size=14))
def test_view_is_the_same_as_looking_forward_record_by_record(steps):
    commits = [commit(n, producer_id=producer) for n, (kind, producer) in enumerate(steps) if kind == "commit"]
    markers = [marker(n, producer, kind) for n, (kind, producer) in enumerate(steps) if kind != "commit"]
    expected = {}
    for row in commits:
        after = [m for m in markers if m["producer_id"] == row["producer_id"] and m["record_offset"] > row["record_offset"]]
        plain = row["producer_id"] is None
        expected[0, row["record_offset"]] = (
            (None, None) if plain else (after[0]["result"], after[0]["record_offset"]) if after else ("open", None)
        )
    assert resolved(commits, markers) == expected


def expiring(offsets, groups):
    """Return the view's rows in DuckDB, by group, topic and day."""
    connection = duckdb.connect()
    connection.register("offset_expirations", with_cluster("offset_expirations", offsets))
    connection.register("group_expirations", with_cluster("group_expirations", groups))
    columns = "group_id, topic, CAST(day AS VARCHAR), what, offsets, never_because"
    return connection.execute(f"SELECT {columns} FROM ({VIEWS['expiring']}) ORDER BY 1, 2 NULLS LAST, 3").fetchall()


TRAPS = ("inherits_empty_time", "topic_is_unsubscribed", "is_simple_group", "has_explicit_expiry", "may_come_back", "retention_changed")


def expiration(group_id, topic, partition, expires_at_ms, blocked_by=None):
    """Return a row of offset_expirations as of AS_OF_MS."""
    is_due = expires_at_ms is not None and expires_at_ms <= AS_OF_MS
    place = {"group_id": group_id, "topic": topic, "partition": partition, "as_of_ms": AS_OF_MS, "retention_ms": 7 * DAY_MS}
    told = {"expires_at_ms": expires_at_ms, "expired": is_due, "rule": "X-B1", "blocked_by": blocked_by}
    return {**place, **told, **dict.fromkeys(TRAPS, False)}


def removal(group_id, removed_at_ms, blocked_by=None, rule="X-G2"):
    is_due = removed_at_ms is not None and removed_at_ms <= AS_OF_MS
    told = {"removed": is_due, "removed_at_ms": removed_at_ms, "rule": rule, "blocked_by": blocked_by, "tombstone_count": 0}
    return {"group_id": group_id, "as_of_ms": AS_OF_MS, **told}


def test_expiring_tells_by_day_group_and_topic_what_goes_and_why_the_rest_stays():
    offsets = [
        expiration("a", "t", 0, AS_OF_MS - 3 * DAY_MS),
        expiration("a", "t", 1, -(2**62)),
        expiration("a", "t", 2, AS_OF_MS + DAY_MS),
        expiration("a", "u", 0, None, "subscribed"),
        expiration("b", "t", 0, 2**62),
    ]
    groups = [removal("a", None, "members"), removal("b", 2**62, "offsets"), removal("c", AS_OF_MS), removal("d", None, rule=None)]
    assert expiring(offsets, groups) == [
        ("a", "t", "2026-01-01", "offsets", 2, None),
        ("a", "t", "2026-01-02", "offsets", 1, None),
        ("a", "u", None, "offsets", 1, "a member subscribes to the topic"),
        ("a", None, None, "group", None, "it has members"),
        ("b", "t", None, "offsets", 1, "its time is so far off that the retention after it is beyond all clocks"),
        ("b", None, None, "group", None, "it has offsets that never expire in their present state"),
        ("c", None, "2026-01-01", "group", None, None),
        ("d", None, None, "group", None, "brokers before 0.10.1 remove no group in a cleanup"),
    ]


def test_every_word_of_blocked_by_has_its_sentence():
    for table, sentences in (("offset_expirations", OFFSET_STAYS_BECAUSE), ("group_expirations", GROUP_STAYS_BECAUSE)):
        assert list(sentences) == list(TABLES[table].by_name["blocked_by"].words)


@few_tables(SOME_OF_EACH_KIND)
@few_views(["offset_commits_resolved"])
def test_spark_sees_one_night_of_each_table_and_view(spark_with_delta, tmp_path):
    cluster = "it's a\\b %"
    strange = commit(3, commit_timestamp_ms=2**62)
    first = night(tmp_path, "prod", {"offset_commits": [commit(1, producer_id=7), strange]}, as_of_ms=AS_OF_MS)
    night(tmp_path, "prod", {"transactions": [marker(4, 7, "committed")]}, as_of_ms=AS_OF_MS + DAY_MS)
    night(tmp_path, "prod", {"transactions": [marker(9, 7, "aborted")]}, as_of_ms=AS_OF_MS + 2 * DAY_MS)
    other = night(tmp_path, cluster, {"offset_commits": [commit(100)]})
    opened = open_warehouse(str(tmp_path))

    assert register(spark_with_delta, opened, at_ms=AS_OF_MS + DAY_MS) == [*SOME_OF_EACH_KIND, "offset_commits_resolved"]
    resolved = "SELECT cluster, record_offset, transaction_result FROM offset_commits_resolved ORDER BY 1, 2"
    assert spark_with_delta.sql(resolved).collect() == [(cluster, 100, None), ("prod", 1, "committed"), ("prod", 3, None)]
    out_of_range = (
        "SELECT record_offset, CAST(commit_timestamp AS STRING), timestamps_out_of_range[0].milliseconds"
        " FROM offset_commits WHERE cluster = 'prod' ORDER BY 1"
    )
    assert spark_with_delta.sql(out_of_range).collect() == [(1, None, None), (3, None, 2**62)]

    table = opened.location.table_uri("offset_commits")
    history = spark_with_delta.sql(f"DESCRIBE HISTORY delta.`{table}`").select("userMetadata").collect()
    # Between the two are the commits of the runs that added no row.
    assert [history[0].userMetadata, history[3].userMetadata] == [other.run_id, first.run_id]
    whole = spark_with_delta.read.format("delta").load(table)
    files_opened = {where: len(whole.where(where).inputFiles()) for where in ("true", "record_offset > 90", "group_id = 'nobody'")}
    assert files_opened == {"true": 2, "record_offset > 90": 1, "group_id = 'nobody'": 0}
    assert whole.schema["group_id"].metadata["comment"] == "The group."


def test_rebalances_are_counted_by_day_group_and_cause_and_assignments_only_for_what_they_moved():
    def row(record_offset, at_ms, **fields):
        place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "record_timestamp_ms": AS_OF_MS + at_ms}
        kind = {"group_id": "g", "group_type": "consumer", "kind": "group_epoch", "to_generation": record_offset, "member_count": 1}
        return {**place, **kind, "cause": "member_joined", "evidence": "", **fields}

    rows = [
        row(1, 0, joined_count=1, left_count=0),
        row(2, 0, kind="assignment", joined_count=0, left_count=0, partitions_moved=3, since_previous_ms=1),
        row(3, 900, joined_count=0, left_count=2, cause="member_gone", since_previous_ms=900),
        row(4, DAY_MS, cause="unknown"),
        row(5, 0, group_id="h", kind="generation", partitions_moved=1, cause="follow_up"),
    ]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("rebalances", with_cluster("rebalances", rows))
    counts = "rebalances, members_joined, members_left, partitions_moved, by_joining, by_leaving, shortest_ms, unknown"
    query = f"SELECT group_id, CAST(day AS VARCHAR), {counts} FROM ({VIEWS['rebalance_rate']}) ORDER BY 1, 2"
    assert connection.execute(query).fetchall() == [
        ("g", "2026-01-01", 2, 1, 2, 3, 1, 1, 900, 0),
        ("g", "2026-01-02", 1, 0, 0, 0, 0, 0, None, 1),
        ("h", "2026-01-01", 1, 0, 0, 1, 0, 0, None, 0),
    ]
