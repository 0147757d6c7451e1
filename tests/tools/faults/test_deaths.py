"""Java or a worker dies: one sentence, exit code 1, tables as they were, and the next run heals. ``kill.py`` tries many moments."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PythonException

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.spark import run_directory
from groupcoord_spark.spark.failures import own_errors
from groupcoord_spark.spark.run_directory import RunDirectory
from tests.cli.warehouse import groupcoord
from tests.conftest import SAMPLE_LOGS
from tests.running import run
from tests.tools.faults.kill import faults_of, kill
from tests.tools.faults.running import PROCESSES, data_files, newest_run, nightly, workers_of
from tests.warehouse.nights import group, night

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

pytestmark = pytest.mark.process

on_linux = pytest.mark.skipif(not (PROCESSES / "self" / "environ").exists(), reason="this system does not show processes' environments")
DAYS = 86_400


@on_linux
def test_java_that_is_killed_is_one_sentence_and_the_tables_are_as_they_were(local: LocalSession, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    night(warehouse, "sample", {"groups": [group("earlier")]})
    before, files = newest_run(warehouse), data_files(warehouse)
    command = nightly(tmp_path, warehouse)
    # Java is killed while the daemon of the workers starts: the job is under way.
    command.wait_until(lambda: command.processes("daemon"))
    kill(command, "java")
    assert command.wait() == 1
    assert faults_of(command, warehouse, before, files) == []
    who = "Java, in which Spark runs, was killed by SIGKILL"
    assert command.errors[0].startswith(f"Error: {who} in the stage `read, replay and write`. The tables are as they were. ")
    run(local, warehouse, SAMPLE_LOGS)
    assert newest_run(warehouse) != before


@on_linux
def test_a_worker_that_is_killed_is_one_sentence_and_the_tables_and_the_session_are_as_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In a session that was there before the run, and is there after it."""
    warehouse = tmp_path / "warehouse"
    night(warehouse, "sample", {"groups": [group("earlier")]})
    before, files = newest_run(warehouse), data_files(warehouse)
    words = ("nightly", str(SAMPLE_LOGS), "--warehouse", str(warehouse), "--cluster", "sample", "--no-history")
    java, has_ended = spark.sparkContext._gateway.proc.pid, threading.Event()

    def kill_workers() -> None:
        """Between two tasks there may be no worker, or an idle one that nobody misses: every worker is killed until the run ends."""
        while not has_ended.wait(0.01):
            for worker in workers_of(java):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_workers)
        ended = groupcoord(*words)
        has_ended.set()
        killing.result()
    assert ended.exit_code == 1
    (error,) = (line for line in ended.stderr.splitlines() if line.startswith("Error: "))
    assert error.startswith("Error: A Python worker of Spark died in the stage `read, replay and write`. The tables are as they were. ")
    assert error == ended.stderr.splitlines()[-1]
    assert newest_run(warehouse) == before and data_files(warehouse) == files
    assert groupcoord(*words).exit_code == 0
    assert newest_run(warehouse) != before
    assert spark.range(3).count() == 3


@on_linux
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SPARK_LOCAL_IP", "no-such-host.invalid", "java.net.UnknownHostException: no-such-host.invalid"),
        ("SPARK_DRIVER_MEMORY", "99999999g", "Could not reserve enough space for"),
        ("SPARK_MASTER", "nonsense", "org.apache.spark.SparkException: Master must either be yarn or start with spark, k8s, or local."),
    ],
)
def test_java_that_does_not_start_says_why_and_not_what_it_warns_of(tmp_path: Path, variable: str, value: str, said: str) -> None:
    command = nightly(tmp_path, tmp_path / "warehouse", **{variable: value})
    assert command.wait() == 1
    (error,) = command.errors
    assert error.startswith(f"Error: Spark did not start: {said}")
    assert re.search(r" What Java printed is in \S+/groupcoord-run-\w+/java\.log\.$", error)
    assert command.left_processes() == []


