-- Groups and topics whose committed offsets have no leader epoch: after an unclean election their consumers cannot notice that the log
-- was truncated. Old clients, tools and many libraries commit none.
SELECT cluster, group_id, topic, COUNT(*) AS offsets,
  SUM(CASE WHEN leader_epoch IS NULL THEN 1 ELSE 0 END) AS offsets_without_epoch,
  MAX(CASE WHEN leader_epoch IS NULL THEN commit_timestamp END) AS last_commit_without_epoch
FROM committed_offsets
GROUP BY cluster, group_id, topic
HAVING SUM(CASE WHEN leader_epoch IS NULL THEN 1 ELSE 0 END) > 0
