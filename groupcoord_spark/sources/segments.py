"""Log segments as raw rows: the rows of ``gc.read_segments`` and of the Spark source ``consumer_offsets``.

The nightly reads the same files through the same functions, without this detour. No Spark here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from groupcoord_spark.log import Chunk, Segment, plan_logs, read_segment
from groupcoord_spark.sources.rows import RAW_SCHEMA, control_type_name

ROWS_A_BATCH: Final = 100_000
TASK_BYTES: Final = 16 << 20
"""Smaller files are read together by one task: a Python task costs more than to read some megabytes."""


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """The segment files that one task reads, and the name of their cluster, which only the planning process knows."""

    segments: tuple[Segment, ...]
    cluster: str

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as batches of RAW_SCHEMA."""
        for segment in self.segments:
            for chunk in read_segment(segment):
                yield from raw_batches(chunk, segment, self.cluster)


def tasks_of(paths: Sequence[str], cluster: str | None = None, task_bytes: int = TASK_BYTES) -> list[SegmentTask]:
    """Return the tasks that read all segment files below the paths.

    Args:
        paths: as ``plan_logs`` takes them.
        cluster: name for the column ``cluster``; None: the cluster.id of a meta.properties next to the dump, else ``default``.
        task_bytes: a task ends with the file that reaches this size.
    Raises:
        InputError: a path does not exist, or there is no partition of ``__consumer_offsets`` below it.
    """
    plan = plan_logs(paths)
    name = cluster or plan.cluster_id or "default"
    tasks: list[SegmentTask] = []
    of_task: list[Segment] = []
    for segment in (segment for partition in plan.partitions for segment in partition.segments):
        of_task.append(segment)
        if sum(each.size - each.start for each in of_task) >= task_bytes:
            tasks.append(SegmentTask(tuple(of_task), name))
            of_task = []
    return [*tasks, SegmentTask(tuple(of_task), name)] if of_task else tasks


def raw_batches(chunk: Chunk, segment: Segment, cluster: str) -> Iterator[pa.RecordBatch]:
    """Yield records of a chunk as batches of RAW_SCHEMA."""
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
