"""Notes about records of a chunk (faults, doubts, refusals) as columns. Each distinct note is made once, for however many records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.protocol.slices import Ints


class Note(Protocol):
    """A code and a sentence. ``DecodeError``, ``Doubt`` and ``Refusal`` are notes."""

    @property
    def code(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True, slots=True)
class RowNotes:
    """``m`` notes about rows of a chunk. A row may have no note, one or several.

    row: int64[m], ascending, the row that the note is about. note: int64[m], the position of the note's code and sentence in ``codes`` and
    ``details``, which have one entry for each distinct note: a million equal records make one entry.
    """

    row: Ints
    note: Ints
    codes: tuple[str, ...]
    details: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def none(cls) -> Self:
        """No notes at all."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), (), ())

    @classmethod
    def about_codes(cls, code: Ints, notes: Sequence[tuple[int, Note]]) -> Self:
        """The notes of all rows, from notes about what their codes stand for (a distinct key, or a distinct value).

        code: int64[n], the code of each row, -1 for none. notes: (code, note), ascending by code.
        """
        if not notes:
            return cls.none()
        noted = np.array([code_of_note for code_of_note, _ in notes], np.int64)
        first = np.searchsorted(noted, code, "left")
        count = np.searchsorted(noted, code, "right") - first
        row = np.repeat(np.arange(len(code)), count)
        place_in_row = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        codes, details = zip(*((note.code, note.detail) for _, note in notes), strict=True)
        return cls(row, np.repeat(first, count) + place_in_row, codes, details)

    @classmethod
    def same_for_rows(cls, rows: Ints, code: str, detail: str) -> Self:
        """The same note for each of the rows."""
        return cls(rows, np.zeros(len(rows), np.int64), (code,), (detail,)) if len(rows) else cls.none()

    @classmethod
    def concatenated(cls, parts: Iterable[RowNotes]) -> Self:
        """The notes of all parts, in the order of their rows."""
        some = [part for part in parts if len(part)]
        if not some:
            return cls.none()
        row = np.concatenate([part.row for part in some])
        begins = np.cumsum([0, *(len(part.codes) for part in some)])
        note = np.concatenate([part.note + begin for part, begin in zip(some, begins.tolist(), strict=False)])
        in_order = np.argsort(row, kind="stable")
        codes = tuple(code for part in some for code in part.codes)
        details = tuple(detail for part in some for detail in part.details)
        return cls(row[in_order], note[in_order], codes, details)

    def of_rows(self, rows: Ints) -> Self:
        """The same notes for rows of a larger chunk. rows: int64, ascending, the row number of each row in the larger chunk."""
        return type(self)(rows[self.row], self.note, self.codes, self.details)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """The chosen notes. chosen: bool[m]."""
        return type(self)(self.row[chosen], self.note[chosen], self.codes, self.details)

    def has_code(self, *wanted: str) -> npt.NDArray[np.bool_]:
        """bool[m]: the note has one of the wanted codes."""
        is_wanted: npt.NDArray[np.bool_] = np.array([*(code in wanted for code in self.codes), False], np.bool_)[self.note]
        return is_wanted

    def without_code(self, code: str) -> Self:
        """The notes with any other code."""
        return self.where(~self.has_code(code))

    def counts(self) -> Counter[str]:
        """Number of notes of each code."""
        counts: Counter[str] = Counter()
        for code, count in zip(self.codes, np.bincount(self.note, minlength=len(self.codes)).tolist(), strict=True):
            if count:
                counts[code] += count
        return counts

    def columns(self) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
        """The code and the sentence of each note."""
        encoded = [pa.array(texts, pa.string()).dictionary_encode() for texts in (self.codes, self.details)]
        codes, details = (pa.DictionaryArray.from_arrays(texts.indices.take(pa.array(self.note)), texts.dictionary) for texts in encoded)
        return codes, details
