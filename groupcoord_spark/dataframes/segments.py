"""Log segments as a DataFrame of raw rows: ``gc.read_segments(spark, path)``, on every release of Spark."""

import warnings
from collections.abc import Iterable, Iterator
from os import PathLike, fspath

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from groupcoord_spark.sources.rows import RAW_SCHEMA
from groupcoord_spark.sources.segments import tasks_of
from groupcoord_spark.spark.session import require_package_on_workers


def read_segments(spark: SparkSession, path: str | PathLike[str], *more: str | PathLike[str], cluster: str | None = None) -> DataFrame:
    """Return the raw records of ``__consumer_offsets`` from log segment files, one row for each record.

    The files are listed now and read when the frame is used. Damaged bytes are left out; the nightly's quarantined_records lists them.

    Args:
        spark: the session to work in.
        path, more: a partition's directory, a log directory, copies of several brokers' log directories, or segment files. The workers
            read them too.
        cluster: name for the column ``cluster``; None: the cluster.id of a meta.properties next to the dump, else ``default``.

    Returns:
        The columns of the source ``consumer_offsets``. As many tasks as the bytes deserve read them, one for some small files.

    Raises:
        InputError: a path does not exist, or there is no partition of ``__consumer_offsets`` below it.
        GroupcoordError: the Python workers of the session lack the package.
    """
    tasks = tasks_of([fspath(each) for each in (path, *more)], cluster)
    require_package_on_workers(spark)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from tasks[number].batches()

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(read, from_arrow_schema(RAW_SCHEMA))


def register_source(spark: SparkSession) -> None:
    """Register the source ``consumer_offsets`` in a session. Spark 3.5 has no such sources: a warning names ``read_segments``."""
    if not hasattr(spark, "dataSource"):
        warnings.warn(
            f"Spark {spark.version} has no sources in Python, so spark.read.format('consumer_offsets') needs Spark 4.0."
            " gc.read_segments(spark, path) gives the same frame.",
            stacklevel=3,
        )
        return
    from groupcoord_spark.dataframes.consumer_offsets import ConsumerOffsets

    spark.dataSource.register(ConsumerOffsets)
