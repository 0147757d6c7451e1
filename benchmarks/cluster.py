"""cluster.py DUMP --work DIR [--archive ENV.TAR.GZ]: a run on a standalone cluster of two workers next to the same night in local mode.

The cluster is a master and two workers of one core each, processes of this machine, and its figures have the start of all of them in them.
ENV.TAR.GZ is a packed environment as the page about clusters makes it: it goes to the executors by --archives, and the driver runs in the
environment that this script is run with. Without it the package goes as a zip, and the workers use this environment, too. Both nights are
run in one go, one after the other; compare the ratios of their CPU, not seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pyspark
from deltalake import DeltaTable
from measure import measure

ROOT = Path(__file__).parents[1]
SPARK = Path(pyspark.__file__).parent
CORES = 2
SECONDS_TO_START = 600


def zipped(place: Path) -> Path:
    """Return the package as ``--py-files`` takes it."""
    with zipfile.ZipFile(place, "w") as archive:
        for path in (ROOT / "groupcoord_spark").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(ROOT))
    return place


def started(work: Path, role: str, number: int, pattern: str, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a master or a worker; return it and the printed text that fits the pattern."""
    log = work / f"{role}-{number}.log"
    variables = {**os.environ, "SPARK_WORKER_DIR": str(work / "executors")}
    options = ["--host", "localhost", "--port", "0", "--webui-port", "0", *arguments]
    with log.open("wb") as output:
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}", *options]
        process = subprocess.Popen(command, stdout=output, stderr=output, env=variables, cwd=work)
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return process, found[0]
        time.sleep(0.1)
    raise SystemExit(f"The {role} has not started, see {log}.")


def on_a_cluster(dump: str, warehouse: str, work: Path, archive: str | None) -> int:
    """Start the cluster, submit the run, end the cluster; the exit code of spark-submit."""
    processes = []
    try:
        master, url = started(work, "Master", 0, r"spark://localhost:\d+")
        processes.append(master)
        for number in range(CORES):
            options = ("--cores", "1", "--memory", "3g", url)
            processes.append(started(work, "Worker", number, "Successfully registered with master", *options)[0])
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_MASTER")}
        command = [str(SPARK / "bin" / "spark-submit"), "--properties-file", str(ROOT / "conf" / "spark-cluster.conf")]
        command += ["--master", url, "--conf", "spark.driver.host=localhost"]
        if archive is None:
            variables["PYSPARK_PYTHON"] = sys.executable
        else:
            command += ["--archives", f"{archive}#environment"]
            variables |= {"PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
        command += ["--py-files", str(zipped(work / "groupcoord_spark.zip"))] if archive is None else []
        command += [str(ROOT / "jobs" / "nightly.py"), dump, "--warehouse", warehouse, "--cluster", "sample"]
        return subprocess.run(command, env=variables, cwd=work, check=False).returncode
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(60)


def rows_of(warehouse: Path) -> int:
    """Return the rows of all tables but ``runs``."""
    tables = [place for place in warehouse.iterdir() if (place / "_delta_log").is_dir() and place.name != "runs"]
    return sum(DeltaTable(place).count() for place in tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dump")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--archive")
    parser.add_argument("--submit", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    work = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    dump = str(Path(given.dump).absolute())
    archive = str(Path(given.archive).absolute()) if given.archive else None
    if given.submit:
        sys.exit(on_a_cluster(dump, str(work / "on-the-cluster"), work, archive))
    for name in ("local", "on-the-cluster", "executors"):
        shutil.rmtree(work / name, ignore_errors=True)
    os.environ["SPARK_MASTER"] = f"local[{CORES}]"
    local = [sys.executable, "-m", "groupcoord_spark", "nightly", dump, "--warehouse", str(work / "local"), "--cluster", "sample"]
    again = [sys.executable, __file__, dump, "--work", str(work), "--submit", *(["--archive", archive] if archive else [])]
    measured = {}
    for name, command in (("local", local), ("on-the-cluster", again)):
        measured[name] = measure(command)
        print(json.dumps({"night": name, "rows": rows_of(work / name), **measured[name]}), flush=True)
    ratios = {key: round(measured["on-the-cluster"][key] / measured["local"][key], 2) for key in ("wall_s", "cpu_s", "peak_pss_mb")}
    print(json.dumps({"cluster / local": ratios}))


if __name__ == "__main__":
    main()
