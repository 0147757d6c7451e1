"""A log that a broker still uses: its files grow, vanish, are renamed, cut or replaced while they are listed, and before they are read.

Where the system allows it, a run holds the files open that it has listed, and reads those. Elsewhere it reads the log again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.errors import InputChangedError
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.night import run_stages
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.storage.held_files import HeldFiles
from groupcoord_spark.storage.location import Location
from groupcoord_spark.warehouse import open_warehouse
from tests.conftest import DAY_MS, GOLDEN
from tests.log.log_writer import Rec, batch, write_segment
from tests.running import AS_OF_MS, run, tables_of
from tests.tools.faults.damage import Tables, called
from tests.tools.faults.simulated_cleaner import BusyLog, ending

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

LOGS = GOLDEN / "compacted" / "logs"


def finished_and_newest(logs: Path) -> tuple[Path, Path]:
    """Two segments of a partition with several: a finished one, and the one that the broker writes to."""
    files = [sorted(each.glob("*.log")) for each in sorted(logs.glob("__consumer_offsets-*"))]
    several = max(files, key=len)
    assert len(several) > 1
    return max(several[:-1], key=lambda path: path.stat().st_size), several[-1]


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "a finished file is renamed": lambda finished, newest: finished.rename(f"{finished}.deleted"),
    "a finished file vanishes": lambda finished, newest: finished.unlink(),
    "a finished file is replaced by a cleaned one": lambda finished, newest: os.truncate(finished, finished.stat().st_size - 80),
    "a finished file is replaced by a merged one": lambda finished, newest: finished.write_bytes(
        finished.read_bytes() + newest.read_bytes()
    ),
    "the newest file is cut": lambda finished, newest: os.truncate(newest, newest.stat().st_size - 1),
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return shutil.copytree(LOGS, tmp_path / "logs")


def run_planned(
    spark: SparkSession | LocalSession, warehouse: Path, logs: Path, change: Callable[[], object], held: HeldFiles | None = None
) -> None:
    """Run over an input that changes after it was planned."""
    request = RunRequest((str(logs),), str(warehouse), "sample", as_of_ms=AS_OF_MS, retention_ms=7 * DAY_MS, semantics=JAVA)
    plan = plan_logs(request.inputs, held=held)
    change()
    run_stages(request, plan, spark, StageLines(quiet=True))


def rows_without_sizes(warehouse: Path) -> Tables:
    """topic_health has the size of the files when they were read."""
    return {name: rows for name, rows in tables_of(warehouse).items() if name != "topic_health"}


def replace_all(logs: Path) -> None:
    """Put a file without records in the place of every file, as a cleaner may."""
    for path in logs.glob("__consumer_offsets-*/*.log"):
        path.rename(f"{path}.deleted")
        path.touch()


def test_a_night_that_holds_its_files_reads_them_also_when_all_are_replaced_and_removed(
    spark: SparkSession, local: LocalSession, tmp_path: Path, logs: Path
) -> None:
    run(local, tmp_path / "expected", logs)

    def change() -> None:
        replace_all(logs)
        for path in logs.glob("__consumer_offsets-*/*.deleted"):
            path.unlink()

    with HeldFiles() as held:
        run_planned(spark, tmp_path / "w", logs, change, held)
    assert rows_without_sizes(tmp_path / "w") == rows_without_sizes(tmp_path / "expected")


def test_a_night_that_holds_its_files_is_one_sentence_where_one_is_cut(local: LocalSession, tmp_path: Path, logs: Path) -> None:
    newest = finished_and_newest(logs)[1]
    with HeldFiles() as held, pytest.raises(InputChangedError, match="run it again, or read a copy"):
        run_planned(local, tmp_path / "w", logs, lambda: os.truncate(newest, newest.stat().st_size - 1), held)


@pytest.mark.parametrize("what", CHANGES)
def test_a_night_whose_files_were_changed_is_one_sentence_and_the_next_one_is_whole(
    local: LocalSession, tmp_path: Path, logs: Path, what: str
) -> None:
    finished, newest = finished_and_newest(logs)
    with pytest.raises(InputChangedError, match="run it again, or read a copy") as raised:
        run_planned(local, tmp_path / "w", logs, lambda: CHANGES[what](finished, newest))
    assert "\n" not in str(raised.value) and logs.name in str(raised.value)
    assert open_warehouse(str(tmp_path / "w")).runs().num_rows == 0
    assert not list((tmp_path / "w").glob("*/cluster=*/*.parquet"))


def test_a_night_over_a_file_that_grows_reads_what_was_planned(local: LocalSession, tmp_path: Path, logs: Path) -> None:
    newest = finished_and_newest(logs)[1]
    run(local, tmp_path / "expected", logs)

    def grow() -> None:
        newest.write_bytes(newest.read_bytes() + batch(10_000, [Rec(b"later")]))
        (newest.parent / f"{10_001:020}.log").write_bytes(batch(10_001, [Rec(b"in a new file")]))

    run_planned(local, tmp_path / "w", logs, grow)
    assert rows_without_sizes(tmp_path / "w") == rows_without_sizes(tmp_path / "expected")


class TestTheCommand:
    @pytest.fixture
    def nightly(self, commands_run_nights_here: None, tmp_path: Path, logs: Path) -> Callable[[Callable[[], object]], tuple[int, str]]:
        """Exit code and stderr of ``groupcoord nightly``, where a function changes the input each time after it was planned."""

        def nightly(change: Callable[[], object]) -> tuple[int, str]:
            def change_and_run(*args: Any) -> Any:
                change()
                return run_stages(*args)

            with patch("groupcoord_spark.pipeline.run_nightly.run_stages", change_and_run):
                return called("nightly", str(logs), "--warehouse", str(tmp_path / "w"), "--cluster", "sample")

        return nightly

    @pytest.fixture
    def cannot_hold(self) -> Iterator[None]:
        """Provide a system without /proc."""
        with patch.object(HeldFiles, "hold", lambda held, path: None):
            yield

    def test_reads_a_log_once_beside_a_cleaner_that_never_rests(
        self, nightly: Callable[[Callable[[], object]], tuple[int, str]], tmp_path: Path, logs: Path
    ) -> None:
        code, stderr = nightly(lambda: replace_all(logs))
        assert (code, stderr.count("is read again")) == (0, 0)
        assert open_warehouse(str(tmp_path / "w")).runs().to_pylist()[0]["records_read"] > 0

    @pytest.mark.usefixtures("cannot_hold")
    def test_reads_a_log_again_that_was_cleaned_meanwhile(
        self, nightly: Callable[[Callable[[], object]], tuple[int, str]], tmp_path: Path, logs: Path
    ) -> None:
        finished, _ = finished_and_newest(logs)
        cleaned = iter([lambda: finished.rename(f"{finished}.deleted")])
        code, stderr = nightly(lambda: next(cleaned, lambda: None)())
        assert code == 0
        assert "is read again (2 of 5)" in stderr
        assert open_warehouse(str(tmp_path / "w")).runs().num_rows == 1

    @pytest.mark.usefixtures("cannot_hold")
    def test_ends_with_one_sentence_where_the_log_does_not_come_to_rest(
        self, nightly: Callable[[Callable[[], object]], tuple[int, str]], tmp_path: Path, logs: Path
    ) -> None:
        finished, _ = finished_and_newest(logs)
        code, stderr = nightly(lambda: finished.write_bytes(finished.read_bytes()[:-80]))
        assert code == 1
        assert stderr.count("is read again") == 4
        assert stderr.splitlines()[-1].startswith("Error: ") and "run it again, or read a copy" in stderr.splitlines()[-1]
        assert open_warehouse(str(tmp_path / "w")).runs().num_rows == 0


class TestThePlan:
    def listed(self, logs: Path, *changes: Callable[[], object]) -> list[str]:
        """Return the names of the planned files, where the directory changes each time after it was listed."""
        whole, waiting = Location.list, list(changes)

        def list_and_change(location: Location) -> object:
            infos = whole(location)
            if location.name.startswith("__consumer_offsets-") and waiting:
                waiting.pop(0)()
            return infos

        with patch.object(Location, "list", list_and_change), HeldFiles() as held:
            plan = plan_logs([str(logs)], held=held)
            assert not waiting
            planned = [segment for log in plan.partitions for segment in log.segments]
            for segment in planned:
                assert segment.held is not None and segment.held.inode == Path(segment.uri).stat().st_ino
        return [Path(segment.uri).name for log in plan.partitions for segment in log.segments]

    @pytest.fixture
    def files(self, tmp_path: Path) -> list[Path]:
        return [write_segment(tmp_path, [batch(n, [Rec(b"k", b"%d" % n)])], base_offset=n) for n in range(3)]

    def test_has_the_merged_file_and_not_those_that_it_replaces(self, files: list[Path]) -> None:
        def merge() -> None:
            files[0].write_bytes(files[0].read_bytes() + files[1].read_bytes())
            files[1].rename(f"{files[1]}.deleted")

        assert self.listed(files[0].parent, merge) == [files[0].name, files[2].name]

    def test_has_the_newest_file_whose_records_supersede_those_that_a_cleaned_one_lacks(self, files: list[Path]) -> None:
        def clean() -> None:
            write_segment(files[0].parent.parent, [batch(3, [Rec(b"k", b"3")])], base_offset=3)
            files[0].write_bytes(b"")

        assert self.listed(files[0].parent, clean) == [files[1].name, files[2].name, f"{3:020}.log"]

    def test_is_not_made_anew_because_the_newest_file_grows(self, files: list[Path]) -> None:
        def grow() -> None:
            with files[2].open("ab") as file:
                file.write(batch(3, [Rec(b"k")]))

        assert self.listed(files[0].parent, grow) == [path.name for path in files]

    def test_of_a_directory_that_does_not_come_to_rest_is_one_sentence(self, files: list[Path]) -> None:
        names = iter(range(100, 200))

        def add() -> None:
            write_segment(files[0].parent.parent, [batch(number := next(names), [Rec(b"k")])], base_offset=number)

        with pytest.raises(InputChangedError, match="its files were replaced each time that the directory was listed"):
            self.listed(files[0].parent, *[add] * 50)


def test_a_log_that_is_held_is_read_as_it_was_at_one_moment_beside_a_cleaner_that_never_rests(tmp_path: Path) -> None:
    log = BusyLog(tmp_path)
    with log.at_work():
        assert [ending(log, "held", 0.01) for _ in range(20)] == ["right"] * 20
