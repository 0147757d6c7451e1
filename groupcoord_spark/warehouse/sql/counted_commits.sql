-- The commits and tombstones of offsets that counted, with the moment from which they counted: the record itself, or the marker of its
-- transaction; where records have no times (up to 0.9), the time in the commit. Aborted and open transactions are left out, and commits
-- that a later record replaced before their transaction ended.
WITH ended AS (
  SELECT c.*,
    COALESCE(marker_offset, record_offset) AS counted_offset,
    COALESCE(marker_timestamp, record_timestamp, commit_timestamp) AS counted_at
  FROM offset_commits_resolved c
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
SELECT cluster, offsets_partition, incarnation, group_id, topic, partition, record_offset, counted_offset, counted_at, is_tombstone,
  committed_offset, leader_epoch, metadata, topic_id, producer_id, key_size, value_size, commit_timestamp
FROM following
WHERE next_counted_offset IS NULL OR next_counted_offset > counted_offset
