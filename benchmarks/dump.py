"""dump.py --peers PEERS.SH [--work DIR] [--records 2000000,10000000] [--codec none]: `groupcoord dump` next to kafka-dump-log.

PEERS.SH is the script that nightly.py describes. Both print every record with its decoded key and value to nowhere, one after the other on
the same machine; compare the ratio, not the seconds. It also prints how long it takes until the first line is there.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from measure import measure
from nightly import generated, in_memory, peer


def dump(path: Path, *options: str) -> dict[str, float]:
    """Time one dump of everything."""
    result = measure([sys.executable, "-m", "groupcoord_spark", "dump", str(path), "--quiet", *options], quiet=True)
    if result["rc"]:
        sys.exit(f"groupcoord dump {path} failed")
    return result


def seconds_to_first_line(path: Path) -> float:
    """From the start of the command to its first line; the rest is left unread."""
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "groupcoord_spark", "dump", str(path), "--quiet"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        seconds = time.monotonic() - began
        process.stdout.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/bench"))
    parser.add_argument("--records", default="2000000,10000000")
    parser.add_argument("--codec", default="none")
    given = parser.parse_args()
    for records in map(int, given.records.split(",")):
        path = generated(given.peers, given.work, records, given.codec)
        first = seconds_to_first_line(in_memory(path))
        measured = {
            "dump": dump(in_memory(path)),
            "redacted": dump(in_memory(path), "--redact"),
            "dump-log": peer(given.peers, "dump-log", str(in_memory(path))),
        }
        for name, result in measured.items():
            memory = f"  peak {result['peak_pss_mb']:>5} MB" if "peak_pss_mb" in result else ""
            rate = f"{records / result['cpu_s'] / 1e6:>6.2f} M records per CPU s"
            print(f"{records:>11,} {name:<9} wall {result['wall_s']:>7.2f} s  cpu {result['cpu_s']:>7.2f} s {rate}{memory}", flush=True)
        ratio = measured["dump-log"]["cpu_s"] / measured["dump"]["cpu_s"]
        print(f"{records:,} records: {ratio:.1f} x the records of dump-log per CPU s; first line after {first:.2f} s", flush=True)


if __name__ == "__main__":
    main()
