-- Committed offsets behind the end of their log, those nearest to losing data first.
SELECT group_id, topic, partition, committed_offset, end_offset, lag, share_of_log, hours_to_loss, lost, remark,
  hours_behind, behind_since, last_commit, sampled_at, source
FROM lag
WHERE remark IS NULL OR remark <> 'no_sample'
ORDER BY lost DESC NULLS LAST, share_of_log DESC NULLS LAST, lag DESC NULLS LAST, group_id, topic, partition
