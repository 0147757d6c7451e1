-- Commits and bytes of each group, topic and hour. completeness: of the records of the offsets partition between
-- the first and the last known record of that hour, the share that the history has; below 1 the counts are lower bounds. window_is_complete:
-- the log goes on after the hour.
WITH hours AS (
  SELECT cluster, offsets_partition, incarnation, date_trunc('hour', record_timestamp) AS bucket_start,
    COUNT(*) AS records, MAX(record_offset) - MIN(record_offset) + 1 AS span
  FROM record_positions
  WHERE record_timestamp IS NOT NULL
  GROUP BY cluster, offsets_partition, incarnation, date_trunc('hour', record_timestamp)
),
ends AS (
  SELECT cluster, MAX(record_timestamp) AS newest_at FROM record_positions GROUP BY cluster
),
counts AS (
  SELECT cluster, offsets_partition, incarnation, group_id, topic, date_trunc('hour', record_timestamp) AS bucket_start,
    SUM(CASE WHEN is_tombstone THEN 0 ELSE 1 END) AS commits,
    SUM(CASE WHEN is_tombstone THEN 1 ELSE 0 END) AS tombstones,
    SUM(key_size + COALESCE(value_size, 0)) AS bytes
  FROM offset_commits
  WHERE record_timestamp IS NOT NULL
  GROUP BY cluster, offsets_partition, incarnation, group_id, topic, date_trunc('hour', record_timestamp)
)
SELECT c.cluster, c.group_id, c.topic, c.bucket_start, SUM(c.commits) AS commits, SUM(c.tombstones) AS tombstones,
  SUM(c.bytes) AS bytes, CAST(SUM(h.records) AS DOUBLE) / SUM(h.span) AS completeness,
  MAX(e.newest_at) >= c.bucket_start + INTERVAL '1' HOUR AS window_is_complete
FROM counts c
JOIN hours h ON h.cluster = c.cluster AND h.offsets_partition = c.offsets_partition AND h.incarnation = c.incarnation
  AND h.bucket_start = c.bucket_start
JOIN ends e ON e.cluster = c.cluster
GROUP BY c.cluster, c.group_id, c.topic, c.bucket_start
