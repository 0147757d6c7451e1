"""Whether the coordinator of a release would load a log."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.coordinator.semantics import semantics_for
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.replay.load_check import LoadOutcome, check_load, differences, release_ranges
from groupcoord_spark.protocol import encode_key, encode_value
from tests.log.log_writer import Rec, batch, marker, write_segment

GOLDEN = Path(__file__).parent.parent / "golden"
RELEASES = ("4.3.1", "3.9.1")
"""The releases that gave the outcomes of the loader cases."""


def cases() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / "fuzz-1" / "oracle" / "loader_cases.json.gz", "rt", encoding="utf-8") as text:
        return json.load(text)  # type: ignore[no-any-return]


def outcomes(directory: Path, entries: Sequence[bytes], *releases: str) -> list[LoadOutcome]:
    write_segment(directory, entries)
    (log,) = plan_logs([str(directory)]).partitions
    return check_load(log, [semantics_for(broker_version=release) for release in releases])


def entry(offset: int, record: dict[str, Any]) -> bytes:
    if record.get("control"):
        return marker(offset, int(record["control"] == "COMMIT"), producer_id=record["producer_id"])
    key, value = (None if record[name] is None else bytes.fromhex(record[name]) for name in ("key_hex", "value_hex"))
    producer_id = record.get("producer_id")
    if producer_id is None:
        return batch(offset, [Rec(key=key, value=value)])
    return batch(offset, [Rec(key=key, value=value)], producer_id=producer_id, producer_epoch=0, attributes=0x10)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["case"])
def test_outcome_of_a_loader_case_is_that_of_the_broker(case: dict[str, Any], tmp_path: Path) -> None:
    entries = [entry(offset, record) for offset, record in enumerate(case["records"])]
    for outcome, expected in zip(outcomes(tmp_path, entries, *RELEASES), (case, case.get("scala_3_9_1")), strict=True):
        if expected is None:
            continue
        assert outcome.loads == (expected["outcome"] != "refused")
        if not outcome.loads:
            assert outcome.refusal is not None
            assert expected.get("at") in (None, outcome.refusal.record_offset)
        else:
            groups = sorted((group["type"], group["state"], group["members"]) for group in expected["groups"])
            assert sorted(outcome.groups.values()) == groups


def commit(offset: int, version: int, **fields: Any) -> bytes:
    key = encode_key(1, {"group_id": "g", "topic": "t", "partition": 0})
    value = {"committed_offset": 5, "metadata": "", "commit_timestamp_ms": 1, "leader_epoch": -1, "expire_timestamp_ms": -1, **fields}
    return batch(offset, [Rec(key=key, value=encode_value(1, version, value))])


def test_newer_value_version_makes_an_older_loader_fail(tmp_path: Path) -> None:
    old, new = outcomes(tmp_path, [commit(0, 3)], "2.0.1", "2.1.0")
    assert old.refusal is not None
    assert (old.refusal.record_offset, old.refusal.code, old.refused) == (0, "R-1.9", 1)
    assert new.loads
    changed = differences(old, new)
    assert (changed.groups, changed.offsets) == (("g",), (("g", "t", 0),))


def test_unknown_key_type_is_skipped_or_makes_the_load_fail(tmp_path: Path) -> None:
    record = batch(0, [Rec(key=encode_key(3, {"group_id": "g"}), value=encode_value(3, 0, {"epoch": 1}))])
    failing, skipping, knowing = outcomes(tmp_path, [record], "3.4.0", "3.4.1", "4.0.0")
    assert failing.refusal is not None and failing.refusal.code == "R-1.6"
    assert skipping.loads and skipping.skipped == {"R-1.6": 1}
    assert knowing.loads and not knowing.skipped


def test_patch_releases_with_other_rules_are_ranges_of_their_own() -> None:
    names = [each.name for each in release_ranges()]
    assert names[0] == "0.8.2.0 to 0.8.2.2"
    assert names[-9:] == ["4.0.0 to 4.0.1", "4.0.2", "4.1.0 to 4.1.1", "4.1.2", "4.2.0", "4.2.1", "4.2.2", "4.3.0 to 4.3.1", "4.4.0"]
    assert "2.4.0 to 2.6.0" in names and "3.4.1 to 3.9.2" in names
