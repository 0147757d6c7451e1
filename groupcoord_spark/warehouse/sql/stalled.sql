-- Partitions that a member has and that do not advance, while the other partitions of the group do: in the hour before the newest
-- of the group's committed offsets the partition did not rise, and the median of the group's partitions rose. advance counts from the last
-- commit before the hour, else from the first one in it. Reads the commits of the two days before the newest committed offset of the cluster;
-- a group that has not committed for a day does not move, and a partition whose only commit of these days is of the hour may have advanced.
-- Without the ends of the topic's log, a partition to which nobody writes looks the same. Partitions without a committed offset are in
-- assigned_never_committed.
-- completeness: share of the records of the offsets partition that the history has. Below 1, advance and commits are lower bounds.
WITH newest AS (
  -- Without what a wrong clock dated after the run.
  SELECT o.cluster, MAX(o.commit_timestamp) AS newest_at
  FROM committed_offsets o
  LEFT JOIN (SELECT DISTINCT cluster, as_of FROM group_expirations) e ON e.cluster = o.cluster
  WHERE e.as_of IS NULL OR o.commit_timestamp <= e.as_of + INTERVAL '1' DAY
  GROUP BY o.cluster
),
owned AS (
  SELECT a.cluster, a.group_id, a.topic, a.partition, MIN(a.member_id) AS member_id
  FROM assignments a WHERE a.kind = 'current' AND a.topic IS NOT NULL
  GROUP BY a.cluster, a.group_id, a.topic, a.partition
),
hours AS (
  SELECT o.cluster, o.group_id, o.offsets_partition, p.incarnation, MAX(o.commit_timestamp) - INTERVAL '1' HOUR AS begins_at,
    CASE WHEN MIN(p.first_record_timestamp) < n.newest_at - INTERVAL '2' DAY THEN 1 ELSE 0 END AS has_earlier_days
  FROM committed_offsets o
  JOIN (SELECT DISTINCT cluster, group_id FROM owned) a ON a.cluster = o.cluster AND a.group_id = o.group_id
  JOIN offsets_partitions p ON p.cluster = o.cluster AND p.offsets_partition = o.offsets_partition
  JOIN newest n ON n.cluster = o.cluster
  GROUP BY o.cluster, o.group_id, o.offsets_partition, p.incarnation, n.newest_at
  HAVING MAX(o.commit_timestamp) >= n.newest_at - INTERVAL '1' DAY
),
ended AS (
  -- As in offset_commits_resolved, of these two days alone.
  SELECT s.*,
    MIN(marker) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, producer_id ORDER BY record_offset
      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    ) AS end_offset
  FROM (
    SELECT cluster, offsets_partition, incarnation, producer_id, record_offset, CAST(NULL AS BIGINT) AS marker
    FROM offset_commits
    WHERE producer_id IS NOT NULL
      AND (record_timestamp IS NULL OR record_timestamp >= /* constant */ (SELECT MIN(newest_at) - INTERVAL '2' DAY FROM newest))
    UNION ALL
    SELECT cluster, offsets_partition, incarnation, producer_id, record_offset, record_offset FROM transactions
  ) s
),
dated AS (
  SELECT c.cluster, c.group_id, c.topic, c.partition, c.record_offset, c.committed_offset, h.has_earlier_days,
    CASE WHEN COALESCE(t.record_timestamp, c.record_timestamp, c.commit_timestamp) < h.begins_at THEN 1 ELSE 0 END AS is_earlier
  FROM offset_commits c
  JOIN hours h ON h.cluster = c.cluster AND h.group_id = c.group_id AND h.offsets_partition = c.offsets_partition
    AND h.incarnation = c.incarnation
  LEFT JOIN ended e ON e.marker IS NULL AND e.cluster = c.cluster AND e.offsets_partition = c.offsets_partition
    AND e.incarnation = c.incarnation AND e.record_offset = c.record_offset
  LEFT JOIN transactions t ON t.cluster = e.cluster AND t.offsets_partition = e.offsets_partition AND t.incarnation = e.incarnation
    AND t.record_offset = e.end_offset
  WHERE c.committed_offset IS NOT NULL AND (c.producer_id IS NULL OR t.result = 'committed')
    AND (c.record_timestamp IS NULL OR c.record_timestamp >= /* constant */ (SELECT MIN(newest_at) - INTERVAL '2' DAY FROM newest))
),
counted AS (
  -- Of the commits that count at a moment, the one with the highest record offset is the committed offset.
  SELECT cluster, group_id, topic, partition, SUM(1 - is_earlier) AS commits, MAX(has_earlier_days) AS has_earlier_days,
    MAX_BY(committed_offset, CASE WHEN is_earlier = 1 THEN record_offset END) AS last_before,
    MIN_BY(committed_offset, CASE WHEN is_earlier = 0 THEN record_offset END) AS first_within
  FROM dated
  GROUP BY cluster, group_id, topic, partition
),
advances AS (
  SELECT a.cluster, a.group_id, a.topic, a.partition, a.member_id, o.committed_offset, o.commit_timestamp, COALESCE(c.commits, 0) AS commits,
    c.commits = 1 AND c.last_before IS NULL AND c.has_earlier_days = 1 AS may_have_advanced,
    COALESCE(o.committed_offset - COALESCE(c.last_before, c.first_within), 0) AS advance
  FROM owned a
  LEFT JOIN committed_offsets o ON o.cluster = a.cluster AND o.group_id = a.group_id AND o.topic = a.topic AND o.partition = a.partition
  LEFT JOIN counted c ON c.cluster = a.cluster AND c.group_id = a.group_id AND c.topic = a.topic AND c.partition = a.partition
),
ranked AS (
  SELECT a.*,
    ROW_NUMBER() OVER (PARTITION BY cluster, group_id ORDER BY advance, topic, partition) AS place,
    COUNT(*) OVER (PARTITION BY cluster, group_id) AS partitions
  FROM advances a
),
judged AS (
  SELECT r.*,
    AVG(CASE WHEN 2 * place BETWEEN partitions AND partitions + 2 THEN CAST(advance AS DOUBLE) END) OVER (
      PARTITION BY cluster, group_id
    ) AS median_advance
  FROM ranked r
)
SELECT a.cluster, a.group_id, a.topic, a.partition, a.member_id, m.client_id, m.client_host,
  a.committed_offset, a.commit_timestamp AS last_commit, a.commits, a.advance, a.median_advance, a.partitions,
  l.completeness
FROM judged a
LEFT JOIN members m ON m.cluster = a.cluster AND m.group_id = a.group_id AND m.member_id = a.member_id
LEFT JOIN groups g ON g.cluster = a.cluster AND g.group_id = a.group_id
LEFT JOIN offsets_partitions p ON p.cluster = g.cluster AND p.offsets_partition = g.offsets_partition
LEFT JOIN log_completeness l ON l.cluster = p.cluster AND l.offsets_partition = p.offsets_partition AND l.incarnation = p.incarnation
WHERE a.advance = 0 AND a.median_advance > 0 AND a.committed_offset IS NOT NULL
  AND COALESCE(a.may_have_advanced, FALSE) = FALSE
