-- Every record that the history tables have, with its position among the records of its offsets partition.
-- Between two records, (difference of the positions) / (difference of the record offsets) is the share of records that the history has:
-- the log cleaner removed the others before a run read them.
SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp,
  ROW_NUMBER() OVER (PARTITION BY cluster, offsets_partition, incarnation ORDER BY record_offset) AS position
FROM (
  SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp FROM offset_commits
  UNION ALL
  SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp FROM group_records
  UNION ALL
  SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp FROM transactions
) r
