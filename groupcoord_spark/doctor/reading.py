"""Reads the copies of a log into facts: one pass over each partition, in several processes where the log is large."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Final, TypeVar

from groupcoord_spark.doctor.facts import CopyFacts, FilesBeside
from groupcoord_spark.doctor.gather.partition import gather_partition
from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.log import PartitionLog
from groupcoord_spark.log.broker_dir import broker_files
from groupcoord_spark.log.directory import plan_copies
from groupcoord_spark.storage.held_files import HeldFiles
from groupcoord_spark.storage.location import Location

SMALL_LOG_BYTES: Final = 256 << 20
"""Below it one process has read the log before others would have started."""

Result = TypeVar("Result")


def map_partitions(function: Callable[..., Result], tasks: Sequence[tuple[PartitionLog, Any]]) -> list[Result]:
    """``function(log, argument)`` for each task, in the order of the tasks: where the logs are large, in a process for each processor.

    Raises GroupcoordError where a process was killed, and whatever ``function`` raises.
    """
    processes = min(_processors(), len(tasks))
    if processes < 2 or sum(log.bytes for log, _ in tasks) < SMALL_LOG_BYTES:
        return [function(*task) for task in tasks]
    largest_first = sorted(range(len(tasks)), key=lambda number: -tasks[number][0].bytes)
    # spawned, not forked: Arrow has threads, and a fork would keep their locks
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = {number: pool.submit(function, *tasks[number]) for number in largest_first}
        try:
            return [futures[number].result() for number in range(len(tasks))]
        except BrokenProcessPool:
            raise GroupcoordError(
                "A process that reads the log was killed, perhaps for lack of memory. Read fewer partitions at a time."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_copies(inputs: Sequence[str]) -> list[CopyFacts]:
    """Gather the statistics of every partition in every log directory among the inputs.

    Raises InputError if an input is missing, is not a log of the offsets topic, or cannot be read.
    """
    with HeldFiles() as held_files:
        copies = [(log_dir, plan, broker_files.read_log_directory_files(log_dir)) for log_dir, plan in plan_copies(inputs, held=held_files)]
        tasks = [(partition, files_beside(partition, log_dir, files)) for log_dir, plan, files in copies for partition in plan.partitions]
        facts = iter(map_partitions(gather_partition, tasks))
    return [CopyFacts(log_dir.shown, log_dir.uri, files, tuple(next(facts) for _ in plan.partitions)) for log_dir, plan, files in copies]


def segments_beside(log: PartitionLog) -> FilesBeside:
    """Return the segment files of a log, including empty ones, without other files: enough to gather, not to judge."""
    directory = Location.of(log.segments[0].uri).parent()
    return FilesBeside(broker_files.PartitionFiles(segments=broker_files.read_segment_sizes(directory)), broker_files.LogDirectoryFiles())


def log_dir_of(log: PartitionLog) -> Location:
    """Return the log directory of a log with a segment."""
    return Location.of(log.segments[0].uri).parent().parent()


def all_files_beside(log: PartitionLog) -> FilesBeside:
    """Return the side files of a log with a segment."""
    log_dir = log_dir_of(log)
    return files_beside(log, log_dir, broker_files.read_log_directory_files(log_dir))


def files_beside(log: PartitionLog, log_dir: Location, checkpoints: broker_files.LogDirectoryFiles) -> FilesBeside:
    """Return the side files of this log; none if the user named single segments of a partition."""
    # log.directory is the printed form of the path, without the password that opens the directory
    files = broker_files.read_partition_files(log_dir.child(log.directory.rstrip("/").rsplit("/", 1)[-1]))
    read = {segment.base_offset for segment in log.segments}
    is_whole = all(base_offset in read for base_offset, size in files.segments if size)
    return FilesBeside(files, checkpoints) if is_whole else FilesBeside(broker_files.PartitionFiles(), broker_files.LogDirectoryFiles())
