-- Who writes most commits: commits and bytes of each group and topic over the whole history, and how many of them committed the same
-- offset once more. share_of_commits: of all commits of the cluster.
-- completeness: share of the records of the offsets partition that the history has. Below 1, all counts are lower bounds, and
-- duplicate_share is a share of the commits that the history has.
WITH steps AS (
  SELECT cluster, offsets_partition, incarnation, group_id, topic, partition, record_timestamp, is_tombstone, key_size, value_size,
    CASE WHEN committed_offset = LAG(committed_offset) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
    ) THEN 1 ELSE 0 END AS is_duplicate
  FROM offset_commits
),
counts AS (
  SELECT cluster, group_id, topic, COUNT(DISTINCT partition) AS partitions, COUNT(*) AS commits,
    SUM(key_size + COALESCE(value_size, 0)) AS bytes, SUM(is_duplicate) AS duplicates,
    MIN(record_timestamp) AS first_commit, MAX(record_timestamp) AS last_commit
  FROM steps
  WHERE NOT is_tombstone
  GROUP BY cluster, group_id, topic
),
logs AS (
  -- The log of a group has more than one part where __consumer_offsets was created again.
  SELECT s.cluster, s.group_id, s.topic, CAST(SUM(l.records) AS DOUBLE) / SUM(l.end_offset) AS completeness
  FROM (SELECT DISTINCT cluster, offsets_partition, incarnation, group_id, topic FROM steps) s
  JOIN log_completeness l ON l.cluster = s.cluster AND l.offsets_partition = s.offsets_partition AND l.incarnation = s.incarnation
  GROUP BY s.cluster, s.group_id, s.topic
)
SELECT c.cluster, c.group_id, c.topic, c.partitions, c.commits, c.bytes, c.duplicates,
  CAST(c.duplicates AS DOUBLE) / c.commits AS duplicate_share,
  CAST(c.commits AS DOUBLE) / SUM(c.commits) OVER (PARTITION BY c.cluster) AS share_of_commits,
  c.first_commit, c.last_commit, l.completeness
FROM counts c
JOIN logs l ON l.cluster = c.cluster AND l.group_id = c.group_id AND l.topic = c.topic
