-- The lag of each group, of share groups too, the furthest behind first.
SELECT group_id, lag, max_lag, share_of_log, hours_to_loss, hours_behind, beyond_end, partitions_without_end > 0 AS lag_is_partial, partitions,
  partitions_with_lag, sampled_at
FROM lag_by_group
WHERE sampled_at IS NOT NULL
ORDER BY lag DESC NULLS LAST, group_id
