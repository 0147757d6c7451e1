-- Committed offsets that went back, the furthest first.
SELECT group_id, topic, partition, rewound_at, kind, certainty, from_committed_offset, to_committed_offset, back_by, records_reread,
  member_count, partitions_at_once, offsets_partition, record_offset, evidence
FROM rewinds
ORDER BY back_by DESC, rewound_at, group_id, topic, partition
