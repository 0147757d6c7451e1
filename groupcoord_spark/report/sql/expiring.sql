-- What goes when, the first to go first: committed offsets of a group and topic, and groups (topic NULL). days_left counts from the run;
-- 0: the next cleanup takes it. traps: why somebody may not expect it.
SELECT e.group_id, e.topic, e.what, e.offsets, e.first_at, e.last_at,
  GREATEST(0, epoch_ms(e.first_at) - epoch_ms(n.as_of)) / 86400000.0E0 AS days_left,
  g.state, CASE WHEN e.topic_is_unsubscribed THEN TRUE ELSE FALSE END AS live_group_loses,
  NULLIF(CONCAT_WS(', ',
    CASE WHEN e.topic_is_unsubscribed THEN 'the group lives and does not subscribe to the topic' END,
    CASE WHEN e.inherits_empty_time THEN 'committed while the group was Empty' END,
    CASE WHEN e.is_simple_group THEN 'simple group: a reader may be at work' END,
    CASE WHEN e.has_explicit_expiry THEN 'an old client chose the moment' END,
    CASE WHEN e.may_come_back THEN 'a record of type 0 may come back' END,
    CASE WHEN e.retention_changed THEN 'the retention changed since the run before' END), '') AS traps
FROM expiring e
CROSS JOIN night n
LEFT JOIN groups g ON g.group_id = e.group_id
WHERE e.day IS NOT NULL
ORDER BY e.first_at, e.offsets DESC NULLS LAST, e.group_id, e.topic
