"""Counts the records of a chunk for decode_coverage and the summary of the run."""

import numpy as np

from groupcoord_spark.log import Chunk
from groupcoord_spark.log.partition_count import partitioning_hashes
from groupcoord_spark.pipeline.exchange.counts import PartitionCounts, add_kinds, counts_by_kind
from groupcoord_spark.pipeline.read.decode import UNKNOWN_KEY_TYPE, DecodedChunk
from groupcoord_spark.protocol.slices import Mask


def count_chunk(
    counts: PartitionCounts,
    chunk: Chunk,
    decoded: DecodedChunk,
    offsets_partition: int,
    partition_count: int | None,
    counted: tuple[int, int] | None,
) -> None:
    """Add a chunk's records, and its lost and doubtful places, to the counts of its offsets partition.

    partition_count: of ``__consumer_offsets``; None: no record is counted as misplaced. counted: first and end offset of what earlier
    runs have counted.
    """
    records = chunk.records
    counts.bytes += chunk.bytes
    for lost in chunk.lost:
        lost_records = 1 if lost.records is None else lost.records
        counts.lost += lost_records
        counts.reasons[lost.code] += lost_records
        if counted is None or lost.record_offset is None or not counted[0] <= lost.record_offset < counted[1]:
            counts.new_lost += lost_records
    counts.doubts += len(chunk.doubts) + len(decoded.findings)
    counts.reasons.update({code: count for code, count in decoded.faults.counts().items() if code != UNKNOWN_KEY_TYPE})
    if not len(records):
        return
    is_data = ~decoded.kinds.is_control
    counts.control_records += len(is_data) - int(np.count_nonzero(is_data))
    sizes = records.key.lengths() + records.value.lengths()
    is_misplaced = _is_misplaced(decoded, offsets_partition, partition_count)
    newest = int(records.timestamp_ms.max())
    counts.reach(int(records.record_offset[0]), int(records.record_offset[-1]) + 1, newest if newest >= 0 else None)
    columns = (decoded.stored_key_type, decoded.value_version, sizes, decoded.decodes, is_misplaced)
    of_chunk = of_new = counts_by_kind(*(column[is_data] for column in columns))
    if counted is not None:
        is_new = is_data & ((records.record_offset < counted[0]) | (records.record_offset >= counted[1]))
        of_new = counts_by_kind(*(column[is_new] for column in columns))
    add_kinds(counts.by_kind, of_chunk)
    add_kinds(counts.new_by_kind, of_new)


def _is_misplaced(decoded: DecodedChunk, offsets_partition: int, partition_count: int | None) -> Mask:
    """bool[n]: the hash of the record's group id belongs to another offsets partition."""
    if partition_count is None:
        return np.zeros(len(decoded.kinds), np.bool_)
    group_ids = decoded.names.group_ids.to_pylist()
    of_group = partitioning_hashes(group_ids) % partition_count != offsets_partition
    misplaced: Mask = np.append(of_group, np.False_)[decoded.kinds.group_code]
    return misplaced
