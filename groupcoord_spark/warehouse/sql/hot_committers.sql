-- Who writes most commits: commits and bytes of each group and topic over the whole history, and how many of them committed the same
-- offset once more. share_of_commits: of all commits of the cluster.
-- completeness: share of the records of the offsets partition that the history has. Below 1, all counts are lower bounds, and
-- duplicate_share is a share of the commits that the history has.
WITH topics AS (
  -- Numbers in place of names: the names of every commit would be sorted with it.
  SELECT cluster, offsets_partition, incarnation, group_id, topic,
    ROW_NUMBER() OVER (ORDER BY cluster, offsets_partition, incarnation, group_id, topic) AS topic_number
  FROM (SELECT DISTINCT cluster, offsets_partition, incarnation, group_id, topic FROM offset_commits) t
),
steps AS (
  SELECT t.topic_number, c.partition, c.record_timestamp, c.is_tombstone, c.key_size + COALESCE(c.value_size, 0) AS bytes,
    CASE WHEN c.committed_offset = LAG(c.committed_offset) OVER (PARTITION BY t.topic_number, c.partition ORDER BY c.record_offset)
      THEN 1 ELSE 0 END AS is_duplicate
  FROM offset_commits c
  JOIN topics t ON t.cluster = c.cluster AND t.offsets_partition = c.offsets_partition AND t.incarnation = c.incarnation
    AND t.group_id = c.group_id AND t.topic = c.topic
),
of_partitions AS (
  SELECT topic_number, partition, COUNT(*) AS commits, SUM(bytes) AS bytes, SUM(is_duplicate) AS duplicates,
    MIN(record_timestamp) AS first_commit, MAX(record_timestamp) AS last_commit
  FROM steps
  WHERE NOT is_tombstone
  GROUP BY topic_number, partition
),
counts AS (
  SELECT t.cluster, t.group_id, t.topic, COUNT(DISTINCT p.partition) AS partitions, CAST(SUM(p.commits) AS BIGINT) AS commits, SUM(p.bytes) AS bytes,
    SUM(p.duplicates) AS duplicates, MIN(p.first_commit) AS first_commit, MAX(p.last_commit) AS last_commit
  FROM of_partitions p
  JOIN topics t ON t.topic_number = p.topic_number
  GROUP BY t.cluster, t.group_id, t.topic
),
logs AS (
  -- The log of a group has more than one part where __consumer_offsets was created again.
  SELECT t.cluster, t.group_id, t.topic, CAST(SUM(l.records) AS DOUBLE) / SUM(l.end_offset) AS completeness
  FROM topics t
  JOIN log_completeness l ON l.cluster = t.cluster AND l.offsets_partition = t.offsets_partition AND l.incarnation = t.incarnation
  GROUP BY t.cluster, t.group_id, t.topic
)
SELECT c.cluster, c.group_id, c.topic, c.partitions, c.commits, c.bytes, c.duplicates,
  CAST(c.duplicates AS DOUBLE) / c.commits AS duplicate_share,
  CAST(c.commits AS DOUBLE) / SUM(c.commits) OVER (PARTITION BY c.cluster) AS share_of_commits,
  c.first_commit, c.last_commit, l.completeness
FROM counts c
JOIN logs l ON l.cluster = c.cluster AND l.group_id = c.group_id AND l.topic = c.topic
