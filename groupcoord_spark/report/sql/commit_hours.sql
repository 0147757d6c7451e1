-- Commits of all groups in each hour. completeness: the lowest among the offsets partitions with a commit in that hour.
SELECT bucket_start AS hour, CAST(SUM(commits) AS BIGINT) AS commits, CAST(SUM(tombstones) AS BIGINT) AS tombstones,
  CAST(SUM(bytes) AS BIGINT) AS bytes, COUNT(DISTINCT group_id) AS group_ids, MIN(completeness) AS completeness,
  BOOL_AND(window_is_complete) AS window_is_complete
FROM commit_rate
GROUP BY bucket_start
ORDER BY bucket_start DESC
