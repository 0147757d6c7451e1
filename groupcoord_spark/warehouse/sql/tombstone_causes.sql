-- Why each tombstone of an offset or a group was written, as far as the history tells, with the evidence beside it.
-- One write of a coordinator gives all of its records one timestamp: that is how the records of one request or cleanup are known.
-- An engine plans a step anew for each step that reads it, so the steps carry columns along instead of reading commits again.
WITH retention AS (
  SELECT cluster, retention_ms, is_scala FROM (
    SELECT cluster, CAST(settings['offsets.retention.ms'] AS BIGINT) AS retention_ms, semantics = 'scala' AS is_scala,
      ROW_NUMBER() OVER (PARTITION BY cluster ORDER BY finished_at DESC) AS age
    FROM runs WHERE kind = 'night' OR (kind IS NULL AND settings['until'] IS NULL)
  ) r WHERE age = 1
),
commits AS (
  SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, topic, partition, key_version, is_tombstone,
    commit_timestamp, expire_timestamp
  FROM (
    SELECT *,
      MIN(CASE WHEN is_tombstone THEN record_offset END) OVER (
        PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
      ) AS next_tombstone
    FROM offset_commits_resolved
  ) c
  WHERE transaction_result IS NULL OR transaction_result <> 'aborted' OR marker_offset > next_tombstone
),
own AS (
  SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, key_type, is_tombstone,
    value_version, value_json
  FROM group_records WHERE key_type IN (2, 3, 11, 17)
),
placed AS (
  -- Of the commits with one value_offset only the value itself is no tombstone.
  SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, topic, partition, key_version, is_tombstone,
    value_offset, gone_at,
    MAX(CASE WHEN NOT is_tombstone THEN commit_timestamp END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, value_offset
    ) AS commit_timestamp,
    MAX(CASE WHEN NOT is_tombstone THEN expire_timestamp END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, value_offset
    ) AS expire_timestamp
  FROM (
    SELECT *,
      MAX(CASE WHEN NOT is_tombstone THEN record_offset END) OVER (
        PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS value_offset,
      MIN(CASE WHEN is_tombstone THEN record_timestamp END) OVER (
        PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
      ) AS gone_at
    FROM commits
  ) c
),
grouped AS (
  SELECT *,
    MAX(own_offset) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id ORDER BY record_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS state_offset
  FROM (
    SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, topic, partition, key_version,
      value_offset, commit_timestamp, expire_timestamp, CAST(NULL AS BIGINT) AS own_offset
    FROM placed WHERE is_tombstone
    UNION ALL
    SELECT cluster, offsets_partition, incarnation, record_offset, NULL, group_id, NULL, NULL, NULL, NULL, NULL, NULL, record_offset
    FROM own
  ) r
),
removals AS (
  SELECT cluster, offsets_partition, incarnation, group_id, record_timestamp,
    BOOL_OR(is_tombstone) AS group_removed, BOOL_OR(is_tombstone) AND BOOL_OR(NOT is_tombstone) AS group_converted
  FROM own GROUP BY cluster, offsets_partition, incarnation, group_id, record_timestamp
),
dated AS (
  SELECT t.cluster, t.offsets_partition, t.incarnation, t.record_offset, t.record_timestamp,
    t.group_id, t.topic, t.partition, t.key_version, t.value_offset, t.commit_timestamp, t.expire_timestamp,
    CASE WHEN g.key_type = 2 AND NOT g.is_tombstone AND g.value_version >= 2 AND g.value_json LIKE '%"members":[]%'
        AND g.value_json NOT LIKE '%"protocolType":""%'
      THEN g.record_timestamp ELSE t.commit_timestamp END AS base_timestamp,
    CASE WHEN g.is_tombstone IS NULL OR g.is_tombstone THEN TRUE ELSE FALSE END AS never_had_members
  FROM grouped t
  LEFT JOIN own g ON g.cluster = t.cluster AND g.offsets_partition = t.offsets_partition AND g.incarnation = t.incarnation
    AND g.record_offset = t.state_offset
  WHERE t.own_offset IS NULL
),
due AS (
  SELECT d.*, COALESCE(r.is_scala, FALSE) AS is_scala,
    COALESCE(d.expire_timestamp, d.base_timestamp + INTERVAL '1' SECOND * CAST(r.retention_ms / 1000 AS BIGINT)) AS due_at
  FROM dated d LEFT JOIN retention r ON r.cluster = d.cluster
),
lives AS (
  SELECT cluster, offsets_partition, incarnation, topic, group_id, partition, MIN(record_timestamp) AS born_at, gone_at
  FROM placed WHERE NOT is_tombstone
  GROUP BY cluster, offsets_partition, incarnation, topic, group_id, partition, gone_at
),
emptied AS (
  -- Up to 3.9 (Scala) a group without members goes with its last offset, and without a tombstone if it never had members.
  SELECT d.cluster, d.offsets_partition, d.incarnation, d.group_id, d.record_timestamp
  FROM (
    SELECT DISTINCT cluster, offsets_partition, incarnation, group_id, record_timestamp FROM due WHERE is_scala AND never_had_members
  ) d
  LEFT JOIN lives l ON l.cluster = d.cluster AND l.offsets_partition = d.offsets_partition AND l.incarnation = d.incarnation
    AND l.group_id = d.group_id AND l.born_at <= d.record_timestamp AND (l.gone_at IS NULL OR l.gone_at > d.record_timestamp)
  WHERE l.group_id IS NULL AND d.record_timestamp IS NOT NULL
),
judged AS (
  SELECT d.*,
    d.record_timestamp >= d.due_at AS was_due,
    d.record_timestamp >= d.due_at AND d.record_timestamp < d.due_at + INTERVAL '1' HOUR AS was_just_due,
    COALESCE(w.group_removed, FALSE) AS group_removed,
    CASE WHEN d.is_scala AND w.group_removed OR m.group_id IS NOT NULL THEN TRUE ELSE FALSE END AS whole_group
  FROM due d
  LEFT JOIN emptied m ON m.cluster = d.cluster AND m.offsets_partition = d.offsets_partition AND m.incarnation = d.incarnation
    AND m.group_id = d.group_id AND m.record_timestamp = d.record_timestamp AND d.never_had_members
  LEFT JOIN removals w ON w.cluster = d.cluster AND w.offsets_partition = d.offsets_partition AND w.incarnation = d.incarnation
    AND w.group_id = d.group_id AND w.record_timestamp = d.record_timestamp
),
episodes AS (
  SELECT cluster, topic, episode, COUNT(DISTINCT group_id) AS groups_at_once,
    MIN(record_timestamp) AS began_at, MAX(record_timestamp) AS ended_at
  FROM (
    SELECT *, SUM(begins) OVER (PARTITION BY cluster, topic ORDER BY record_timestamp, offsets_partition, record_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS episode
    FROM (
      SELECT cluster, topic, group_id, offsets_partition, record_offset, record_timestamp,
        CASE WHEN record_timestamp <= LAG(record_timestamp) OVER (
          PARTITION BY cluster, topic ORDER BY record_timestamp, offsets_partition, record_offset
        ) + INTERVAL '1' SECOND THEN 0 ELSE 1 END AS begins
      FROM judged WHERE value_offset IS NOT NULL AND NOT was_just_due AND NOT (group_removed AND NOT was_due AND NOT whole_group)
    ) e
  ) e
  GROUP BY cluster, topic, episode
),
topics AS (
  SELECT e.cluster, e.topic, e.began_at, e.ended_at, e.groups_at_once,
    COUNT(CASE WHEN l.born_at < e.began_at AND (l.gone_at IS NULL OR l.gone_at > e.ended_at) THEN 1 END) AS offsets_spared,
    COUNT(CASE WHEN l.born_at > e.ended_at AND l.born_at < e.ended_at + INTERVAL '1' HOUR THEN 1 END) AS offsets_soon_after
  FROM episodes e LEFT JOIN lives l ON l.cluster = e.cluster AND l.topic = e.topic
  GROUP BY e.cluster, e.topic, e.began_at, e.ended_at, e.groups_at_once
),
of_offsets AS (
  SELECT j.*, t.groups_at_once, t.offsets_spared, t.offsets_soon_after,
    CASE WHEN j.value_offset IS NULL OR j.record_timestamp IS NULL OR j.due_at IS NULL THEN 'unknown'
      WHEN j.was_just_due THEN 'expiry'
      WHEN t.groups_at_once > 1 AND t.offsets_spared = 0
        AND (t.offsets_soon_after = 0 OR t.ended_at < t.began_at + INTERVAL '0.01' SECOND) THEN 'topic_deletion'
      WHEN j.was_due THEN 'expiry'
      WHEN j.group_removed OR j.whole_group THEN 'delete_groups'
      WHEN t.offsets_spared = 0 AND t.offsets_soon_after = 0 THEN 'topic_deletion'
      ELSE 'offset_delete' END AS cause
  FROM judged j
  LEFT JOIN topics t ON t.cluster = j.cluster AND t.topic = j.topic AND j.record_timestamp BETWEEN t.began_at AND t.ended_at
    AND NOT j.was_just_due
),
causes AS (
  -- A tombstone of a group has the cause of the offsets that went in the same write.
  SELECT *,
    MAX(CASE WHEN cause = 'delete_groups' THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, record_timestamp
    ) AS some_deleted,
    MAX(CASE WHEN cause = 'unknown' THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, record_timestamp
    ) AS some_unknown
  FROM (
    SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, topic, partition, key_version AS key_type,
      cause, value_offset, commit_timestamp, expire_timestamp, base_timestamp, due_at,
      group_removed, groups_at_once, offsets_spared, offsets_soon_after, FALSE AS group_converted
    FROM of_offsets
    UNION ALL
    SELECT g.cluster, g.offsets_partition, g.incarnation, g.record_offset, g.record_timestamp, g.group_id, NULL, NULL, g.key_type,
      NULL, NULL, NULL, NULL, NULL, NULL, TRUE, NULL, NULL, NULL, w.group_converted
    FROM own g
    LEFT JOIN removals w ON w.cluster = g.cluster AND w.offsets_partition = g.offsets_partition AND w.incarnation = g.incarnation
      AND w.group_id = g.group_id AND w.record_timestamp = g.record_timestamp
    WHERE g.is_tombstone
  ) o
)
SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, topic, partition, key_type,
  CASE WHEN cause IS NOT NULL THEN cause
    WHEN record_timestamp IS NULL THEN 'unknown'
    WHEN group_converted THEN 'conversion'
    WHEN key_type = 11 OR some_deleted = 1 THEN 'delete_groups'
    WHEN some_unknown = 1 THEN 'unknown'
    ELSE 'expiry' END AS cause,
  value_offset, commit_timestamp, expire_timestamp, base_timestamp, due_at,
  group_removed, groups_at_once, offsets_spared, offsets_soon_after
FROM causes
