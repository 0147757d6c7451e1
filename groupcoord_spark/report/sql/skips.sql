-- Record offsets that a group passed without reading them, the most certain and the most first.
SELECT group_id, topic, partition, skipped_at, cause, certainty, from_committed_offset, to_committed_offset, records_skipped,
  member_count, offsets_partition, record_offset, evidence
FROM skips
ORDER BY CASE certainty WHEN 'certain' THEN 0 WHEN 'likely' THEN 1 ELSE 2 END, records_skipped DESC NULLS LAST, group_id, topic, partition
