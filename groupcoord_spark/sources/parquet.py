"""Parquet files and Delta tables in the schema of Spark's Kafka source, or in our own raw schema, read file by file into raw rows.

Needed are the columns ``key`` and ``value`` (BINARY), ``partition`` and ``offset``; the others of ``sources/columns.py`` are used where
they are there, but for ``source`` and ``position``. All others are left alone.

No Spark: workers read the files with pyarrow.dataset, because a row that comes through Java costs five times the CPU, and because Spark
needs packages for object stores and for Delta. Of what an earlier night has read, delta-rs leaves out files and pyarrow.dataset leaves out
row groups, both by their statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from groupcoord_spark.sources.columns import NAMES, OFFSET, PARTITION, TOPIC, as_type, fields_of, lacks_of, needed_type, raw_rows
from groupcoord_spark.sources.inputs import below
from groupcoord_spark.sources.rows import EVERY_ROW, ROW_SCHEMA, FilePiece, RowBatch, Wanted, cut, wanted_records

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROWS_A_BATCH: Final = 65_536
PIECE_BYTES: Final = 64 << 20
"""Bytes of a file that one task reads at least, where the file has as many."""

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
    """Whether the Parquet files of these Delta tables alone have all rows. Raises InputError for a table that cannot be opened."""
    return all(_not_in_its_files(_delta_table(Location.of(uri))) is None for uri in inputs)


def readable_table(top: Location) -> DeltaTable:
    """The newest version of a Delta table. Raises InputError where the table cannot be opened, or its files alone do not have all rows."""
    table = _delta_table(top)
    if what := _not_in_its_files(table):
        raise InputError(
            f"{top.shown}: this Delta table {what}, and its files alone do not have all rows. Write it to Parquet with Spark, or"
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
    """What the Delta log alone says of the rows; None: the Parquet files have all of them."""
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return "renames columns (delta.columnMapping.mode)"
    if "deletionVectors" in (table.protocol().reader_features or []) and pa.table(table.deletion_vectors()).num_rows:
        return "marks rows as deleted (deletion vectors)"
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    if any("://" in path or path.startswith("/") or ".." in path.split("/") for path in paths):
        return "has files of another table (a shallow clone)"
    return None


def delta_pieces(top: Location, table: DeltaTable, wanted: Wanted) -> list[FilePiece]:
    """The pieces of the files that may have a wanted row, by the statistics of the Delta log; the files are not opened.

    Raises InputError where the table lacks a column that is needed.
    """
    actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path").to_pylist()
    schema = pa.schema(table.schema())
    chosen = _chosen(schema, top.shown) if actions else {}
    of_files = {unquote(action["path"]): action for action in actions}
    if wanted and actions and all(pa.types.is_integer(schema.field(chosen[field]).type) for field in (PARTITION, OFFSET)):
        # delta-rs gives local files as paths, all others as URIs below that of the table; both with the path as the log has it, unquoted.
        directory = table.table_uri.removeprefix("file://")
        uris = table.file_uris(file_pruning_predicate=_predicate(chosen, wanted))
        of_files = {path: of_files[path] for path in sorted(uri.removeprefix(directory) for uri in uris)}
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
    topic = quoted.get(TOPIC)
    return of_wanted if topic is None else f"{of_wanted} AND ({topic} = '{OFFSETS_TOPIC}' OR {topic} IS NULL)"


def _chosen(schema: pa.Schema, source: str) -> dict[str, str]:
    """Field of a raw row -> the column that has it. Raises InputError if a needed column is missing, or one is of a type that is none."""
    chosen = {field: column for field, column in fields_of(schema.names).items() if field not in _OF_THE_FILE}
    if missing := [NAMES[field][-1] for field in ("key", "value", PARTITION, OFFSET) if field not in chosen]:
        raise InputError(
            f"{source}: there is no column {', '.join(map(repr, missing))}. Rows of the offsets topic are needed as Spark's Kafka source"
            " gives them: key, value, partition, offset, and topic and timestamp where they are known."
        )
    for field, column in chosen.items():
        if field != TOPIC and (needed := needed_type(field, schema.field(column).type)) is not None:
            raise InputError(f"{source}: the column {column} is {schema.field(column).type}. It must be {needed}.")
    return chosen


_OF_THE_FILE: Final = ("source", "position")
"""Fields that say where in its file a row is; a column of that name is about another file."""


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
    of_path = pa.schema([(name, pa.string()) for name in constants if name not in schema.names])
    chosen = _chosen(pa.schema([*schema, *of_path]), piece.source)
    columns_of = {field: column for field, column in chosen.items() if with_bytes or field not in ("key", "value")}

    def expression(field: str, kind: pa.DataType) -> pc.Expression:
        column = chosen[field]
        if column not in schema.names:
            return pc.scalar(pa.scalar(constants[column]).cast(kind))
        return pc.field(column) if schema.field(column).type.equals(kind) else pc.field(column).cast(kind)

    def is_number(field: str) -> bool:
        column = chosen[field]
        return pa.types.is_integer(schema.field(column).type) if column in schema.names else (constants[column] or "0").isdecimal()

    try:
        share = range(metadata.num_row_groups * piece.start // piece.size, metadata.num_row_groups * piece.end // piece.size)
        first_rows = np.cumsum([0, *(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))]).tolist()
        groups = fragment.subset(row_group_ids=list(share))
        if TOPIC in chosen:
            topic = expression(TOPIC, pa.string())
            groups, of_all_topics = groups.subset((topic == OFFSETS_TOPIC) | topic.is_null(), schema), groups
            if other_rows := _row_count(of_all_topics) - _row_count(groups):
                yield RowBatch(pa.RecordBatch.from_pylist([], ROW_SCHEMA), other_rows)
        is_wanted = None
        if wanted and is_number(PARTITION) and is_number(OFFSET):
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


def _rows(columns: Mapping[str, Any], source: str, first_row: int, n: int) -> RowBatch:
    """The raw rows of one batch of a table. columns: by field."""
    other_rows = 0
    columns = {**columns, "source": pa.repeat(source, n), "position": pa.array(np.arange(first_row, first_row + n))}
    if TOPIC in columns:
        is_of_topic = pc.fill_null(pc.equal(as_type(columns[TOPIC], pa.string()), OFFSETS_TOPIC), True)
        other_rows = n - int(pc.sum(is_of_topic).as_py() or 0)
        if other_rows:
            columns = {name: column.filter(is_of_topic) for name, column in columns.items()}
    return RowBatch(raw_rows(columns, n - other_rows), other_rows, lacks_of(columns) if n > other_rows else frozenset())
