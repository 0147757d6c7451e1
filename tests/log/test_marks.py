"""The records that two dumps are compared by, looked up in files of real brokers and of our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from groupcoord_spark.log import RecordMark, Segment, first_record, newest_record, plan_logs, read_segment, record_at, record_crc
from groupcoord_spark.log.marks import marks_of
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP, NOT_A_CONTROL_RECORD
from tests.conftest import GOLDEN
from tests.log.log_writer import Rec, batch

CORPORA = ["nights/1", "nights/3", "transactions", "magic1-gzip", "magic0-lz4", "codec-zstd", "compacted", "midflight-torn"]


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_record_at_every_offset_of_a_log_is_the_one_that_a_reader_reads(corpus: str) -> None:
    for log in plan_logs([str(GOLDEN / corpus / "logs")]).partitions:
        marks = [mark for segment in log.segments for chunk in read_segment(segment) for mark in marks_of(chunk.records)]
        assert [record_at(log.segments, mark.record_offset) for mark in marks] == marks
        assert (first_record(log.segments), newest_record(log.segments)) == ((marks[0], marks[-1]) if marks else (None, None))
        assert record_at(log.segments, log.end_offset) is None


@pytest.mark.parametrize("corpus", ["transactions", "compacted"])
def test_control_records_are_no_records_here(corpus: str) -> None:
    for log in plan_logs([str(GOLDEN / corpus / "logs")]).partitions:
        for segment in log.segments:
            for chunk in read_segment(segment):
                markers = chunk.records.record_offset[chunk.records.control_type != NOT_A_CONTROL_RECORD]
                assert all(record_at(log.segments, offset) is None for offset in markers.tolist())


def test_in_a_large_file_few_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(10 * n, [Rec(b"k%d" % n, bytes(2_000), offset_delta=n % 10)]) for n in range(3_000)]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batches))
    segments = [Segment(str(path), path.stat().st_size, 0, 0)]
    read = 0
    from groupcoord_spark.storage.location import SegmentFile

    usual = SegmentFile.read

    def counted(self: SegmentFile, start: int, end: int) -> np.ndarray:
        nonlocal read
        read += end - start
        return usual(self, start, end)

    monkeypatch.setattr(SegmentFile, "read", counted)
    for n in (0, 1, 1_234, 2_999):
        mark = record_at(segments, 10 * n + n % 10)
        assert mark is not None and mark.crc == record_crc(b"k%d" % n, bytes(2_000))
        assert record_at(segments, 10 * n + (n + 1) % 10) is None
    assert newest_record(segments) == record_at(segments, 29_999)
    assert read < path.stat().st_size


def test_of_files_that_are_damaged_only_sound_batches_count(tmp_path: Path) -> None:
    good = [batch(n, [Rec(b"k", b"%d" % n)]) for n in range(4)]
    broken = [bytearray(each) for each in good]
    broken[0][-1] ^= 1
    broken[3][-1] ^= 1
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(map(bytes, broken)))
    segments = [Segment(str(path), path.stat().st_size, 0, 0)]
    first, newest = first_record(segments), newest_record(segments)
    assert (first and first.record_offset, newest and newest.record_offset) == (1, 2)
    assert record_at(segments, 0) is None and record_at(segments, 3) is None
    path.write_bytes(bytes(100_000))
    segments = [Segment(str(path), 100_000, 0, 0)]
    assert first_record(segments) is newest_record(segments) is record_at(segments, 5) is None
    assert first_record([]) is newest_record([]) is record_at([], 5) is None


def test_an_empty_value_and_none_are_different() -> None:
    crcs = {record_crc(key, value) for key in (None, b"", b"a") for value in (None, b"", b"a")}
    assert len(crcs) == 9
    assert record_crc(b"a", b"b") != record_crc(b"ab", b"")


def test_a_time_that_is_not_known_does_not_differ() -> None:
    mark = RecordMark(1, 5, 9)
    assert mark.is_same(RecordMark(1, NO_TIMESTAMP, 9)) and mark.is_same(mark)
    assert not any(mark.is_same(other) for other in (RecordMark(2, 5, 9), RecordMark(1, 6, 9), RecordMark(1, 5, 8)))
