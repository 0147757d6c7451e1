"""Upkeep: what it joins, drops and deletes, and that nobody sees other rows afterwards."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.pipeline.plan.point_in_time import _ends_of_complete_runs
from groupcoord_spark.warehouse import TABLES, begin_run, commit_run, open_warehouse, write_part
from groupcoord_spark.warehouse import maintenance as upkeep
from groupcoord_spark.warehouse.declaration import WriteMode
from groupcoord_spark.warehouse.maintenance import maintain
from groupcoord_spark.warehouse.parts import PartWriter, run_of
from tests.tools.faults.running import made_older
from tests.warehouse.nights import AS_OF_MS, DAY_MS, FEW_TABLES, commit, group, make_tables, marker, night, offset, run_fields, written
from tests.warehouse.test_damage import flip_in_the_name_of_a_column
from tests.warehouse.test_two_runs import stopped_before_commit

pytestmark = pytest.mark.usefixtures("few_tables")

NEXT_MONTH_MS = time.time_ns() // 1_000_000 + 40 * DAY_MS
LOG = {"last_stable_offset": 0, "records": 0, "decoded": 0, "quarantined": 0, "control_records": 0, "live_keys": 0, "bytes": 0}


@cache
def first_nights(count):
    """Return a warehouse after this number of runs of ``prod``, made once for all tests of the process, and the run of each run."""
    directory = TemporaryDirectory(prefix="groupcoord-tests-")
    make_tables(Path(directory.name) / "w")
    runs = []
    if count > 1:
        shorter, runs = first_nights(count - 1)
        copytree(shorter.name, directory.name, dirs_exist_ok=True)
    return directory, [*runs, *run_nights(Path(directory.name) / "w", 1, "prod", count - 1)]


def nights(place, count, cluster="prod", first=0):
    """Runs that have a row in a table of each kind; the run of each. The first runs of a warehouse are copied."""
    if cluster != "prod" or any(Path(place).glob("*")):
        return run_nights(place, count, cluster, first)
    directory, runs = first_nights(count)
    copytree(Path(directory.name) / "w", place, dirs_exist_ok=True)
    return runs


def run_nights(place, count, cluster, first):
    runs = []
    for number in range(first, first + count):
        start = begin_run(str(place), cluster)
        of_run = {"run_id": start.run_id}
        rows = {
            "groups": [group("g"), group(f"g{number}")],
            "committed_offsets": [offset("g", "t", 0, number)],
            "offset_commits": [commit(number, group_id=name, offsets_partition=n) for n, name in enumerate(("b", "a", f"g{number}"))],
            "transactions": [marker(number, 7, "committed")],
            "surviving_records": [{**of_run, "offsets_partition": 0, "incarnation": 0, "first_offset": number, "end_offset": number + 1}],
            "warnings": [{**of_run, "code": "R-2.4", "detail": "doubt"}],
            "quarantined_records": [{**of_run, "reason": "null_key", "detail": "lost"}],
            "offsets_partitions": [{"offsets_partition": 0, "incarnation": 0, "end_offset": number + 1, **LOG}],
        }
        runs.append(commit_run(start, run_fields(as_of_ms=AS_OF_MS + number * DAY_MS), written(start, rows)))
    return runs


def sorted_rows(place, cluster="prod", at_ms=None):
    """Return every table's rows, as readers see them."""
    warehouse = open_warehouse(str(place))
    read = {name: warehouse.read(name, cluster=cluster, at_ms=at_ms).to_pylist() for name in TABLES if name != "runs"}
    return {name: sorted(rows, key=repr) for name, rows in read.items()}


def files_of(place):
    return {str(path.relative_to(place)) for path in Path(place).rglob("*.parquet") if "_delta_log" not in path.parts}


def contents(place):
    return {str(path): path.read_bytes() for path in Path(place).rglob("*") if path.is_file()}


