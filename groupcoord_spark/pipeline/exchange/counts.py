"""Counts of the records of each offsets partition. Each reader counts while it reads; the replay adds up the counts of all readers."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NO_KEY_TYPE = -1
"""In ``by_kind``: records whose key type cannot be read."""
NO_VERSION = -1
"""In ``by_kind``: tombstones, and values of unknown record types."""

Column = npt.NDArray[Any]
Kind = tuple[int, int]
"""(key type, value version)."""


@dataclass(slots=True)
class KindCount:
    """Counts of one key type and value version. bytes: keys and values. misplaced: the group hashes to another partition."""

    records: int = 0
    bytes: int = 0
    decoded: int = 0
    misplaced: int = 0

    def add(self, other: "KindCount") -> None:
        """Add the counts of other records."""
        self.records += other.records
        self.bytes += other.bytes
        self.decoded += other.decoded
        self.misplaced += other.misplaced


def add_kinds(sums: dict[Kind, KindCount], counts: dict[Kind, KindCount]) -> None:
    """Add the counts of other records to ``sums``."""
    for kind, count in counts.items():
        sums.setdefault(kind, KindCount()).add(count)


@dataclass(slots=True)
class PartitionCounts:
    """Counts of one offsets partition, by one or more readers.

    first_offset, end_offset: the lowest record offset, and the highest plus one; None: none. lost: records in batches that cannot be
    read (bytes of unknown content count as one record). doubts: records or batches that were read with a warning.
    newest_timestamp_ms: None where no record has a timestamp. by_kind: counts of all records but control records.
    new_by_kind, new_lost: of by_kind and lost the records that no earlier run has counted. reasons: reason of a quarantine -> number of
    records.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    newest_timestamp_ms: int | None = None
    bytes: int = 0
    control_records: int = 0
    lost: int = 0
    doubts: int = 0
    by_kind: dict[Kind, KindCount] = field(default_factory=dict)
    new_by_kind: dict[Kind, KindCount] = field(default_factory=dict)
    new_lost: int = 0
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

    def reach(self, first_offset: int, end_offset: int, newest_timestamp_ms: int | None) -> None:
        """Extend the range of record offsets, so that it has ``first_offset`` up to, not including, ``end_offset``, and the time."""
        self.first_offset = first_offset if self.first_offset is None else min(self.first_offset, first_offset)
        self.end_offset = end_offset if self.end_offset is None else max(self.end_offset, end_offset)
        times = [time for time in (self.newest_timestamp_ms, newest_timestamp_ms) if time is not None]
        self.newest_timestamp_ms = max(times, default=None)

    def add(self, other: "PartitionCounts") -> None:
        """Add the counts of another reader of the same partition."""
        if other.first_offset is not None and other.end_offset is not None:
            self.reach(other.first_offset, other.end_offset, other.newest_timestamp_ms)
        for name in ("bytes", "control_records", "lost", "doubts", "new_lost", "reasons"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        add_kinds(self.by_kind, other.by_kind)
        add_kinds(self.new_by_kind, other.new_by_kind)


def counts_by_kind(key_type: Column, value_version: Column, sizes: Column, decodes: Column, is_misplaced: Column) -> dict[Kind, KindCount]:
    """Count the data records by kind.

    Each column has one entry for each record: int16; int16, -1 for none; int64, bytes; bool; bool.
    """
    encoded = pa.array(key_type.astype(np.int32) << 16 | value_version.view(np.uint16)).dictionary_encode()
    kinds, code = encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
    sums = [np.bincount(code, weights, len(kinds)).astype(np.int64).tolist() for weights in (None, sizes, decodes, is_misplaced)]
    names = zip((kinds >> 16).tolist(), (kinds & 0xFFFF).astype(np.int16).tolist(), strict=True)
    return {name: KindCount(*counts) for name, *counts in zip(names, *sums, strict=True)}
