"""What tests of several rooms share: one Spark session, and one warehouse of the sample that ``make nightly`` reads."""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numba
import pytest
from hypothesis import settings

from groupcoord_spark.protocol import fast_path
from tests.examples import PROFILE
from tests.loops import WITH_CHECK, compile_loops

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from groupcoord_spark.pipeline.run import Summary
    from tests.local_session import LocalSession

os.environ.setdefault("TOKIO_WORKER_THREADS", "1")
"""One thread of delta-rs in each process: small tables have nothing to share out, and idle threads looked for work."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Without bytecode each process of pytest rewrites the assertions of 360 files, 7 s of CPU, and each command compiles what it imports."""

settings.register_profile("groupcoord", PROFILE)
settings.load_profile("groupcoord")

Result = TypeVar("Result")

GOLDEN = Path(__file__).parent / "golden"
SAMPLE_LOGS = GOLDEN / "classic-modern" / "logs"

DAY_MS = 86_400_000
SAMPLE_AS_OF_MS = 1_795_248_000_000
"""2026-11-21T08:00:00Z, as in the Makefile."""


def pytest_configure(config: pytest.Config) -> None:
    """Has the compiled loops check every index in the tests' own processes. Spark's workers, and commands, run the loops as shipped."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        compile_loops({}, WITH_CHECK)
    else:
        gc.disable()  # until the tests are collected: collecting makes a million objects, which all stay
    numba.config.BOUNDSCHECK = 1
    numba.config.CACHE_DIR = WITH_CHECK["NUMBA_CACHE_DIR"]


SLOWEST_FILES = (
    *("test_notebooks.py", "pipeline/test_views_alike.py", "test_standalone_cluster.py", "integration/test_live_topic.py"),
    *("cli/test_bad_copies.py", "warehouse/test_sql_engines.py", "test_documentation.py", "test_object_store.py", "faults/test_deaths.py"),
    *("dataframes/test_nightly_tables.py", "pipeline/test_nightly.py", "test_spark_submit.py", "report/test_gather.py"),
    *("warehouse/test_maintenance.py", "pipeline/test_golden.py", "pipeline/test_nights.py", "pipeline/test_incremental_rows.py"),
    *("cli/test_mcp.py", "dataframes/test_frames_of_users.py", "pipeline/test_until.py", "warehouse/test_two_runs.py"),
    *("cli/test_nightly.py", "faults/test_interruptions.py", "pipeline/test_distributed_replay.py", "pipeline/test_run_nightly.py"),
    *("cli/test_untrusted_text.py", "cli/test_warm_up.py", "warehouse/test_runs.py", "pipeline/test_causes.py"),
    *("report/test_in_browser.py", "cli/test_metrics.py", "faults/test_two_runs.py", "answers/test_why.py", "test_packaging.py"),
    *("log/test_ranges.py", "warehouse/test_views.py", "pipeline/test_rows.py", "pipeline/test_topic_health.py"),
    *("pipeline/test_admin_night.py", "cli/test_simulate.py", "log/test_salvage.py", "cli/test_report.py"),
    *("integration/test_what_clients_do.py", "cli/test_dump.py", "answers/test_night_changes.py", "doctor/test_verdicts.py"),
    *("faults/test_files_in_use.py", "pipeline/test_upgrade.py", "cli/test_commands.py", "warehouse/test_reading.py"),
    *("cli/test_morning.py", "dataframes/test_records.py", "faults/test_full_disk.py", "sources/test_segments.py"),
    *("integration/test_tools_read_ours.py", "integration/test_real_broker.py", "pipeline/test_compact.py"),
    *("assignors/test_large_groups.py", "doctor/test_gather.py", "pipeline/test_timeline.py", "cli/test_doctor.py"),
    *("warehouse/test_parts.py", "faults/test_damage.py", "log/test_columnar.py", "pipeline/test_latest_records.py"),
    *("cli/test_describe.py", "cli/test_terminal.py", "warehouse/test_damage.py", "cli/test_timeline.py", "log/test_golden.py"),
    *("cli/test_diff.py", "warehouse/test_answer_views.py", "log/test_marks.py", "cli/test_look_backs.py", "cli/test_maintain.py"),
    *("warehouse/test_answer_view_edges.py", "verification/test_comparison.py", "pipeline/test_after_cleaning.py"),
)
"""Files of tests that take more than some seconds of CPU, the slowest first."""


MARKED_BY_FIXTURE = frozenset({"spark", "broker", "browser"})
"""Fixtures whose tests have the marker of the same name."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files come first: processes that take a file at a time then end at about the same time. Fixtures give their markers."""
    for item in items:
        for fixture in MARKED_BY_FIXTURE & set(getattr(item, "fixturenames", ())):
            item.add_marker(fixture)
    place = {f"tests/{file}": number for number, file in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def pytest_collection_finish() -> None:
    """Leave the collected tests out of the garbage collector, which is on from now on."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a process a file at a time, but all files that need the broker to one, and all that need Spark to one.

    So one broker and one Java of Spark start. A Java takes 10 to 15 s of CPU until it has loaded and compiled what queries need.
    """
    from xdist.scheduler import LoadFileScheduling

    class FewServers(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return BROKER_TESTS if file.startswith(BROKER_TESTS) else SPARK_TESTS if _asks_for_spark(file) else file

    return FewServers(config, log) if config.getoption("dist") == "loadfile" else None


BROKER_TESTS, SPARK_TESTS = "tests/integration/", "Spark"

ASKS_FOR_SPARK = re.compile(r"^ *def \w+\([^)]*\bspark(_\w+)?\b", re.MULTILINE)


@cache
def _asks_for_spark(file: str) -> bool:
    """Return whether a function of the file asks for the Spark session."""
    return ASKS_FOR_SPARK.search((Path(__file__).parents[1] / file).read_text(encoding="utf-8")) is not None


DECODERS = ("loops", "scalar")


@contextmanager
def decoder(name: str) -> Iterator[None]:
    """Has the compiled loops, or the scalar decoder, read every input."""
    loops = fast_path.load()
    assert loops, "numba cannot be used"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "loops_for", lambda rows: loops if name == "loops" else None)
        yield


def by_each_decoder(read: Callable[[], Result]) -> list[Result]:
    """Return what is read with the compiled loops, then what is read of the same input with the scalar decoder."""
    results = []
    for name in DECODERS:
        with decoder(name):
            results.append(read())
    return results


@pytest.fixture
def with_loops() -> Iterator[None]:
    """Has the compiled loops read every input, however small."""
    with decoder("loops"):
        yield


@pytest.fixture(scope="module", params=DECODERS)
def each_decoder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the tests that use it once with each decoder. Random input is made once, for ``by_each_decoder``."""
    with decoder(request.param):
        yield


class SampleWarehouse(NamedTuple):
    """A warehouse that ``made_once`` made; not to be written to. summary: what its last run reported."""

    path: Path
    summary: Summary


FOR_FEW_ROWS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.ui.explainMode": "simple",
}
"""Settings for queries over a few rows, which still go through a shuffle of two tasks.

To compile code for such queries, to plan them again while they run, to run a job for each small side of a join, and to write each plan at
length for Spark's UI takes longer than the queries.
"""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Provide the session of all tests of a process, with Spark's Delta reader where it is on this machine or can be fetched."""
    from groupcoord_spark.errors import GroupcoordError
    from groupcoord_spark.spark.session import session

    # One Java for hundreds of runs and for what Delta caches; a core for each process of pytest. All tests have few rows: what pays off
    # with many costs more than the rows. A run is divided as for two cores nonetheless.
    settings = {
        "spark.default.parallelism": "2",
        "spark.master": "local[1]" if "PYTEST_XDIST_WORKER" in os.environ else "local[2]",
        "spark.driver.memory": "2g",
        "spark.shuffle.compress": "false",
        **FOR_FEW_ROWS,
    }
    try:
        shared = session(with_delta=True, settings=settings)
    except GroupcoordError:
        shared = session(settings=settings)
    yield shared
    shared.stop()


@pytest.fixture(scope="session")
def local() -> LocalSession:
    """Provide a session that runs runs in this process, for tests of what runs do and not of how Spark does it."""
    from tests.local_session import LocalSession

    return LocalSession()


@pytest.fixture(scope="module")
def commands_run_nights_here(local: LocalSession) -> Iterator[None]:
    """Has ``groupcoord nightly``, called in this process, run its run without Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupcoord_spark.pipeline.run_nightly.session", lambda **_: local)
        yield


@pytest.fixture(scope="module")
def tables_of_a_log() -> Iterator[None]:
    """Warehouses have the tables where runs over the offsets topic alone may have rows, and no more."""
    from tests.warehouse.nights import TABLES_OF_A_LOG, few_tables

    with few_tables(TABLES_OF_A_LOG):
        yield


@pytest.fixture
def every_table() -> Iterator[None]:
    """Warehouses have every table, also where the other tests of a file have few."""
    from tests.warehouse.nights import all_tables

    with all_tables():
        yield


@pytest.fixture
def spark_with_delta(spark: SparkSession) -> Iterator[SparkSession]:
    """Provide the session of all tests, for tests that read Delta tables through Spark; their temporary views are dropped after them."""
    if "DeltaSparkSessionExtension" not in spark.sparkContext.getConf().get("spark.sql.extensions", ""):
        pytest.skip("Spark's Delta reader is neither on this machine nor can it be fetched from Maven Central")
    yield spark
    for table in spark.sql("SHOW TABLES").collect():  # spark.catalog.listTables needs compiled code
        if table.isTemporary:
            spark.catalog.dropTempView(table.tableName)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Summary]) -> SampleWarehouse:
    """Return the warehouse that ``make`` makes. The first process of pytest that asks makes it, and all processes read it."""
    from tests.warehouse.nights import all_tables

    place = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    warehouse, said = place / name / "warehouse", place / name / "summary"
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait until the first has made it
        if not said.exists():
            warehouse.parent.mkdir()
            with all_tables():
                said.write_bytes(pickle.dumps(make(warehouse)))
    return SampleWarehouse(warehouse, pickle.loads(said.read_bytes()))


@pytest.fixture(scope="session")
def sample_warehouse(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> SampleWarehouse:
    from groupcoord_spark.cli.progress import StageLines
    from groupcoord_spark.coordinator.semantics import semantics_for
    from groupcoord_spark.log import plan_logs
    from groupcoord_spark.pipeline.night import run_stages
    from groupcoord_spark.pipeline.run import RunRequest

    def make(path: Path) -> Summary:
        inputs = (str(SAMPLE_LOGS),)
        night = RunRequest(inputs, str(path), "sample", as_of_ms=SAMPLE_AS_OF_MS, retention_ms=7 * DAY_MS, semantics=semantics_for())
        return run_stages(night, plan_logs(inputs), local, StageLines(quiet=True))

    return made_once(tmp_path_factory, "sample", make)


@pytest.fixture(scope="session")
def demo_warehouse(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> SampleWarehouse:
    """Provide what ``groupcoord demo`` makes, next to its ``demo-logs``; the summary is what it prints. Not to be written to."""
    from click.testing import CliRunner

    from groupcoord_spark.cli.commands import main

    def make(path: Path) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("groupcoord_spark.pipeline.run_nightly.session", lambda **_: local)
            done = CliRunner().invoke(main, ["demo", "--warehouse", str(path), "--logs", str(path.parent / "demo-logs")])
        assert done.exit_code == 0, done.output
        return done.output

    return made_once(tmp_path_factory, "demo", make)


FIVE_NIGHTS = {1: 1_795_231_254_570, 2: 1_795_231_276_109, 3: 1_795_231_315_838, 4: 1_795_231_342_658, 5: 1_795_231_377_976}
"""The runs of tests/golden/nights, and when each was copied."""


@pytest.fixture(scope="session")
def five_nights(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide five runs of one broker, whose log was cleaned in between, as the cluster ``nights``; not to be written to."""
    from tests.running import run

    def make(path: Path) -> Summary:
        summaries = [run(local, path, GOLDEN / "nights" / str(n) / "logs", cluster="nights", as_of_ms=at) for n, at in FIVE_NIGHTS.items()]
        return summaries[-1]

    return made_once(tmp_path_factory, "nights", make).path


VANISHED_LOG_ENDS = {("orders", 0): 900, ("orders", 1): 600, ("payments", 0): 2_000}


@pytest.fixture(scope="session")
def vanished_warehouse(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a warehouse with one run of the broker whose every request is known; not to be written to."""
    from tests.running import run

    def make(path: Path) -> Summary:
        at_ms = int((GOLDEN / "vanished" / "oracle" / "read_at_ms.txt").read_text().split()[0])
        ends = {"log_ends": VANISHED_LOG_ENDS, "log_ends_sampled_at_ms": at_ms}
        return run(local, path, GOLDEN / "vanished" / "logs", as_of_ms=at_ms, retention_ms=60_000, **ends)

    return made_once(tmp_path_factory, "vanished", make).path
