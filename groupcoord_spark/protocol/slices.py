"""Many byte strings in one buffer: the form of keys and values until they are decoded. No byte is copied on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.protocol import fast_path

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_INT32_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Slices:
    """``n`` byte strings, null or not, as ranges of ``data``: string i is ``data[start[i]:end[i]]``.

    Attributes:
        data: uint8, one dimension.
        start, end: int64[n], ``0 <= start <= end <= len(data)``. Rows may lie in any order and may overlap.
        is_null: bool[n]. A null row has start == end.
    """

    data: Bytes
    start: Positions
    end: Positions
    is_null: Mask

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[Any]) -> "Slices":
        """Return the rows of a boolean mask or of indices without copying bytes."""
        return Slices(self.data, self.start[rows], self.end[rows], self.is_null[rows])

    def lengths(self) -> Positions:
        """Return the number of bytes of each row, 0 for null."""
        return self.end - self.start

    def leading_int16(self) -> npt.NDArray[np.int16]:
        """Return the int16 in the first two bytes of each row, or -1 if the row is null or shorter."""
        leading = np.full(len(self), -1, np.int16)
        has_two = ~self.is_null & (self.lengths() >= 2)
        at = self.start[has_two]
        leading[has_two] = self.data[at].astype(np.int16) << 8 | self.data[at + 1]
        return leading

    def row(self, i: int) -> bytes | None:
        """Return row ``i`` as bytes, or None for null."""
        return None if self.is_null[i] else self.data[self.start[i] : self.end[i]].tobytes()

    def to_arrow(self) -> pa.Array:
        """Return the strings as an Arrow ``binary`` array, or ``large_binary`` above 2 GiB. Each byte is copied once.

        Raises IndexError where a row does not lie within ``data``.
        """
        size = int(self.lengths().sum())
        layout = pa.binary() if size <= _INT32_LIMIT else pa.large_binary()
        if not (loops := fast_path.loops_for(len(self))):
            return pa.array([self.row(i) for i in range(len(self))], layout)
        offsets = np.zeros(len(self) + 1, np.int32 if size <= _INT32_LIMIT else np.int64)
        np.cumsum(self.lengths(), out=offsets[1:])
        gathered = np.empty(max(size, 0), np.uint8)  # a row that ends before it begins is refused below
        if not loops.gather(self.data, words_of(self.data), self.start, self.end, gathered, words_of(gathered)):
            raise IndexError("a row lies beyond the buffer of its bytes")
        valid = pa.array(~self.is_null).buffers()[1] if self.is_null.any() else None
        return pa.Array.from_buffers(layout, len(self), [valid, pa.py_buffer(offsets), pa.py_buffer(gathered)])

    def distinct(self) -> tuple[Positions, pa.BinaryArray]:
        """Return the code of each row's string (int64[n], -1 for null) and the distinct strings in order of first occurrence.

        Raises IndexError where a row does not lie within ``data``.
        """
        encoded = self.to_arrow().dictionary_encode()
        return codes_of(encoded), encoded.dictionary.cast(pa.binary())

    @staticmethod
    def from_arrow(array: pa.Array) -> "Slices":
        """Return the rows of a ``binary``, ``large_binary``, ``string`` or ``large_string`` array without copying bytes.

        Raises TypeError for an array of another type.
        """
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
    def of(rows: list[bytes | None]) -> "Slices":
        """Build rows from a list of byte strings, for tests and small inputs."""
        return Slices.from_arrow(pa.array(rows, pa.binary()))


class Columns:
    """The base of dataclasses with slots whose fields are columns of one length: numpy arrays, and Slices."""

    __slots__: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(getattr(self, self.__slots__[0]))

    def take(self, rows: Any) -> Self:
        """Return the rows of a mask, indices or a slice; no byte of Slices is copied."""
        columns = (getattr(self, name) for name in self.__slots__)
        return type(self)(*(column.take(rows) if isinstance(column, Slices) else column[rows] for column in columns))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the rows of at least one part. No part has Slices."""
        columns = ([getattr(part, name) for part in parts] for name in cls.__slots__)
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, columns))


def words_of(data: Bytes) -> npt.NDArray[np.int64]:
    """int64, the eight bytes at each position of ``data`` as one number, without a copy."""
    return np.ndarray((max(len(data) - 7, 0),), np.int64, data.data, 0, (1,))


def codes_of(encoded: pa.DictionaryArray) -> Positions:
    """Return the dictionary index of each row's value as int64, or -1 for null."""
    codes: Positions = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
