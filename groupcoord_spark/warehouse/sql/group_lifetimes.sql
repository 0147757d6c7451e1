-- Since when and until when each group that the history knows was there, and what it wrote. template is the group id with <uuid> and
-- <n> in place of UUIDs and numbers. is_there: the run that is shown has the group. removed_at: where the group is not there, its newest
-- tombstone, or that of its last offset: up to 3.9 a group that never had members has no tombstone of its own.
-- completeness: share of the records of the offsets partition that the history has. Below 1, the counts are lower bounds,
-- and a group may have begun before first_record_at.
WITH written AS (
  SELECT cluster, offsets_partition, incarnation, group_id, record_timestamp, key_size, value_size, is_tombstone, key_type,
    CASE WHEN key_type IN (2, 3, 11, 17) THEN TRUE ELSE FALSE END AS is_own
  FROM group_records WHERE group_id IS NOT NULL
  UNION ALL
  SELECT cluster, offsets_partition, incarnation, group_id, record_timestamp, key_size, value_size, is_tombstone, key_version, FALSE
  FROM offset_commits
),
lives AS (
  SELECT cluster, group_id, COUNT(*) AS records, SUM(key_size + COALESCE(value_size, 0)) AS bytes,
    MIN(record_timestamp) AS first_record_at, MAX(record_timestamp) AS last_record_at,
    COALESCE(
      MAX(CASE WHEN is_own AND is_tombstone THEN record_timestamp END),
      MAX(CASE WHEN key_type IN (0, 1) AND is_tombstone THEN record_timestamp END)
    ) AS last_tombstone_at
  FROM written
  GROUP BY cluster, group_id
),
logs AS (
  -- The log of a group has more than one part where __consumer_offsets was created again.
  SELECT w.cluster, w.group_id, CAST(SUM(l.records) AS DOUBLE) / SUM(l.end_offset) AS completeness
  FROM (SELECT DISTINCT cluster, offsets_partition, incarnation, group_id FROM written) w
  JOIN log_completeness l ON l.cluster = w.cluster AND l.offsets_partition = w.offsets_partition AND l.incarnation = w.incarnation
  GROUP BY w.cluster, w.group_id
),
named AS (
  SELECT v.*,
    regexp_replace(regexp_replace(group_id,
      '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '<uuid>'),
      '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '<uuid>') AS without_uuids
  FROM lives v
),
masked AS (
  -- Digits become the digit 0, and runs of it become one: the same in every engine, which regular expressions are not.
  SELECT n.*, TRANSLATE(without_uuids, '123456789', '000000000') AS digits_masked FROM named n
)
SELECT m.cluster, m.group_id,
  REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(digits_masked, '00000000', '0'), '0000', '0'), '00', '0'), '00', '0'), '00', '0'),
    '0', '<n>') AS template,
  g.group_type, CASE WHEN g.group_id IS NULL THEN FALSE ELSE TRUE END AS is_there, g.member_count,
  m.first_record_at, m.last_record_at, CASE WHEN g.group_id IS NULL THEN m.last_tombstone_at END AS removed_at,
  m.records, m.bytes, g.offset_count AS committed_offsets, l.completeness
FROM masked m
LEFT JOIN groups g ON g.cluster = m.cluster AND g.group_id = m.group_id
JOIN logs l ON l.cluster = m.cluster AND l.group_id = m.group_id
