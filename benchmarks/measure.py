"""measure.py COMMAND...: runs a command and prints wall, CPU and peak memory of all its processes as one JSON line. Linux.

CPU is user + system of every process the command started, by what /proc said of each when it was last seen: Java and Spark's Python
workers are killed at the end, and nobody waits for the workers, so no parent's account has their time. Each process can have used up to
CPU_SAMPLE_SECONDS more than is counted (a control group's account: 0.1 s less in a run of 16 s). Memory is the proportional set size
(PSS) of all processes at one moment: shared pages count once.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
CPU_SAMPLE_SECONDS = 0.02
LISTING_SECONDS = 0.1
"""How often new processes are looked for, and memory is read: that takes longer than to read the CPU time of known processes."""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> list[int]:
    """Process ids of everything that ``root`` started, directly or not."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        for pid in children.get(queue.pop(), []):
            found.append(pid)
            queue.append(pid)
    return found


def cpu_ticks(pid: int) -> int:
    """User and system time of a process itself, in clock ticks; 0 when it is gone."""
    with contextlib.suppress(OSError):
        fields = (Path(f"/proc/{pid}/stat")).read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def pss_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def measure(command: list[str], *, quiet: bool = False) -> dict[str, float]:
    """Runs ``command`` to its end: wall_s, cpu_s, peak_pss_mb, rc."""
    # Orphans become children of this process, so that they are seen and waited for.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    peak, done, ticks = [0], threading.Event(), dict[int, int]()

    def watch() -> None:
        alive: list[int] = []
        next_listing = 0.0
        while not done.wait(CPU_SAMPLE_SECONDS):
            if time.monotonic() >= next_listing:
                alive = descendants(os.getpid())
                peak[0] = max(peak[0], sum(map(pss_kib, alive)))
                next_listing = time.monotonic() + LISTING_SECONDS
            ticks.update((pid, used) for pid in alive if (used := cpu_ticks(pid)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL if quiet else None)
    rc = process.wait()
    wall = time.monotonic() - start
    with contextlib.suppress(ChildProcessError):
        while True:  # whatever outlived the command is ours now
            os.wait()
    done.set()
    watcher.join()
    cpu = sum(ticks.values()) / TICKS_A_SECOND
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "peak_pss_mb": round(peak[0] / 1024), "rc": rc}


if __name__ == "__main__":
    result = measure(sys.argv[1:])
    print(json.dumps(result))
    sys.exit(int(result["rc"]))
