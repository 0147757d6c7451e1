"""How records of share groups' states add up, compared with what Kafka's own classes make of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from groupcoord_spark.coordinator.share_state import ShareStatePartition, StateBatch, combine_batches

ORACLE = Path(__file__).parent.parent / "golden" / "log-directory" / "oracle"


def cases(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(ORACLE / f"{name}.jsonl.gz") as lines:
        yield from map(json.loads, lines)


def test_batches_combine_to_the_boundaries_of_kafkas_class() -> None:
    for case in cases("combine_cases"):
        batches = [StateBatch(*batch) for batch in (*case["old"], *case["new"])]
        assert [list(batch) for batch in combine_batches(batches, case["start_offset"])] == case["combined"], case


def test_records_of_a_share_partition_give_the_state_of_kafkas_class() -> None:
    for case in cases("replay_cases"):
        replay = ShareStatePartition()
        for offset, (key, value) in enumerate(case["records"]):
            replay.add(offset, bytes.fromhex(key), None if value is None else bytes.fromhex(value), 0)
        states = [state for _, state, _, _ in replay.states()]
        told = case["state"]
        expected = [] if told is None else [(*(told[name] for name in STATE), tuple(map(tuple, told["state_batches"])))]
        assert [astuple(state) for state in states] == expected, case


STATE = ["snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count", "create_timestamp", "write_timestamp"]


def test_update_after_lost_records_is_no_state() -> None:
    case = next(case for case in cases("replay_cases") if case["records"][-1][0].startswith("0001"))
    key, value = (bytes.fromhex(text) for text in case["records"][-1])
    alone, after_damage = ShareStatePartition(), ShareStatePartition()
    after_damage.lose_records()
    for replay in (alone, after_damage):
        replay.add(0, key, value, 0)
    assert len(list(alone.states())) == 1
    assert list(after_damage.states()) == []


def test_record_that_does_not_decode_makes_its_share_partition_unknown() -> None:
    records = next(case for case in cases("replay_cases") if case["state"] is not None)["records"]
    replay = ShareStatePartition()
    for offset, (key, value) in enumerate(records):
        replay.add(offset, bytes.fromhex(key), None if value is None else bytes.fromhex(value), 0)
    replay.add(len(records), bytes.fromhex(records[-1][0]), b"\0\0\1", 0)
    replay.add(len(records) + 1, b"\0\7", b"", 0)
    assert list(replay.states()) == []
    assert replay.undecoded == 2
