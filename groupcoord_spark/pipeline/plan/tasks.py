"""Split a run into Spark tasks: which task reads which segments, and how many tasks replay and write."""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from pyspark.sql import SparkSession

from groupcoord_spark.log import Segment, check_range, possible_ranges, ranges_to_read
from groupcoord_spark.pipeline.division import Division, in_tasks
from groupcoord_spark.pipeline.plan.run_plan import RunPlan
from groupcoord_spark.pipeline.read.reader import Work
from groupcoord_spark.sources.rows import UNKNOWN_PARTITION
from groupcoord_spark.spark.job_progress import Expected
from groupcoord_spark.spark.stage_names import describe_job
from groupcoord_spark.storage.location import filesystem_of, side_by_side
from groupcoord_spark.storage.object_store import FILES_AT_ONCE

RANGE_BYTES: Final = 128 << 20
"""Size of a range: some seconds of reading. Smaller ranges gain less than the extra Spark job costs."""

WRITTEN_ROW_BYTES: Final = 4 << 10
"""What a row of an input other than segments counts for the number of writers: they also write its history, a million rows each."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Into which tasks a run is divided.

    reading: for each reading task its work. whole_partitions: offsets partitions whose segments are all in one sequence. replays, writers:
    numbers of tasks. expected: the work of the run; None: it is not known.
    """

    reading: Sequence[Work]
    whole_partitions: frozenset[int]
    replays: int
    writers: int
    expected: Expected | None


def tasks_of(planned: RunPlan, spark: SparkSession, run: str) -> Tasks:
    """Return the tasks of a run for the bytes to read and the available cores. ``run`` is the run's name in Spark's UI."""
    division = Division.of(spark)
    with describe_job(spark, run, "split large segments"):
        segments = split_large_segments(planned.segments, spark, division)
    carried = planned.carry_over.reads_from
    partitions = {segment.offsets_partition for segment in segments} | {piece.offsets_partition for piece in planned.history}
    partitions |= carried.keys()
    written_bytes = _bytes(segments)
    if planned.rows is not None:
        partitions |= {UNKNOWN_PARTITION, *(log.offsets_partition for log in planned.rows.log.partitions)}
        written_bytes += planned.rows.rows * WRITTEN_ROW_BYTES
    replays = division.replays(len(partitions), int(spark.conf.get("spark.sql.shuffle.partitions") or division.cores))
    writers = division.writers(written_bytes, len(partitions))
    of_segments = read_tasks(segments, division) if segments else []
    reading = [*of_segments, *planned.history, *([None] if carried else [])]
    expected = None if planned.rows is not None else Expected(_bytes(segments), len(reading), replays + writers)
    return Tasks(reading, partitions_in_one_sequence(of_segments), replays, writers, expected)


def split_large_segments(
    segments: Sequence[Segment], spark: SparkSession, division: Division, range_bytes: int = RANGE_BYTES
) -> list[Segment]:
    """Return the segments with each large one replaced by ranges of about ``range_bytes`` if the range borders are certain.

    A segment is large if it is more than half of what one core has to read, or on a cluster one task; smaller segments balance without
    ranges. To be certain of the borders, a Spark job first reads every range and checks its batches.
    """
    total = sum(segment.bytes for segment in segments)
    readers = division.reading_tasks(total) if division.is_cluster else division.cores
    is_large = [readers > 1 and 2 * readers * segment.bytes > total for segment in segments]
    large = [segment for segment, is_one in zip(segments, is_large, strict=True) if is_one]
    of_large = filesystem_of(segment.uri for segment in large)
    ranges = iter(side_by_side(lambda segment: possible_ranges(segment, range_bytes), large, of_large, FILES_AT_ONCE))
    parts = [next(ranges) if is_one else [segment] for segment, is_one in zip(segments, is_large, strict=True)]
    to_walk = [(part, part is several[-1]) for several in parts if len(several) > 1 for part in several]
    if not to_walk:
        return list(segments)

    walked = iter(in_tasks(spark, lambda part: check_range(part[0], ends_file=part[1]), to_walk))
    read: list[Segment] = []
    for segment, several in zip(segments, parts, strict=True):
        read += ranges_to_read(segment, several, [next(walked) for _ in several]) if len(several) > 1 else [segment]
    return read


def read_tasks(segments: Sequence[Segment], division: Division) -> list[list[list[Segment]]]:
    """For each reading task its sequences of consecutive segments of one offsets partition; tasks are about equal, the largest first.

    A sequence is as long as equal tasks allow, because a reader drops a record only if its successor is in the same sequence.
    """
    total = _bytes(segments)
    count, most_bytes = division.reading_tasks(total), division.sequence_bytes(total)
    sequences = [sequence for log in _by_partition(segments) for sequence in _sequences(log, most_bytes)]
    shares: list[tuple[int, int, list[list[Segment]]]] = [(0, task, []) for task in range(min(len(sequences), count))]
    for sequence in sorted(sequences, key=lambda sequence: -_bytes(sequence)):
        size, task, share = heapq.heappop(shares)
        share.append(sequence)
        heapq.heappush(shares, (size + _bytes(sequence), task, share))
    largest_first = sorted(shares, key=lambda share: -share[0])
    return [sorted(share, key=lambda sequence: (sequence[0].offsets_partition, sequence[0].base_offset)) for _, _, share in largest_first]


def partitions_in_one_sequence(tasks: Iterable[Iterable[Sequence[Segment]]]) -> frozenset[int]:
    """Offsets partitions whose segments are all in one sequence."""
    sequences = Counter(sequence[0].offsets_partition for task in tasks for sequence in task)
    return frozenset(offsets_partition for offsets_partition, count in sequences.items() if count == 1)


def _by_partition(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Return the segments of each offsets partition by base offset."""
    in_order = sorted(segments, key=lambda segment: (segment.offsets_partition, segment.base_offset))
    return [list(of_partition) for _, of_partition in groupby(in_order, key=lambda segment: segment.offsets_partition)]


def _sequences(segments: Sequence[Segment], most_bytes: float) -> list[list[Segment]]:
    """Return the segments of one offsets partition in sequences of similar size, at most about ``most_bytes``."""
    wanted = _bytes(segments) / max(1, math.ceil(_bytes(segments) / max(most_bytes, 1)))
    sequences: list[list[Segment]] = [[]]
    for segment in segments:
        if _bytes(sequences[-1]) + segment.bytes / 2 > wanted and sequences[-1]:
            sequences.append([])
        sequences[-1].append(segment)
    return sequences


def _bytes(segments: Iterable[Segment]) -> int:
    return sum(segment.bytes for segment in segments)
