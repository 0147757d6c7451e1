"""Fills the disk at every tenth of what a run writes, and counts the faults. Needs root, for small file systems in memory.

The first, the second and the third of the golden nights are run into a file system that has room for some tenths of what the run
needs. The run must end with exit code 1 and one sentence, readers see the run before, the run after there is room again is like an
undisturbed one, and after upkeep two days later no file is left that no night needs. ``python -m tests.tools.faults.full_disk``
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.running import tables_of
from tests.tools.faults.damage import Tables, called, is_one_sentence, night
from tests.tools.faults.running import left_in_warehouse, made_older, nightly

PAGE = 4096
ROOM = 64 << 20
"""Bytes of a file system that is not full."""


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """Yield a file system of this number of bytes at a directory, which is made. Raises CalledProcessError where it cannot be mounted."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=0", "tmpfs", str(place)], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
        place.rmdir()


def resize(disk: Path, size: int) -> None:
    """Gives the file system another size, at least a page."""
    subprocess.run(["mount", "-o", f"remount,size={max(size, PAGE)}", str(disk)], check=True)


def used_bytes(disk: Path) -> int:
    status = os.statvfs(disk)
    return (status.f_blocks - status.f_bfree) * status.f_bsize


def faults_of(disk: Path, number: int, tenth: int, needed: int, before: Tables | None, after: Tables) -> Iterator[str]:
    """Yield the faults of a run and the next one on a disk with room for some tenths of the bytes that a run needs."""
    warehouse = disk / "w"
    resize(disk, used_bytes(disk) + needed * tenth // 10)
    code, stderr = night(warehouse, number)
    if code == 0:
        yield "the night ended with 0: it needs less room than it was given"
    elif not is_one_sentence(code, stderr) or "No space left on device" not in stderr:
        yield f"the night ended with {code}: {stderr.strip()[-400:]}"
    seen, errors = called("list", "--warehouse", str(warehouse))
    if not is_one_sentence(seen, errors) or (seen == 0) != (before is not None):
        yield f"list ended with {seen}: {errors.strip()[-400:]}"
    if before is not None and tables_of(warehouse, "nights") != before:
        yield "readers do not see the night before"
    resize(disk, ROOM)
    code, stderr = night(warehouse, number)
    if code:
        yield f"the night after there was room again ended with {code}: {stderr.strip()[-400:]}"
    elif different := [name for name, rows in tables_of(warehouse, "nights").items() if rows != after[name]]:
        yield f"other rows than an undisturbed night in {', '.join(different)}"
    made_older(warehouse)
    code, stderr = called("maintain", "--warehouse", str(warehouse), "--quiet")
    if code:
        yield f"maintain ended with {code}: {stderr.strip()[-400:]}"
    if left := left_in_warehouse(warehouse):
        yield f"{len(left)} files are left: {left[:4]}"


def undisturbed(place: Path, nights: int) -> tuple[list[Path], list[Tables | None], list[int]]:
    """Copies of the warehouse before each night and after the last one, the rows in them, and the bytes that each night writes."""
    copies: list[Path] = []
    rows: list[Tables | None] = [None]
    needed: list[int] = []
    with small_disk(place / "undisturbed", ROOM) as disk:
        (place / "copy-0").mkdir()
        copies.append(place / "copy-0")
        for number in range(1, nights + 1):
            before = used_bytes(disk)
            assert night(disk / "w", number) == (0, "")
            needed.append(used_bytes(disk) - before)
            copies.append(place / f"copy-{number}")
            shutil.copytree(disk / "w", copies[-1])
            rows.append(tables_of(disk / "w", "nights"))
    return copies, rows, needed


def full_temporary_directory(place: Path, sizes: list[int]) -> Iterator[tuple[int, str]]:
    """Yield the faults of a run whose directory for temporary files is full, by its bytes."""
    for size in sizes:
        with small_disk(place / f"temporary-{size}", size) as disk:
            command = nightly(place, place / f"w-{size}", TMPDIR=str(disk), SPARK_LOCAL_DIRS=str(disk))
            code = command.wait()
            done = called("list", "--warehouse", str(place / f"w-{size}"))[0] == 0
            is_fine = done == (code == 0) and is_one_sentence(code, "\n".join(command.errors))
            yield size, "" if is_fine else f"exit code {code}, {'a' if done else 'no'} night: {command.errors[:4]}"


def main() -> None:
    from groupcoord_spark.spark.session import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=3)
    parser.add_argument("--temporary", type=int, nargs="*", default=[4096, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20])
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="full-disk-") as directory:
        place = Path(directory)
        spark = session(settings={"spark.master": "local[2]"})
        copies, rows, needed = undisturbed(place, options.nights)
        print(f"bytes that the nights write: {needed}")
        for number in range(1, options.nights + 1):
            for tenth in range(10):
                with small_disk(place / f"disk-{number}-{tenth}", ROOM) as disk:
                    if number > 1:
                        shutil.copytree(copies[number - 1], disk / "w")
                    after = rows[number]
                    assert after is not None
                    faults = list(faults_of(disk, number, tenth, needed[number - 1], rows[number - 1], after))
                counts["full disks"] += 1
                counts["with a fault"] += bool(faults)
                print(f"night {number}, {tenth} tenths: {'; '.join(faults) or 'fine'}", flush=True)
        spark.stop()
        for size, fault in full_temporary_directory(place, options.temporary):
            counts["full temporary directories"] += 1
            counts["with a fault"] += bool(fault)
            print(f"{size} bytes for temporary files: {fault or 'fine'}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
