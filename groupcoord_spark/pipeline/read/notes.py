"""Notes about records of a chunk (why records do not decode, doubts, refusals) as columns: work is done once for each distinct note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


class Note(Protocol):
    """A code and a sentence; ``DecodeError``, ``Finding`` and ``Refusal`` are notes."""

    @property
    def code(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True, slots=True)
class RowNotes:
    """Notes about rows of a chunk. A row may have several notes, or none.

    row: int64[m], ascending. note: int64[m], the place of the note of each in ``codes`` and ``details``, which have one entry for each
    distinct thing that notes are about: a million equal records make one entry.
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
    def of_things(cls, thing: Ints, notes: Sequence[tuple[int, Note]]) -> Self:
        """The notes of rows that stand for things. thing: int64, of each row, -1 for none; notes: (thing, note), ascending by thing."""
        if not notes:
            return cls.none()
        noted = np.array([each for each, _ in notes], np.int64)
        first = np.searchsorted(noted, thing, "left")
        count = np.searchsorted(noted, thing, "right") - first
        row = np.repeat(np.arange(len(thing)), count)
        place_in_row = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        codes, details = zip(*((note.code, note.detail) for _, note in notes), strict=True)
        return cls(row, np.repeat(first, count) + place_in_row, codes, details)

    @classmethod
    def same(cls, rows: Ints, code: str, detail: str) -> Self:
        """One note about each of the rows."""
        return cls(rows, np.zeros(len(rows), np.int64), (code,), (detail,)) if len(rows) else cls.none()

    @classmethod
    def joined(cls, parts: Iterable[RowNotes]) -> Self:
        """All of the notes, in the order of their rows."""
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
        """The same notes where the rows are rows of a greater chunk. rows: int64, ascending, the place of each row there."""
        return type(self)(rows[self.row], self.note, self.codes, self.details)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """Some of the notes."""
        return type(self)(self.row[chosen], self.note[chosen], self.codes, self.details)

    def has_code(self, *wanted: str) -> npt.NDArray[np.bool_]:
        """For each note whether its code is one of those wanted."""
        is_wanted: npt.NDArray[np.bool_] = np.array([*(code in wanted for code in self.codes), False], np.bool_)[self.note]
        return is_wanted

    def counts(self) -> Counter[str]:
        """Notes of each code."""
        counts: Counter[str] = Counter()
        for code, count in zip(self.codes, np.bincount(self.note, minlength=len(self.codes)).tolist(), strict=True):
            if count:
                counts[code] += count
        return counts

    def code_column(self) -> pa.DictionaryArray:
        """The code of each note."""
        return _column(self.codes, self.note)

    def detail_column(self) -> pa.DictionaryArray:
        """The sentence of each note."""
        return _column(self.details, self.note)


def _column(texts: Sequence[str], note: Ints) -> pa.DictionaryArray:
    distinct = pa.array(texts, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(pa.array(note)), distinct.dictionary)
