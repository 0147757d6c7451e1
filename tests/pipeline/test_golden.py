"""Whole nights over real logs of many releases: the tables say what real Kafka answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import golden_answers as answers
from tests.conftest import GOLDEN
from tests.golden_answers import Corpus, differences
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

CORPORA = sorted(
    str(facts.parent.relative_to(GOLDEN)) for facts in GOLDEN.rglob("corpus.json") if (facts.parent / "logs").is_dir()
)
WITH_EXPIRATIONS = [name for name in CORPORA if (GOLDEN / name / "oracle" / "expired_at.json").exists()]

Made = tuple[Corpus, Path]


@pytest.fixture(scope="module")
def nights(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A corpus by its name, and the warehouse of its one night."""

    @cache
    def night(name: str) -> Made:
        corpus, warehouse = Corpus(name), tmp_path_factory.mktemp("golden") / "warehouse"
        run(local, warehouse, corpus.logs, cluster=name, as_of_ms=corpus.read_at_ms, semantics=corpus.semantics)
        return corpus, warehouse

    return night


@pytest.fixture(params=CORPORA, scope="module")
def made(request: pytest.FixtureRequest, nights: Callable[[str], Made]) -> Made:
    return nights(request.param)


def answered(corpus: Corpus, file: str) -> None:
    if corpus.answer(file) is None:
        pytest.skip(f"no broker could answer {file}")


@pytest.mark.parametrize("table", ["offset_commits", "group_records", "transactions"])
def test_records_are_decoded_as_kafkas_classes_do(made: Made, table: str) -> None:
    corpus, warehouse = made
    assert differences(answers.expected_records(corpus)[table], answers.found_records(warehouse, table)) == []


def test_every_record_is_accounted_for(made: Made) -> None:
    corpus, warehouse = made
    partitions = rows_of(warehouse, "offsets_partitions")
    expected = Counter(record["partition"] for record in corpus.records)
    assert {row["offsets_partition"]: row["decoded"] for row in partitions if row["records"]} == expected
    assert [row for row in partitions if row["quarantined"]] == []
    assert rows_of(warehouse, "quarantined_records") == []


def test_committed_offsets_are_those_the_broker_fetches(made: Made) -> None:
    corpus, warehouse = made
    answered(corpus, "offsets.json")
    for table, orphans in (("committed_offsets", False), ("orphan_offsets", True)):
        found = answers.of_offsets(rows_of(warehouse, table))
        assert differences(answers.expected_offsets(corpus, orphans=orphans), found) == []


def test_pending_offsets_are_those_that_hold_up_a_stable_fetch(made: Made) -> None:
    corpus, warehouse = made
    answered(corpus, "pending.json")
    rows, told = rows_of(warehouse, "pending_offsets"), corpus.answer("pending.json")
    assert {(row["group_id"], row["topic"], row["partition"]) for row in rows} == {
        (row["group"], row["topic"], row["partition"]) for row in told
    }
    by_producer = {
        (row["group"], row["topic"], row["partition"], row["producer_id"]): {"committed_offset": row.get("offset", answers.NOT_TOLD)}
        for row in told
        if row.get("producer_id") is not None
    }
    if by_producer:
        found = {(row["group_id"], row["topic"], row["partition"], row["producer_id"]): row for row in rows}
        assert differences(by_producer, found) == []


def test_groups_are_those_the_broker_describes(made: Made) -> None:
    corpus, warehouse = made
    answered(corpus, "groups.json")
    assert differences(answers.expected_groups(corpus), answers.found_groups(corpus, warehouse)) == []


def test_members_are_those_the_broker_describes(made: Made) -> None:
    corpus, warehouse = made
    answered(corpus, "groups.json")
    assert differences(answers.expected_members(corpus), answers.found_members(corpus, warehouse)) == []


@pytest.mark.parametrize("holding", answers.HOLDINGS)
def test_members_hold_what_the_broker_says(made: Made, holding: str) -> None:
    corpus, warehouse = made
    answered(corpus, "groups.json")
    expected, found = answers.expected_holdings(corpus, holding), answers.found_holdings(corpus, warehouse, holding)
    assert {member: found.get(member, set()) for member in expected} == expected


def test_topic_ids_are_named_where_the_log_names_them(made: Made) -> None:
    corpus, warehouse = made
    names = answers.topics_named_by_the_log(corpus)
    held = {(row["topic_id"], row["topic"]) for row in rows_of(warehouse, "assignments") if row["topic_id"] in names}
    assert held == {(topic_id, names[topic_id]) for topic_id, _ in held}


