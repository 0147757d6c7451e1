from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.protocol import Slices
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("each_decoder")

ROWS = st.lists(st.none() | (st.binary(max_size=5) | st.binary(min_size=10, max_size=15)), max_size=12)


@examples(100)
@given(ROWS)
def test_rows_come_out_of_arrow_as_they_went_in(rows: list[bytes | None]) -> None:
    slices = Slices.of(rows)
    assert [slices.row(i) for i in range(len(rows))] == rows
    assert slices.to_arrow().to_pylist() == rows
    assert slices.lengths().tolist() == [len(row or b"") for row in rows]


@examples(100)
@given(ROWS, st.data())
def test_rows_in_any_order_are_gathered(rows: list[bytes | None], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)) if rows else []
    taken = Slices.of(rows).take(np.array(order, np.int64))
    assert taken.to_arrow().to_pylist() == [rows[i] for i in order]


@examples(100)
@given(ROWS)
def test_rows_are_told_apart_by_all_their_bytes(rows: list[bytes | None]) -> None:
    code, distinct = Slices.of(rows).distinct()
    texts = distinct.to_pylist()
    assert len(set(texts)) == len(texts)
    assert [None if each < 0 else texts[each] for each in code.tolist()] == rows


def test_more_distinct_rows_than_fit_in_at_first() -> None:
    rows = [b"key of some length %d" % (i % 30_000) for i in range(70_000)]
    code, distinct = Slices.of([*rows, None]).distinct()
    assert distinct.to_pylist() == rows[:30_000]
    assert code.tolist() == [*(i % 30_000 for i in range(70_000)), -1]


def test_gaps_between_rows_are_left_out() -> None:
    data = np.frombuffer(b"..ab....cde.", np.uint8)
    start, end = np.array([2, 5, 8]), np.array([4, 5, 11])
    assert Slices(data, start, end, np.array([False, True, False])).to_arrow().to_pylist() == [b"ab", None, b"cde"]


@pytest.mark.parametrize("layout", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_a_part_of_an_array_of_any_layout_is_taken_without_its_rest(layout: pa.DataType) -> None:
    array = pa.array(["xx", "ab", None, "c"], pa.string()).cast(layout)
    assert Slices.from_arrow(array.slice(1)).to_arrow().to_pylist() == [b"ab", None, b"c"]
    assert Slices.from_arrow(pa.chunked_array([array, array])).to_arrow().to_pylist() == 2 * [b"xx", b"ab", None, b"c"]


def test_other_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        Slices.from_arrow(pa.array([1]))
