"""Whole runs over real logs of many releases: the tables have real Kafka's answers."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from groupcoord_spark.answers.expiration import ExpirationJob
from groupcoord_spark.answers.what_if import cleanups, read_state_tables
from groupcoord_spark.warehouse import Warehouse, open_warehouse
from tests import golden_answers as answers
from tests.conftest import DAY_MS, GOLDEN
from tests.golden_answers import Corpus, RowsOf, differences
from tests.running import plain_rows, rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

pytestmark = pytest.mark.usefixtures("tables_of_a_log")

CORPORA = sorted(
    str(facts.parent.relative_to(GOLDEN)) for facts in GOLDEN.rglob("corpus.json") if (facts.parent / "logs").is_dir()
)


class Made(NamedTuple):
    """A corpus, the rows of each table of its one run, and the warehouse, which stays open from test to test."""

    corpus: Corpus
    rows: RowsOf
    warehouse: Warehouse


@pytest.fixture(params=CORPORA, scope="module")
def made(request: pytest.FixtureRequest, local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Run as of the first cleanup of Kafka's own classes, where they did one."""
    corpus, place = Corpus(request.param), tmp_path_factory.mktemp("golden") / "warehouse"
    cases = corpus.answer("expired_at.json")
    as_of_ms = cases[0]["now"] if cases else corpus.read_at_ms
    run(local, place, corpus.logs, cluster=corpus.name, as_of_ms=as_of_ms, semantics=corpus.semantics)
    warehouse = open_warehouse(str(place))
    return Made(corpus, cache(lambda table: plain_rows(table, warehouse.read(table))), warehouse)


def answered(corpus: Corpus, file: str) -> None:
    if corpus.answer(file) is None:
        pytest.skip(f"no broker could answer {file}")


def test_records_are_decoded_as_kafkas_classes_do(made: Made) -> None:
    for table, expected in answers.expected_records(made.corpus).items():
        assert differences(expected, answers.found_records(made.rows, table)) == [], table


def test_every_record_is_accounted_for(made: Made) -> None:
    corpus, rows, _ = made
    partitions = rows("offsets_partitions")
    expected = Counter(record["partition"] for record in corpus.records)
    assert {row["offsets_partition"]: row["decoded"] for row in partitions if row["records"]} == expected
    assert [row for row in partitions if row["quarantined"]] == []
    assert rows("quarantined_records") == []


def test_committed_offsets_are_those_the_broker_fetches(made: Made) -> None:
    corpus, rows, _ = made
    answered(corpus, "offsets.json")
    for table, orphans in (("committed_offsets", False), ("orphan_offsets", True)):
        found = answers.of_offsets(rows(table))
        assert differences(answers.expected_offsets(corpus, orphans=orphans), found) == []


def test_pending_offsets_are_those_that_hold_up_a_stable_fetch(made: Made) -> None:
    corpus, rows, _ = made
    answered(corpus, "pending.json")
    pending, told = rows("pending_offsets"), corpus.answer("pending.json")
    assert {(row["group_id"], row["topic"], row["partition"]) for row in pending} == {
        (row["group"], row["topic"], row["partition"]) for row in told
    }
    by_producer = {
        (row["group"], row["topic"], row["partition"], row["producer_id"]): {"committed_offset": row.get("offset", answers.NOT_TOLD)}
        for row in told
        if row.get("producer_id") is not None
    }
    if by_producer:
        found = {(row["group_id"], row["topic"], row["partition"], row["producer_id"]): row for row in pending}
        assert differences(by_producer, found) == []


def test_groups_are_those_the_broker_describes(made: Made) -> None:
    corpus, rows, _ = made
    answered(corpus, "groups.json")
    assert differences(answers.expected_groups(corpus), answers.found_groups(corpus, rows)) == []


def test_members_are_those_the_broker_describes(made: Made) -> None:
    corpus, rows, _ = made
    answered(corpus, "groups.json")
    assert differences(answers.expected_members(corpus), answers.found_members(corpus, rows)) == []


def test_members_hold_what_the_broker_says(made: Made) -> None:
    corpus, rows, _ = made
    answered(corpus, "groups.json")
    for holding in answers.HOLDINGS:
        expected, found = answers.expected_holdings(corpus, holding), answers.found_holdings(corpus, rows, holding)
        assert {member: found.get(member, set()) for member in expected} == expected, holding


