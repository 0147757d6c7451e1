"""Make each file system call of a command fail once, and count the faults.

``python -m tests.tools.faults.failing_calls --every 3`` tries each third call, and ``--cases 50`` tries 50 cases chosen by chance. The n-th
open, read, write, rename, link, mkdir or fsync in the warehouse, the inputs or the directory for temporary files fails with EIO, ENOSPC
or EACCES. Commands run without Spark, each in a fork of this process, which has imported their modules and loaded the library
failing_calls.c.

The next run is tried once for each state that a failure leaves in the warehouse: most failures leave it as it was.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from tests.conftest import GOLDEN

KINDS = ("open", "read", "write", "rename", "link", "mkdir", "fsync")
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES)
KILL = -1
"""In place of an error: SIGKILL ends the command at the call."""
RANDOM_PART = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
_LIBRARY = "FAILING_CALLS"


@dataclass(frozen=True)
class Job:
    """A command whose calls fail, after some runs of the cluster."""

    runs_before: int
    arguments: tuple[str, ...]

    @property
    def is_run(self) -> bool:
        return self.arguments[0] == "nightly"


LOGS = "{logs}"
"""Stands for the directory with the copies of the logs."""


def nightly(number: int) -> tuple[str, ...]:
    """Return the run of that number over the logs of one broker, copied in five nights. There is always a later copy."""
    return ("nightly", f"{LOGS}/{number}/logs", "--as-of", f"2026-12-0{number}T00:00:00Z", "--no-maintain", "--quiet")


JOBS = {
    "first run": Job(0, nightly(1)),
    "second run": Job(1, nightly(2)),
    "maintain": Job(2, ("maintain", "--keep-nights", "1", "--quiet")),
    "list": Job(1, ("list",)),
}


def compiled(directory: Path) -> Path | None:
    """Return the library, compiled into the directory; None without compiler or no LD_PRELOAD."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sysconfig.get_platform().partition("-")[0] != "linux":
        return None
    library = directory / "failing_calls.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def in_a_fork(work: Callable[[], int], output: Path) -> int:
    """Return the exit code of ``work`` in a fork of this process; -9 and so on where a signal ended it. Its output goes to files."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        for descriptor, suffix in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(output.with_suffix(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Trial:
    """Runs one job with failing calls, on copies of the same warehouse."""

    def __init__(self, place: Path, name: str) -> None:
        self.job = JOBS[name]
        self._place = place / name.replace(" ", "-")
        self._failing = self._place / "failing"  # the directory whose calls fail
        self._warehouse, self._logs, self._temporary = (self._failing / each for each in ("w", "logs", "tmp"))
        self._temporary.mkdir(parents=True)
        shutil.copytree(GOLDEN / "nights", self._logs)
        self._output = self._place / "output"
        self._healed: dict[str, list[str]] = {}
        self._library = ctypes.CDLL(os.environ[_LIBRARY])
        self._rows: dict[int, str] = {}
        for number in range(self.job.runs_before + 3):
            if number == self.job.runs_before:
                shutil.copytree(self._warehouse, self._place / "before") if number else (self._place / "before").mkdir()
            self._rows[number] = self._rows_now() if number else ""
            if code := self._command(nightly(number + 1)):
                raise RuntimeError(f"run {number + 1} ended with {code}: {self._output.with_suffix('.err').read_text()}")

    def _command(self, arguments: Sequence[str], arm: Callable[[], object] = int, then: Callable[[], object] = int) -> int:
        """Return the exit code of the command in a fork. arm, then: what is called before and after it there."""

        def work() -> int:
            from groupcoord_spark.cli import main

            tempfile.tempdir = str(self._temporary)
            given = [argument.replace(LOGS, str(self._logs)) for argument in arguments]
            arm()
            try:
                main([*given, "--warehouse", str(self._warehouse), "--cluster", "sample"])
            except SystemExit as end:
                return int(end.code or 0)
            finally:
                then()
            return 0

        return in_a_fork(work, self._output)

    def _rows_now(self, *, is_whole: bool = True) -> str:
        """Return all rows of all tables as readers see them; a traceback where they cannot be read.

        is_whole: no run died since, so that the newest version of each table has the same rows, or a sentence follows that says so.
        """
        code = in_a_fork(lambda: self._print_rows(is_whole=is_whole), self._output.with_name("rows"))
        output = self._output.with_name("rows")
        return output.with_suffix(".out").read_text() if code == 0 else output.with_suffix(".err").read_text()

    def _print_rows(self, *, is_whole: bool) -> int:
        from groupcoord_spark.storage.warehouse_location import locate
        from groupcoord_spark.warehouse import TABLES, open_warehouse
        from groupcoord_spark.warehouse.open_table import open_table

        warehouse = open_warehouse(str(self._warehouse))
        for name, table in TABLES.items():
            columns = [column for column in table.by_name if column not in ("run_id", "started_at", "finished_at", "table_versions")]
            rows = _sorted(warehouse.read(name, columns=columns))
            sys.stdout.writelines(f"{name} {row}\n" for row in rows)
            newest = _sorted(open_table(locate(str(self._warehouse)), table).rows("sample", columns)) if is_whole else rows
            if newest != rows:
                print(f"The newest version of {name} has other rows: {newest}")
        return 0

    def modules(self) -> list[str]:
        """Return the modules that the job imports."""
        self._renew()
        names = self._place / "modules"
        self._command(self.job.arguments, then=lambda: names.write_text("\n".join(sorted(sys.modules))))
        return names.read_text().split()

    def calls(self) -> dict[str, int]:
        """Kind -> number of calls of the job where none fails."""
        self._renew()
        counts = self._place / "counts"

        code = self._command(
            self.job.arguments,
            lambda: self._library.fault_arm(str(self._failing).encode(), -1, 0, 0),
            lambda: counts.write_text(" ".join(str(self._library.fault_count(kind)) for kind in range(len(KINDS)))),
        )
        if code:
            raise RuntimeError(f"{self.job} ended with {code}: {self._output.with_suffix('.err').read_text()}")
        return dict(zip(KINDS, map(int, counts.read_text().split()), strict=True))

    def _renew(self) -> None:
        shutil.rmtree(self._warehouse, ignore_errors=True)
        shutil.copytree(self._place / "before", self._warehouse)

    def _state(self) -> str:
        """Return the files in the warehouse, without the random parts of their names, and which of them are cut off."""
        files = (path for path in self._warehouse.rglob("*") if path.is_file())
        names = sorted(f"{path.relative_to(self._warehouse)} {_end_of(path)}" for path in files)
        return RANDOM_PART.sub("*", "\n".join(names))

    def faults(self, kind: str, number: int, error: int) -> tuple[int, list[str]]:
        """Return the exit code of the job whose call of that number fails, and the faults then and after the next run."""
        self._renew()
        arguments = (str(self._failing).encode(), KINDS.index(kind), number, error)
        code = self._command(self.job.arguments, lambda: self._library.fault_arm(*arguments))
        lines = self._output.with_suffix(".err").read_text().splitlines()
        found = []
        if error == KILL and code in (-signal.SIGKILL, 0):
            return code, list(self._faults_after_kill())
        if code not in (0, 1, 2) or (code and not (len(lines) == 1 and lines[0].startswith("Error: "))):
            found.append(f"exit code {code}, stderr {lines[:4]}")
        elif code and str(self._failing) not in lines[0]:
            found.append(f"the sentence names no path: {lines[0]}")
        runs = self.job.runs_before
        if self.job.is_run and code == 0:
            runs += 1
        state = f"{code == 0} {self._state()}"
        if code == 0 or state not in self._healed:
            rows = self._rows_now(is_whole=code == 0) if runs else ""
            if rows != self._rows[runs]:
                found.append(f"exit code {code}, and readers see other rows than after run {runs}: {_difference(rows, self._rows[runs])}")
        if state not in self._healed:
            self._healed[state] = list(self._faults_of_next_run(runs + 1))
        return code, found + self._healed[state]

    @property
    def states(self) -> int:
        """The number of different states of the warehouse after which the next run was tried."""
        return len(self._healed)

    def _faults_after_kill(self) -> Iterator[str]:
        """Yield the faults for readers, which see the run before or the killed run, and after the next run."""
        runs = self.job.runs_before
        if (state := f"killed {self._state()}") in self._healed:
            yield from self._healed[state]
            return
        rows = self._rows_now(is_whole=False) if (self._warehouse / "runs" / "_delta_log" / f"{0:020}.json").exists() else ""
        if self.job.is_run and rows == self._rows[runs + 1]:
            runs += 1
        elif rows != self._rows[runs]:
            yield f"readers see other rows than after run {runs}: {_difference(rows, self._rows[runs])}"
        self._healed[state] = list(self._faults_of_next_run(runs + 1))
        yield from self._healed[state]

    def _faults_of_next_run(self, number: int) -> Iterator[str]:
        if code := self._command(nightly(number)):
            yield f"the next run ends with {code}: {self._output.with_suffix('.err').read_text().splitlines()[:3]}"
        elif (rows := self._rows_now()) != self._rows[number]:
            yield f"after the next run readers see other rows: {_difference(rows, self._rows[number])}"


def _end_of(path: Path) -> str:
    """Return whether a file is whole, in a word that is the same for all whole files."""
    content = path.read_bytes()
    if path.suffix == ".parquet":
        return "whole" if content.endswith(b"PAR1") and len(content) > 8 else "cut off"
    return f"{len(content.splitlines())} lines, {'whole' if content.endswith(b'}') else 'cut off'}"


def _sorted(rows: pa.Table) -> list[str]:
    """Return the rows as texts, without the warnings that a side file could not be read: a run goes on without it."""
    return sorted(repr(row) for row in rows.to_pylist() if row.get("code") != "log_directory_file_not_used")


def _difference(rows: str, expected: str) -> str:
    """Return the number of rows too many and missing, and the first of each."""
    read, right = (set(text.splitlines()) for text in (rows, expected))
    sides = (("too many", sorted(read - right)), ("missing", sorted(right - read)))
    return "; ".join(f"{len(lines)} {what}: {lines[0][:300]}" for what, lines in sides if lines) or "a row is there twice"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=tuple(JOBS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--cases", type=int, help="so many, chosen by chance. [default: all]")
    parser.add_argument("--every", type=int, default=1, help="each n-th call, with one of the errors in turn. [default: 1]")
    parser.add_argument("--every-error", type=int, default=1, help="each n-th of these calls with all errors. [default: 1]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="kill the command at the call; no call fails.")
    parser.add_argument("--few-tables", action="store_true", help="warehouses with the tables that a log alone fills.")
    options = parser.parse_args()
    if _LIBRARY not in os.environ:
        place = tempfile.mkdtemp(prefix="failing-calls-")
        if (library := compiled(Path(place))) is None:
            shutil.rmtree(place)
            print("Skipped: there is no C compiler, or no LD_PRELOAD on this system.")
            return 0
        # Nothing may run in other threads before a fork.
        preloaded = {**os.environ, "LD_PRELOAD": str(library), _LIBRARY: str(library), "OPENBLAS_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.tools.faults.failing_calls", *sys.argv[1:]], preloaded)
    with ExitStack() as stack:
        place = str(Path(os.environ[_LIBRARY]).parent)
        stack.callback(shutil.rmtree, place, ignore_errors=True)  # after Ctrl-C a fork may still write
        return _try_all(Path(place), options, stack)


def _try_all(place: Path, options: argparse.Namespace, stack: ExitStack) -> int:
    # Every fork then has the modules and the compiled loops.
    for module in ("cli.list", "cli.maintain", "cli.nightly", "warehouse.maintenance", "warehouse.write"):
        import_module(f"groupcoord_spark.{module}")
    from groupcoord_spark.log import plan_logs, read_segment
    from groupcoord_spark.pipeline import run_nightly
    from tests.local_session import LocalSession
    from tests.warehouse.nights import TABLES_OF_A_LOG, few_tables

    for log in plan_logs([str(GOLDEN / "nights" / "1" / "logs")]).partitions:
        for segment in log.segments:
            list(read_segment(segment))
    stack.enter_context(patch.object(run_nightly, "session", lambda **_: LocalSession()))
    if options.few_tables:
        stack.enter_context(few_tables(TABLES_OF_A_LOG | {"log_ends"}))
    trials = {name: Trial(place, name) for name in options.jobs}
    for trial in trials.values():
        for module in trial.modules():
            import_module(module)
    calls = {name: trial.calls() for name, trial in trials.items()}
    cases = [
        (name, kind, number, error)
        for name in trials
        for kind in options.kinds
        for tried, number in enumerate(range(1, calls[name][kind] + 1, options.every))
        for error in ([KILL] if options.kill else ERRORS if tried % options.every_error == 0 else [ERRORS[tried % len(ERRORS)]])
    ]
    random.Random(options.seed).shuffle(cases)
    cases = cases[: options.cases]
    tried: Counter[tuple[str, str]] = Counter()
    ended: Counter[tuple[str, str, str]] = Counter()
    with suppress(KeyboardInterrupt):  # the table then has the tries so far
        for name, kind, number, error in cases:
            code, faults = trials[name].faults(kind, number, error)
            tried[name, kind] += 1
            ended[name, kind, "wrong" if faults else "finished" if code == 0 else "stopped"] += 1
            for fault in faults:
                print(f"{name}: {kind} {number} of {calls[name][kind]}, {errno.errorcode.get(error, 'kill')}: {fault}", flush=True)
    print("The next run was tried after so many states of the warehouse:", {name: trial.states for name, trial in trials.items()})
    print(f"{'job':12}{'call':8}{'calls':>8}{'tried':>8}{'finished':>10}{'stopped':>14}{'wrong':>7}")
    for name, kind in ((name, kind) for name in trials for kind in KINDS if tried[name, kind]):
        numbers = [ended[name, kind, how] for how in ("finished", "stopped", "wrong")]
        print(f"{name:12}{kind:8}{calls[name][kind]:8,}{tried[name, kind]:8,}{numbers[0]:10,}{numbers[1]:14,}{numbers[2]:7,}")
    return 1 if any(how == "wrong" for _, _, how in ended) else 0


if __name__ == "__main__":
    sys.exit(main())
