"""Interrupts ``groupcoord nightly`` at many moments, and counts what failed: ``python -m tests.tools.faults.interrupt --moments 40``."""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path

from tests.conftest import SAMPLE_LOGS
from tests.tools.faults.running import Command, data_files, fractions, newest_run, nightly


def faults_of(command: Command, warehouse: Path, before: str | None, files_before: set[str]) -> list[str]:
    """Return the faults after an interrupted run."""
    code = command.process.returncode
    run = newest_run(warehouse)
    done = run != before
    faults = []
    if code == 0 and not done:
        faults.append("exit code 0 without a new night")
    if code not in (0, 130):
        faults.append(f"exit code {code}")
    if code == 130 and command.errors != ["Interrupted."]:
        faults.append(f"stderr {command.errors[:5]}")
    if left := command.left_processes():
        faults.append(f"processes {left}")
    if left := command.left_files():
        faults.append(f"temporary files {left[:5]}")
    if not done and "read, replay and write" not in command.stages() and (new := data_files(warehouse) - files_before):
        faults.append(f"data files {sorted(new)[:3]}")
    return faults


def _seconds_of(command: Command) -> float:
    began = time.monotonic()
    command.wait()
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", type=Path, default=SAMPLE_LOGS)
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--signal", choices=["SIGINT", "SIGTERM"], default="SIGINT")
    parser.add_argument("--group", action="store_true", help="send it to the whole process group, as a terminal does")
    parser.add_argument("--twice", action="store_true", help="send it again 50 ms later, and again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="interrupt-") as directory:
        place = Path(directory)
        warehouse = place / "warehouse"
        seconds = min(_seconds_of(nightly(place, warehouse, dump=options.dump)) for _ in range(2))
        print(f"a run takes {seconds:.1f} s")
        failed = 0
        slowest = 0.0
        for fraction in fractions(options.moments):
            before, files_before = newest_run(warehouse), data_files(warehouse)
            command = nightly(place, warehouse, dump=options.dump)
            time.sleep(fraction * seconds)
            sent = time.monotonic()
            ended = command.process.poll() is not None
            stages = command.stages()
            number = signal.Signals[options.signal]
            command.send(number, to_group=options.group)
            for _ in range(2 * options.twice):
                time.sleep(0.05)
                command.send(number, to_group=options.group)
            command.wait()
            took = time.monotonic() - sent
            slowest = max(slowest, took)
            faults = faults_of(command, warehouse, before, files_before)
            failed += bool(faults)
            note = "had ended" if ended else f"exit {command.process.returncode} after {took:.2f} s"
            print(f"{fraction * seconds:6.2f} s  after {stages[-1] if stages else 'nothing':24}  {note:26}  {'; '.join(faults) or 'fine'}")
        last = nightly(place, warehouse, dump=options.dump)
        print(f"{failed} of {options.moments} moments failed; the slowest end took {slowest:.2f} s; the next run ended with {last.wait()}")


if __name__ == "__main__":
    main()
