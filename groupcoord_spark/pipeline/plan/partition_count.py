"""Number of partitions of ``__consumer_offsets``, from group ids and the partitions in which the groups are: no file contains it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from groupcoord_spark.log import LogPlan, PartitionLog, read_segment
from groupcoord_spark.log.files.storage import side_by_side
from groupcoord_spark.log.partition_count import best_partition_count
from groupcoord_spark.protocol import DecodeError, decode_key
from groupcoord_spark.protocol.partitioner import partitioning_hash
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD

SAMPLE_BYTES = 32 << 10
SAMPLED_PARTITIONS = 64


def placed_groups_of(plan: LogPlan) -> list[tuple[int, int]]:
    """(hash of the group id, offsets partition of the group), from the first records of up to SAMPLED_PARTITIONS partitions."""

    def of_partition(log: PartitionLog) -> list[tuple[int, int]]:
        beginning = replace(log.segments[0], size=min(log.segments[0].size, SAMPLE_BYTES))
        keys: set[bytes | None] = set()
        for chunk in read_segment(beginning):
            keys |= set(chunk.records.key.take(chunk.records.control_type == NOT_A_CONTROL_RECORD).to_arrow().to_pylist())
        return [(group_hash, log.offsets_partition) for group_hash in group_hashes(keys)]

    sampled = [log for log in plan.partitions if log.segments][:SAMPLED_PARTITIONS]
    return [placed for of_log in side_by_side(of_partition, sampled, plan.files_at_once) for placed in of_log]


def likely_partition_count(plan: LogPlan, placed_groups: Iterable[tuple[int, int]] | None = None) -> int:
    """The partition count that explains best where the groups are. placed_groups: None: ``placed_groups_of`` the plan."""
    lowest = max((partition.offsets_partition for partition in plan.partitions), default=0) + 1
    return best_partition_count(placed_groups_of(plan) if placed_groups is None else placed_groups, lowest)


def group_hashes(keys: Iterable[bytes | None]) -> set[int]:
    """Hash of each group id in the keys: Kafka divides the hash by the partition count, and the remainder is the partition of the group.

    Keys without a group id are left out.
    """
    hashes = set()
    for key in keys:
        try:
            group_id = decode_key(key).fields["group_id"]
        except (DecodeError, KeyError):
            continue
        hashes.add(partitioning_hash(group_id))
    return hashes
