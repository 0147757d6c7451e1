"""Logs that end at the high watermark of their log directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import LogPlan, cut_at_high_watermarks, plan_logs, read_segment
from tests.log.log_writer import Rec, batch, write_segment


def log_with_watermark(tmp_path: Path, text: str | None) -> LogPlan:
    """Batches of two records up to offset 20 in two segments, and a high watermark."""
    records = [Rec(b"k"), Rec(b"k", offset_delta=1)]
    for base in (0, 10):
        write_segment(tmp_path, [batch(offset, records) for offset in range(base, base + 10, 2)], base_offset=base)
    if text is not None:
        (tmp_path / "replication-offset-checkpoint").write_text(text)
    return plan_logs([str(tmp_path)])


def offsets_of(plan: LogPlan) -> list[int]:
    segments = [segment for log in plan.partitions for segment in log.segments]
    return [offset for segment in segments for chunk in read_segment(segment) for offset in chunk.records.record_offset.tolist()]


@pytest.mark.parametrize("watermark", [0, 4, 10, 14, 18, 20])
def test_log_ends_at_the_high_watermark(tmp_path: Path, watermark: int) -> None:
    cut = cut_at_high_watermarks(log_with_watermark(tmp_path, f"0\n1\n__consumer_offsets 0 {watermark}\n"))
    assert offsets_of(cut) == list(range(watermark))
    assert cut.partitions[0].end_offset == watermark
    assert cut.beyond == ({} if watermark == 20 else {0: 20 - watermark})
    assert [doubt.code for doubt in cut.doubts] == ["beyond_high_watermark"] * len(cut.beyond)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "no file replication-offset-checkpoint"),
        ("", "no file replication-offset-checkpoint"),
        ("0\n2\n__consumer_offsets 0 4\n", "is damaged and not used"),
        ("0\n1\n__consumer_offsets 1 4\n", "has no high watermark of partition 0"),
        ("0\n1\n__consumer_offsets 0 21\n", "it is of a later moment"),
        ("0\n1\n__consumer_offsets 0 13\n", "lies inside of the batch from 12 to 13"),
    ],
)
def test_high_watermark_that_cannot_be_is_refused(tmp_path: Path, text: str | None, why: str) -> None:
    with pytest.raises(InputError, match=why):
        cut_at_high_watermarks(log_with_watermark(tmp_path, text))
