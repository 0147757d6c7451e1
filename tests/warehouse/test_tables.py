"""Declarations, and the one place where Kafka's values become table columns."""

from __future__ import annotations

import datetime
import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.declaration import TIMESTAMPS_OUT_OF_RANGE, Column, WriteMode
from tests.examples import examples
from tests.test_documentation import GENERATOR
from tests.warehouse.nights import commit, offset

COMMITS = TABLES["offset_commits"]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

tables = pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)


@tables
def test_every_table_begins_with_its_cluster_and_has_its_key(table):
    assert table.columns[0].name == "cluster"
    assert set(table.primary_key) <= set(table.by_name)
    assert len(table.by_name) == len(table.columns)


@tables
def test_every_table_and_column_has_a_sentence(table):
    assert table.comment.endswith(".")
    for column in table.columns:
        assert column.sentence.endswith("."), column.name
        assert all(word in column.comment for word in column.words)


@tables
def test_times_that_clients_set_come_with_a_place_for_strange_ones(table):
    own_times = {"as_of", "started_at", "finished_at", "sampled_at", "written_at", "since", "read_at"}
    if any(column.is_time and column.name not in own_times for column in table.columns):
        # Columns of later releases come after it: an older warehouse gets them at the end.
        assert TIMESTAMPS_OUT_OF_RANGE in table.columns


@tables
def test_delta_schema_carries_types_not_null_and_comments(table):
    fields = json.loads(table.delta_schema.to_json())["fields"]
    assert [f["name"] for f in fields] == [c.name for c in table.columns]
    assert [f["nullable"] for f in fields] == [f.nullable for f in table.arrow_schema]
    assert all(f["metadata"]["comment"] for f in fields)


@tables
def test_a_table_that_a_night_has_written_can_go_to_workers(table):
    assert table.delta_schema and table.statistics is not None
    assert pickle.loads(pickle.dumps(table)) == table


@tables
def test_empty_frame_has_all_columns(table):
    assert table.empty().num_rows == 0
    assert table.empty().schema == table.arrow_schema
    assert "cluster" not in table.file_schema.names


def test_history_is_appended_and_state_is_replaced():
    appended = {name for name, table in TABLES.items() if table.write is WriteMode.APPENDED}
    assert appended == {
        *("offset_commits", "group_records", "transactions", "rebalances", "surviving_records", "quarantined_records", "warnings", "runs"),
        *("log_ends", "offset_events"),
    }


def test_reference_names_every_column():
    text = GENERATOR.tables_reference(TABLES.values())
    for table in TABLES.values():
        section = text.split(f"### {table.name}\n")[1].split("\n### ")[0]
        assert table.comment in section
        assert all(f"| `{column.name}` | " in section for column in table.columns)


def test_words_stand_in_the_comment():
    column = Column("state", "STRING", "The state.", words=("Empty", "Stable"))
    assert column.comment == "The state. One of: Empty, Stable."


def test_minus_one_becomes_null_only_where_kafka_means_none():
    row = offset("g", "t", 0, -1, leader_epoch=-1, producer_id=-1, topic_id="AAAAAAAAAAAAAAAAAAAAAA", commit_timestamp_ms=-1)
    (stored,) = TABLES["committed_offsets"].from_rows([row]).to_pylist()
    assert stored["committed_offset"] == -1
    assert [stored[name] for name in ("leader_epoch", "producer_id", "topic_id", "commit_timestamp", "expire_timestamp")] == [None] * 5


def test_a_text_that_means_none_is_found_in_dictionaries_too():
    ids = pa.array(["AAAAAAAAAAAAAAAAAAAAAA", "MkTRaXlSRfWvFLT1M3hZWA", None]).dictionary_encode()
    plain = TABLES["offset_commits"].from_rows([commit(n) for n in range(3)])
    stored = COMMITS.from_milliseconds(plain.drop_columns(["topic_id"]).append_column("topic_id", ids))
    assert stored["topic_id"].to_pylist() == [None, "MkTRaXlSRfWvFLT1M3hZWA", None]


@examples(100)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-62_135_596_900_000, 253_402_300_900_000)), max_size=8))
def test_every_int64_of_milliseconds_is_kept_exactly(times):
    rows = [commit(n, commit_timestamp_ms=time) for n, time in enumerate(times)]
    stored = COMMITS.from_rows(rows).to_pylist()
    for row, time in zip(stored, times, strict=True):
        strange = {found["column"]: found["milliseconds"] for found in row["timestamps_out_of_range"] or []}
        if time in (None, -1):
            assert row["commit_timestamp"] is None and not strange
        elif -62_135_596_800_000 <= time <= 253_402_300_799_999:
            assert row["commit_timestamp"] == EPOCH + datetime.timedelta(milliseconds=time) and not strange
        else:
            assert row["commit_timestamp"] is None and strange == {"commit_timestamp": time}


def test_two_strange_times_of_one_row_are_both_kept():
    (row,) = COMMITS.from_rows([commit(1, commit_timestamp_ms=2**62, expire_timestamp_ms=-(2**60))]).to_pylist()
    assert row["timestamps_out_of_range"] == [
        {"column": "commit_timestamp", "milliseconds": 2**62},
        {"column": "expire_timestamp", "milliseconds": -(2**60)},
    ]


def test_offsets_beyond_2_to_53_are_exact_beside_nulls():
    stored = COMMITS.from_rows([commit(1, committed_offset=9_007_199_254_740_993), commit(2, committed_offset=None)])
    assert stored["committed_offset"].to_pylist() == [9_007_199_254_740_993, None]


def test_a_strange_time_where_there_is_no_place_for_it_is_refused():
    row = {"offsets_partition": 0, "sequence": 0, "as_of_ms": 2**62, "group_id": "g", "key_type": 2, "reason": "group_removed", "key": b"k"}
    with pytest.raises(ValueError, match="as_of holds a time outside"):
        TABLES["tombstones"].from_rows([row])


def test_missing_and_unknown_columns_are_named():
    with pytest.raises(ValueError, match="group_id is NOT NULL and missing"):
        TABLES["groups"].from_milliseconds(pa.table({"state": ["Empty"]}))
    with pytest.raises(ValueError, match=r"no column .'colour'"):
        TABLES["groups"].from_rows([{"colour": "red"}])


def test_values_of_another_width_take_the_column_type():
    stored = COMMITS.from_milliseconds(COMMITS.from_rows([commit(1)]).set_column(0, "offsets_partition", pa.array([3], pa.int64())))
    assert stored.schema.field("offsets_partition").type == pa.int32()
