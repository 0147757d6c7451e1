"""What was read of each offsets partition: counted in the pass that does the work, added up where the pieces meet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

NO_KEY_TYPE = -1
"""Stands for records without a readable key."""
NO_VERSION = -1
"""Stands for values without one: tombstones, and values of record types that are not known."""

# Key types and versions in this range are counted by one pass over an array; anything else is rare.
_TYPES, _VERSIONS = 32, 16


@dataclass(slots=True)
class KindCount:
    """Records of one key type and value version. bytes: of keys and values. misplaced: in another partition than the group hashes to."""

    records: int = 0
    bytes: int = 0
    decoded: int = 0
    misplaced: int = 0


@dataclass(slots=True)
class PartitionCounts:
    """One offsets partition as far as one worker has seen it.

    first_offset, end_offset: least offset, and greatest plus one, over records and lost batches with a known place; None: nothing seen.
    lost: records in batches that could not be read (a range of unknown content counts as one). doubts: what was read with a warning.
    newest_timestamp_ms: None where no record carries a timestamp. by_kind: (key type, value version) -> KindCount; control records are
    counted apart. reasons: why records were quarantined.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    newest_timestamp_ms: int | None = None
    bytes: int = 0
    control_records: int = 0
    lost: int = 0
    doubts: int = 0
    by_kind: dict[tuple[int, int], KindCount] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        """Everything read: decoded + quarantined."""
        return self.decoded + self.quarantined

    @property
    def decoded(self) -> int:
        """Records that decoded, control records and records of unknown type (which are kept whole) among them."""
        return self.control_records + sum(kind.decoded for kind in self.by_kind.values())

    @property
    def quarantined(self) -> int:
        """Records that did not decode, and those lost with damaged batches."""
        return self.lost + sum(kind.records - kind.decoded for kind in self.by_kind.values())

    def reach(self, first_offset: int, end_offset: int) -> None:
        """Widen the span of offsets seen to hold ``first_offset`` up to and without ``end_offset``."""
        self.first_offset = first_offset if self.first_offset is None else min(self.first_offset, first_offset)
        self.end_offset = end_offset if self.end_offset is None else max(self.end_offset, end_offset)

    def count_kinds(
        self,
        key_type: npt.NDArray[np.int16],
        value_version: npt.NDArray[np.int16],
        sizes: npt.NDArray[np.int64],
        decodes: npt.NDArray[np.bool_],
        is_misplaced: npt.NDArray[np.bool_],
    ) -> None:
        """Count records by key type and value version (-1: none); arrays of one length, control records not among them."""
        usual = (key_type >= NO_KEY_TYPE) & (key_type < _TYPES - 1) & (value_version >= NO_VERSION) & (value_version < _VERSIONS - 1)
        if not usual.all():
            for row in np.flatnonzero(~usual):
                self._add(key_type[row], value_version[row], 1, sizes[row], decodes[row], is_misplaced[row])
            key_type, value_version, sizes = key_type[usual], value_version[usual], sizes[usual]
            decodes, is_misplaced = decodes[usual], is_misplaced[usual]
        code = (key_type.astype(np.int64) + 1) * _VERSIONS + (value_version + 1)
        slots = _TYPES * _VERSIONS
        records = np.bincount(code, minlength=slots)
        total = np.bincount(code, weights=sizes, minlength=slots)
        decoded = records - np.bincount(code[~decodes], minlength=slots)
        misplaced = np.bincount(code[is_misplaced], minlength=slots)
        for slot in np.flatnonzero(records):
            self._add(slot // _VERSIONS - 1, slot % _VERSIONS - 1, records[slot], total[slot], decoded[slot], misplaced[slot])

    def _add(self, key_type: Any, value_version: Any, records: Any, size: Any, decoded: Any, misplaced: Any) -> None:
        count = self.by_kind.setdefault((int(key_type), int(value_version)), KindCount())
        count.records += int(records)
        count.bytes += int(size)
        count.decoded += int(decoded)
        count.misplaced += int(misplaced)

    def add(self, other: PartitionCounts) -> None:
        """Take in what another worker saw of the same partition."""
        if other.first_offset is not None and other.end_offset is not None:
            self.reach(other.first_offset, other.end_offset)
        times = [each for each in (self.newest_timestamp_ms, other.newest_timestamp_ms) if each is not None]
        self.newest_timestamp_ms = max(times, default=None)
        self.bytes += other.bytes
        self.control_records += other.control_records
        self.lost += other.lost
        self.doubts += other.doubts
        for (key_type, version), kind in other.by_kind.items():
            self._add(key_type, version, kind.records, kind.bytes, kind.decoded, kind.misplaced)
        self.reasons += other.reasons
