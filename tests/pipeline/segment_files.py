"""Writes logs of tests/pipeline/logs.py as a broker would: batches in segment files, several to a partition."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.log.log_writer import T0, Rec, batch, write_segment
from tests.pipeline.logs import LogRecord

TRANSACTIONAL, CONTROL = 0x10, 0x20
MARKER_VALUE = struct.pack(">hi", 0, 11)


def batch_of(records: Sequence[LogRecord], *, codec: int = 0, starts_at_ms: int = T0) -> bytes:
    """Return one batch of records that share their producer. A record's timestamp is its offset after ``starts_at_ms``."""
    first = records[0]
    is_marker = first.control_type >= 0
    written = [
        Rec(
            struct.pack(">hh", 0, record.control_type) if is_marker else record.key,
            MARKER_VALUE if is_marker else record.value,
            offset_delta=record.record_offset - first.record_offset,
            timestamp_delta=record.record_offset - first.record_offset,
        )
        for record in records
    ]
    return batch(
        first.record_offset,
        written,
        codec=codec,
        attributes=(TRANSACTIONAL if first.is_transactional else 0) | (CONTROL if is_marker else 0),
        base_timestamp=starts_at_ms + first.record_offset,
        producer_id=first.producer_id,
        producer_epoch=0,
    )


def batches_of(log: Iterable[LogRecord], largest: int) -> Iterator[list[LogRecord]]:
    """Yield the log cut into batches of up to ``largest`` records; a marker has a batch of its own."""
    waiting: list[LogRecord] = []
    for record in log:
        is_other = waiting and (record.producer_id, record.is_transactional) != (waiting[0].producer_id, waiting[0].is_transactional)
        if waiting and (is_other or len(waiting) == largest or record.control_type >= 0 or waiting[0].control_type >= 0):
            yield waiting
            waiting = []
        waiting.append(record)
    if waiting:
        yield waiting


def write_log(
    directory: Path,
    log: Sequence[LogRecord],
    *,
    offsets_partition: int = 0,
    segments: int = 1,
    largest_batch: int = 5,
    codecs: Sequence[int] = (0,),
    starts_at_ms: int = T0,
) -> list[Path]:
    """Return a partition's directory under ``directory``: about ``segments`` files of as many batches each, their codecs taking turns."""
    batches = list(batches_of(log, largest_batch))
    a_file = -(-len(batches) // segments)
    files = []
    for first in range(0, len(batches), a_file):
        part = batches[first : first + a_file]
        entries = [batch_of(each, codec=codecs[i % len(codecs)], starts_at_ms=starts_at_ms) for i, each in enumerate(part)]
        files.append(write_segment(directory, entries, base_offset=part[0][0].record_offset, offsets_partition=offsets_partition))
    return files


def random_codecs(rng: random.Random) -> list[int]:
    return [rng.randrange(5) for _ in range(3)]
