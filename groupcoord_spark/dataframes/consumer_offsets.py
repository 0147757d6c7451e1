"""Log segments as a Spark source: ``spark.read.format("consumer_offsets").load(path)``. Needs Spark 4.0."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from groupcoord_spark.errors import UsageError
from groupcoord_spark.sources.rows import RAW_SCHEMA
from groupcoord_spark.sources.segments import SegmentTask, tasks_of


@dataclass
class SegmentPartition(InputPartition):
    """The files that one Spark task reads."""

    task: SegmentTask


class ConsumerOffsets(DataSource):
    """The rows of ``gc.read_segments``. Options: ``path``, and ``cluster`` for the argument of that name."""

    @classmethod
    def name(cls) -> str:
        return "consumer_offsets"

    def schema(self) -> StructType:
        return from_arrow_schema(RAW_SCHEMA)

    def reader(self, schema: object) -> DataSourceReader:
        return ConsumerOffsetsReader(self.options)


class ConsumerOffsetsReader(DataSourceReader):
    """Plans one Spark partition for each task."""

    def __init__(self, options: dict[str, str]) -> None:
        path = options.get("path")
        if path is None:
            raise UsageError(
                'The source "consumer_offsets" needs a path: spark.read.format("consumer_offsets").load("/path/to/kafka-logs").'
            )
        self._path = path
        self._cluster = options.get("cluster")

    def partitions(self) -> list[SegmentPartition]:
        return [SegmentPartition(task) for task in tasks_of([self._path], self._cluster)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPartition)
        yield from partition.task.batches()
