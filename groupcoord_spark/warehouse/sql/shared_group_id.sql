-- Groups whose members subscribe to disjoint topics: two applications that use one group id by mistake. Each rebalance of one stops the
-- other. member_pairs_apart: pairs of members without a common topic; the other columns are of the first such pair. Left out are
-- members whose subscription cannot be read, and those that subscribe by an expression or to no topic.
-- No topic has the name '', so the intersection with an array of it is the empty array, which every engine writes in another way.
WITH subscribers AS (
  SELECT m.cluster, m.group_id, m.member_id, m.subscribed_topics
  FROM members m
  WHERE m.subscribed_topics <> array_intersect(m.subscribed_topics, split('', ',')) AND COALESCE(m.subscribed_topic_regex, '') = ''
),
pairs AS (
  SELECT a.cluster, a.group_id, a.member_id AS one_member_id, b.member_id AS other_member_id,
    ROW_NUMBER() OVER (PARTITION BY a.cluster, a.group_id ORDER BY a.member_id, b.member_id) AS place,
    COUNT(*) OVER (PARTITION BY a.cluster, a.group_id) AS member_pairs_apart
  FROM subscribers a
  JOIN subscribers b ON b.cluster = a.cluster AND b.group_id = a.group_id AND b.member_id > a.member_id
  WHERE array_intersect(a.subscribed_topics, b.subscribed_topics) = array_intersect(a.subscribed_topics, split('', ','))
),
named AS (
  SELECT s.cluster, s.group_id, s.member_id, MIN(t.topic) AS topic
  FROM subscribers s CROSS JOIN UNNEST(s.subscribed_topics) AS t (topic)
  GROUP BY s.cluster, s.group_id, s.member_id
)
SELECT p.cluster, p.group_id, p.member_pairs_apart, o.topic AS first_topic, n.topic AS other_topic, p.one_member_id, p.other_member_id
FROM pairs p
LEFT JOIN named o ON o.cluster = p.cluster AND o.group_id = p.group_id AND o.member_id = p.one_member_id
LEFT JOIN named n ON n.cluster = p.cluster AND n.group_id = p.group_id AND n.member_id = p.other_member_id
WHERE p.place = 1
