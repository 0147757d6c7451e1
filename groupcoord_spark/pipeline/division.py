"""Into how many tasks a run is divided: by the bytes to read, and on one machine also by its cores.

A cluster with dynamic allocation has two cores when a run begins and may have two hundred a minute later: the cores that Spark counts at
that moment (``defaultParallelism``) say nothing about a large run. All cores of a single machine are there from the beginning, and a
small run is fastest with one task for each.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

LOCAL_TASK_BYTES: Final = 512 << 20
"""Most bytes for one reading task on one machine. A longer task drops more superseded records, shorter tasks balance the cores better."""

CLUSTER_TASK_BYTES: Final = 128 << 20
"""The same on a cluster: some seconds of reading, which is what an executor that is lost costs, and enough tasks for executors to come."""

LEAST_TASK_BYTES: Final = 16 << 20
"""On a cluster a smaller task saves less time than it takes to start."""

SEQUENCES_PER_CORE: Final = 4
"""On one machine, sequences of segments for each core, at least, so that the cores end together."""

STATE_WRITER_BYTES: Final = 4 << 30
"""Input bytes per task that writes the state tables. Below this size each state table is one file."""

SPREAD: Final = 4
"""Shuffle partitions for each offsets partition on a cluster: of as many as there are offsets partitions, hashing leaves a third empty and
puts three replays into others. An empty one costs some milliseconds."""


@dataclass(frozen=True, slots=True)
class Division:
    """The rule for one session. cores: those that Spark has at this moment. is_cluster: more may come."""

    cores: int
    is_cluster: bool

    @staticmethod
    def of(spark: SparkSession) -> Division:
        """Return the parallelism of this session."""
        context, master = spark.sparkContext, str(spark.sparkContext.master)
        # local-cluster[...] is a cluster of processes
        return Division(context.defaultParallelism, master != "local" and not master.startswith("local["))

    def reading_tasks(self, total_bytes: int) -> int:
        """Tasks that read: on one machine a multiple of its cores, so that no core is idle while another does a last task."""
        if not self.is_cluster:
            return self.cores * max(1, _ceil(total_bytes, LOCAL_TASK_BYTES * self.cores))
        return max(1, _ceil(total_bytes, CLUSTER_TASK_BYTES), min(self.cores, _ceil(total_bytes, LEAST_TASK_BYTES)))

    def sequence_bytes(self, total_bytes: int) -> float:
        """Most bytes of consecutive segments that one reader reads as one sequence."""
        if not self.is_cluster:
            return min(LOCAL_TASK_BYTES, total_bytes / (SEQUENCES_PER_CORE * self.cores))
        return total_bytes / self.reading_tasks(total_bytes)

    def row_tasks(self, total_bytes: int, pieces: int) -> int:
        """Tasks that read ``pieces`` pieces of files of rows."""
        tasks = self.reading_tasks(total_bytes)
        return max(1, min(pieces, tasks if self.is_cluster else SEQUENCES_PER_CORE * tasks))

    def replays(self, offsets_partitions: int, most: int) -> int:
        """Shuffle partitions of the replay. most: on one machine, the number that the session has for shuffles."""
        return max(1, SPREAD * offsets_partitions if self.is_cluster else min(offsets_partitions, most))

    def writers(self, total_bytes: int, offsets_partitions: int) -> int:
        """Tasks that write the state tables: the rows of one offsets partition go to one of them."""
        most = offsets_partitions if self.is_cluster else self.cores
        return max(1, min(most, 1 + total_bytes // STATE_WRITER_BYTES))


def in_tasks(spark: SparkSession, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply the function to each item in a Spark task of its own; return the results in order."""

    def of_places(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [pickle.dumps((place, function(items[place]))) for place in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"result": pa.array(results, pa.binary())})

    rows = spark.range(0, len(items), 1, len(items)).mapInArrow(of_places, "result BINARY").collect()
    results = dict(pickle.loads(row.result) for row in rows)
    return [results[place] for place in range(len(items))]


def _ceil(total: int, part: int) -> int:
    return -(-total // part)
