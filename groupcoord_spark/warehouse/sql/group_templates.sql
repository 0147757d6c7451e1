-- Families of group ids: how many groups have a template in common, how many are still there, how many begin a day, and what they
-- cost. births_a_day counts the days from the first record of the cluster to the last, both included. completeness: the lowest of the
-- offsets partitions of the groups; below 1, the counts are lower bounds.
WITH spans AS (
  SELECT cluster,
    EXTRACT(DAY FROM CAST(CAST(MAX(record_timestamp) AS DATE) AS TIMESTAMP) - CAST(CAST(MIN(record_timestamp) AS DATE) AS TIMESTAMP))
      + 1 AS days
  FROM record_positions GROUP BY cluster
)
SELECT f.cluster, f.template, COUNT(DISTINCT f.group_id) AS group_ids,
  COUNT(DISTINCT CASE WHEN f.is_there THEN f.group_id END) AS group_ids_there,
  CAST(COUNT(DISTINCT f.group_id) AS DOUBLE) / MAX(s.days) AS births_a_day,
  MIN(f.first_record_at) AS first_record_at, MAX(f.first_record_at) AS last_birth_at,
  SUM(f.records) AS records, SUM(f.bytes) AS bytes, SUM(COALESCE(f.committed_offsets, 0)) AS committed_offsets,
  MIN(f.completeness) AS completeness
FROM group_lifetimes f
JOIN spans s ON s.cluster = f.cluster
GROUP BY f.cluster, f.template
