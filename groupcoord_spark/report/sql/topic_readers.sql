-- Who reads which topic: a committed offset, a partition or a subscription makes a group a reader.
SELECT topic, group_id, group_type, state, committed_partitions, assigned_partitions, members, subscribed, last_commit
FROM topic_readers
ORDER BY topic, members DESC, last_commit DESC NULLS LAST, group_id
