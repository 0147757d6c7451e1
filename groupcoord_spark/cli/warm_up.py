"""``groupcoord warm-up``: a small run, after which all that it loaded or compiled is kept for later runs."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from groupcoord_spark.cli.options import Common, command, common_options_without_warehouse
from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.errors import GroupcoordError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from groupcoord_spark.pipeline.progress import Progress

SECONDS_TO_WRITE = 300
"""Longest wait for the archive. Java needs about ten seconds to write it."""


@command("warm-up", epilog="Example: groupcoord warm-up")
@common_options_without_warehouse
def warm_up(common: Common) -> int:
    """Make every later run of this installation start some seconds sooner.

    Runs a small job and keeps the classes that Java loaded for it in a file of about 180 MB in the Python environment. Do it again after
    an update of Java or Spark: a file that does not fit is not used.
    """
    from groupcoord_spark.spark.session import session_ends_with_block

    with StageLines(quiet=common.quiet) as progress, session_ends_with_block():
        target = make_archive(progress)
        keep_bytecode()
    common.say(f"Later runs start from {target}.")
    return 0


def make_archive(progress: Progress) -> Path:
    """Create an archive of the classes that Java loads for a small run; return its path.

    An earlier archive is replaced when the new one is complete. Raises GroupcoordError where it cannot be written or Java makes
    none, and as ``session`` does.
    """
    from groupcoord_spark.spark.class_archive import QUIET, archive
    from groupcoord_spark.spark.failures import own_errors
    from groupcoord_spark.spark.session import SETTINGS, session

    target = archive()
    new = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new.touch()
        new.unlink()
    except OSError as error:
        raise GroupcoordError(f"{target.parent} cannot be written: {error.strerror}. Run this as who installed the package.") from error
    java_options = "spark.driver.extraJavaOptions"
    try:
        progress.begin("start Spark")
        options = f'{SETTINGS[java_options]} "-XX:ArchiveClassesAtExit={new}" {QUIET}'
        spark = session(settings={java_options: options})
        java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        _small_run(spark, progress)
        progress.begin("write the archive")
        with own_errors(lambda: progress.stage):
            spark.stop()
        java.stdin.close()  # which ends it
        with suppress(subprocess.TimeoutExpired):
            java.wait(SECONDS_TO_WRITE)
        if not new.is_file() or java.poll() is None:
            raise GroupcoordError("Java wrote no archive of classes: not every Java can. Runs work without it, as before.")
        new.replace(target)
        progress.end(bytes=target.stat().st_size)
    finally:
        new.unlink(missing_ok=True)
    return target


def keep_bytecode() -> None:
    """Write the bytecode of the package and of all modules that are loaded now, where it is missing and its directory can be written.

    Python does not write it under ``PYTHONDONTWRITEBYTECODE``, as many images set it, and some installers leave it out: every process of
    every run would compile the modules again.
    """
    compileall.compile_dir(Path(__file__).parents[1], quiet=2)
    for module in list(sys.modules.values()):
        if path := getattr(module, "__file__", None):
            compileall.compile_file(path, quiet=2)


def _small_run(spark: SparkSession, progress: Progress) -> None:
    """Do a small run and what a notebook does with a DataFrame."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from groupcoord_spark.coordinator.semantics import JAVA
    from groupcoord_spark.dataframes import decode, replay
    from groupcoord_spark.log import plan_logs
    from groupcoord_spark.log.writing import Batch, RecordToLog, write_segment
    from groupcoord_spark.pipeline.night import run_stages
    from groupcoord_spark.pipeline.run import RunRequest
    from groupcoord_spark.protocol import encode_key, encode_value, fast_path
    from groupcoord_spark.protocol.record_types import KeyType
    from groupcoord_spark.spark.run_directory import PREFIX

    key = encode_key(KeyType.OFFSET_COMMIT, {"group_id": "group", "topic": "topic", "partition": 0})
    value = encode_value(KeyType.OFFSET_COMMIT, 3, {"committed_offset": 1, "leader_epoch": 0, "metadata": "", "commit_timestamp_ms": 1})
    with tempfile.TemporaryDirectory(prefix=PREFIX) as directory:
        dump, warehouse, bronze = (Path(directory, name) for name in ("logs", "warehouse", "bronze.parquet"))
        for offsets_partition in range(2):
            write_segment(dump, offsets_partition, [Batch(0, (RecordToLog(key, value, 1),))])
        request = RunRequest((str(dump),), str(warehouse), "warm-up", as_of_ms=1, retention_ms=1, semantics=JAVA)
        run_stages(request, plan_logs([str(dump)]), spark, progress)
        pq.write_table(pa.table({"key": [key], "value": [value], "partition": [0], "offset": [0]}), bronze)
        records = spark.read.parquet(str(bronze))
        decode(records).collect()
        replay(records).assignments.count()
    progress.begin("compile the loops of dump")  # a run over few rows does not call them
    fast_path.load_json()
    progress.end()
