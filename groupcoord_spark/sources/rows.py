"""The one schema of raw rows that every input is read into, with the place of each row, and with the rows that are no records.

No Spark here. A row that cannot be a record (no place, not base64, not JSON) keeps what is known of it and says why: it is counted and
quarantined like a damaged batch of a segment, never dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from groupcoord_spark.log import Code, Kind
from groupcoord_spark.protocol.record_types import MarkerType

RAW_COLUMNS = (
    "cluster STRING, offsets_partition INT, record_offset BIGINT, record_timestamp_ms BIGINT, key BINARY, value BINARY, "
    "producer_id BIGINT, producer_epoch SMALLINT, is_transactional BOOLEAN, control_type STRING, source STRING, position BIGINT, "
    "leader_epoch INT"
)
"""One raw row for each record, whatever the input: times in epoch milliseconds (-1: none), producer_id and epoch -1 for none,
control_type NULL, COMMIT, ABORT or the number of another type. leader_epoch: of the record's batch,
-1 where it is not known. position: where it is in its source, in a segment the byte of the record's
batch, in lines of JSON the byte of the line, in a table's file the number of the row; NULL in a topic."""

RAW_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("offsets_partition", pa.int32()),
        ("record_offset", pa.int64()),
        ("record_timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("is_transactional", pa.bool_()),
        ("control_type", pa.string()),
        ("source", pa.string()),
        ("position", pa.int64()),
        ("leader_epoch", pa.int32()),
    ]
)

ROW_COLUMNS = RAW_COLUMNS + ", fault STRING, detail STRING"
"""Raw rows on their way through a run. fault: a code of ROW_CODES where the row is no record; detail: its sentence. Such a row has what is
known of its place (offsets_partition -1 where that is not), key and value, or the line as its value."""

ROW_SCHEMA = pa.schema([*RAW_SCHEMA, ("fault", pa.string()), ("detail", pa.string())])

_MARKER_NAMES: Final = {marker.value: marker.name for marker in MarkerType}

UNKNOWN_PARTITION: Final = -1
"""The offsets partition of rows that do not say theirs."""

ROW_CODES: dict[str, Code] = {
    code.name: code
    for code in (
        Code("row_without_place", Kind.LOST, "A row has no partition or no offset, so nobody knows which record it is."),
        Code("row_malformed", Kind.LOST, "A line is no JSON object, or a field of it does not hold what it must."),
        Code("line_too_long", Kind.LOST, "A line is longer than the limit."),
        Code("offset_conflict", Kind.LOST, "Another row has the same partition and offset and other bytes; that one is taken."),
        Code("row_duplicate", Kind.INFO, "Rows are there more than once, byte for byte; one of each is taken."),
        Code("other_topic", Kind.INFO, "Rows are of other topics; they are not read."),
        Code("other_cluster", Kind.INFO, "Rows are of other clusters; they are not read."),
        Code("transactions_unknown", Kind.WARN, "The input does not tell which records are of transactions, nor how those ended."),
    )
}
"""All codes of rows that are quarantined or doubted before their bytes are decoded, by name."""


TRANSACTIONS, TIMESTAMPS, LEADER_EPOCHS = LACKING = ("transactions", "timestamps", "leader_epochs")
"""What rows may not contain, in the words of ``input.lacks`` in ``runs``."""

LOG: Final = "log"
"""The word for an input that has no record of the log at all."""


class InputKind(StrEnum):
    """The kind of an input, as stored in ``runs``."""

    SEGMENTS = "segments"
    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    KAFKA = "kafka"
    DATAFRAME = "dataframe"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows of one offsets partition: their number, and the record offsets from ``first_offset`` up to, not including, ``end_offset``.

    cluster: the name in the rows; None: they name none.
    """

    cluster: str | None
    offsets_partition: int
    first_offset: int
    end_offset: int
    rows: int


@dataclass(frozen=True, slots=True)
class RowBatch:
    """A batch of rows of the offsets topic, and counts of what the input does not contain.

    rows: of ROW_SCHEMA. other_topics: rows left out because they are of other topics. lacks: what some of the rows do not tell, of LACKING.
    left_out: the rows that a RowFilter left out.
    """

    rows: pa.RecordBatch
    other_topics: int = 0
    lacks: frozenset[str] = frozenset()
    left_out: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows are wanted: the new ones, with all that are no records, and those at some record offsets.

    ends: offsets partition -> record offset from which rows are new; of a partition that is not there every row is new. takes_new: False:
    only the rows at ``offsets`` are wanted. offsets: offsets partition -> record offsets.
    """

    ends: Mapping[int, int] = field(default_factory=dict)
    offsets: Mapping[int, Collection[int]] = field(default_factory=dict)
    takes_new: bool = True

    @property
    def takes_every_row(self) -> bool:
        """Nothing is left out."""
        return self.takes_new and not self.ends

    def wants_of(self, extent: Extent) -> bool:
        """Whether a row of the extent may be wanted."""
        is_new = self.takes_new and extent.end_offset > self.ends.get(extent.offsets_partition, 0)
        wanted = self.offsets.get(extent.offsets_partition, ())
        return is_new or any(extent.first_offset <= offset < extent.end_offset for offset in wanted)

    def filtered(self, batch: RowBatch) -> RowBatch:
        """The wanted rows of the batch; the others are in ``left_out``."""
        rows = batch.rows
        if self.takes_every_row or not rows.num_rows:
            return batch
        is_record = rows.column("fault").is_null().to_numpy(zero_copy_only=False)
        offsets = rows.column("record_offset").fill_null(-1).to_numpy(zero_copy_only=False)
        numbers, number = np.unique(rows.column("offsets_partition").to_numpy(zero_copy_only=False), return_inverse=True)
        is_wanted = np.zeros(rows.num_rows, np.bool_)
        if self.takes_new:
            ends = np.array([self.ends.get(int(each), 0) for each in numbers], np.int64)
            # Rows that are no records are read every night: nothing tells whether an earlier night has seen them.
            is_wanted = ~is_record | (offsets >= ends[number])
        for place, each in enumerate(numbers.tolist()):
            if each in self.offsets:
                is_wanted |= (number == place) & np.isin(offsets, np.array(list(self.offsets[each]), np.int64))
        if is_wanted.all():
            return batch
        left_out = extents_of(rows.filter(pa.array(is_record & ~is_wanted)))
        return replace(batch, rows=rows.filter(pa.array(is_wanted)), left_out=(*batch.left_out, *left_out))


EVERY_ROW: Final = RowFilter()


def extents_of(rows: pa.RecordBatch) -> tuple[Extent, ...]:
    """The extent of the rows of each cluster and offsets partition. rows: records, of ROW_SCHEMA."""
    by_place = pa.Table.from_batches([rows.select(["cluster", "offsets_partition", "record_offset"])]).group_by(
        ["cluster", "offsets_partition"]
    )
    extents = by_place.aggregate([("record_offset", "min"), ("record_offset", "max"), ("record_offset", "count")])
    return tuple(
        Extent(row["cluster"], row["offsets_partition"], row["record_offset_min"], row["record_offset_max"] + 1, row["record_offset_count"])
        for row in extents.to_pylist()
    )


def row_batch(columns: dict[str, Any]) -> pa.RecordBatch:
    """Columns of ROW_SCHEMA as a batch."""
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA)


NO_ROWS: Final = row_batch({name: [] for name in ROW_SCHEMA.names})


def control_type_name(control_type: int) -> str | None:
    """COMMIT, ABORT, or the number of another control type; None for data records, whose control type is negative."""
    return None if control_type < 0 else _MARKER_NAMES.get(control_type, str(control_type))
