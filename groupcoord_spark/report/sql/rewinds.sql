-- Committed offsets that went back, the furthest first.
SELECT group_id, topic, partition, rewound_at, kind, from_committed_offset, to_committed_offset, back_by, member_count, partitions_at_once,
  offsets_partition, record_offset, completeness
FROM rewinds
ORDER BY back_by DESC, rewound_at, group_id, topic, partition
