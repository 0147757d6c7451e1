"""Read Parquet files and Delta tables in the schema of Spark's Kafka source, or in our own raw schema, file by file into raw rows.

Needed are the columns ``key`` and ``value`` (BINARY, or text in a form of ``sources/byte_texts.py``), ``partition`` and ``offset``. The
other columns of ``sources/columns.py`` are used where they are there, except ``source`` and ``position``. All others are left alone.

No Spark: workers read the files with pyarrow.dataset, because a row that comes through Java costs five times the CPU, and because Spark
needs packages for object stores and for Delta. Of what an earlier run has read, delta-rs leaves out files and pyarrow.dataset leaves out
row groups, both by their statistics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.sources.byte_texts import FIRST_ROWS, NO_TEXT, TextForms
from groupcoord_spark.sources.columns import (
    NAMES,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    as_type,
    fields_of,
    is_text,
    lacks_of,
    needed_type,
    row_batch,
    without_views,
)
from groupcoord_spark.sources.inputs import below
from groupcoord_spark.sources.rows import EVERY_ROW, FILLED_IN, ROW_SCHEMA, FilePiece, RowBatch, Wanted, WithNewer, cut, wanted_records
from groupcoord_spark.storage import page_checksums
from groupcoord_spark.storage.location import Location, first_line

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROWS_A_BATCH: Final = 65_536
PIECE_BYTES: Final = 64 << 20
"""Bytes of a file that one task reads at least, where the file has as many."""

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
"""How a path that is not below the table begins: Hadoop writes ``file:/PATH`` and ``dbfs:/PATH`` with one slash."""

_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"

_FORMAT: Final = ds.ParquetFileFormat(
    # Spark's 96-bit times may be beyond the range of 64-bit nanoseconds. Spark writes checksums of pages.
    read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(**page_checksums.VERIFIED),
)


def constants_of(directory: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns whose value is in a path, as Spark writes partitions (``name=value``)."""
    pairs = [part.split("=", 1) for part in directory.split("/") if "=" in part]
    return tuple((name, None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)) for name, text in pairs)


def is_told_by_its_files(inputs: Sequence[str]) -> bool:
    """Return whether the Parquet files of these Delta tables contain all rows. Raises InputError for a table that cannot be opened."""
    return all(_not_in_its_files(_delta_table(Location.of(uri))) is None for uri in inputs)


def readable_table(top: Location) -> DeltaTable:
    """Open the newest version of a Delta table. Raises InputError if this fails, or if its files alone do not contain all rows."""
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
    """Return why the Parquet files alone do not contain all rows, or None if they do."""
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return "renames columns (delta.columnMapping.mode)"
    if "deletionVectors" in (table.protocol().reader_features or []) and pa.table(table.deletion_vectors()).num_rows:
        return "marks rows as deleted (deletion vectors)"
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    if any(".." in path.split("/") for path in paths):
        return "has paths outside of its directory"
    return None


def delta_pieces(top: Location, table: DeltaTable, wanted: Wanted) -> list[FilePiece]:
    """Return the pieces of the files that may have a wanted row by the statistics of the Delta log. The files are not opened.

    Raises InputError where the table lacks a column that is needed.
    """
    actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path").to_pylist()
    schema = pa.schema(table.schema())
    chosen = _chosen(schema, top.shown) if actions else {}
    of_files = {unquote(action["path"]): action for action in actions}
    if wanted and actions and all(pa.types.is_integer(schema.field(chosen[field]).type) for field in (PARTITION, OFFSET)):
        # delta-rs gives local files as paths, all others as URIs below the table's URI; both with the path as the log has it, unquoted.
        directory = table.table_uri.removeprefix("file://")
        uris = table.file_uris(file_pruning_predicate=_predicate(chosen, wanted, schema))
        found = {uri.removeprefix(directory) for uri in uris}
        # The URIs of a clone's files in another table differ from the log. The reader of each file leaves out unwanted rows.
        of_files = {path: action for path, action in sorted(of_files.items()) if path in found or _ABSOLUTE.match(path)}
    pieces = []
    for path, action in of_files.items():
        values = {name.removeprefix("partition."): value for name, value in action.items() if name.startswith("partition.")}
        constants = tuple((name, None if value is None else str(value)) for name, value in values.items())
        is_in_table = not _ABSOLUTE.match(path)
        file = below(top, path) if is_in_table else Location.of(path if path.startswith("/") else action["path"])
        pieces += cut(file.uri, action["size_bytes"], PIECE_BYTES, constants)
    return pieces