def test_what_is_refused_is_what_kafka_refused(made: Made) -> None:
    corpus, warehouse = made
    warned = [row for row in rows_of(warehouse, "warnings") if row["code"].startswith("R-")]
    refused = answers.refused_by_kafka(corpus)
    assert refused <= {(row["offsets_partition"], row["record_offset"]) for row in warned}
    warned = [row for row in warned if (row["offsets_partition"], row["record_offset"]) not in refused]
    assert {(row["offsets_partition"], row["record_offset"]) for row in warned if row["code"] == "R-1.6"} == answers.expected_skips(corpus)
    assert {row["code"] for row in warned} <= {"R-1.6", "R-1.26", "R-1.28", "R-2.2", "R-4.6"}
    thrown_at_the_end = {row["partition"] for row in corpus.answer("refused.json") or [] if "action" not in row}
    assert {row["offsets_partition"] for row in warned if row["code"] == "R-1.28"} == thrown_at_the_end


def expirations() -> list[Any]:
    return [
        pytest.param(name, case, id=f"{name} at {case['now']} keeping {case['retention_ms']}")
        for name in WITH_EXPIRATIONS
        # One broker's cases all, of the other the first few: the coordinator's own tests hold it against every one.
        for case in Corpus(name).answer("expired_at.json")[: None if name == "fuzz-1" else 3]
    ]


@pytest.mark.parametrize(("name", "case"), expirations())
def test_a_cleanup_removes_what_kafkas_own_did(local: LocalSession, tmp_path: Path, name: str, case: dict[str, Any]) -> None:
    corpus = Corpus(name)
    now, retention_ms = case["now"], case["retention_ms"]
    run(local, tmp_path / "w", corpus.logs, as_of_ms=now, retention_ms=retention_ms, semantics=corpus.semantics, with_history=False)
    assert expired(tmp_path / "w") == {(each["group"], each["topic"], each["partition"]) for each in case["expired"]}
    assert removed_groups(tmp_path / "w") == set(case["removed_groups"])
    of_groups_alone = not case.get("tombstones_complete", True)
    told = answers.tombstone_keys(case)
    if of_groups_alone:
        told = Counter({key: count for key, count in told.items() if int(key[:4], 16) not in answers.OFFSET_KEYS})
    assert answers.found_tombstone_keys(tmp_path / "w", of_groups_alone=of_groups_alone) == told
    expirations_follow_from_their_moment(tmp_path / "w", now)


def test_a_cleanup_removes_what_a_live_broker_did(local: LocalSession, tmp_path: Path) -> None:
    """Logs and answers from before its cleanup, and from after it."""
    before, after = Corpus("expiry"), Corpus("expiry/expired")
    cleaned_at_ms = max(moment for moments in after.facts["clean_up_ran_at_ms"].values() for moment in moments)
    run(local, tmp_path / "w", before.logs, as_of_ms=cleaned_at_ms, retention_ms=60_000, with_history=False)
    left = answers.expected_offsets(after, orphans=False)
    assert expired(tmp_path / "w") == answers.expected_offsets(before, orphans=False).keys() - left.keys()
    assert removed_groups(tmp_path / "w") == answers.expected_groups(before).keys() - answers.expected_groups(after).keys()
    ends = before.facts["log_end_offsets_before"]
    written = Counter((r["partition"], r["key_hex"]) for r in after.records if r["offset"] >= ends[str(r["partition"])])
    assert Counter((row["offsets_partition"], row["key"].hex()) for row in rows_of(tmp_path / "w", "tombstones")) == written
    expirations_follow_from_their_moment(tmp_path / "w", cleaned_at_ms)


def expired(warehouse: Path) -> set[Any]:
    return {(row["group_id"], row["topic"], row["partition"]) for row in rows_of(warehouse, "offset_expirations") if row["expired"]}


def removed_groups(warehouse: Path) -> set[str]:
    return {row["group_id"] for row in rows_of(warehouse, "group_expirations") if row["removed"]}


def expirations_follow_from_their_moment(warehouse: Path, now_ms: int) -> None:
    """One row for each committed offset, expired exactly from expires_at on."""
    rows = answers.of_offsets(rows_of(warehouse, "offset_expirations"))
    assert rows.keys() == answers.of_offsets(rows_of(warehouse, "committed_offsets")).keys()
    late = {place: row for place, row in rows.items() if row["expired"] != (row["expires_at"] is not None and row["expires_at"] <= now_ms)}
    assert late == {}
