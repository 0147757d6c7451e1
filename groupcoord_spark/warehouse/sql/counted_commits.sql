-- The commits and tombstones of offsets that counted, with the moment from which they counted: the record itself, or the marker of its
-- transaction; where records have no times (up to 0.9), the time in the commit. Aborted and open transactions are left out, and commits
-- that a later record replaced before their transaction ended.
-- A record outside of transactions always counts. Only the partitions with a transactional record are put in order.
WITH transactional AS (
  SELECT DISTINCT cluster, offsets_partition, incarnation, group_id, topic, partition FROM offset_commits WHERE producer_id IS NOT NULL
),
ended AS (
  SELECT c.*,
    COALESCE(marker_offset, record_offset) AS counted_offset,
    COALESCE(marker_timestamp, record_timestamp, commit_timestamp) AS counted_at
  FROM offset_commits_resolved c
  JOIN transactional t ON t.cluster = c.cluster AND t.offsets_partition = c.offsets_partition AND t.incarnation = c.incarnation
    AND t.group_id = c.group_id AND t.topic = c.topic AND t.partition = c.partition
  WHERE transaction_result IS NULL OR transaction_result = 'committed'
),
following AS (
  SELECT e.*,
    MIN(counted_offset) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS next_counted_offset
  FROM ended e
)
SELECT cluster, offsets_partition, incarnation, group_id, topic, partition, record_offset, record_offset AS counted_offset,
  COALESCE(record_timestamp, commit_timestamp) AS counted_at, is_tombstone,
  committed_offset, leader_epoch, metadata, topic_id, producer_id, key_size, value_size, commit_timestamp
FROM offset_commits
WHERE producer_id IS NULL
UNION ALL
SELECT cluster, offsets_partition, incarnation, group_id, topic, partition, record_offset, counted_offset, counted_at, is_tombstone,
  committed_offset, leader_epoch, metadata, topic_id, producer_id, key_size, value_size, commit_timestamp
FROM following
WHERE producer_id IS NOT NULL AND (next_counted_offset IS NULL OR next_counted_offset > counted_offset)
