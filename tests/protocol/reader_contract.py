"""What every reader of one encoding promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from groupcoord_spark.protocol.errors import Underflow


class ReaderContract:
    """Inherited by the tests of each reader: ``valid`` is one encoded value, ``decoded`` what it says."""

    reader: Callable[[bytes, int], tuple[Any, int]]
    valid: ClassVar[bytes]
    decoded: ClassVar[Any]

    def test_a_value_is_read_and_the_position_after_it_given(self) -> None:
        assert self.reader(self.valid, 0) == (self.decoded, len(self.valid))

    def test_a_value_is_read_from_the_middle_of_a_buffer(self) -> None:
        assert self.reader(b"\xff\xff\xff" + self.valid + b"\xee", 3) == (self.decoded, 3 + len(self.valid))

    def test_every_cut_prefix_underflows(self) -> None:
        for length in range(len(self.valid)):
            with pytest.raises(Underflow):
                self.reader(self.valid[:length], 0)

    def test_a_start_at_or_beyond_the_end_underflows(self) -> None:
        for beyond in (0, 1, 100):
            with pytest.raises(Underflow):
                self.reader(self.valid, len(self.valid) + beyond)


class NullableContract(ReaderContract):
    """For readers of lengths: ``nulls`` are forms of null, ``empty`` is the form of nothing."""

    nulls: ClassVar[tuple[bytes, ...]]
    empty: ClassVar[bytes]
    nothing: ClassVar[Any] = b""

    def test_null_and_empty_are_told_apart(self) -> None:
        for null in self.nulls:
            assert self.reader(null, 0) == (None, len(null))
        assert self.reader(self.empty, 0) == (self.nothing, len(self.empty))
