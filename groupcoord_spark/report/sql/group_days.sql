-- What the records of each group say of each day (UTC) with a record: the state that the last of them left, rebalances and commits.
-- A day with commits alone has no state: the group keeps the state of the day before; without one, and after the tombstone of the group, the
-- group has offsets alone. A group that the run does not have is gone on the day of the run, whatever its last record said. A group without
-- a dated record has its present state on that day.
WITH changes AS (
  SELECT group_id, record_timestamp, incarnation, record_offset, CASE WHEN member_count > 0 THEN 'members' ELSE 'empty' END AS state,
    CASE WHEN kind = 'assignment' THEN 0 ELSE 1 END AS rebalances
  FROM rebalances
  WHERE record_timestamp IS NOT NULL
  UNION ALL
  SELECT group_id, record_timestamp, incarnation, record_offset, 'gone', 0
  FROM group_records
  WHERE is_tombstone AND key_type IN (2, 3, 11, 17) AND record_timestamp IS NOT NULL
),
states AS (
  SELECT group_id, CAST(record_timestamp AS DATE) AS day, ARG_MAX(state, (incarnation, record_offset)) AS state,
    CAST(SUM(rebalances) AS BIGINT) AS rebalances, MAX((incarnation, record_offset)) AS last_place
  FROM changes
  GROUP BY group_id, CAST(record_timestamp AS DATE)
),
commits AS (
  SELECT group_id, CAST(record_timestamp AS DATE) AS day, COUNT(*) AS commits,
    MAX((incarnation, record_offset)) AS last_place
  FROM offset_commits
  WHERE NOT is_tombstone AND record_timestamp IS NOT NULL
  GROUP BY group_id, CAST(record_timestamp AS DATE)
),
days AS (
  SELECT COALESCE(s.group_id, c.group_id) AS group_id, COALESCE(s.day, c.day) AS day,
    CASE WHEN s.state = 'gone' AND c.last_place > s.last_place THEN 'offsets alone' ELSE s.state END AS state,
    COALESCE(s.rebalances, 0) AS rebalances, COALESCE(c.commits, 0) AS commits
  FROM states s
  FULL JOIN commits c ON c.group_id = s.group_id AND c.day = s.day
),
with_ends AS (
  SELECT group_id, day, CASE WHEN is_gone THEN 'gone' ELSE state END AS state, rebalances, commits
  FROM (
    SELECT d.*, g.group_id IS NULL AND d.day >= CAST(n.as_of AS DATE) AS is_gone
    FROM days d CROSS JOIN night n LEFT JOIN shown_groups g ON g.group_id = d.group_id
  )
  UNION ALL
  SELECT d.group_id, CAST(n.as_of AS DATE), 'gone', 0, 0
  FROM days d CROSS JOIN night n LEFT JOIN shown_groups g ON g.group_id = d.group_id
  WHERE g.group_id IS NULL
  GROUP BY d.group_id, n.as_of
  HAVING MAX(d.day) < CAST(n.as_of AS DATE)
  UNION ALL
  SELECT g.group_id, CAST(n.as_of AS DATE), CASE WHEN g.members > 0 THEN 'members' WHEN NOT g.is_simple THEN 'empty' END, 0, 0
  FROM shown_groups g CROSS JOIN night n ANTI JOIN days d ON d.group_id = g.group_id
)
SELECT d.group_id, d.day, d.state, d.rebalances, d.commits
FROM with_ends d
LEFT JOIN shown_groups g ON g.group_id = d.group_id
ORDER BY g.place NULLS LAST, 1, 2
