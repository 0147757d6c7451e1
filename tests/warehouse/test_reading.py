"""Tables as of a run, through delta-rs and pyarrow, and what other engines find."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from itertools import chain

import duckdb
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.warehouse import TABLES, begin_run, commit_run, open_warehouse, write_part
from groupcoord_spark.warehouse.open_table import open_table
from groupcoord_spark.warehouse.stored_file import rows_of_file
from tests.examples import examples
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, make_tables, night, offset, run_fields

pytestmark = pytest.mark.usefixtures("few_tables")


@pytest.fixture(scope="module")
def month(tmp_path_factory):
    """Three runs of history, ten offsets partitions a run, a file each."""
    place = tmp_path_factory.mktemp("month")
    for day in range(3):
        at_ms = AS_OF_MS + day * DAY_MS
        files = [
            [commit(day * 10 + n, offsets_partition=number, group_id=f"g{number}-{n}", record_timestamp_ms=at_ms) for n in range(10)]
            for number in range(10)
        ]
        commit_night(place, "offset_commits", files, as_of_ms=at_ms)
    return str(place)


def commit_night(place, table, files, **fields):
    """Commit a run whose rows of one table are in these files."""
    make_tables(place)
    start, declared = begin_run(str(place), "prod"), TABLES[table]
    added = [file for rows in files for file in write_part(str(place), declared, declared.from_rows(rows), "prod", start.run_id)]
    commit_run(start, run_fields(**fields), {table: added})


def read_files(monkeypatch):
    """Counts the files that are opened."""
    opened = []

    def counting(file, *given):
        opened.append(file)
        return rows_of_file(file, *given)

    monkeypatch.setattr("groupcoord_spark.warehouse.open_table.rows_of_file", counting)
    return opened


@pytest.mark.parametrize(
    ("where", "files", "rows"),
    [
        ([("offsets_partition", "=", 4)], 3, 30),
        ([("offsets_partition", "in", [4, 7]), ("record_offset", ">=", 20)], 2, 20),
        ([("record_offset", "<", 5)], 10, 50),
        ([("record_offset", "<=", 5), ("record_offset", ">", 4)], 10, 10),
        ([("record_timestamp", ">=", datetime.datetime(2026, 1, 3, tzinfo=datetime.UTC))], 10, 100),
        ([("group_id", "=", "g3-1")], 3, 3),
        ([("group_id", "in", ["g3-1", "g8-2", "none"])], 6, 6),
        ([("group_id", "=", "nobody")], 0, 0),
        ([], 30, 300),
    ],
)
def test_files_that_cannot_hold_a_row_are_not_opened(month, monkeypatch, where, files, rows):
    warehouse = open_warehouse(month)
    warehouse.runs("prod")  # opens files of runs
    opened = read_files(monkeypatch)
    found = warehouse.read("offset_commits", cluster="prod", columns=["record_offset"], where=where)
    assert (len(opened), found.num_rows) == (files, rows)


def test_columns_come_in_the_order_asked_for(month):
    rows = open_warehouse(month).read("offset_commits", columns=["record_offset", "cluster", "group_id"], where=[("record_offset", "=", 7)])
    assert rows.column_names == ["record_offset", "cluster", "group_id"]
    assert set(rows["cluster"].to_pylist()) == {"prod"}
    assert open_warehouse(month).read("offset_commits", columns=["cluster"]).num_rows == 300


def test_null_meets_no_condition(tmp_path):
    night(tmp_path, "prod", {"offset_commits": [commit(1, value_version=None), commit(2, value_version=3)]})
    found = open_warehouse(str(tmp_path)).read("offset_commits", where=[("value_version", "<", 100)])
    assert found["record_offset"].to_pylist() == [2]


NAMES_OF_A_FILE = st.lists(st.text(st.characters(codec="utf-8"), max_size=60), min_size=1, max_size=5, unique=True)


@examples(3)
@given(st.lists(NAMES_OF_A_FILE, min_size=5, max_size=5))
def test_every_group_is_found_by_its_name(tmp_path_factory, files):
    place = tmp_path_factory.mktemp("w")
    commit_night(place, "groups", [[group(name) for name in names] for names in files])
    opened = open_warehouse(str(place))
    for name in set(chain.from_iterable(files)):
        found = opened.read("groups", cluster="prod", columns=["group_id"], where=[("group_id", "=", name)])
        assert found["group_id"].to_pylist() == [name] * sum(name in names for names in files)


def test_an_earlier_night_is_read_as_it_was(tmp_path):
    for day in range(3):
        night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, day)]}, as_of_ms=AS_OF_MS + day * DAY_MS)
    opened = open_warehouse(str(tmp_path))

    def offset_at(at_ms):
        return opened.read("committed_offsets", cluster="prod", at_ms=at_ms)["committed_offset"].to_pylist()

    assert offset_at(None) == offset_at(AS_OF_MS + 9 * DAY_MS) == [2]
    assert offset_at(AS_OF_MS + DAY_MS) == offset_at(AS_OF_MS + 2 * DAY_MS - 1) == [1]
    with pytest.raises(WarehouseError, match="knows no run of cluster 'prod' that early; its first is as of 2026-01-01T00:00:00Z"):
        offset_at(AS_OF_MS - 1)


def test_an_open_warehouse_stays_on_its_night(tmp_path):
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 1)]})
    opened = open_warehouse(str(tmp_path))
    night(tmp_path, "prod", {"committed_offsets": [offset("g", "t", 0, 2)]})
    assert opened.read("committed_offsets")["committed_offset"].to_pylist() == [1]


def test_a_name_that_is_not_utf_8_hinders_no_reader_beside_the_tables_and_is_one_sentence_in_a_log(tmp_path):
    night(tmp_path, "c", {"groups": [group("g")]})
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    (next((tmp_path / "groups").glob("*/*.parquet")).parent / os.fsdecode(b"\xe9")).touch()
    night(tmp_path, "c", {"groups": [group("h")]})
    assert open_warehouse(str(tmp_path)).read("groups")["group_id"].to_pylist() == ["h"]
    (tmp_path / "groups" / "_delta_log" / os.fsdecode(b"\xe9.json")).touch()
    with pytest.raises(WarehouseError, match=r"Table groups of .* cannot be read at version .* invalid path"):
        open_warehouse(str(tmp_path)).read("groups")


def test_unknown_cluster_names_those_there_are(tmp_path):
    night(tmp_path, "prod", {})
    with pytest.raises(WarehouseError, match="holds no run of cluster 'test'; clusters there: 'prod'"):
        open_warehouse(str(tmp_path)).read("groups", cluster="test")


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_an_empty_place_is_no_warehouse(tmp_path, make):
    make(tmp_path / "w")
    with pytest.raises(WarehouseError, match="is not a warehouse: nothing is there"):
        open_warehouse(str(tmp_path / "w"))


def test_a_place_that_no_file_system_knows_is_named():
    with pytest.raises(WarehouseError, match=r"ftp://host/w: .*Give a path, or a URI of file, s3, gs, abfss or hdfs"):
        open_warehouse("ftp://host/w")


def test_files_that_are_gone_are_told_in_a_sentence(tmp_path):
    night(tmp_path, "prod", {"groups": [group("g")]})
    for file in (tmp_path / "groups" / "cluster=prod").iterdir():
        file.unlink()
    with pytest.raises(WarehouseError, match=r"A file of table groups .* is gone"):
        open_warehouse(str(tmp_path)).read("groups")


def test_a_file_that_the_log_names_outside_of_its_table_is_not_read(tmp_path):
    night(tmp_path, "prod", {"groups": [group("g")]})
    (log,) = (file for file in (tmp_path / "groups" / "_delta_log").glob("*.json") if "cluster=prod/" in file.read_text())
    log.write_text(log.read_text().replace("cluster=prod/", "../groups/cluster=prod/"))
    with pytest.raises(WarehouseError, match=r"The log of table groups .* names a file outside of it"):
        open_warehouse(str(tmp_path)).read("groups")


def test_a_table_that_is_gone_is_told_in_a_sentence(tmp_path):
    night(tmp_path, "prod", {"groups": [group("g")]})
    (tmp_path / "groups").rename(tmp_path / "taken away")
    with pytest.raises(WarehouseError, match="has no table groups"):
        open_warehouse(str(tmp_path)).read("groups")


def test_duckdb_reads_a_night_through_delta_rs(tmp_path):
    run = night(tmp_path, "prod", {"groups": [group("g", state_timestamp_ms=AS_OF_MS), group("h")]})
    groups = DeltaTable(str(tmp_path / "groups"), version=run.table_versions["groups"]).to_pyarrow_dataset()
    found = duckdb.sql("SELECT group_id, cluster, epoch_ms(state_timestamp) FROM groups ORDER BY 1").fetchall()
    assert found == [("g", "prod", AS_OF_MS), ("h", "prod", None)]
    del groups


def test_reading_imports_neither_pandas_nor_spark(tmp_path):
    night(tmp_path, "prod", {"groups": [group("g")]})
    code = (
        "import sys; from groupcoord_spark.warehouse import open_warehouse;"
        f"w = open_warehouse({str(tmp_path)!r}); w.read('groups', cluster='prod', where=[('group_id', 'in', ['g'])]).to_pylist();"
        "sys.exit(sorted({'pandas', 'pyspark'} & set(sys.modules)) or 0)"
    )
    # Times as Python values are pandas's own business: the columns without them come first.
    code = code.replace("where=[", "columns=['cluster', 'group_id', 'state'], where=[")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_clusters_share_an_open_table_and_never_the_rows_of_another_run(tmp_path, monkeypatch):
    night(tmp_path, "prod", {"groups": [group("old")], "offset_commits": [commit(1)]})
    night(tmp_path, "test", {"groups": [group("other")]})
    night(tmp_path, "prod", {"groups": [group("new")], "offset_commits": [commit(2)]}, as_of_ms=AS_OF_MS + DAY_MS)
    opened = []

    def counting(location, table, version=None):
        opened.append((table.name, version))
        return open_table(location, table, version)

    warehouse = open_warehouse(tmp_path)
    old, new, other = (warehouse.run(cluster, at_ms=at_ms) for cluster, at_ms in (("prod", AS_OF_MS), ("prod", None), ("test", None)))
    monkeypatch.setattr("groupcoord_spark.warehouse.read.open_table", counting)
    for runs, groups, commits, times in (([new, other], ["new", "other"], [[1, 2], []], 1), ([old, other], ["old", "other"], [[1], []], 2)):
        warehouse = open_warehouse(str(tmp_path))
        opened.clear()
        warehouse.open_together([*runs, new])
        assert [warehouse.read("groups", run=run)["group_id"].to_pylist() for run in runs] == [[name] for name in groups]
        assert [sorted(warehouse.read("offset_commits", run=run)["record_offset"].to_pylist()) for run in runs] == commits
        assert len(opened) == 2 * times
    assert warehouse.read("runs", run=other)["cluster"].to_pylist() == ["test"]


def test_runs_are_read_like_any_table_those_that_were_finished_by_the_night(tmp_path):
    first, second = (night(tmp_path, "prod", {}, as_of_ms=AS_OF_MS + n * DAY_MS) for n in range(2))
    other = night(tmp_path, "test", {}, as_of_ms=AS_OF_MS)
    opened = open_warehouse(str(tmp_path))
    assert opened.read("runs", cluster="prod").equals(opened.runs("prod"))
    assert opened.read("runs", columns=["run_id"])["run_id"].to_pylist() == [run.run_id for run in (first, second, other)]
    assert opened.read("runs", cluster="prod", at_ms=AS_OF_MS)["run_id"].to_pylist() == [first.run_id]
    assert opened.read("runs", columns=["cluster"], where=[("run_id", "in", [other.run_id])]).to_pylist() == [{"cluster": "test"}]
    later = ("as_of", ">", datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC))
    assert opened.read("runs", columns=["cluster"], where=[later]).num_rows == 0
