-- Partitions that a member has and that do not advance, while the other partitions of the group do: in the hour before the group's
-- newest commit the committed offset did not rise, and the median of the group's partitions rose. advance counts from the last commit
-- before the hour, else from the first one in it, to the newest. Without the ends of the topic's log, a partition to which nobody writes
-- looks the same. Partitions without a committed offset are in assigned_never_committed.
-- completeness: share of the records of the offsets partition that the history has. Below 1, advance and commits are lower bounds.
WITH of_groups AS (
  SELECT cluster, group_id, topic, partition, committed_offset,
    CASE WHEN counted_at >= MAX(counted_at) OVER (PARTITION BY cluster, group_id) - INTERVAL '1' HOUR THEN 1 ELSE 0 END AS is_of_hour,
    ROW_NUMBER() OVER (
      PARTITION BY cluster, group_id, topic, partition ORDER BY incarnation DESC, counted_offset DESC, record_offset DESC
    ) AS age
  FROM counted_commits
  WHERE NOT is_tombstone
),
advanced AS (
  SELECT cluster, group_id, topic, partition, SUM(is_of_hour) AS commits,
    MAX(CASE WHEN age = 1 THEN committed_offset END) - MAX(CASE WHEN age = base_age THEN committed_offset END) AS advance
  FROM (
    SELECT *, COALESCE(
      MIN(CASE WHEN is_of_hour = 0 THEN age END) OVER (PARTITION BY cluster, group_id, topic, partition),
      MAX(age) OVER (PARTITION BY cluster, group_id, topic, partition)
    ) AS base_age
    FROM of_groups
  ) c
  GROUP BY cluster, group_id, topic, partition
),
owned AS (
  SELECT a.cluster, a.group_id, a.topic, a.partition, MIN(a.member_id) AS member_id
  FROM assignments a WHERE a.kind = 'current' AND a.topic IS NOT NULL
  GROUP BY a.cluster, a.group_id, a.topic, a.partition
),
advances AS (
  SELECT o.cluster, o.group_id, o.topic, o.partition, o.member_id, COALESCE(h.commits, 0) AS commits, COALESCE(h.advance, 0) AS advance
  FROM owned o
  LEFT JOIN advanced h ON h.cluster = o.cluster AND h.group_id = o.group_id AND h.topic = o.topic AND h.partition = o.partition
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
  o.committed_offset, o.commit_timestamp AS last_commit, a.commits, a.advance, a.median_advance, a.partitions,
  l.completeness
FROM judged a
LEFT JOIN members m ON m.cluster = a.cluster AND m.group_id = a.group_id AND m.member_id = a.member_id
LEFT JOIN committed_offsets o ON o.cluster = a.cluster AND o.group_id = a.group_id AND o.topic = a.topic AND o.partition = a.partition
LEFT JOIN groups g ON g.cluster = a.cluster AND g.group_id = a.group_id
LEFT JOIN offsets_partitions p ON p.cluster = g.cluster AND p.offsets_partition = g.offsets_partition
LEFT JOIN log_completeness l ON l.cluster = p.cluster AND l.offsets_partition = p.offsets_partition AND l.incarnation = p.incarnation
WHERE a.advance = 0 AND a.median_advance > 0 AND o.topic IS NOT NULL
