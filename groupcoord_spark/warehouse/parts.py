"""Files of a run, which workers write: Parquet from Arrow columns, and for each file an ``AddedFile`` for the driver.

No table shows the rows before the driver commits the files (``write.commit_run``).
"""

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.storage import page_checksums
from groupcoord_spark.storage.object_store import is_object_store
from groupcoord_spark.storage.warehouse_location import cause_of, directory_of, locate
from groupcoord_spark.warehouse.declaration import Table

FILE_BYTES: Final = 128 * 1024 * 1024
GROUP_BYTES: Final = 32 * 1024 * 1024

# Delta keeps the beginning of long texts only; an upper bound ends in the greatest character there is.
_TEXT_KEPT: Final = 32
_GREATEST_CHARACTER: Final = "\U0010ffff"

UPKEEP: Final = "upkeep"
"""The name of upkeep in commits and in the names of its files of ``runs``, which no run reads."""

_FILE_NAME: Final = re.compile(rf"(\d{{8}}T\d{{6}}Z-[0-9a-f]{{8}}|{UPKEEP})-[0-9a-f]{{32}}\.parquet")


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A finished file that the driver adds to its table, in a few plain values."""

    table: str
    path: str
    """Relative to the table's directory."""
    size: int
    modification_time_ms: int
    cluster: str
    records: int
    stats: str
    """Delta's file statistics as JSON: numRecords, minValues, maxValues, nullCount."""


class PartWriter(AbstractContextManager["PartWriter"]):
    """Writes rows of one table, cluster and run into files of about 128 MiB.

    A context manager: at the end of the block the last file is closed, and ``files`` lists all files; after an exception the unfinished
    file is removed. Raises WarehouseError where a file cannot be written, and ValueError for rows that do not fit the table
    (``Table.from_milliseconds``).
    """

    def __init__(self, warehouse: str, table: Table, cluster: str, run_id: str, *, file_bytes: int = FILE_BYTES) -> None:
        self.files: list[AddedFile] = []
        self._location = locate(warehouse)
        self._table = table
        self._cluster = cluster
        self._run_id = run_id
        self._file_bytes = file_bytes
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._open: _OpenFile | None = None

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Adds rows, in columns as ``Table.from_milliseconds`` takes them. A column ``cluster`` is left out."""
        rows = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        if rows.num_rows == 0:
            return
        rows = self._table.from_milliseconds(rows)
        rows = rows.drop_columns([name for name in self._table.partition_columns if name in rows.column_names])
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= self._table.group_rows or self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> list[AddedFile]:
        """Close the writer and return all its files."""
        self._flush()
        self._finish()
        return self.files

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            if self._open is not None:
                self._open.abandon()
                self._open = None

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._open is None:
            directory = self._location.path_in(self._table.name, directory_of(self._cluster))
            self._open = _OpenFile(self._location.filesystem, directory, self._run_id)
        rows = _in_one_schema(self._waiting)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if self._open.write_group(rows, self._table) >= self._file_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._open is None:
            return
        name, size, metadata = self._open.close()
        self._open = None
        path = f"{directory_of(self._cluster)}/{name}"
        self.files.append(added_file_of(self._table, self._cluster, path, size, metadata))


def write_part(warehouse: str, table: Table, data: pa.Table | Iterable[pa.RecordBatch], cluster: str, run_id: str) -> list[AddedFile]:
    """Write ``data``; return its files, none without rows. Columns and errors are the same as for ``PartWriter``."""
    with PartWriter(warehouse, table, cluster, run_id) as writer:
        for batch in [data] if isinstance(data, pa.Table) else data:
            writer.write(batch)
    return writer.files


def run_of(file_name: str) -> str | None:
    """Return the run id in a file's name, or None if the file is not one of ours."""
    match = _FILE_NAME.fullmatch(file_name)
    return match[1] if match else None


