-- Committed offsets and positions of share groups behind the end of their log, those nearest to losing data first.
SELECT group_id, topic, partition, committed_offset, end_offset, lag, share_of_log, hours_to_loss, lost, remark,
  hours_behind, behind_since, last_commit, sampled_at, source
FROM (SELECT * FROM lag UNION ALL BY NAME SELECT * RENAME (start_offset AS committed_offset) FROM share_lag)
WHERE remark IS NULL OR remark <> 'no_sample'
ORDER BY lost DESC NULLS LAST, share_of_log DESC NULLS LAST, remark = 'beyond_end' DESC, lag DESC NULLS LAST, group_id, topic, partition
