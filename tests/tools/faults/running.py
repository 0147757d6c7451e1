"""Runs of ``groupcoord`` in processes of their own, which are disturbed at a chosen moment, and the files afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable

from groupcoord_spark.warehouse import TABLES, open_warehouse
from tests.conftest import SAMPLE_LOGS

PATIENCE_SECONDS = 180
MARKER = "GROUPCOORD_FAULT_TEST"
PROCESSES = Path("/proc")
STAGES = ("plan", "start Spark", "read, replay and write", "commit")

WITHOUT_SPARK = (
    "from groupcoord_spark.pipeline import run_nightly\n"
    "from tests.local_session import LocalSession\n"
    "run_nightly.session = lambda **_: LocalSession()\n"
    "from groupcoord_spark.cli import main\n"
    "main()\n"
)
"""A program: the command, whose nights run in its own process."""


@dataclass
class Command:
    """A command that runs in a process group of its own, as in a terminal, with an empty directory for its temporary files."""

    place: Path
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    marker: str = field(default_factory=lambda: uuid.uuid4().hex)
    program: tuple[str, str] = ("-m", "groupcoord_spark")

    def __post_init__(self) -> None:
        self.temporary = self.place / f"temporary-{self.marker}"
        self.temporary.mkdir(parents=True)
        self._stdout, self._stderr = (self.place / f"{stream}-{self.marker}" for stream in ("stdout", "stderr"))
        self._others = set(PROCESSES.iterdir())
        variables = {**os.environ, "TMPDIR": str(self.temporary), MARKER: self.marker, "SPARK_MASTER": "local[2]", **self.environment}
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=variables,
                start_new_session=True,
            )

    @property
    def stdout(self) -> str:
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    @property
    def errors(self) -> list[str]:
        """Lines of stderr but those of stages and of the summary, which is indented."""
        lines = self.stderr.splitlines()
        return [line for line in lines if line.strip() and not line.startswith((*STAGES, "Cluster ", "  ", "with an older"))]

    def stages(self) -> list[str]:
        """Return the stages that have ended."""
        return [stage for line in self.stderr.splitlines() for stage in STAGES if line.startswith(stage)]

    def processes(self, kind: str | None = None) -> list[int]:
        """Ids of the processes that the command has started: all of them, or java, daemon or worker."""
        found = []
        for each in set(PROCESSES.iterdir()) - self._others:  # of a hundred processes those that began after the command
            if each.name.isdigit() and int(each.name) != self.process.pid:
                with suppress(OSError):
                    if f"{MARKER}={self.marker}".encode() not in (each / "environ").read_bytes().split(b"\0"):
                        continue
                    if kind is None or kind == _kind_of(each):
                        found.append(int(each.name))
        return found

    def wait_until(self, condition: Callable[[], object]) -> bool:
        """Return whether the condition became true before the command ended."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < end, self.stderr
            time.sleep(0.03)
        return True

    def send(self, number: signal.Signals, *, to_group: bool) -> None:
        with suppress(ProcessLookupError):
            if to_group:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def left_processes(self) -> list[str]:
        """Command lines of what still runs now that the command has ended."""
        left = []
        for each in self.processes():
            with suppress(OSError):
                left.append((PROCESSES / str(each) / "cmdline").read_bytes().replace(b"\0", b" ").decode()[-120:])
        return left

    def left_files(self) -> list[str]:
        """Temporary files that are still there."""
        return sorted(str(each.relative_to(self.temporary)) for each in self.temporary.rglob("*"))


def _kind_of(process: Path) -> str:
    command_line = (process / "cmdline").read_bytes().split(b"\0")
    if b"org.apache.spark.deploy.SparkSubmit" in command_line:
        return "java"
    if b"groupcoord_spark.pipeline.worker_daemon" not in command_line:
        return "other"
    with suppress(OSError):
        if b"groupcoord_spark.pipeline.worker_daemon" in (PROCESSES / str(_parent_of(process)) / "cmdline").read_bytes().split(b"\0"):
            return "worker"
    return "daemon"


def _parent_of(process: Path) -> int:
    return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])


def workers_of(java: int) -> list[int]:
    """Ids of the Python workers that a Java of Spark has now."""
    found = []
    for each in PROCESSES.iterdir():
        with suppress(OSError, ValueError):
            if each.name.isdigit() and _kind_of(each) == "worker" and _parent_of(PROCESSES / str(_parent_of(each))) == java:
                found.append(int(each.name))
    return found


def nightly(
    place: Path, warehouse: Path, *options: str, dump: Path = SAMPLE_LOGS, is_without_spark: bool = False, **environment: str
) -> Command:
    arguments = ["nightly", str(dump), "--warehouse", str(warehouse), "--cluster", "sample", "--as-of", "2026-11-21T08:00:00Z", *options]
    return Command(place, arguments, environment, program=("-c", WITHOUT_SPARK) if is_without_spark else ("-m", "groupcoord_spark"))


def newest_run(warehouse: Path) -> str | None:
    """Return the newest finished run that a reader sees, every one of whose tables can be read; None: no run has finished."""
    opened = open_warehouse(str(warehouse))
    runs = opened.runs("sample").to_pylist()
    if not runs:
        return None
    for table in ("groups", "committed_offsets", "offset_commits", "offsets_partitions"):
        opened.read(table, cluster="sample")
    return str(max(runs, key=lambda run: run["finished_at"])["run_id"])


def data_files(warehouse: Path) -> set[str]:
    """Parquet files, apart from Delta's own checkpoints."""
    return {str(each.relative_to(warehouse)) for each in warehouse.rglob("*.parquet") if "_delta_log" not in each.parts}


def fractions(count: int) -> Iterator[float]:
    """``count`` moments of a run, spread evenly over it."""
    return ((each + 0.5) / count for each in range(count))


def made_older(warehouse: Path, seconds: float = 2 * 86_400) -> None:
    """Makes every file of the warehouse two days older: what no run can be writing any more may be removed."""
    for path in warehouse.rglob("*"):
        if path.is_file():
            status = path.stat()
            os.utime(path, (status.st_atime - seconds, status.st_mtime - seconds))


def left_in_warehouse(warehouse: Path) -> list[str]:
    """Files that are neither part of Delta's logs, nor in the newest version of a table or in one that a run names."""
    runs = open_warehouse(str(warehouse)).runs()["table_versions"].to_pylist()
    needed: set[str] = set()
    for name in TABLES:
        table = str(warehouse / name)
        newest = DeltaTable(table)
        earlier = {dict(versions)[name] for versions in runs if name in dict(versions)} - {newest.version()}
        for opened in (newest, *(DeltaTable(table, version=version) for version in earlier)):
            needed.update(unquote(uri).removeprefix("file://") for uri in opened.file_uris())
    is_log = re.compile(r"_delta_log/(\d{20}\.json|\d{20}\.checkpoint\.parquet|_last_checkpoint)$")
    files = (str(path) for path in warehouse.rglob("*") if path.is_file())
    return sorted(path.removeprefix(f"{warehouse}/") for path in files if path not in needed and not is_log.search(path))
