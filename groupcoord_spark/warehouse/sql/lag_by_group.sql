-- The lag of each group of any type by the newest sample of log ends. Offsets beyond the end of the log count as lag 0, and beyond_end counts
-- them. Where partitions_without_end is not 0 the lag is a lower bound; lag is NULL where no partition has one. hours_to_loss: of the
-- partition that loses unread records first; 0 where records are gone unread.
SELECT cluster, group_id, CAST(MAX(group_lag) AS BIGINT) AS lag, CAST(MAX(group_max_lag) AS BIGINT) AS max_lag,
  MAX(hours_behind) AS hours_behind, MIN(CASE WHEN lost > 0 THEN 0.0E0 ELSE hours_to_loss END) AS hours_to_loss,
  MAX(share_of_log) AS share_of_log, COUNT(*) AS partitions, COUNT(lag) AS partitions_with_lag,
  COUNT(CASE WHEN remark = 'no_sample' THEN 1 END) AS partitions_without_end,
  COUNT(CASE WHEN remark = 'beyond_end' THEN 1 END) AS beyond_end, MAX(sampled_at) AS sampled_at
FROM lag GROUP BY cluster, group_id
UNION ALL
SELECT cluster, group_id, CAST(SUM(lag) AS BIGINT), MAX(lag), NULL, NULL, NULL, COUNT(*), COUNT(lag),
  COUNT(CASE WHEN remark IN ('no_sample', 'no_count') THEN 1 END), 0, MAX(sampled_at)
FROM share_lag GROUP BY cluster, group_id
