-- Groups with committed offsets without a leader epoch, those with most of them first.
SELECT group_id, topic, offsets, offsets_without_epoch, last_commit_without_epoch
FROM no_leader_epoch
ORDER BY offsets_without_epoch DESC, group_id, topic
