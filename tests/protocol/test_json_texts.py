"""The JSON texts of many keys and values are the ones of ``scalar``, from the compiled loop and without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.protocol import DecodeError, definition, fast_path, json_programs, json_texts, programs, record_types
from groupcoord_spark.protocol.definition import DecodedValue
from groupcoord_spark.protocol.slices import Slices
from tests.conftest import by_each_decoder
from tests.examples import examples
from tests.protocol.columns import key_json_texts, value_json_texts

from .from_tables import damaged_keys, damaged_values, typed_values


def assert_each_decoder_gives(texts: list[str | None], decode: Callable[[], list[str | None]]) -> None:
    assert by_each_decoder(decode) == [texts, texts]


def shown(json_of: Callable[[], Any]) -> str | None:
    try:
        return json.dumps(json_of(), separators=(",", ":"), ensure_ascii=False)
    except DecodeError:
        return None


def defined_key(key: bytes) -> str | None:
    return shown(lambda: definition.key_json(definition.decode_key(key)))


def defined(key_type: int, value: bytes) -> str | None:
    return shown(lambda: definition.value_json(cast(DecodedValue, definition.decode_value(key_type, value))))


@examples(150)
@given(st.lists(damaged_keys, max_size=4))
def test_texts_of_keys_are_what_the_definition_says(keys: list[bytes]) -> None:
    assert_each_decoder_gives([*map(defined_key, keys), None], lambda: key_json_texts([*keys, None]))


@examples(80)
@given(st.lists(damaged_values, max_size=4))
def test_texts_of_values_are_what_the_definition_says(typed: list[tuple[int, bytes]]) -> None:
    key_types, values = [key_type for key_type, _ in typed], [value for _, value in typed]
    texts = [defined(key_type, value) for key_type, value in typed]
    assert_each_decoder_gives([*texts, None], lambda: value_json_texts([*key_types, 3], [*values, None]))


@examples(50)
@given(st.lists(typed_values, min_size=2, max_size=8), st.integers(1, 200))
def test_texts_do_not_depend_on_how_many_fit_into_a_piece(typed: list[tuple[int, bytes]], piece_bytes: int) -> None:
    texts = [defined(key_type, value) for key_type, value in typed]
    with patch.object(json_texts, "PIECE_BYTES", piece_bytes):
        assert_each_decoder_gives(texts, lambda: value_json_texts([key_type for key_type, _ in typed], [value for _, value in typed]))


@pytest.mark.parametrize(
    "text",
    ['"', "\\", "\n", "\x1f", "\x7f", "ä", "日本", "\U0001f389", "plain text of more than a word", 'a longer text with a "quote"'],
)
def test_texts_that_json_escapes_and_texts_that_are_not_ascii(text: str) -> None:
    for padded in (text, f"padding-{text}", f"{text}-padding"):
        key = definition.encode_key(3, {"group_id": padded})
        text_of_key = json.dumps({"groupId": padded}, separators=(",", ":"), ensure_ascii=False)
        assert_each_decoder_gives([text_of_key], lambda key=key: key_json_texts([key]))  # type: ignore[misc]


def test_the_same_bytes_under_another_type_are_something_else() -> None:
    value = bytes.fromhex("0000 00000003 00")
    texts = ['{"epoch":3}', '{"assignmentEpoch":3}', '{"epoch":3}', None]
    assert_each_decoder_gives(texts, lambda: value_json_texts([3, 6, 11, 24], [value] * 4))


def test_rows_beyond_their_buffer_have_no_text_from_the_loop() -> None:
    loops = fast_path.load_json()
    assert loops is not None
    rows = Slices(np.zeros(8, np.uint8), np.array([-1, 0, 9]), np.array([3, 9, 9]), np.zeros(3, np.bool_))
    program = np.full(3, json_programs.json_programs().value_begin[3 * programs.VERSIONS])
    text_end, is_written = np.zeros(3, np.int64), np.ones(3, np.bool_)
    json_texts._written_pieces(rows, program, text_end, is_written)
    assert not is_written.any()


def test_the_numbers_that_the_loops_repeat_are_those_of_their_definitions() -> None:
    loops = fast_path.load_json()
    assert loops is not None
    defined = {each.name: int(each) for names in (programs.Action, record_types.MarkerType) for each in names}
    defined |= {"VERSIONS": programs.VERSIONS, "NOT_A_CONTROL_RECORD": record_types.NOT_A_CONTROL_RECORD}
    copies = defined.keys() - {"SKIP", "NUMBERS", "TAG", "MARK"}
    assert {name: getattr(loops, name) for name in copies} == {name: defined[name] for name in copies}
