-- What each group costs in __consumer_offsets: records and bytes of keys and values in the history, and what stays when the log cleaner
-- is done: the newest record of each key, without tombstones and aborted commits, and without earlier
-- incarnations of __consumer_offsets. completeness: share of the records of the offsets partition that the history has. Below 1, records and bytes are lower
-- bounds; what stays is complete.
WITH written AS (
  SELECT cluster, offsets_partition, incarnation, group_id, CAST(key_version AS INTEGER) AS key_type, topic, partition,
    CAST(NULL AS VARCHAR(1)) AS key_json, record_offset, is_tombstone, key_size + COALESCE(value_size, 0) AS bytes,
    CASE WHEN transaction_result = 'aborted' THEN NULL ELSE record_offset END AS valid_offset
  FROM offset_commits_resolved
  UNION ALL
  SELECT cluster, offsets_partition, incarnation, group_id, CAST(key_type AS INTEGER), CAST(NULL AS VARCHAR(1)), CAST(NULL AS INTEGER),
    key_json, record_offset, is_tombstone, key_size + COALESCE(value_size, 0), record_offset
  FROM group_records
  WHERE group_id IS NOT NULL
),
of_keys AS (
  SELECT cluster, offsets_partition, incarnation, group_id, COUNT(*) AS records, SUM(CAST(bytes AS BIGINT)) AS bytes,
    SUM(CASE WHEN is_tombstone THEN 1 ELSE 0 END) AS tombstone_records,
    COALESCE(MAX_BY(CASE WHEN is_tombstone THEN 0 ELSE 1 END, valid_offset), 0) AS live_records,
    COALESCE(MAX_BY(CASE WHEN is_tombstone THEN 0 ELSE bytes END, valid_offset), 0) AS live_bytes
  FROM written
  GROUP BY cluster, offsets_partition, incarnation, group_id, key_type, topic, partition, key_json
),
logs AS (
  SELECT l.*, MAX(incarnation) OVER (PARTITION BY cluster) AS newest_incarnation FROM log_completeness l
)
SELECT k.cluster, k.group_id, k.offsets_partition, k.incarnation, SUM(k.records) AS records, SUM(k.bytes) AS bytes,
  SUM(CASE WHEN k.incarnation = l.newest_incarnation THEN k.live_records ELSE 0 END) AS live_records,
  SUM(CASE WHEN k.incarnation = l.newest_incarnation THEN k.live_bytes ELSE 0 END) AS live_bytes,
  SUM(k.tombstone_records) AS tombstone_records, MAX(l.completeness) AS completeness
FROM of_keys k
JOIN logs l ON l.cluster = k.cluster AND l.offsets_partition = k.offsets_partition AND l.incarnation = k.incarnation
GROUP BY k.cluster, k.group_id, k.offsets_partition, k.incarnation
