-- Commits of the chosen groups that counted, joined to at most 100 points for each group in time.
-- The views are over these groups alone, so that the history is read once.
WITH offset_commits AS MATERIALIZED (
  SELECT * FROM offset_commits WHERE group_id IN ($chosen_groups)
),
offset_commits_resolved AS ($offset_commits_resolved),
counted_commits AS ($counted_commits),
counted AS (
  SELECT group_id, topic, partition, counted_at, committed_offset
  FROM counted_commits
  WHERE NOT is_tombstone AND counted_at IS NOT NULL
),
spans AS (
  SELECT group_id, MIN(epoch_ms(counted_at)) AS first_ms, GREATEST(1, (MAX(epoch_ms(counted_at)) - MIN(epoch_ms(counted_at))) // 100) AS step_ms
  FROM counted GROUP BY group_id
)
SELECT c.group_id, c.topic, c.partition, MIN(c.counted_at) AS first_commit, MAX(c.counted_at) AS last_commit, COUNT(*) AS commits,
  MIN(c.committed_offset) AS lowest_offset, MAX(c.committed_offset) AS highest_offset
FROM counted c
JOIN spans s ON s.group_id = c.group_id
GROUP BY c.group_id, c.topic, c.partition, (epoch_ms(c.counted_at) - s.first_ms) // s.step_ms
ORDER BY c.group_id, c.topic, c.partition, first_commit
