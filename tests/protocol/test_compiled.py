from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from hypothesis import given, settings

from groupcoord_spark.protocol import DecodedValue, DecodeError, compiled, scalar

from .columns import outcome
from .from_tables import damaged_keys, damaged_values


def shown(json_of: Callable[[], Any]) -> str | None:
    try:
        return json.dumps(json_of(), separators=(",", ":"), ensure_ascii=False)
    except DecodeError:
        return None


@settings(max_examples=400, print_blob=True, deadline=None)
@given(damaged_keys)
def test_keys_are_what_the_definition_says(key: bytes) -> None:
    assert repr(outcome(lambda: compiled.decode_key(key))) == repr(outcome(lambda: scalar.decode_key(key)))
    assert compiled.key_json_texts([key, None]) == [shown(lambda: scalar.key_json(scalar.decode_key(key))), None]


@settings(max_examples=500, print_blob=True, deadline=None)
@given(damaged_values)
def test_values_are_what_the_definition_says(typed: tuple[int, bytes]) -> None:
    key_type, value = typed
    # by their text, which also tells the order of fields and -1 from absent
    assert repr(outcome(lambda: compiled.decode_value(key_type, value))) == repr(outcome(lambda: scalar.decode_value(key_type, value)))
    text = shown(lambda: scalar.value_json(cast(DecodedValue, scalar.decode_value(key_type, value))))
    assert compiled.value_json_texts([key_type], [value]) == [text]


def test_what_comes_again_is_read_once() -> None:
    key, value = bytes.fromhex("0003 0001 67"), bytes.fromhex("0000 00000001 00")
    first, again, tombstone = compiled.value_json_texts([3, 3, 3], [value, bytes(value), None])
    assert first == '{"epoch":1}' and again is first and tombstone is None
    first, again = compiled.key_json_texts([key, bytes(key)])
    assert first == '{"groupId":"g"}' and again is first


def test_the_same_bytes_under_another_type_are_something_else() -> None:
    value = bytes.fromhex("0000 00000003 00")
    assert compiled.value_json_texts([3, 6, 11, 24], [value] * 4) == ['{"epoch":3}', '{"assignmentEpoch":3}', '{"epoch":3}', None]
