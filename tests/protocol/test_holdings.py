"""The partitions of current assignments as columns are those the definition decodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord_spark.protocol import DecodeError, decode_value, encode_value
from groupcoord_spark.protocol.holdings import held_partitions
from groupcoord_spark.protocol.primitives import uuid_bytes, uuid_text
from groupcoord_spark.protocol.slices import Slices

topics = st.lists(
    st.fixed_dictionaries(
        {
            "topic_id": st.binary(min_size=16, max_size=16).map(uuid_text),
            "partitions": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=200),
        }
    ),
    max_size=4,
)
values = st.fixed_dictionaries(
    {
        "member_epoch": st.integers(-1, 9),
        "previous_member_epoch": st.integers(-1, 9),
        "state": st.integers(0, 3),
        "assigned_partitions": topics,
        "partitions_pending_revocation": topics,
    }
)


def told(value: bytes) -> list[tuple[int, int, int]] | None:
    """(halves of the topic id, partition) of all that the definition finds; None where it refuses the value."""
    try:
        decoded = decode_value(8, value)
    except DecodeError:
        return None
    assert decoded is not None
    fields: dict[str, Any] = decoded.fields
    return [
        (*np.frombuffer(uuid_bytes(topic["topic_id"]), ">i8").tolist(), partition)
        for topic in (*fields["assigned_partitions"], *fields["partitions_pending_revocation"])
        for partition in topic["partitions"]
    ]


@settings(max_examples=100, print_blob=True, deadline=None)
@given(st.lists(st.tuples(values, st.one_of(st.none(), st.integers(2, 30))), min_size=1, max_size=5))
def test_held_partitions_are_what_the_definition_says(drawn: list[tuple[dict[str, Any], int | None]]) -> None:
    stored = [encode_value(8, 0, value)[:cut] for value, cut in drawn]
    held = held_partitions(np.zeros(len(stored), np.int16), Slices.of(stored))
    found: dict[int, list[tuple[int, int, int]]] = {}
    entries = (*(column[held.of_topic].tolist() for column in (held.row, held.topic_high, held.topic_low)), held.partition.tolist())
    for row, *entry in zip(*entries, strict=True):
        found.setdefault(row, []).append(tuple(entry))
    for row, (value, cut) in enumerate(zip(stored, (cut for _, cut in drawn), strict=True)):
        expected = told(value)
        if cut is None:
            assert held.is_read[row]
        if held.is_read[row]:
            assert expected is not None and sorted(found.get(row, [])) == sorted(expected)
