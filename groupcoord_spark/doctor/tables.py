"""Tables that grow chunk by chunk with one row for each key or producer, and are merged when they have become large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.doctor.facts import Ints, ProducerFacts
from groupcoord_spark.protocol.slices import Mask, Slices

_ROWS_BEFORE_MERGE: Final = 1 << 20
"""A table is merged when it has this many rows more than after the merge before: a few hundred MB at most for logs of few keys."""

NONE: Final = -1


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Keys as rows of one length.

    Attributes:
        key: the bytes of the key.
        group: int64, the number of the key's group; -1 where the key does not decode.
        is_offset: bool, a key of an offset commit.
        last_offset, last_bytes, last_is_tombstone: of the last record with the key.
        first_committed, last_committed: the committed offsets of the first and last commit with the key; NO_COMMIT where there is none.
    """

    key: pa.BinaryArray
    group: Ints
    is_offset: Mask
    last_offset: Ints
    last_bytes: Ints
    last_is_tombstone: Mask
    first_committed: Ints
    last_committed: Ints

    def __len__(self) -> int:
        return len(self.group)

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """All columns but the key."""
        return tuple(getattr(self, name) for name in KeyRows.__slots__ if name != "key")


NO_COMMIT: Final = -(2**63)
"""In columns of committed offsets: there is no commit. Clients do not commit this offset."""


class KeyTable:
    """The last record of each key over all chunks.

    repeats: called with the groups of commits that repeat the committed offset of the commit before, which an earlier chunk has.
    """

    def __init__(self, repeats: Callable[[Ints], None]) -> None:
        self._repeats = repeats
        self._parts: list[KeyRows] = []
        self._rows = self._merged_rows = 0

    def add(self, rows: KeyRows) -> None:
        """Add the keys of a chunk; later chunks have later records."""
        self._parts.append(rows)
        self._rows += len(rows)
        if self._rows > 2 * self._merged_rows + _ROWS_BEFORE_MERGE:
            self.merged()

    def absorb(self, other: KeyTable, group_numbers: Ints) -> None:
        """Add the rows of another table. group_numbers: the number that each of its groups has here."""
        for part in other._parts:
            self.add(replace(part, group=np.append(group_numbers, NONE)[part.group]))

    def merged(self) -> KeyRows | None:
        """One row for each key; None where there is no key."""
        if len(self._parts) > 1:
            keys = pa.concat_arrays([part.key for part in self._parts])
            group, is_offset, last_offset, last_bytes, is_tombstone, first, last = (
                np.concatenate(columns) for columns in zip(*(part.columns() for part in self._parts), strict=True)
            )
            code, distinct = Slices.from_arrow(keys).distinct()
            order = np.lexsort((last_offset, code))
            ordered_code = code[order]
            is_first, is_last = _run_borders(ordered_code)
            after_first = np.flatnonzero(~is_first)
            repeated = (first[order[after_first]] == last[order[after_first - 1]]) & (first[order[after_first]] != NO_COMMIT)
            self._repeats(group[order[after_first[repeated]]])
            at, begins = order[is_last], order[is_first]
            self._parts = [
                KeyRows(distinct, group[at], is_offset[at], last_offset[at], last_bytes[at], is_tombstone[at], first[begins], last[at])
            ]
            self._rows = self._merged_rows = len(at)
        return self._parts[0] if self._parts else None


@dataclass(slots=True)
class ProducerTable:
    """What each producer wrote to a segment, in the order in which the parts come; one part has rows of one segment."""

    _parts: list[dict[str, Ints]] = field(default_factory=list)
    _rows: int = 0
    _merged_rows: int = 0

    def add(self, segment_base: int, columns: dict[str, Ints]) -> None:
        """Add rows of a chunk: one for each data batch or marker, with -1 in the columns that it does not have."""
        self._parts.append(_reduced({"segment_base": np.full(len(columns["producer_id"]), segment_base), **columns}))
        self._rows += len(self._parts[-1]["producer_id"])
        if self._rows > 2 * self._merged_rows + _ROWS_BEFORE_MERGE:
            self.by_segment()

    def absorb(self, other: ProducerTable) -> None:
        """Add the rows of another table."""
        self._parts += other._parts
        self._rows += other._rows
        if len(self._parts) > 1:
            self.by_segment()

    def by_segment(self) -> dict[str, Ints]:
        """A row for each producer and segment, sorted by producer and segment."""
        if len(self._parts) != 1:
            names = ("segment_base", *ProducerFacts.__slots__)
            nothing = [{name: np.zeros(0, np.int64) for name in names}]
            parts = self._parts or nothing
            self._parts = [_reduced({name: np.concatenate([part[name] for part in parts]) for name in names})]
            self._rows = self._merged_rows = len(self._parts[0]["producer_id"])
        return self._parts[0]

    def facts(self) -> ProducerFacts:
        """A row for each producer."""
        rows = dict(self.by_segment())
        rows["segment_base"] = np.zeros(len(rows["producer_id"]), np.int64)
        return ProducerFacts(**{name: column for name, column in _reduced(rows).items() if name != "segment_base"})


_WITH_MARKER = ("marker_timestamp_ms", "marker_epoch", "marker_type")


def _reduced(columns: dict[str, Ints]) -> dict[str, Ints]:
    """One row for each producer and segment: sums of markers, the last marker, and the highest of everything else."""
    if not len(columns["producer_id"]):
        return columns
    order = np.lexsort((columns["marker_offset"], columns["segment_base"], columns["producer_id"]))
    columns = {name: column[order] for name, column in columns.items()}
    changes = np.zeros(len(order), np.bool_)
    changes[0] = True
    for name in ("producer_id", "segment_base"):
        changes[1:] |= columns[name][1:] != columns[name][:-1]
    begins = np.flatnonzero(changes)
    ends = np.append(begins[1:], len(order)) - 1
    reduced = {name: columns[name][begins] for name in ("producer_id", "segment_base")}
    # sorted by the offset of the marker: the last row of each run has the last marker
    reduced |= {name: columns[name][ends] for name in ("marker_offset", *_WITH_MARKER)}
    reduced |= {name: np.maximum.reduceat(columns[name], begins) for name in ("highest_epoch", "last_data_offset")}
    reduced["markers"] = np.add.reduceat(columns["markers"], begins)
    return reduced


def _run_borders(sorted_codes: Ints) -> tuple[Mask, Mask]:
    """bool[n] twice: the row is the first of its code, and the last of its code."""
    differs = sorted_codes[1:] != sorted_codes[:-1]
    return np.concatenate(([True], differs)), np.concatenate((differs, [True]))
