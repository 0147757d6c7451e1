"""Two runs at once: one finishes, the other leaves no row in any table, wherever it was stopped."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.storage.warehouse_location import locate
from groupcoord_spark.warehouse import TABLES, begin_run, commit_run, open_warehouse, write_part
from groupcoord_spark.warehouse import open_table as open_table_module
from groupcoord_spark.warehouse import write as write_module
from groupcoord_spark.warehouse.maintenance import maintain
from groupcoord_spark.warehouse.open_table import OpenTable, open_table
from groupcoord_spark.warehouse.read import rows_at
from groupcoord_spark.warehouse.tables import HISTORY
from groupcoord_spark.warehouse.write import open_to_write
from tests.running import commits_of
from tests.warehouse.nights import FEW_TABLES, commit, group, night, offset, run_fields, written

pytestmark = pytest.mark.usefixtures("few_tables")

COMMITS = len(FEW_TABLES)


def rows_of_night(number: int) -> dict[str, list[dict[str, Any]]]:
    """Make rows whose numbers all are the number of the run."""
    return {
        "committed_offsets": [offset("g", "t", 0, number)],
        "groups": [group(f"g{number}")],
        "offset_commits": [commit(number)],
        "warnings": [{"run_id": "r", "code": "other_topic", "detail": str(number)}],
    }


def newest_rows(warehouse: Path) -> dict[str, list[str]]:
    """Return all rows of the newest version of each table but runs, as a reader sees them who opens the tables directly."""
    rows = {}
    for name in sorted(set(TABLES) - {"runs"}):
        listed = []
        opened = open_table(locate(str(warehouse)), TABLES[name])
        for cluster in sorted({values["cluster"] for values in opened.delta.partitions()}):
            listed += [str(row) for row in opened.rows(cluster, list(TABLES[name].by_name)).to_pylist()]
        rows[name] = sorted(listed)
    return rows


def rows_of_readers(warehouse: Path) -> dict[str, list[str]]:
    opened = open_warehouse(str(warehouse))
    return {name: sorted(str(row) for row in opened.read(name).to_pylist()) for name in sorted(set(TABLES) - {"runs"})}


def nights(warehouse: Path, *numbers: int, cluster: str = "prod") -> None:
    for number in numbers:
        night(warehouse, cluster, rows_of_night(number))


@contextmanager
def stopped_before_commit(number: int, then: Callable[[], None]) -> Iterator[None]:
    """Calls ``then`` before the commit of that number (from 0; the last belongs to ``runs``)."""
    whole, seen = write_module._commit_table, iter(range(COMMITS))

    def commit_table(*given: Any) -> DeltaTable:
        if next(seen) == number:
            with patch.object(write_module, "_commit_table", whole):
                then()
        return whole(*given)

    with patch.object(write_module, "_commit_table", commit_table):
        yield


class Stopped(Exception):  # noqa: N818
    """Raised where a run is stopped."""


def stop() -> None:
    raise Stopped


@pytest.fixture(scope="module")
def after_night_1(few_tables: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a warehouse that is not to be written to."""
    warehouse = tmp_path_factory.mktemp("night-1") / "w"
    nights(warehouse, 1)
    return warehouse


@pytest.fixture
def warehouse(after_night_1: Path, tmp_path: Path) -> Path:
    """Provide a warehouse after the first run."""
    return Path(shutil.copytree(after_night_1, tmp_path / "w"))


class Undisturbed:
    """Rows of warehouses where one run after another ran, each such warehouse made once."""

    def __init__(self, after_night_1: Path, directory: Path) -> None:
        self._after_night_1 = after_night_1
        self._directory = directory
        self._rows: dict[tuple[tuple[int, str], ...], dict[str, list[str]]] = {}

    def after(self, *later: tuple[int, str]) -> dict[str, list[str]]:
        """Return the rows after the first run and these, each a number and a cluster."""
        if later not in self._rows:
            warehouse = Path(shutil.copytree(self._after_night_1, self._directory / str(len(self._rows))))
            for number, cluster in later:
                nights(warehouse, number, cluster=cluster)
            self._rows[later] = newest_rows(warehouse)
        return self._rows[later]