def test_topic_ids_are_named_where_the_log_names_them(made: Made) -> None:
    corpus, rows, _ = made
    names = answers.topics_named_by_the_log(corpus)
    held = {(row["topic_id"], row["topic"]) for row in rows("assignments") if row["topic_id"] in names}
    assert held == {(topic_id, names[topic_id]) for topic_id, _ in held}


def test_what_is_refused_is_what_kafka_refused(made: Made) -> None:
    corpus, rows, _ = made
    warned = [row for row in rows("warnings") if row["code"].startswith("R-")]
    refused = answers.refused_by_kafka(corpus)
    assert refused <= {(row["offsets_partition"], row["record_offset"]) for row in warned}
    warned = [row for row in warned if (row["offsets_partition"], row["record_offset"]) not in refused]
    assert {(row["offsets_partition"], row["record_offset"]) for row in warned if row["code"] == "R-1.6"} == answers.expected_skips(corpus)
    assert {row["code"] for row in warned} <= {"R-1.6", "R-1.26", "R-1.28", "R-2.2", "R-4.6"}
    thrown_at_the_end = {row["partition"] for row in corpus.answer("refused.json") or [] if "action" not in row}
    assert {row["offsets_partition"] for row in warned if row["code"] == "R-1.28"} == thrown_at_the_end


def test_a_cleanup_removes_what_kafkas_own_did(made: Made) -> None:
    # The run itself is the first cleanup; those at other times and under other settings are made of its tables.
    corpus, rows, warehouse = made
    answered(corpus, "expired_at.json")
    first, *_ = cases = corpus.answer("expired_at.json")
    assert first["retention_ms"] == 7 * DAY_MS
    assert expired(rows) == {(each["group"], each["topic"], each["partition"]) for each in first["expired"]}
    assert removed_groups(rows) == set(first["removed_groups"])
    assert answers.listed(first, (row["key"].hex() for row in rows("tombstones"))) == answers.tombstone_keys(first)
    expirations_follow_from_their_moment(rows, first["now"])
    state = read_state_tables(warehouse, corpus.name)
    for case in cases:
        done = [each.cleanup for _, each in cleanups(state, ExpirationJob(case["now"], case["retention_ms"], corpus.semantics))]
        taken = {offset[:3] for cleanup in done for offset in cleanup.offsets if offset.expired}
        assert taken == {(each["group"], each["topic"], each["partition"]) for each in case["expired"]}
        assert {cleanup.group.group_id for cleanup in done if cleanup.group.removed} == set(case["removed_groups"])
        written = answers.listed(case, (tombstone.key.hex() for cleanup in done for tombstone in cleanup.tombstones))
        assert written == answers.tombstone_keys(case)


def test_a_cleanup_removes_what_a_live_broker_did(local: LocalSession, tmp_path: Path) -> None:
    """Logs and answers from before its cleanup, and from after it."""
    before, after = Corpus("expiry"), Corpus("expiry/expired")
    cleaned_at_ms = max(moment for moments in after.facts["clean_up_ran_at_ms"].values() for moment in moments)
    run(local, tmp_path / "w", before.logs, as_of_ms=cleaned_at_ms, retention_ms=60_000, with_history=False)
    left = answers.expected_offsets(after, orphans=False)
    rows = cache(partial(rows_of, tmp_path / "w"))
    assert expired(rows) == answers.expected_offsets(before, orphans=False).keys() - left.keys()
    assert removed_groups(rows) == answers.expected_groups(before).keys() - answers.expected_groups(after).keys()
    ends = before.facts["log_end_offsets_before"]
    written = Counter((r["partition"], r["key_hex"]) for r in after.records if r["offset"] >= ends[str(r["partition"])])
    assert Counter((row["offsets_partition"], row["key"].hex()) for row in rows("tombstones")) == written
    expirations_follow_from_their_moment(rows, cleaned_at_ms)


def expired(rows: RowsOf) -> set[tuple[str, str, int]]:
    return {(row["group_id"], row["topic"], row["partition"]) for row in rows("offset_expirations") if row["expired"]}


def removed_groups(rows: RowsOf) -> set[str]:
    return {row["group_id"] for row in rows("group_expirations") if row["removed"]}


def expirations_follow_from_their_moment(rows: RowsOf, now_ms: int) -> None:
    """Check that each committed offset has a row, expired exactly from expires_at on."""
    told = answers.of_offsets(rows("offset_expirations"))
    assert told.keys() == answers.of_offsets(rows("committed_offsets")).keys()
    late = {place: row for place, row in told.items() if row["expired"] != (row["expires_at"] is not None and row["expires_at"] <= now_ms)}
    assert late == {}
