"""Whether a run, a list, a dump and the doctor still cost what they did: ratios of CPU time, compared with the figures in ratios.json.

A ratio is the CPU time of a command divided by the CPU time of a fixed calculation of Python's own library, both measured here, the least
of several runs: a faster machine is faster at both. Ends with 1 where a ratio is more than 25 % above its figure.

    python benchmarks/ratios.py [--work DIR] [--write]

--write keeps today's ratios as the new figures. A commit that does so says why.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from measure import measure

KEPT = Path(__file__).with_name("ratios.json")
TOLERANCE = 1.25
RUNS = 3

RECORDS, PARTITIONS, GROUPS, RECORDS_OF_A_BATCH = 2_000_000, 8, 2_000, 200
FIRST_MS = 1_767_225_600_000

YARDSTICK = """
import json, random, zlib
numbers = random.Random(1)
rows = [{"group": f"group-{numbers.randrange(2000)}", "offset": numbers.randrange(10**9), "note": "n" * (n % 40)} for n in range(40_000)]
for _ in range(12):
    text = json.dumps(rows)
    rows = json.loads(zlib.decompress(zlib.compress(text.encode(), 6)))
    rows.sort(key=lambda row: (row["group"], row["offset"]))
"""


def write_dump(place: Path, records: int) -> None:
    """Commits of many groups, in batches, over all partitions."""
    from groupcoord_spark.log.writing import Batch, RecordToLog, write_segment
    from groupcoord_spark.protocol import encode_key, encode_value
    from groupcoord_spark.protocol.record_types import KeyType

    places = [{"group_id": f"group-{n}", "topic": f"topic-{n % 50}", "partition": n % 12} for n in range(GROUPS)]
    keys = [encode_key(KeyType.OFFSET_COMMIT, place) for place in places]
    commits = ({"committed_offset": n, "leader_epoch": 1, "metadata": "", "commit_timestamp_ms": FIRST_MS + n} for n in range(GROUPS))
    values = [encode_value(KeyType.OFFSET_COMMIT, 3, commit) for commit in commits]
    for partition in range(PARTITIONS):
        of_partition = keys[partition::PARTITIONS]
        logged = [RecordToLog(of_partition[n % len(of_partition)], value, FIRST_MS + n) for n, value in enumerate(values)]
        batches = (
            Batch(first, tuple(logged[first % GROUPS : first % GROUPS + RECORDS_OF_A_BATCH]))
            for first in range(0, records // PARTITIONS, RECORDS_OF_A_BATCH)
        )
        write_segment(place, partition, batches)


def least_cpu_s(*command: str, warehouse: Path | None = None) -> float:
    """CPU seconds of a command of this Python, the least of several runs; ``warehouse`` is removed before each."""
    seconds = []
    for _ in range(RUNS):
        if warehouse is not None:
            shutil.rmtree(warehouse, ignore_errors=True)
        result = measure([sys.executable, *command], quiet=True)
        if result["rc"]:
            sys.exit(f"{' '.join(command)} failed")
        seconds.append(result["cpu_s"])
    return min(seconds)


def measured(work: Path) -> dict[str, float]:
    """Return name -> ratio."""
    dump, warehouse = work / "logs", work / "warehouse"
    if not dump.exists():
        write_dump(dump, RECORDS)
    program = ("-m", "groupcoord_spark")
    nightly = (*program, "nightly", str(dump), "--warehouse", str(warehouse), "--cluster", "bench", "--quiet")
    yardstick = least_cpu_s("-c", YARDSTICK)
    seconds = {
        "nightly --no-history": least_cpu_s(*nightly, "--no-history", warehouse=warehouse),
        "nightly": least_cpu_s(*nightly, warehouse=warehouse),
        "list": least_cpu_s(*program, "list", "--warehouse", str(warehouse), "--cluster", "bench", "--state"),
        "dump": least_cpu_s(*program, "dump", str(dump), "--quiet"),
        "doctor": least_cpu_s(*program, "doctor", str(dump)),
    }
    print(f"yardstick {yardstick:.2f} s of CPU")
    return {name: round(cpu_s / yardstick, 3) for name, cpu_s in seconds.items()}


def slower(ratios: Mapping[str, float], kept: Mapping[str, float]) -> list[str]:
    """Return a sentence for each ratio that is more than TOLERANCE times its kept figure, or that has none."""
    sentences = []
    for name, ratio in ratios.items():
        if name not in kept:
            sentences.append(f"{name} has no figure in {KEPT.name}: run with --write.")
        elif ratio > kept[name] * TOLERANCE:
            more = ratio / kept[name] - 1
            sentences.append(f"{name} takes {ratio:.2f} of the yardstick, {more:.0%} more than the {kept[name]:.2f} that are kept.")
    return sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("build/ratios"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    ratios = measured(given.work)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name, ratio in ratios.items():
        print(f"{name:24}{ratio:8.2f}   kept {kept.get(name, float('nan')):8.2f}")
    if given.write:
        KEPT.write_text(json.dumps(ratios, indent=2) + "\n")
    elif sentences := slower(ratios, kept):
        sys.exit("\n".join(sentences))


if __name__ == "__main__":
    main()
