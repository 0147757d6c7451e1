-- Classic groups and what keeps them from the consumer protocol, those that are kept first.
SELECT group_id, is_ready, NULLIF(obstacles, '') AS obstacles, state, assignor, member_count, least_session_timeout_ms, greatest_session_timeout_ms
FROM protocol_readiness
ORDER BY is_ready, member_count DESC, group_id
