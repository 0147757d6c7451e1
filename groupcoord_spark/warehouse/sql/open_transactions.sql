-- Transactions that are open at the end of the input: since when, with how many offsets of which group. While a transaction is open, the
-- log cleaner stops before its first record and its offsets do not expire. A transaction may commit an offset twice: first_record_offset
-- and open_since are of the first record that the history has of it. open_for counts up to as_of of the run that is shown.
-- transactional_id: of the application, where the run had a copy of __transaction_state.
WITH newest AS (
  SELECT r.cluster, COALESCE(e.as_of, r.as_of) AS as_of
  FROM (SELECT cluster, as_of, ROW_NUMBER() OVER (PARTITION BY cluster ORDER BY finished_at DESC) AS age FROM runs) r
  LEFT JOIN (SELECT cluster, MAX(as_of) AS as_of FROM group_expirations GROUP BY cluster) e ON e.cluster = r.cluster
  WHERE r.age = 1
),
markers AS (
  SELECT cluster, offsets_partition, incarnation, producer_id, MAX(record_offset) AS last_offset
  FROM transactions GROUP BY cluster, offsets_partition, incarnation, producer_id
),
written AS (
  SELECT cluster, group_id, producer_id, producer_epoch, offsets_partition, topic, partition, record_offset, record_timestamp,
    TRUE AS is_pending, transactional_id
  FROM pending_offsets
  UNION ALL
  SELECT c.cluster, c.group_id, c.producer_id, c.producer_epoch, c.offsets_partition, c.topic, c.partition, c.record_offset,
    c.record_timestamp, FALSE AS is_pending, NULL AS transactional_id
  FROM offset_commits c
  JOIN offsets_partitions p ON p.cluster = c.cluster AND p.offsets_partition = c.offsets_partition AND p.incarnation = c.incarnation
  LEFT JOIN markers m ON m.cluster = c.cluster AND m.offsets_partition = c.offsets_partition AND m.incarnation = c.incarnation
    AND m.producer_id = c.producer_id
  WHERE c.producer_id IS NOT NULL AND c.record_offset >= p.last_stable_offset AND c.record_offset > COALESCE(m.last_offset, -1)
)
SELECT w.cluster, w.group_id, w.producer_id, MAX(w.producer_epoch) AS producer_epoch, w.offsets_partition,
  COUNT(CASE WHEN is_pending THEN 1 END) AS offsets, COUNT(DISTINCT CASE WHEN is_pending THEN topic END) AS topics,
  MIN(w.record_offset) AS first_record_offset, MIN(w.record_timestamp) AS open_since,
  MAX(n.as_of) - MIN(w.record_timestamp) AS open_for, MAX(w.transactional_id) AS transactional_id
FROM written w
JOIN newest n ON n.cluster = w.cluster
GROUP BY w.cluster, w.group_id, w.producer_id, w.offsets_partition
HAVING COUNT(CASE WHEN is_pending THEN 1 END) > 0