@pytest.mark.parametrize("cluster", ["prod", "test/ü =%'"])
def test_files_of_a_month_that_is_over_are_one_file_in_order_with_the_same_rows(tmp_path, cluster):
    runs = nights(tmp_path, 3, cluster)
    before = {run.run_id: sorted_rows(tmp_path, cluster, run.as_of_ms) for run in runs}
    done = {table.table: table for table in maintain(str(tmp_path), cluster, now_ms=NEXT_MONTH_MS).tables}
    assert {name: (done[name].files_joined, done[name].files_made) for name in ("offset_commits", "warnings")} == {
        "offset_commits": (2, 1),
        "warnings": (2, 1),
    }
    assert {run.run_id: sorted_rows(tmp_path, cluster, run.as_of_ms) for run in runs} == before
    nights(tmp_path, 1, cluster, first=3)
    assert len(sorted_rows(tmp_path, cluster)["offset_commits"]) == 12
    files = DeltaTable(f"{tmp_path}/offset_commits").file_uris()
    assert {run_of(file.rsplit("/", 1)[1]) for file in files} <= {
        run.run_id for run in open_warehouse(str(tmp_path)).finished_runs(cluster)
    }
    joined = max((pq.read_table(file, columns=["group_id", "record_offset"]) for file in files), key=len)
    assert joined.num_rows == 6
    assert joined.to_pylist() == sorted(joined.to_pylist(), key=lambda row: (row["group_id"], row["record_offset"]))


def test_this_month_and_the_newest_night_are_left_alone(tmp_path):
    nights(tmp_path, 4)
    assert not any(table.files_joined for table in maintain(str(tmp_path), "prod").tables)
    done = maintain(str(tmp_path), "prod", now_ms=NEXT_MONTH_MS)
    assert {table.files_joined for table in done.tables if table.table == "offset_commits"} == {3}


def test_upkeep_that_was_done_changes_nothing_when_it_is_done_again(tmp_path):
    nights(tmp_path, 6)
    for _ in range(2):
        done = maintain(str(tmp_path), "prod", now_ms=NEXT_MONTH_MS, keep_nights=2, keep_history_ms=90 * DAY_MS)
    assert done.nights_dropped == 0
    assert [table for table in done.tables if table.files_joined or table.rows_dropped or table.files_deleted] == []


def test_old_nights_are_dropped_and_only_their_files_deleted(tmp_path):
    runs = nights(tmp_path, 6)
    kept = {run.run_id: sorted_rows(tmp_path, at_ms=run.as_of_ms) for run in runs[-2:]}
    done = maintain(str(tmp_path), "prod", keep_nights=2)
    assert (done.nights_dropped, done.look_backs_dropped) == (4, 0)
    assert {table.table: table.files_deleted for table in done.tables if table.table in ("groups", "offset_commits")} == {
        "groups": 4,
        "offset_commits": 0,
    }
    assert {run.run_id: sorted_rows(tmp_path, at_ms=run.as_of_ms) for run in runs[-2:]} == kept
    warehouse = open_warehouse(str(tmp_path))
    assert [run.is_kept for run in warehouse.finished_runs("prod")] == [False] * 4 + [True] * 2
    with pytest.raises(WarehouseError, match="Maintenance dropped the tables of run"):
        warehouse.read("groups", cluster="prod", at_ms=runs[0].as_of_ms)
    # What a point-in-time run must know of every night that is in the history.
    assert warehouse.read("offsets_partitions", cluster="prod", at_ms=runs[0].as_of_ms)["end_offset"].to_pylist() == [1]


def test_nothing_is_left_that_no_kept_night_needs(tmp_path):
    nights(tmp_path, 6)
    maintain(str(tmp_path), "prod", keep_nights=2, now_ms=NEXT_MONTH_MS)
    kept = open_warehouse(str(tmp_path)).finished_runs("prod")
    needed = set()
    for table in TABLES:
        versions = {run.table_versions[table] for run in kept if table in run.table_versions} | {None}
        for version in versions:
            needed |= {str(Path(uri).relative_to(tmp_path)) for uri in DeltaTable(f"{tmp_path}/{table}", version=version).file_uris()}
    assert files_of(tmp_path) == needed


def test_look_backs_go_with_the_nights_before_which_they_ran(tmp_path):
    nights(tmp_path, 2)
    night(tmp_path, "prod", {"groups": [group("past")]}, as_of_ms=AS_OF_MS - DAY_MS, kind="point_in_time", settings={"until": "2025-12-31"})
    nights(tmp_path, 2, first=2)
    done = maintain(str(tmp_path), "prod", keep_nights=2)
    assert (done.nights_dropped, done.look_backs_dropped) == (2, 1)


