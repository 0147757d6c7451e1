-- Groups without members. idle_since is the later of the last commit and the time at which the group became Empty; a simple group
-- (offsets only) may well have a reader, which shows by a last_commit that moves from night to night.
WITH committed AS (
  SELECT cluster, group_id, COUNT(*) AS offsets, COUNT(DISTINCT topic) AS topics, MAX(commit_timestamp) AS last_commit
  FROM committed_offsets GROUP BY cluster, group_id
)
SELECT g.cluster, g.group_id, g.group_type, g.is_simple, g.state,
  COALESCE(c.topics, 0) AS topics, COALESCE(c.offsets, 0) AS offsets, c.last_commit, g.state_timestamp AS empty_since,
  CASE WHEN c.last_commit IS NULL OR g.state_timestamp > c.last_commit THEN COALESCE(g.state_timestamp, c.last_commit)
    ELSE c.last_commit END AS idle_since,
  e.removed_at
FROM groups g
LEFT JOIN committed c ON c.cluster = g.cluster AND c.group_id = g.group_id
LEFT JOIN group_expirations e ON e.cluster = g.cluster AND e.group_id = g.group_id
WHERE g.member_count = 0
