"""Short sequences that Kafka's own loaders were given: what they refused is warned of at that record, what they accepted looks the same."""

import gzip
import json
from typing import Any

import pytest

from groupcoord_spark.coordinator import JAVA, SCALA, PartitionState, Semantics, semantics_for
from groupcoord_spark.protocol.record_types import MarkerType
from tests.coordinator.records import GOLDEN, Record, outcome_here, replayed

# in its milder form are skips and remarks; all others mean that the load would have failed (R-1.28: was logged).
REMARKS = {"R-1.6", "R-1.26", "R-2.2", "R-4.6"}


def _cases() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / "fuzz-1" / "oracle" / "loader_cases.json.gz", "rt", encoding="utf-8") as text:
        cases: list[dict[str, Any]] = json.load(text)
    return cases


def _record(record: dict[str, Any]) -> Record:
    producer_id = record.get("producer_id")
    batch = {"producer_id": -1 if producer_id is None else producer_id, "producer_epoch": 0, "is_transactional": producer_id is not None}
    if record.get("control"):
        return Record(control_type=MarkerType[record["control"]], **batch)
    key, value = record["key_hex"], record["value_hex"]
    return Record(None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value), **batch)


def _check(case: dict[str, Any], answer: dict[str, Any], semantics: Semantics) -> None:
    state = replayed([_record(record) for record in case["records"]], semantics)
    refused_at = {warning.record_offset for warning in state.warnings() if warning.code not in REMARKS}
    if answer["outcome"] == "refused":
        assert len(refused_at) == 1
        assert answer.get("at") is None or refused_at == {answer["at"]}
        return
    assert not refused_at
    assert _looks(state) == {
        "groups": [(group["type"], group["state"], group["members"]) for group in answer["groups"]],
        "committed": [answer["committed_offset"]] if "committed_offset" in answer else [],
        "pending": sorted((pending["producer_id"], pending["offset"]) for pending in answer.get("pending", [])),
    }


def _looks(state: PartitionState) -> dict[str, list[Any]]:
    stored = [*state.committed_offsets(), *state.orphan_offsets()]
    return {
        "groups": [(group.group_type, group.state, group.member_count) for group in state.groups()],
        "committed": [row.commit.committed_offset for row in stored if (row.topic, row.partition) == ("t", 0)],
        "pending": [(row.commit.producer_id, row.commit.committed_offset) for row in state.pending_offsets()],
    }


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["case"])
def test_kafka_4_3_1(case: dict[str, Any]) -> None:
    _check(case, case, JAVA)


@pytest.mark.parametrize("case", [case for case in _cases() if "scala_3_9_1" in case], ids=lambda case: case["case"])
def test_kafka_3_9_1(case: dict[str, Any]) -> None:
    _check(case, case["scala_3_9_1"], SCALA)


def test_a_sample_of_all_sequences_of_three_records() -> None:
    """``small_scopes --record`` made the sample, and compares all sequences."""
    sample = json.loads(gzip.decompress((GOLDEN / "small-scopes.json.gz").read_bytes()))
    semantics = semantics_for("java", sample["release"])
    replays = ((case, outcome_here(map(_record, case["records"]), semantics).as_json()) for case in sample["cases"])
    assert [(case["case"], outcome, case["outcome"]) for case, outcome in replays if outcome != case["outcome"]] == []