def test_files_of_a_run_at_work_stay_and_it_can_commit(tmp_path):
    nights(tmp_path, 4)
    start = begin_run(str(tmp_path), "prod")
    files = written(start, {"groups": [group("late")], "offset_commits": [commit(50)]})
    maintain(str(tmp_path), "prod", keep_nights=1, now_ms=NEXT_MONTH_MS)
    commit_run(start, run_fields(as_of_ms=AS_OF_MS + 9 * DAY_MS), files)
    rows = sorted_rows(tmp_path)
    assert [row["group_id"] for row in rows["groups"]] == ["late"]
    assert len(rows["offset_commits"]) == 13


def test_files_that_another_upkeep_has_not_committed_yet_stay_for_a_day(tmp_path):
    run = nights(tmp_path, 1)[0]
    table = TABLES["offset_commits"]
    (file,) = write_part(str(tmp_path), table, table.from_rows([commit(1)]), "prod", run.run_id)
    maintain(str(tmp_path), "prod")
    assert (tmp_path / "offset_commits" / file.path).exists()
    two_days_ago = time.time() - 2 * 86_400
    os.utime(tmp_path / "offset_commits" / file.path, (two_days_ago, two_days_ago))
    assert sum(table.files_deleted for table in maintain(str(tmp_path), "prod").tables) == 1


def test_only_files_of_ours_in_directories_of_ours_are_deleted(tmp_path):
    # A user's own files, and what links name, stay, whatever their names are.
    place, elsewhere = tmp_path / "w", tmp_path / "elsewhere"
    run = nights(place, 1)[0]
    table, ours = place / "offset_commits", f"{run.run_id}-{'0' * 32}.parquet"
    users = [
        *(table / "notes.txt", table / ours, table / "mine" / "a.parquet", table / "mine" / ours, place / "runs" / "backup.parquet"),
        *(table / "cluster=prod" / f"backup-{'3' * 32}.parquet", place / "runs" / "cluster=prod" / f"run-1-{'3' * 32}.parquet"),
        *(table / "cluster=prod" / "mine.parquet", table / "cluster=prod" / "deeper" / ours, place / "own" / ours),
        *(elsewhere / "cluster=prod" / ours, elsewhere / ours, elsewhere / "other" / ours),
    ]
    for path in users:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    (table / "cluster=linked").symlink_to(elsewhere)
    (table / "linked").symlink_to(elsewhere)
    (table / "cluster=prod" / ours.replace("0", "1", 1)).symlink_to(elsewhere / ours)
    (table / "cluster=prod" / f"{run.run_id}-{'2' * 32}.parquet").write_text("of a dead run")
    shutil.move(place / "warnings", tmp_path / "warnings")
    (place / "warnings").symlink_to(tmp_path / "warnings")
    linked = tmp_path / "warnings" / "cluster=prod" / ours
    linked.write_text("a table that lies elsewhere")
    made_older(tmp_path)
    done = {done.table: done.files_deleted for done in maintain(str(place), "prod").tables if done.files_deleted}
    assert done == {"offset_commits": 1}
    assert [path for path in [*users, linked] if not path.exists()] == []
    assert not (table / "cluster=prod" / f"{run.run_id}-{'2' * 32}.parquet").exists()


