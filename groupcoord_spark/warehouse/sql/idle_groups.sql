-- Groups without members. empty_since is the time that a classic group stores, else the time of the group's newest record: with the last
-- member its epoch rises. idle_since is the later of the last commit and of empty_since; a simple group
-- (offsets only) may well have a reader, which shows by a last_commit that moves from run to run.
WITH committed AS (
  SELECT cluster, group_id, COUNT(*) AS offsets, COUNT(DISTINCT topic) AS topics, MAX(commit_timestamp) AS last_commit
  FROM committed_offsets GROUP BY cluster, group_id
),
empty AS (
  SELECT cluster, group_id, group_type, is_simple, state,
    CASE WHEN is_simple THEN NULL ELSE COALESCE(state_timestamp, record_timestamp) END AS empty_since
  FROM groups WHERE member_count = 0
)
SELECT g.cluster, g.group_id, g.group_type, g.is_simple, g.state,
  COALESCE(c.topics, 0) AS topics, COALESCE(c.offsets, 0) AS offsets, c.last_commit, g.empty_since,
  CASE WHEN c.last_commit IS NULL OR g.empty_since > c.last_commit THEN g.empty_since ELSE c.last_commit END AS idle_since,
  e.removed_at
FROM empty g
LEFT JOIN committed c ON c.cluster = g.cluster AND c.group_id = g.group_id
LEFT JOIN group_expirations e ON e.cluster = g.cluster AND e.group_id = g.group_id
