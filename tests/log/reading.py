"""Reads what the tests have written, into plain Python values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from groupcoord_spark.log import Lost, PlacedDoubt, Segment, plan_logs, read_segment

SMALL_CHUNK = 700
"""Bytes of a chunk so small that every window, border and carry is met by files of a few kilobytes."""


class Row(NamedTuple):
    record_offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    control_type: int
    position: int


@dataclass
class Read:
    rows: list[Row]
    lost: list[Lost]
    doubts: list[PlacedDoubt]
    bytes: int
    chunks: int

    @property
    def codes(self) -> list[str]:
        return [each.code for each in [*self.lost, *self.doubts]]

    @property
    def offsets(self) -> list[int]:
        return [row.record_offset for row in self.rows]

    @property
    def keys(self) -> list[bytes | None]:
        return [row.key for row in self.rows]


def read(segments: Iterable[Segment], *, chunk_bytes: int = 1 << 25) -> Read:
    out = Read([], [], [], 0, 0)
    for segment in segments:
        for chunk in read_segment(segment, chunk_bytes=chunk_bytes):
            records = chunk.records
            columns = (
                records.record_offset,
                records.timestamp_ms,
                records.producer_id,
                records.producer_epoch,
                records.is_transactional,
                records.control_type,
                records.position,
            )
            for i, (offset, timestamp, producer, epoch, transactional, control, position) in enumerate(
                zip(*(column.tolist() for column in columns), strict=True)
            ):
                row = Row(offset, timestamp, records.key.row(i), records.value.row(i), producer, epoch, transactional, control, position)
                out.rows.append(row)
            out.lost += chunk.lost
            out.doubts += chunk.doubts
            out.bytes += chunk.bytes
            out.chunks += 1
    return out


def read_file(path: Path, *, next_base: int | None = None, chunk_bytes: int = 1 << 25, **more: int) -> Read:
    """Return one file as a worker reads it."""
    segment = Segment(str(path), path.stat().st_size, 0, int(path.name[:20]), next_base, **more)
    return read([segment], chunk_bytes=chunk_bytes)


def read_logs(*inputs: Path, chunk_bytes: int = 1 << 25) -> Read:
    """Return all partitions that a plan has, its own doubts included."""
    plan = plan_logs([str(each) for each in inputs])
    out = read((segment for partition in plan.partitions for segment in partition.segments), chunk_bytes=chunk_bytes)
    out.doubts[:0] = plan.doubts
    return out
