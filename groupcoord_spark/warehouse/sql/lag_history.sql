-- The lag of each group and partition at every sample of log ends: the last commit that counted up to the sample, against the log end.
-- produced, consumed and deleted count from the sample before; deleted: by how much the log begins later. hours_to_clear: how long the
-- group needs at this pace until it has read everything; NULL: it does not come closer, or there is no sample before. hours_to_loss: how
-- long at this pace until the start of the log overtakes the group, 0 if it has; NULL: it does not come closer, or the samples have no
-- start offsets.
-- A committed offset beyond the end in a checkpoint, which a broker writes every 5 seconds, has lag 0 if it was committed in these seconds.
-- completeness: share of the records of the offsets partition that the history has. Below 1 the last commit before a sample may have been
-- removed, and committed_offset is then an older one: lag is an upper bound.
WITH samples AS (
  SELECT cluster, topic, partition, sampled_at, MAX(start_offset) AS start_offset, MAX(end_offset) AS end_offset,
    BOOL_AND(COALESCE(source, '') = 'checkpoint') AS of_checkpoint,
    LAG(sampled_at) OVER (PARTITION BY cluster, topic, partition ORDER BY sampled_at) AS sampled_before
  FROM log_ends GROUP BY cluster, topic, partition, sampled_at
),
latest AS (
  -- Between two samples only the last commit matters.
  SELECT c.cluster, c.offsets_partition, c.incarnation, c.group_id, c.topic, c.partition, s.sampled_at,
    MAX(c.record_offset) AS record_offset, MAX_BY(c.counted_at, c.record_offset) AS counted_at,
    MAX_BY(CASE WHEN c.is_tombstone THEN -1 ELSE c.committed_offset END, c.record_offset) AS committed_offset
  FROM counted_commits c
  JOIN samples s ON s.cluster = c.cluster AND s.topic = c.topic AND s.partition = c.partition AND c.counted_at <= s.sampled_at
    AND (s.sampled_before IS NULL OR c.counted_at > s.sampled_before)
  WHERE c.topic IN /* constant */ (SELECT DISTINCT topic FROM log_ends)
  GROUP BY c.cluster, c.offsets_partition, c.incarnation, c.group_id, c.topic, c.partition, s.sampled_at
),
placed AS (
  SELECT l.*,
    ROW_NUMBER() OVER (PARTITION BY cluster, group_id, topic, partition ORDER BY incarnation, record_offset) AS place
  FROM latest l
),
reached AS (
  -- Clocks may go back: a commit may have an earlier time than one before it.
  SELECT p.*, MAX(place) OVER (PARTITION BY cluster, group_id, topic, partition ORDER BY sampled_at) AS last_place FROM placed p
),
spans AS (
  SELECT r.*, LEAD(sampled_at) OVER (PARTITION BY cluster, group_id, topic, partition ORDER BY sampled_at) AS replaced_at
  FROM reached r WHERE place = last_place
),
last_commits AS (
  SELECT c.cluster, c.offsets_partition, c.incarnation, c.group_id, c.topic, c.partition, c.counted_at, c.committed_offset,
    s.sampled_at, s.start_offset, s.end_offset, s.of_checkpoint
  FROM spans c
  JOIN samples s ON s.cluster = c.cluster AND s.topic = c.topic AND s.partition = c.partition AND s.sampled_at >= c.sampled_at
    AND (c.replaced_at IS NULL OR s.sampled_at < c.replaced_at)
  WHERE c.committed_offset >= 0
),
lags AS (
  SELECT cluster, offsets_partition, incarnation, group_id, topic, partition, sampled_at, committed_offset, start_offset, end_offset,
    CASE WHEN of_checkpoint AND end_offset < committed_offset AND counted_at >= sampled_at - INTERVAL '5' SECOND THEN 0 ELSE end_offset - committed_offset END AS lag,
    LAG(committed_offset) OVER (PARTITION BY cluster, group_id, topic, partition ORDER BY sampled_at) AS committed_before,
    LAG(start_offset) OVER (PARTITION BY cluster, group_id, topic, partition ORDER BY sampled_at) AS start_before,
    LAG(end_offset) OVER (PARTITION BY cluster, group_id, topic, partition ORDER BY sampled_at) AS end_before,
    sampled_at - LAG(sampled_at) OVER (PARTITION BY cluster, group_id, topic, partition ORDER BY sampled_at) AS since_sample_before
  FROM last_commits
),
paces AS (
  SELECT l.*, end_offset - end_before AS produced, committed_offset - committed_before AS consumed, start_offset - start_before AS deleted,
    EXTRACT(DAY FROM since_sample_before) * 24.0E0 + EXTRACT(HOUR FROM since_sample_before)
      + EXTRACT(MINUTE FROM since_sample_before) / 60.0E0 + FLOOR(EXTRACT(SECOND FROM since_sample_before)) / 3600.0E0 AS hours
  FROM lags l
)
SELECT p.cluster, p.group_id, p.topic, p.partition, p.sampled_at, p.committed_offset, p.end_offset, p.lag, p.produced, p.consumed, p.deleted,
  CASE WHEN p.lag > 0 AND p.consumed > p.produced THEN p.lag * p.hours / (p.consumed - p.produced) END AS hours_to_clear,
  CASE WHEN p.lag > 0 AND p.committed_offset < p.start_offset THEN 0.0E0
    WHEN p.lag > 0 AND p.deleted > p.consumed THEN (p.committed_offset - p.start_offset) * p.hours / (p.deleted - p.consumed)
    END AS hours_to_loss,
  c.completeness
FROM paces p
JOIN log_completeness c ON c.cluster = p.cluster AND c.offsets_partition = p.offsets_partition AND c.incarnation = p.incarnation
