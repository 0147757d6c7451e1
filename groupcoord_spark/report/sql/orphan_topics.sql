-- Topics with committed offsets that nobody reads now.
SELECT topic, topic_state, groups_with_offsets, partitions, offsets, last_commit
FROM orphan_topics
ORDER BY offsets DESC, topic
