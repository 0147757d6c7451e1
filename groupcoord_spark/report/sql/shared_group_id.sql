-- Groups whose members subscribe to disjoint topics.
SELECT group_id, member_pairs_apart, first_topic, other_topic, one_member_id, other_member_id
FROM shared_group_id
ORDER BY member_pairs_apart DESC, group_id
