"""Parquet files of the workers, and the line that the driver gets for each."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.warehouse import TABLES, PartWriter, write_part
from groupcoord_spark.warehouse.parts import run_of
from groupcoord_spark.warehouse.stored_file import checked_file
from tests.examples import examples
from tests.warehouse.nights import AS_OF_MS, commit

COMMITS = TABLES["offset_commits"]


def held(warehouse, files):
    return pa.concat_tables([pq.read_table(warehouse / "offset_commits" / file.path, partitioning=None) for file in files])


def test_rows_come_back_as_they_went_in(tmp_path):
    rows = COMMITS.from_rows([commit(n, leader_epoch=n, commit_timestamp_ms=AS_OF_MS + n) for n in range(5)])
    files = write_part(str(tmp_path), COMMITS, rows, "prod", "run-1")
    assert [file.records for file in files] == [5]
    assert held(tmp_path, files).cast(COMMITS.file_schema) == rows
    assert (tmp_path / "offset_commits" / files[0].path).stat().st_size == files[0].size


def test_a_flipped_bit_never_reads_as_other_rows(tmp_path):
    rows = COMMITS.from_rows([commit(n, leader_epoch=n, commit_timestamp_ms=AS_OF_MS + n) for n in range(200)])
    (file,) = write_part(str(tmp_path), COMMITS, rows, "prod", "run-1")
    content = (tmp_path / "offset_commits" / file.path).read_bytes()
    first_page = 4
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    # The fifth bit of a byte of the footer is, among others, that of the units of times and of the numbers of rows.
    in_pages = [(position, 1 << position % 8) for position in range(first_page, footer, 3)]
    for position, bit in in_pages + [(position, 1 << 4) for position in range(footer, len(content) - 8)]:
        damaged = bytearray(content)
        damaged[position] ^= bit
        try:
            read = checked_file(pa.BufferReader(bytes(damaged)), file.path, COMMITS).read().cast(COMMITS.file_schema)
        except (OSError, pa.ArrowException):
            refused += 1
        else:
            assert read == rows, position
    assert refused > 100


@pytest.mark.parametrize("table", ["offset_commits", "rebalances", "runs"])
def test_files_as_spark_writes_them_when_it_optimizes_a_table_are_sound(tmp_path, table):
    declared = TABLES[table]
    path = tmp_path / "part-00000-0d7a.c000.snappy.parquet"
    columns = declared.arrow_schema.empty_table().rename_columns(declared.arrow_schema.names)
    without_zone = pa.schema([pa.field(f.name, pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type) for f in columns.schema])
    pq.write_table(columns.cast(without_zone), path, use_deprecated_int96_timestamps=True, use_compliant_nested_type=True)
    assert checked_file(path.open("rb"), str(path), declared).schema_arrow.names == declared.arrow_schema.names


def test_no_rows_make_no_file(tmp_path):
    assert write_part(str(tmp_path), COMMITS, COMMITS.empty(), "prod", "run-1") == []
    assert not (tmp_path / "offset_commits").exists()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_batches_of_any_size_give_the_same_rows(tmp_path, size):
    rows = COMMITS.from_rows([commit(n, group_id=f"g{n % 3}") for n in range(20)])
    files = write_part(str(tmp_path), COMMITS, iter(rows.to_batches(max_chunksize=size)), "prod", "run-1")
    assert held(tmp_path, files)["record_offset"].to_pylist() == list(range(20))


def test_dictionaries_of_different_batches_and_plain_texts_meet_in_one_file(tmp_path):
    texts = [["a", "b", "a"], ["c", None, "b"], ["d", "a", "e"]]
    with PartWriter(str(tmp_path), COMMITS, "prod", "run-1") as writer:
        for number, metadata in enumerate(texts):
            values = pa.array(metadata) if number == 2 else pa.array(metadata).dictionary_encode()
            rows = COMMITS.from_rows([commit(number * 3 + n) for n in range(3)]).drop_columns(["metadata"])
            writer.write(rows.append_column("metadata", values))
    assert held(tmp_path, writer.files)["metadata"].to_pylist() == [text for batch in texts for text in batch]


def test_files_are_rolled_at_their_size(tmp_path):
    with PartWriter(str(tmp_path), replace(COMMITS, group_rows=10), "prod", "run-1", file_bytes=1) as writer:
        for n in range(0, 35, 5):
            writer.write(COMMITS.from_rows([commit(n + k) for k in range(5)]))
    assert [file.records for file in writer.files] == [10, 10, 10, 5]
    assert len({file.path for file in writer.files}) == 4


def test_a_failed_writer_leaves_no_file(tmp_path):
    with pytest.raises(RuntimeError), PartWriter(str(tmp_path), replace(COMMITS, group_rows=1), "prod", "run-1") as writer:
        writer.write(COMMITS.from_rows([commit(1)]))
        raise RuntimeError("the task failed")
    assert not list(tmp_path.rglob("*.parquet"))


def test_null_in_a_not_null_column_is_refused(tmp_path):
    with pytest.raises(pa.ArrowInvalid, match="group_id"):
        write_part(str(tmp_path), COMMITS, COMMITS.from_rows([commit(1, group_id=None)]), "prod", "run-1")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "offset_commits").write_text("in the way")
    with pytest.raises(WarehouseError, match=r"offset_commits/cluster=prod/run-1-\w+\.parquet cannot be written"):
        write_part(str(tmp_path), COMMITS, COMMITS.from_rows([commit(1)]), "prod", "run-1")


def test_line_of_a_file_travels_as_json_and_pickle(tmp_path):
    (file,) = write_part(str(tmp_path), COMMITS, COMMITS.from_rows([commit(1)]), "prod/ü", "run-1")
    assert file == pickle.loads(pickle.dumps(file))


def test_file_name_tells_its_run_and_cluster_is_percent_encoded(tmp_path):
    (file,) = write_part(str(tmp_path), COMMITS, COMMITS.from_rows([commit(1)]), "a b/ü=%", "20260101T000000Z-0a1b2c3d")
    directory, name = file.path.split("/")
    assert directory == "cluster=a%20b%2F%C3%BC%3D%25"
    assert run_of(name) == "20260101T000000Z-0a1b2c3d"
    assert run_of("part-00000-c000.snappy.parquet") is None


def test_statistics_bound_the_leading_columns(tmp_path):
    rows = [commit(n, offsets_partition=3, group_id=f"g{n}", record_timestamp_ms=AS_OF_MS + n if n else -1) for n in range(4)]
    (file,) = write_part(str(tmp_path), COMMITS, COMMITS.from_rows(rows), "prod", "run-1")
    stats = json.loads(file.stats)
    assert stats["numRecords"] == 4
    assert stats["minValues"] == {
        "offsets_partition": 3,
        "incarnation": 0,
        "record_offset": 0,
        "record_timestamp": "2026-01-01T00:00:00.001Z",
        "group_id": "g0",
        "topic": "t",
    }
    assert stats["maxValues"]["record_timestamp"] == "2026-01-01T00:00:00.003Z"
    assert stats["nullCount"]["record_timestamp"] == 1


def test_a_column_of_nulls_has_a_count_and_no_bounds(tmp_path):
    (file,) = write_part(str(tmp_path), COMMITS, COMMITS.from_rows([commit(1, record_timestamp_ms=-1)]), "prod", "run-1")
    stats = json.loads(file.stats)
    assert "record_timestamp" not in stats["minValues"] and stats["nullCount"]["record_timestamp"] == 1


@examples(60)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=50), min_size=1, max_size=4))
def test_bounds_of_texts_hold_them_all_in_byte_order(tmp_path_factory, texts):
    rows = COMMITS.from_rows([commit(n, group_id=text) for n, text in enumerate(texts)])
    (file,) = write_part(str(tmp_path_factory.getbasetemp() / "bounds"), COMMITS, rows, "prod", "run-1")
    stats = json.loads(file.stats)
    encoded = [text.encode() for text in texts]
    assert stats["minValues"]["group_id"].encode() <= min(encoded)
    assert "group_id" not in stats["maxValues"] or stats["maxValues"]["group_id"].encode() >= max(encoded)


def test_texts_too_long_for_statistics_leave_the_column_without_bounds(tmp_path):
    (file,) = write_part(str(tmp_path), COMMITS, COMMITS.from_rows([commit(1, group_id="x" * 10_000)]), "prod", "run-1")
    assert "group_id" not in json.loads(file.stats)["minValues"]
