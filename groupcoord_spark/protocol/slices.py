"""Many byte strings that lie in one buffer: how keys and values travel before anybody needs them as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_INT32_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Slices:
    """``n`` byte strings, null or not, as places in ``data``: string i is ``data[start[i]:end[i]]``.

    data: uint8, one dimension. start, end: int64 of length n, ``0 <= start <= end <= len(data)``. is_null: bool of length n;
    a null row has start == end, at a place that means nothing. Rows may lie in any order and may overlap.
    """

    data: Bytes
    start: Positions
    end: Positions
    is_null: Mask

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[Any]) -> Slices:
        """The rows named by a boolean mask or by indices; no byte is copied."""
        return Slices(self.data, self.start[rows], self.end[rows], self.is_null[rows])

    def lengths(self) -> Positions:
        """Bytes of each row; 0 for null."""
        return self.end - self.start

    def row(self, i: int) -> bytes | None:
        """Row ``i`` as bytes, or None where it is null."""
        return None if self.is_null[i] else self.data[self.start[i] : self.end[i]].tobytes()

    def to_arrow(self) -> pa.Array:
        """The same strings as one Arrow ``binary`` array (``large_binary`` above 2 GiB), which copies each byte once.

        Rows in ascending places (as records of one chunk are) are cut out of the buffer by Arrow itself: offsets
        start0, end0, start1, end1, ... make an array in which every second element is the gap, and ``take`` leaves the gaps out.
        """
        n = len(self)
        if n == 0:
            return pa.array([], pa.binary())
        start, end = self.start, self.end
        if self.is_null.any():
            # a null row lies where the last row before it ended, so that the places still ascend
            reached = np.maximum.accumulate(np.where(self.is_null, 0, end))
            start, end = np.where(self.is_null, reached, start), np.where(self.is_null, reached, end)
        places = np.empty(2 * n, np.int64)
        places[0::2], places[1::2] = start, end
        if np.any(places[1:] < places[:-1]):
            return self._gather()
        wide = len(self.data) > _INT32_LIMIT
        offsets = places if wide else places.astype(np.int32)
        layout = pa.large_binary() if wide else pa.binary()
        with_gaps = pa.Array.from_buffers(layout, 2 * n - 1, [None, pa.py_buffer(offsets), pa.py_buffer(self.data)])
        rows = np.arange(0, 2 * n - 1, 2, dtype=np.int64 if wide else np.int32)
        return with_gaps.take(pa.array(rows, mask=self.is_null) if self.is_null.any() else pa.array(rows))

    def _gather(self) -> pa.Array:
        lengths = self.lengths()
        total = int(lengths.sum())
        ends = np.cumsum(lengths)
        source = np.repeat(self.start - (ends - lengths), lengths) + np.arange(total)
        wide = total > _INT32_LIMIT
        offsets = np.zeros(len(self) + 1, np.int64 if wide else np.int32)
        offsets[1:] = ends
        valid = pa.array(~self.is_null).buffers()[1] if self.is_null.any() else None
        layout = pa.large_binary() if wide else pa.binary()
        return pa.Array.from_buffers(layout, len(self), [valid, pa.py_buffer(offsets), pa.py_buffer(self.data[source])])

    @staticmethod
    def from_arrow(array: pa.Array) -> Slices:
        """The rows of a ``binary``, ``large_binary``, ``string`` or ``large_string`` array, without a copy of their bytes."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        if not wide and not pa.types.is_binary(array.type) and not pa.types.is_string(array.type):
            raise TypeError(f"Slices are made of binary arrays, not of {array.type}")
        _, offsets_buffer, data_buffer = array.buffers()
        if len(array) == 0 or offsets_buffer is None:
            nothing = np.zeros(0, np.int64)
            return Slices(np.zeros(0, np.uint8), nothing, nothing, np.zeros(0, np.bool_))
        width = np.int64 if wide else np.int32
        offsets = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
        is_null = np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
        start, end = offsets[:-1], offsets[1:]
        return Slices(data, start, np.where(is_null, start, end), is_null)

    @staticmethod
    def of(rows: list[bytes | None]) -> Slices:
        """Slices of Python byte strings; for tests and small inputs."""
        return Slices.from_arrow(pa.array(rows, pa.binary()))
