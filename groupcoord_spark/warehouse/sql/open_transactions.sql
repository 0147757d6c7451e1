-- Transactions that are open at the end of the input: since when, with how many offsets of which group. While a transaction is open, the
-- log cleaner stops before its first record and its offsets do not expire. open_for counts up to as_of of the newest run.
WITH newest AS (
  SELECT cluster, as_of FROM (
    SELECT cluster, as_of, ROW_NUMBER() OVER (PARTITION BY cluster ORDER BY finished_at DESC) AS age FROM runs
  ) r WHERE age = 1
)
SELECT p.cluster, p.group_id, p.producer_id, MAX(p.producer_epoch) AS producer_epoch, p.offsets_partition,
  COUNT(*) AS offsets, COUNT(DISTINCT p.topic) AS topics, MIN(p.record_offset) AS first_record_offset,
  MIN(p.record_timestamp) AS open_since, MAX(n.as_of) - MIN(p.record_timestamp) AS open_for
FROM pending_offsets p
JOIN newest n ON n.cluster = p.cluster
GROUP BY p.cluster, p.group_id, p.producer_id, p.offsets_partition
