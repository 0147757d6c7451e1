-- Every drop of a committed offset: by how much, when, and of which kind. A commit after a tombstone of the offset is no drop.
-- kind: topic_recreated (the two commits carry different topic ids, so their offsets are of two logs), two_writers (two rising series of
-- commits interleave), reset (the group had no members), restart (the group had begun anew
-- since the commit before: nobody of the members before is left), late_owner (the members changed since the commit before), seek
-- (a member of the unchanged group committed a lower offset).
-- completeness: share of the records between the two commits that the history has. Below 1, commits between the two may be missing.
WITH steps AS (
  SELECT c.*,
    LAG(committed_offset) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY counted_offset, record_offset
    ) AS from_committed_offset,
    LAG(record_offset) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY counted_offset, record_offset
    ) AS from_record_offset,
    LAG(counted_offset) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY counted_offset, record_offset
    ) AS from_counted_offset,
    LAG(topic_id) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY counted_offset, record_offset
    ) AS from_topic_id,
    SUM(CASE WHEN is_tombstone THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY counted_offset, record_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS lifetime
  FROM counted_commits c
),
marked AS (
  SELECT s.*,
    MAX(committed_offset) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, lifetime ORDER BY counted_offset, record_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS highest_before
  FROM steps s
  WHERE NOT is_tombstone
),
series AS (
  SELECT m.*,
    CASE WHEN committed_offset < highest_before THEN TRUE ELSE FALSE END AS is_low,
    CASE WHEN committed_offset < from_committed_offset THEN TRUE ELSE FALSE END AS is_drop
  FROM marked m
),
lows AS (
  SELECT cluster, offsets_partition, incarnation, record_offset, counted_at, counted_offset, is_drop, committed_offset, highest_before,
    group_id, topic, partition, lifetime,
    LAG(committed_offset) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, lifetime ORDER BY counted_offset, record_offset
    ) AS low_before,
    LAG(highest_before) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, lifetime ORDER BY counted_offset, record_offset
    ) AS highest_before_low,
    LAG(is_drop) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, lifetime ORDER BY counted_offset, record_offset
    ) AS low_before_is_drop
  FROM series WHERE is_low
),
interleaved AS (
  -- A drop that goes on where the lower series stopped, after the higher series went on: two series.
  SELECT l.*,
    CASE WHEN is_drop AND committed_offset >= low_before AND committed_offset < highest_before_low AND highest_before > highest_before_low
      THEN 1 ELSE 0 END AS continues
  FROM lows l
),
paired AS (
  SELECT i.*,
    MAX(continues) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, lifetime ORDER BY counted_offset, record_offset
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS goes_on,
    MIN(CASE WHEN is_drop AND continues = 0 THEN counted_offset END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, lifetime ORDER BY counted_offset, record_offset
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS next_other_drop,
    MIN(CASE WHEN continues = 1 THEN counted_offset END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition, lifetime ORDER BY counted_offset, record_offset
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS next_continuation
  FROM interleaved i
),
drops AS (
  SELECT s.cluster, s.offsets_partition, s.incarnation, s.group_id, s.topic, s.partition, s.record_offset, s.counted_offset, s.counted_at,
    s.committed_offset, s.from_committed_offset, s.from_record_offset, s.from_counted_offset,
    CASE WHEN s.topic_id <> s.from_topic_id THEN TRUE ELSE FALSE END AS is_of_new_topic,
    CASE WHEN p.continues = 1 THEN TRUE
      WHEN p.goes_on = 1 AND (p.next_other_drop IS NULL OR p.next_continuation < p.next_other_drop) THEN TRUE
      ELSE FALSE END AS is_interleaved
  FROM series s
  JOIN paired p ON p.cluster = s.cluster AND p.offsets_partition = s.offsets_partition AND p.incarnation = s.incarnation
    AND p.record_offset = s.record_offset
  WHERE s.is_drop
),
changes AS (
  SELECT cluster, offsets_partition, incarnation, group_id, record_offset, member_count, kept_count, cause
  FROM rebalances WHERE kind <> 'assignment'
),
since AS (
  SELECT d.cluster, d.offsets_partition, d.incarnation, d.record_offset,
    MAX(c.record_offset) AS last_change,
    MAX(CASE WHEN c.record_offset > d.from_counted_offset THEN 1 ELSE 0 END) AS has_changed,
    MAX(CASE WHEN c.record_offset > d.from_counted_offset
      AND (c.kept_count = 0 OR c.member_count = 0 OR c.cause = 'member_restarted') THEN 1 ELSE 0 END) AS has_begun_anew
  FROM drops d
  JOIN changes c ON c.cluster = d.cluster AND c.offsets_partition = d.offsets_partition AND c.incarnation = d.incarnation
    AND c.group_id = d.group_id AND c.record_offset < d.record_offset
  GROUP BY d.cluster, d.offsets_partition, d.incarnation, d.record_offset
)
SELECT d.cluster, d.group_id, d.topic, d.partition, d.counted_at AS rewound_at,
  d.from_committed_offset, d.committed_offset AS to_committed_offset, d.from_committed_offset - d.committed_offset AS back_by,
  CASE WHEN d.is_of_new_topic THEN 'topic_recreated'
    WHEN d.is_interleaved THEN 'two_writers'
    WHEN c.member_count IS NULL OR c.member_count = 0 THEN 'reset'
    WHEN s.has_begun_anew = 1 THEN 'restart'
    WHEN s.has_changed = 1 THEN 'late_owner'
    ELSE 'seek' END AS kind,
  COALESCE(c.member_count, 0) AS member_count,
  -- The number of distinct partitions, counted from both ends: Spark has no COUNT(DISTINCT ...) over a window.
  CAST(DENSE_RANK() OVER (
    PARTITION BY d.cluster, d.offsets_partition, d.incarnation, d.group_id, d.counted_at ORDER BY d.topic, d.partition
  ) + DENSE_RANK() OVER (
    PARTITION BY d.cluster, d.offsets_partition, d.incarnation, d.group_id, d.counted_at ORDER BY d.topic DESC, d.partition DESC
  ) - 1 AS BIGINT) AS partitions_at_once,
  d.offsets_partition, d.incarnation, d.from_record_offset, d.record_offset,
  CASE WHEN d.record_offset = d.from_record_offset THEN 1.0E0
    ELSE CAST(t.position - f.position AS DOUBLE) / (d.record_offset - d.from_record_offset) END AS completeness
FROM drops d
LEFT JOIN since s ON s.cluster = d.cluster AND s.offsets_partition = d.offsets_partition AND s.incarnation = d.incarnation
  AND s.record_offset = d.record_offset
LEFT JOIN changes c ON c.cluster = d.cluster AND c.offsets_partition = d.offsets_partition AND c.incarnation = d.incarnation
  AND c.group_id = d.group_id AND c.record_offset = s.last_change
JOIN record_positions f ON f.cluster = d.cluster AND f.offsets_partition = d.offsets_partition AND f.incarnation = d.incarnation
  AND f.record_offset = d.from_record_offset
JOIN record_positions t ON t.cluster = d.cluster AND t.offsets_partition = d.offsets_partition AND t.incarnation = d.incarnation
  AND t.record_offset = d.record_offset
