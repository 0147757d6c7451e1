-- Partitions that a member has and of which the group has no committed offset.
SELECT group_id, topic, partition, client_id, client_host, member_id, has_pending, commits, completeness
FROM assigned_never_committed
ORDER BY group_id, topic, partition
