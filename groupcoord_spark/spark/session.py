"""The Spark session of a run: an existing session, or a new local one with settings for this job."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.protocol import fast_path
from groupcoord_spark.spark.class_archive import options_to_use
from groupcoord_spark.spark.failures import missing_module, why_not_started
from groupcoord_spark.spark.run_directory import RunDirectory, changed_environment, own_directory

PACKAGES = "spark.jars.packages"
DAEMON = "spark.python.daemon.module"
WORKER_DAEMON = "groupcoord_spark.pipeline.worker_daemon"
"""The module that starts the Python workers of a local session, unless its settings name another. Only its name is known here: without it
each worker of a notebook would load modules for three seconds of CPU."""
OLDEST_JAVA = 17
LEAST_TEMPORARY_BYTES = 8 << 20
"""Less room for temporary files than the smallest run needs."""

# The same settings as in conf/spark-local.conf, which spark-submit reads. A test compares the two.
SETTINGS = {
    # Driver heap: it only gets a few values for each file and each offsets partition, never the rows of a job.
    "spark.driver.memory": "1g",
    # A run takes seconds: Java's second compiler costs more than it saves, and so does a large young generation. Without that compiler
    # Java keeps 48 MB of compiled code, and a notebook of some hundred queries then drops code all the time to compile it again.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn64m -XX:ReservedCodeCacheSize=240m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    # One row is a packed chunk of up to some megabytes, so the size of an Arrow batch is limited in bytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.python.worker.reuse": "true",
    # A worker allocates and frees columns of some megabytes by the hundred. A single allocator that keeps freed memory until the replay
    # starts needs less memory, and less kernel time for mapping pages. (These are glibc's names; other C libraries ignore them.)
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_ARENA_MAX": "1",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": "33554432",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "268435456",
    "spark.log.level": "ERROR",
}


_SESSIONS_WITH_PACKAGE: set[str] = set()
"""Spark applications whose workers have imported the package."""


def require_package_on_workers(spark: SparkSession) -> None:
    """Raise GroupcoordError, one sentence, where the Python workers of a session cannot import the package.

    The first call for a Spark application runs a job of one row.
    """
    try:
        application = str(spark.sparkContext.applicationId)
    except (AttributeError, PySparkException):  # a session of Spark Connect
        application = str(getattr(spark, "session_id", id(spark)))
    if application in _SESSIONS_WITH_PACKAGE:
        return
    try:
        spark.range(0, 1, 1, 1).mapInArrow(_unchanged, "id BIGINT").collect()
    except PySparkException as failure:
        if (lacking := missing_module(str(failure))) is not None:
            raise GroupcoordError(lacking) from failure
        raise
    _SESSIONS_WITH_PACKAGE.add(application)


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches  # a worker imports the package to find a function of it by name; it would get a lambda whole


def session(*, with_delta: bool = False, show_output: bool = False, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session to work in: the active one of spark-submit or a notebook, else a new one on ``local[*]``.

    with_delta: Spark's own Delta reader is on the class path (it is fetched by its Maven coordinates unless ``spark.jars`` names it);
    the nightly does not need it for segments. show_output: what Java itself prints goes to stdout and stderr, where it otherwise goes to a
    file that is kept only if Java fails. settings: more Spark settings, for a new session only.
    Raises GroupcoordError when there is no Java, or one older than 17, and when Spark does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    with _own_handler_of_interrupts():
        return _new_session(SparkSession.builder.appName("groupcoord"), with_delta, show_output, settings or {})


def _new_session(builder: SparkSession.Builder, with_delta: bool, show_output: bool, settings: Mapping[str, str]) -> SparkSession:
    # Without this variable, workers start the `python3` of PATH.
    with changed_environment(PYSPARK_PYTHON=os.environ.get("PYSPARK_PYTHON", sys.executable)):
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit, whose settings take precedence
            return builder.getOrCreate()
        require_java()
        fast_path.warn_if_missing()
        wanted = _wanted(with_delta, settings)
        if SparkContext._gateway is None:
            return _started(builder, wanted, show_output)
        return builder.config(map={**wanted}).getOrCreate()  # reuse the Java of a session that was stopped


@contextmanager
def _own_handler_of_interrupts() -> Iterator[None]:
    """Keeps the handler of SIGINT that a program has set. pyspark puts its own in place with each new session."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_own = handler not in (None, signal.default_int_handler)
        if is_own and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _wanted(with_delta: bool, settings: Mapping[str, str]) -> dict[str, str]:
    wanted = {"spark.master": os.environ.get("SPARK_MASTER", "local[*]"), "spark.driver.host": "localhost", **SETTINGS}
    wanted["spark.driver.memory"] = os.environ.get("SPARK_DRIVER_MEMORY", wanted["spark.driver.memory"])
    wanted["spark.driver.extraJavaOptions"] += options_to_use()
    if with_delta:
        wanted |= delta_settings()
    wanted |= settings
    if wanted["spark.master"].startswith("local"):  # on a cluster the package may reach the workers after their daemon has started
        wanted.setdefault(DAEMON, WORKER_DAEMON)
    if "delta-spark" in wanted.get("spark.jars", ""):  # with Maven coordinates too, Spark would use the network
        wanted.pop("spark.jars.packages", None)
    return wanted


