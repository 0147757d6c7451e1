"""Columns against the definition, row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from groupcoord_spark.protocol import ZERO_UUID, DecodeError, columnar, definition, json_texts
from groupcoord_spark.protocol.errors import Doubt
from groupcoord_spark.protocol.slices import Slices
from tests.conftest import by_each_decoder


def outcome(decode: Callable[[], Any]) -> Any:
    """Return what a decoder gives, or how it refuses."""
    try:
        return decode()
    except DecodeError as refusal:
        return type(refusal), refusal.detail


def key_json_texts(keys: Sequence[bytes | None]) -> list[str | None]:
    texts: list[str | None] = json_texts.key_json_column(Slices.of(list(keys))).to_pylist()
    return texts


def value_json_texts(key_types: Sequence[int], values: Sequence[bytes | None]) -> list[str | None]:
    texts: list[str | None] = json_texts.value_json_column(np.array(key_types, np.int16), Slices.of(list(values))).to_pylist()
    return texts


def check_key_columns(keys: Sequence[bytes | None]) -> None:
    """Check what each decoder says of the keys."""
    expected = [outcome(lambda key=key: definition.decode_key(key)) for key in keys]
    by_each_decoder(lambda: _check_key_columns(keys, expected))


def _check_key_columns(keys: Sequence[bytes | None], outcomes: Sequence[Any]) -> None:
    columns = columnar.decode_key_columns(Slices.of(list(keys)))
    shown = zip(columns.group_id.to_pylist(), columns.topic.to_pylist(), columns.partition.tolist(), columns.member_id.to_pylist(),
                columns.regular_expression.to_pylist(), strict=True)  # fmt: skip
    refusals, doubts, status = dict(columns.refusals), by_row(columns.doubts), columns.status.to_pylist()
    for row, (key, expected, each) in enumerate(zip(keys, outcomes, shown, strict=True)):
        if key is not None and len(key) >= 2:
            assert columns.key_type[row] == int.from_bytes(key[:2], "big", signed=True)
        if isinstance(expected, definition.DecodedKey):
            fields = expected.fields
            assert each == (fields["group_id"], fields.get("topic"), fields.get("partition", -1), fields.get("member_id"),
                            fields.get("regular_expression"))  # fmt: skip
            assert columns.ok[row] and status[row] is None and tuple(doubts[row]) == expected.doubts
        else:
            assert each == (None, None, -1, None, None)
            assert not columns.ok[row] and status[row] == expected[0].code
            assert (type(refusals[row]), refusals[row].detail) == expected


def check_offset_value_columns(key_types: Sequence[int], values: Sequence[bytes | None]) -> None:
    """Check what each decoder says of the rows of types 0 and 1."""
    outcomes = [
        outcome(lambda key_type=key_type, value=value: definition.decode_value(key_type, value))
        for key_type, value in zip(key_types, values, strict=True)
    ]
    by_each_decoder(lambda: _check_offset_value_columns(key_types, values, outcomes))


def _check_offset_value_columns(key_types: Sequence[int], values: Sequence[bytes | None], outcomes: Sequence[Any]) -> None:
    slices = Slices.of(list(values))
    rows = [row for row, key_type in enumerate(key_types) if key_type in (0, 1)]
    kept_types, kept = np.array(key_types, np.int16)[rows], slices.take(np.array(rows, np.int64))
    columns = columnar.decode_offset_value_columns(kept_types, kept)
    shown = zip(*(column.tolist() for column in columns.fields.values()), strict=True)
    refusals, doubts, status = dict(columns.refusals), by_row(columns.doubts), columns.status.to_pylist()
    for i, each in enumerate(shown):
        value, expected = values[rows[i]], outcomes[rows[i]]
        has_version = value is not None and len(value) >= 2
        assert columns.value_version[i] == (int.from_bytes((value or b"")[:2], "big", signed=True) if has_version else -1)
        if isinstance(expected, definition.DecodedValue):
            fields = expected.fields
            topic_id = fields.get("topic_id", ZERO_UUID)
            assert each == (
                fields["committed_offset"], fields.get("leader_epoch", -1), fields["metadata"], fields["commit_timestamp_ms"],
                fields.get("expire_timestamp_ms", -1),
                None if topic_id == ZERO_UUID else topic_id,
            )  # fmt: skip
            assert columns.ok[i] and status[i] is None and tuple(doubts[i]) == expected.doubts
        else:
            assert each == (-1, -1, None, -1, -1, None)
            assert columns.ok[i] == (value is None)
            if value is not None:
                assert status[i] == expected[0].code and (type(refusals[i]), refusals[i].detail) == expected


def by_row(doubts: list[tuple[int, Doubt]]) -> dict[int, list[Doubt]]:
    found: dict[int, list[Doubt]] = defaultdict(list)
    for row, doubt in doubts:
        found[row].append(doubt)
    return found
