-- Every record offset that a group passed without reading it, as far as the records show: how many, when, and why.
-- removed_by: of a group that began again, why the offset had gone.
WITH events AS (
  SELECT *,
    CASE WHEN cause = 'restarted_after_removal' THEN LAG(cause) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
    ) END AS removed_by
  FROM offset_events
  WHERE kind = 'skipped' OR kind = 'removed' AND cause <> 'transaction_aborted'
    AND group_id IN /* constant */ (SELECT DISTINCT group_id FROM offset_events WHERE cause = 'restarted_after_removal')
)
SELECT cluster, group_id, topic, partition, event_timestamp AS skipped_at, from_committed_offset, to_committed_offset, records_skipped,
  counts_are_exact, cause, certainty, removed_by, member_count, offsets_partition, incarnation, from_record_offset, record_offset, evidence
FROM events
WHERE kind = 'skipped'
