"""How many partitions ``__consumer_offsets`` has: no file says it, but a group's id and the partition it lies in do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from groupcoord_spark.log import LogPlan, read_segment
from groupcoord_spark.protocol import DecodeError, decode_key, java_string_hash
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD

KAFKAS_DEFAULT = 50
MOST_PARTITIONS = 1_000
SAMPLE_BYTES = 32 << 10
SAMPLED_PARTITIONS = 64


def likely_partition_count(plan: LogPlan) -> int:
    """The partition count that agrees best with where groups lie, judged by the beginning of some partitions' logs."""
    found: list[tuple[int, int]] = []
    for partition in [each for each in plan.partitions if each.segments][:SAMPLED_PARTITIONS]:
        beginning = replace(partition.segments[0], size=min(partition.segments[0].size, SAMPLE_BYTES))
        for chunk in read_segment(beginning):
            keys = set(chunk.records.key.take(chunk.records.control_type == NOT_A_CONTROL_RECORD).to_arrow().to_pylist())
            found += [(group_hash, partition.offsets_partition) for group_hash in group_hashes(keys)]
    least = max((partition.offsets_partition for partition in plan.partitions), default=0) + 1
    return best_partition_count(found, least)


def best_partition_count(found: Iterable[tuple[int, int]], least: int) -> int:
    """The count from ``least`` on under which most (hash, offsets partition) agree; of equals Kafka's default, then the smallest."""
    pairs = np.array(list(found), np.int64).reshape(-1, 2)
    hashes, lies_in = pairs[:, 0], pairs[:, 1]

    def agreement(count: int) -> tuple[int, bool, int]:
        return int(np.count_nonzero(hashes % count == lies_in)), count == KAFKAS_DEFAULT, -count

    return max(range(least, max(MOST_PARTITIONS, least) + 1), key=agreement)


def group_hashes(keys: Iterable[bytes | None]) -> set[int]:
    """What the partition of each group is the remainder of; keys that name no group are left out."""
    hashes = set()
    for key in keys:
        try:
            group_id = decode_key(key).fields["group_id"]
        except (DecodeError, KeyError):
            continue
        # in 32 bits, as Java has it, the absolute value of the smallest integer is no positive number, and counts as 0
        hashes.add(abs(java_string_hash(group_id)) & 0x7FFFFFFF)
    return hashes
