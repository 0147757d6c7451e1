"""The view tombstone_causes and `groupcoord timeline` against what really happened on a broker whose every request is known."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from groupcoord_spark.answers import group_history as histories
from groupcoord_spark.answers import why as stories
from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.warehouse import TABLES, open_warehouse, read
from groupcoord_spark.warehouse.view_texts import VIEWS
from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN

VANISHED = GOLDEN / "vanished"

CAUSES = {
    "expired_simple": "expired",
    "expired_empty_group": "expired",
    "expired_unsubscribed": "expired",
    "expired_explicit": "expired",
    "offset_delete": "offsets_deleted",
    "group_delete": "group_deleted",
    "topic_delete": "topic_deleted",
    "superseded_by_conversion": "converted",
    "aborted_transaction": "transaction_aborted",
}

AT_ONCE = ("van-live-classic", "van-live-consumer")
"""Groups whose offsets of one topic two requests deleted within 200 ms, as if the topic had been deleted."""


def in_duckdb(warehouse: Path, cluster: str) -> duckdb.DuckDBPyConnection:
    opened, connection = open_warehouse(str(warehouse)), duckdb.connect()
    for table in TABLES:
        connection.register(table, opened.runs(cluster) if table == "runs" else opened.read(table, cluster=cluster))
    for view, query in VIEWS.items():
        connection.execute(f"CREATE VIEW {view} AS {query}")
    return connection


@pytest.fixture(scope="module")
def warehouse(vanished_warehouse: Path) -> Path:
    return vanished_warehouse


@pytest.fixture(scope="module", autouse=True)
def everything_is_read_once() -> Iterator[None]:
    """Provide the commands share the open warehouse and the history of a group."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "open_warehouse", cache(open_warehouse))
        patch.setattr(histories, "group_history", cache(histories.group_history))
        patch.setattr(stories, "group_history", histories.group_history)
        yield


@pytest.fixture(scope="module")
def vanished(warehouse: Path) -> duckdb.DuckDBPyConnection:
    return in_duckdb(warehouse, "sample")


def causes() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((VANISHED / "oracle" / "causes.json").read_text(encoding="utf-8"))
    return entries


def told() -> dict[tuple[int, int], dict[str, Any]]:
    """Offsets partition and record offset of each tombstone of an offset or a group, and what the corpus has of it."""
    return {
        (record["partition"], record["offset"]): each
        for each in causes()
        for record in each["records"]
        if "tombstone" in record["what"] and "member" not in record["what"]
    }


