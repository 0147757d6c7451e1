from __future__ import annotations

import pytest
from hypothesis import given, settings

from groupcoord_spark.protocol import RECORD_TYPES, DecodeError, scalar
from groupcoord_spark.protocol.slices import Slices
from groupcoord_spark.protocol.validity import surely_decode

from .from_tables import KNOWN_TYPES, damaged_values


@settings(max_examples=300, print_blob=True, deadline=None)
@given(damaged_values)
def test_what_is_sure_to_decode_does_decode(typed: tuple[int, bytes]) -> None:
    key_type, value = typed
    message, version = RECORD_TYPES[key_type].value, int.from_bytes(value[:2], "big")
    if len(value) < 2 or not message.versions[0] <= version <= message.versions[1]:
        return
    (is_sure,) = surely_decode(message, version, Slices.of([value]))
    try:
        decoded = scalar.decode_value(key_type, value)
    except DecodeError:
        assert not is_sure
    else:
        assert decoded is not None
        read_in_part = {finding.code for finding in decoded.findings} & {"value_trailing_bytes", "tagged_field_size_mismatch"}
        assert not (is_sure and (decoded.dialect or read_in_part))


@pytest.mark.parametrize("key_type", KNOWN_TYPES)
def test_a_value_of_nothing_but_defaults_is_sure_to_decode(key_type: int) -> None:
    message = RECORD_TYPES[key_type].value
    for version in range(message.versions[0], message.versions[1] + 1):
        fields = {field.name: field.absent_value() for field in message.fields_of(version)}
        assert surely_decode(message, version, Slices.of([scalar.encode_value(key_type, version, fields)])).all()
