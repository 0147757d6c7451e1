-- Every member with the number of partitions or tasks that it has; the groups with most problems first.
SELECT m.group_id, m.member_id, m.client_id, m.client_host, m.instance_id, m.member_state AS state, m.member_epoch,
  CAST(COUNT(a.member_id) AS INTEGER) AS partitions, STRING_AGG(DISTINCT COALESCE(a.topic, a.subtopology, a.topic_id), ', ') AS topics
FROM members m
JOIN shown_groups g ON g.group_id = m.group_id
LEFT JOIN assignments a ON a.group_id = m.group_id AND a.member_id = m.member_id AND a.kind = 'current'
GROUP BY g.place, m.group_id, m.member_id, m.client_id, m.client_host, m.instance_id, m.member_state, m.member_epoch
ORDER BY g.place, m.member_id