def test_every_tombstone_has_the_cause_it_really_had(vanished: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT offsets_partition, record_offset, topic, cause FROM tombstone_causes"
    found = {(partition, record): (topic, cause) for partition, record, topic, cause in vanished.execute(query).fetchall()}
    truth = told()
    assert found.keys() == truth.keys()
    wrong: Counter[tuple[str, str]] = Counter()
    for place, (topic, cause) in found.items():
        # A group whose last offset went in another way is removed by the next cleanup: that tombstone is the cleanup's own.
        if truth[place]["group"] in AT_ONCE and topic == "clicks":
            continue
        real = "expired" if topic is None and "the clean-up" in truth[place]["evidence"] else CAUSES[truth[place]["cause"]]
        wrong[real, cause] += cause != real
    assert +wrong == Counter()


def test_evidence_is_beside_the_cause(vanished: duckdb.DuckDBPyConnection) -> None:
    columns = "group_id, cause, certainty, value_offset, due_at <= record_timestamp, group_removed, groups_at_once"
    query = f"SELECT {columns} FROM tombstone_causes WHERE topic = 'visits' OR group_id = 'van-groupdel-simple' AND partition = 0"
    assert sorted(vanished.execute(query).fetchall())[:2] == [
        ("van-groupdel-simple", "group_deleted", "certain", 39, False, True, None),
        ("van-live-consumer", "topic_deleted", "likely", 35, False, False, 3),
    ]


def test_what_is_there_expires_when_it_really_did(vanished: duckdb.DuckDBPyConnection) -> None:
    """Offsets that the cleanup took were due at its time and not more than one interval (5 s) before."""
    due = "WHERE cause = 'expired' AND topic IS NOT NULL"
    query = f"SELECT MIN(record_timestamp - due_at), MAX(record_timestamp - due_at) FROM tombstone_causes {due}"
    least, most = vanished.execute(query).fetchall()[0]
    assert 0 <= least.total_seconds() <= most.total_seconds() <= 5.1


def test_causes_of_one_group_are_those_of_the_view(warehouse: Path, vanished: duckdb.DuckDBPyConnection) -> None:
    """`timeline` and `why` read the same rows as the view."""
    query = "SELECT offsets_partition, record_offset, cause, groups_at_once FROM tombstone_causes"
    of_view = {(partition, at): tuple(rest) for partition, at, *rest in vanished.execute(query).fetchall()}
    of_groups: dict[tuple[int, int], tuple[Any, ...]] = {}
    for group_id in {each["group"] for each in causes()}:
        question = histories.Question("sample", group_id)
        for place, *_, ends, removals in histories.group_history(read.open_warehouse(str(warehouse)), question, JAVA):
            at = place.offsets_partition
            of_groups |= {(at, end.record_offset): (end.cause, None) for end in ends}
            of_groups |= {(at, offset): (one.cause, one.groups_at_once) for offset, one in removals.items()}
    assert of_groups == of_view


def events_of(warehouse: Path, group_id: str) -> list[dict[str, Any]]:
    result = groupcoord("timeline", "--warehouse", str(warehouse), "--group", group_id, "--output", "json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def happened(entry: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return an entry of causes.json as what ``shown`` makes of the event that must be there; None: nothing happened."""
    group, where, cause, at_ms = entry["group"], (entry["topic"], entry["partition"]), entry["cause"], entry["at_ms"]
    if entry["topic"] is None and "the clean-up" in entry["evidence"]:
        return group, "group_removed", "expired", at_ms
    if cause in ("aborted_transaction", "open_transaction"):
        return group, "transaction", cause.split("_")[0], where
    if cause == "rewound":
        before, after = re.search(r"(\d+) -> (\d+)", entry["evidence"]).groups()  # type: ignore[union-attr]
        return group, "rewind", where, int(before), int(after), at_ms
    if cause == "superseded_by_conversion":
        return group, "rebalance", "group_converted", at_ms
    if cause == "group_left_empty":
        return group, "rebalance", "nobody is left", at_ms
    if cause not in CAUSES:
        return None
    if entry["topic"] is None:
        return group, "group_removed", CAUSES[cause], at_ms
    name = "topic_deleted" if group in AT_ONCE and cause == "offset_delete" else CAUSES[cause]
    return group, "offsets_removed", name, where, at_ms


def shown(group: str, event: dict[str, Any]) -> list[tuple[Any, ...]]:
    kind, facts = event["event"], event["facts"]
    at_ms = round(datetime.fromisoformat(event["time"]).timestamp() * 1000)
    if kind == "transaction":
        return [(group, kind, facts["result"], (one["topic"], one["partition"])) for one in facts["partitions"]]
    if kind == "rewind":
        return [(group, kind, (facts["topic"], facts["partition"]), facts["from_committed_offset"], facts["to_committed_offset"], at_ms)]
    if kind == "offsets_removed":
        return [(group, kind, facts["cause"], (one["topic"], one["partition"]), at_ms) for one in facts["partitions"]]
    if kind == "group_removed":
        return [(group, kind, facts["cause"], at_ms)]
    if kind == "rebalance":
        converted = [(group, kind, "group_converted", at_ms)] if facts["cause"] == "group_converted" else []
        return converted + ([(group, kind, "nobody is left", at_ms)] if facts["member_count"] == 0 else [])
    return []


def test_the_timeline_tells_what_really_happened_to_every_offset_and_group(warehouse: Path) -> None:
    entries = causes()
    groups = sorted({each["group"] for each in entries})
    events = {found for group in groups for event in events_of(warehouse, group) for found in shown(group, event)}
    truth = {happening for each in entries if (happening := happened(each)) is not None}
    assert truth <= events
    # Groups that became Empty and vanished later are in causes.json with the later cause alone, conversions with the old group's tombstone.
    assert {event for event in events - truth if event[1] != "rebalance"} == set()


def test_commits_of_aborted_and_open_transactions_are_in_no_stretch(warehouse: Path) -> None:
    """Of a commit that was aborted, and of two that are open, `timeline` said "2 commits, 2 of them in transactions"."""
    for group, result, said in [
        ("van-aborted-only", "aborted", "aborted after 4 ms"),
        ("van-tx-open-only", "open", "still open since 2026-11-21T"),
    ]:
        events = events_of(warehouse, group)
        (transaction,) = [event for event in events if event["event"] == "transaction"]
        assert transaction["facts"]["result"] == result and said in transaction["what"]
        assert sum(event["facts"]["commits"] for event in events if event["event"] == "commits") == (
            1 if group == "van-aborted-only" else 0
        )


def why(warehouse: Path, *words: str) -> list[dict[str, Any]]:
    result = groupcoord("why", "--warehouse", str(warehouse), *words, "--output", "json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def why_of_groups(warehouse: Path) -> dict[str, list[dict[str, Any]]]:
    """Provide what ``why`` says of each group of the answer sheet."""
    return {group: why(warehouse, "--group", group) for group in sorted({entry["group"] for entry in causes()})}


def findings(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """Group, topic, partition, cause and records of each row that names a cause; skips and copies are not in the answer sheet."""
    return {
        (
            *(row["group"], row["topic"], row["partition"], row["cause"]),
            frozenset((record["offsets_partition"], record["record_offset"]) for record in row["records"]),
        )
        for row in rows
        if row["cause"] not in (None, "skipped", "moved")
    }


def _word(entry: dict[str, Any]) -> str:
    """Return the word of `why` for a cause of the answer sheet."""
    cause: str = entry["cause"]
    if entry["group"] in AT_ONCE and cause == "offset_delete" and entry["topic"] == "clicks":
        return "topic_deleted"
    return CAUSES.get(cause, cause)


def test_why_names_every_cause_and_every_record_of_the_answer_sheet(why_of_groups: dict[str, list[dict[str, Any]]]) -> None:
    entries = causes()
    truth = {
        (
            *(each["group"], each["topic"], each["partition"], _word(each)),
            frozenset((record["partition"], record["offset"]) for record in each["records"]),
        )
        for each in entries
    }
    found = {finding for rows in why_of_groups.values() for finding in findings(rows)}
    # The tombstone of a consumer group's last member is in the answer sheet; `why` names the group record of the same write.
    left_empty = {finding for finding in found if finding[3] == "group_left_empty"}
    assert {finding for finding in truth - found if finding[3] != "group_left_empty"} == set()
    assert {finding[:4] for finding in truth} <= {finding[:4] for finding in found}
    assert found - truth - left_empty == set()


def test_why_of_one_partition_is_its_part_of_the_story(warehouse: Path) -> None:
    """Two groups of each cause, where there are two, and a partition of each; ``why_of_groups`` has all groups."""
    of_cause: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in causes():
        if entry["topic"] is not None:
            of_cause.setdefault(_word(entry), {})[entry["group"]] = entry
    for cause, group, entry in ((cause, *item) for cause, groups in of_cause.items() for item in list(groups.items())[:2]):
        place = entry["topic"], entry["partition"]
        rows = why(warehouse, "--group", group, "--topic", place[0], "--partition", str(place[1]))
        of_place = findings(rows)
        assert (group, *place, cause) in {finding[:4] for finding in of_place}
        assert {finding[1:3] for finding in of_place} <= {place, (None, None)}
        assert rows[-1]["event"] == "conclusion" and rows[-1]["what"].endswith(".")
