-- What happened to each group, by its own records; the groups with most problems first, the newest event of a group first.
SELECT e.group_id, e.at, e.event, e.what
FROM (
  SELECT group_id, record_timestamp AS at, 'rebalance' AS event,
    CONCAT(kind, ' ', to_generation, ', members: ', member_count, ', ', cause, ' (', confidence, ')') AS what, offsets_partition, record_offset
  FROM rebalances WHERE kind <> 'assignment'
  UNION ALL
  SELECT group_id, rewound_at, 'rewind', CONCAT(topic, ' ', partition, ' from ', from_committed_offset, ' to ', to_committed_offset, ' (', kind, ')'),
    offsets_partition, record_offset
  FROM shown_rewinds
  UNION ALL
  SELECT group_id, skipped_at, 'skip', CONCAT(topic, ' ', partition, ' from ', from_committed_offset, ' to ', to_committed_offset,
    ' (', cause, ', ', certainty, ')'), offsets_partition, record_offset
  FROM shown_skips
  UNION ALL
  SELECT group_id, record_timestamp, 'removed', CONCAT(CASE WHEN topic IS NULL THEN 'the group' ELSE CONCAT(topic, ' ', partition) END, ': ', cause),
    offsets_partition, record_offset
  FROM tombstone_causes
) e
LEFT JOIN shown_groups g ON g.group_id = e.group_id
ORDER BY g.place NULLS LAST, e.group_id, e.at DESC, e.offsets_partition, e.record_offset DESC
