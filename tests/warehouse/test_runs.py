"""Runs: what readers see before, between and after the commits of one, and what the next one finds."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from deltalake import DeltaTable

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.warehouse import TABLES, begin_run, commit_run, open_warehouse, write_part
from groupcoord_spark.warehouse import write as write_module
from groupcoord_spark.warehouse.maintenance import maintain
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, make_tables, night, night_that_makes_tables, offset, run_fields, written

pytestmark = pytest.mark.usefixtures("few_tables")


class DiedError(Exception):
    """Stands for the process that ended."""


def die_after(monkeypatch, tables):
    """Return the commit of a run ends right after this many tables; after all of them, before its row in ``runs``."""
    whole = write_module._commit_table
    done = []

    def some(start, table, *given):
        if len(done) == tables:
            raise DiedError
        done.append(table.name)
        return whole(start, table, *given)

    def no_runs(*given):
        raise DiedError

    monkeypatch.setattr(write_module, "_commit_table", some)
    monkeypatch.setattr(write_module, "write_part", no_runs)


def offsets_seen(warehouse, cluster="prod"):
    return sorted(open_warehouse(str(warehouse)).read("committed_offsets", cluster=cluster)["committed_offset"].to_pylist())


def history_seen(warehouse, cluster="prod"):
    return sorted(open_warehouse(str(warehouse)).read("offset_commits", cluster=cluster)["record_offset"].to_pylist())


def newest_rows(warehouse, table, cluster):
    """Return what a reader finds that just opens the newest version."""
    newest = DeltaTable(f"{warehouse}/{table}")
    rows = newest.to_pyarrow_dataset(filesystem=_plain(warehouse, table)).to_table().to_pylist()
    return [row for row in rows if row["cluster"] == cluster]


def _plain(warehouse, table):
    from pyarrow import fs

    return fs.SubTreeFileSystem(f"{warehouse}/{table}", fs.LocalFileSystem())


def test_first_run_makes_every_table_with_comment_properties_and_checks(tmp_path, every_table):
    begin_run(str(tmp_path / "w"), "prod")
    for table in TABLES.values():
        made = DeltaTable(str(tmp_path / "w" / table.name))
        assert made.metadata().description == table.comment
        assert made.metadata().partition_columns == ["cluster"]
        settings = made.metadata().configuration
        assert settings["delta.deletedFileRetentionDuration"] == "interval 30 days"
        assert settings["delta.enableDeletionVectors"] == "false"
        held = {name.removeprefix("delta.constraints.") for name in settings if name.startswith("delta.constraints.")}
        assert held == set(table.checks)
        assert json.loads(made.schema().to_json())["fields"] == json.loads(table.delta_schema.to_json())["fields"]
        assert made.protocol().min_reader_version == 1


def test_state_is_replaced_and_history_grows(tmp_path):
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 5), offset("h", "t", 0, 9)], "offset_commits": [commit(1)]})
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 6)], "offset_commits": [commit(2)]})
    assert offsets_seen(tmp_path) == [6]
    assert history_seen(tmp_path) == [1, 2]


def test_state_without_rows_is_emptied(tmp_path):
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 5)]})
    night(tmp_path, "prod", {})
    assert offsets_seen(tmp_path) == []


def test_the_same_run_twice_gives_the_same_rows(tmp_path):
    rows = {"committed_offsets": [offset("g", "t", n, n) for n in range(3)], "groups": [group("g")]}
    night(tmp_path, "prod", rows)
    first = {name: open_warehouse(str(tmp_path)).read(name, cluster="prod") for name in rows}
    night(tmp_path, "prod", rows)
    second = {name: open_warehouse(str(tmp_path)).read(name, cluster="prod") for name in rows}
    assert first == second


def test_two_clusters_share_a_warehouse(tmp_path):
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 5)]})
    night(tmp_path, "test/ü =%'", {"committed_offsets": [offset("g", "t", 0, 50)]})
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 6)]})
    assert open_warehouse(str(tmp_path)).clusters() == ["prod", "test/ü =%'"]
    assert (offsets_seen(tmp_path), offsets_seen(tmp_path, "test/ü =%'")) == ([6], [50])
    both = open_warehouse(str(tmp_path)).read("committed_offsets", columns=["cluster", "committed_offset"]).to_pylist()
    assert both == [{"cluster": "prod", "committed_offset": 6}, {"cluster": "test/ü =%'", "committed_offset": 50}]


def test_runs_of_different_clusters_commit_at_the_same_time(tmp_path):
    make_tables(tmp_path)
    together = threading.Barrier(4)

    def nights(cluster):
        together.wait()
        for number in range(2):
            night(tmp_path, cluster, {"committed_offsets": [offset("g", "t", 0, number)], "offset_commits": [commit(number)]})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(nights, ["c0", "c1", "c2", "c3"]))
    for cluster in ("c0", "c1", "c2", "c3"):
        assert offsets_seen(tmp_path, cluster) == [1]
        assert history_seen(tmp_path, cluster) == [0, 1]


def test_first_runs_of_two_clusters_may_make_the_tables_together(tmp_path, every_table):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda cluster: night_that_makes_tables(tmp_path, cluster, {"groups": [group("g")]}), ["a", "b"]))
    assert open_warehouse(str(tmp_path)).clusters() == ["a", "b"]


def test_runs_names_the_version_of_every_table(tmp_path, every_table):
    run = night(tmp_path, "prod", {"groups": [group("g")]}, records_read=3, records_decoded=3)
    (row,) = open_warehouse(str(tmp_path)).runs().to_pylist()
    assert set(dict(row["table_versions"])) == set(TABLES) - {"runs"}
    assert (row["run_id"], row["records_read"], row["settings"]) == (run.run_id, 3, [("offsets.retention.minutes", "10080")])
    assert row["started_at"] <= row["finished_at"]
    for table, version in run.table_versions.items():
        assert DeltaTable(str(tmp_path / table)).version() == version


def test_run_id_is_the_user_metadata_of_its_commits(tmp_path):
    run = night(tmp_path, "prod", {"groups": [group("g")]})
    for table in ("groups", "runs"):
        assert DeltaTable(str(tmp_path / table)).history(1)[0]["userMetadata"] == run.run_id


def test_a_table_without_new_rows_gets_a_commit_too_which_keeps_its_files(tmp_path):
    first = night(tmp_path, "prod", {"offset_commits": [commit(1)]})
    second = night(tmp_path, "prod", {})
    assert {name: version + 1 for name, version in first.table_versions.items()} == second.table_versions
    assert history_seen(tmp_path) == [1]


def test_previous_rows_are_those_of_the_last_run(tmp_path):
    row = {"offsets_partition": 3, "incarnation": 0, "end_offset": 9, "last_stable_offset": 9}
    counts = dict.fromkeys(("records", "decoded", "quarantined", "control_records", "live_keys", "bytes"), 0)
    assert begin_run(str(tmp_path), "prod").previous("offsets_partitions").num_rows == 0
    night(tmp_path, "prod", {"offsets_partitions": [{**row, **counts}]})
    night(tmp_path, "other", {"offsets_partitions": [{**row, **counts, "end_offset": 70}]})
    previous = begin_run(str(tmp_path), "prod").previous("offsets_partitions", ["offsets_partition", "end_offset"])
    assert previous.to_pylist() == [{"offsets_partition": 3, "end_offset": 9}]


@pytest.mark.parametrize("tables", range(0, 12, 3))
def test_a_run_that_dies_between_commits_is_not_seen_and_the_next_one_recovers(tmp_path, monkeypatch, tables):
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 5)], "offset_commits": [commit(1)], "groups": [group("g")]})
    with monkeypatch.context() as patched, pytest.raises(DiedError):
        die_after(patched, tables)
        night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 99)], "offset_commits": [commit(2)]})
    assert (offsets_seen(tmp_path), history_seen(tmp_path)) == ([5], [1])

    start = begin_run(str(tmp_path), "prod")
    expected = (("committed_offsets", "committed_offset", 5), ("offset_commits", "record_offset", 1), ("groups", "group_id", "g"))
    for table, column, value in expected:
        assert [row[column] for row in newest_rows(tmp_path, table, "prod")] == [value]

    commit_run(start, run_fields(), written(start, {"committed_offsets": [offset("g", "t", 0, 6)], "offset_commits": [commit(2)]}))
    assert (offsets_seen(tmp_path), history_seen(tmp_path)) == ([6], [1, 2])


def test_recovery_leaves_what_other_clusters_committed_since(tmp_path, monkeypatch):
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 5)], "offset_commits": [commit(1)]})
    with monkeypatch.context() as patched, pytest.raises(DiedError):
        die_after(patched, 6)
        night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 99)], "offset_commits": [commit(2)]})
    night(tmp_path, "other", {"committed_offsets": [offset("o", "t", 0, 70)], "offset_commits": [commit(8)]})
    begin_run(str(tmp_path), "other")
    newest = newest_rows(tmp_path, "committed_offsets", "prod")
    assert [row["committed_offset"] for row in newest] == [99], "not the other cluster's to mend"
    begin_run(str(tmp_path), "prod")
    for cluster, offsets, records in (("prod", [5], [1]), ("other", [70], [8])):
        assert [row["committed_offset"] for row in newest_rows(tmp_path, "committed_offsets", cluster)] == offsets
        assert [row["record_offset"] for row in newest_rows(tmp_path, "offset_commits", cluster)] == records
        assert (offsets_seen(tmp_path, cluster), history_seen(tmp_path, cluster)) == (offsets, records)


def test_a_first_run_that_dies_leaves_nothing(tmp_path, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(DiedError):
        die_after(patched, 8)
        night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 99)], "offset_commits": [commit(2)]})
    assert open_warehouse(str(tmp_path)).clusters() == []
    begin_run(str(tmp_path), "prod")
    assert newest_rows(tmp_path, "committed_offsets", "prod") == newest_rows(tmp_path, "offset_commits", "prod") == []


def test_a_run_that_dies_twice_is_recovered_all_the_same(tmp_path, monkeypatch):
    night(tmp_path, "prod", {"offset_commits": [commit(1)]})
    for number in (2, 3):
        with monkeypatch.context() as patched, pytest.raises(DiedError):
            die_after(patched, 8)
            night(tmp_path, "prod", {"offset_commits": [commit(number)]})
    night(tmp_path, "prod", {"offset_commits": [commit(4)]})
    assert history_seen(tmp_path) == [1, 4]
    assert sorted(row["record_offset"] for row in newest_rows(tmp_path, "offset_commits", "prod")) == [1, 4]


def test_a_run_that_fails_before_its_commit_changes_nothing(tmp_path):
    night(tmp_path, "prod", {"offset_commits": [commit(1)]})
    versions = {name: DeltaTable(str(tmp_path / name)).version() for name in TABLES}
    written(begin_run(str(tmp_path), "prod"), {"offset_commits": [commit(2)]})
    begin_run(str(tmp_path), "prod")
    assert {name: DeltaTable(str(tmp_path / name)).version() for name in TABLES} == versions


def test_a_file_that_a_lost_task_has_written_goes_before_the_commit(tmp_path):
    # The task has run again on another executor, and only the files of that second time are in its report.
    night(tmp_path, "prod", {"offset_commits": [commit(1)]})
    start = begin_run(str(tmp_path), "prod")
    lost, reported = (written(start, {"offset_commits": [commit(2)]}) for _ in range(2))
    commit_run(start, run_fields(), reported)
    files = {file.name for file in (tmp_path / "offset_commits").rglob("*.parquet")}
    assert {file.path.rpartition("/")[2] for file in reported["offset_commits"]} < files
    assert not files & {file.path.rpartition("/")[2] for file in lost["offset_commits"]}
    assert history_seen(tmp_path) == [1, 2]


def test_files_of_dead_runs_go_with_the_next_upkeep_when_they_are_a_day_old(tmp_path):
    run = night(tmp_path, "prod", {"offset_commits": [commit(1)]})
    start = begin_run(str(tmp_path), "prod")
    (dead,) = write_part(str(tmp_path), TABLES["offset_commits"], TABLES["offset_commits"].from_rows([commit(2)]), "prod", start.run_id)
    path = tmp_path / "offset_commits" / dead.path
    maintain(str(tmp_path), "prod")
    assert path.exists(), "a run of today may still be at work"
    for file in path.parent.iterdir():
        os.utime(file, times=(time.time() - 2 * DAY_MS / 1000,) * 2)
    maintain(str(tmp_path), "prod")
    assert [file.name.startswith(run.run_id) for file in path.parent.iterdir()] == [True]


def test_the_run_that_finishes_first_stands(tmp_path):
    one, other = begin_run(str(tmp_path), "prod"), begin_run(str(tmp_path), "prod")
    commit_run(one, run_fields(), written(one, {"offset_commits": [commit(1)]}))
    with pytest.raises(WarehouseError, match=r"Another run of cluster 'prod' wrote to .* while this one was at work\. Nothing of this one"):
        commit_run(other, run_fields(), written(other, {"offset_commits": [commit(1)]}))
    assert history_seen(tmp_path) == [1]


def test_clock_that_goes_back_does_not_hide_the_newest_run(tmp_path, monkeypatch):
    first = night(tmp_path, "prod", {"groups": [group("g")]})
    monkeypatch.setattr(write_module.time, "time_ns", lambda: (first.finished_at_ms - DAY_MS) * 1_000_000)
    second = night(tmp_path, "prod", {"groups": [group("h")]})
    assert open_warehouse(str(tmp_path)).run("prod").run_id == second.run_id


def test_many_runs_are_kept_in_few_files(tmp_path, monkeypatch):
    monkeypatch.setattr(write_module, "_RUN_FILES", 2)
    runs = [night(tmp_path, "prod", {"groups": [group(f"g{n}")]}, as_of_ms=AS_OF_MS + n * DAY_MS) for n in range(6)]
    assert len(DeltaTable(str(tmp_path / "runs")).file_uris()) <= 3
    opened = open_warehouse(str(tmp_path))
    assert opened.runs()["run_id"].to_pylist() == [run.run_id for run in runs]
    for number, run in enumerate(runs):
        assert opened.run("prod", at_ms=AS_OF_MS + number * DAY_MS).run_id == run.run_id
        assert opened.read("groups", cluster="prod", at_ms=AS_OF_MS + number * DAY_MS)["group_id"].to_pylist() == [f"g{number}"]


def test_directory_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"...")
    with pytest.raises(WarehouseError, match="holds other things and no table 'runs' of ours"):
        begin_run(str(tmp_path), "prod")
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_runs_table_of_someone_else_is_refused(tmp_path):

    DeltaTable.create(str(tmp_path / "runs"), TABLES["runs"].delta_schema, partition_by=["cluster"])
    with pytest.raises(WarehouseError, match="no table 'runs' of ours"):
        begin_run(str(tmp_path), "prod")


def test_a_warehouse_whose_making_died_at_once_is_made_again(tmp_path):
    (tmp_path / "runs" / "_delta_log").mkdir(parents=True)
    night(tmp_path, "prod", {"groups": [group("g")]})
    assert open_warehouse(str(tmp_path)).clusters() == ["prod"]


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "w").write_text("")
    with pytest.raises(WarehouseError, match="is a file, not a warehouse directory"):
        begin_run(str(tmp_path / "w"), "prod")


def test_tables_of_a_newer_release_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(write_module.PROPERTIES, write_module.read.SCHEMA_VERSION_PROPERTY, "7")
    begin_run(str(tmp_path), "prod")
    for use in (lambda: begin_run(str(tmp_path), "prod"), lambda: open_warehouse(str(tmp_path))):
        with pytest.raises(WarehouseError, match=r"written by a newer release \(tables of version 7, this release knows 5\)"):
            use()


def test_an_upgrade_writes_the_kinds_of_runs_in_present_words(tmp_path, monkeypatch):
    with monkeypatch.context() as older:
        older.setitem(write_module.PROPERTIES, write_module.read.SCHEMA_VERSION_PROPERTY, "4")
        for cluster in ("prod", "other"):
            night(tmp_path, cluster, {"groups": [group("g")]}, kind="night")
            night(tmp_path, cluster, {"groups": [group("g")]}, kind="look_back", settings={"until": "2025-12-31"})
        rows = open_warehouse(str(tmp_path)).runs("prod")
        assert sorted(rows["kind"].to_pylist()) == ["nightly", "point_in_time"]
    begin_run(str(tmp_path), "prod")
    opened = open_warehouse(str(tmp_path))
    for cluster in ("prod", "other"):
        assert sorted(opened.tables["runs"].rows(cluster, ["kind"])["kind"].to_pylist()) == ["nightly", "point_in_time"]
    assert opened.runs("prod").drop_columns("kind") == rows.drop_columns("kind")
    assert [row["group_id"] for row in opened.read("groups", cluster="other").to_pylist()] == ["g"]


def test_a_table_with_other_columns_is_refused(tmp_path):
    begin_run(str(tmp_path), "prod")
    from deltalake.schema import Field, PrimitiveType

    DeltaTable(str(tmp_path / "groups")).alter.add_columns([Field("colour", PrimitiveType("string"))])
    with pytest.raises(WarehouseError, match=r"Table groups .* has other columns than this release writes \(colour\)"):
        begin_run(str(tmp_path), "prod")


def test_a_table_that_is_missing_is_made_again(tmp_path):
    night(tmp_path, "prod", {"groups": [group("g")]})
    import shutil

    shutil.rmtree(tmp_path / "warnings")
    night(tmp_path, "prod", {"groups": [group("g")]})
    assert open_warehouse(str(tmp_path)).read("warnings", cluster="prod").num_rows == 0


def test_empty_cluster_name_and_percent_in_a_path_are_refused(tmp_path):
    with pytest.raises(WarehouseError, match="name cannot be empty"):
        begin_run(str(tmp_path), "")
    with pytest.raises(WarehouseError, match="cannot write to a path with a %"):
        begin_run(str(tmp_path / "100%25"), "prod")


def test_paths_with_spaces_and_file_uris_are_places(tmp_path):
    place = tmp_path / "a b ü#?"
    night(place, "prod", {"groups": [group("g")]})
    for name in (str(place), place.as_uri(), f"{place}/"):
        assert open_warehouse(name).read("groups")["group_id"].to_pylist() == ["g"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_a_directory_without_permission_is_named(tmp_path):
    place = tmp_path / "w"
    place.mkdir(mode=0o500)
    with pytest.raises(WarehouseError, match="cannot be written"):
        begin_run(str(place), "prod")


def test_no_such_table_to_commit_is_an_error_of_the_caller(tmp_path):
    with pytest.raises(ValueError, match="no such table to write"):
        commit_run(begin_run(str(tmp_path), "prod"), run_fields(), {"colours": []})


def test_tables_of_many_rows_and_of_none_are_fine(tmp_path, every_table):
    rows = [commit(n, group_id=f"g{n % 1000}") for n in range(30_000)]
    night(tmp_path, "prod", {"offset_commits": rows, "groups": []})
    opened = open_warehouse(str(tmp_path))
    assert opened.read("offset_commits", cluster="prod").num_rows == 30_000
    assert all(opened.read(name, cluster="prod").schema == table.arrow_schema for name, table in TABLES.items() if name != "runs")
