"""The broker's order over a member's target, which decides what the member keeps of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from groupcoord_spark.assignors import Member, Topic, TopicPartition, uniform_assignment
from groupcoord_spark.assignors.java_maps import in_order_of_copy
from tests.tools.conformance.assignors import EQUAL, lines_of, verdict_on

GOLDEN = Path(__file__).parents[1] / "golden"
TOPIC_ID = "GvdsOyqqTtGpZQEFkXQEzA"
A, B, C = "EXYAKCC4QRSLDj-Am3osJA", "duyuFygBRPGGL2K4kzrqqQ", "twYsAkUuTN6xKPi8c_8wlA"


def recorded_targets(first_offset: int, last_offset: int) -> dict[str, list[int]]:
    """By member id, the partitions of the target assignment records of the real broker."""
    with gzip.open(GOLDEN / "uniform-hash-order" / "oracle" / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
        records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return {
        record["key"]["data"]["memberId"]: record["value"]["data"]["topicPartitions"][0]["partitions"]
        for record in records
        if first_offset <= record["offset"] <= last_offset and record["key"]["type"] == 7
    }


def test_uniform_sorted_targets_of_16_and_more_partitions_and_kept_other_ones_than_the_broker() -> None:
    topics = {"t": Topic(18, topic_id=TOPIC_ID)}
    before = recorded_targets(8, 9)
    targets = {member_id: tuple(TopicPartition("t", number) for number in before.get(member_id, ())) for member_id in (A, B, C)}
    members = [Member(member_id, ("t",), owned=owned) for member_id, owned in targets.items()]
    assignment = uniform_assignment(members, topics)
    assert {member_id: [number for _, number in targets] for member_id, targets in assignment.items()} == {
        member_id: sorted(numbers) for member_id, numbers in recorded_targets(16, 18).items()
    }
    assert [number for _, number in assignment[B]] == [9, 10, 11, 12, 16, 17]


def test_cases_with_12_and_more_partitions_of_a_topic_equal_kafkas() -> None:
    verdicts = [verdict_on(line) for line in lines_of(GOLDEN / "assignors" / "target-order.jsonl")]
    assert verdicts == [EQUAL] * 4


def test_a_copied_set_is_ascending_below_16_and_wraps_round_above() -> None:
    assert in_order_of_copy([5, 3, 15, 0]) == [0, 3, 5, 15]
    assert in_order_of_copy(range(9, 18)) == [16, 17, *range(9, 16)]
    # 12 numbers get 32 slots, 11 get 16
    assert in_order_of_copy(range(10, 22)) == list(range(10, 22))
    assert in_order_of_copy(range(10, 21)) == [*range(16, 21), *range(10, 16)]


def test_numbers_of_one_slot_keep_the_order_of_the_record() -> None:
    assert in_order_of_copy([20, 4]) == [20, 4]
    assert in_order_of_copy([4, 20]) == [4, 20]


def test_a_ninth_number_in_a_slot_doubles_a_small_set() -> None:
    multiples = [16 * factor for factor in (8, 7, 6, 5, 4, 3, 2, 1, 0)]
    assert in_order_of_copy(multiples[1:]) == multiples[1:]
    assert in_order_of_copy(multiples) == [128, 96, 64, 32, 0, 112, 80, 48, 16]
