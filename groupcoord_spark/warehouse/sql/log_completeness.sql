-- How much of the log of each offsets partition the history tables have: completeness is the share of the record offsets from 0 on that
-- have a row. Below 1, the log cleaner removed records before a run read them, and every count of the history is a lower bound.
SELECT cluster, offsets_partition, incarnation,
  COUNT(*) AS records,
  MAX(record_offset) + 1 AS end_offset,
  CAST(COUNT(*) AS DOUBLE) / (MAX(record_offset) + 1) AS completeness
FROM record_positions
GROUP BY cluster, offsets_partition, incarnation
