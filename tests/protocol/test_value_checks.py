"""What the checks of values say of a value is what the scalar decoder says of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.protocol import RECORD_TYPES, ZERO_UUID, definition, encode_value
from groupcoord_spark.protocol.primitives import uuid_bytes
from groupcoord_spark.protocol.record_types import OFFSET_KEY_TYPES
from groupcoord_spark.protocol.slices import Slices
from groupcoord_spark.protocol.value_checks import ValueChecks, check_values
from tests.conftest import decoder
from tests.examples import examples

from .from_tables import KNOWN_TYPES, damaged_offset_values, damaged_values

pytestmark = pytest.mark.usefixtures("with_loops")

READ_IN_PART = {"value_trailing_bytes", "tagged_field_size_mismatch"}


def checks_of(typed: list[tuple[int, bytes]]) -> ValueChecks:
    every = np.ones(len(typed), np.bool_)
    return check_values(np.array([key_type for key_type, _ in typed], np.int16), every, every, Slices.of([value for _, value in typed]))


@examples(300)
@given(st.lists(damaged_values | damaged_offset_values, max_size=6))
def test_what_is_sure_to_decode_does_decode(typed: list[tuple[int, bytes]]) -> None:
    checks = checks_of(typed)
    for (key_type, value), version, is_sure, high, low in zip(typed, *(column.tolist() for column in checks), strict=True):
        assert version == (int.from_bytes(value[:2], "big", signed=True) if len(value) >= 2 else -1)
        topic_id = uuid_bytes(ZERO_UUID)
        if is_sure:
            decoded = definition.decode_value(key_type, value)
            assert decoded is not None
            assert not decoded.dialect and READ_IN_PART.isdisjoint(doubt.code for doubt in decoded.doubts)
            topic_id = uuid_bytes(decoded.fields.get("topic_id", ZERO_UUID))
        assert [high, low] == np.frombuffer(topic_id, ">i8").tolist()


@examples(50)
@given(st.lists(st.tuples(damaged_values, st.booleans(), st.booleans(), st.booleans()), max_size=6))
def test_nothing_is_said_of_values_that_are_not_checked(rows: list[tuple[tuple[int, bytes], bool, bool, bool]]) -> None:
    key_type = np.array([key_type for (key_type, _), *_ in rows], np.int16)
    values = Slices.of([None if is_null else value for (_, value), is_null, _, _ in rows])
    has_version = np.array([has_version for *_, has_version, _ in rows], np.bool_)
    is_checked = np.array([is_checked and not is_null for _, is_null, _, is_checked in rows], np.bool_) & has_version
    checks = check_values(key_type, has_version, is_checked, values)
    alone = checks_of([typed for typed, *_ in rows])
    assert checks.value_version.tolist() == np.where(has_version & ~values.is_null, alone.value_version, -1).tolist()
    assert checks.surely_decodes.tolist() == (alone.surely_decodes & is_checked).tolist()


@pytest.mark.parametrize("key_type", KNOWN_TYPES)
def test_values_that_brokers_write_surely_decode(key_type: int) -> None:
    message = RECORD_TYPES[key_type].value
    values = []
    for version in range(message.versions[0], message.versions[1] + 1):
        fields = {field.name: field.absent_value() for field in message.fields_of(version)}
        values.append((key_type, encode_value(key_type, version, fields)))
        if key_type in OFFSET_KEY_TYPES:
            texts = ["m" * size for size in (0, 1, 126, 127, 4096)]
            values += [(key_type, encode_value(key_type, version, fields | {"metadata": text})) for text in texts]
    assert checks_of(values).surely_decodes.all()


def test_the_topic_id_of_an_offset_is_told() -> None:
    commit = {"committed_offset": 42, "leader_epoch": 5, "metadata": "note", "commit_timestamp_ms": 7, "topic_id": "ASNFZ4mrze_-3LqYdlQyEA"}
    checks = checks_of([(1, encode_value(1, 4, commit)), (1, encode_value(1, 3, commit))])
    assert checks.topic_high.tolist() == [0x0123456789ABCDEF, 0] and checks.topic_low.tolist() == [-0x123456789ABCDF0, 0]


def test_of_a_topic_id_that_comes_twice_the_first_is_not_taken() -> None:
    """Kafka takes the last one: such a value is left to the scalar decoder."""
    commit = {"committed_offset": 42, "leader_epoch": 5, "metadata": "note", "commit_timestamp_ms": 7, "topic_id": "ASNFZ4mrze_-3LqYdlQyEA"}
    once = encode_value(1, 4, commit)
    twice = once[:-19] + bytes([2, 0, 16]) + bytes(range(16)) + once[-18:]
    decoded = definition.decode_value(1, twice)
    assert decoded is not None and decoded.fields["topic_id"] == commit["topic_id"]
    checks = checks_of([(1, twice)])
    assert not checks.surely_decodes[0]
    assert (checks.topic_high.tolist(), checks.topic_low.tolist()) == ([0], [0])


def test_a_value_of_any_size_and_number_of_members_is_followed() -> None:
    member = {"client_id": "c", "client_host": "/h", "session_timeout_ms": 1, "subscription": b"", "assignment": b"x" * 300}
    members = [member | {"member_id": f"m{i}"} for i in range(40)]
    fields = {"protocol_type": "consumer", "generation": 1, "protocol": None, "leader": None, "members": members}
    values = [(2, encode_value(2, 0, fields | {"members": members[:n]})) for n in (0, 1, 40)]
    assert checks_of(values).surely_decodes.all()


def test_values_cut_anywhere_are_not_read_beyond_their_end() -> None:
    rng = np.random.default_rng(7)
    whole = encode_value(8, 0, {
        "member_epoch": 1, "previous_member_epoch": 0, "state": 0, "partitions_pending_revocation": [],
        "assigned_partitions": [{"topic_id": "ASNFZ4mrze_-3LqYdlQyEA", "partitions": rng.integers(0, 99, 200).tolist()}],
    })  # fmt: skip
    checks = checks_of([(8, whole[:size]) for size in range(len(whole) + 1)])
    assert checks.surely_decodes.tolist() == [False] * len(whole) + [True]


def test_without_the_loops_only_versions_are_read() -> None:
    commit = encode_value(1, 4, {"committed_offset": 42, "leader_epoch": 5, "metadata": "", "commit_timestamp_ms": 7})
    with decoder("scalar"):
        checks = checks_of([(1, commit), (1, b"0")])
    assert checks.value_version.tolist() == [4, -1] and not checks.surely_decodes.any()
