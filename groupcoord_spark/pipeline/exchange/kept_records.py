"""The rows from the readers to the replay: kept records as packed Arrow batches, and a report for each offsets partition."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.coordinator.offset_events import OpenQuestions
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.counts import PartitionCounts
from groupcoord_spark.pipeline.exchange.packing import pack, unpack_batch
from groupcoord_spark.protocol.slices import Mask, Slices
from groupcoord_spark.sources.rows import RAW_SCHEMA
from groupcoord_spark.warehouse import AddedFile

SHUFFLED = "cluster STRING, offsets_partition INT, first_offset BIGINT, kind STRING, payload BINARY"
"""Rows from the readers to the replay. kind says what the payload is:

- ``records``: kept records, as one packed batch of KEPT;
- ``new_group_records``: the group records that are new to the history, with their leader epochs, for the table ``rebalances``; only of
  partitions whose records several readers have;
- ``offset_changes``: the changes of committed offsets that may be events, of the same partitions;
- ``rows``: raw rows as they came, one packed batch of ROW_SCHEMA in the order of their record offsets; the replay reads them;
- the name of a table: packed rows of it, where the reader of the records has no files of its own to write;
- ``facts``: a piece of a pickled PartitionGatherer, with its number among the pieces: what the sequence says of the topic's health;
- ``report``: a pickled PieceReport.
"""

SHUFFLED_ARROW = pa.schema(
    {"cluster": pa.string(), "offsets_partition": pa.int32(), "first_offset": pa.int64(), "kind": pa.string(), "payload": pa.binary()}
)

RECORDS, NEW_GROUP_RECORDS, OFFSET_CHANGES = "records", "new_group_records", "offset_changes"
ROWS, FACTS, REPORT = "rows", "facts", "report"


class ShuffledRow(NamedTuple):
    """One row of SHUFFLED, without its cluster. payload: bytes, or a batch that is packed where the row leaves the task."""

    offsets_partition: int
    first_offset: int
    kind: str
    payload: bytes | pa.RecordBatch

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "Iterator[ShuffledRow]":
        """Yield the rows of a batch of SHUFFLED. Each payload is copied only when its row comes."""
        *others, payloads = (batch.column(name) for name in cls._fields)
        return map(cls, *(column.to_pylist() for column in others), (payload.as_py() for payload in payloads))

    @property
    def batch(self) -> pa.RecordBatch:
        """The payload as a batch of records or rows."""
        return unpack_batch(self.payload) if isinstance(self.payload, bytes) else self.payload

    @property
    def packed(self) -> bytes:
        """The payload in bytes."""
        return self.payload if isinstance(self.payload, bytes) else pack(self.payload)


REPORT_ORDER = -1
"""The ``first_offset`` of a report: reports sort before all records of their partition."""

ROW_BYTES = 4 << 20
"""Bytes of records in one row of SHUFFLED, about: no row is too large for the JVM."""

_AS_IN_RAW_ROWS = ("record_offset", "record_timestamp_ms", "key", "value", "producer_id", "producer_epoch", "is_transactional")
KEPT = pa.schema([*map(RAW_SCHEMA.field, _AS_IN_RAW_ROWS), pa.field("control_type", pa.int8()), pa.field("decodes", pa.bool_())])
"""The columns of kept records. control_type: NOT_A_CONTROL_RECORD for data. decodes: the reader could decode the record."""


class OffsetQuestions(NamedTuple):
    """The offset events of one offsets partition that only the whole run can judge.

    removals: Rows of offset_events in Kafka's values, with the columns had_subscriber and may_be_group, packed: they wait for all others.
    """

    open: OpenQuestions
    removals: bytes


@dataclass(slots=True)
class PieceReport:
    """What one reader reports about one offsets partition. The files of the reader's whole task are in one of its reports.

    warnings: rows of the table warnings about records that a loader refuses in any state; refusals: how many of them are refusals
    (LoadWarning.is_refusal). With a point in time also: records_after_complete, the records from ``complete_until`` on;
    records_from_history, the records that were read from the history tables. lacks: words of LACKING, for some of the rows.
    """

    counts: PartitionCounts = field(default_factory=PartitionCounts)
    topic_names: dict[str, str] = field(default_factory=dict)
    files: dict[str, list[AddedFile]] = field(default_factory=dict)
    warnings: int = 0
    refusals: int = 0
    records_after_complete: int = 0
    records_from_history: int = 0
    offset_questions: OffsetQuestions | None = None
    """About offset events, where the reader judges those of its offsets partition."""
    lacks: frozenset[str] = frozenset()


def kept_records(records: Records, rows: npt.NDArray[np.int64], decodes: Mask) -> pa.RecordBatch:
    """Return the records in ``rows`` as a batch of KEPT. ``decodes`` is bool[n] for all ``records``."""
    columns = (
        records.record_offset[rows],
        records.timestamp_ms[rows],
        records.key.take(rows).to_arrow(),
        records.value.take(rows).to_arrow(),
        records.producer_id[rows],
        records.producer_epoch[rows],
        records.is_transactional[rows],
        records.control_type[rows],
        decodes[rows],
    )
    return pa.RecordBatch.from_arrays([pa.array(column, kind.type) for column, kind in zip(columns, KEPT, strict=True)], schema=KEPT)


def records_of_kept(batch: pa.RecordBatch) -> tuple[Records, Mask]:
    """(records, decodes) of a batch of KEPT."""
    records = records_of(batch, batch.column("control_type").to_numpy(), np.zeros(batch.num_rows, np.int64))
    return records, batch.column("decodes").to_numpy(zero_copy_only=False)


def records_of(batch: pa.RecordBatch, control_type: npt.NDArray[np.int8], position: npt.NDArray[np.int64]) -> Records:
    """Return the records of a batch of KEPT or of raw rows. Control types and positions are passed separately, because they differ."""

    def column(name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
        return values

    return Records(
        record_offset=column("record_offset"),
        timestamp_ms=column("record_timestamp_ms"),
        key=Slices.from_arrow(batch.column("key")),
        value=Slices.from_arrow(batch.column("value")),
        producer_id=column("producer_id"),
        producer_epoch=column("producer_epoch"),
        is_transactional=column("is_transactional"),
        control_type=control_type,
        position=position,
    )


def rows_of_parts(offsets_partition: int, kind: str, parts: list[pa.RecordBatch], row_bytes: int = ROW_BYTES) -> Iterator[ShuffledRow]:
    """Yield rows of SHUFFLED with the records, or table rows, of consecutive ``parts``, each with about ``row_bytes``."""
    for part in batches_of_size(parts, row_bytes):
        first_offset = part.column(0)[0].as_py() if kind in (RECORDS, NEW_GROUP_RECORDS, OFFSET_CHANGES) else REPORT_ORDER
        yield ShuffledRow(offsets_partition, first_offset, kind, part)


def batches_of_size(parts: list[pa.RecordBatch], row_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the same records in batches of about ``row_bytes``; a single record may be larger."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        step = max(1, int(part.num_rows * row_bytes / max(part.nbytes, row_bytes)))
        for begin in range(0, part.num_rows, step):
            cut = part.slice(begin, step)
            if gathered and size + cut.nbytes > row_bytes:
                yield as_one(gathered)
                gathered, size = [], 0
            gathered.append(cut)
            size += cut.nbytes
    if gathered:
        yield as_one(gathered)


def as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of at least one batch as one batch; a single batch is not copied. ``pa.concat_batches`` needs pyarrow 19."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays([pa.concat_arrays(parts) for parts in columns], schema=batches[0].schema)


def empty_batch() -> pa.RecordBatch:
    """Return a batch of KEPT without rows."""
    return pa.RecordBatch.from_pylist([], schema=KEPT)


def to_spark(cluster: str, rows: Iterable[ShuffledRow]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one cluster as packed batches of SHUFFLED, each as soon as it is ready."""
    for row in rows:
        values = (cluster, row.offsets_partition, row.first_offset, row.kind, row.packed)
        columns = [pa.array([value], column.type) for value, column in zip(values, SHUFFLED_ARROW, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=SHUFFLED_ARROW)
