-- Who writes most commits.
SELECT group_id, topic, partitions, commits, bytes, duplicate_share, share_of_commits, first_commit, last_commit, completeness
FROM hot_committers
ORDER BY commits DESC, group_id, topic
