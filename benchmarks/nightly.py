"""nightly.py --peers PEERS.SH [--work DIR] [--records 2000000,10000000] [--codec none] [--hot]: the nightly next to Kafka's own readers.

PEERS.SH is a script with the commands ``generate DIR --records N --groups G --partitions P --seed S``, ``load DIR`` and ``dump-log DIR``,
each printing one JSON line with wall_s and cpu_s: it makes a realistic dump and times Kafka's own coordinator loading it, and
kafka-dump-log printing it. Everything is run in one go, one after the other; compare ratios, not seconds.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from measure import measure

PARTITIONS, SEED = 50, 1
FEWEST_GROUPS, RECORDS_OF_A_GROUP = 500, 20_000
"""More records are of more groups: the same few would have members with thousands of partitions each."""


def peer(script: Path, *arguments: str) -> dict[str, float]:
    """Return the JSON line of one command of the kit."""
    done = subprocess.run(["bash", str(script), *arguments], capture_output=True, text=True, check=True)
    return next(json.loads(line) for line in reversed(done.stdout.splitlines()) if line.startswith("{"))


def generated(script: Path, work: Path, records: int, codec: str, *, hot: bool = False) -> Path:
    """Return the directory of a dump of this number of records, made where it is not there yet."""
    dump = work / f"{records}-{codec}{'-hot' if hot else ''}"
    if not (dump / "generated.json").exists():
        groups = max(FEWEST_GROUPS, records // RECORDS_OF_A_GROUP)
        options = ["--records", records, "--groups", groups, "--partitions", PARTITIONS, "--seed", SEED, "--codec", codec]
        peer(script, "generate", str(dump), *map(str, options), *(["--hot"] if hot else []))
    return dump


def in_memory(dump: Path) -> Path:
    """Return the dump, read once, so that every command that is measured finds it in memory."""
    for segment in dump.glob("*/*.log"):
        with segment.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    return dump


def nightly(dump: Path, work: Path, *options: str) -> dict[str, float]:
    """Time one run into an empty warehouse."""
    warehouse = work / "warehouse"
    shutil.rmtree(warehouse, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "groupcoord_spark",
        "nightly",
        str(dump),
        "--warehouse",
        str(warehouse),
        "--cluster",
        "bench",
        "--quiet",
        *options,
    ]
    result = measure(command)
    if result["rc"]:
        sys.exit(f"{' '.join(command)} failed")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/bench"))
    parser.add_argument("--records", default="2000000,10000000")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--hot", action="store_true")
    given = parser.parse_args()
    rows = []
    for records in map(int, given.records.split(",")):
        dump = generated(given.peers, given.work, records, given.codec, hot=given.hot)
        measured = {
            "load": peer(given.peers, "load", str(in_memory(dump))),
            "dump-log": peer(given.peers, "dump-log", str(in_memory(dump))),
            "state": nightly(in_memory(dump), given.work, "--no-history"),
            "history": nightly(in_memory(dump), given.work),
        }
        rows.append((records, measured))
        for name, result in measured.items():
            memory = f" peak {result['peak_pss_mb']:>5} MB" if "peak_pss_mb" in result else ""
            print(f"{records:>11,} {name:<9} wall {result['wall_s']:>7.2f} s  cpu {result['cpu_s']:>7.2f} s{memory}", flush=True)
    print()
    for records, of in rows:
        cpu, wall = of["state"]["cpu_s"], of["state"]["wall_s"]
        print(f"{records:,} records, state tables: cpu {cpu / of['dump-log']['cpu_s']:.2f} x dump-log")
        print(f"{records:,} records, state tables: cpu {cpu / of['load']['cpu_s']:.2f} x load")
        print(f"{records:,} records, state tables: wall {wall / of['dump-log']['wall_s']:.2f} x dump-log")
        extra = of["history"]["cpu_s"] - cpu
        ratios = f"{extra / of['load']['cpu_s']:.2f} x load, {extra / of['dump-log']['cpu_s']:.2f} x dump-log"
        print(f"{records:,} records, history adds {extra / records * 1e6:.2f} us of CPU per record: {ratios}")
    if len(rows) > 1:
        (few, first), (many, last) = rows[0], rows[-1]
        ours, loads = (last[name]["cpu_s"] - first[name]["cpu_s"] for name in ("state", "load"))
        print(f"slope from {few:,} to {many:,}: {ours / (many - few) * 1e6:.2f} us per record, {ours / loads:.2f} x load")


if __name__ == "__main__":
    main()
