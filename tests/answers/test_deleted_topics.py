"""Removals of offsets whose topic the cluster's metadata shows as deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, night
from tests.warehouse.view_rows import HOUR_MS, at, gone, log_part, topic

METADATA = "the cluster's metadata"
NOW, OLD = "Uz_G2kQIRWC33YW4WQUDVQ", "MkTRaXlSRfWvFLT1M3hZWA"


def why(place: Path, *topics: dict[str, Any]) -> str:
    tombstones = [gone(2 + partition, partition=partition, record_timestamp_ms=AS_OF_MS + HOUR_MS) for partition in range(2)]
    history = [at(0, 5, 0), at(1, 6, 0, partition=1), *tombstones]
    rows = {"offset_commits": history, "offsets_partitions": [log_part(end_offset=4)], "topics": list(topics)}
    night(place, "prod", rows, settings={"offsets.retention.ms": str(7 * DAY_MS)})
    result = groupcoord("why", "--group", "g", "--topic", "t", "--partition", "0", "--warehouse", str(place))
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def test_without_metadata_the_cause_is_a_guess(tmp_path: Path) -> None:
    assert "because the topic was deleted (possible: no other offset of the topic was left" in why(tmp_path)


@pytest.mark.parametrize(
    ("topics", "clause"),
    [
        ([topic("t", OLD, is_deleted=True, deleted_at_ms=AS_OF_MS + HOUR_MS - 100)], f"(certain: {METADATA} has the deletion of the topic"),
        ([topic("u", NOW)], f"(likely: by {METADATA} the topic of the commit does not exist any more"),
        ([topic("t", NOW, created_at_ms=AS_OF_MS + 2 * HOUR_MS)], f"(likely: by {METADATA} the topic of the commit does not exist"),
    ],
)
def test_metadata_makes_the_cause_surer(tmp_path: Path, topics: list[dict[str, Any]], clause: str) -> None:
    assert clause in why(tmp_path, *topics)


@pytest.mark.parametrize(
    "topics",
    [
        [topic("t", OLD, is_deleted=True, deleted_at_ms=AS_OF_MS - HOUR_MS, all_topics_known=False)],
        [topic("u", NOW, all_topics_known=False)],
        [topic("t", NOW)],
    ],
)
def test_metadata_that_does_not_tell_changes_nothing(tmp_path: Path, topics: list[dict[str, Any]]) -> None:
    assert "because the topic was deleted (possible: no other offset of the topic was left" in why(tmp_path, *topics)
