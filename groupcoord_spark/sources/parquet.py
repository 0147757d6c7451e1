"""Parquet files and Delta tables in the schema of Spark's Kafka source, or in our own raw schema, read file by file into raw rows.

Needed are the columns ``key`` and ``value`` (BINARY), ``partition`` and ``offset``; used where they are there: ``topic``, ``timestamp``,
``cluster``, ``producer_id``, ``producer_epoch``, ``is_transactional``, ``control_type``, ``leader_epoch`` (of the batch). All others are
left alone. The raw schema's own names (``offsets_partition``, ``record_offset``, ``record_timestamp_ms``) come first where both are there.

No Spark: workers read the files with pyarrow.dataset, because a row that comes through Java costs five times the CPU, and because Spark
needs packages for object stores and for Delta. Of what an earlier night has read, delta-rs leaves out files and pyarrow.dataset leaves out
row groups, both by their statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.files.storage import Location, first_line
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from groupcoord_spark.sources.inputs import below
from groupcoord_spark.sources.rows import (
    EVERY_ROW,
    LEADER_EPOCHS,
    NO_OFFSET,
    NO_PARTITION,
    ROW_SCHEMA,
    TIMESTAMPS,
    TRANSACTIONS,
    UNKNOWN_PARTITION,
    FilePiece,
    RowBatch,
    Wanted,
    control_type_name,
    cut,
    wanted_records,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROWS_A_BATCH: Final = 65_536
PIECE_BYTES: Final = 64 << 20
"""Bytes of a file that one task reads at least, where the file has as many."""

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

_FORMAT: Final = ds.ParquetFileFormat(
    # Spark's 96-bit times may be beyond the range of 64-bit nanoseconds. Spark writes checksums of pages.
    read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
)


def constants_of(directory: str) -> tuple[tuple[str, str | None], ...]:
    """The columns whose value is in a path, as Spark writes partitions (``name=value``)."""
    pairs = [part.split("=", 1) for part in directory.split("/") if "=" in part]
    return tuple((name, None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)) for name, text in pairs)


def is_told_by_its_files(inputs: Sequence[str]) -> bool:
    """Whether the files of these Delta tables tell all of their rows. Raises InputError for a table that cannot be opened."""
    return all(_not_in_its_files(_delta_table(Location.of(given))) is None for given in inputs)


def readable_table(top: Location) -> DeltaTable:
    """The newest version of a Delta table. Raises InputError where it cannot be opened, or its files alone do not tell its rows."""
    table = _delta_table(top)
    if what := _not_in_its_files(table):
        raise InputError(
            f"{top.shown}: this Delta table {what}, and its files alone do not tell its rows. Write it to Parquet with Spark, or"
            " read it with `groupcoord nightly`."
        )
    return table


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


def delta_pieces(top: Location, table: DeltaTable, wanted: Wanted) -> list[FilePiece]:
    """The pieces of the files that may have a wanted row, by the statistics of the Delta log; the files are not opened.

    Raises InputError where the table lacks a column that is needed.
    """
    actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path").to_pylist()
    schema = pa.schema(table.schema())
    chosen = _chosen(schema.names, top.shown) if actions else {}
    of_files = {unquote(action["path"]): action for action in actions}
    if wanted and actions and all(pa.types.is_integer(schema.field(chosen[field]).type) for field in (PARTITION, OFFSET)):
        uris = table.file_uris(file_pruning_predicate=_predicate(chosen, wanted))
        depths = {path.count("/") + 1 for path in of_files}
        kept = {"/".join(uri.split("/")[-depth:]) for uri in uris for depth in depths}
        of_files = {path: action for path, action in of_files.items() if path in kept}
    pieces = []
    for path, action in of_files.items():
        values = {name.removeprefix("partition."): value for name, value in action.items() if name.startswith("partition.")}
        constants = tuple((name, None if value is None else str(value)) for name, value in values.items())
        pieces += cut(below(top, path).uri, action["size_bytes"], PIECE_BYTES, constants)
    return pieces


def _predicate(chosen: Mapping[str, str], wanted: Wanted) -> str:
    """The condition for files with rows that are wanted, or have no place, as delta-rs takes it."""
    quoted = {field: '"' + column.replace('"', '""') + '"' for field, column in chosen.items()}
    partition, offset = quoted[PARTITION], quoted[OFFSET]
    not_wanted = [
        " AND ".join([f"{partition} = {number}", *(f"({offset} < {first} OR {offset} >= {end})" for first, end in ranges)])
        for number, ranges in wanted.items()
    ]
    of_wanted = f"(NOT (({') OR ('.join(not_wanted)})) OR {partition} IS NULL OR {offset} IS NULL OR {offset} < 0)"
    topic = quoted.get("topic")
    return of_wanted if topic is None else f"{of_wanted} AND ({topic} = '{OFFSETS_TOPIC}' OR {topic} IS NULL)"


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


def read_parquet(piece: FilePiece, wanted: Wanted = EVERY_ROW, *, with_bytes: bool = True) -> Iterator[RowBatch]:
    """The wanted rows of a piece, some ten thousand at a time. with_bytes: with keys and values.

    Raises InputError for a file that is no Parquet or lacks a column, for columns of another type than they must have, and where the file
    cannot be read.
    """
    file = Location.of(piece.uri)
    constants = dict(piece.constants)
    try:
        fragment = _FORMAT.make_fragment(file.path, file.filesystem)
        schema, metadata = fragment.physical_schema, fragment.metadata
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file.shown}: this is no Parquet file that can be read: {first_line(error)}.") from error
    chosen = _chosen([*schema.names, *constants], piece.source)
    columns_of = {field: column for field, column in chosen.items() if with_bytes or field not in ("key", "value")}

    def expression(field: str, kind: pa.DataType) -> pc.Expression:
        column = chosen[field]
        if column not in schema.names:
            return pc.scalar(pa.scalar(constants[column]).cast(kind))
        return pc.field(column) if schema.field(column).type.equals(kind) else pc.field(column).cast(kind)

    try:
        share = range(metadata.num_row_groups * piece.start // piece.size, metadata.num_row_groups * piece.end // piece.size)
        first_rows = np.cumsum([0, *(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))]).tolist()
        groups = fragment.subset(row_group_ids=list(share))
        if "topic" in chosen:
            topic = expression("topic", pa.string())
            groups, of_all_topics = groups.subset((topic == OFFSETS_TOPIC) | topic.is_null(), schema), groups
            if others := _row_count(of_all_topics) - _row_count(groups):
                yield RowBatch(pa.RecordBatch.from_pylist([], ROW_SCHEMA), others)
        is_wanted = None
        if wanted:
            is_wanted = wanted_records(wanted, expression(PARTITION, pa.int64()), expression(OFFSET, pa.int64()), methodcaller("is_null"))
        for group in groups.split_by_row_group(is_wanted, schema):
            # Statistics cannot tell where rows of several offsets partitions are mixed: the columns of the place are then read first.
            if is_wanted is not None and not group.count_rows(filter=is_wanted):
                continue
            at = first_rows[group.row_groups[0].id]
            in_file = [column for column in columns_of.values() if column in schema.names]
            for batch in group.to_batches(schema, columns=in_file, batch_size=ROWS_A_BATCH, batch_readahead=1):
                columns = {
                    field: batch.column(column) if column in in_file else pa.repeat(pa.scalar(constants[column], pa.string()), len(batch))
                    for field, column in columns_of.items()
                }
                yield _rows(columns, piece.source, at, len(batch)).wanted(wanted)
                at += len(batch)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{piece.source}: the rows cannot be read: {first_line(error)}.") from error


def _row_count(fragment: ds.ParquetFileFragment) -> int:
    return sum(group.num_rows for group in fragment.row_groups)


def _lacks(fields: Collection[str]) -> frozenset[str]:
    """What rows with these fields do not tell."""
    needed = {TRANSACTIONS: OF_TRANSACTIONS, TIMESTAMPS: (TIMESTAMP,), LEADER_EPOCHS: (LEADER_EPOCH,)}
    return frozenset(word for word, names in needed.items() if not all(name in fields for name in names))


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
    detail = pc.if_else(has_partition, pc.if_else(has_offset, pa.scalar(None, pa.string()), NO_OFFSET), NO_PARTITION)

    def optional(name: str, kind: pa.DataType, absent: Any) -> Any:
        if name not in columns:
            return pa.repeat(pa.scalar(absent, kind), n)
        typed = _typed(columns[name], kind, name, source)
        return typed if absent is None else pc.fill_null(typed, pa.scalar(absent, kind))

    rows = pa.RecordBatch.from_pydict(
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
        },
        ROW_SCHEMA,
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
