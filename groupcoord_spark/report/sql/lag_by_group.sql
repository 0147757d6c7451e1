-- The lag of each group, the furthest behind first.
SELECT group_id, CAST(MAX(group_lag) AS BIGINT) AS lag, MAX(group_max_lag) AS max_lag, MAX(share_of_log) AS share_of_log,
  MIN(hours_to_loss) AS hours_to_loss, MAX(hours_behind) AS hours_behind, BOOL_OR(group_lag_is_partial) AS lag_is_partial,
  COUNT(*) AS partitions, COUNT(lag) AS partitions_with_lag, MAX(sampled_at) AS sampled_at
FROM lag
GROUP BY group_id HAVING COUNT(sampled_at) > 0
ORDER BY lag DESC NULLS LAST, group_id
