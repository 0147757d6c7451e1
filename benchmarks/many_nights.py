"""Many small nights: what the commands cost after them, and how many files and bytes there are.

The nights are made without Spark, through ``begin_run`` and ``commit_run``, with the upkeep that a nightly run does each tenth night:

    python benchmarks/many_nights.py --nights 400 --warehouse /tmp/many
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from measure import measure

from groupcoord_spark.pipeline.run_nightly import RUNS_BETWEEN_UPKEEP
from groupcoord_spark.warehouse import TABLES, begin_run, commit_run, write_part
from groupcoord_spark.warehouse.maintenance import FEW_BYTES, maintain

CLUSTER = "bench"
FIRST_RUN_MS = 1_767_225_600_000
DAY_MS = 86_400_000


def make_run(warehouse: str, number: int, groups: int) -> float:
    """Seconds that ``begin_run`` and ``commit_run`` of one night took. Each night every group commits, and one group is new."""
    as_of_ms = FIRST_RUN_MS + number * DAY_MS
    names = [f"group-{n:05d}" for n in range(groups)] + [f"born-{number}"]
    began = time.perf_counter()
    start = begin_run(warehouse, CLUSTER)
    seconds = time.perf_counter() - began
    rows = _rows(names, number, as_of_ms, start.run_id)
    files = {
        name: write_part(start.location.uri, TABLES[name], TABLES[name].from_rows(of_table), CLUSTER, start.run_id)
        for name, of_table in rows.items()
    }
    run = {
        "as_of_ms": as_of_ms,
        "semantics": "java",
        "broker_version": "4.3",
        "input_kind": "segments",
        "inputs": ["/dump"],
        "settings": {"offsets.retention.ms": str(7 * DAY_MS), "history": "true"},
        "records_read": len(names),
        "records_decoded": len(names),
        "records_quarantined": 0,
        "bytes_read": 100 * len(names),
    }
    began = time.perf_counter()
    commit_run(start, run, files)
    return seconds + time.perf_counter() - began


def _rows(names: list[str], number: int, as_of_ms: int, run_id: str) -> dict[str, list[dict[str, Any]]]:
    record_offsets = [number * len(names) + n for n in range(len(names))]
    place = {"topic": "orders", "partition": 0, "committed_offset": number, "offsets_partition": 0, "value_version": 4}
    commits = [
        {**place, "group_id": name, "record_offset": record_offset, "record_timestamp_ms": as_of_ms, "commit_timestamp_ms": as_of_ms}
        for name, record_offset in zip(names, record_offsets, strict=True)
    ]
    of_log = {"incarnation": 0, "key_version": 1, "is_tombstone": False, "is_transactional": False, "key_size": 30, "value_size": 24}
    counts = {"records": 0, "decoded": 0, "quarantined": 0, "control_records": 0, "live_keys": 0, "bytes": 0, "last_stable_offset": 0}
    end_offset = record_offsets[-1] + 1
    return {
        "groups": [
            {
                "group_id": name,
                "group_type": "classic",
                "is_simple": False,
                "state": "Empty",
                "protocol_type": "consumer",
                "generation": 1,
                "member_count": 0,
                "topic_count": 1,
                "offset_count": 1,
                "pending_offset_count": 0,
                "assigned_partition_count": 0,
                "offsets_partition": 0,
            }
            for name in names
        ],
        "committed_offsets": commits,
        "offset_commits": [{**row, **of_log} for row in commits],
        "surviving_records": [
            {"run_id": run_id, "offsets_partition": 0, "incarnation": 0, "first_offset": record_offsets[0], "end_offset": end_offset}
        ],
        "warnings": [{"run_id": run_id, "code": "tail_truncated", "detail": "The last entry is cut.", "offsets_partition": 0}],
        "offsets_partitions": [{"offsets_partition": 0, "incarnation": 0, "end_offset": end_offset, **counts}],
    }


def on_disk(warehouse: Path) -> str:
    files = [path for path in warehouse.rglob("*") if path.is_file()]
    data = [path for path in files if "_delta_log" not in path.parts]
    return (
        f"{len(data):,} data files, {sum(path.stat().st_size for path in data) / 1e6:,.1f} MB;"
        f" {len(files) - len(data):,} files of logs, {sum(path.stat().st_size for path in files) / 1e6:,.1f} MB in all"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=400)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--warehouse", type=Path, required=True, help="a directory that does not exist yet, or of an earlier benchmark")
    options = parser.parse_args()
    if options.warehouse.exists():
        shutil.rmtree(options.warehouse)
    warehouse = str(options.warehouse)
    seconds: list[float] = []
    upkeep: list[float] = []
    for number in range(options.nights):
        seconds.append(make_run(warehouse, number, options.groups))
        if (number + 1) % RUNS_BETWEEN_UPKEEP == 0:
            began = time.perf_counter()
            # All nights are made within one real month: after each thirtieth night upkeep takes that month to be over.
            is_over = (number + 1) % 30 == 0
            maintain(warehouse, CLUSTER, most_bytes=FEW_BYTES, now_ms=time.time_ns() // 1_000_000 + is_over * 40 * DAY_MS)
            upkeep.append(time.perf_counter() - began)
        if (number + 1) % 100 == 0:
            print(f"{number + 1} nights: {on_disk(options.warehouse)}", flush=True)
    for begin in range(0, options.nights, 50):
        print(f"nights {begin + 1} to {begin + 50}: {statistics.median(seconds[begin : begin + 50]):.2f} s each to begin and commit")
    print(f"upkeep: first {upkeep[0]:.2f} s, last {upkeep[-1]:.2f} s" if upkeep else "no upkeep")
    began = time.perf_counter()
    maintain(warehouse, CLUSTER, now_ms=time.time_ns() // 1_000_000 + 40 * DAY_MS)
    print(f"groupcoord maintain in the next month: {time.perf_counter() - began:.2f} s; {on_disk(options.warehouse)}")
    at = str(FIRST_RUN_MS + (options.nights - 10) * DAY_MS)
    page = str(options.warehouse.with_suffix(".html"))
    questions = (["list"], ["describe", "--all-groups", "--at", at], ["diff"], ["runs"], ["warnings"], ["why", "group-00001"])
    for command in (*questions, ["morning"], ["metrics"], ["report", "--out", page], ["maintain"]):
        found = measure([sys.executable, "-m", "groupcoord_spark", *command, "--warehouse", warehouse, "--quiet"], quiet=True)
        print(f"groupcoord {' '.join(command)}: {found['cpu_s']:.2f} s of CPU, {found['peak_pss_mb']} MB")


if __name__ == "__main__":
    main()
