"""A frame of records by offsets partition: each partition's records in the order of their offsets, whatever Spark's sorts do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import functions as F  # noqa: N812

from groupcoord_spark.log import Chunk
from groupcoord_spark.pipeline.read.rows import ORDER, chunks_by_partition
from groupcoord_spark.sources.frames import SOURCE, raw_rows
from groupcoord_spark.sources.rows import ROW_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TASKS_PER_CORE: Final = 4
TASKS_WITHOUT_SETTING: Final = 50
"""One for each offsets partition of Kafka's default."""
_PLACE: Final = "place"
"""The cluster and the offsets partition of a row, as one column."""


def by_offsets_partition(
    frame: DataFrame, work: Callable[[str, int, Iterator[Chunk]], Iterator[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """The rows that ``work`` gives for each offsets partition, from its cluster, its number and its records in the order of their offsets.

    The chunks hold some hundred thousand records each, so that a partition of any size fits into the memory of a worker.
    """
    order = [F.col(name.removesuffix(" DESC")).desc() if name.endswith(" DESC") else F.col(name) for name in ORDER]

    def of_partition(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = key[0].as_py()
        rows = (batch.select(ROW_SCHEMA.names).cast(ROW_SCHEMA) for batch in batches)
        for _, chunks in chunks_by_partition(rows, SOURCE):
            yield from work(place["cluster"], place["offsets_partition"], chunks)

    # applyInArrow needs real types to recognize the iterator form, and annotations are text in this file
    of_partition.__annotations__ = {
        "key": tuple[pa.Scalar, ...],
        "batches": Iterator[pa.RecordBatch],
        "return": Iterator[pa.RecordBatch],
    }
    # Arrow and not pandas: in a pandas frame a column of 64-bit integers with a NULL becomes one of floats.
    # The key is one column, and never a constant. Spark folds a constant `cluster` away, no longer sees that the rows are sorted by the
    # grouping columns, and sorts them again by those alone: once that sort spills, the records of a partition lose their order.
    rows = raw_rows(frame).withColumn(_PLACE, F.struct("cluster", "offsets_partition"))
    tasks = tasks_of(frame.sparkSession)
    rows = rows.repartition(_PLACE) if tasks is None else rows.repartition(tasks, _PLACE)
    rows = rows.sortWithinPartitions(_PLACE, *order)
    return rows.groupBy(_PLACE).applyInArrow(of_partition, schema)


def kept(frame: DataFrame) -> DataFrame:
    """The frame, which stays on the executors after its first use; as it is on Databricks' serverless compute, which keeps no frame."""
    try:
        return frame.persist(StorageLevel.MEMORY_AND_DISK)
    except PySparkException as error:
        if "NOT_SUPPORTED_WITH_SERVERLESS" not in str(error):
            raise
        return frame


def tasks_of(spark: SparkSession) -> int | None:
    """Number of tasks that work on offsets partitions; None: Spark's adaptive execution decides, by their bytes.

    Spark's default of 200 would start 200 Python tasks for a handful of partitions. A session of Spark Connect does not know the cores.
    """
    setting = spark.conf.get("spark.sql.shuffle.partitions") or ""
    most = int(setting) if setting.isdecimal() else TASKS_WITHOUT_SETTING  # Databricks has the setting "auto"
    try:
        return min(most, TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return None
