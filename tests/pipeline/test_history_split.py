"""Chunks of a log up to a point in time: which of their records the history tables have too."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord_spark.log import Chunk
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryRange, PointInTime
from groupcoord_spark.pipeline.read.history_split import split_at_history
from tests.pipeline.logs import LogRecord, records_of

CHUNK_BYTES = 100


def chunk(*record_offsets: int) -> Chunk:
    return Chunk(records_of([LogRecord(record_offset, None, None) for record_offset in record_offsets]), [], [], CHUNK_BYTES)


def split(chunks: Sequence[Chunk], end_offset: int, history: HistoryRange = NO_HISTORY) -> list[tuple[bool, list[list[int]], int]]:
    """(whether the history tables have the records too, record offsets of each chunk, bytes of the chunks)."""
    point_in_time = PointInTime(end_offset, history, end_offset)
    parts = [(is_in_history, list(of_part)) for is_in_history, of_part in split_at_history(chunks, point_in_time)]
    return [
        (is_in_history, [each.records.record_offset.tolist() for each in of_part], sum(each.bytes for each in of_part))
        for is_in_history, of_part in parts
    ]


def test_without_history_all_records_before_the_end_are_of_the_log_alone() -> None:
    assert split([chunk(0, 1), chunk(2, 5)], 5) == [(False, [[0, 1], [2]], 2 * CHUNK_BYTES)]


def test_a_chunk_is_cut_where_history_begins_and_where_it_ends() -> None:
    parts = split([chunk(0, 3, 4, 7, 9)], 100, HistoryRange(0, 3, 7))
    assert [(is_in_history, offsets) for is_in_history, offsets, _ in parts] == [(False, [[0]]), (True, [[3, 4]]), (False, [[7, 9]])]


def test_bytes_of_a_chunk_count_once() -> None:
    parts = split([chunk(0, 3, 7), chunk(8)], 100, HistoryRange(0, 3, 7))
    assert sum(size for *_, size in parts) == 2 * CHUNK_BYTES


def test_chunks_within_history_come_together() -> None:
    parts = split([chunk(0, 1), chunk(2, 3), chunk(4)], 100, HistoryRange(0, 0, 4))
    assert [(is_in_history, offsets) for is_in_history, offsets, _ in parts] == [(True, [[0, 1], [2, 3]]), (False, [[4]])]


def test_nothing_is_read_after_the_end() -> None:
    def chunks():
        yield chunk(0, 1, 2)
        raise AssertionError("the chunk after the end was read")

    assert split(chunks(), 2) == [(False, [[0, 1]], CHUNK_BYTES)]


def test_a_log_that_ends_early_gives_what_it_has() -> None:
    assert split([], 10, HistoryRange(0, 0, 10)) == []
    assert split([chunk(0)], 10, HistoryRange(0, 0, 10)) == [(True, [[0]], CHUNK_BYTES)]
