"""The buffer of kept records: what a later chunk supersedes, and when records leave the buffer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.pipeline.read.decode import decode_chunk
from groupcoord_spark.pipeline.read.superseded import SupersedeBuffer
from tests.pipeline.logs import LogRecord, commit_value, offset_key, records_of


def commits(offsets: Iterable[int]) -> list[LogRecord]:
    """Commits of one key at these record offsets."""
    return [LogRecord(record_offset, offset_key(), commit_value(record_offset)) for record_offset in offsets]


def add(buffer: SupersedeBuffer, chunk: Sequence[LogRecord]) -> list[int]:
    """Return the record offsets that leave the buffer when the chunk comes."""
    records = records_of(list(chunk))
    decoded = decode_chunk(records, JAVA)
    return offsets_of(buffer.add(decoded))


def offsets_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("record_offset").to_pylist()]


def test_a_commit_of_a_later_chunk_supersedes_the_commit_of_an_earlier_chunk() -> None:
    buffer = SupersedeBuffer()
    assert [add(buffer, commits(range(first, first + 5))) for first in (0, 5, 10)] == [[], [], []]
    assert offsets_of(buffer.flush()) == [14]


def test_records_leave_when_what_is_left_of_them_fills_the_buffer() -> None:
    full = SupersedeBuffer(buffer_bytes=1, least_rows_to_filter=1)
    assert [add(full, commits([record_offset])) for record_offset in range(4)] == [[], [1], [], [3]]
    assert full.flush() == []


def test_a_record_that_left_is_not_superseded_any_more() -> None:
    buffer = SupersedeBuffer(buffer_bytes=1, least_rows_to_filter=0)
    assert add(buffer, commits([0])) == [0]
    assert add(buffer, commits([1])) == [1]


def test_few_records_are_not_filtered_before_the_end() -> None:
    buffer = SupersedeBuffer(buffer_bytes=1, least_rows_to_filter=3)
    assert [add(buffer, commits([record_offset])) for record_offset in range(4)] == [[], [], [], [3]]


def test_an_empty_buffer_gives_nothing_back() -> None:
    assert SupersedeBuffer().flush() == []
