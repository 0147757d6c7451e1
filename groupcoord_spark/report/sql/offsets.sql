-- Every committed offset with its lag and what becomes of it; the groups with most problems first.
SELECT o.group_id, o.topic, o.partition, o.committed_offset, l.lag, l.remark,
  o.commit_timestamp AS committed_at, e.expires_at, e.blocked_by AS stays_because, o.metadata
FROM committed_offsets o
JOIN shown_groups g ON g.group_id = o.group_id
LEFT JOIN lag l ON l.group_id = o.group_id AND l.topic = o.topic AND l.partition = o.partition
LEFT JOIN offset_expirations e ON e.group_id = o.group_id AND e.topic = o.topic AND e.partition = o.partition
ORDER BY g.place, o.topic, o.partition