def _predicate(chosen: Mapping[str, str], wanted: Wanted, schema: pa.Schema) -> str:
    """Return the condition, as delta-rs takes it, for files with rows that are wanted or have no place."""
    quoted = {field: '"' + column.replace('"', '""') + '"' for field, column in chosen.items()}
    partition, offset = quoted[PARTITION], quoted[OFFSET]
    newer = ""
    if isinstance(wanted, WithNewer) and TIMESTAMP in quoted:
        is_number = pa.types.is_integer(schema.field(chosen[TIMESTAMP]).type)
        moment = datetime.fromtimestamp(wanted.newer_than_ms / 1000, UTC)
        newer = f" OR {quoted[TIMESTAMP]} > " + (str(wanted.newer_than_ms) if is_number else f"'{moment:%Y-%m-%dT%H:%M:%S.%fZ}'")
    not_wanted = [
        " AND ".join([f"{partition} = {number}", *(f"({offset} < {first} OR {offset} >= {end})" for first, end in ranges)])
        for number, ranges in wanted.items()
    ]
    of_wanted = f"(NOT (({') OR ('.join(not_wanted)})) OR {partition} IS NULL OR {offset} IS NULL OR {offset} < 0{newer})"
    topic = quoted.get(TOPIC)
    return of_wanted if topic is None else f"{of_wanted} AND ({topic} = '{OFFSETS_TOPIC}' OR {topic} IS NULL)"


def _chosen(schema: pa.Schema, source: str) -> dict[str, str]:
    """Return the column of each field of a raw row. Raises InputError if a needed column is missing or has an unsuitable type."""
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


def has_text_in(table: DeltaTable) -> bool:
    """Return whether a column of keys or values of a Delta table is text."""
    return _has_text(without_views(pa.schema(table.schema())))


def _has_text(schema: pa.Schema) -> bool:
    chosen = fields_of(schema.names)
    return any(is_text(schema.field(chosen[field]).type) for field in ("key", "value") if field in chosen)


def first_texts(piece: FilePiece) -> list[tuple[Any, Any]] | None:
    """Return the first keys and values of a file, for the choice of their form; None where both are bytes.

    Raises InputError as ``read_parquet`` does.
    """
    fragment, schema, _ = _opened(piece)
    chosen = fields_of(schema.names)
    names = [chosen[field] for field in ("key", "value") if field in chosen]
    if len(names) < 2 or not _has_text(schema):
        return None
    topic = [chosen[TOPIC]] if TOPIC in chosen else []
    try:
        rows = fragment.scanner(schema=schema, columns=[*names, *topic], use_threads=False).head(FIRST_ROWS)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{piece.source}: the rows cannot be read: {first_line(error)}.") from error
    topics = rows[topic[0]].to_pylist() if topic else [None] * rows.num_rows
    pairs = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return [pair for pair, name in zip(pairs, topics, strict=True) if name in (None, OFFSETS_TOPIC)]


def _opened(piece: FilePiece) -> tuple[ds.ParquetFileFragment, pa.Schema, Any]:
    """Return a file of Parquet, its schema and its metadata. Raises InputError for a file that is not Parquet."""
    file = Location.of(piece.uri)
    try:
        fragment = _FORMAT.make_fragment(file.path, file.filesystem)
        return fragment, without_views(fragment.physical_schema), fragment.metadata
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file.shown}: this is not a Parquet file that can be read: {first_line(error)}.") from error


