-- Topics that were deleted and created again. evidence: topic_id (commits of the topic carry several topic ids), tombstones (the offsets of
-- the topic were removed as for a deleted topic, and somebody committed to it afterwards).
-- stale_offsets: committed offsets that still carry an older topic id. Compaction takes older commits, and with them older topic ids.
WITH ids AS (
  SELECT cluster, topic, topic_id, MIN(record_timestamp) AS first_at, MAX(record_timestamp) AS last_at
  FROM offset_commits
  WHERE topic_id IS NOT NULL
  GROUP BY cluster, topic, topic_id
),
ranked AS (
  SELECT i.*,
    ROW_NUMBER() OVER (PARTITION BY cluster, topic ORDER BY first_at DESC, topic_id) AS age,
    COUNT(*) OVER (PARTITION BY cluster, topic) AS topic_ids
  FROM ids i
),
newest AS (
  SELECT cluster, topic, topic_id, first_at, topic_ids FROM ranked WHERE age = 1 AND topic_ids > 1
),
stale AS (
  SELECT n.cluster, n.topic, COUNT(c.group_id) AS stale_offsets
  FROM newest n
  LEFT JOIN committed_offsets c ON c.cluster = n.cluster AND c.topic = n.topic AND c.topic_id <> n.topic_id
  GROUP BY n.cluster, n.topic
),
deleted AS (
  SELECT t.cluster, t.topic, MAX(t.record_timestamp) AS deleted_at
  FROM tombstone_causes t
  LEFT JOIN newest n ON n.cluster = t.cluster AND n.topic = t.topic
  WHERE t.cause = 'topic_deleted' AND n.topic IS NULL
  GROUP BY t.cluster, t.topic
),
again AS (
  SELECT d.cluster, d.topic, MIN(c.record_timestamp) AS first_at
  FROM deleted d
  JOIN offset_commits c ON c.cluster = d.cluster AND c.topic = d.topic AND NOT c.is_tombstone AND c.record_timestamp > d.deleted_at
  GROUP BY d.cluster, d.topic
)
SELECT n.cluster, n.topic, 'topic_id' AS evidence, n.topic_ids, n.topic_id AS newest_topic_id, n.first_at AS first_commit_after, s.stale_offsets
FROM newest n
JOIN stale s ON s.cluster = n.cluster AND s.topic = n.topic
UNION ALL
SELECT a.cluster, a.topic, 'tombstones', CAST(NULL AS BIGINT), CAST(NULL AS VARCHAR(22)), a.first_at, CAST(NULL AS BIGINT)
FROM again a
