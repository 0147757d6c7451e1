-- Groups that committed in one cluster of the warehouse and later in another: the last commit there, the first one here, and by how much the
-- group went back (rewound_by; negative: it skipped offsets). commits_there_after: commits in the old cluster after the first one in the
-- new cluster, so that two applications may be at work. The offsets are comparable where the copy of the topic kept them.
-- completeness: share of the records of the offsets partition in the new cluster that the history has. Below 1 the first commit here may
-- have been compacted away, and rewound_by is a lower bound.
-- Reads the history of the groups that committed in two clusters.
WITH shared AS (
  SELECT group_id FROM offset_commits GROUP BY group_id HAVING MIN(cluster) < MAX(cluster)
),
numbered AS (
  SELECT cluster, offsets_partition, incarnation, group_id, topic, partition, counted_at, committed_offset,
    ROW_NUMBER() OVER (
      PARTITION BY cluster, group_id, topic, partition ORDER BY incarnation, counted_offset, record_offset
    ) AS place,
    ROW_NUMBER() OVER (
      PARTITION BY cluster, group_id, topic, partition ORDER BY incarnation DESC, counted_offset DESC, record_offset DESC
    ) AS place_from_end
  FROM counted_commits
  WHERE NOT is_tombstone AND counted_at IS NOT NULL AND group_id IN (SELECT group_id FROM shared)
),
firsts AS (
  SELECT cluster, offsets_partition, incarnation, group_id, topic, partition, counted_at, committed_offset FROM numbered WHERE place = 1
),
lasts AS (
  SELECT cluster, group_id, topic, partition, counted_at, committed_offset FROM numbered WHERE place_from_end = 1
),
pairs AS (
  SELECT t.cluster AS from_cluster, h.cluster AS to_cluster, h.group_id, h.topic, h.partition, h.offsets_partition, h.incarnation,
    l.counted_at AS last_there, l.committed_offset AS last_committed_there,
    h.counted_at AS first_here, h.committed_offset AS first_committed_here
  FROM firsts t
  JOIN firsts h ON h.group_id = t.group_id AND h.topic = t.topic AND h.partition = t.partition AND h.cluster <> t.cluster
    AND h.counted_at > t.counted_at
  JOIN lasts l ON l.cluster = t.cluster AND l.group_id = t.group_id AND l.topic = t.topic AND l.partition = t.partition
),
after AS (
  SELECT p.from_cluster, p.to_cluster, p.group_id, p.topic, p.partition, COUNT(*) AS commits
  FROM pairs p
  JOIN numbered n ON n.cluster = p.from_cluster AND n.group_id = p.group_id AND n.topic = p.topic AND n.partition = p.partition
    AND n.counted_at > p.first_here
  GROUP BY p.from_cluster, p.to_cluster, p.group_id, p.topic, p.partition
)
SELECT p.from_cluster, p.to_cluster, p.group_id, p.topic, p.partition, p.last_there, p.last_committed_there,
  p.first_here, p.first_committed_here, p.last_committed_there - p.first_committed_here AS rewound_by,
  COALESCE(a.commits, 0) AS commits_there_after, c.completeness
FROM pairs p
LEFT JOIN after a ON a.from_cluster = p.from_cluster AND a.to_cluster = p.to_cluster AND a.group_id = p.group_id
  AND a.topic = p.topic AND a.partition = p.partition
JOIN log_completeness c ON c.cluster = p.to_cluster AND c.offsets_partition = p.offsets_partition AND c.incarnation = p.incarnation
