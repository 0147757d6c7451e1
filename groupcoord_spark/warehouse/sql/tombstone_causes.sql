-- Why each tombstone of an offset or a group was written, as far as the records show, with the evidence beside it.
SELECT cluster, offsets_partition, incarnation, record_offset, event_timestamp AS record_timestamp, group_id, topic, partition, key_type,
  cause, certainty, from_record_offset AS value_offset, commit_timestamp, expire_timestamp, base_timestamp, due_timestamp AS due_at, rule,
  group_removed, groups_at_once, evidence
FROM offset_events
WHERE kind = 'removed' AND cause <> 'transaction_aborted'
