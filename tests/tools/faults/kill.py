"""Kills Java, the daemon of the workers or the workers at many moments of ``groupcoord nightly``, and counts the faults.

``python -m tests.tools.faults.kill --moments 30``
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.conftest import SAMPLE_LOGS
from tests.tools.faults.running import Command, data_files, newest_run, nightly

KINDS = ("java", "daemon", "worker")
SENTENCE = re.compile(
    r"Error: (Java, in which Spark runs, (was killed by SIGKILL|died|ended before Spark was up)|A Python worker of Spark died)"
    r".* The tables are as they were\..*"
)


def kill(command: Command, kind: str) -> bool:
    """Return whether there was such a process."""
    processes = command.processes(kind)
    for each in processes:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    return bool(processes)


def faults_of(command: Command, warehouse: Path, before: str | None, files_before: set[str]) -> list[str]:
    """Return the faults after a run with a killed process."""
    code = command.process.returncode
    done = newest_run(warehouse) != before
    faults = []
    if code not in (0, 1) or done != (code == 0):
        faults.append(f"exit code {code}, {'a' if done else 'no'} new night")
    if code == 1 and not (len(command.errors) == 1 and SENTENCE.match(command.errors[0])):
        faults.append(f"stderr {command.errors[:6]}")
    if left := command.left_processes():
        faults.append(f"processes {left}")
    if left := [each for each in command.left_files() if not re.fullmatch(r"groupcoord-run-\w+(/java\.log)?", each)]:
        faults.append(f"temporary files {left[:5]}")
    if not done and (new := data_files(warehouse) - files_before):
        faults.append(f"data files {sorted(new)[:3]}")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", type=Path, default=SAMPLE_LOGS)
    parser.add_argument("--moments", type=int, default=30)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    said: Counter[str] = Counter()
    failed = killed = 0
    with tempfile.TemporaryDirectory(prefix="kill-") as directory:
        place = Path(directory)
        warehouse = place / "warehouse"
        nightly(place, warehouse, dump=options.dump).wait()
        for kind in itertools.cycle(options.kinds):
            if killed == options.moments:
                break
            before, files_before = newest_run(warehouse), data_files(warehouse)
            command = nightly(place, warehouse, dump=options.dump)
            # The process is killed some time after it is first seen, or, a worker, as long as there is one.
            command.wait_until(lambda: command.processes(kind))  # noqa: B023
            time.sleep(chosen.random() * (8 if kind == "java" else 2))
            is_killed = kill(command, kind)
            stages = command.stages()
            command.wait()
            faults = faults_of(command, warehouse, before, files_before) if is_killed else []
            killed += is_killed
            failed += bool(faults)
            if is_killed:
                said.update(re.sub(r"/\S+", "FILE", each) for each in command.errors)
                after = stages[-1] if stages else "nothing"
                print(f"{kind:7} killed after {after:24} exit {command.process.returncode}  {'; '.join(faults) or 'fine'}", flush=True)
        last = nightly(place, warehouse, dump=options.dump)
        print(f"{failed} of {killed} kills failed; the next run ended with {last.wait()}")
        for sentence, times in said.most_common():
            print(f"{times:3} x {sentence}")


if __name__ == "__main__":
    main()
