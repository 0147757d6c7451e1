-- How far each committed offset is behind the end of its partition in the newest sample of log ends of its topic. lag is NULL where nothing
-- can be said, with the reason in remark: no_sample (the sample lacks the partition), topic_gone (an older sample has the topic, the newest
-- one has none of its partitions), nothing_read (the offset is negative: the client has not read yet). A negative lag keeps its sign; remark says
-- sample_is_older (the commit came after the sample) or beyond_end (the offset lies behind the end of the log: the topic may have been made
-- again). source says where the log ends come from (checkpoint, sample, broker). A broker writes its checkpoint every 5 seconds, so a committed
-- offset beyond the end in a checkpoint has lag 0 if the commit is newer than 5 seconds before it. Where the log begins after the committed offset, remark is lost, and lost counts the records that are gone unread.
-- behind_since: the newest sample in which the log ended at or before the committed offset; the group is behind for no longer than from
-- then on. hours_behind: how long before the sample the next record to read was written, as if the log had grown evenly between samples.
-- share_of_log: lag as a share of the records between start and end of the log; near 1 the group is about to lose data. hours_to_loss: when
-- the start of the log reaches the committed offset, at the pace of the samples of the last seven days, if the group stands still.
-- group_lag, group_max_lag: of the partitions with a lag, where a negative one counts as 0; lower bounds where group_lag_is_partial: the
-- sample lacks a partition of the group.
WITH newest AS (
  SELECT cluster, MAX(sampled_at) AS sampled_at FROM log_ends GROUP BY cluster
),
ranked AS (
  SELECT e.*, ROW_NUMBER() OVER (PARTITION BY cluster, topic, partition ORDER BY sampled_at DESC, end_offset DESC) AS age FROM log_ends e
),
ends AS (
  SELECT r.cluster, r.topic, r.partition, r.start_offset, r.end_offset, r.sampled_at, r.source,
    CASE WHEN r.sampled_at = n.sampled_at THEN TRUE ELSE FALSE END AS is_newest,
    CASE WHEN MAX(r.sampled_at) OVER (PARTITION BY r.cluster, r.topic) = n.sampled_at THEN TRUE ELSE FALSE END AS has_topic
  FROM ranked r JOIN newest n ON n.cluster = r.cluster
  WHERE r.age = 1
),
firsts AS (
  SELECT cluster, topic, partition, start_offset, sampled_at FROM (
    SELECT l.cluster, l.topic, l.partition, l.start_offset, l.sampled_at,
      ROW_NUMBER() OVER (PARTITION BY l.cluster, l.topic, l.partition ORDER BY l.sampled_at, l.start_offset) AS place
    FROM log_ends l
    JOIN newest n ON n.cluster = l.cluster
    WHERE l.start_offset IS NOT NULL AND l.sampled_at >= n.sampled_at - INTERVAL '7' DAY
  ) f WHERE place = 1
),
starts AS (
  SELECT e.cluster, e.topic, e.partition, e.start_offset - f.start_offset AS deleted, e.sampled_at - f.sampled_at AS passed
  FROM ends e
  JOIN firsts f ON f.cluster = e.cluster AND f.topic = e.topic AND f.partition = e.partition AND f.sampled_at < e.sampled_at
  WHERE e.start_offset > f.start_offset
),
growth AS (
  SELECT cluster, topic, partition, end_offset, sampled_at,
    LEAD(end_offset) OVER (PARTITION BY cluster, topic, partition ORDER BY sampled_at) AS next_end,
    LEAD(sampled_at) OVER (PARTITION BY cluster, topic, partition ORDER BY sampled_at) AS next_sample
  FROM (
    SELECT cluster, topic, partition, sampled_at, MAX(end_offset) AS end_offset
    FROM log_ends GROUP BY cluster, topic, partition, sampled_at
  ) s
),
behind AS (
  SELECT cluster, group_id, topic, partition, end_offset, sampled_at AS behind_since, next_end, next_sample, committed_offset
  FROM (
    SELECT c.cluster, c.group_id, c.topic, c.partition, c.committed_offset, g.end_offset, g.sampled_at, g.next_end, g.next_sample,
      ROW_NUMBER() OVER (PARTITION BY c.cluster, c.group_id, c.topic, c.partition ORDER BY g.sampled_at DESC) AS age
    FROM committed_offsets c
    JOIN growth g ON g.cluster = c.cluster AND g.topic = c.topic AND g.partition = c.partition AND g.end_offset <= c.committed_offset
  ) b WHERE age = 1
),
lags AS (
  SELECT c.cluster, c.group_id, c.topic, c.partition, c.committed_offset, e.start_offset, e.end_offset, e.sampled_at, e.source,
    c.commit_timestamp AS last_commit, b.behind_since, b.next_sample, s.deleted,
    CASE WHEN b.next_end > b.end_offset THEN (c.committed_offset - b.end_offset) / CAST(b.next_end - b.end_offset AS DOUBLE) END AS grown,
    e.sampled_at - b.behind_since AS since_behind, b.next_sample - b.behind_since AS between_samples, s.passed,
    CASE WHEN c.committed_offset < 0 OR e.is_newest IS NULL OR NOT e.is_newest THEN NULL
      WHEN e.source = 'checkpoint' AND e.end_offset < c.committed_offset AND c.commit_timestamp >= e.sampled_at - INTERVAL '5' SECOND
        THEN 0 ELSE e.end_offset - c.committed_offset END AS lag,
    CASE WHEN e.is_newest IS NULL OR (e.has_topic AND NOT e.is_newest) THEN 'no_sample' WHEN NOT e.is_newest THEN 'topic_gone' WHEN c.committed_offset < 0 THEN 'nothing_read'
      WHEN e.end_offset < c.committed_offset AND c.commit_timestamp >= e.sampled_at THEN 'sample_is_older'
      WHEN e.end_offset < c.committed_offset AND e.source = 'checkpoint' AND c.commit_timestamp >= e.sampled_at - INTERVAL '5' SECOND
        THEN 'sample_is_older'
      WHEN e.end_offset < c.committed_offset THEN 'beyond_end'
      WHEN c.committed_offset < e.start_offset THEN 'lost' END AS remark
  FROM committed_offsets c
  LEFT JOIN ends e ON e.cluster = c.cluster AND e.topic = c.topic AND e.partition = c.partition
  LEFT JOIN starts s ON s.cluster = c.cluster AND s.topic = c.topic AND s.partition = c.partition
  LEFT JOIN behind b ON b.cluster = c.cluster AND b.group_id = c.group_id AND b.topic = c.topic AND b.partition = c.partition
),
timed AS (
  SELECT l.*,
    EXTRACT(DAY FROM since_behind) * 24.0E0 + EXTRACT(HOUR FROM since_behind) + EXTRACT(MINUTE FROM since_behind) / 60.0E0
      + FLOOR(EXTRACT(SECOND FROM since_behind)) / 3600.0E0 AS hours_since_behind,
    EXTRACT(DAY FROM between_samples) * 24.0E0 + EXTRACT(HOUR FROM between_samples) + EXTRACT(MINUTE FROM between_samples) / 60.0E0
      + FLOOR(EXTRACT(SECOND FROM between_samples)) / 3600.0E0 AS hours_between_samples,
    EXTRACT(DAY FROM passed) * 24.0E0 + EXTRACT(HOUR FROM passed) + EXTRACT(MINUTE FROM passed) / 60.0E0
      + FLOOR(EXTRACT(SECOND FROM passed)) / 3600.0E0 AS hours_passed
  FROM lags l
)
SELECT cluster, group_id, topic, partition, committed_offset, end_offset, lag, remark, sampled_at, last_commit,
  CASE WHEN lag > 0 THEN behind_since END AS behind_since,
  CASE WHEN lag > 0 THEN hours_since_behind - grown * hours_between_samples END AS hours_behind,
  CASE WHEN lag > 0 AND end_offset > start_offset THEN CAST(lag AS DOUBLE) / (end_offset - start_offset) END AS share_of_log,
  CASE WHEN lag IS NOT NULL AND start_offset IS NOT NULL THEN CASE WHEN remark = 'lost' THEN start_offset - committed_offset ELSE 0 END
    END AS lost,
  CASE WHEN lag > 0 AND committed_offset >= start_offset AND deleted > 0 THEN (committed_offset - start_offset) * hours_passed / deleted
    END AS hours_to_loss,
  SUM(CASE WHEN lag > 0 THEN lag WHEN lag IS NOT NULL THEN 0 END) OVER (PARTITION BY cluster, group_id) AS group_lag,
  MAX(CASE WHEN lag > 0 THEN lag WHEN lag IS NOT NULL THEN 0 END) OVER (PARTITION BY cluster, group_id) AS group_max_lag,
  MAX(CASE WHEN remark = 'no_sample' THEN 1 ELSE 0 END) OVER (PARTITION BY cluster, group_id) = 1 AS group_lag_is_partial,
  source
FROM timed
