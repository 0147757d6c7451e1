"""Works on the partitions of a log in several processes where the log is large."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Final, TypeVar

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.log import PartitionLog

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
