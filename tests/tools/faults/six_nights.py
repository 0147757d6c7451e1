"""Kills the driver, Java or the workers at random moments of six nights, and counts the faults.

After each kill readers must see the run before or the new one, whole. Then it is repeated, without a kill, on a copy: every
table must have the rows of undisturbed nights, and after upkeep two days later no file may be left that no night needs. The next kill
comes on top of what the killed runs before it have left. ``python -m tests.tools.faults.six_nights --moments 200``
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from groupcoord_spark.warehouse import open_warehouse
from tests.conftest import GOLDEN
from tests.running import tables_of
from tests.tools.faults.damage import Tables, called, is_one_sentence
from tests.tools.faults.kill import kill
from tests.tools.faults.running import Command, left_in_warehouse, made_older

DUMPS = [GOLDEN / "nights" / str(number) / "logs" for number in (1, 2, 3, 4, 5, 5)]
"""The sixth run has no new record."""

AS_OF_MS = (1795231254570, 1795231276109, 1795231315838, 1795231342658, 1795231377976, 1795231477976)
KINDS = ("driver", "java", "worker")
SECONDS_TO_VANISH = 30.0


def arguments(warehouse: Path, number: int) -> list[str]:
    """Return the command of a run, from 1 on."""
    options = ["--warehouse", str(warehouse), "--cluster", "nights", "--as-of", str(AS_OF_MS[number - 1])]
    return ["nightly", str(DUMPS[number - 1]), *options]


def nights_of(warehouse: Path) -> int:
    """Return the number of finished nights."""
    return len(open_warehouse(str(warehouse)).finished_runs("nights")) if (warehouse / "runs").exists() else 0


def killed(command: Command, kind: str, chosen: random.Random, seconds: float) -> str | None:
    """Return the last stage that had ended when the processes of that kind were killed; None where the command had ended before.

    A third of the kills come at any moment of a run, which takes some seconds, a third while it reads, and a third while it commits.
    """
    after = chosen.choice((None, "start Spark", "read, replay and write"))
    if after is not None:
        command.wait_until(lambda: after in command.stages())
    share = {None: 0.8, "start Spark": 0.2, "read, replay and write": 0.015}[after]
    time.sleep(chosen.random() * share * seconds)
    while command.process.poll() is None:
        stage = (command.stages() or ["nothing"])[-1]
        if kind == "driver":
            with suppress(ProcessLookupError):
                os.kill(command.process.pid, signal.SIGKILL)
            return stage
        if kill(command, kind):
            return stage
        time.sleep(0.002)
    return None


def faults_after_kill(command: Command, warehouse: Path, kind: str, before: Tables | None, after: Tables) -> Iterator[str]:
    """Yield the faults right after a kill. before: rows of the run before; None where it has none. after: rows of the killed run."""
    code = command.wait()
    if code not in ((-9, 0) if kind == "driver" else (0, 1)) or (code == 1 and not is_one_sentence(code, "\n".join(command.errors))):
        yield f"exit code {code}: {command.errors[:4]}"
    end = time.monotonic() + SECONDS_TO_VANISH
    while (left := command.left_processes()) and time.monotonic() < end:
        time.sleep(0.2)
    if left:
        yield f"processes are left: {left}"
    seen, stderr = called("list", "--warehouse", str(warehouse))
    if not is_one_sentence(seen, stderr):
        yield f"list ended with {seen}: {stderr[-300:]}"
    if seen == 0:
        rows = tables_of(warehouse, "nights")
        if rows not in (before, after):
            yield "readers see neither the night before nor the new one"


def faults_of_next_run(warehouse: Path, number: int, after: Tables) -> Iterator[str]:
    """Yield the faults after the run was run again without a kill, and after upkeep two days later."""
    code, stderr = called(*arguments(warehouse, number), "--quiet")
    if code:
        yield f"the next run ended with {code}: {stderr.strip()[-300:]}"
        return
    rows = tables_of(warehouse, "nights")
    if different := [name for name in rows if rows[name] != after[name]]:
        yield f"the next run left other rows in {', '.join(different)}"
    made_older(warehouse)
    code, stderr = called("maintain", "--warehouse", str(warehouse), "--quiet")
    if code:
        yield f"maintain ended with {code}: {stderr.strip()[-300:]}"
    if left := left_in_warehouse(warehouse):
        yield f"{len(left)} files are left: {left[:4]}"


def undisturbed(place: Path, nights: int) -> tuple[list[Tables], float]:
    """Return the rows after each night, and the seconds that a run takes as a process of its own."""
    rows = []
    for number in range(1, nights + 1):
        assert called(*arguments(place / "undisturbed", number), "--quiet") == (0, "")
        rows.append(tables_of(place / "undisturbed", "nights"))
    began = time.monotonic()
    assert Command(place, arguments(place / "first", 1)).wait() == 0
    return rows, time.monotonic() - began


def main() -> None:
    from groupcoord_spark.spark.session import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    counts: Counter[str] = Counter()
    kinds, numbers = itertools.cycle(KINDS), itertools.count()
    spark = session(settings={"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory(prefix="six-nights-") as directory:
        place = Path(directory)
        expected, seconds = undisturbed(place, len(DUMPS))
        print(f"a run takes {seconds:.1f} s", flush=True)
        warehouse = place / "w"
        for number, after in enumerate(expected, 1):
            before = expected[number - 2] if number > 1 else None
            while counts["kills"] < options.moments * number // len(DUMPS):
                kind, earlier, copy = next(kinds), place / "earlier", place / f"copy-{next(numbers)}"
                shutil.rmtree(earlier, ignore_errors=True)
                if warehouse.exists():
                    shutil.copytree(warehouse, earlier)
                command = Command(place, arguments(warehouse, number))
                stage = killed(command, kind, chosen, seconds)
                faults = list(faults_after_kill(command, warehouse, kind, before, after))
                done = nights_of(warehouse) == number
                if done:
                    shutil.rmtree(warehouse)
                    if earlier.exists():
                        shutil.copytree(earlier, warehouse)
                elif warehouse.exists():
                    shutil.copytree(warehouse, copy)
                    faults += faults_of_next_run(copy, number, after)
                    shutil.rmtree(copy)
                if stage is not None:
                    counts.update(("kills", f"kills of {kind}", f"kills after {stage}"))
                counts.update({"with a fault": bool(faults), "the night was done": done})
                outcome = "done" if done else f"exit {command.process.returncode}"
                print(f"night {number}: {kind:6} after {stage or 'its end':22} {outcome:8} {'; '.join(faults) or 'fine'}", flush=True)
            for fault in faults_of_next_run(warehouse, number, after):
                counts["with a fault"] += 1
                print(f"night {number}, after all kills: {fault}", flush=True)
    spark.stop()
    print(dict(counts))


if __name__ == "__main__":
    main()
