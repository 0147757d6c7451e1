"""Many byte strings that lie in one buffer: how keys and values travel before anybody needs them as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.protocol import machine_code

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_INT32_LIMIT = 2**31 - 1
_BUFFER_BITS = 30
"""A view's place is an int32: what lies further on in ``data`` is reached by a buffer that begins later."""
_FEWEST_SLOTS = 1 << 13
_PREFIX = 4
_INLINE = 12


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
        """The same strings as one Arrow ``binary`` array (``large_binary`` above 2 GiB), which copies each byte once."""
        if not len(self):
            return pa.array([], pa.binary())
        size = int(self.lengths().sum())
        if machine_code.is_at_hand(len(self)):
            return self._gathered(size)
        return self._views().cast(pa.binary() if size <= _INT32_LIMIT else pa.large_binary())

    def distinct(self) -> tuple[Positions, pa.BinaryArray]:
        """For each row the place of its string among the distinct ones, int64, -1 where it is null; and these, as they first come."""
        if not len(self):
            return np.zeros(0, np.int64), pa.array([], pa.binary())
        if machine_code.is_at_hand(len(self)):
            code, first = self._codes()
            return code, self.take(first).to_arrow().cast(pa.binary())
        encoded = self._views().dictionary_encode()
        return codes_of(encoded), encoded.dictionary.cast(pa.binary())

    def _codes(self) -> tuple[Positions, Positions]:
        """For each row the place of its string among the distinct ones, -1 where it is null; and the rows where these first come."""
        from groupcoord_spark.protocol import loops

        code, first, hashes = (np.empty(len(self), np.int64) for _ in range(3))
        words = _words(self.data)
        row = found = 0
        slots = _FEWEST_SLOTS
        while row < len(self):
            empty = np.full(slots, -1)
            row, found = loops.distinct(self.data, words, self.start, self.end, self.is_null, row, found, empty, code, first, hashes)
            slots *= 4
        return code, first[:found]

    def _gathered(self, size: int) -> pa.Array:
        from groupcoord_spark.protocol import loops

        offsets = np.zeros(len(self) + 1, np.int32 if size <= _INT32_LIMIT else np.int64)
        np.cumsum(self.lengths(), out=offsets[1:])
        gathered = np.empty(size, np.uint8)
        loops.gather(self.data, _words(self.data), self.start, self.end, gathered, _words(gathered))
        buffers = [self._valid(), pa.py_buffer(offsets), pa.py_buffer(gathered)]
        return pa.Array.from_buffers(pa.binary() if size <= _INT32_LIMIT else pa.large_binary(), len(self), buffers)

    def _valid(self) -> pa.Buffer | None:
        return pa.array(~self.is_null).buffers()[1] if self.is_null.any() else None

    def _views(self) -> pa.Array:
        """An Arrow ``binary_view`` array of at least one row that copies nothing but short strings.

        A view is four words of 32 bits: the length, the first four bytes, the number of a buffer and the place there; one of up to twelve
        bytes holds them all itself.
        """
        data, start, lengths = self.data, self.start, self.lengths()
        if len(data) < _PREFIX:
            data = np.append(data, np.zeros(_PREFIX, np.uint8))
        views = np.empty((len(self), 4), np.int32)
        views[:, 0] = lengths
        views[:, 1] = np.ndarray((len(data) - _PREFIX + 1,), "<i4", data.data, 0, (1,))[np.minimum(start, len(data) - _PREFIX)]
        views[:, 2] = start >> _BUFFER_BITS
        views[:, 3] = start & ((1 << _BUFFER_BITS) - 1)
        views[lengths == 0, 1:] = 0
        short = np.flatnonzero((lengths > 0) & (lengths <= _INLINE))
        if len(short):
            place = np.arange(_INLINE)
            inline = data[np.minimum(start[short, np.newaxis] + place, len(data) - 1)]
            inline[place >= lengths[short, np.newaxis]] = 0
            views.view(np.uint8).reshape(len(self), 16)[short, 4:] = inline
        buffers = [pa.py_buffer(data[at:]) for at in range(0, len(data), 1 << _BUFFER_BITS)]
        return pa.Array.from_buffers(pa.binary_view(), len(self), [self._valid(), pa.py_buffer(views), *buffers])

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


def _words(data: Bytes) -> npt.NDArray[np.int64]:
    """What lies at each place, as eight bytes."""
    return np.ndarray((max(len(data) - 7, 0),), np.int64, data.data, 0, (1,))


def codes_of(encoded: pa.DictionaryArray) -> Positions:
    """For each row the place of its value in the dictionary, int64; -1 where it is null."""
    codes: Positions = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
