"""Rows of several tables in one frame: what one pass over the records gives, and the frame of each table made of it.

A function of Spark gives one frame. The rows of each table are packed into one value of that frame, so one replay serves all tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from groupcoord_spark.pipeline.exchange.packing import pack, unpack
from groupcoord_spark.pipeline.exchange.state_rows import to_arrow
from groupcoord_spark.pipeline.exchange.task_files import TaskFiles
from groupcoord_spark.warehouse import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKED: Final = StructType(
    [
        StructField("cluster", StringType()),
        StructField("offsets_partition", IntegerType()),
        StructField("table", StringType()),
        StructField("payload", BinaryType()),
    ]
)
"""One row for some rows of a table that are about one offsets partition. payload: these rows with Kafka's values, packed."""

RUN_ID: Final = "run_id"
"""The column of tables that their frames do not have: no run wrote the rows."""

ROWS_AT_ONCE: Final = 50_000


class RowsInMemory(TaskFiles):
    """What a task of the nightly writes to files, in memory: the reader's functions write their rows here."""

    def __init__(self) -> None:
        super().__init__("", "", "")
        self._rows: list[tuple[str, pa.Table]] = []

    def write(self, table: str, columns: Mapping[str, Any] | pa.Table, **constants: Any) -> None:
        """Add rows, given as columns with Kafka's values. constants: columns with one value for all rows."""
        rows = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
        for name, value in constants.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, TABLES[table].by_name[name].arrow_type), rows.num_rows))
        self._rows.append((table, rows))

    def taken(self) -> Iterator[tuple[str, pa.Table]]:
        """(table, rows) of what was written; afterwards nothing is in memory."""
        rows, self._rows = self._rows, []
        yield from rows


def packed(cluster: str, offsets_partition: int, table: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of PACKED with the rows of one table."""
    for begin in range(0, rows.num_rows, ROWS_AT_ONCE):
        values = ([cluster], [offsets_partition], [table], [pack(rows.slice(begin, ROWS_AT_ONCE))])
        types = (pa.string(), pa.int32(), pa.string(), pa.binary())
        yield pa.RecordBatch.from_arrays(
            [pa.array(value, of) for value, of in zip(values, types, strict=True)], names=[field.name for field in PACKED]
        )


def packed_rows_of(
    cluster: str, offsets_partition: int, table: str, kind: type[NamedTuple], rows: Sequence[tuple[Any, ...]]
) -> Iterator[pa.RecordBatch]:
    """Rows of PACKED with rows that the replay or the rules of expiration made. kind: the type of these rows."""
    if rows:
        columns = to_arrow(TABLES[table], kind, rows)
        if "offsets_partition" in TABLES[table].by_name:
            columns = columns.append_column("offsets_partition", pa.repeat(pa.scalar(offsets_partition, pa.int32()), len(rows)))
        yield from packed(cluster, offsets_partition, table, columns)


def frame_of(packed_frame: DataFrame, table: str) -> DataFrame:
    """The rows of one table, with the types, the nullability and the comments of its declaration, but without run_id.

    packed_frame: of PACKED.
    """
    declared = TABLES[table]
    names = [column.name for column in declared.columns if column.name != RUN_ID]
    has_run_id = RUN_ID in declared.by_name

    def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for cluster, payload in zip(batch.column("cluster").to_pylist(), batch.column("payload").to_pylist(), strict=True):
                rows = unpack(payload)
                constants = {"cluster": cluster, RUN_ID: ""} if has_run_id else {"cluster": cluster}
                for name, constant in constants.items():
                    rows = rows.append_column(name, pa.repeat(constant, rows.num_rows))
                of_table = declared.from_milliseconds(rows).select(names)
                yield from of_table.cast(_plain(of_table.schema)).to_batches()

    return packed_frame.where(packed_frame["table"] == table).select("cluster", "payload").mapInArrow(unpacked, schema_of(table))


def schema_of(table: str) -> StructType:
    """The columns of a table but run_id as a schema of Spark, with their comments."""
    declared = StructType.fromJson(json.loads(TABLES[table].delta_schema))
    return StructType([field for field in declared if field.name != RUN_ID])


def _plain(schema: pa.Schema) -> pa.Schema:
    """The same columns; texts that are dictionary-encoded, which Spark does not read, as texts."""
    return pa.schema(
        [field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema]
    )


def plain_frame_of(packed_frame: DataFrame, name: str, columns: pa.Schema) -> DataFrame:
    """The packed rows of a name that is no table of the warehouse: ``cluster``, then these columns."""

    def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for cluster, payload in zip(batch.column("cluster").to_pylist(), batch.column("payload").to_pylist(), strict=True):
                rows = unpack(payload)
                yield from rows.add_column(0, "cluster", pa.repeat(cluster, rows.num_rows)).to_batches()

    schema = from_arrow_schema(columns.insert(0, pa.field("cluster", pa.string())))
    return packed_frame.where(packed_frame["table"] == name).select("cluster", "payload").mapInArrow(unpacked, schema)
