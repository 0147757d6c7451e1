"""Real logs of many releases, and the answers real Kafka gave about them.

A field that the broker did not answer is null in an answer (``oracle/meta.json`` says which), and then not compared.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest

from groupcoord_spark.coordinator import Cleanup, PartitionReplay, PartitionState, Semantics, semantics_for
from groupcoord_spark.protocol import ZERO_UUID
from tests.coordinator.records import GOLDEN, recorded

CORPORA = [
    *("classic-modern", "transactions", "compacted", "connect", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "midflight-torn"),
    *("kip848", "kip848-4.2", "convert", "share", "streams", "expiry", "expiry/expired", "fuzz-1", "fuzz-1/scala", "preview-3.7"),
    *("era-0.8.2", "era-0.9", "era-0.10.0", "era-0.11", "era-2.0", "era-2.3", "era-3.9"),
]
RELOADED = [name for name in CORPORA if (GOLDEN / name / "oracle" / "reloaded").exists()]


def semantics_of(name: str) -> Semantics:
    corpus = json.loads((GOLDEN / name / "corpus.json").read_text(encoding="utf-8"))
    return semantics_for(corpus["coordinator"], corpus["broker"])


@cache
def states_of(name: str) -> Mapping[int, PartitionState]:
    states = {}
    for offsets_partition, records in recorded(GOLDEN / name).items():
        replay = PartitionReplay(semantics_of(name))
        for record in records:
            assert record.offset is not None
            record.apply_to(replay, record.offset)
        states[offsets_partition] = replay.finish()
    return states


def answer(name: str, file: str, folder: str = "oracle") -> Any:
    path = GOLDEN / name / folder / file
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def rows_of(name: str, table: str) -> list[Any]:
    return [row for state in states_of(name).values() for row in getattr(state, table)()]


def differences(expected: Mapping[Any, Mapping[str, Any]], found: Mapping[Any, Any]) -> list[Any]:
    """Keys on one side alone, and known fields that differ; rows are named tuples."""
    return [
        *({"missing": key} for key in expected if key not in found),
        *({"extra": key} for key in found if key not in expected),
        *(
            {"key": key, "field": field, "expected": value, "found": getattr(found[key], field)}
            for key, fields in expected.items()
            if key in found
            for field, value in fields.items()
            if value is not None and getattr(found[key], field) != value
        ),
    ]


def place(row: Any) -> tuple[str, str, int]:
    return row.group_id, row.topic, row.partition


def expected_offsets(rows: Iterable[Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    told = {
        "committed_offset": "offset",
        "leader_epoch": "leader_epoch",
        "metadata": "metadata",
        "commit_timestamp_ms": "commit_timestamp",
        "expire_timestamp_ms": "expire_timestamp",
        "topic_id": "topic_id",
        "record_offset": "record_offset",
    }
    return {(row["group"], row["topic"], row["partition"]): {ours: row.get(kafkas) for ours, kafkas in told.items()} for row in rows}


def check_offsets(name: str, folder: str) -> None:
    answered = answer(name, "offsets.json", folder)
    if answered is None:
        pytest.skip("this broker gave no such answer")
    orphans = set((answer(name, "meta.json", folder) or {}).get("groups_without_state", []))
    for table, is_orphan in (("committed_offsets", False), ("orphan_offsets", True)):
        expected = expected_offsets(row for row in answered if (row["group"] in orphans) == is_orphan)
        assert differences(expected, {place(row): row.commit for row in rows_of(name, table)}) == []


def check_pending(name: str, folder: str) -> None:
    answered = answer(name, "pending.json", folder)
    if answered is None:
        pytest.skip("this broker gave no such answer")
    rows = rows_of(name, "pending_offsets")
    assert {place(row) for row in rows} == {(row["group"], row["topic"], row["partition"]) for row in answered}
    by_producer = [row for row in answered if row.get("producer_id") is not None]
    if by_producer:
        told = {
            (row["group"], row["topic"], row["partition"], row["producer_id"]): {"committed_offset": row["offset"]} for row in by_producer
        }
        assert differences(told, {(*place(row), row.commit.producer_id): row.commit for row in rows}) == []


def check_groups(name: str, folder: str) -> None:
    answered = answer(name, "groups.json", folder)
    if answered is None:
        pytest.skip("this broker gave no such answer")
    expected = {
        group["group"]: {
            "group_type": group["type"],
            "state": group["state"],
            "protocol_type": group["protocol_type"] or None,
            "protocol": group["protocol"] or None,
            "generation": group.get("generation"),
            "leader_id": group.get("leader"),
            "assignment_epoch": group.get("assignment_epoch"),
            "member_count": len(group["members"]),
        }
        for group in answered
    }
    found = {row.group_id: row for row in rows_of(name, "groups")}
    if semantics_of(name).group_rule in (None, "X-G0"):  # up to 0.10.0 no group that has offsets only is listed
        found = {group_id: row for group_id, row in found.items() if not row.is_simple}
    assert differences(expected, found) == []


def check_members(name: str, folder: str) -> None:
    answered = answer(name, "groups.json", folder)
    if answered is None:
        pytest.skip("this broker gave no such answer")
    expected = {
        (group["group"], member["member_id"]): {
            "instance_id": member.get("instance_id") or None,
            "client_id": member["client_id"],
            "client_host": member["client_host"],
            "rack_id": member.get("rack_id"),
            "member_epoch": member.get("epoch"),
            "subscribed_topics": None if member.get("subscribed_topics") is None else tuple(sorted(set(member["subscribed_topics"]))),
            "subscribed_topic_regex": member.get("subscribed_regex") or None,
        }
        for group in answered
        for member in group["members"]
    }
    assert differences(expected, {(row.group_id, row.member_id): row for row in rows_of(name, "members")}) == []


def check_assignments(name: str, folder: str) -> None:
    answered = answer(name, "groups.json", folder)
    if answered is None:
        pytest.skip("this broker gave no such answer")
    names = {topic_id: topic for topic, topic_id in (answer(name, "topic_ids.json") or {}).items()}
    rows = [row for state in states_of(name).values() for row in state.assignments(names)]
    types = {group["group"]: group["type"] for group in answered}
    for field, kind in (("assignment", "current"), ("target_assignment", "target")):
        members = [(group["group"], member) for group in answered for member in group["members"]]
        told = {(group_id, member["member_id"]): member[field] for group_id, member in members if member.get(field)}
        expected = {(*owner, topic, number) for owner, holdings in told.items() for topic, numbers in holdings for number in numbers}
        found = set()
        for row in rows:
            kinds = {kind}
            if kind == "current" and types[row.group_id] == "consumer" and semantics_of(name).describes_pending_revocation:
                kinds.add("pending_revocation")
            is_left_out = row.topic_id is not None and row.topic is None and names  # of a topic that is gone
            if row.kind in kinds and row.task_type in (None, "active") and (row.group_id, row.member_id) in told and not is_left_out:
                found.add((row.group_id, row.member_id, row.subtopology or row.topic or row.topic_id, row.partition))
        assert found == expected


CHECKS = {
    "offsets": check_offsets,
    "pending": check_pending,
    "groups": check_groups,
    "members": check_members,
    "assignments": check_assignments,
}


@pytest.mark.parametrize("what", CHECKS)
@pytest.mark.parametrize("name", CORPORA)
def test_state_is_what_the_broker_answered(name: str, what: str) -> None:
    CHECKS[what](name, "oracle")


@pytest.mark.parametrize("what", CHECKS)
@pytest.mark.parametrize("name", RELOADED)
def test_state_is_what_a_broker_answered_that_only_loaded_the_log(name: str, what: str) -> None:
    CHECKS[what](name, "oracle/reloaded")


@pytest.mark.parametrize("name", CORPORA)
def test_nothing_is_refused_in_a_log_that_kafka_loaded(name: str) -> None:
    known = semantics_of(name).known_key_types
    skipped = Counter(
        (offsets_partition, record.offset)
        for offsets_partition, records in recorded(GOLDEN / name).items()
        for record in records
        if record.key is not None and record.control_type is None and int.from_bytes(record.key[:2], "big", signed=True) not in known
    )
    warned = [(p, warning) for p, state in states_of(name).items() for warning in state.warnings()]
    assert Counter((p, warning.record_offset) for p, warning in warned if warning.code == "R-1.6") == skipped
    assert {warning.code for _, warning in warned} <= {"R-1.6", "R-1.26", "R-4.6"}


def _cases() -> list[Any]:
    return [
        pytest.param(name, case, id=f"{name} at {case['now']} keeping {case['retention_ms']}")
        for name in ("fuzz-1", "fuzz-1/scala")
        for case in answer(name, "expired_at.json")
    ]


@pytest.mark.parametrize(("name", "case"), _cases())
def test_cleanup_does_what_kafkas_own_did(name: str, case: dict[str, Any]) -> None:
    cleanup = Cleanup(case["now"], case["retention_ms"], semantics_of(name))
    done = [group for state in states_of(name).values() for group in cleanup.of_partition(state)]
    expired = {place(offset) for group in done for offset in group.offsets if offset.expired}
    assert expired == {(row["group"], row["topic"], row["partition"]) for row in case["expired"]}
    assert {group.group.group_id for group in done if group.group.removed} == set(case["removed_groups"])
    # Where the answer is not complete it lists the tombstones of groups alone.
    is_complete = case.get("tombstones_complete", True)
    written = Counter(tombstone.key.hex() for group in done for tombstone in group.tombstones if is_complete or tombstone.key_type >= 2)
    listed = [row["key_hex"] for row in case["tombstones"]]
    assert written == Counter(key for key in listed if is_complete or int(key[:4], 16) >= 2)


def test_cleanup_of_a_live_broker() -> None:
    """Answers and log from before its cleanup, and what it wrote."""
    after = json.loads((GOLDEN / "expiry" / "expired" / "corpus.json").read_text(encoding="utf-8"))
    moments = [moment for ran in after["clean_up_ran_at_ms"].values() for moment in (ran if isinstance(ran, list) else [ran])]
    cleanup = Cleanup(max(moments), 60_000)
    done = {p: list(cleanup.of_partition(state)) for p, state in states_of("expiry").items()}
    left = {(row["group"], row["topic"], row["partition"]) for row in answer("expiry/expired", "offsets.json")}
    assert {place(offset) for groups in done.values() for group in groups for offset in group.offsets if not offset.expired} == left
    listed = {group["group"] for group in answer("expiry/expired", "groups.json")}
    assert {group.group.group_id for groups in done.values() for group in groups if not group.group.removed} == listed
    ends = json.loads((GOLDEN / "expiry" / "corpus.json").read_text(encoding="utf-8"))["log_end_offsets_before"]
    wrote = Counter(
        (offsets_partition, record.key)
        for offsets_partition, records in recorded(GOLDEN / "expiry" / "expired").items()
        for record in records
        if record.offset is not None and record.offset >= ends.get(str(offsets_partition), 0)
    )
    assert Counter((p, tombstone.key) for p, groups in done.items() for group in groups for tombstone in group.tombstones) == wrote


@pytest.mark.parametrize("name", ["era-0.10.0", "era-2.3"])
def test_cleanup_of_a_live_broker_of_that_release(name: str) -> None:
    facts = json.loads((GOLDEN / name / "corpus.json").read_text(encoding="utf-8"))
    cleanup = Cleanup(facts["cleanup_between_ms"][1], facts["retention_minutes"] * 60_000, semantics_of(name))
    done = {p: list(cleanup.of_partition(state)) for p, state in states_of(name).items()}
    left = {(row["group"], row["topic"], row["partition"]) for row in answer(name, "offsets.json", "expired/oracle")}
    assert {place(offset) for groups in done.values() for group in groups for offset in group.offsets if not offset.expired} == left
    listed, still_listed = ({group["group"] for group in answer(name, "groups.json", of)} for of in ("oracle", "expired/oracle"))
    assert {group.group.group_id for groups in done.values() for group in groups if group.group.removed} == listed - still_listed
    wrote = Counter(
        (offsets_partition, record.key)
        for offsets_partition, records in recorded(GOLDEN / name / "expired").items()
        for record in records
        if record.offset is not None and record.offset >= facts["log_end_offsets_before"].get(str(offsets_partition), 0)
    )
    assert Counter((p, tombstone.key) for p, groups in done.items() for group in groups for tombstone in group.tombstones) == wrote


def test_topic_ids_are_named_as_the_broker_names_them() -> None:
    for name in ("kip848", "convert", "compacted"):
        told = {topic_id: topic for state in states_of(name).values() for topic_id, topic in state.topic_names.items()}
        ids = {topic_id: topic for topic, topic_id in answer(name, "topic_ids.json").items()}
        assert ZERO_UUID not in told
        assert told
        assert {topic_id: topic for topic_id, topic in told.items() if topic_id in ids}.items() <= ids.items()