@on_linux
def test_java_that_is_killed_before_it_says_anything_is_no_warning_about_a_hostname(tmp_path: Path) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nkill -9 $$\n")
    java.chmod(0o755)
    (tmp_path / "home" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    command = nightly(tmp_path, tmp_path / "warehouse", JAVA_HOME=str(tmp_path / "home"))
    assert command.wait() == 1
    (error,) = command.errors
    assert error.startswith("Error: Java, in which Spark runs, ended before Spark was up, and did not say why. The tables are as they")
    assert command.left_files() == []


@on_linux
def test_java_whose_heap_is_full_is_told_where_to_get_more(tmp_path: Path) -> None:
    # Spark itself refuses so small a heap, unless it is set to keep none of it for itself.
    small = {"SPARK_DRIVER_MEMORY": "32m", "PYSPARK_SUBMIT_ARGS": "--conf spark.testing.reservedMemory=1 pyspark-shell"}
    command = nightly(tmp_path, tmp_path / "warehouse", **small)
    assert command.wait() == 1
    (error,) = command.errors
    assert "OutOfMemoryError" in error or "ran out of memory" in error
    assert "Give Java more memory, for example with SPARK_DRIVER_MEMORY=4g" in error
    assert command.left_processes() == []


class TestDirectoriesOfDeadRuns:
    @pytest.fixture(autouse=True)
    def _in_a_place_of_their_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def aged(self, path: Path, seconds: float) -> Path:
        path.mkdir(exist_ok=True)
        os.utime(path, (time.time() - seconds,) * 2)
        return path

    def test_are_removed_by_the_next_run_once_they_are_a_day_old(self, tmp_path: Path) -> None:
        old = tmp_path / f"{run_directory.PREFIX}old"
        (old / "spark").mkdir(parents=True)
        (old / "lock").touch()
        self.aged(old, 1.01 * DAYS)
        young = self.aged(tmp_path / f"{run_directory.PREFIX}young", 0.9 * DAYS)
        another = self.aged(tmp_path / "spark-of-somebody-else", 9 * DAYS)
        (tmp_path / f"{run_directory.PREFIX}link").symlink_to(another)
        directory = RunDirectory()
        assert not old.exists()
        assert young.exists() and another.exists()
        directory.remove()

    def test_are_not_removed_while_their_run_lives(self, tmp_path: Path) -> None:
        of_a_live_run = RunDirectory()
        self.aged(of_a_live_run.path, 9 * DAYS)
        RunDirectory().remove()
        assert of_a_live_run.path.exists()
        of_a_live_run.remove()
        assert list(tmp_path.iterdir()) == []

    def test_keep_what_java_printed_where_somebody_is_to_look_at_it(self) -> None:
        directory = RunDirectory()
        directory.java_output.write_text("java.lang.OutOfMemoryError\n")
        (directory.path / "blockmgr").mkdir()
        directory.is_to_keep_output = True
        directory.remove()
        assert list(directory.path.iterdir()) == [directory.java_output]


def test_an_error_that_is_not_sparks_is_not_taken_for_one() -> None:
    with pytest.raises(ConnectionRefusedError), own_errors(lambda: "plan"):
        raise ConnectionRefusedError("an object store")


def test_a_module_that_workers_lack_is_one_sentence_with_the_setting_that_mends_it() -> None:
    of_worker = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'pyarrow'\n"
    sentence = rf"workers cannot import .*'pyarrow'\. Install groupcoord-spark .*set PYSPARK_PYTHON={sys.executable} "
    with pytest.raises(GroupcoordError, match=sentence), own_errors(lambda: "read"):
        raise PythonException(f"An exception was thrown from the Python worker.\n{of_worker}")


def test_environment_is_as_it_was_after_a_change() -> None:
    before = dict(os.environ)
    with pytest.raises(OSError), run_directory.changed_environment(TMPDIR="/nowhere", GROUPCOORD_NEW="1"):
        assert os.environ["TMPDIR"] == "/nowhere"
        raise OSError
    assert dict(os.environ) == before
