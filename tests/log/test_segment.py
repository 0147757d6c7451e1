"""One file in chunks: bounded, complete, in the order of offsets, and within the limits of its neighbours."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Segment, limits, read_segment
from tests.log.log_writer import GZIP, LZ4, SNAPPY, ZSTD, Rec, batch, compress, message, records, write_segment
from tests.log.reading import read, read_file


def many(n: int, *, size: int = 100, codec: int = 0) -> list[bytes]:
    return [batch(i * 3, [Rec(b"key-%d" % j, bytes(size), j) for j in range(3)], codec=codec) for i in range(n)]


@pytest.mark.parametrize("codec", [0, LZ4])
def test_chunks_are_bounded_and_add_up_to_the_file(tmp_path: Path, codec: int) -> None:
    path = write_segment(tmp_path, many(300, codec=codec))
    segment = Segment(str(path), path.stat().st_size, 0, 0)
    chunks = list(read_segment(segment, chunk_bytes=20_000))
    assert sum(chunk.bytes for chunk in chunks) == segment.size
    assert np.concatenate([chunk.records.record_offset for chunk in chunks]).tolist() == list(range(900))
    # decompressed bytes count too: 300 batches have over 100 kB of records, whatever they take in the file
    assert len(chunks) > 5
    assert max(len(chunk.records.key.data) for chunk in chunks) < 25_000


def test_keys_and_values_of_a_chunk_are_places_in_one_buffer_and_ascend(tmp_path: Path) -> None:
    for codec in (0, ZSTD):
        path = write_segment(tmp_path, many(10, codec=codec))
        (chunk,) = read_segment(Segment(str(path), path.stat().st_size, 0, 0))
        records_read = chunk.records
        assert records_read.key.data is records_read.value.data
        assert (records_read.key.start[1:] > records_read.value.end[:-1]).all()
        assert records_read.key.to_arrow().to_pylist() == [b"key-%d" % j for _ in range(10) for j in range(3)]


def test_batches_of_the_tiniest_records_are_split_by_what_their_columns_take(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [batch(i * 100, [Rec(None, None, j) for j in range(100)]) for i in range(20)])
    chunks = list(read_segment(Segment(str(path), path.stat().st_size, 0, 0), chunk_bytes=20_000))
    assert max(len(chunk.records) for chunk in chunks) <= 400


def test_the_memory_of_a_reader_is_a_few_chunks(tmp_path: Path) -> None:
    path = write_segment(tmp_path, many(20_000, size=100))
    segment = Segment(str(path), path.stat().st_size, 0, 0)
    chunk_bytes = 1 << 20
    assert segment.size > 7 * chunk_bytes
    tracemalloc.start()
    try:
        for _ in read_segment(segment, chunk_bytes=chunk_bytes):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * chunk_bytes


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_bombs_that_are_refused_leave_nothing_in_memory(tmp_path: Path, codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECOMPRESSED_FLOOR", 1 << 20)
    monkeypatch.setattr(limits, "DECOMPRESSED_CAP", 1 << 20)
    body = compress(codec, bytes(4 << 20))
    path = write_segment(tmp_path, [batch(offset, codec=codec, body=body) for offset in range(40)])
    segment = Segment(str(path), path.stat().st_size, 0, 0)
    tracemalloc.start()
    try:
        (chunk,) = read_segment(segment)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [lost.code for lost in chunk.lost] == ["decompressed_too_large"] * 40
    assert peak < 16 << 20


def test_an_empty_file_has_no_chunk(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [])
    assert list(read_segment(Segment(str(path), 0, 0, 0))) == []


def test_what_was_written_after_planning_is_not_read(tmp_path: Path) -> None:
    entries = many(5)
    path = write_segment(tmp_path, entries)
    segment = Segment(str(path), sum(map(len, entries[:3])), 0, 0)
    assert read([segment]).offsets == list(range(9))


@pytest.mark.parametrize("change", [-100, +100])
def test_a_finished_file_that_has_another_size_than_was_planned_is_not_read(tmp_path: Path, change: int) -> None:
    path = write_segment(tmp_path, many(5))
    size = path.stat().st_size
    segment = Segment(str(path), size, 0, 0, 15, file_size=size)
    os.truncate(path, size + change)
    with pytest.raises(InputError, match=rf"{path}: the file has {size + change} bytes, and had {size} when the directory was listed"):
        read([segment])


def test_a_file_that_may_grow_is_not_read_if_it_has_shrunk(tmp_path: Path) -> None:
    path = write_segment(tmp_path, many(5))
    with pytest.raises(InputError, match="it was cut or replaced"):
        read([Segment(str(path), path.stat().st_size + 1, 0, 0)])


def test_a_file_that_is_cut_while_it_is_read_is_one_sentence(tmp_path: Path) -> None:
    path = write_segment(tmp_path, many(40))
    chunks = read_segment(Segment(str(path), path.stat().st_size, 0, 0), chunk_bytes=1000)
    next(chunks)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(InputError, match="now, and was longer when it was opened") as caught:
        list(chunks)
    assert "\n" not in str(caught.value)


def test_records_below_the_log_start_are_deleted(tmp_path: Path) -> None:
    path = write_segment(tmp_path, many(5))
    got = read_file(path, log_start_offset=7)
    assert (got.offsets, got.codes) == (list(range(7, 15)), [])


def test_records_that_an_earlier_file_covers_are_skipped_and_counted(tmp_path: Path) -> None:
    bad = batch(3, body=b"junk", count=1)
    path = write_segment(tmp_path, [batch(0, records(b"a", b"b", b"c")), bad, message(4, b"x", b""), batch(5, records(b"d", b"e"))])
    got = read_file(path, skip_below=6)
    assert (got.offsets, got.codes, got.lost) == ([6], ["segment_overlap"], [])
    assert got.doubts[0].records == 5


def test_a_segment_travels_to_workers(tmp_path: Path) -> None:
    covered = Segment("/x/00000000000000000500.log", 5, 3, 500)
    segment = Segment("s3://user:secret@bucket/x/00000000000000000000.log?region=x", 7, 3, 0, 500, covers=(covered,))
    assert pickle.loads(pickle.dumps(segment)) == segment
    assert segment.source == "s3://bucket/x/00000000000000000000.log"


def test_a_file_that_is_gone_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the file is gone since the directory was listed") as caught:
        list(read_segment(Segment(str(tmp_path / "00000000000000000000.log"), 100, 0, 0)))
    assert "\n" not in str(caught.value)


def test_a_uri_is_as_good_as_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    path = write_segment(folder, many(2))
    segment = Segment(path.as_uri(), path.stat().st_size, 0, 0)
    assert read([segment]).offsets == list(range(6))


def test_a_chunk_knows_the_leader_epoch_of_each_record(tmp_path: Path) -> None:
    pair = (Rec(), Rec(offset_delta=1))
    entries = [batch(0, pair, leader_epoch=4), batch(2, pair, leader_epoch=7), message(4, None, b"v"), batch(5, leader_epoch=7)]
    path = write_segment(tmp_path, entries)
    (chunk,) = read_segment(Segment(str(path), path.stat().st_size, 0, 0))
    assert chunk.leader_epochs(np.arange(len(chunk.records))).tolist() == [4, 4, 7, 7, -1, 7]
    assert chunk.leader_epochs(np.array([5, 0])).tolist() == [7, 4]
