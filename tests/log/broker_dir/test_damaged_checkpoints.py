"""Checkpoints with random damage: what they say is used as it is written and fits the log, or is not used, and is said."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import cut_at_high_watermarks, plan_logs, read_segment
from groupcoord_spark.log.broker_dir.broker_files import DamagedFileError, read_offset_checkpoint
from groupcoord_spark.log.directory import LogPlan
from tests.log.log_writer import Rec, batch, write_segment

END = 20
SOUND = "0\n3\norders 0 9\n__consumer_offsets 0 {}\n__consumer_offsets 1 7\n"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Single records up to offset 20 in two segments."""
    place = tmp_path_factory.mktemp("checkpoints")
    for base in (0, 10):
        write_segment(place, [batch(offset, [Rec(b"k")]) for offset in range(base, base + 10)], base_offset=base)
    return place


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a checkpoint, most often cut, changed at some bytes, or have bytes put in."""
    data = bytearray(SOUND.format(draw(st.integers(0, 2 * END))), "ascii")
    rng = random.Random(draw(st.integers(0, 2**32)))
    match draw(st.sampled_from(["sound", "cut", "changed", "longer"])):
        case "cut":
            del data[rng.randrange(len(data)) :]
        case "changed":
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.choice(b"0123456789 \n-_cx\xff")
        case "longer":
            at = rng.randrange(len(data) + 1)
            data[at:at] = bytes(rng.choice(b"0123456789 \n") for _ in range(rng.randint(1, 4)))
    return bytes(data)


def named_offset(data: bytes) -> int | None:
    """Return what a sound checkpoint says of partition 0; None where it says nothing of it, or is damaged."""
    try:
        return read_offset_checkpoint(data).get(0) if data else None
    except DamagedFileError:
        return None


def offsets_of(plan: LogPlan) -> Iterator[int]:
    for log in plan.partitions:
        for segment in log.segments:
            for chunk in read_segment(segment):
                yield from chunk.records.record_offset.tolist()


@given(data=damaged())
def test_log_start_that_is_not_used_leaves_out_no_record(log_dir: Path, data: bytes) -> None:
    checkpoint = log_dir / "log-start-offset-checkpoint"
    checkpoint.write_bytes(data)
    plan = plan_logs([str(log_dir)])
    checkpoint.unlink()
    start = named_offset(data)
    is_used = start is not None and start <= END
    assert list(offsets_of(plan)) == list(range(start if is_used and start is not None else 0, END))
    if data and start is not None and not is_used:
        assert [doubt.code for doubt in plan.doubts] == ["log_start_not_used"]
    assert {doubt.code for doubt in plan.doubts} <= {"log_start_not_used"}


@given(data=damaged())
def test_high_watermark_is_used_or_refused(log_dir: Path, data: bytes) -> None:
    checkpoint = log_dir / "replication-offset-checkpoint"
    checkpoint.write_bytes(data)
    watermark = named_offset(data)
    try:
        cut = cut_at_high_watermarks(plan_logs([str(log_dir)]))
    except InputError:
        assert watermark is None or watermark > END
    else:
        assert watermark is not None
        assert list(offsets_of(cut)) == list(range(watermark))
        assert [doubt.code for doubt in cut.doubts] == (["beyond_high_watermark"] if watermark < END else [])
    finally:
        checkpoint.unlink()
