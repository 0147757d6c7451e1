"""Reads the copies of a log into facts: one pass over each partition, in several processes where the log is large."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from groupcoord_spark.health.facts import CopyFacts, FilesBeside, PartitionFacts
from groupcoord_spark.health.gather import gather_partition
from groupcoord_spark.log import PartitionLog
from groupcoord_spark.log.broker_files import read_log_directory_files, read_partition_files
from groupcoord_spark.log.directory import plan_copies
from groupcoord_spark.log.storage import Location

SMALL_LOG_BYTES: Final = 256 << 20
"""Below it one process has read the log before others would have started."""


def read_copies(inputs: Sequence[str], *, processes: int | None = None) -> list[CopyFacts]:
    """The facts of every partition in every log directory among the inputs.

    processes: how many read at the same time; None: one for each processor where the log is large, else this one alone.

    Raises InputError where an input is not there, is no log of the offsets topic, or cannot be read.
    """
    copies = [(log_dir, plan, read_log_directory_files(log_dir)) for log_dir, plan in plan_copies(inputs)]
    tasks = [
        (partition, FilesBeside(read_partition_files(Location.of(partition.directory)), files))
        for _, plan, files in copies
        for partition in plan.partitions
    ]
    if processes is None:
        is_large = sum(partition.bytes for partition, _ in tasks) >= SMALL_LOG_BYTES
        processes = len(os.sched_getaffinity(0)) if is_large and hasattr(os, "sched_getaffinity") else 1
    facts = _facts_of(tasks, min(processes, len(tasks)))
    by_copy = []
    for log_dir, plan, files in copies:
        of_copy, facts = facts[: len(plan.partitions)], facts[len(plan.partitions) :]
        by_copy.append(CopyFacts(log_dir.shown, files, tuple(of_copy)))
    return by_copy


def _facts_of(tasks: Sequence[tuple[PartitionLog, FilesBeside]], processes: int) -> list[PartitionFacts]:
    """The facts of each task, in their order. The largest partitions are read first: no process waits for the last of them."""
    order = sorted(range(len(tasks)), key=lambda task: -tasks[task][0].bytes)
    facts: dict[int, PartitionFacts] = {}
    if processes < 2:
        return [gather_partition(*task) for task in tasks]
    # spawned, not forked: Arrow has threads, and a fork keeps their locks
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = {task: pool.submit(gather_partition, *tasks[task]) for task in order}
        for task, future in futures.items():
            facts[task] = future.result()
    return [facts[task] for task in range(len(tasks))]
