-- Topics that nobody reads now although groups have committed offsets of them: no group with members has a partition of the topic or
-- subscribes to it, and no group whose subscription cannot be known has members and an offset of it. Whether the topic still exists is in
-- no record of __consumer_offsets.
WITH live AS (
  SELECT DISTINCT r.cluster, r.topic
  FROM topic_readers r
  JOIN groups g ON g.cluster = r.cluster AND g.group_id = r.group_id
  WHERE g.member_count > 0 AND (r.assigned_partitions > 0 OR r.subscribed IS NOT NULL OR g.subscribed_topics IS NULL)
)
SELECT c.cluster, c.topic, COUNT(DISTINCT c.group_id) AS groups_with_offsets, COUNT(DISTINCT c.partition) AS partitions,
  COUNT(*) AS offsets, MAX(c.commit_timestamp) AS last_commit
FROM committed_offsets c
LEFT JOIN live l ON l.cluster = c.cluster AND l.topic = c.topic
WHERE l.topic IS NULL
GROUP BY c.cluster, c.topic
