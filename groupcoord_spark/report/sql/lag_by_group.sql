-- The lag of each group, the furthest behind first.
SELECT group_id, CAST(SUM(CASE WHEN lag > 0 THEN lag ELSE 0 END) AS BIGINT) AS lag, MAX(lag) AS max_lag, MAX(share_of_log) AS share_of_log,
  MIN(hours_to_loss) AS hours_to_loss, MAX(hours_behind) AS hours_behind,
  COUNT(*) AS partitions, COUNT(lag) AS partitions_with_lag, MAX(sampled_at) AS sampled_at
FROM lag
WHERE remark IS NULL OR remark <> 'no_sample'
GROUP BY group_id
ORDER BY lag DESC, group_id
