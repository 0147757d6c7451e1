"""Runs nights and all reading commands over directories where nothing may be written, and counts the faults. Needs root, to mount.

A night over a dump that is mounted read-only must be like any other. Where the warehouse is mounted read-only, every reading command must
print what it prints elsewhere, and every writing one must end with exit code 1 and one sentence, and change nothing.
``python -m tests.tools.faults.read_only``
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN
from tests.running import tables_of
from tests.tools.faults.damage import AS_OF_MS, READING, called, is_one_sentence

DUMPS = GOLDEN / "nights"
NIGHTS = (1, 2, 3)
WRITING: Mapping[str, Sequence[str]] = {
    "nightly": ("nightly", str(DUMPS / "4" / "logs"), "--as-of", str(AS_OF_MS[3]), "--cluster", "nights"),
    "look-back": ("nightly", str(DUMPS / "4" / "logs"), "--until", str(AS_OF_MS[0]), "--cluster", "nights"),
    "maintain": ("maintain", "--keep-nights", "1"),
}


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Yield a block where nobody may write into the directory. Raises CalledProcessError where it cannot be mounted."""
    subprocess.run(["mount", "--bind", str(directory), str(directory)], check=True, capture_output=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(directory)], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def printed(warehouse: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """Exit code and stdout of a command."""
    result = groupcoord(*arguments, "--warehouse", str(warehouse))
    return result.exit_code, result.stdout


def night(dump: Path, warehouse: Path, number: int) -> tuple[int, str]:
    """Exit code and stderr of one of the golden nights, from 1 on, over the dump."""
    arguments = ("--warehouse", str(warehouse), "--cluster", "nights", "--quiet", "--as-of", str(AS_OF_MS[number - 1]))
    return called("nightly", str(dump), *arguments)


def faults_of_input(place: Path) -> Iterator[str]:
    """Yield the faults of nights over a dump where nothing may be written."""
    for number in NIGHTS:
        dump = DUMPS / str(number) / "logs"
        for warehouse in ("usual", "read-only"):
            if warehouse == "usual":
                ended = night(dump, place / warehouse, number)
            else:
                with read_only(dump):
                    ended = night(dump, place / warehouse, number)
            if ended != (0, ""):
                yield f"night {number} ended with {ended}"
        if tables_of(place / "usual", "nights") != tables_of(place / "read-only", "nights"):
            yield f"night {number} has other rows"


def faults_of_warehouse(warehouse: Path) -> Iterator[str]:
    """Yield the faults of the commands over a warehouse where nothing may be written."""
    expected = {name: printed(warehouse, arguments) for name, arguments in READING.items()}
    rows = tables_of(warehouse, "nights")
    with read_only(warehouse):
        for name, arguments in READING.items():
            found = printed(warehouse, arguments)
            if found != expected[name]:
                yield f"{name} ended with {found[0]}, elsewhere with {expected[name][0]}"
        for name, arguments in WRITING.items():
            code, stderr = called(*arguments, "--warehouse", str(warehouse))
            if code != 1 or not is_one_sentence(code, stderr) or "cannot be written" not in stderr:
                yield f"{name} ended with {code}: {stderr.strip()[-400:]}"
        code, stderr = called("nightly", str(DUMPS / "1" / "logs"), "--warehouse", str(warehouse / "new"), "--cluster", "nights")
        if code != 1 or not is_one_sentence(code, stderr):
            yield f"a first night ended with {code}: {stderr.strip()[-400:]}"
    if tables_of(warehouse, "nights") != rows:
        yield "rows are others than before"
    if (ended := night(DUMPS / "4" / "logs", warehouse, 4))[0]:
        yield f"the night after that ended with {ended}"


def main() -> None:
    from groupcoord_spark.spark.session import session

    spark = session(settings={"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory(prefix="read-only-") as directory:
        faults = [*faults_of_input(Path(directory)), *faults_of_warehouse(Path(directory) / "usual")]
    spark.stop()
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults of {2 * len(NIGHTS) + 2 * len(READING) + len(WRITING) + 2} commands")


if __name__ == "__main__":
    main()
