-- Generations per hour of a group's life, from its first rebalance that is known to as_of of the run that is shown, or to its last
-- rebalance if that life is over: a generation below the one before begins a new life of the group, with a row of its own. The generation
-- counts every rebalance of a life, so the rate is right even where compaction removed the records between. busiest_hour: the hour with
-- most known rebalances. main_cause: the most frequent cause; main_member: of the members whose ids are still stored, the one that joined
-- or left most often (NULL: none of them did).
-- completeness: rows of the table rebalances per generation; below 1 causes and members are of the known rebalances alone.
WITH newest AS (
  SELECT r.cluster, COALESCE(e.as_of, r.as_of) AS as_of
  FROM (SELECT cluster, as_of, ROW_NUMBER() OVER (PARTITION BY cluster ORDER BY finished_at DESC) AS age FROM runs) r
  LEFT JOIN (SELECT cluster, MAX(as_of) AS as_of FROM group_expirations GROUP BY cluster) e ON e.cluster = r.cluster
  WHERE r.age = 1
),
steps AS (
  SELECT cluster, group_id, incarnation, record_offset, record_timestamp, to_generation, cause, members_joined, members_left,
    CASE WHEN to_generation < LAG(to_generation) OVER (PARTITION BY cluster, group_id, incarnation ORDER BY record_offset)
      THEN 1 ELSE 0 END AS begins
  FROM rebalances
  WHERE kind <> 'assignment' AND record_timestamp IS NOT NULL
),
known AS (
  SELECT s.*,
    SUM(begins) OVER (
      PARTITION BY cluster, group_id, incarnation ORDER BY record_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS life
  FROM steps s
),
spans AS (
  SELECT cluster, group_id, incarnation, life, MIN(to_generation) AS first_generation, MAX(to_generation) AS last_generation,
    COUNT(DISTINCT to_generation) AS known_generations, MIN(record_timestamp) AS first_at, MAX(record_timestamp) AS last_at,
    ROW_NUMBER() OVER (PARTITION BY cluster, group_id ORDER BY incarnation DESC, life DESC) AS age
  FROM known GROUP BY cluster, group_id, incarnation, life
),
lifetimes AS (
  SELECT s.*,
    CASE WHEN g.group_id IS NULL OR n.as_of < s.last_at THEN s.last_at - s.first_at ELSE n.as_of - s.first_at END AS lifetime
  FROM spans s
  JOIN newest n ON n.cluster = s.cluster
  LEFT JOIN groups g ON g.cluster = s.cluster AND g.group_id = s.group_id AND s.age = 1
),
hours AS (
  SELECT s.*,
    EXTRACT(DAY FROM lifetime) * 24.0E0 + EXTRACT(HOUR FROM lifetime) + EXTRACT(MINUTE FROM lifetime) / 60.0E0
      + FLOOR(EXTRACT(SECOND FROM lifetime)) / 3600.0E0 AS lifetime_hours
  FROM lifetimes s
),
busiest AS (
  SELECT cluster, group_id, incarnation, life, date_trunc('hour', record_timestamp) AS busiest_hour, COUNT(*) AS times,
    ROW_NUMBER() OVER (
      PARTITION BY cluster, group_id, incarnation, life ORDER BY COUNT(*) DESC, date_trunc('hour', record_timestamp)
    ) AS place
  FROM known GROUP BY cluster, group_id, incarnation, life, date_trunc('hour', record_timestamp)
),
causes AS (
  SELECT cluster, group_id, incarnation, life, cause, COUNT(*) AS times,
    ROW_NUMBER() OVER (PARTITION BY cluster, group_id, incarnation, life ORDER BY COUNT(*) DESC, cause) AS place
  FROM known GROUP BY cluster, group_id, incarnation, life, cause
),
member_ids AS (
  SELECT cluster, group_id, member_id FROM members
  UNION SELECT cluster, group_id, leader_id FROM rebalances WHERE leader_id IS NOT NULL
  UNION SELECT cluster, group_id, member_id FROM group_records WHERE member_id IS NOT NULL AND group_id IS NOT NULL
),
of_members AS (
  SELECT k.cluster, k.group_id, k.incarnation, k.life, i.member_id, COUNT(*) AS times,
    ROW_NUMBER() OVER (PARTITION BY k.cluster, k.group_id, k.incarnation, k.life ORDER BY COUNT(*) DESC, i.member_id) AS place
  FROM known k
  JOIN member_ids i ON i.cluster = k.cluster AND i.group_id = k.group_id
  WHERE COALESCE(array_position(k.members_joined, i.member_id), 0) > 0 OR COALESCE(array_position(k.members_left, i.member_id), 0) > 0
  GROUP BY k.cluster, k.group_id, k.incarnation, k.life, i.member_id
)
SELECT h.cluster, h.group_id, h.incarnation, h.first_at, h.last_at, h.first_generation, h.last_generation,
  h.last_generation - h.first_generation AS rebalances, h.lifetime_hours,
  CASE WHEN h.lifetime_hours > 0 THEN (h.last_generation - h.first_generation) / h.lifetime_hours END AS rebalances_an_hour,
  b.busiest_hour, b.times AS busiest_hour_rebalances,
  c.cause AS main_cause, c.times AS main_cause_times, m.member_id AS main_member, m.times AS main_member_times,
  CAST(h.known_generations AS DOUBLE) / (h.last_generation - h.first_generation + 1) AS completeness
FROM hours h
LEFT JOIN busiest b ON b.cluster = h.cluster AND b.group_id = h.group_id AND b.incarnation = h.incarnation AND b.life = h.life
  AND b.place = 1
LEFT JOIN causes c ON c.cluster = h.cluster AND c.group_id = h.group_id AND c.incarnation = h.incarnation AND c.life = h.life
  AND c.place = 1
LEFT JOIN of_members m ON m.cluster = h.cluster AND m.group_id = h.group_id AND m.incarnation = h.incarnation AND m.life = h.life
  AND m.place = 1
