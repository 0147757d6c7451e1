"""What `groupcoord expire` costs over a large warehouse: python benchmarks/expire.py --offsets 1000000"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from groupcoord_spark.warehouse import TABLES, AddedFile, begin_run, commit_run, write_part

NOW_MS = 1_795_250_000_000
DAY_MS = 86_400_000
OFFSETS_OF_A_GROUP = 20
OFFSETS_PARTITIONS = 50
TOPICS = pa.list_(pa.string())
COMMANDS = {
    "expire": [],
    "expire --offsets": ["--offsets", "--output", "csv"],
    "expire --compare": ["--compare", "--offsets-retention", "1d"],
}


def make_warehouse(place: str, count: int) -> None:
    """Live, Empty and simple groups in equal parts, 20 offsets of two topics each, up to 20 days old."""
    chance = random.Random(1)
    start = begin_run(place, "large")
    groups = range(count // OFFSETS_OF_A_GROUP)
    offsets = [(group, number) for group in groups for number in range(OFFSETS_OF_A_GROUP)]

    def moments(rows: int) -> pa.Array:
        return pa.array([NOW_MS - chance.randrange(20 * DAY_MS) for _ in range(rows)], pa.int64())

    def numbers(values: list[int], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind)

    columns = {
        "committed_offsets": {
            "group_id": pa.array([f"group-{group:07d}" for group, _ in offsets]),
            "topic": pa.array([f"topic-{group % 300}-{number % 2}" for group, number in offsets]),
            "partition": numbers([number for _, number in offsets], pa.int32()),
            "committed_offset": numbers([number for _, number in offsets], pa.int64()),
            "commit_timestamp_ms": moments(len(offsets)),
            "value_version": numbers([4] * len(offsets), pa.int16()),
            "offsets_partition": numbers([group % OFFSETS_PARTITIONS for group, _ in offsets], pa.int32()),
            "record_offset": numbers(list(range(len(offsets))), pa.int64()),
        },
        "groups": {
            "group_id": pa.array([f"group-{group:07d}" for group in groups]),
            "group_type": pa.array(["classic" for _ in groups]),
            "is_simple": pa.array([group % 3 == 2 for group in groups]),
            "state": pa.array(["Stable" if group % 3 == 0 else "Empty" for group in groups]),
            "protocol_type": pa.array([None if group % 3 == 2 else "consumer" for group in groups]),
            "generation": numbers([3 for _ in groups], pa.int32()),
            "member_count": numbers([2 if group % 3 == 0 else 0 for group in groups], pa.int32()),
            "subscribed_topics": pa.array([[f"topic-{group % 300}-0"] if group % 3 == 0 else [] for group in groups], TOPICS),
            "topic_count": numbers([2 for _ in groups], pa.int32()),
            "offset_count": numbers([OFFSETS_OF_A_GROUP for _ in groups], pa.int64()),
            "pending_offset_count": numbers([0 for _ in groups], pa.int64()),
            "assigned_partition_count": numbers([0 for _ in groups], pa.int64()),
            "state_timestamp_ms": moments(len(groups)),
            "offsets_partition": numbers([group % OFFSETS_PARTITIONS for group in groups], pa.int32()),
        },
    }
    files: dict[str, list[AddedFile]] = {}
    for table, wire in columns.items():
        files[table] = write_part(place, TABLES[table], TABLES[table].from_milliseconds(pa.table(wire)), "large", start.run_id)
    run = {
        "as_of_ms": NOW_MS,
        "semantics": "java",
        "broker_version": "4.3",
        "input_kind": "generated",
        "inputs": [],
        "settings": {"offsets.retention.ms": str(7 * DAY_MS)},
        **dict.fromkeys(("records_read", "records_decoded", "records_quarantined", "bytes_read"), 0),
    }
    commit_run(start, run, files)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--offsets", type=int, default=1_000_000, help="committed offsets of the warehouse")
    count = options.parse_args().offsets
    with tempfile.TemporaryDirectory() as directory:
        warehouse = str(Path(directory) / "warehouse")
        make_warehouse(warehouse, count)
        for name, words in COMMANDS.items():
            began, cpu_before = time.perf_counter(), cpu_of_children()
            command = [sys.executable, "-m", "groupcoord_spark", "expire", "--warehouse", warehouse, "--quiet", *words]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - began
            cpu_us = (cpu_of_children() - cpu_before) / count * 1e6
            print(f"{name:<20} {count:>12,} offsets {seconds:>8.1f} s wall {cpu_us:>8.2f} us of CPU an offset")


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