def _started(builder: SparkSession.Builder, wanted: dict[str, str], show_output: bool) -> SparkSession:
    """Start a session with its own Java process. Temporary files of Java and the workers go to a directory that is removed with it."""
    _refuse_full_disk(tempfile.gettempdir())
    directory = RunDirectory()
    atexit.register(end_session)
    java_options = "spark.driver.extraJavaOptions"
    # Without -UsePerfData Java keeps a file for each of its processes in /tmp, wherever its other temporary files are. A Java whose heap is
    # full may go on without the thread that failed, and wait for it.
    wanted[java_options] += f' "-Djava.io.tmpdir={directory.path}" -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError'
    launcher_options = f"{os.environ.get('SPARK_LAUNCHER_OPTS', '')} -XX:-UsePerfData"
    try:
        with (
            directory.used_for_temporary_files(),
            changed_environment(SPARK_LAUNCHER_OPTS=launcher_options),
            directory.java_output.open("wb") as output,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", RuntimeWarning)  # pyspark warns where Java died before it could be stopped
            output_of_java = {} if show_output else {"stdout": output, "stderr": output}
            gateway = launch_gateway(SparkConf().setAll(list(wanted.items())), output_of_java)  # type: ignore[no-untyped-call]
            directory.java = gateway.proc
            SparkContext._ensure_initialized(gateway=gateway)
            spark = builder.config(map={**wanted}).getOrCreate()
    except Exception as failure:
        sentence = why_not_started(directory, failure)
        end_session()
        raise GroupcoordError(sentence) from failure
    except BaseException:
        end_session()
        raise
    _do_not_print_the_end_of_java(spark)
    conf = spark.sparkContext.getConf()
    directory.has_to_stop = (
        not wanted["spark.master"].startswith("local")
        or conf.get("spark.eventLog.enabled") == "true"
        # Spark's temporary files are not in the run directory
        or "SPARK_LOCAL_DIRS" in os.environ
        or conf.contains("spark.local.dir")
    )
    return spark


def _refuse_full_disk(directory: str) -> None:
    """Raise GroupcoordError if Java cannot write the file with its port, which pyspark would wait for forever."""
    free = shutil.disk_usage(directory).free
    if free < LEAST_TEMPORARY_BYTES:
        raise GroupcoordError(
            f"The disk of {directory} is full: {free:,} bytes are left, and Spark keeps its temporary files there. Make room, or name"
            " another directory, for example with TMPDIR=/path in the environment."
        )


def _do_not_print_the_end_of_java(spark: SparkSession) -> None:
    """Silence the accumulator thread, which prints a traceback when Java ends. The thread that waits for Java reports the error."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, client_address: None


def _say_nothing_more_to_java() -> None:
    """Stop py4j's thread that reports dropped objects to Java, since it prints a traceback once Java has ended."""
    client = getattr(SparkContext._gateway, "_gateway_client", None)
    if client is not None:
        client.is_connected = False


def end_session() -> None:
    """End the session that ``session`` has started, with its Java and its workers. A session that others started is left alone.

    Spark's own stop takes a second. It is skipped, because the tables already contain everything that a run keeps.
    """
    directory = own_directory()
    if directory is None:
        return
    _say_nothing_more_to_java()
    directory.end_processes()
    directory.remove()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    atexit.unregister(end_session)


@contextmanager
def session_ends_with_block() -> Iterator[None]:
    """End a session that ``session`` started inside the block. An earlier session stays."""
    earlier_directory = own_directory()
    try:
        yield
    finally:
        if own_directory() is not earlier_directory:
            end_session()


def delta_package(spark_version: str | None = None) -> str:
    """Return the Maven coordinates of Delta for a version of Spark; None: the version of pyspark."""
    version = spark_version or pyspark.__version__
    if version.startswith("3.5."):  # Delta 3.3 needs a class that Spark has from 3.5.2 on
        return f"io.delta:delta-spark_2.12:{'3.2.0' if version in ('3.5.0', '3.5.1') else '3.3.2'}"
    return f"io.delta:delta-spark_{'.'.join(version.split('.')[:2])}_2.13:4.4.0"


def delta_settings() -> dict[str, str]:
    """Return the settings that let a session read and query Delta tables."""
    return {
        PACKAGES: delta_package(),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def metastore_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings extended by those that keep views of Delta tables in Hive's metastore.

    Without further settings of Hive that metastore is a directory ``metastore_db`` in the working directory.
    """
    of_delta = delta_settings()
    packages = ",".join(filter(None, (settings.get(PACKAGES), of_delta[PACKAGES])))
    return {**of_delta, "spark.sql.catalogImplementation": "hive", **settings, PACKAGES: packages}


def require_java() -> None:
    """Raise GroupcoordError unless Spark can find Java 17 or newer (JAVA_HOME, then PATH)."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    way_out = (
        f"Spark needs Java {OLDEST_JAVA} or newer: install it (for example `apt-get install openjdk-17-jre-headless`) or set JAVA_HOME."
    )
    if java is None:
        raise GroupcoordError(f"No `java` on PATH and JAVA_HOME is not set. {way_out}")
    if not os.access(java, os.X_OK):
        raise GroupcoordError(f"JAVA_HOME is {home!r}, but there is no executable {java!r}. {way_out}")
    version = _java_version(Path(java))
    if version is not None and version < OLDEST_JAVA:
        raise GroupcoordError(f"{java} is Java {version}. {way_out}")


def _java_version(java: Path) -> int | None:
    release = java.resolve().parent.parent / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    stated = re.search(r'JAVA_VERSION="(\d+)(?:\.(\d+))?', text)
    if stated is None:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        stated = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if stated is None:
        return None
    major = int(stated[1])
    return int(stated[2] or 0) if major == 1 else major
