"""measure.py COMMAND...: runs a command and prints wall, CPU and peak memory of all its processes as one JSON line. Linux.

CPU is user + system of every process the command started, those included that outlive their parent (Spark's JVM does): this process
adopts and waits for them. Memory is the proportional set size (PSS) of all of them at one moment, sampled: shared pages count once.
"""

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_SECONDS = 0.2


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


def pss_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def measure(command: list[str], *, quiet: bool = False) -> dict[str, float]:
    """Runs ``command`` to its end: wall_s, cpu_s, peak_pss_mb, rc."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak[0] = max(peak[0], sum(map(pss_kib, descendants(os.getpid()))))

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
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "peak_pss_mb": round(peak[0] / 1024), "rc": rc}


if __name__ == "__main__":
    result = measure(sys.argv[1:])
    print(json.dumps(result))
    sys.exit(int(result["rc"]))
