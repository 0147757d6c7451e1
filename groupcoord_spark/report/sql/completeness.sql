-- How much of the log of each offsets partition was read, and how much of it the history has; the most incomplete first.
SELECT p.offsets_partition, p.incarnation, p.first_offset, p.end_offset, p.last_stable_offset, p.records, p.quarantined, p.bytes,
  p.newest_timestamp, p.stale_since, p.history_first_offset, p.history_end_offset, l.completeness
FROM offsets_partitions p
LEFT JOIN log_completeness l ON l.offsets_partition = p.offsets_partition AND l.incarnation = p.incarnation
ORDER BY l.completeness NULLS FIRST, p.offsets_partition
