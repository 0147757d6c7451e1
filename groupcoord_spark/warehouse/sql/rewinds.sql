-- Every commit of a lower offset than before, also the first one after the offset was removed: by how much, when, and why.
-- kind: the cause of the row of offset_events, or two_writers where two rising series of commits interleave: the next low commit goes on
-- where the last low one stopped, after the higher series went on. removed_by: of a group that began again, why the offset had gone.
WITH events AS (
  SELECT *,
    CASE WHEN cause = 'restarted_after_removal' THEN LAG(cause) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
    ) END AS removed_by
  FROM offset_events
  WHERE kind = 'rewound' OR kind = 'removed' AND cause <> 'transaction_aborted'
    AND group_id IN /* constant */ (SELECT DISTINCT group_id FROM offset_events WHERE cause = 'restarted_after_removal')
),
drops AS (
  SELECT *,
    LAG(from_committed_offset) OVER offsets AS higher_before, LAG(to_committed_offset) OVER offsets AS lower_before,
    LEAD(from_committed_offset) OVER offsets AS next_higher, LEAD(to_committed_offset) OVER offsets AS next_lower,
    COUNT(*) OVER (PARTITION BY cluster, offsets_partition, incarnation, group_id, event_timestamp) AS partitions_at_once
  FROM events
  WHERE kind = 'rewound'
  WINDOW offsets AS (PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset)
)
SELECT cluster, group_id, topic, partition, event_timestamp AS rewound_at, from_committed_offset, to_committed_offset,
  from_committed_offset - to_committed_offset AS back_by,
  CASE WHEN (cause IN ('seek', 'late_commit') OR cause = 'reset' AND certainty <> 'certain') AND (
      to_committed_offset >= lower_before AND to_committed_offset < higher_before AND from_committed_offset > higher_before
      OR next_lower >= to_committed_offset AND next_lower < from_committed_offset AND next_higher > from_committed_offset
    ) THEN 'two_writers' ELSE cause END AS kind,
  certainty, removed_by, member_count, partitions_at_once, records_reread, counts_are_exact, offsets_partition, incarnation, from_record_offset,
  record_offset, evidence
FROM drops
