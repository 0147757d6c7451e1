-- What keeps each classic group of consumers from the consumer protocol (KIP-848). The broker converts a group whose members stay on
-- the classic protocol for a while, so custom assignors and user data count, too. Bounds of the session timeout are the broker's
-- defaults (group.consumer.min.session.timeout.ms 45000, group.consumer.max.session.timeout.ms 60000): with the new protocol the
-- broker's own timeout holds instead of the client's.
WITH of_members AS (
  SELECT cluster, group_id, COUNT(*) AS members,
    SUM(CASE WHEN subscribed_topics IS NULL THEN 1 ELSE 0 END) AS unreadable_subscriptions,
    SUM(CASE WHEN user_data IS NOT NULL AND user_data <> X'' THEN 1 ELSE 0 END) AS members_with_user_data,
    SUM(CASE WHEN session_timeout_ms < 45000 OR session_timeout_ms > 60000 THEN 1 ELSE 0 END) AS members_outside_of_bounds,
    MIN(session_timeout_ms) AS least_session_timeout_ms, MAX(session_timeout_ms) AS greatest_session_timeout_ms
  FROM members GROUP BY cluster, group_id
),
judged AS (
  SELECT g.cluster, g.group_id, g.state, g.protocol, g.member_count,
    m.least_session_timeout_ms, m.greatest_session_timeout_ms,
    CASE WHEN g.protocol IS NOT NULL AND g.protocol NOT IN ('range', 'roundrobin', 'sticky', 'cooperative-sticky')
      THEN 'custom assignor' END AS assignor_obstacle,
    CASE WHEN m.members_with_user_data > 0 AND COALESCE(g.protocol, '') NOT IN ('sticky', 'cooperative-sticky')
      THEN 'user data in the subscription' END AS user_data_obstacle,
    CASE WHEN m.unreadable_subscriptions > 0 THEN 'a subscription that cannot be read' END AS subscription_obstacle,
    CASE WHEN m.members_outside_of_bounds > 0 THEN 'session timeout outside of the bounds' END AS timeout_obstacle
  FROM groups g
  LEFT JOIN of_members m ON m.cluster = g.cluster AND m.group_id = g.group_id
  WHERE g.group_type = 'classic' AND NOT g.is_simple AND g.protocol_type = 'consumer'
)
SELECT cluster, group_id, state, protocol AS assignor, member_count, least_session_timeout_ms, greatest_session_timeout_ms,
  CASE WHEN assignor_obstacle IS NULL AND user_data_obstacle IS NULL AND subscription_obstacle IS NULL AND timeout_obstacle IS NULL
    THEN TRUE ELSE FALSE END AS is_ready,
  CONCAT_WS(', ', assignor_obstacle, user_data_obstacle, subscription_obstacle, timeout_obstacle) AS obstacles
FROM judged
