-- Every record offset that a group passed without reading it, as far as the records show: how many, when, and why.
SELECT cluster, group_id, topic, partition, event_timestamp AS skipped_at, from_committed_offset, to_committed_offset, records_skipped,
  counts_are_exact, cause, certainty, member_count, offsets_partition, incarnation, from_record_offset, record_offset, evidence
FROM offset_events
WHERE kind = 'skipped'
