-- Groups without members, idle for the longest time first.
SELECT group_id, group_type, is_simple, state, topics, offsets, idle_since, last_commit, removed_at
FROM idle_groups
ORDER BY idle_since NULLS LAST, group_id
