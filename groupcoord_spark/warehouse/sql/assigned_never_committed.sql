-- Partitions that a member has and of which the group has no committed offset. has_pending: an open transaction has one. commits counts
-- the commits of the partition in the history: above 0, an offset was there and was removed, or its transaction did not commit.
-- Share groups are left out: their positions are in another topic.
-- completeness: share of the records of the offsets partition that the history has. Below 1, commits is a lower bound.
WITH committed AS (
  SELECT cluster, group_id, topic, partition, COUNT(*) AS commits
  FROM offset_commits WHERE NOT is_tombstone
  GROUP BY cluster, group_id, topic, partition
),
pending AS (
  SELECT DISTINCT cluster, group_id, topic, partition FROM pending_offsets
)
SELECT a.cluster, a.group_id, a.topic, a.partition, a.member_id, m.client_id, m.client_host,
  CASE WHEN p.topic IS NULL THEN FALSE ELSE TRUE END AS has_pending,
  COALESCE(c.commits, 0) AS commits,
  l.completeness
FROM assignments a
JOIN groups g ON g.cluster = a.cluster AND g.group_id = a.group_id AND g.group_type <> 'share'
LEFT JOIN committed_offsets o ON o.cluster = a.cluster AND o.group_id = a.group_id AND o.topic = a.topic AND o.partition = a.partition
LEFT JOIN members m ON m.cluster = a.cluster AND m.group_id = a.group_id AND m.member_id = a.member_id
LEFT JOIN committed c ON c.cluster = a.cluster AND c.group_id = a.group_id AND c.topic = a.topic AND c.partition = a.partition
LEFT JOIN pending p ON p.cluster = a.cluster AND p.group_id = a.group_id AND p.topic = a.topic AND p.partition = a.partition
LEFT JOIN offsets_partitions q ON q.cluster = a.cluster AND q.offsets_partition = a.offsets_partition
LEFT JOIN log_completeness l ON l.cluster = q.cluster AND l.offsets_partition = q.offsets_partition AND l.incarnation = q.incarnation
WHERE a.kind = 'current' AND a.topic IS NOT NULL AND o.topic IS NULL
