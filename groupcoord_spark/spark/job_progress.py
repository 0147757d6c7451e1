"""The progress of a Spark job: bytes read, which each worker writes to a file of the run directory, and tasks done, which Spark counts.

Only a session that this package started has a run directory; in other sessions only the tasks are known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from groupcoord_spark.log import Chunk
from groupcoord_spark.spark.run_directory import VARIABLE, own_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTES = "bytes-read-"
_BYTES_OF_A_NOTE = 8

SHARE_OF_READING = 0.75
"""Share of a run's time spent reading segments; the rest is replay and writing. Measured with 2 to 10 million records on 2 cores."""

_read_by_this_process = 0


class Expected(NamedTuple):
    """The known amount of work of a job that reads segments."""

    bytes: int
    reading_tasks: int
    later_tasks: int


class JobProgress(NamedTuple):
    """The progress of a job. tasks: the number of all tasks, or, without ``expected``, of the tasks that Spark has planned so far."""

    bytes_read: int
    tasks_done: int
    tasks: int
    expected: Expected | None

    @property
    def share(self) -> float:
        """The share of the work that is done, 0 to 1; 0 where it is not known."""
        if self.expected is None or not self.expected.bytes:
            return 0.0
        read = min(1.0, self.bytes_read / self.expected.bytes)
        later = max(0, self.tasks_done - self.expected.reading_tasks) / max(1, self.expected.later_tasks)
        return SHARE_OF_READING * read + (1 - SHARE_OF_READING) * min(1.0, later)


def noted(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the same chunks. After each chunk the worker writes the bytes read so far to its file, which takes microseconds."""
    directory = os.environ.get(VARIABLE)
    if directory is None:
        yield from chunks
        return
    global _read_by_this_process
    note = os.open(Path(directory, f"{_NOTES}{os.getpid()}"), os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for chunk in chunks:
            yield chunk
            _read_by_this_process += chunk.bytes
            os.pwrite(note, _read_by_this_process.to_bytes(_BYTES_OF_A_NOTE, "little"), 0)
    finally:
        os.close(note)


class ProgressOfJob:
    """The progress of the next Spark job. Any thread may call it, a few times a second at most."""

    def __init__(self, spark: SparkSession, expected: Expected | None) -> None:
        self._expected = expected
        self._tracker = spark.sparkContext.statusTracker()
        self._earlier_jobs = set(self._tracker.getJobIdsForGroup())
        self._earlier_bytes = _bytes_noted()

    def __call__(self) -> JobProgress:
        jobs = [self._tracker.getJobInfo(job) for job in set(self._tracker.getJobIdsForGroup()) - self._earlier_jobs]
        stages = [self._tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        # A later job contains the stages of an earlier job again, and skips their tasks.
        tasks = sum(stage.numTasks for stage in stages if stage is not None and stage.numActiveTasks + stage.numCompletedTasks)
        if self._expected is not None:
            tasks = self._expected.reading_tasks + self._expected.later_tasks
        return JobProgress(_bytes_noted() - self._earlier_bytes, min(done, tasks), tasks, self._expected)


def _bytes_noted() -> int:
    directory = own_directory()
    notes = directory.path.glob(f"{_NOTES}*") if directory is not None else []
    return sum(int.from_bytes(note.read_bytes(), "little") for note in notes)
