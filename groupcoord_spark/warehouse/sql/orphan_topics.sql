-- Topics that nobody reads now although groups have committed offsets of them: no group with members has a partition of the topic or
-- subscribes to it, and no group whose subscription cannot be known has members and an offset of it. Whether the topic still exists is in
-- no record of __consumer_offsets, but in the cluster's metadata, if the run had a copy of it. topic_state: exists, deleted, recreated
-- (a topic of this name exists, and these offsets were committed for an earlier one) or not known. deleted_at, made_at: where a record still
-- tells.
WITH live AS (
  SELECT DISTINCT r.cluster, r.topic
  FROM topic_readers r
  JOIN groups g ON g.cluster = r.cluster AND g.group_id = r.group_id
  WHERE g.member_count > 0 AND (r.assigned_partitions > 0 OR r.subscribed IS NOT NULL OR g.subscribed_topics IS NULL)
),
existing AS (
  SELECT cluster, topic, topic_id, created_at FROM topics WHERE NOT is_deleted
),
deleted AS (
  SELECT cluster, topic, MAX(deleted_at) AS deleted_at FROM topics WHERE is_deleted GROUP BY cluster, topic
),
metadata AS (
  SELECT cluster, BOOL_AND(all_topics_known) AS all_topics_known FROM topics GROUP BY cluster
),
orphans AS (
  SELECT c.cluster, c.topic, COUNT(DISTINCT c.group_id) AS groups_with_offsets, COUNT(DISTINCT c.partition) AS partitions,
    COUNT(*) AS offsets, MAX(c.commit_timestamp) AS last_commit,
    BOOL_AND(c.topic_id IS NOT NULL AND e.topic_id IS NOT NULL AND c.topic_id <> e.topic_id) AS has_other_id
  FROM committed_offsets c
  LEFT JOIN live l ON l.cluster = c.cluster AND l.topic = c.topic
  LEFT JOIN existing e ON e.cluster = c.cluster AND e.topic = c.topic
  WHERE l.topic IS NULL
  GROUP BY c.cluster, c.topic
)
SELECT o.cluster, o.topic, o.groups_with_offsets, o.partitions, o.offsets, o.last_commit,
  CASE WHEN e.topic IS NOT NULL AND (o.has_other_id OR e.created_at > o.last_commit OR d.deleted_at > o.last_commit) THEN 'recreated'
    WHEN e.topic IS NOT NULL THEN 'exists'
    WHEN d.topic IS NOT NULL OR m.all_topics_known THEN 'deleted'
    ELSE 'not known' END AS topic_state,
  d.deleted_at, e.created_at AS made_at
FROM orphans o
LEFT JOIN existing e ON e.cluster = o.cluster AND e.topic = o.topic
LEFT JOIN deleted d ON d.cluster = o.cluster AND d.topic = o.topic
LEFT JOIN metadata m ON m.cluster = o.cluster
