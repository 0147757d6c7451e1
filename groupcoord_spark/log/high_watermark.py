"""Cuts logs at the high watermark that their broker wrote down: the records from there on may vanish when another broker leads.

A coordinator of Kafka 0.10 loaded records up to the high watermark; later ones load to the end of the log.
"""

from collections.abc import Mapping
from dataclasses import replace

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.broker_dir.broker_files import HIGH_WATERMARKS, read_checkpoint_of
from groupcoord_spark.log.damage import PlacedDoubt
from groupcoord_spark.log.directory import LogPlan, PartitionLog
from groupcoord_spark.log.segment import CHUNK_BYTES, Segment
from groupcoord_spark.storage.location import Location

_LEAVE_OUT = "or leave --up-to-high-watermark out"


def cut_at_high_watermarks(plan: LogPlan) -> LogPlan:
    """Return the plan with each log cut at the high watermark of its log directory; ``beyond`` counts the offsets left out.

    plan: with all files looked at (``PartitionLog.is_surveyed``).

    Raises InputError where a high watermark is not known, is damaged, or does not fit the log.
    """
    watermarks: dict[str, Mapping[int, int]] = {}
    partitions, beyond = [], {}
    doubts = list(plan.doubts)
    for log in plan.partitions:
        if not log.segments:
            partitions.append(log)
            continue
        log_dir = Location.of(log.segments[0].uri).parent().parent()
        if log_dir.uri not in watermarks:
            watermarks[log_dir.uri] = _high_watermarks(log_dir)
        watermark = watermarks[log_dir.uri].get(log.offsets_partition)
        source = log_dir.child(HIGH_WATERMARKS).shown
        if watermark is None:
            raise InputError(
                f"{source} has no high watermark of partition {log.offsets_partition}. Copy it with the segments, {_LEAVE_OUT}."
            )
        if watermark > log.end_offset:
            raise InputError(
                f"{source} has the high watermark {watermark} for partition {log.offsets_partition}, and its segments end at"
                f" {log.end_offset}: it is of a later moment. Copy both at one time, {_LEAVE_OUT}."
            )
        partitions.append(_cut(log, watermark, source))
        if count := log.end_offset - watermark:
            beyond[log.offsets_partition] = count
            records = "1 offset lies" if count == 1 else f"{count} offsets lie"
            detail = f"{records} at or beyond the high watermark {watermark}, up to {log.end_offset}, and are not read."
            doubts.append(PlacedDoubt("beyond_high_watermark", detail, source, log.offsets_partition, 0, 0, watermark))
    return replace(plan, partitions=tuple(partitions), doubts=tuple(doubts), beyond=beyond)


def _high_watermarks(log_dir: Location) -> Mapping[int, int]:
    checkpoint = read_checkpoint_of(log_dir, HIGH_WATERMARKS)
    if checkpoint.offsets:
        return checkpoint.offsets
    why = checkpoint.damage or f"{log_dir.shown}: no file {HIGH_WATERMARKS} with the offsets topic in it lies next to the partitions."
    raise InputError(f"{why} So no high watermark is known: copy that file too, {_LEAVE_OUT}.")


def _cut(log: PartitionLog, watermark: int, source: str) -> PartitionLog:
    """Return the log below the watermark."""
    if watermark == log.end_offset:
        return log
    segments: list[Segment] = []
    end_file = end_position = None
    for segment in log.segments:
        if segment.base_offset >= watermark:
            continue
        position = _position_of(segment, watermark, source)
        if position is not None:
            end_file, end_position = segment.base_offset, position
            segment = replace(segment, size=position)
        if segment.bytes:
            segments.append(segment)
    if segments:
        segments[-1] = replace(segments[-1], next_base_offset=None)
    size = sum(segment.size for segment in segments)
    cut = replace(log, segments=tuple(segments), end_offset=watermark, bytes=size)
    return replace(cut, end_file=end_file, end_position=end_position, newest_epoch=None)


def _position_of(segment: Segment, watermark: int, source: str) -> int | None:
    """Return the position of the first batch at or beyond the watermark, or None if the segment has none.

    Raises InputError where the watermark lies inside of a batch, which is written and replicated as a whole.
    """
    if segment.next_base_offset is not None and segment.next_base_offset <= watermark:
        return None
    with segment.finder(CHUNK_BYTES) as finder:
        for section in finder.sections(segment.start):
            entries = section.entries
            for row in (entries.last_offset >= watermark).nonzero()[0][:1].tolist():
                first, last = int(entries.first_offset[row]), int(entries.last_offset[row])
                if first < watermark and int(entries.magic[row]) == 2:
                    raise InputError(
                        f"{source} has the high watermark {watermark} for partition {segment.offsets_partition}, which lies inside of"
                        f" the batch from {first} to {last}: it is damaged or of another log. Copy it again, {_LEAVE_OUT}."
                    )
                return int(entries.position[row])
    return None
