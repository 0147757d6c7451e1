"""Parquet files and Delta tables in the schema of Spark's Kafka source, or in our own raw schema, read file by file into raw rows.

Needed are the columns ``key`` and ``value`` (BINARY), ``partition`` and ``offset``; used where they are there: ``topic``, ``timestamp``,
``cluster``, ``producer_id``, ``producer_epoch``, ``is_transactional``, ``control_type``, ``leader_epoch`` (of the batch). All others are
left alone. The raw schema's own names (``offsets_partition``, ``record_offset``, ``record_timestamp_ms``) come first where both are there.
No Spark: pyarrow reads what delta-rs and the directory name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.directory import OFFSETS_TOPIC
from groupcoord_spark.log.storage import Location, first_line, shown
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from groupcoord_spark.sources.inputs import below, data_files
from groupcoord_spark.sources.rows import UNKNOWN_PARTITION, RowBatch, control_type_name, row_batch

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
OF_TRANSACTIONS: Final = ("producer_id", "is_transactional", "control_type")

_NO_PARTITION = "The row has no partition, or one that cannot be; nobody knows which record it is."
_NO_OFFSET = "The row has no offset, or a negative one; nobody knows which record it is."


@dataclass(frozen=True, slots=True)
class TablePiece:
    """Some row groups of one Parquet file. constants: columns whose value is in the path of the file or in the Delta log, as text."""

    uri: str
    size: int
    row_groups: tuple[int, ...]
    first_row: int
    constants: tuple[tuple[str, str | None], ...]

    @property
    def source(self) -> str:
        """The name of the file for output and tables, without secrets."""
        return shown(self.uri)


def plan_parquet(inputs: Sequence[str]) -> list[TablePiece]:
    """The pieces of Parquet files, and of directories of them (``name=value`` in a path is a column, as Spark writes partitions).

    Raises InputError for a file that is no Parquet, or without the columns that are needed.
    """
    pieces = []
    for given in inputs:
        top = Location.of(given)
        for file in data_files(top):
            relative = file.path.removeprefix(top.path).strip("/").split("/")[:-1]
            pairs = [part.split("=", 1) for part in relative if "=" in part]
            constants = tuple((name, None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)) for name, text in pairs)
            pieces += _pieces_of(file, constants)
    return pieces


def plan_delta(inputs: Sequence[str]) -> list[TablePiece]:
    """The pieces of the newest version of Delta tables.

    Raises InputError for a table that cannot be opened, or that its Parquet files alone do not tell (deleted rows, renamed columns).
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    pieces = []
    for given in inputs:
        top = Location.of(given)
        try:
            table = DeltaTable(top.uri)
            mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
            has_deletions = "deletionVectors" in (table.protocol().reader_features or []) and pa.table(table.deletion_vectors()).num_rows
            actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        except (DeltaError, OSError, ValueError) as error:
            raise InputError(f"{top.shown}: the Delta table cannot be opened: {first_line(error)}.") from error
        if mapping != "none" or has_deletions:
            what = "renames columns (delta.columnMapping.mode)" if mapping != "none" else "marks rows as deleted (deletion vectors)"
            raise InputError(
                f"{top.shown}: this Delta table {what}, and its files alone do not tell its rows. Write it to Parquet with Spark."
            )
        for action in sorted(actions, key=lambda action: str(action["path"])):
            values = {name.removeprefix("partition."): value for name, value in action.items() if name.startswith("partition.")}
            constants = tuple((name, None if value is None else str(value)) for name, value in values.items())
            pieces += _pieces_of(below(top, unquote(action["path"])), constants)
    return pieces


def _pieces_of(file: Location, constants: tuple[tuple[str, str | None], ...]) -> list[TablePiece]:
    with _opened(file) as parquet:
        names = [*parquet.schema_arrow.names, *(name for name, _ in constants)]
        _chosen(names, file.shown)
        pieces: list[TablePiece] = []
        groups: list[int] = []
        size = first_row = next_row = 0
        count = parquet.metadata.num_row_groups
        for group in range(count):
            metadata = parquet.metadata.row_group(group)
            groups.append(group)
            size += metadata.total_byte_size
            next_row += metadata.num_rows
            if size >= PIECE_BYTES or group == count - 1:
                pieces.append(TablePiece(file.uri, size, tuple(groups), first_row, constants))
                groups, size, first_row = [], 0, next_row
        return pieces


def _opened(file: Location) -> pq.ParquetFile:
    try:
        # Spark's 96-bit times may be beyond the range of 64-bit nanoseconds
        return pq.ParquetFile(file.filesystem.open_input_file(file.path), coerce_int96_timestamp_unit="us")
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


def read_table(piece: TablePiece) -> Iterator[RowBatch]:
    """The rows of a piece, some ten thousand at a time.

    Raises InputError for columns of another type than they must have, and where the file cannot be read.
    """
    file = Location.of(piece.uri)
    constants = dict(piece.constants)
    with _opened(file) as parquet:
        names = parquet.schema_arrow.names
        chosen = _chosen([*names, *constants], piece.source)
        wanted = [column for column in chosen.values() if column in names]
        at = piece.first_row
        try:
            for batch in parquet.iter_batches(ROWS_A_BATCH, row_groups=list(piece.row_groups), columns=wanted):
                columns = {
                    name: batch.column(column) if column in batch.schema.names else pa.repeat(pa.scalar(constants.get(column)), len(batch))
                    for name, column in chosen.items()
                }
                yield _rows(columns, piece.source, at, len(batch))
                at += len(batch)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{piece.source}: the rows cannot be read: {first_line(error)}.") from error


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
            "key": _bytes(columns["key"], "key", source),
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
    return RowBatch(
        rows,
        other_topics=others,
        without_transactions=0 if all(name in columns for name in OF_TRANSACTIONS) else n,
        without_timestamps=0 if TIMESTAMP in columns else n,
        without_leader_epochs=0 if LEADER_EPOCH in columns else n,
    )


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
