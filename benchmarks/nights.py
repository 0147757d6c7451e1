"""nights.py DUMP [--work DIR] [--nights 30] [--one-percent-only]: what night after night costs.

DUMP is a directory with ``__consumer_offsets-N``, such as ``corners.py`` leaves in its ``--work``. Two questions:

- a run with 1 % new records against an empty night, one without a new record: the CPU of the first divided by the CPU of the second;
- thirty nights that each find the same share of the dump new: the CPU of each night divided by the CPU of the second one, and the bytes and
  files of the tables that each night replaces.

Compare ratios, not seconds: each pair is run one right after the other.
"""

import argparse
import os
import shutil
import struct
import sys
from pathlib import Path

from measure import measure

ENTRY_HEADER = 12
"""Bytes of offset and length, which the length of an entry does not count."""


def cut(dump: Path, part: Path, share: float) -> Path:
    """Return a copy of the dump whose files end at the last border of batches before ``share`` of their bytes."""
    for segment in sorted(dump.glob("*/*.log")):
        size = segment.stat().st_size
        copy = part / segment.parent.name / segment.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with segment.open("rb") as file:
            end = last_border(file.fileno(), size, int(size * share))
        if not copy.exists() or copy.stat().st_size > end:
            shutil.copyfile(segment, copy)
            os.truncate(copy, end)
        else:  # a log only grows
            with segment.open("rb") as file, copy.open("ab") as grown:
                file.seek(copy.stat().st_size)
                grown.write(file.read(end - file.tell()))
    return part


def last_border(descriptor: int, size: int, most: int) -> int:
    """Return the position after the last batch that ends at or before ``most``."""
    position = 0
    while position + ENTRY_HEADER <= size:
        (length,) = struct.unpack(">i", os.pread(descriptor, 4, position + 8))
        if position + ENTRY_HEADER + length > most:
            break
        position += ENTRY_HEADER + length
    return position


def run(dump: Path, warehouse: Path, *options: str) -> dict[str, float]:
    """Return the figures of one run."""
    nightly = [sys.executable, "-m", "groupcoord_spark", "nightly"]
    command = [*nightly, str(dump), "--warehouse", str(warehouse), "--cluster", "bench", "--quiet", *options]
    result = measure(command)
    if result["rc"]:
        sys.exit(f"{' '.join(command)} failed")
    return result


def show(name: str, result: dict[str, float], against: dict[str, float] | None = None) -> None:
    ratio = "" if against is None else f"   {result['cpu_s'] / against['cpu_s']:.2f} x"
    figures = f"wall {result['wall_s']:>7.2f} s  cpu {result['cpu_s']:>7.2f} s  peak {result['peak_pss_mb']:>5} MB"
    print(f"{name:<24} {figures}{ratio}", flush=True)


def one_percent(dump: Path, work: Path) -> None:
    """Prints a first night over 99 % of the dump, then in turn empty nights and the run with the last 1 %."""
    warehouse, part = work / "warehouse", work / "dump"
    for directory in (warehouse, part):
        shutil.rmtree(directory, ignore_errors=True)
    show("99 %, the first night", run(cut(dump, part, 0.99), warehouse))
    show("nothing new, once", run(part, warehouse))
    empty = run(part, warehouse)
    show("nothing new", empty)
    show("1 % new", run(cut(dump, part, 1.0), warehouse), empty)


def many(dump: Path, work: Path, runs: int) -> None:
    """Prints each run against the second one."""
    warehouse, part = work / "warehouse", work / "dump"
    for directory in (warehouse, part):
        shutil.rmtree(directory, ignore_errors=True)
    second = None
    for number in range(1, runs + 1):
        result = run(cut(dump, part, number / runs), warehouse)
        show(f"night {number}", result, second)
        second = result if number == 2 else second
        files = list((warehouse / "latest_records").rglob("*.parquet"))
        print(f"{'':<24} latest_records: {len(files)} files of all nights, the newest {newest(files):,} bytes", flush=True)


def newest(files: list[Path]) -> int:
    return max(files, key=lambda file: file.stat().st_mtime).stat().st_size if files else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--work", type=Path, default=Path("build/bench-nights"))
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--one-percent-only", action="store_true")
    given = parser.parse_args()
    one_percent(given.dump, given.work)
    if not given.one_percent_only:
        print()
        many(given.dump, given.work, given.nights)


if __name__ == "__main__":
    main()
