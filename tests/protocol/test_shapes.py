"""A shape has the faults and doubts of every value that it is made of."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.coordinator.refusals import refusals_of_group_value
from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.protocol import ZERO_UUID, DecodeError, decode_value
from groupcoord_spark.protocol.shapes import shapes_of_values
from groupcoord_spark.protocol.slices import Slices
from tests.examples import examples
from tests.protocol.from_tables import damaged, typed_values
from tests.protocol.test_classic_group_checks import random_value


def told(key_type: int, value: bytes | None) -> tuple[object, ...]:
    """All that is told of a value beside its fields, and the topic id of an offset."""
    try:
        decoded = decode_value(key_type, value)
    except DecodeError as fault:
        return type(fault), fault.detail
    assert decoded is not None
    return decoded.version, decoded.doubts, decoded.fields.get("topic_id", ZERO_UUID) if key_type < 2 else None


@pytest.mark.usefixtures("each_decoder")
@examples(100)
@given(st.data())
def test_a_shape_is_told_of_as_its_value_is(data: st.DataObject) -> None:
    key_type, whole = data.draw(typed_values())
    values = [whole, data.draw(damaged(whole)), data.draw(damaged(whole)), whole + b"x", whole[:1], b""]
    shapes = shapes_of_values(key_type, Slices.of(list(values)))
    assert [told(key_type, shapes.row(i)) for i in range(len(values))] == [told(key_type, value) for value in values]


@pytest.mark.usefixtures("each_decoder")
@examples(60)
@given(seed=st.integers(0, 2**32))
def test_a_shape_that_keeps_texts_breaks_the_rules_that_its_value_breaks(seed: int) -> None:
    rng = random.Random(seed)
    values = [random_value(rng) for _ in range(20)]
    shapes = shapes_of_values(2, Slices.of(list(values)), keeps_texts=True)
    assert [refused(shapes.row(i)) for i in range(len(values))] == [refused(value) for value in values]


def refused(value: bytes | None) -> object:
    try:
        decoded = decode_value(2, value)
    except DecodeError as fault:
        return fault.detail
    return None if decoded is None else refusals_of_group_value(decoded.version, decoded.fields, JAVA)
