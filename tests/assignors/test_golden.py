"""Every case that Kafka's own classes answered."""

from __future__ import annotations

import base64
from pathlib import Path

from groupcoord_spark.protocol.consumer_protocol import decode_sticky_user_data
from tests.tools.conformance.assignors import EQUAL, lines_of, partitions_of, verdict_on

CASES = Path(__file__).parents[1] / "golden" / "assignors" / "cases.jsonl.gz"


def test_every_assignment_equals_kafkas_even_where_it_hangs_on_hash_order() -> None:
    verdicts = {(line["case"], line["round"], line["assignor"]): verdict_on(line) for line in lines_of(CASES)}
    assert len(verdicts) == 2618
    assert {case: verdict for case, verdict in verdicts.items() if verdict != EQUAL} == {}


def test_what_a_sticky_member_owned_stands_in_its_user_data() -> None:
    for line in lines_of(CASES):
        for member in line["members"]:
            if member.get("user_data") is not None:
                user_data = decode_sticky_user_data(base64.b64decode(member["user_data"]))
                assert user_data.generation == member["generation"]
                assert partitions_of(user_data.previous_assignment.items()) == partitions_of(member["owned"])
