"""Whether runs, a list, a dump and the doctor still cost what they did: ratios of CPU time, compared with the figures in ratios.json.

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

from corners import AS_OF, Cell, commits, log_of, transaction
from measure import measure

KEPT = Path(__file__).with_name("ratios.json")
TOLERANCE = 1.25
RUNS = 3

USUAL = Cell("2,000 groups, 200 commits a batch", commits(200), groups=2_000, groups_of_unit=200)
CORNERS = (
    Cell("many groups", commits(1), groups=100_000, records=400_000),
    Cell("transactions", transaction(10), groups=1_000, records=400_000),
)

YARDSTICK = """
import json, random, zlib
numbers = random.Random(1)
rows = [{"group": f"group-{numbers.randrange(2000)}", "offset": numbers.randrange(10**9), "note": "n" * (n % 40)} for n in range(40_000)]
for _ in range(12):
    text = json.dumps(rows)
    rows = json.loads(zlib.decompress(zlib.compress(text.encode(), 6)))
    rows.sort(key=lambda row: (row["group"], row["offset"]))
"""


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
    dump, warehouse = str(log_of(USUAL, work)), work / "warehouse"
    program = ("-m", "groupcoord_spark")
    nightly = (*program, "nightly", "--warehouse", str(warehouse), "--cluster", "bench", "--as-of", AS_OF, "--quiet")
    yardstick = least_cpu_s("-c", YARDSTICK)
    seconds = {
        **{cell.name: least_cpu_s(*nightly, "--no-history", str(log_of(cell, work)), warehouse=warehouse) for cell in CORNERS},
        "nightly --no-history": least_cpu_s(*nightly, "--no-history", dump, warehouse=warehouse),
        "nightly": least_cpu_s(*nightly, dump, warehouse=warehouse),
        "list": least_cpu_s(*program, "list", "--warehouse", str(warehouse), "--cluster", "bench", "--state"),
        "dump": least_cpu_s(*program, "dump", dump, "--quiet"),
        "doctor": least_cpu_s(*program, "doctor", dump),
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
