-- Commits and bytes of each group, topic and hour. completeness: of the records of the offsets partition between
-- the first and the last known record of that hour, the share that the history has; below 1 the counts are lower bounds. window_is_complete:
-- the log goes on after the hour.
WITH counts AS (
  SELECT cluster, offsets_partition, incarnation, group_id, topic, date_trunc('hour', record_timestamp) AS bucket_start,
    SUM(CASE WHEN is_tombstone THEN 0 ELSE 1 END) AS commits,
    SUM(CASE WHEN is_tombstone THEN 1 ELSE 0 END) AS tombstones,
    SUM(key_size + COALESCE(value_size, 0)) AS bytes,
    COUNT(*) AS records, MIN(record_offset) AS first_offset, MAX(record_offset) AS last_offset, MAX(record_timestamp) AS newest_at
  FROM offset_commits
  WHERE record_timestamp IS NOT NULL
  GROUP BY cluster, offsets_partition, incarnation, group_id, topic, date_trunc('hour', record_timestamp)
),
parts AS (
  SELECT cluster, offsets_partition, incarnation, bucket_start, records, first_offset, last_offset, newest_at FROM counts
  UNION ALL
  SELECT cluster, offsets_partition, incarnation, date_trunc('hour', record_timestamp), 1, record_offset, record_offset, record_timestamp
  FROM group_records WHERE record_timestamp IS NOT NULL
  UNION ALL
  SELECT cluster, offsets_partition, incarnation, date_trunc('hour', record_timestamp), 1, record_offset, record_offset, record_timestamp
  FROM transactions WHERE record_timestamp IS NOT NULL
),
hours AS (
  SELECT cluster, offsets_partition, incarnation, bucket_start, SUM(records) AS records,
    MAX(last_offset) - MIN(first_offset) + 1 AS span, MAX(newest_at) AS newest_at
  FROM parts
  GROUP BY cluster, offsets_partition, incarnation, bucket_start
),
ends AS (
  SELECT cluster, MAX(newest_at) AS newest_at FROM hours GROUP BY cluster
)
SELECT c.cluster, c.group_id, c.topic, c.bucket_start, SUM(c.commits) AS commits, SUM(c.tombstones) AS tombstones,
  SUM(c.bytes) AS bytes, CAST(SUM(h.records) AS DOUBLE) / SUM(h.span) AS completeness,
  MAX(e.newest_at) >= c.bucket_start + INTERVAL '1' HOUR AS window_is_complete
FROM counts c
JOIN hours h ON h.cluster = c.cluster AND h.offsets_partition = c.offsets_partition AND h.incarnation = c.incarnation
  AND h.bucket_start = c.bucket_start
JOIN ends e ON e.cluster = c.cluster
GROUP BY c.cluster, c.group_id, c.topic, c.bucket_start
