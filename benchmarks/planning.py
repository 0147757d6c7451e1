"""How long the plan of a dump with many segments takes on a slow object store: python benchmarks/planning.py --files 10000 --delay-ms 50

The store is in memory, in a process of its own, and answers each request after the delay (``slow_store.py``). Printed are the seconds that
each part takes in a process of its own, the requests, and the requests for each file.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys

from slow_store import BUCKET, RunningStore, slow_store

from groupcoord_spark.log.writing import Batch, RecordToLog, batch_bytes

PARTITIONS = 50
RECORDS_A_FILE = 20
TIME_MS = 1_795_200_000_000

TIMED = """
import sys, time
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.plan.evidence import evidence_of_segments
from groupcoord_spark.sources.inputs import kind_of
what, place, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
began, cpu = time.monotonic(), time.process_time()
kind_of([place])
if what == "next":
    plan = plan_logs([place], lambda cluster: {number: files * 20 - 1 for number in range(50)})
else:
    plan = plan_logs([place])
    if what == "evidence":
        began, cpu = time.monotonic(), time.process_time()
        evidence_of_segments(plan, {})
print(len([s for log in plan.partitions for s in log.segments]), time.monotonic() - began, time.process_time() - cpu)
"""
PARTS = {
    "first": "plan of the first night",
    "next": "plan of a night that goes on from the last one",
    "evidence": "plan, and a few records of each partition (seconds: of the records alone)",
}


def dump(files: int) -> dict[str, bytes]:
    """Return the objects of a dump: ``files`` segments of 20 records in 50 partitions, with an index next to each."""
    objects = {"logs/meta.properties": b"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"}
    for number in range(files):
        partition, base = number % PARTITIONS, number // PARTITIONS * RECORDS_A_FILE
        records = tuple(_commit(partition, base + i) for i in range(RECORDS_A_FILE))
        name = f"logs/__consumer_offsets-{partition}/{base:020d}"
        objects[f"{name}.log"] = batch_bytes(Batch(base, records))
        objects[f"{name}.index"] = bytes(8)
    return objects


def _commit(partition: int, record_offset: int) -> RecordToLog:
    group = f"group-{partition}".encode()
    key = struct.pack(">hh", 1, len(group)) + group + struct.pack(">h6si", 6, b"orders", record_offset % 7)
    return RecordToLog(key, struct.pack(">hqihq", 3, record_offset, -1, 0, TIME_MS + record_offset), TIME_MS + record_offset)


def measure(what: str, store: RunningStore, files: int) -> None:
    """Print a line about one part."""
    command = [sys.executable, "-c", TIMED, what, f"s3://{BUCKET}/logs", str(files // PARTITIONS)]
    printed = subprocess.run(command, env=os.environ | store.environment, check=True, capture_output=True, text=True).stdout
    segments, seconds, cpu = printed.split()
    requests, at_once = store.requests()
    total = sum(requests.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(requests.items()))
    print(
        f"{PARTS[what]}: {float(seconds):.1f} s, {float(cpu):.1f} s of CPU, {total} requests ({kinds}), at most {at_once} at once,"
        f" {total / int(segments):.2f} requests a file of {segments}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--delay-ms", type=float, default=50)
    given = parser.parse_args()
    with slow_store(dump(given.files), given.delay_ms / 1000) as store:
        for what in PARTS:
            measure(what, store, given.files)


if __name__ == "__main__":
    main()
