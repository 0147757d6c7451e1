-- Rebalances of each group and day (of the session's time zone): how many, who came and went, by which causes, the least time between.
-- A new target assignment answers a group epoch that is counted already, so only its moves are counted.
SELECT cluster, group_id, CAST(record_timestamp AS DATE) AS day,
  SUM(CASE WHEN kind = 'assignment' THEN 0 ELSE 1 END) AS rebalances,
  SUM(CASE WHEN kind = 'assignment' THEN 0 ELSE COALESCE(joined_count, 0) END) AS members_joined,
  SUM(CASE WHEN kind = 'assignment' THEN 0 ELSE COALESCE(left_count, 0) END) AS members_left,
  SUM(COALESCE(partitions_moved, 0)) AS partitions_moved,
  SUM(CASE WHEN kind <> 'assignment' AND cause = 'member_joined' THEN 1 ELSE 0 END) AS by_joining,
  SUM(CASE WHEN kind <> 'assignment' AND cause IN ('member_left', 'member_expelled', 'member_gone') THEN 1 ELSE 0 END) AS by_leaving,
  SUM(CASE WHEN kind <> 'assignment' AND cause = 'member_restarted' THEN 1 ELSE 0 END) AS by_restarts,
  SUM(CASE WHEN kind <> 'assignment' AND cause IN ('subscription_changed', 'partitions_changed') THEN 1 ELSE 0 END) AS by_topics,
  SUM(CASE WHEN kind <> 'assignment' AND cause = 'unknown' THEN 1 ELSE 0 END) AS unknown,
  MIN(CASE WHEN kind <> 'assignment' THEN since_previous_ms END) AS shortest_ms
FROM rebalances
WHERE record_timestamp IS NOT NULL
GROUP BY cluster, group_id, CAST(record_timestamp AS DATE)
