"""Log segments as a Spark source of raw rows: ``spark.read.format("consumer_offsets").load(path)``.

For notebooks and for questions the tables do not answer. The nightly reads the same files through the same functions, without this detour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from groupcoord_spark.errors import UsageError
from groupcoord_spark.log import Chunk, Segment, plan_logs, read_segment
from groupcoord_spark.sources.rows import RAW_SCHEMA, control_type_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_A_BATCH = 100_000


@dataclass
class SegmentPartition(InputPartition):
    """One segment file, and the name of its cluster, which planning reads from the directory and the readers need."""

    segment: Segment
    cluster: str


class ConsumerOffsets(DataSource):
    """Raw records of ``__consumer_offsets`` from log segment files.

    ``load(path)``: a partition's directory, a log directory, copies of several brokers' log directories, or segment files. Option
    ``cluster``: the name in the first column (default: cluster.id of a meta.properties beside the dump, else ``default``).
    Damaged bytes are left out; the nightly's quarantined_records tells of them.
    """

    @classmethod
    def name(cls) -> str:
        return "consumer_offsets"

    def schema(self) -> StructType:
        return from_arrow_schema(RAW_SCHEMA)

    def reader(self, schema: object) -> DataSourceReader:
        return ConsumerOffsetsReader(self.options)


class ConsumerOffsetsReader(DataSourceReader):
    """Plans one Spark partition for each segment file."""

    def __init__(self, options: dict[str, str]) -> None:
        path = options.get("path")
        if path is None:
            raise UsageError(
                'The source "consumer_offsets" needs a path: spark.read.format("consumer_offsets").load("/path/to/kafka-logs").'
            )
        self._path = path
        self._cluster = options.get("cluster")

    def partitions(self) -> list[SegmentPartition]:
        plan = plan_logs([self._path])
        cluster = self._cluster or plan.cluster_id or "default"
        return [SegmentPartition(segment, cluster) for partition in plan.partitions for segment in partition.segments]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPartition)
        for chunk in read_segment(partition.segment):
            yield from raw_batches(chunk, partition.segment, partition.cluster)


def raw_batches(chunk: Chunk, segment: Segment, cluster: str) -> Iterator[pa.RecordBatch]:
    """Records of a chunk as batches of RAW_SCHEMA."""
    for begin in range(0, len(chunk.records), ROWS_A_BATCH):
        rows = np.arange(begin, min(begin + ROWS_A_BATCH, len(chunk.records)))
        part = chunk.records.take(rows)
        n = len(part)
        control = pa.array([control_type_name(number) for number in part.control_type.tolist()], pa.string())
        columns = (
            pa.repeat(cluster, n),
            np.full(n, segment.offsets_partition, np.int32),
            part.record_offset,
            part.timestamp_ms,
            part.key.to_arrow(),
            part.value.to_arrow(),
            part.producer_id,
            part.producer_epoch,
            part.is_transactional,
            control,
            pa.repeat(segment.source, n),
            part.position,
            chunk.leader_epochs(rows),
        )
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA
        )


def register(spark: SparkSession) -> None:
    """Register the source ``consumer_offsets`` in a session."""
    spark.dataSource.register(ConsumerOffsets)
