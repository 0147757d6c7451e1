"""What is called sure to be taken by a loader is taken by the definition."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.coordinator.refusals import refusals_of_group_value
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics, semantics_for
from groupcoord_spark.protocol import DecodeError, decode_value
from groupcoord_spark.protocol.classic_group_checks import surely_loadable
from groupcoord_spark.protocol.slices import Slices
from tests.conftest import by_each_decoder
from tests.examples import examples
from tests.pipeline.logs import MALFORMED_SUBSCRIPTIONS, SUBSCRIPTION, classic_value_of

OLD_SCALA = semantics_for("scala", "2.0")
"""Reads no subscriptions."""


def is_taken(value: bytes, semantics: Semantics) -> bool:
    """Return whether the value decodes and the definition has no objection."""
    try:
        decoded = decode_value(2, value)
    except DecodeError:
        return False
    return decoded is not None and not refusals_of_group_value(decoded.version, decoded.fields, semantics)


def random_value(rng: random.Random) -> bytes:
    subscriptions = (SUBSCRIPTION, SUBSCRIPTION, b"", SUBSCRIPTION[: rng.randrange(13)], *MALFORMED_SUBSCRIPTIONS)
    members = [(rng.choice("abcdefgh"), rng.choice((None, None, *"ijkl")), rng.choice(subscriptions)) for _ in range(rng.randrange(4))]
    value = bytearray(classic_value_of(members, protocol_type=rng.choice(("consumer", "connect", "")), version=rng.randrange(5)))
    for _ in range(rng.choice((0, 0, 1, 3))):
        value[rng.randrange(len(value))] = rng.choice((0, 1, 2, 255, rng.randrange(256)))
    return bytes(value[: rng.choice((len(value), len(value), rng.randrange(len(value))))])


@pytest.mark.parametrize("semantics", [JAVA, SCALA, OLD_SCALA], ids=lambda semantics: semantics.broker_version)
@examples(80)
@given(seed=st.integers(0, 2**32))
def test_what_is_sure_is_taken_by_the_definition(semantics: Semantics, seed: int) -> None:
    rng = random.Random(seed)
    values = [random_value(rng) for _ in range(40)]
    for is_sure in by_each_decoder(lambda: surely_loadable(Slices.of(values), checks_subscriptions=semantics.fails_over_subscriptions)):
        assert not [value for value, sure in zip(values, is_sure.tolist(), strict=True) if sure and not is_taken(value, semantics)]
