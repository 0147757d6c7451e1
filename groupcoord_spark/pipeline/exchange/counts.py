"""Counts of the records of each offsets partition. Each reader counts while it reads; the replay adds up the counts of all readers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

NO_KEY_TYPE = -1
"""In ``by_kind``: records whose key type cannot be read."""
NO_VERSION = -1
"""In ``by_kind``: tombstones, and values of unknown record types."""

# Key types and versions in this range are counted with np.bincount; others are rare and are counted one by one.
_TYPES, _VERSIONS = 32, 16


@dataclass(slots=True)
class KindCount:
    """Counts of one key type and value version. bytes: keys and values. misplaced: the group hashes to another partition."""

    records: int = 0
    bytes: int = 0
    decoded: int = 0
    misplaced: int = 0


@dataclass(slots=True)
class PartitionCounts:
    """Counts of one offsets partition, by one or more readers.

    first_offset, end_offset: the lowest record offset, and the highest plus one; None: none. lost: records in batches that cannot be
    read (bytes of unknown content count as one record). doubts: records or batches that were read with a warning.
    newest_timestamp_ms: None where no record has a timestamp. by_kind: (key type, value version) -> KindCount, without control records.
    counted_by_kind, counted_lost: of by_kind and lost the records that earlier nights have counted.
    reasons: reason of a quarantine -> number of records.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    newest_timestamp_ms: int | None = None
    bytes: int = 0
    control_records: int = 0
    lost: int = 0
    doubts: int = 0
    by_kind: dict[tuple[int, int], KindCount] = field(default_factory=dict)
    counted_by_kind: dict[tuple[int, int], KindCount] = field(default_factory=dict)
    counted_lost: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        """Number of all records: decoded + quarantined."""
        return self.decoded + self.quarantined

    @property
    def decoded(self) -> int:
        """Number of records that decode, with control records and records of unknown key type."""
        return self.control_records + sum(kind.decoded for kind in self.by_kind.values())

    @property
    def quarantined(self) -> int:
        """Number of records that do not decode or are lost with damaged batches."""
        return self.lost + sum(kind.records - kind.decoded for kind in self.by_kind.values())

    def reach(self, first_offset: int, end_offset: int) -> None:
        """Extend the range of record offsets, so that it has ``first_offset`` up to, not including, ``end_offset``."""
        self.first_offset = first_offset if self.first_offset is None else min(self.first_offset, first_offset)
        self.end_offset = end_offset if self.end_offset is None else max(self.end_offset, end_offset)

    def count_kinds(
        self,
        key_type: npt.NDArray[np.int16],
        value_version: npt.NDArray[np.int16],
        sizes: npt.NDArray[np.int64],
        decodes: npt.NDArray[np.bool_],
        is_misplaced: npt.NDArray[np.bool_],
        is_counted: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Count data records by key type and value version (-1: none). All arrays have one entry for each record; sizes are in bytes.

        is_counted: the records that earlier nights have counted; None: none are.
        """
        _count_kinds(self.by_kind, key_type, value_version, sizes, decodes, is_misplaced)
        if is_counted is not None and is_counted.any():
            of_counted = (key_type[is_counted], value_version[is_counted], sizes[is_counted])
            _count_kinds(self.counted_by_kind, *of_counted, decodes[is_counted], is_misplaced[is_counted])

    def add(self, other: PartitionCounts) -> None:
        """Add the counts of another reader of the same partition."""
        if other.first_offset is not None and other.end_offset is not None:
            self.reach(other.first_offset, other.end_offset)
        times = [time for time in (self.newest_timestamp_ms, other.newest_timestamp_ms) if time is not None]
        self.newest_timestamp_ms = max(times, default=None)
        self.bytes += other.bytes
        self.control_records += other.control_records
        self.lost += other.lost
        self.doubts += other.doubts
        self.counted_lost += other.counted_lost
        for mine, others in ((self.by_kind, other.by_kind), (self.counted_by_kind, other.counted_by_kind)):
            for kind, count in others.items():
                _add(mine, *kind, count.records, count.bytes, count.decoded, count.misplaced)
        self.reasons += other.reasons


def _count_kinds(
    by_kind: dict[tuple[int, int], KindCount],
    key_type: npt.NDArray[np.int16],
    value_version: npt.NDArray[np.int16],
    sizes: npt.NDArray[np.int64],
    decodes: npt.NDArray[np.bool_],
    is_misplaced: npt.NDArray[np.bool_],
) -> None:
    usual = (key_type >= NO_KEY_TYPE) & (key_type < _TYPES - 1) & (value_version >= NO_VERSION) & (value_version < _VERSIONS - 1)
    if not usual.all():
        for row in np.flatnonzero(~usual):
            _add(by_kind, key_type[row], value_version[row], 1, sizes[row], decodes[row], is_misplaced[row])
        key_type, value_version, sizes = key_type[usual], value_version[usual], sizes[usual]
        decodes, is_misplaced = decodes[usual], is_misplaced[usual]
    code = (key_type.astype(np.int64) + 1) * _VERSIONS + (value_version + 1)
    slots = _TYPES * _VERSIONS
    records = np.bincount(code, minlength=slots)
    total = np.bincount(code, weights=sizes, minlength=slots)
    decoded = records - np.bincount(code[~decodes], minlength=slots)
    misplaced = np.bincount(code[is_misplaced], minlength=slots)
    for slot in np.flatnonzero(records):
        _add(by_kind, slot // _VERSIONS - 1, slot % _VERSIONS - 1, records[slot], total[slot], decoded[slot], misplaced[slot])


def _add(
    by_kind: dict[tuple[int, int], KindCount], key_type: Any, value_version: Any, records: Any, size: Any, decoded: Any, misplaced: Any
) -> None:
    count = by_kind.setdefault((int(key_type), int(value_version)), KindCount())
    count.records += int(records)
    count.bytes += int(size)
    count.decoded += int(decoded)
    count.misplaced += int(misplaced)
