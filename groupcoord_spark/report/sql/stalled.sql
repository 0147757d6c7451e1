-- Partitions that stand still although their group moves.
SELECT group_id, topic, partition, client_id, client_host, member_id, committed_offset, last_commit, commits, median_advance, partitions,
  completeness
FROM stalled
ORDER BY median_advance DESC, group_id, topic, partition