def test_rows_of_a_dead_run_are_not_joined(tmp_path, monkeypatch):
    nights(tmp_path, 3)
    start = begin_run(str(tmp_path), "prod")
    files = written(start, {"offset_commits": [commit(50)]})

    def dies(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("groupcoord_spark.warehouse.write.write_part", dies)
        with pytest.raises(KeyboardInterrupt):
            commit_run(start, run_fields(), files)
    assert any(start.run_id in uri for uri in DeltaTable(f"{tmp_path}/offset_commits").file_uris())
    nights(tmp_path, 1, "other")  # a run of another cluster repairs nothing
    maintain(str(tmp_path), "prod", now_ms=NEXT_MONTH_MS)
    nights(tmp_path, 1, first=3)
    offsets = open_warehouse(str(tmp_path)).read("offset_commits", cluster="prod")["record_offset"].to_pylist()
    assert sorted(offsets) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_other_clusters_keep_their_files(tmp_path):
    nights(tmp_path, 4)
    nights(tmp_path, 2, "other")
    before = sorted_rows(tmp_path, "other")
    maintain(str(tmp_path), "prod", now_ms=NEXT_MONTH_MS, keep_nights=1, keep_history_ms=DAY_MS)
    assert [run.is_kept for run in open_warehouse(str(tmp_path)).finished_runs("other")] == [True] * 2
    assert sorted_rows(tmp_path, "other") == before


def test_dry_run_says_the_same_and_changes_nothing(tmp_path):
    nights(tmp_path, 5)
    before = contents(tmp_path)
    options = {"now_ms": NEXT_MONTH_MS, "keep_nights": 2, "keep_history_ms": 30 * DAY_MS}
    said = maintain(str(tmp_path), "prod", dry_run=True, **options)
    assert contents(tmp_path) == before
    done = maintain(str(tmp_path), "prod", **options)
    assert said.nights_dropped == done.nights_dropped == 3
    assert [table.rows_dropped for table in said.tables] == [table.rows_dropped for table in done.tables]
    assert sum(table.rows_dropped for table in done.tables) > 0


class TestHistoryThatIsTooOld:
    """Records of 100, 50 and 10 days ago; the border is 30 days ago."""

    def house(self, place, survived):
        """survived: the record offsets that were still in the log at the first run after the border, which is the only run."""
        now_ms = time.time_ns() // 1_000_000
        start = begin_run(str(place), "prod")
        rows = [commit(n, record_timestamp_ms=now_ms - days * DAY_MS) for n, days in enumerate((100, 50, 10))]
        ranges = [
            {"run_id": start.run_id, "offsets_partition": 0, "incarnation": 0, "first_offset": n, "end_offset": n + 1} for n in survived
        ]
        files = written(start, {"offset_commits": rows, "surviving_records": ranges, "groups": [group("g")]})
        commit_run(start, run_fields(), files)
        maintain(str(place), "prod", keep_history_ms=30 * DAY_MS)
        assert open_warehouse(str(place)).read("offset_commits", cluster="prod").num_rows == 3  # the run itself is kept as it was
        nights(place, 1, first=10)
        offsets = open_warehouse(str(place)).read("offset_commits", cluster="prod")["record_offset"].to_pylist()
        return sorted(record_offset for record_offset in offsets if record_offset < 10)

    def test_is_dropped(self, tmp_path):
        assert self.house(tmp_path, []) == [2]

    def test_stays_where_the_record_was_still_in_the_log_then(self, tmp_path):
        assert self.house(tmp_path, [0, 2]) == [0, 2]

    def test_is_the_age_of_the_run_where_records_have_no_time(self, tmp_path):
        rows = {"warnings": [], "offset_commits": [commit(1, record_timestamp_ms=-1)]}
        nights(tmp_path, 1)
        night(tmp_path, "prod", rows)
        counts = {}
        for days in (50, 30):
            done = maintain(str(tmp_path), "prod", keep_history_ms=days * DAY_MS, now_ms=NEXT_MONTH_MS)
            counts[days] = {table.table: table.rows_dropped for table in done.tables}
        assert counts[50]["warnings"] == 0 and counts[30]["warnings"] == 1
        assert counts[50]["offset_commits"] == 2  # those with the times of AS_OF_MS that were not in the log any more
        assert counts[30]["offset_commits"] == 1  # the one without a time; the other was in the log


def test_what_a_nightly_run_joins_is_bounded(tmp_path):
    nights(tmp_path, 4)
    size = sum(path.stat().st_size for path in (tmp_path / "warnings").rglob("*.parquet"))
    few = maintain(str(tmp_path), "prod", now_ms=NEXT_MONTH_MS, most_bytes=size // 2)
    assert not any(table.files_joined for table in few.tables if table.table == "warnings")
    done = maintain(str(tmp_path), "prod", now_ms=NEXT_MONTH_MS, most_bytes=size)
    assert {table.files_joined for table in done.tables if table.table == "warnings"} == {3}


def test_files_are_joined_up_to_the_size_of_one_file(tmp_path, monkeypatch):
    nights(tmp_path, 7)
    sizes = [path.stat().st_size for path in (tmp_path / "warnings").rglob("*.parquet") if "_delta_log" not in path.parts]
    monkeypatch.setattr(upkeep, "FILE_BYTES", 2 * max(sizes) + 1)
    (done,) = (table for table in maintain(str(tmp_path), "prod", now_ms=NEXT_MONTH_MS).tables if table.table == "warnings")
    assert (done.files_joined, done.files_made) == (6, 3)


def test_one_large_file_is_written_again_only_where_it_is_not_in_order(tmp_path):
    for number, names in enumerate((["a", "b", "a", "b"], ["a", "a", "b", "c"])):
        start = begin_run(str(tmp_path), f"c{number}")
        rows = TABLES["offset_commits"].from_rows([commit(n, group_id=name) for n, name in enumerate(names)])
        with PartWriter(str(tmp_path), replace(TABLES["offset_commits"], group_rows=2), start.cluster, start.run_id) as writer:
            for at in range(0, 4, 2):
                writer.write(rows.slice(at, 2))
        commit_run(start, run_fields(), {"offset_commits": writer.files, "groups": []})
        nights(tmp_path, 1, start.cluster, first=10)
        done = {table.table: table.files_joined for table in maintain(str(tmp_path), start.cluster, now_ms=NEXT_MONTH_MS).tables}
        assert done["offset_commits"] == (1, 0)[number]


def test_every_table_that_grows_has_an_order():
    assert {*upkeep.SORTED_BY, "runs"} == {table.name for table in TABLES.values() if table.write is WriteMode.APPENDED}


def test_a_cluster_without_a_run_is_one_sentence(tmp_path):
    nights(tmp_path, 1)
    with pytest.raises(WarehouseError, match="holds no run of cluster 'none'"):
        maintain(str(tmp_path), "none")


def ends_of_complete_runs(warehouse):
    """(end offset of the log, run id) of the runs that a point-in-time run can go back to, of offsets partition 0."""
    return [(run.end_offset, run.run_id) for run in _ends_of_complete_runs(begin_run(str(warehouse), "prod"))[0, 0]]


def test_look_backs_still_know_where_the_logs_of_dropped_nights_ended(tmp_path):
    ends = []
    for number in range(4):
        log = [{**LOG, "offsets_partition": 0, "incarnation": 0, "first_offset": 0, "end_offset": 10 * (number + 1)}]
        run = night(tmp_path, "prod", {"offsets_partitions": log, "groups": [group("g")]}, settings={"history": "true"})
        ends.append((10 * (number + 1), run.run_id))
    maintain(str(tmp_path), "prod", keep_nights=1)
    assert ends_of_complete_runs(tmp_path) == ends
    maintain(str(tmp_path), "prod", keep_nights=1, keep_history_ms=DAY_MS, now_ms=NEXT_MONTH_MS)
    assert ends_of_complete_runs(tmp_path) == ends[-1:]


@pytest.mark.parametrize("number", [1, 6, len(FEW_TABLES) - 1])
def test_a_night_that_commits_at_this_moment_can_finish(tmp_path, number):
    place = tmp_path / "w"
    nights(place, 2)
    start = begin_run(str(place), "prod")
    files = written(start, {"groups": [group("new")], "offset_commits": [commit(99)]})
    with stopped_before_commit(number, lambda: maintain(str(place), "prod") and None):
        run = commit_run(start, run_fields(), files)
    assert open_warehouse(str(place)).run("prod").run_id == run.run_id
    assert 99 in open_warehouse(str(place)).read("offset_commits")["record_offset"].to_pylist()


def test_a_run_that_committed_last_ten_minutes_ago_is_dead(tmp_path, monkeypatch):
    place = tmp_path / "w"
    nights(place, 2)
    start = begin_run(str(place), "prod")
    files = written(start, {"groups": [group("new")], "offset_commits": [commit(99)]})
    monkeypatch.setattr(upkeep, "_COMMITTING_MS", 0)
    with stopped_before_commit(6, lambda: maintain(str(place), "prod") and None), pytest.raises(WarehouseError, match="Another run"):
        commit_run(start, run_fields(), files)
    assert 99 not in open_warehouse(str(place)).read("offset_commits")["record_offset"].to_pylist()


def test_a_damaged_footer_is_one_sentence_for_upkeep_too(tmp_path):
    older, _ = nights(tmp_path, 2)
    [file] = (tmp_path / "offset_commits").rglob(f"{older.run_id}-*.parquet")
    flip_in_the_name_of_a_column(file, 1)
    with pytest.raises(WarehouseError, match=r"Table offset_commits of .* cannot be read: .* is damaged.*Restore it from a copy"):
        maintain(str(tmp_path), "prod", now_ms=NEXT_MONTH_MS)
