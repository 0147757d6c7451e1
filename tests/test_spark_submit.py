"""``jobs/nightly.py`` through spark-submit with the settings for one machine, the package shipped as a zip to the Python workers.

Executors in processes of their own are the ones of test_standalone_cluster.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest

from groupcoord_spark.spark.class_archive import options_to_use
from tests.conftest import SAMPLE_LOGS, SampleWarehouse
from tests.running import tables_of

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


FOR_A_SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java that lives for some seconds, as those of conf/spark-local.conf: its second compiler costs more than it saves."""

OF_JAVA = FOR_A_SHORT_LIFE + options_to_use()
"""The same, and classes from the archive of ``groupcoord warm-up``, where there is one: no class is unpacked and checked."""


def zipped_package(place: Path, appended: Mapping[str, str] | None = None) -> Path:
    """Return the package as ``--py-files`` takes it. appended: file in the package -> text after its own."""
    with zipfile.ZipFile(place, "w") as archive:
        for path in (ROOT / "groupcoord_spark").rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                name = str(path.relative_to(ROOT))
                archive.writestr(name, path.read_bytes() + (appended or {}).get(name, "").encode())
    return place


def submit(tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """From an empty directory and without PYTHONPATH: workers find the package in the zip or not at all.

    spark-submit puts what a Python program writes on stderr into its own stdout.
    """
    package = zipped_package(tmp_path / "groupcoord_spark.zip")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_MASTER")}
    variables |= {"PYSPARK_PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    variables["SPARK_LAUNCHER_OPTS"] = FOR_A_SHORT_LIFE
    command = [
        *(str(SPARK_SUBMIT), "--properties-file", str(ROOT / "conf" / "spark-local.conf"), "--master", "local[1]"),
        *("--conf", f"spark.driver.defaultJavaOptions={OF_JAVA}"),
        *("--py-files", str(package), str(ROOT / "jobs" / "nightly.py"), *args),
    ]
    return subprocess.run(command, cwd=elsewhere, env=variables, capture_output=True, text=True, check=False, timeout=300)


def test_spark_submit_writes_the_tables_of_a_local_run(tmp_path: Path, sample_warehouse: SampleWarehouse) -> None:
    options = ["--cluster", "sample", "--as-of", "2026-11-21T08:00:00Z"]
    ended = submit(tmp_path, str(SAMPLE_LOGS), "--warehouse", str(tmp_path / "w"), *options)
    assert ended.returncode == 0, ended.stderr
    assert "173 read = 173 decoded + 0 quarantined" in ended.stdout
    assert tables_of(tmp_path / "w") == tables_of(sample_warehouse.path)


def test_spark_submit_ends_as_the_command_does(tmp_path: Path) -> None:
    ended = submit(tmp_path, str(tmp_path / "none"), "--warehouse", str(tmp_path / "w"))
    assert ended.returncode == 2
    assert f"Error: {tmp_path}/none: there is no such file or directory." in ended.stdout.splitlines()
    assert "Traceback" not in ended.stdout + ended.stderr
