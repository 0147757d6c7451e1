"""A written log reads back as it was given."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.log import plan_logs, read_segment
from groupcoord_spark.log.decode.compression import CODECS
from groupcoord_spark.log.writing import Batch, RecordToLog, batch_bytes, marker, write_segment
from tests.examples import examples
from tests.log.log_writer import Rec, batch

PAYLOADS = st.none() | st.binary(max_size=300)
RECORDS = st.lists(st.builds(RecordToLog, PAYLOADS, PAYLOADS, st.integers(0, 2**42)), min_size=1, max_size=5)


def read_back(directory):
    """Offset, time, key, value, producer, epoch, is_transactional and control type of every record; nothing may be found amiss."""
    (log,) = plan_logs([str(directory)]).partitions
    rows = []
    for chunk in read_segment(log.segments[0]):
        assert not chunk.lost and not chunk.doubts
        r = chunk.records
        for at in range(len(r.record_offset)):
            numbers = (r.producer_id[at], r.producer_epoch[at], r.is_transactional[at], r.control_type[at])
            rows.append((int(r.record_offset[at]), int(r.timestamp_ms[at]), r.key.row(at), r.value.row(at), *map(int, numbers)))
    return rows


@examples(60)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.integers(0, 5))
def test_batches_read_back(tmp_path_factory, appends, first):
    place, batches, expected = tmp_path_factory.mktemp("written"), [], []
    for records in appends:
        batches.append(Batch(first, tuple(records)))
        expected += [(first + at, one.timestamp_ms, one.key, one.value, -1, -1, 0, -1) for at, one in enumerate(records)]
        first += len(records)
    write_segment(place, 3, batches)
    assert read_back(place) == expected


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_compressed_batches_read_back(tmp_path, codec):
    # more than one block of snappy and lz4
    records = tuple(RecordToLog(b"%d" % n, random.Random(n).randbytes(900), 1_000 + n) for n in range(200))
    write_segment(tmp_path, 0, [Batch(7, records, codec=codec)])
    assert [row[:4] for row in read_back(tmp_path)] == [(7 + n, one.timestamp_ms, one.key, one.value) for n, one in enumerate(records)]


def test_transactions_and_their_markers_read_back(tmp_path):
    staged = Batch(0, (RecordToLog(b"k", b"v", 10),), producer_id=4000, producer_epoch=3, is_transactional=True)
    ends = [Batch(at, (marker(kind, 20),), 4000, 3, is_transactional=True, is_control=True) for at, kind in ((1, 0), (2, 1))]
    write_segment(tmp_path, 0, [staged, *ends])
    assert [row[4:] for row in read_back(tmp_path)] == [(4000, 3, 1, -1), (4000, 3, 1, 0), (4000, 3, 1, 1)]


def test_a_batch_is_that_of_the_tests_own_writer():
    records = (RecordToLog(b"a", b"1", 1_000), RecordToLog(b"b", None, 1_007))
    own = batch(7, [Rec(b"a", b"1"), Rec(b"b", None, 1, 7)], base_timestamp=1_000, max_timestamp=1_007)
    assert batch_bytes(Batch(7, records)) == own


def test_nothing_is_written_over_and_nothing_is_made_of_nothing(tmp_path):
    write_segment(tmp_path, 0, [Batch(0, (RecordToLog(b"k", None, 0),))])
    with pytest.raises(FileExistsError):
        write_segment(tmp_path, 0, [Batch(0, (RecordToLog(b"k", None, 0),))])
    with pytest.raises(ValueError, match="has no records"):
        batch_bytes(Batch(0, ()))
    with pytest.raises(ValueError, match="has no batch"):
        write_segment(tmp_path, 1, [])
