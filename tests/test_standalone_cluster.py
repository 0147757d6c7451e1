"""``jobs/nightly.py`` on a standalone cluster: one master and one worker, each a process of its own, and two executors that are killed."""

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
from tests.test_spark_submit import FOR_A_SHORT_LIFE, OF_JAVA, SPARK_SUBMIT, zipped_package

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[1]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
EXECUTOR = "CoarseGrainedExecutorBackend"

FUNCTIONS_OF_STAGES = {"read": ("pipeline/read/reader.py", "read_task"), "replay": ("pipeline/replay/partition.py", "_PartitionReplay.end")}
"""Stage -> the file of the package, and the function in it that gives the last rows of a task of that stage."""

PAUSE = """

def _pausing(function):
    import os, pathlib, time
    place = pathlib.Path({place!r})
    def paused(*args):
        yield from function(*args)
        (place / str(os.getpid())).touch()
        while not (place / "go-on").exists():
            time.sleep(0.02)
    return paused

{name} = _pausing({name})
"""
"""The content appended to that file: a task that has made its rows, and written its files, waits until the test lets it go on."""


class Cluster:
    """A standalone cluster on this machine. processes: the master, then the worker."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start(self, role: str, *args: str) -> Path:
        """Start a master or a worker; the file with what it prints."""
        log = self.place / f"{role}-{len(self.processes)}.log"
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(self.place / "work")}
        environment |= {"SPARK_DAEMON_JAVA_OPTS": OF_JAVA, "SPARK_LAUNCHER_OPTS": FOR_A_SHORT_LIFE}
        environment.pop("PYTHONPATH", None)
        options = ["--host", "localhost", "--port", "0", "--webui-port", "0", *args]
        command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{role.lower()}.{role}", *options]
        with log.open("wb") as output:
            self.processes.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=self.place))
        return log


def running_processes() -> Iterator[tuple[int, int, str]]:
    """(process id, parent's process id, command line) of each process of this machine."""
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
                yield int(directory.name), parent, (directory / "cmdline").read_text().replace("\0", " ")
            except (OSError, ValueError):
                continue  # the process has ended


def wait_for(log: Path, pattern: str, seconds: int = 300) -> str:
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
        wait_for(of_test.start("Worker", "--cores", "2", "--memory", "2g", of_test.url), "Successfully registered with master")
        yield of_test
    finally:
        for process in reversed(of_test.processes):
            process.terminate()
            process.wait(30)


def executor_of(worker: int) -> int | None:
    """Process id of the executor that a Python worker belongs to; None: it has ended."""
    processes = {pid: (parent, command) for pid, parent, command in running_processes()}
    while worker in processes:
        if EXECUTOR in processes[worker][1]:
            return worker
        worker = processes[worker][0]
    return None


def submitted(cluster: Cluster, warehouse: Path, waiting: Path) -> subprocess.Popen[str]:
    """Start a run on the cluster. Tasks of each stage note their worker in a directory of ``waiting`` before they end, and wait there."""
    pauses = {
        f"groupcoord_spark/{file}": PAUSE.format(place=str(waiting / stage), name=name)
        for stage, (file, name) in FUNCTIONS_OF_STAGES.items()
    }
    package = zipped_package(warehouse.with_name("groupcoord_spark.zip"), pauses)
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_MASTER")}
    variables["SPARK_LAUNCHER_OPTS"] = FOR_A_SHORT_LIFE
    variables |= {"PYSPARK_PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [
        *(str(SPARK_SUBMIT), "--properties-file", str(ROOT / "conf" / "spark-cluster.conf"), "--master", cluster.url),
        *("--conf", "spark.driver.host=localhost", "--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m"),
        *("--conf", "spark.executor.cores=1"),
        *("--driver-java-options", OF_JAVA, "--conf", f"spark.executor.extraJavaOptions={OF_JAVA}"),
        *("--py-files", str(package), str(ROOT / "jobs" / "nightly.py"), str(SAMPLE_LOGS), "--warehouse", str(warehouse)),
        *("--cluster", "sample", "--as-of", "2026-11-21T08:00:00Z"),
    ]
    return subprocess.Popen(command, cwd=cluster.place, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_executor_in(stage: str, waiting: Path, run: subprocess.Popen[str]) -> bool:
    """Kills an executor whose task waits in the stage, and lets the others go on. False: the run ended before there was one."""
    killed = None
    while run.poll() is None and killed is None:
        for note in (waiting / stage).iterdir():
            killed = killed or executor_of(int(note.name))
        time.sleep(0.02)
    if killed is not None:
        os.kill(killed, signal.SIGKILL)
    (waiting / stage / "go-on").touch()
    return killed is not None


def test_executors_killed_in_each_stage_change_no_row(cluster: Cluster, tmp_path: Path, sample_warehouse: SampleWarehouse) -> None:
    """Tasks die that have written their files. With an executor that replays, also what it read before is lost, and read again."""
    waiting = tmp_path / "waiting"
    for stage in FUNCTIONS_OF_STAGES:
        (waiting / stage).mkdir(parents=True)
    run = submitted(cluster, tmp_path / "w", waiting)
    killed = [stage for stage in FUNCTIONS_OF_STAGES if kill_executor_in(stage, waiting, run)]
    printed, errors = run.communicate(timeout=300)
    assert run.returncode == 0, printed + errors
    assert killed == list(FUNCTIONS_OF_STAGES), "the run ended before an executor could be killed"
    assert "173 read = 173 decoded + 0 quarantined" in printed
    assert tables_of(tmp_path / "w") == tables_of(sample_warehouse.path)
    for table in TABLES:
        place = tmp_path / "w" / table
        in_table = {Path(uri).name for uri in DeltaTable(place).file_uris()}
        assert {file.name for file in place.rglob("*.parquet")} == in_table
