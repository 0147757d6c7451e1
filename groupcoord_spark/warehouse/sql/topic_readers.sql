-- Who reads a topic: one row for each group that has a committed offset of the topic, a member with a partition of it, or a
-- subscription. subscribed: name (a member names the topic), expression (an expression matches it), NULL (no member subscribes, or the
-- subscription cannot be read). last_commit is the newest commit that is still stored.
WITH committed AS (
  SELECT cluster, group_id, topic, COUNT(*) AS committed_partitions, MAX(commit_timestamp) AS last_commit
  FROM committed_offsets GROUP BY cluster, group_id, topic
),
assigned AS (
  SELECT cluster, group_id, topic, COUNT(DISTINCT partition) AS assigned_partitions, COUNT(DISTINCT member_id) AS members
  FROM assignments WHERE kind = 'current' AND topic IS NOT NULL
  GROUP BY cluster, group_id, topic
),
subscribed AS (
  SELECT cluster, group_id, topic, MAX(by_name) AS by_name
  FROM (
    SELECT g.cluster, g.group_id, s.topic, 0 AS by_name FROM groups g CROSS JOIN UNNEST(g.subscribed_topics) AS s (topic)
    UNION ALL
    SELECT m.cluster, m.group_id, s.topic, 1 FROM members m CROSS JOIN UNNEST(m.subscribed_topics) AS s (topic)
  ) named
  GROUP BY cluster, group_id, topic
),
readers AS (
  SELECT cluster, group_id, topic FROM committed
  UNION SELECT cluster, group_id, topic FROM assigned
  UNION SELECT cluster, group_id, topic FROM subscribed
)
SELECT r.cluster, r.topic, r.group_id, g.group_type, g.state,
  COALESCE(c.committed_partitions, 0) AS committed_partitions,
  COALESCE(a.assigned_partitions, 0) AS assigned_partitions,
  COALESCE(a.members, 0) AS members,
  CASE WHEN s.by_name = 1 THEN 'name' WHEN s.by_name = 0 THEN 'expression' END AS subscribed,
  c.last_commit
FROM readers r
LEFT JOIN groups g ON g.cluster = r.cluster AND g.group_id = r.group_id
LEFT JOIN committed c ON c.cluster = r.cluster AND c.group_id = r.group_id AND c.topic = r.topic
LEFT JOIN assigned a ON a.cluster = r.cluster AND a.group_id = r.group_id AND a.topic = r.topic
LEFT JOIN subscribed s ON s.cluster = r.cluster AND s.group_id = r.group_id AND s.topic = r.topic
