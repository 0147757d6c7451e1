"""``jobs/nightly.py`` on a standalone cluster: one master and two workers, each a process of its own, and an executor that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from groupcoord_spark.warehouse import TABLES
from tests.conftest import SAMPLE_LOGS, SampleWarehouse
from tests.running import tables_of
from tests.test_spark_submit import SPARK_SUBMIT, zipped_package

ROOT = Path(__file__).parents[1]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON_WORKERS = "pyspark.daemon"


class Cluster:
    """A standalone cluster on this machine. processes: the master, then the workers."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start(self, role: str, *args: str) -> Path:
        """Start a master or a worker; the file with what it prints."""
        log = self.place / f"{role}-{len(self.processes)}.log"
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(self.place / "work")}
        environment.pop("PYTHONPATH", None)
        options = ["--host", "localhost", "--port", "0", "--webui-port", "0", *args]
        command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{role.lower()}.{role}", *options]
        with log.open("wb") as output:
            self.processes.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=self.place))
        return log

    def executors(self) -> list[int]:
        """Process ids of the executors that run a Python worker, so that their tasks have begun."""
        parents = {pid: (parent, command) for pid, parent, command in running_processes()}
        ours = {process.pid for process in self.processes}
        return [
            parent
            for parent, command in parents.values()
            if PYTHON_WORKERS in command and EXECUTOR in parents.get(parent, (0, ""))[1] and parents[parent][0] in ours
        ]


def running_processes() -> Iterator[tuple[int, int, str]]:
    """(process id, parent's process id, command line) of each process of this machine."""
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
                yield int(directory.name), parent, (directory / "cmdline").read_text().replace("\0", " ")
            except (OSError, ValueError):
                continue  # the process has ended


def wait_for(log: Path, pattern: str, seconds: int = 120) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"{pattern} is not in {log.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not Path("/proc/self/stat").exists():
        pytest.skip("executors are found in /proc")
    of_test = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        of_test.url = wait_for(of_test.start("Master"), r"spark://localhost:\d+")
        for log in [of_test.start("Worker", "--cores", "1", "--memory", "1g", of_test.url) for _ in range(2)]:
            wait_for(log, "Successfully registered with master")
        yield of_test
    finally:
        for process in reversed(of_test.processes):
            process.terminate()
            process.wait(30)


def submitted(cluster: Cluster, warehouse: Path) -> subprocess.Popen[str]:
    package = zipped_package(warehouse.with_name("groupcoord_spark.zip"))
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_MASTER")}
    variables |= {"PYSPARK_PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [
        *(str(SPARK_SUBMIT), "--properties-file", str(ROOT / "conf" / "spark-cluster.conf"), "--master", cluster.url),
        *("--conf", "spark.driver.host=localhost", "--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m"),
        *("--py-files", str(package), str(ROOT / "jobs" / "nightly.py"), str(SAMPLE_LOGS), "--warehouse", str(warehouse)),
        *("--cluster", "sample", "--as-of", "2026-11-21T08:00:00Z"),
    ]
    return subprocess.Popen(command, cwd=cluster.place, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_executor_changes_no_row(cluster: Cluster, tmp_path: Path, sample_warehouse: SampleWarehouse) -> None:
    run = submitted(cluster, tmp_path / "w")
    killed: set[int] = set()
    while run.poll() is None and not killed:
        for executor in cluster.executors()[:1]:
            os.kill(executor, signal.SIGKILL)
            killed.add(executor)
        time.sleep(0.02)
    printed, errors = run.communicate(timeout=300)
    assert run.returncode == 0, printed + errors
    assert killed, "the run ended before an executor could be killed"
    assert "173 read = 173 decoded + 0 quarantined" in printed
    assert tables_of(tmp_path / "w") == tables_of(sample_warehouse.path)
    for table in TABLES:
        place = tmp_path / "w" / table
        in_table = {Path(uri).name for uri in DeltaTable(place).file_uris()}
        assert {file.name for file in place.rglob("*.parquet")} == in_table
