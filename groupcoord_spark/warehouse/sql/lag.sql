-- How far each committed offset is behind the end of its partition in the newest sample of log ends of its topic. lag is NULL where nothing
-- can be said, with the reason in remark: no_sample (no sample has the topic), topic_gone (an older sample has the topic, the newest one
-- does not), nothing_read (the offset is -1: the client has not read yet). A negative lag keeps its sign; remark says sample_is_older
-- (the commit came after the sample) or beyond_end (the offset lies behind the end of the log: the topic may have been made anew).
-- behind_since: the newest sample in which the log ended at or before the committed offset; the group is behind for no longer than from
-- then on. share_of_log: lag as a share of the records between start and end of the log; near 1 the group is about to lose data.
WITH newest AS (
  SELECT cluster, MAX(sampled_at) AS sampled_at FROM log_ends GROUP BY cluster
),
ranked AS (
  SELECT e.*, ROW_NUMBER() OVER (PARTITION BY cluster, topic, partition ORDER BY sampled_at DESC, end_offset DESC) AS age FROM log_ends e
),
ends AS (
  SELECT r.cluster, r.topic, r.partition, r.start_offset, r.end_offset, r.sampled_at,
    CASE WHEN r.sampled_at = n.sampled_at THEN TRUE ELSE FALSE END AS is_newest
  FROM ranked r JOIN newest n ON n.cluster = r.cluster
  WHERE r.age = 1
),
behind AS (
  SELECT c.cluster, c.group_id, c.topic, c.partition, MAX(e.sampled_at) AS behind_since
  FROM committed_offsets c
  JOIN log_ends e ON e.cluster = c.cluster AND e.topic = c.topic AND e.partition = c.partition AND e.end_offset <= c.committed_offset
  GROUP BY c.cluster, c.group_id, c.topic, c.partition
),
lags AS (
  SELECT c.cluster, c.group_id, c.topic, c.partition, c.committed_offset, e.start_offset, e.end_offset, e.sampled_at,
    c.commit_timestamp AS last_commit, b.behind_since,
    CASE WHEN c.committed_offset = -1 OR e.is_newest IS NULL OR NOT e.is_newest THEN NULL ELSE e.end_offset - c.committed_offset END AS lag,
    CASE WHEN e.is_newest IS NULL THEN 'no_sample' WHEN NOT e.is_newest THEN 'topic_gone' WHEN c.committed_offset = -1 THEN 'nothing_read'
      WHEN e.end_offset < c.committed_offset AND c.commit_timestamp >= e.sampled_at THEN 'sample_is_older'
      WHEN e.end_offset < c.committed_offset THEN 'beyond_end' END AS remark
  FROM committed_offsets c
  LEFT JOIN ends e ON e.cluster = c.cluster AND e.topic = c.topic AND e.partition = c.partition
  LEFT JOIN behind b ON b.cluster = c.cluster AND b.group_id = c.group_id AND b.topic = c.topic AND b.partition = c.partition
)
SELECT cluster, group_id, topic, partition, committed_offset, end_offset, lag, remark, sampled_at, last_commit,
  CASE WHEN lag > 0 THEN behind_since END AS behind_since,
  CASE WHEN lag > 0 AND end_offset > start_offset THEN CAST(lag AS DOUBLE) / (end_offset - start_offset) END AS share_of_log,
  SUM(CASE WHEN lag > 0 THEN lag ELSE 0 END) OVER (PARTITION BY cluster, group_id) AS group_lag,
  MAX(lag) OVER (PARTITION BY cluster, group_id) AS group_max_lag
FROM lags
