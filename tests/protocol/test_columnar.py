from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.protocol import columnar, encode_key, encode_value
from groupcoord_spark.protocol.slices import Slices
from tests.examples import examples

from .columns import check_key_columns, check_offset_value_columns
from .from_tables import damaged_keys, damaged_offset_values, damaged_values


@examples(80)
@given(st.lists(st.none() | damaged_keys, max_size=12))
def test_key_columns_are_what_the_definition_says(keys: list[bytes | None]) -> None:
    check_key_columns(keys)


@examples(200)
@given(st.lists(damaged_offset_values | damaged_values | st.tuples(st.sampled_from([0, 1, 9, 24, -1]), st.none()), max_size=12))
def test_offset_value_columns_are_what_the_definition_says(typed: list[tuple[int, bytes | None]]) -> None:
    check_offset_value_columns([key_type for key_type, _ in typed], [value for _, value in typed])


COMMIT = {
    "committed_offset": 42, "leader_epoch": 5, "metadata": "note", "commit_timestamp_ms": 1700000000000,
    "topic_id": "ASNFZ4mrze_-3LqYdlQyEA",
}  # fmt: skip


@pytest.mark.usefixtures("with_loops")
class TestWithoutLookingAtSingleRows:
    """What brokers write is never handed to the decoder of single records."""

    @pytest.fixture(autouse=True)
    def _no_single_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a row was read by itself")

        monkeypatch.setattr(columnar, "decode_key", refuse)
        monkeypatch.setattr(columnar, "decode_value", refuse)

    def test_commits_of_every_version(self) -> None:
        values = [encode_value(1, version, COMMIT | {"metadata": "m" * size}) for version in range(5) for size in (0, 1, 126, 127, 4096)]
        values.append(encode_value(1, 4, COMMIT | {"topic_id": "A" * 22}))
        key_type = np.ones(len(values), np.int16)
        columns = columnar.decode_offset_value_columns(key_type, Slices.of(values))
        assert columns.value_version.tolist() == [version for version in range(5) for _ in range(5)] + [4]
        assert set(columns.fields["committed_offset"].tolist()) == {42}
        assert columns.fields["topic_id"].to_pylist() == [None] * 20 + ["ASNFZ4mrze_-3LqYdlQyEA"] * 5 + [None]

    def test_keys_of_every_kind(self) -> None:
        keys = [
            encode_key(1, {"group_id": "grüppe", "topic": "日本", "partition": 3}), encode_key(3, {"group_id": "g"}),
            encode_key(5, {"group_id": "g", "member_id": "m"}), encode_key(16, {"group_id": "g", "regular_expression": "a.*"}),
        ]  # fmt: skip
        columns = columnar.decode_key_columns(Slices.of(keys))
        assert columns.group_id.to_pylist() == ["grüppe", "g", "g", "g"]
        assert columns.topic.to_pylist() == ["日本", None, None, None]
        assert columns.member_id.to_pylist() == [None, None, "m", None]
        assert columns.regular_expression.to_pylist() == [None, None, None, "a.*"]
        assert columns.partition.tolist() == [3, -1, -1, -1] and columns.ok.all()


class TestPlaces:
    @pytest.mark.usefixtures("each_decoder")
    @pytest.mark.parametrize("shift", range(9))
    def test_rows_may_lie_anywhere_in_the_buffer_and_in_any_order(self, shift: int) -> None:
        values = [encode_value(1, 4, COMMIT), None, encode_value(1, 3, COMMIT), b"\0"]
        buffer = np.frombuffer(bytes(shift) + b"".join(value or b"" for value in values), np.uint8)
        ends = np.cumsum([shift] + [len(value or b"") for value in values])
        slices = Slices(buffer, ends[:-1], ends[1:], np.array([value is None for value in values]))
        columns = columnar.decode_offset_value_columns(np.ones(4, np.int16), slices.take(np.array([2, 3, 0, 1])))
        assert columns.fields["committed_offset"].tolist() == [42, -1, 42, -1]
        assert columns.fields["metadata"].to_pylist() == ["note", None, "note", None]
        assert columns.fields["topic_id"].to_pylist() == [None, None, "ASNFZ4mrze_-3LqYdlQyEA", None]
        assert columns.status.to_pylist() == [None, "value_too_short", None, None]

    def test_of_a_topic_id_that_comes_twice_the_last_counts(self) -> None:
        once = encode_value(1, 4, COMMIT)
        check_offset_value_columns([1], [once[:-19] + bytes([2, 0, 16]) + bytes(range(16)) + once[-18:]])

    @pytest.mark.usefixtures("each_decoder")
    def test_very_many_rows(self) -> None:
        rows = 16384 + 5
        values = Slices.of([encode_value(1, 4, COMMIT | {"committed_offset": i}) for i in range(100)]).take(np.arange(rows) % 100)
        columns = columnar.decode_offset_value_columns(np.ones(rows, np.int16), values)
        assert (columns.fields["committed_offset"] == np.arange(rows) % 100).all()

    def test_nothing_in_nothing_out(self) -> None:
        check_key_columns([])
        check_offset_value_columns([], [])
