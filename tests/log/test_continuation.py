"""Where a run goes on in a log that the last run has read, and whether a record is missing from there on."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from groupcoord_spark.log import (
    LogPlan,
    PartitionLog,
    Segment,
    changed_files,
    has_every_offset,
    plan_logs,
    read_segment,
    segment,
    segments_from,
)
from tests.log.log_writer import Rec, batch, write_segment


def entry(first: int, records: int = 2, **fields: int) -> bytes:
    return batch(first, [Rec(b"k", b"v", offset_delta=delta) for delta in range(records)], **fields)


def log_in(path: Path) -> PartitionLog:
    (log,) = plan_logs([str(path)]).partitions
    return log


def offsets_from(log: PartitionLog, offset: int, before: PartitionLog) -> list[int]:
    segments = segments_from(log, offset, before.end_file, before.end_position)
    return [o for segment in segments for chunk in read_segment(segment) for o in chunk.records.record_offset.tolist()]


def test_files_that_end_below_are_left_out_and_the_last_one_is_entered_where_it_ended(tmp_path: Path) -> None:
    write_segment(tmp_path, [entry(0), entry(2)])
    write_segment(tmp_path, [entry(4), entry(6)], base_offset=4)
    before = log_in(tmp_path)
    write_segment(tmp_path, [entry(4), entry(6), entry(8)], base_offset=4)
    write_segment(tmp_path, [entry(10)], base_offset=10)
    log = log_in(tmp_path)
    entered, last = segments_from(log, 8, before.end_file, before.end_position)
    assert (entered.start, entered.base_offset, last.start, last.base_offset) == (before.end_position, 8, 0, 10)
    assert offsets_from(log, 8, before) == [8, 9, 10, 11]
    assert has_every_offset((entered, last), 8, 12)


def test_nothing_is_left_of_a_file_that_has_not_grown(tmp_path: Path) -> None:
    write_segment(tmp_path, [entry(0)])
    before = log_in(tmp_path)
    assert segments_from(before, 2, before.end_file, before.end_position) == ()
    assert has_every_offset((), 2, 2)


def test_a_file_that_was_written_again_is_read_from_its_beginning_and_gives_only_new_records(tmp_path: Path) -> None:
    write_segment(tmp_path, [entry(0), entry(2), entry(4)])
    before = log_in(tmp_path)
    write_segment(tmp_path, [entry(0), entry(4), entry(6), entry(8)])
    log = log_in(tmp_path)
    (segment,) = segments_from(log, 6, before.end_file, before.end_position)
    # The new file has a batch at the old end, with another base offset.
    assert segment.start == 0
    assert offsets_from(log, 6, before) == [6, 7, 8, 9]
    assert has_every_offset((segment,), 6, 10)


@pytest.mark.parametrize("entries", [[entry(4), entry(7)], [entry(5)], [entry(4, records=1)]], ids=["between", "first", "last"])
def test_a_missing_offset_is_seen(tmp_path: Path, entries: list[bytes]) -> None:
    write_segment(tmp_path, [entry(2), *entries])
    assert not has_every_offset(log_in(tmp_path).segments, 4, 9 if len(entries) > 1 else 7)


def test_a_record_that_was_removed_inside_of_a_batch_is_seen(tmp_path: Path) -> None:
    one_left = batch(4, [Rec(b"k", b"v", offset_delta=1)], last_offset_delta=1)
    write_segment(tmp_path, [entry(2), one_left, entry(6)])
    assert not has_every_offset(log_in(tmp_path).segments, 4, 8)


def test_damage_leaves_a_doubt_and_an_unfinished_write_does_not(tmp_path: Path) -> None:
    write_segment(tmp_path, [entry(0), entry(2)[:-3] + b"xyz", entry(4)])
    assert not has_every_offset(log_in(tmp_path).segments, 0, 6)
    write_segment(tmp_path, [entry(0), entry(2), entry(4)[:-3]])
    assert has_every_offset(log_in(tmp_path).segments, 0, 4)


def test_a_plan_opens_no_file_that_ends_below_what_was_read_but_the_first(tmp_path: Path) -> None:
    for first in range(0, 10, 2):
        write_segment(tmp_path, [entry(first)], base_offset=first)
    opened = []

    def opens(location: object, *sizes: object) -> object:
        opened.append(str(location))
        return file(location, *sizes)  # type: ignore[arg-type]

    file = segment.SegmentFile
    with patch.object(segment, "SegmentFile", opens):
        plan: LogPlan = plan_logs([str(tmp_path)], lambda cluster_id: {0: 7})
    names = {name.rsplit("/", 1)[1].split(".log")[0].lstrip("0") or "0" for name in opened}
    assert names == {"0", "6", "8"}
    (log,) = plan.partitions
    assert (log.end_offset, log.is_surveyed) == (10, False)
    assert [segment.base_offset for segment in segments_from(log, 7, None, None)] == [6, 8]
    assert plan_logs([str(tmp_path)]).partitions[0].is_surveyed


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({0: 10, 5: 20, 9: 33}, None),
        ({0: 10, 5: 20, 9: 30, 12: 7}, None),
        ({0: 10, 9: 33}, ((5, 9),)),
        ({0: 9, 9: 33}, ((0, 5), (5, 9))),
        ({0: 10, 5: 0, 9: 29}, ((5, 9), (9, 12))),
        ({5: 20, 12: 5}, ((0, 5), (9, 12))),
        ({}, None),
    ],
    ids=["the last file grew", "a new file", "joined or lost", "shorter", "empty and cut", "first and last lost", "not listed"],
)
def test_the_files_that_changed(files: dict[int, int], expected: tuple[tuple[int, int], ...] | None) -> None:
    segments = tuple(Segment(str(base), size, 0, base, None) for base, size in files.items())
    log = PartitionLog(0, "d", segments, 0, 20, 0, files=files)
    # the last file was longer than its batches: space was reserved
    changed = changed_files(log, {0: 10, 5: 20, 9: 50}, 12, 30)
    assert (None if changed is None else changed.ranges) == expected
