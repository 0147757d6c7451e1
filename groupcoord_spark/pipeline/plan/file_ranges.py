"""Segments so large that the run would wait for one reader are cut into ranges, which several readers read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from groupcoord_spark.log import Segment, check_range, possible_ranges, ranges_to_read
from groupcoord_spark.log.files.object_store import FILES_AT_ONCE
from groupcoord_spark.log.files.storage import side_by_side
from groupcoord_spark.pipeline.division import Division, in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_BYTES: Final = 128 << 20
"""Size of a range: some seconds of reading. Smaller ranges gain less than the extra Spark job costs."""


def split_large_segments(
    segments: Sequence[Segment], spark: SparkSession, division: Division, range_bytes: int = RANGE_BYTES
) -> list[Segment]:
    """The segments, with each large one replaced by ranges of about ``range_bytes`` if the borders of its ranges are certain.

    A segment is large if it is more than half of what one core has to read, or on a cluster one task; smaller segments balance without
    ranges. To be certain of the borders, a Spark job first reads every range and checks its batches.
    """
    total = sum(segment.bytes for segment in segments)
    readers = division.reading_tasks(total) if division.is_cluster else division.cores
    is_large = [readers > 1 and 2 * readers * segment.bytes > total for segment in segments]
    large = [segment for segment, is_one in zip(segments, is_large, strict=True) if is_one]
    ranges = iter(side_by_side(lambda segment: possible_ranges(segment, range_bytes), large, FILES_AT_ONCE))
    parts = [next(ranges) if is_one else [segment] for segment, is_one in zip(segments, is_large, strict=True)]
    to_walk = [(part, part is several[-1]) for several in parts if len(several) > 1 for part in several]
    if not to_walk:
        return list(segments)

    walked = iter(in_tasks(spark, lambda part: check_range(part[0], ends_file=part[1]), to_walk))
    read: list[Segment] = []
    for segment, several in zip(segments, parts, strict=True):
        read += ranges_to_read(segment, several, [next(walked) for _ in several]) if len(several) > 1 else [segment]
    return read