def read_parquet(
    piece: FilePiece, wanted: Wanted = EVERY_ROW, *, with_bytes: bool = True, forms: TextForms = NO_TEXT
) -> Iterator[RowBatch]:
    """Yield the wanted rows of a piece, some ten thousand at a time.

    Args:
        with_bytes: Whether keys and values are read.
        forms: The forms of keys and values that are text.

    Raises:
        InputError: The file is not Parquet, lacks a column or has one of another type, or cannot be read.
    """
    constants = dict(piece.constants)
    fragment, schema, metadata = _opened(piece)
    views = {field.name for field in fragment.physical_schema if field != schema.field(field.name)}
    of_path = pa.schema([(name, pa.string()) for name in constants if name not in schema.names])
    chosen = _chosen(pa.schema([*schema, *of_path]), piece.source)
    lacks = lacks_of(field for field, column in chosen.items() if column not in _filled_in(metadata))
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
        # Arrow cannot compare statistics of a view type. `_rows` then drops the rows of other topics.
        if TOPIC in chosen and chosen[TOPIC] not in views:
            topic = expression(TOPIC, pa.string())
            groups, of_all_topics = groups.subset((topic == OFFSETS_TOPIC) | topic.is_null(), schema), groups
            if other_rows := _row_count(of_all_topics) - _row_count(groups):
                topics = _topics_in(of_all_topics, chosen[TOPIC], constants)
                yield RowBatch(pa.RecordBatch.from_pylist([], ROW_SCHEMA), other_rows, topics=topics)
        is_wanted = None
        if wanted and is_number(PARTITION) and is_number(OFFSET):
            is_wanted = wanted_records(wanted, expression(PARTITION, pa.int64()), expression(OFFSET, pa.int64()), methodcaller("is_null"))
            if isinstance(wanted, WithNewer) and (column := chosen.get(TIMESTAMP, "")) in schema.names:
                is_wanted |= _is_newer(column, schema.field(column).type, wanted.newer_than_ms)
        for group in groups.split_by_row_group(is_wanted, schema):
            # Statistics do not help where rows of several offsets partitions are mixed: the columns of the place are then read first.
            if is_wanted is not None and not group.count_rows(filter=is_wanted):
                continue
            at = first_rows[group.row_groups[0].id]
            in_file = [column for column in columns_of.values() if column in schema.names]
            for batch in group.to_batches(schema, columns=in_file, batch_size=ROWS_A_BATCH, batch_readahead=1):
                columns = {
                    field: batch.column(column) if column in in_file else pa.repeat(pa.scalar(constants[column], pa.string()), len(batch))
                    for field, column in columns_of.items()
                }
                yield _rows(columns, piece.source, at, len(batch), forms, lacks).wanted(wanted)
                at += len(batch)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{piece.source}: the rows cannot be read: {first_line(error)}.") from error


def _is_newer(column: str, kind: pa.DataType, time_ms: int) -> pc.Expression:
    """Return the condition for rows after a time; of a column whose statistics cannot be compared with it, all rows."""
    if pa.types.is_timestamp(kind):
        return pc.field(column) > pa.scalar(time_ms, pa.timestamp("ms", kind.tz)).cast(kind, safe=False)
    return pc.field(column) > time_ms if pa.types.is_integer(kind) else pc.scalar(True)


def _filled_in(metadata: Any) -> set[str]:
    """Return the columns that ``decode`` filled in before Spark wrote the file. Spark keeps the metadata of columns in the file."""
    schema = json.loads((metadata.metadata or {}).get(_SPARK_SCHEMA, b"{}"))
    return {column["name"] for column in schema.get("fields", ()) if column["metadata"].get(FILLED_IN)}


def _topics_in(fragment: ds.ParquetFileFragment, column: str, constants: Mapping[str, str | None]) -> frozenset[str]:
    """Return the names of other topics that the path or the statistics of the row groups have."""
    ends = [group.statistics[column] for group in fragment.row_groups if group.statistics and column in group.statistics]
    names = {str(end[name]) for end in ends for name in ("min", "max") if end.get(name) is not None}
    return frozenset(names | {constants.get(column) or OFFSETS_TOPIC}) - {OFFSETS_TOPIC}


def _row_count(fragment: ds.ParquetFileFragment) -> int:
    return sum(group.num_rows for group in fragment.row_groups)


def _rows(columns: Mapping[str, Any], source: str, first_row: int, n: int, forms: TextForms, lacks: frozenset[str]) -> RowBatch:
    """Return the raw rows of one batch of a table. columns: by field."""
    other_rows, topics = 0, frozenset[str]()
    columns = {**columns, "source": pa.repeat(source, n), "position": pa.array(np.arange(first_row, first_row + n))}
    if TOPIC in columns:
        names = as_type(columns[TOPIC], pa.string())
        is_of_topic = pc.fill_null(pc.equal(names, OFFSETS_TOPIC), True)
        other_rows = n - int(pc.sum(is_of_topic).as_py() or 0)
        if other_rows:
            topics = frozenset(pc.unique(names).drop_null().to_pylist()) - {OFFSETS_TOPIC}
            columns = {name: column.filter(is_of_topic) for name, column in columns.items()}
    return replace(row_batch(columns, n - other_rows, forms, lacks), other_topics=other_rows, topics=topics)
