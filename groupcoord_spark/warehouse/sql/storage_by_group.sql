-- What each group costs in __consumer_offsets: records and bytes of keys and values in the history, and what stays when the log cleaner
-- is done: the newest record of each key, without tombstones and aborted commits, and without earlier
-- incarnations of __consumer_offsets. completeness: share of the records of the offsets partition that the history has. Below 1, records and bytes are lower
-- bounds; what stays is complete.
WITH written AS (
  SELECT cluster, offsets_partition, incarnation, group_id, record_offset, is_tombstone, key_size, value_size, is_aborted,
    ROW_NUMBER() OVER (
      PARTITION BY cluster, offsets_partition, incarnation, key_version, group_id, topic, partition, is_aborted ORDER BY record_offset DESC
    ) AS age
  FROM (SELECT c.*, CASE WHEN transaction_result = 'aborted' THEN TRUE ELSE FALSE END AS is_aborted FROM offset_commits_resolved c) c
  UNION ALL
  SELECT cluster, offsets_partition, incarnation, group_id, record_offset, is_tombstone, key_size, value_size, FALSE AS is_aborted,
    ROW_NUMBER() OVER (
      PARTITION BY cluster, offsets_partition, incarnation, key_type, group_id, key_json ORDER BY record_offset DESC
    ) AS age
  FROM group_records
  WHERE group_id IS NOT NULL
),
newest AS (
  SELECT cluster, MAX(incarnation) AS incarnation FROM log_completeness GROUP BY cluster
),
judged AS (
  SELECT w.*, CASE WHEN age = 1 AND NOT is_tombstone AND NOT is_aborted AND w.incarnation = n.incarnation THEN TRUE ELSE FALSE END AS stays
  FROM written w
  JOIN newest n ON n.cluster = w.cluster
)
SELECT w.cluster, w.group_id, w.offsets_partition, w.incarnation, COUNT(*) AS records,
  SUM(CAST(key_size + COALESCE(value_size, 0) AS BIGINT)) AS bytes,
  SUM(CASE WHEN stays THEN 1 ELSE 0 END) AS live_records,
  SUM(CASE WHEN stays THEN key_size + COALESCE(value_size, 0) ELSE 0 END) AS live_bytes,
  SUM(CASE WHEN is_tombstone THEN 1 ELSE 0 END) AS tombstone_records,
  MAX(l.completeness) AS completeness
FROM judged w
JOIN log_completeness l ON l.cluster = w.cluster AND l.offsets_partition = w.offsets_partition AND l.incarnation = w.incarnation
GROUP BY w.cluster, w.group_id, w.offsets_partition, w.incarnation
