"""Parquet files and Delta tables in the schema of Spark's Kafka source, or in our own raw schema, read file by file into raw rows.

Needed are the columns ``key`` and ``value`` (BINARY), ``partition`` and ``offset``; used where they are there: ``topic``, ``timestamp``,
``cluster``, ``producer_id``, ``producer_epoch``, ``is_transactional``, ``control_type``, ``leader_epoch`` (of the batch). All others are
left alone. The raw schema's own names (``offsets_partition``, ``record_offset``, ``record_timestamp_ms``) come first where both are there.
No Spark: pyarrow reads what delta-rs and the directory name.

A plan has a piece for each row group, with its extent where statistics tell it: those of a Delta table's log, without opening the file, or
those of a Parquet footer. So a run that goes on from an earlier one opens only what may have new rows. Where the extent is not known, the
columns of the place are read first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.files.object_store import at_once
from groupcoord_spark.log.files.storage import Location, first_line, shown, side_by_side
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from groupcoord_spark.sources.inputs import below, data_files
from groupcoord_spark.sources.rows import (
    EVERY_ROW,
    LEADER_EPOCHS,
    NO_ROWS,
    TIMESTAMPS,
    TRANSACTIONS,
    UNKNOWN_PARTITION,
    Extent,
    RowBatch,
    RowFilter,
    control_type_name,
    row_batch,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

PIECE_BYTES: Final = 64 << 20
"""Bytes of row groups in one piece, about."""
ROWS_A_BATCH: Final = 65_536

PARTITION, OFFSET, TIMESTAMP, LEADER_EPOCH = "partition", "offset", "timestamp", "leader_epoch"
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    PARTITION: ("offsets_partition", "partition"),
    OFFSET: ("record_offset", "offset"),
    TIMESTAMP: ("record_timestamp_ms", "timestamp"),
    "control_type": ("control_type", "control"),
    **{name: (name,) for name in ("key", "value", "topic", "cluster", "producer_id", "producer_epoch", "is_transactional", LEADER_EPOCH)},
}
"""Field -> names of the columns that may contain it; the first one that exists is read."""
NEEDED: Final = ("key", "value", PARTITION, OFFSET)
PLACE: Final = (PARTITION, OFFSET, "topic", "cluster")
"""The fields that say which record a row is."""
OF_TRANSACTIONS: Final = ("producer_id", "is_transactional", "control_type")

_CUT_TEXT: Final = 32
"""Characters from which a writer may have cut a text in its statistics."""

_NO_PARTITION = "The row has no partition, or one that cannot be; nobody knows which record it is."
_NO_OFFSET = "The row has no offset, or a negative one; nobody knows which record it is."


Constants = tuple[tuple[str, str | None], ...]
"""Columns whose value is in the path of a file or in the Delta log, as text."""


@dataclass(frozen=True, slots=True)
class TablePiece:
    """Some row groups of one Parquet file.

    Attributes:
        row_groups: None: all of the file, which was not opened yet.
        first_row: number of the first row in the file.
        constants: columns whose value is in the path of the file or in the Delta log, as text.
        rows: number of rows.
        extent: of its rows, where statistics tell it. has_our_topic: False where statistics say that all rows are of another topic.
        lacks: what its rows do not tell, because the file has no such columns.
    """

    uri: str
    size: int
    row_groups: tuple[int, ...] | None
    first_row: int
    constants: Constants
    rows: int = 0
    extent: Extent | None = None
    has_our_topic: bool = True
    lacks: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        """The name of the file for output and tables, without secrets."""
        return shown(self.uri)


@dataclass(frozen=True, slots=True)
class _Statistics:
    """Least and greatest value of a column among some rows; has_nulls: whether a row may have none."""

    least: Any
    greatest: Any
    has_nulls: bool

    @property
    def only_value(self) -> Any:
        """The value of all rows; None where they have several, or may have none."""
        return self.least if self.least == self.greatest and not self.has_nulls else None


def plan_parquet(inputs: Sequence[str]) -> list[TablePiece]:
    """The row groups of Parquet files, and of directories of them (``name=value`` in a path is a column, as Spark writes partitions).

    Raises InputError for a file that is no Parquet, or without the columns that are needed.
    """
    files: list[tuple[Location, Constants]] = []
    for given in inputs:
        top = Location.of(given)
        for file in data_files(top):
            relative = file.path.removeprefix(top.path).strip("/").split("/")[:-1]
            pairs = [part.split("=", 1) for part in relative if "=" in part]
            constants = tuple((name, None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)) for name, text in pairs)
            files.append((file, constants))
    return list(chain.from_iterable(_row_groups_of(files)))


def plan_delta(inputs: Sequence[str]) -> list[TablePiece]:
    """The files of the newest version of Delta tables: a file whose extent the Delta log tells is one piece, and is not opened.

    Raises InputError for a table that cannot be opened, or that its Parquet files alone do not tell (deleted rows, renamed columns).
    """
    from deltalake.exceptions import DeltaError

    pieces: list[TablePiece | None] = []
    to_open: list[tuple[Location, Constants]] = []
    for given in inputs:
        top = Location.of(given)
        table = _delta_table(top)
        if what := _not_in_its_files(table):
            raise InputError(
                f"{top.shown}: this Delta table {what}, and its files alone do not tell its rows. Write it to Parquet with Spark, or"
                " read it with `groupcoord nightly`."
            )
        try:
            actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
            names = [column.name for column in table.schema().fields]
        except (DeltaError, OSError, ValueError) as error:
            raise InputError(f"{top.shown}: the Delta table cannot be opened: {first_line(error)}.") from error
        chosen = _chosen(names, top.shown) if actions else {}
        for action in sorted(actions, key=lambda action: str(action["path"])):
            values = {name.removeprefix("partition."): value for name, value in action.items() if name.startswith("partition.")}
            constants = tuple((name, None if value is None else str(value)) for name, value in values.items())
            file = below(top, unquote(action["path"]))
            piece = _piece_of_action(file, action, constants, chosen)
            pieces.append(piece)
            if piece is None:
                to_open.append((file, constants))
    row_groups = iter(_row_groups_of(to_open))
    return [opened for piece in pieces for opened in ([piece] if piece is not None else next(row_groups))]


def needs_sparks_reader(inputs: Sequence[str]) -> bool:
    """Whether the files of one of the Delta tables do not tell its rows. Raises InputError for a table that cannot be opened."""
    return any(_not_in_its_files(_delta_table(Location.of(given))) for given in inputs)


def _delta_table(top: Location) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(top.uri)
    except (DeltaError, OSError, ValueError) as error:
        raise InputError(f"{top.shown}: the Delta table cannot be opened: {first_line(error)}.") from error


def _not_in_its_files(table: DeltaTable) -> str | None:
    """What the Delta log says of the rows and its Parquet files do not; None: they tell all."""
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return "renames columns (delta.columnMapping.mode)"
    if "deletionVectors" in (table.protocol().reader_features or []) and pa.table(table.deletion_vectors()).num_rows:
        return "marks rows as deleted (deletion vectors)"
    return None


def _piece_of_action(file: Location, action: Mapping[str, Any], constants: Constants, chosen: Mapping[str, str]) -> TablePiece | None:
    """The file as one piece, where the Delta log tells its extent; None: its row groups are the pieces."""
    rows = action.get("num_records")
    statistics = _of_constants(constants)
    for name in chosen.values():
        least, greatest, nulls = action.get(f"min.{name}"), action.get(f"max.{name}"), action.get(f"null_count.{name}")
        if None not in (least, greatest, nulls):
            statistics.setdefault(name, _Statistics(least, greatest, bool(nulls)))
    extent, has_our_topic = _extent(statistics, chosen, rows) if rows is not None else (None, True)
    if extent is None and has_our_topic:
        return None
    return TablePiece(file.uri, int(action["size_bytes"]), None, 0, constants, int(rows or 0), extent, has_our_topic, _lacks(chosen))


def _row_groups_of(files: Sequence[tuple[Location, Constants]]) -> list[list[TablePiece]]:
    """The row groups of each file. The footers are read side by side, because object stores answer slowly."""
    together = max((at_once(file.filesystem) for file, _ in files), default=1)
    return side_by_side(lambda of_file: _row_groups(*of_file), files, together)


def _row_groups(file: Location, constants: Constants) -> list[TablePiece]:
    """A piece for each row group of the file. Raises InputError as ``plan_parquet`` does."""
    with _opened(file) as parquet:
        chosen = _chosen([*parquet.schema_arrow.names, *(name for name, _ in constants)], file.shown)
        column_numbers = {parquet.schema.column(number).path: number for number in range(len(parquet.schema))}
        pieces: list[TablePiece] = []
        first_row = 0
        for group in range(parquet.metadata.num_row_groups):
            metadata = parquet.metadata.row_group(group)
            statistics = _of_constants(constants)
            for name in (chosen[field] for field in PLACE if chosen.get(field) in column_numbers):
                of_column = metadata.column(column_numbers[name]).statistics
                if of_column is not None and of_column.has_min_max and of_column.has_null_count:
                    statistics[name] = _Statistics(of_column.min, of_column.max, bool(of_column.null_count))
            extent, has_our_topic = _extent(statistics, chosen, metadata.num_rows)
            size = metadata.total_byte_size
            place = (file.uri, size, (group,), first_row, constants, metadata.num_rows)
            pieces.append(TablePiece(*place, extent, has_our_topic, _lacks(chosen)))
            first_row += metadata.num_rows
        return pieces


def joined(pieces: Iterable[TablePiece]) -> list[TablePiece]:
    """The pieces; consecutive row groups of one file become one piece of about PIECE_BYTES, whose extent is not known."""
    result: list[TablePiece] = []
    for piece in pieces:
        last = result[-1] if result else None
        follows = (
            last is not None
            and last.uri == piece.uri
            and last.size < PIECE_BYTES
            and last.row_groups is not None
            and piece.row_groups is not None
            and last.row_groups[-1] + 1 == piece.row_groups[0]
        )
        if last is not None and follows:
            groups = (*(last.row_groups or ()), *(piece.row_groups or ()))
            result[-1] = replace(last, size=last.size + piece.size, row_groups=groups, rows=last.rows + piece.rows, extent=None)
        else:
            result.append(piece)
    return result


def _of_constants(constants: Sequence[tuple[str, str | None]]) -> dict[str, _Statistics]:
    return {name: _Statistics(value, value, value is None) for name, value in constants}


def _extent(statistics: Mapping[str, _Statistics], chosen: Mapping[str, str], rows: int) -> tuple[Extent | None, bool]:
    """(the extent of rows, whether one of them may be of our topic); statistics: by column."""
    topic = statistics.get(chosen.get("topic", ""))
    if topic is not None and not topic.has_nulls and not str(topic.least) <= OFFSETS_TOPIC <= str(topic.greatest):
        return None, False
    of_fields = {field: statistics.get(chosen[field]) for field in PLACE if field in chosen}
    if None in of_fields.values() or ("topic" in of_fields and topic is not None and topic.only_value != OFFSETS_TOPIC):
        return None, True
    cluster, partition, offset = (of_fields.get(field) for field in ("cluster", PARTITION, OFFSET))
    try:
        if cluster is not None and (cluster.only_value is None or len(cluster.only_value) >= _CUT_TEXT):
            return None, True
        if partition is None or partition.only_value is None or offset is None or offset.has_nulls:
            return None, True
        if offset.only_value is None and not isinstance(offset.least, int):  # as texts, 10 comes before 9
            return None, True
        number, first, end = int(partition.only_value), int(offset.least), int(offset.greatest) + 1
    except (TypeError, ValueError):
        return None, True
    if not 0 <= number < 2**31 or first < 0:
        return None, True
    return Extent(None if cluster is None else cluster.only_value, number, first, end, rows), True


def _lacks(fields: Collection[str]) -> frozenset[str]:
    """What rows with these fields do not tell."""
    needed = {TRANSACTIONS: OF_TRANSACTIONS, TIMESTAMPS: (TIMESTAMP,), LEADER_EPOCHS: (LEADER_EPOCH,)}
    return frozenset(word for word, names in needed.items() if not all(name in fields for name in names))


def _opened(file: Location) -> pq.ParquetFile:
    try:
        source = file.filesystem.open_input_file(file.path)
        # Spark's 96-bit times may be beyond the range of 64-bit nanoseconds. Spark writes checksums of pages.
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file.shown}: this is no Parquet file that can be read: {first_line(error)}.") from error


def _chosen(names: Sequence[str], source: str) -> dict[str, str]:
    """Field -> the column that contains it. Raises InputError if a required column is missing."""
    by_lower = {name.lower(): name for name in names}
    chosen = {}
    for wanted, aliases in ALIASES.items():
        column = next((by_lower[alias] for alias in aliases if alias in by_lower), None)
        if column is not None:
            chosen[wanted] = column
    missing = [name for name in NEEDED if name not in chosen]
    if missing:
        raise InputError(
            f"{source}: there is no column {', '.join(map(repr, missing))}. Rows of the offsets topic are needed as Spark's Kafka source"
            " gives them: key, value, partition, offset, and topic and timestamp where they are known."
        )
    return chosen


def read_table(piece: TablePiece, wanted: RowFilter = EVERY_ROW, *, only_places: bool = False) -> Iterator[RowBatch]:
    """The wanted rows of a piece, some ten thousand at a time. only_places: without keys, values and all else that a place does not need.

    Of a row group without any wanted row only the columns of the place are read.

    Raises InputError for columns of another type than they must have, and where the file cannot be read.
    """
    file = Location.of(piece.uri)
    constants = dict(piece.constants)
    with _opened(file) as parquet:
        names = parquet.schema_arrow.names
        chosen = _chosen([*names, *constants], piece.source)

        def batches_of(groups: Sequence[int], fields: Iterable[str], at: int) -> Iterator[RowBatch]:
            columns_of = {field: chosen[field] for field in fields if field in chosen}
            in_file = [column for column in columns_of.values() if column in names]
            for batch in parquet.iter_batches(ROWS_A_BATCH, row_groups=list(groups), columns=in_file):
                columns = {
                    field: batch.column(column) if column in batch.schema.names else pa.repeat(pa.scalar(constants.get(column)), len(batch))
                    for field, column in columns_of.items()
                }
                yield _rows(columns, piece.source, at, len(batch))
                at += len(batch)

        def wanted_groups(groups: Iterable[int]) -> Iterator[tuple[int, int, RowBatch | None]]:
            """(row group, its first row, where none of its rows is wanted what is to be counted)"""
            at = piece.first_row
            for group in groups:
                rows = parquet.metadata.row_group(group).num_rows
                if wanted.takes_every_row:
                    yield group, at, None
                else:
                    places = [wanted.filtered(batch) for batch in batches_of([group], PLACE, at)]
                    is_wanted = any(batch.rows.num_rows for batch in places)
                    yield group, at, None if is_wanted else _counts(places, chosen)
                at += rows

        try:
            groups = range(parquet.metadata.num_row_groups) if piece.row_groups is None else piece.row_groups
            for is_wanted, parts in groupby(wanted_groups(groups), key=lambda part: part[2] is None):
                if not is_wanted:
                    yield from (counts for _, _, counts in parts if counts is not None)
                    continue
                of_file = [(group, at) for group, at, _ in parts]
                for batch in batches_of([group for group, _ in of_file], PLACE if only_places else chosen, of_file[0][1]):
                    yield wanted.filtered(batch)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{piece.source}: the rows cannot be read: {first_line(error)}.") from error


def _counts(places: Sequence[RowBatch], chosen: Mapping[str, str]) -> RowBatch:
    """The counts of a row group of which no row is wanted, as a batch without rows."""
    left_out = tuple(extent for batch in places for extent in batch.left_out)
    others = sum(batch.other_topics for batch in places)
    return RowBatch(NO_ROWS, others, _lacks(chosen), left_out)


def _rows(columns: Mapping[str, Any], source: str, first_row: int, n: int) -> RowBatch:
    """The raw rows of one batch of a table."""
    others = 0
    position = pa.array(np.arange(first_row, first_row + n))
    if "topic" in columns:
        is_ours = pc.fill_null(pc.equal(_typed(columns["topic"], pa.string(), "topic", source), OFFSETS_TOPIC), True)
        others = n - int(pc.sum(is_ours).as_py() or 0)
        if others:
            columns = {name: column.filter(is_ours) for name, column in columns.items()}
            position = position.filter(is_ours)
            n -= others
    partition = _typed(columns[PARTITION], pa.int64(), PARTITION, source)
    offset = _typed(columns[OFFSET], pa.int64(), OFFSET, source)
    has_partition = pc.fill_null(pc.and_(pc.greater_equal(partition, 0), pc.less(partition, 2**31)), False)
    has_offset = pc.fill_null(pc.greater_equal(offset, 0), False)
    fault = pc.if_else(pc.and_(has_partition, has_offset), pa.scalar(None, pa.string()), "row_without_place")
    detail = pc.if_else(has_partition, pc.if_else(has_offset, pa.scalar(None, pa.string()), _NO_OFFSET), _NO_PARTITION)

    def optional(name: str, kind: pa.DataType, absent: Any) -> Any:
        if name not in columns:
            return pa.repeat(pa.scalar(absent, kind), n)
        typed = _typed(columns[name], kind, name, source)
        return typed if absent is None else pc.fill_null(typed, pa.scalar(absent, kind))

    rows = row_batch(
        {
            "cluster": optional("cluster", pa.string(), None),
            "offsets_partition": pc.if_else(has_partition, partition, UNKNOWN_PARTITION).cast(pa.int32()),
            "record_offset": pc.if_else(has_offset, offset, pa.scalar(None, pa.int64())),
            "record_timestamp_ms": _milliseconds(columns.get(TIMESTAMP), n, source),
            "key": _bytes(columns["key"], "key", source) if "key" in columns else pa.nulls(n, pa.binary()),
            "value": _bytes(columns["value"], "value", source) if "value" in columns else pa.nulls(n, pa.binary()),
            "producer_id": optional("producer_id", pa.int64(), NO_PRODUCER_ID),
            "producer_epoch": optional("producer_epoch", pa.int16(), NO_PRODUCER_EPOCH),
            "is_transactional": optional("is_transactional", pa.bool_(), False),
            "control_type": _control_types(columns.get("control_type"), n, source),
            "source": pa.repeat(source, n),
            "position": position,
            LEADER_EPOCH: optional(LEADER_EPOCH, pa.int32(), NO_LEADER_EPOCH),
            "fault": fault,
            "detail": detail,
        }
    )
    return RowBatch(rows, others, _lacks(columns) if n else frozenset())


def _typed(column: Any, kind: pa.DataType, name: str, source: str) -> Any:
    try:
        return column.cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{source}: the column {name} is {column.type}, and does not fit {kind}: {first_line(error)}.") from error


def _bytes(column: Any, name: str, source: str) -> Any:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    raise InputError(
        f"{source}: the column {name} is {column.type}. It must be BINARY, the bytes as they are in the topic: text loses some of them"
        " (base64 belongs into lines of JSON)."
    )


def _milliseconds(column: Any, n: int, source: str) -> Any:
    """Epoch milliseconds. Numbers already are milliseconds; times without a zone are UTC."""
    if column is None:
        return pa.repeat(pa.scalar(NO_TIMESTAMP, pa.int64()), n)
    if pa.types.is_timestamp(column.type):
        # Times before 1970 are rounded down, so that Kafka's -1 stays -1.
        column = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    return pc.fill_null(_typed(column, pa.int64(), TIMESTAMP, source), NO_TIMESTAMP)


def _control_types(column: Any, n: int, source: str) -> Any:
    """COMMIT, ABORT, the number of another control type, or NULL. The column may also contain the numbers that brokers store."""
    if column is None or pa.types.is_null(column.type):
        return pa.nulls(n, pa.string())
    if pa.types.is_integer(column.type):
        texts = [None if number is None else control_type_name(number) for number in column.to_pylist()]
        return pa.array(texts, pa.string())
    return _typed(column, pa.string(), "control_type", source)
