-- The lag of each group at each sample of log ends, the newest sample first.
SELECT group_id, sampled_at, CAST(SUM(CASE WHEN lag > 0 THEN lag ELSE 0 END) AS BIGINT) AS lag,
  CAST(SUM(produced) AS BIGINT) AS produced, CAST(SUM(consumed) AS BIGINT) AS consumed, MAX(hours_to_clear) AS hours_to_clear,
  MIN(hours_to_loss) AS hours_to_loss, COUNT(*) AS partitions, MIN(completeness) AS completeness
FROM lag_history
GROUP BY group_id, sampled_at
ORDER BY sampled_at DESC, lag DESC, group_id
