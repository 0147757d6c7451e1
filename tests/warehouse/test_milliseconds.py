"""Rows on their way back: from the tables' TIMESTAMPs and NULLs to Kafka's milliseconds and -1."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.warehouse import TABLES

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(
    times=st.lists(st.tuples(INT64, INT64, st.one_of(st.just(-1), INT64)), max_size=4),
    leader_epoch=st.integers(-1, 5),
)
def test_rows_come_back_as_they_went_in(times: list[tuple[int, int, int]], leader_epoch: int) -> None:
    table = TABLES["offset_commits"]
    rows: list[dict[str, Any]] = [
        {
            "cluster": "c",
            "offsets_partition": 0,
            "incarnation": 0,
            "record_offset": at,
            "record_timestamp_ms": record_ms,
            "group_id": "g",
            "topic": "t",
            "partition": 0,
            "committed_offset": 5,
            "leader_epoch": leader_epoch,
            "metadata": "",
            "commit_timestamp_ms": commit_ms,
            "expire_timestamp_ms": expire_ms,
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "key_version": 1,
            "value_version": 1,
            "is_tombstone": False,
            "producer_id": -1,
            "producer_epoch": -1,
            "is_transactional": False,
            "key_size": 1,
            "value_size": 1,
        }
        for at, (record_ms, commit_ms, expire_ms) in enumerate(times)
    ]
    assert table.to_milliseconds(table.from_rows(rows)).to_pylist() == rows