def added_file_of(table: Table, cluster: str, path: str, size: int, metadata: pq.FileMetaData) -> AddedFile:
    """Return the AddedFile of a file from its Parquet footer."""
    # Plain UTF-8: delta-rs reads a pair of \\u escapes as another character than the one they stand for.
    stats = json.dumps(_statistics(table, metadata), ensure_ascii=False, separators=(",", ":"))
    return AddedFile(table.name, path, size, time.time_ns() // 1_000_000, cluster, metadata.num_rows, stats)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Raises WarehouseError in place of an OSError of the block."""
    try:
        yield
    except OSError as e:
        raise WarehouseError(f"{path} cannot be written: {cause_of(e)}.") from e


class _OpenFile:
    def __init__(self, filesystem: pa.fs.FileSystem, directory: str, run_id: str) -> None:
        self._filesystem = filesystem
        self._name = f"{run_id}-{uuid.uuid4().hex}.parquet"
        self._path = f"{directory}/{self._name}"
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        with _writing(self._path):
            if not is_object_store(filesystem):  # which has no directories, only names with slashes
                filesystem.create_dir(directory, recursive=True)
            self._stream = filesystem.open_output_stream(self._path)

    def write_group(self, rows: pa.Table, table: Table) -> int:
        """Write these rows as one row group; return the size of the file so far."""
        with _writing(self._path):
            if self._writer is None:
                self._writer = _parquet_writer(self._stream, rows.schema, table, self._footers)
            self._writer.write_table(_conformed(rows, self._writer.schema), row_group_size=max(rows.num_rows, 1))
            return int(self._stream.tell())

    def close(self) -> tuple[str, int, pq.FileMetaData]:
        """Close the file; return its name, size and footer."""
        with _writing(self._path):
            assert self._writer is not None
            self._writer.close()
            size = int(self._stream.tell())
            self._stream.close()
        return self._name, size, self._footers[0]

    def abandon(self) -> None:
        if self._writer is not None:
            # The writer itself may have failed: an error of closing it adds nothing.
            with suppress(pa.ArrowException, OSError, RuntimeError):
                self._writer.close()
        # A file that cannot be removed is in no table, and a later run's clean-up finds it by its name.
        with suppress(OSError):
            self._stream.close()
            self._filesystem.delete_file(self._path)


def _parquet_writer(stream: pa.NativeFile, schema: pa.Schema, table: Table, footers: list[pq.FileMetaData]) -> pq.ParquetWriter:
    stored = [c for c in table.columns if c.name not in table.partition_columns]
    return pq.ParquetWriter(
        stream,
        schema,
        compression="zstd",
        use_dictionary=[c.name for c in stored if c.sql_type in ("STRING", "SMALLINT", "INT")],
        # Offsets and times rise by little from row to row: a fifth smaller and a quarter faster than as plain numbers.
        column_encoding={c.name: "DELTA_BINARY_PACKED" for c in stored if c.sql_type in ("BIGINT", "TIMESTAMP")},
        # Bounds of the other columns, above all of long texts, rule out almost no file and cost a tenth of the writing.
        write_statistics=list(table.statistics),
        # Without Arrow's schema in the footer a reader takes the column's type from Parquet, also where the writer had a dictionary.
        store_schema=False,
        # zstd reads many a flipped bit as other rows. Checksums cost less than 4 % of writing, and of reading.
        **page_checksums.WRITTEN,
        metadata_collector=footers,
    )


def _in_one_schema(tables: list[pa.Table]) -> pa.Table:
    schema = tables[0].schema
    return pa.concat_tables([_conformed(t, schema) for t in tables])


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with texts dictionary-encoded as in ``schema``, with one dictionary for each column."""
    if rows.schema.types != schema.types:
        columns = []
        for values, field in zip(rows.columns, schema, strict=True):
            if values.type != field.type:
                plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
                values = plain.dictionary_encode() if pa.types.is_dictionary(field.type) else plain
            columns.append(values)
        rows = pa.Table.from_arrays(columns, schema=schema)
    return rows.unify_dictionaries()


def _statistics(table: Table, metadata: pq.FileMetaData) -> dict[str, Any]:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    at = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for name in table.statistics:
        groups = [metadata.row_group(g).column(at[name]) for g in range(metadata.num_row_groups)]
        statistics = [g.statistics for g in groups]
        if any(s is None or not s.has_null_count for s in statistics):
            continue
        nulls[name] = sum(s.null_count for s in statistics)
        bounded = [s for s in statistics if s.has_min_max]
        # A row group without bounds that is not all NULL (texts too long for Parquet's statistics) leaves the column without.
        if bounded and all(s.has_min_max or s.null_count == g.num_values for s, g in zip(statistics, groups, strict=True)):
            least[name] = _lower_bound(min(s.min for s in bounded))
            greatest[name] = _upper_bound(max(s.max for s in bounded))
    bounds = {"minValues": least, "maxValues": {k: v for k, v in greatest.items() if v is not None}}
    return {"numRecords": metadata.num_rows, **bounds, "nullCount": nulls}


def _lower_bound(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value[:_TEXT_KEPT] if isinstance(value, str) else value


def _upper_bound(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= _TEXT_KEPT:
        return _lower_bound(value)
    return None if value[_TEXT_KEPT] == _GREATEST_CHARACTER else value[:_TEXT_KEPT] + _GREATEST_CHARACTER
