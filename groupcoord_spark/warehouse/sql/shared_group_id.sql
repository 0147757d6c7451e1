-- Groups whose members subscribe to disjoint topics: two applications that use one group id by mistake. Each rebalance of one stops the
-- other. member_pairs_apart: pairs of members without a common topic. Members whose subscription cannot be read are left out.
WITH topics AS (
  SELECT DISTINCT cluster, group_id, topic FROM committed_offsets
  UNION SELECT DISTINCT cluster, group_id, topic FROM assignments WHERE topic IS NOT NULL
  UNION SELECT DISTINCT cluster, group_id, topic FROM offset_commits
),
subscriptions AS (
  SELECT m.cluster, m.group_id, m.member_id, m.client_id, t.topic
  FROM members m
  JOIN topics t ON t.cluster = m.cluster AND t.group_id = m.group_id
  WHERE COALESCE(array_position(m.subscribed_topics, t.topic), 0) > 0
),
subscribers AS (
  SELECT cluster, group_id, member_id, MIN(topic) AS first_topic FROM subscriptions GROUP BY cluster, group_id, member_id
),
pairs AS (
  SELECT a.cluster, a.group_id, a.member_id AS one, b.member_id AS other, a.first_topic, b.first_topic AS other_topic
  FROM subscribers a
  JOIN subscribers b ON b.cluster = a.cluster AND b.group_id = a.group_id AND b.member_id > a.member_id
),
common AS (
  SELECT DISTINCT a.cluster, a.group_id, a.member_id AS one, b.member_id AS other
  FROM subscriptions a
  JOIN subscriptions b ON b.cluster = a.cluster AND b.group_id = a.group_id AND b.topic = a.topic AND b.member_id > a.member_id
)
SELECT p.cluster, p.group_id, COUNT(*) AS member_pairs_apart, MIN(p.first_topic) AS first_topic, MAX(p.other_topic) AS other_topic,
  MIN(p.one) AS one_member_id, MAX(p.other) AS other_member_id
FROM pairs p
LEFT JOIN common c ON c.cluster = p.cluster AND c.group_id = p.group_id AND c.one = p.one AND c.other = p.other
WHERE c.group_id IS NULL
GROUP BY p.cluster, p.group_id
