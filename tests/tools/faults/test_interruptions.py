"""Ctrl-C and SIGTERM: ``Interrupted.``, 130, and nothing left behind. ``tests.tools.faults.interrupt`` tries as many moments as wanted."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tools.faults.interrupt import faults_of
from tests.tools.faults.running import MARKER, PROCESSES, Command, data_files, newest_run, nightly
from tests.warehouse.nights import group, night

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not (PROCESSES / "self" / "environ").exists(), reason="this system does not show processes' environments"),
]

MOMENTS: dict[str, Callable[[Command], object]] = {
    "while Spark is launched": lambda command: command.processes(),
    "while Java starts": lambda command: command.processes("java"),
    "while workers read": lambda command: command.processes("worker"),
    "while the tables are committed": lambda command: "read, replay and write" in command.stages(),
}


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Iterator[None]:
    """Provide a shell without job control lets what it starts in the background ignore SIGINT, and processes hand that on."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a warehouse with a run of the cluster."""
    place = tmp_path_factory.mktemp("interrupted") / "warehouse"
    night(place, "sample", {"groups": [group("earlier")]})
    return place


@pytest.mark.parametrize(
    ("moment", "number", "to_group"),
    [
        ("while Spark is launched", signal.SIGINT, True),
        ("while Java starts", signal.SIGTERM, True),
        ("while workers read", signal.SIGTERM, False),
        ("while the tables are committed", signal.SIGINT, False),
    ],
)
def test_an_interrupted_night_is_one_line_and_leaves_nothing_behind(
    tmp_path: Path, warehouse: Path, moment: str, number: signal.Signals, to_group: bool
) -> None:
    # The message about the end of Java and of the workers is printed while workers read: the tables are committed without Spark.
    before, files = newest_run(warehouse), data_files(warehouse)
    command = nightly(tmp_path, warehouse, is_without_spark=moment == "while the tables are committed")
    assert command.wait_until(lambda: MOMENTS[moment](command)), command.stderr
    command.send(number, to_group=to_group)
    command.send(number, to_group=to_group)  # impatient users press Ctrl-C twice
    command.wait()
    assert faults_of(command, warehouse, before, files) == []


def assert_interrupted(program: str, sent: signal.Signals) -> None:
    """Send the signal to a program once it waits: it says one word and ends with 130."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(sent)
        assert process.communicate(timeout=60)[1] == "Interrupted.\n"
    assert process.returncode == 130


def test_a_command_without_spark_is_interrupted_in_the_same_way(tmp_path: Path) -> None:
    """``dump`` waits here until somebody reads on, as behind a pager."""
    code = f"import os, sys; sys.argv[1:] = ['dump', {str(Path('tests/golden/nights').resolve())!r}]; os.environ[{MARKER!r}] = 'dump'\n"
    run = "from groupcoord_spark.cli import main, interruption\nimport time\n"
    waits = "import groupcoord_spark.cli.commands as c\nc.main.main = lambda args: (print('waits', flush=True), time.sleep(600))\nmain()"
    assert_interrupted(code + run + waits, signal.SIGINT)


def test_what_waits_in_a_library_that_does_not_hear_the_signal_is_ended_all_the_same() -> None:
    # A lock of C that Python's handlers do not interrupt: here a thread that never ends is joined in a handler's stead.
    program = (
        "from groupcoord_spark.cli import interruption\n"
        "interruption.SECONDS_TO_END = 0.2\n"
        "def command():\n"
        "    print('waits', flush=True)\n"
        "    import time\n"
        "    while True:\n"
        "        try: time.sleep(600)\n"
        "        except interruption.Interrupted: pass\n"
        "interruption.run_in_own_process(command)\n"
    )
    assert_interrupted(program, signal.SIGTERM)


def test_a_signal_that_was_ignored_at_the_start_stays_ignored() -> None:
    program = (
        "import os, signal\n"
        "from groupcoord_spark.cli import interruption\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "def command():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    raise SystemExit(7)\n"
        "interruption.run_in_own_process(command)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")


def test_a_command_in_a_users_own_process_leaves_the_handlers_of_signals_alone(tmp_path: Path) -> None:
    program = (
        "import signal\nfrom groupcoord_spark.cli import main\n"
        f"try: main(['list', '--warehouse', {str(tmp_path)!r}])\n"
        "except SystemExit: pass\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "True True\n"
