"""The one schema of raw rows that every input is read into, with the place of each row, and with the rows that are not records.

No Spark here. A row that cannot be a record (no place, not base64, not JSON) keeps what is known of it and says why: it is counted and
quarantined like a damaged batch of a segment, never dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, methodcaller, or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.log import Code, DamageKind
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, MarkerType
from groupcoord_spark.storage.location import shown

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
"""One raw row for each record, whatever the input: times in epoch milliseconds (-1: none), producer_id and epoch -1 for none,
control_type NULL, COMMIT, ABORT or the number of another type. leader_epoch: of the record's batch, -1 where it is not known.
position: where it is in its source, in a segment the byte of the record's batch, in lines of JSON the byte of the line, in a table's
file the number of the row; NULL in a topic."""

FILLED_IN: Final = "groupcoord.filled_in"
"""In the metadata of a column that ``decode`` made: the frame that was decoded does not have the column."""

SOURCE: Final = "DataFrame"
"""The source of rows whose frame does not name their files."""

ABSENT: Final[Mapping[str, Any]] = {
    "record_timestamp_ms": NO_TIMESTAMP,
    "producer_id": NO_PRODUCER_ID,
    "producer_epoch": NO_PRODUCER_EPOCH,
    "is_transactional": False,
    "leader_epoch": NO_LEADER_EPOCH,
    "source": SOURCE,
}
"""Column -> its value where an input or a row does not have it; NULL in the other columns."""

ROW_SCHEMA = pa.schema([*RAW_SCHEMA, ("fault", pa.string()), ("detail", pa.string())])
"""Raw rows on their way through a run. fault: a code of ROW_CODES where the row is not a record; detail: its sentence. Such a row has its
place as far as it is known (offsets_partition -1 where that is not), key and value, or the line as its value."""

_MARKER_NAMES: Final = {marker.value: marker.name for marker in MarkerType}

UNKNOWN_PARTITION: Final = -1
"""The offsets partition of rows that do not say theirs."""

NO_PARTITION: Final = "The row has no partition, or an impossible one; nobody knows which record it is."
NO_OFFSET: Final = "The row has no offset, or a negative one; nobody knows which record it is."

ROW_CODES: dict[str, Code] = {
    code.name: code
    for code in (
        Code("row_without_place", DamageKind.LOST, "A row has no partition or no offset, so nobody knows which record it is."),
        Code("row_malformed", DamageKind.LOST, "A line is not a JSON object, or a field of the row does not hold what it must."),
        Code("line_too_long", DamageKind.LOST, "A line is longer than the limit."),
        Code("offset_conflict", DamageKind.LOST, "Another row has the same partition and offset and other bytes; that one is taken."),
        Code("row_duplicate", DamageKind.INFO, "Rows are there more than once, byte for byte; one of each is taken."),
        Code("other_topic", DamageKind.INFO, "Rows are of other topics; they are not read."),
        Code("other_cluster", DamageKind.INFO, "Rows are of other clusters; they are not read."),
        Code("earlier_incarnation", DamageKind.INFO, "Rows are of an earlier incarnation of the topic; they are not read."),
        Code("value_absent", DamageKind.INFO, "Lines have a key and no field for a value: they are read as tombstones."),
        Code("value_empty", DamageKind.INFO, "Texts of values are empty: they are read as tombstones."),
        Code("timestamp_unit", DamageKind.INFO, "Timestamps are in seconds, microseconds or nanoseconds; they are read as such."),
        Code("timestamp_implausible", DamageKind.WARN, "Timestamps are before 2014 or after 2099 in every unit."),
        Code("transactions_unknown", DamageKind.WARN, "The input does not tell which records are of transactions, nor how those ended."),
    )
}
"""All codes of rows that are quarantined or doubted before their bytes are decoded, by name."""


TRANSACTIONS, TIMESTAMPS, LEADER_EPOCHS = LACKING = ("transactions", "timestamps", "leader_epochs")
"""What rows may lack, in the words of ``input.lacks`` in ``runs``."""

VALUE_THERE: Final = "value_there"
"""Counts the lines that have a field for a value."""

LOG: Final = "log"
"""The word for an input that has no record of the log at all."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """The part of a file that one task reads: the lines, or the share of the row groups, from the byte ``start`` on up to ``end``.

    size: bytes of the whole file. constants: columns whose value is in the path of the file or in the Delta log, as text.
    """

    uri: str
    start: int
    end: int
    size: int
    constants: tuple[tuple[str, str | None], ...] = ()

    @property
    def source(self) -> str:
        """The name of the file for output and tables, without secrets."""
        return shown(self.uri)


def cut(uri: str, size: int, piece_bytes: int, constants: tuple[tuple[str, str | None], ...] = ()) -> list[FilePiece]:
    """Yield the pieces of a file of ``size`` bytes."""
    return [FilePiece(uri, start, min(start + piece_bytes, size), size, constants) for start in range(0, size, piece_bytes)]


@dataclass(frozen=True, slots=True)
class RowBatch:
    """A batch of rows of the offsets topic, and what the input does not contain.

    rows: of ROW_SCHEMA. other_topics: rows left out because they are of other topics. lacks: words of LACKING, for some of the rows.
    topics: names of some of the other topics. counts: number of rows by a code of ROW_CODES, and by VALUE_THERE.
    """

    rows: pa.RecordBatch
    other_topics: int = 0
    lacks: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)

    def wanted(self, wanted: "Wanted") -> "RowBatch":
        """Return the batch without unwanted records."""
        of_batch = {number: wanted[number] for number in pc.unique(self.rows["offsets_partition"]).to_pylist() if number in wanted}
        if not of_batch:
            return self
        is_wanted = wanted_records(of_batch, pc.field("offsets_partition"), pc.field("record_offset"), methodcaller("is_null"))
        if isinstance(wanted, WithNewer):
            is_wanted |= pc.field("record_timestamp_ms") > wanted.newer_than_ms
        # Rows that are not records are read every night: nothing in such a row says whether an earlier run has seen it.
        return replace(self, rows=self.rows.filter(is_wanted | pc.field("fault").is_valid()))


Wanted = Mapping[int, Sequence[tuple[int, int]]]
"""Offsets partition -> the ranges of record offsets, from the first up to, not including, the end, whose records are wanted. Of an offsets
partition that is not among them all records are."""


EVERY_INCARNATION: Final[Mapping[int, int]] = {}


def of_incarnation(batch: RowBatch, begins_ms: Mapping[int, int]) -> RowBatch:
    """Return the batch without the records of earlier incarnations of the topic.

    begins_ms: offsets partition -> begin of the incarnation that is read; records without a timestamp stay.
    """
    if not begins_ms:
        return batch
    time = pc.field("record_timestamp_ms")
    is_earlier = reduce(
        or_, ((pc.field("offsets_partition") == number) & (time < begin) & (time > NO_TIMESTAMP) for number, begin in begins_ms.items())
    )
    return replace(batch, rows=batch.rows.filter(~is_earlier | pc.field("fault").is_valid()))


class WithNewer(dict[int, Sequence[tuple[int, int]]]):
    """Wanted ranges, and every record with a timestamp after ``newer_than_ms``, whatever its offset."""

    newer_than_ms: int


EVERY_ROW: Final[Wanted] = {}
NO_END: Final = 2**63 - 1


def from_offsets(offsets: Mapping[int, int]) -> Wanted:
    """Return the range from an offset on. offsets: by offsets partition."""
    return {number: ((offset, NO_END),) for number, offset in offsets.items()}


def wanted_records(wanted: Wanted, partition: Any, offset: Any, is_null: Callable[[Any], Any]) -> Any:
    """Return the condition for rows that are wanted, or have no place, as an expression of Arrow or a column of Spark.

    It is made of comparisons alone, so that readers of Parquet and Delta skip files and row groups by their statistics.

    Args:
        wanted: of one offsets partition at least.
        partition, offset: the columns of the place. is_null: whether a column has no value.
    """
    not_wanted = [
        reduce(and_, ((offset < first) | (offset >= end) for first, end in ranges), partition == number)
        for number, ranges in wanted.items()
    ]
    return ~reduce(or_, not_wanted) | is_null(partition) | is_null(offset) | (offset < 0)


def control_type_name(control_type: int) -> str | None:
    """COMMIT, ABORT, or the number of another control type; None for data records, whose control type is negative."""
    return None if control_type < 0 else _MARKER_NAMES.get(control_type, str(control_type))
