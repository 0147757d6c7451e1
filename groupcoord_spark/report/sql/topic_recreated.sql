-- Topics that were deleted and created again.
SELECT topic, evidence, topic_ids, first_commit_after, stale_offsets
FROM topic_recreated
ORDER BY stale_offsets DESC NULLS LAST, topic
