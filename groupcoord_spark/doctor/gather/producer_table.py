"""What each producer wrote to each segment: rows that grow chunk by chunk, and are merged when they have become many."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from groupcoord_spark.doctor.facts import ProducerFacts
from groupcoord_spark.doctor.gather.group_table import NONE
from groupcoord_spark.log import Records
from groupcoord_spark.log.decode.batches import Headers
from groupcoord_spark.protocol.slices import Ints

_ROWS_BEFORE_MERGE: Final = 1 << 20
"""The table is merged when it has this many rows more than after the merge before."""


@dataclass(slots=True)
class ProducerTable:
    """Statistics of each producer and segment, in the order of the parts; one part has rows of one segment."""

    _parts: list[dict[str, Ints]] = field(default_factory=list)
    _rows: int = 0
    _merged_rows: int = 0

    def add_data(self, segment_base: int, headers: Headers, last_offset: Ints) -> None:
        """Add data batches of a segment, with their last offsets."""
        producer_epoch = headers["producer_epoch"].astype(np.int64)
        self._add(segment_base, headers["producer_id"].astype(np.int64), highest_epoch=producer_epoch, last_data_offset=last_offset)

    def add_markers(self, segment_base: int, markers: Records) -> None:
        """Add COMMIT and ABORT markers of a segment."""
        self._add(
            segment_base,
            markers.producer_id,
            marker_offset=markers.record_offset,
            marker_timestamp_ms=markers.timestamp_ms,
            marker_epoch=markers.producer_epoch.astype(np.int64),
            marker_type=markers.control_type.astype(np.int64),
            markers=np.ones(len(markers), np.int64),
        )

    def _add(self, segment_base: int, producer_id: Ints, **columns: Ints) -> None:
        """Add a row for each data batch or marker, with -1 in the columns that it does not have."""
        none = np.full(len(producer_id), NONE)
        rows = dict.fromkeys(ProducerFacts.__slots__, none) | {"markers": none + 1, "segment_base": none + 1 + segment_base}
        rows |= {"producer_id": producer_id, **columns}
        self._parts.append(_reduced(rows))
        self._rows += len(self._parts[-1]["producer_id"])
        if self._rows > 2 * self._merged_rows + _ROWS_BEFORE_MERGE:
            self.by_segment()

    def absorb(self, later: "ProducerTable") -> None:
        """Add the rows of another table."""
        self._parts += later._parts
        self._rows += later._rows
        if len(self._parts) > 1:
            self.by_segment()

    def by_segment(self) -> dict[str, Ints]:
        """Return one row for each producer and segment, sorted by producer and segment."""
        if len(self._parts) != 1:
            names = ("segment_base", *ProducerFacts.__slots__)
            nothing = [{name: np.zeros(0, np.int64) for name in names}]
            parts = self._parts or nothing
            self._parts = [_reduced({name: np.concatenate([part[name] for part in parts]) for name in names})]
            self._rows = self._merged_rows = len(self._parts[0]["producer_id"])
        return self._parts[0]

    def marker_epochs(self) -> dict[int, int]:
        """Producer id -> the highest epoch among the last markers in its segments; -1 where it has no marker."""
        rows = self.by_segment()
        order = np.argsort(rows["marker_epoch"], kind="stable")
        return dict(zip(rows["producer_id"][order].tolist(), rows["marker_epoch"][order].tolist(), strict=True))

    def facts(self) -> ProducerFacts:
        """Return one row for each producer."""
        rows = dict(self.by_segment())
        rows["segment_base"] = np.zeros(len(rows["producer_id"]), np.int64)
        return ProducerFacts(**{name: column for name, column in _reduced(rows).items() if name != "segment_base"})


_WITH_MARKER = ("marker_timestamp_ms", "marker_epoch", "marker_type")


def _reduced(columns: dict[str, Ints]) -> dict[str, Ints]:
    """Return one row for each producer and segment: sums of markers, the last marker, and the maximum of all other columns."""
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
