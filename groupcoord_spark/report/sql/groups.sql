-- Every group, those with most problems first.
WITH problems AS (
  SELECT DISTINCT group_id, 'live and loses offsets' AS problem, 4 AS weight FROM shown_expiring WHERE live_group_loses AND days_left <= 7
  UNION ALL SELECT DISTINCT group_id, 'about to lose data', 4 FROM shown_lag WHERE share_of_log >= 0.9 OR hours_to_loss <= 48
  UNION ALL SELECT DISTINCT group_id, 'lost records', 5 FROM shown_lag WHERE lost >= 1
  UNION ALL SELECT DISTINCT group_id, 'stalled', 3 FROM shown_stalled
  UNION ALL SELECT DISTINCT group_id, 'two writers', 4 FROM shown_rewinds WHERE kind = 'two_writers'
  UNION ALL SELECT DISTINCT group_id, 'skipped records', 4 FROM shown_skips WHERE certainty = 'certain'
  UNION ALL SELECT DISTINCT group_id, 'open transaction', 3 FROM shown_open_transactions WHERE open_hours >= 1
  UNION ALL SELECT DISTINCT group_id, 'shared group id', 3 FROM shown_shared_group_id
  UNION ALL SELECT DISTINCT group_id, 'rewound', 2 FROM shown_rewinds WHERE kind <> 'two_writers'
  UNION ALL SELECT DISTINCT group_id, 'rebalances often', 2 FROM shown_rebalance_storms WHERE busiest_hour_rebalances >= 20
  UNION ALL SELECT DISTINCT group_id, 'no committed offset', 1 FROM shown_assigned_never_committed
  UNION ALL SELECT DISTINCT group_id, 'expires within 7 days', 1 FROM shown_expiring WHERE what = 'offsets' AND days_left <= 7
),
judged AS (
  SELECT group_id, STRING_AGG(problem, ', ' ORDER BY weight DESC, problem) AS problems, CAST(SUM(weight) AS INTEGER) AS weight
  FROM problems GROUP BY group_id
),
committed AS (
  SELECT group_id, MAX(commit_timestamp) AS last_commit FROM committed_offsets GROUP BY group_id
),
goes AS (
  SELECT group_id, MIN(first_at) AS next_expiry, MAX(CASE WHEN what = 'group' THEN first_at END) AS removed_at
  FROM shown_expiring GROUP BY group_id
)
SELECT g.group_id, j.problems, g.state, g.group_type, g.is_simple, g.member_count AS members, g.topic_count AS topics,
  g.offset_count AS offsets, c.last_commit, e.next_expiry, e.removed_at, l.lag, l.lag_is_partial, CAST(s.bytes AS BIGINT) AS bytes, s.completeness,
  CAST(ROW_NUMBER() OVER (ORDER BY COALESCE(j.weight, 0) DESC, g.member_count DESC, g.group_id) AS INTEGER) AS place
FROM groups g
LEFT JOIN judged j ON j.group_id = g.group_id
LEFT JOIN committed c ON c.group_id = g.group_id
LEFT JOIN goes e ON e.group_id = g.group_id
LEFT JOIN shown_lag_by_group l ON l.group_id = g.group_id
LEFT JOIN group_lifetimes s ON s.group_id = g.group_id
ORDER BY place