@pytest.fixture(scope="module")
def undisturbed(after_night_1: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(after_night_1, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("number", [*range(0, COMMITS - 1, 2), COMMITS - 1])
def test_a_run_that_is_stopped_between_two_commits_while_another_runs_leaves_no_row(
    warehouse: Path, number: int, undisturbed: Undisturbed
) -> None:
    start = begin_run(str(warehouse), "prod")
    files = written(start, rows_of_night(2))
    with (
        stopped_before_commit(number, lambda: nights(warehouse, 3)),
        pytest.raises(WarehouseError, match="Another run of cluster 'prod' wrote to"),
    ):
        commit_run(start, run_fields(), files)
    assert newest_rows(warehouse) == rows_of_readers(warehouse) == undisturbed.after((3, "prod"))
    assert open_warehouse(str(warehouse)).runs().num_rows == 2
    commits = commits_of(warehouse)
    begin_run(str(warehouse), "prod")
    assert commits_of(warehouse) == commits, "nothing was left to repair"


@pytest.mark.parametrize("number", [0, 1, 7, COMMITS - 1])
def test_a_run_of_another_cluster_passes(warehouse: Path, number: int, undisturbed: Undisturbed) -> None:
    start = begin_run(str(warehouse), "prod")
    files = written(start, rows_of_night(2))
    with stopped_before_commit(number, lambda: nights(warehouse, 3, cluster="other")):
        commit_run(start, run_fields(), files)
    assert newest_rows(warehouse) == rows_of_readers(warehouse) == undisturbed.after((3, "other"), (2, "prod"))


@pytest.mark.parametrize("number", [0, 5, COMMITS - 1])
def test_a_run_that_began_before_the_other_finished_fails_at_its_first_commit_and_leaves_no_file(
    warehouse: Path, number: int, undisturbed: Undisturbed
) -> None:
    # The other one is stopped before one of its commits, and goes on when this one has failed.
    one, other = begin_run(str(warehouse), "prod"), begin_run(str(warehouse), "prod")
    files_of_one, files_of_other = written(one, rows_of_night(2)), written(other, rows_of_night(3))
    refused = []

    def commit_other() -> None:
        commits = commits_of(warehouse)
        try:
            commit_run(other, run_fields(), files_of_other)
        except WarehouseError as e:
            refused.append(str(e))
            assert commits_of(warehouse) == commits

    with stopped_before_commit(number, commit_other):
        if number == 0:
            with pytest.raises(WarehouseError):
                commit_run(one, run_fields(), files_of_one)
        else:
            commit_run(one, run_fields(), files_of_one)
    winner, loser = (other, one) if number == 0 else (one, other)
    assert len(refused) == (0 if number == 0 else 1)
    assert newest_rows(warehouse) == undisturbed.after((3 if number == 0 else 2, "prod"))
    names = [file.name for file in warehouse.rglob("*.parquet")]
    assert any(name.startswith(winner.run_id) for name in names)
    assert not any(name.startswith(loser.run_id) for name in names)


@pytest.mark.parametrize("number", [None, 1, 7, COMMITS - 1])
def test_what_another_run_did_since_the_tables_were_opened_is_noticed(
    warehouse: Path, number: int | None, undisturbed: Undisturbed
) -> None:
    # The other one finishes, or is stopped before a commit; no table but runs is opened a second time.
    opened = open_to_write(str(warehouse))
    other = begin_run(str(warehouse), "prod")
    with suppress(Stopped), stopped_before_commit(COMMITS if number is None else number, stop):
        commit_run(other, run_fields(), written(other, rows_of_night(2)))
    with patch.object(open_table_module, "DeltaTable", wraps=DeltaTable) as opening:
        start = begin_run(opened, "prod")
    assert {call.args[0] for call in opening.call_args_list if call.kwargs["version"] is None} == {f"{warehouse}/runs"}
    later = [(2, "prod")] if number is None else []
    assert len(start.finished) == 1 + len(later)
    assert sorted(start.previous("offset_commits")["record_offset"].to_pylist()) == [1, *(night_number for night_number, _ in later)]
    assert newest_rows(warehouse) == undisturbed.after(*later)
    commit_run(start, run_fields(), written(start, rows_of_night(3)))
    assert newest_rows(warehouse) == rows_of_readers(warehouse) == undisturbed.after(*later, (3, "prod"))


def test_a_run_asks_the_log_of_each_table_for_its_files_once(warehouse: Path) -> None:
    """To delta-rs the question is a walk through the log. Only ``runs`` is asked again: are its files few enough?"""
    start = begin_run(str(warehouse), "prod")
    with patch.object(DeltaTable, "get_add_actions", autospec=True, side_effect=DeltaTable.get_add_actions) as asking:
        begun = begin_run(start.warehouse, "prod")
        commit_run(begun, run_fields(), written(begun, rows_of_night(2)))
    asked = Counter(call.args[0].table_uri.rstrip("/").rpartition("/")[2] for call in asking.call_args_list)
    assert asked == {**dict.fromkeys(TABLES, 1), "runs": 2}


@pytest.mark.parametrize("table", ["groups", "offset_commits"])
def test_a_table_that_is_gone_since_the_tables_were_opened_is_noticed(warehouse: Path, table: str) -> None:
    opened = open_to_write(str(warehouse))
    shutil.rmtree(warehouse / table)
    if table == "groups":
        start = begin_run(opened, "prod")
        commit_run(start, run_fields(), written(start, rows_of_night(2)))
        assert open_warehouse(str(warehouse)).read(table)["group_id"].to_pylist() == ["g2"]
    else:
        with pytest.raises(WarehouseError, match="has no table offset_commits: it was removed"):
            begin_run(opened, "prod")


def test_an_unfinished_run_without_rows_cannot_go_on_either(tmp_path: Path) -> None:
    night(tmp_path, "prod", {})
    start = begin_run(str(tmp_path), "prod")
    with stopped_before_commit(3, lambda: begin_run(str(tmp_path), "prod") and None), pytest.raises(WarehouseError, match="Another run"):
        commit_run(start, run_fields(), {})


@pytest.mark.parametrize("clusters", [["prod"] * 3, ["prod", "prod", "other"]])
def test_runs_that_begin_and_commit_at_the_same_moment_never_double_a_row(tmp_path: Path, clusters: list[str]) -> None:
    for cluster in sorted(set(clusters)):
        nights(tmp_path, 1, cluster=cluster)
    together = threading.Barrier(len(clusters))
    outcomes = []

    def run(cluster: str) -> None:
        start = begin_run(str(tmp_path), cluster)
        files = written(start, rows_of_night(2))
        together.wait(timeout=30)
        try:
            commit_run(start, run_fields(), files)
            outcomes.append(cluster)
        except WarehouseError as e:
            assert "Another run of cluster" in str(e)

    with ThreadPoolExecutor(len(clusters)) as pool:
        list(pool.map(run, clusters))
    assert sorted(outcomes) == sorted(set(clusters))
    for cluster in set(clusters):
        history = open_warehouse(str(tmp_path)).read("offset_commits", cluster=cluster)
        assert sorted(history["record_offset"].to_pylist()) == [1, 2]
    assert newest_rows(tmp_path) == rows_of_readers(tmp_path)


def test_every_commit_of_a_run_has_the_same_transaction(tmp_path: Path) -> None:
    for number in (1, 2):
        night(tmp_path, "prod", rows_of_night(number))
        assert {DeltaTable(str(tmp_path / name)).transaction_version("groupcoord:prod") for name in TABLES} == {number}


def test_history_tables_say_how_far_they_go(tmp_path: Path) -> None:
    start = begin_run(str(tmp_path), "a/b")
    assert start.history_end(3, 0) is None
    commit_run(start, run_fields(), {}, {(3, 0): 70, (4, 1): 9})
    start = begin_run(str(tmp_path), "a/b")
    assert [start.history_end(*place) for place in ((3, 0), (4, 1), (3, 1))] == [70, 9, None]
    for name in ("offset_commits", "group_records", "transactions", "rebalances", "surviving_records"):
        assert DeltaTable(str(tmp_path / name)).transaction_version("a%2Fb/3/0") == 70
        newest = max((tmp_path / name / "_delta_log").glob("*.json")).read_text()
        assert '"appId":"groupcoord:a/b"' in newest.splitlines()[-1], "an entry that was cut off lacks it"


def _as_an_older_release(warehouse: Path, table: str, run_id: str, rows: list[dict[str, Any]]) -> None:
    """Commits files of a run to one table, without a transaction."""
    files = write_part(str(warehouse), TABLES[table], TABLES[table].from_rows(rows), "prod", run_id)
    schema = TABLES[table].delta_schema
    DeltaTable(str(warehouse / table)).create_write_transaction(
        [write_module._added(file) for file in files], "append", schema, partition_by=["cluster"]
    )


def test_files_of_a_run_that_is_not_in_runs_leave_the_tables_at_any_version(warehouse: Path) -> None:
    _as_an_older_release(warehouse, "offset_commits", "99991231T000000Z-00000000", [commit(1)])
    nights(warehouse, 1, cluster="other")
    begin_run(str(warehouse), "prod")
    assert newest_rows(warehouse) == rows_of_readers(warehouse)
    assert open_warehouse(str(warehouse)).read("offset_commits", cluster="prod").num_rows == 1


@pytest.mark.parametrize("error", [OSError(13, "Permission denied"), DeltaError("External error"), CommitFailedError("after all")])
@pytest.mark.parametrize("is_of_runs", [True, False])
def test_a_commit_after_which_the_table_cannot_be_read_is_a_commit(
    warehouse: Path, undisturbed: Undisturbed, is_of_runs: bool, error: Exception
) -> None:
    whole = DeltaTable.create_write_transaction

    def commit_and_fail(table: DeltaTable, *given: Any, **named: Any) -> None:
        whole(table, *given, **named)
        if is_of_runs == table.table_uri.rstrip("/").endswith("/runs"):
            raise error

    with patch.object(DeltaTable, "create_write_transaction", commit_and_fail):
        nights(warehouse, 2)
    assert open_warehouse(str(warehouse)).runs().num_rows == 2
    assert newest_rows(warehouse) == rows_of_readers(warehouse) == undisturbed.after((2, "prod"))


@pytest.mark.parametrize("runs_before", [0, 1])
def test_what_a_row_of_runs_names_is_on_the_disk_before_the_row(tmp_path: Path, after_night_1: Path, runs_before: int) -> None:
    warehouse = tmp_path / "w"
    if runs_before:
        shutil.copytree(after_night_1, warehouse)
    before, on_disk, sync = set(warehouse.rglob("*")), set(), os.fsync

    def record(descriptor: int) -> None:
        on_disk.add(Path(f"/proc/self/fd/{descriptor}").resolve())
        sync(descriptor)

    left: set[Path] = set()
    with patch.object(os, "fsync", record):
        start = begin_run(str(warehouse), "prod")
        files = written(start, rows_of_night(2))
        with stopped_before_commit(COMMITS - 1, lambda: left.update({*warehouse.rglob("*"), warehouse} - before - on_disk)):
            commit_run(start, run_fields(), files)
    assert left == set()
    assert {*warehouse.rglob("*")} - before - on_disk == set(), "the row of runs itself"


@contextmanager
def clock_at(ms: int) -> Iterator[None]:
    with patch.object(write_module.time, "time_ns", lambda: ms * 1_000_000):
        yield


@pytest.mark.parametrize("mend", [lambda place: begin_run(place, "prod"), lambda place: maintain(place, "prod")], ids=["run", "maintain"])
@pytest.mark.parametrize(("number", "hours"), [(1, -24), (5, -24 * 365 * 50), (5, 24), (COMMITS - 1, -1)])
def test_what_a_dead_run_added_goes_whatever_its_clock_said(
    warehouse: Path, number: int, hours: int, mend: Callable[[str], object], undisturbed: Undisturbed
) -> None:
    with clock_at(time.time_ns() // 1_000_000 + hours * 3_600_000):
        start = begin_run(str(warehouse), "prod")
        with stopped_before_commit(number, stop), suppress(Stopped):
            commit_run(start, run_fields(), written(start, rows_of_night(2)))
    assert rows_of_readers(warehouse) == undisturbed.after()
    with clock_at(time.time_ns() // 1_000_000 + 48 * 3_600_000):
        mend(str(warehouse))
    assert newest_rows(warehouse) == rows_of_readers(warehouse) == undisturbed.after()
    nights(warehouse, 3)
    assert newest_rows(warehouse) == rows_of_readers(warehouse) == undisturbed.after((3, "prod"))


def test_a_clock_that_went_back_is_said_and_the_newest_run_stays_the_newest(warehouse: Path) -> None:
    assert begin_run(str(warehouse), "prod").clock_went_back is None
    with clock_at(1_767_225_600_000):
        start = begin_run(str(warehouse), "prod")
        assert start.clock_went_back is not None
        assert "the run began at 2026-01-01T00:00:00Z, before the newest run had finished" in start.clock_went_back
        run = commit_run(start, run_fields(), written(start, rows_of_night(2)))
    assert open_warehouse(str(warehouse)).run("prod").run_id == run.run_id
    assert open_warehouse(str(warehouse)).read("groups")["group_id"].to_pylist() == ["g2"]


def test_a_worker_never_reads_a_warehouse_that_another_one_has_replaced(tmp_path: Path) -> None:
    place, columns = tmp_path / "w", ["record_offset"]
    for number in (1, 2):
        nights(place, number)
        run = open_warehouse(str(place)).run("prod")
        rows = rows_at(str(place), TABLES["offset_commits"], run.tables, "prod", columns)
        assert rows["record_offset"].to_pylist() == [number]
        shutil.rmtree(place)


def test_history_of_nights_whose_rows_an_older_release_dropped_from_runs_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenTable, "_transaction_of_rows", lambda *_: [])
    for number in (1, 2, 3):
        with patch.object(write_module, "_new_run_id", lambda _, number=number: f"2026010{number}T000000Z-00000000"):
            night(tmp_path, "prod", rows_of_night(number))
    first = open_warehouse(str(tmp_path)).finished_runs("prod")[0].run_id
    runs = open_table(locate(str(tmp_path)), TABLES["runs"])
    path, size = next((path, file.size) for path, file in runs.files("prod").items() if first in path)
    start = begin_run(str(tmp_path), "prod")
    runs.commit("prod", [write_module._removed(start, path, size)], {}, run=None)
    night(tmp_path, "prod", rows_of_night(4))
    assert sorted(open_warehouse(str(tmp_path)).read("offset_commits")["record_offset"].to_pylist()) == [1, 2, 3, 4]


def test_runs_that_was_put_back_to_an_earlier_night_is_refused(warehouse: Path) -> None:
    log = warehouse / "runs" / "_delta_log"
    before = {file.name for file in log.iterdir()}
    nights(warehouse, 2, 3)
    for file in log.iterdir():
        if file.name not in before:
            file.unlink()
    with pytest.raises(WarehouseError, match=r"Table runs of .* is older than the other tables"):
        begin_run(str(warehouse), "prod")


def test_a_state_table_that_was_deleted_is_written_anew_and_never_shows_another_night(tmp_path: Path) -> None:
    runs = [night(tmp_path, "prod", rows_of_night(number)) for number in (1, 2)]
    shutil.rmtree(tmp_path / "groups")
    with pytest.raises(WarehouseError, match=r"has no table groups: it was removed.* the next nightly then writes the table again"):
        open_warehouse(str(tmp_path)).read("groups")
    start = begin_run(str(tmp_path), "prod")
    assert start.previous("groups").num_rows == 0
    assert start.previous("committed_offsets").num_rows == 1
    start = begin_run(str(tmp_path), "prod")  # a second run, after the first one died
    commit_run(start, run_fields(), written(start, rows_of_night(3)))
    opened = open_warehouse(str(tmp_path))
    assert opened.read("groups")["group_id"].to_pylist() == ["g3"]
    for run in runs:
        assert opened.read("committed_offsets", run=run).num_rows == 1
        with pytest.raises(WarehouseError, match=r"Table groups of .* was deleted and created again after this run"):
            opened.read("groups", run=run)
    nights(tmp_path, 4)
    assert newest_rows(tmp_path)["groups"]


@pytest.mark.parametrize("table", [*HISTORY, TABLES["runs"]], ids=lambda table: table.name)
def test_a_history_table_that_was_deleted_is_not_made_anew(warehouse: Path, table: Any) -> None:
    shutil.rmtree(warehouse / table.name)
    with pytest.raises(WarehouseError, match=r"has no table .*Restore it from a copy, or run the nightly into another directory\."):
        begin_run(str(warehouse), "prod")
    assert not (warehouse / table.name).exists()
