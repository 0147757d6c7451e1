"""Rows of several tables in one frame: what one pass over the records gives, and the frame of each table made of it.

A function of Spark gives one frame. The rows of each table are packed into one value of that frame, so one replay serves all tables.
"""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from groupcoord_spark.pipeline.exchange.packing import unpack
from groupcoord_spark.warehouse import TABLES

PACKED: Final = "cluster STRING, kind STRING, payload BINARY"
"""One row for some rows of a table. kind: the table. payload: these rows with Kafka's values, packed. REPLAYED has these columns too."""

RUN_ID: Final = "run_id"
"""The column of tables that their frames do not have: no run wrote the rows."""


def frame_of(packed_frame: DataFrame, table: str) -> DataFrame:
    """Return the rows of one table with the declared types, nullability and comments, without run_id.

    packed_frame: of REPLAYED or of PACKED.
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

    return packed_frame.where(packed_frame["kind"] == table).select("cluster", "payload").mapInArrow(unpacked, schema_of(table))


def schema_of(table: str) -> StructType:
    """Return the columns of a table without run_id as a Spark schema with comments."""
    declared = StructType.fromJson(json.loads(TABLES[table].delta_schema.to_json()))
    return StructType([field for field in declared if field.name != RUN_ID])


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with dictionary-encoded texts, which Spark does not read, as plain texts."""
    return pa.schema([field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema])


def of_each_group(
    frame: DataFrame, names: Sequence[str], function: Callable[[tuple[Any, ...], pa.Table], pa.Table], schema: StructType | str, tasks: int
) -> DataFrame:
    """Return the frame of what ``function`` gives for the rows of each group: applyInArrow, which Spark 3.5 does not have.

    Args:
        names: the columns by which rows are grouped. The function takes their values and the rows, which it may hold in memory.
        tasks: the number of tasks that the groups are spread over.
    """

    def of_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for key, of_key in groupby(chain.from_iterable(_runs(batch, names) for batch in batches), key=itemgetter(0)):
            yield from function(key, pa.Table.from_batches([rows for _, rows in of_key])).to_batches()

    return frame.repartition(tasks, *names).sortWithinPartitions(*names).mapInArrow(of_groups, schema)


def _runs(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the values of the columns ``names`` with the consecutive rows that have them."""
    begin = 0
    for key, rows in groupby(zip(*(batch.column(name).to_pylist() for name in names), strict=True)):
        count = sum(1 for _ in rows)
        yield key, batch.slice(begin, count)
        begin += count


def plain_frame_of(replayed: DataFrame, kind: str, columns: StructType, rows_of: Callable[[Any], Iterable[tuple[Any, ...]]]) -> DataFrame:
    """Return ``cluster`` and these columns for rows outside of the warehouse's tables. ``rows_of`` maps an unpickled payload to its
    rows."""
    schema = StructType([StructField("cluster", StringType()), *columns])
    arrow = to_arrow_schema(schema)

    def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for cluster, payload in zip(batch.column("cluster").to_pylist(), batch.column("payload").to_pylist(), strict=True):
                rows = [dict(zip(arrow.names, (cluster, *row), strict=True)) for row in rows_of(pickle.loads(payload))]
                yield pa.RecordBatch.from_pylist(rows, arrow)

    return replayed.where(replayed["kind"] == kind).select("cluster", "payload").mapInArrow(unpacked, schema)
