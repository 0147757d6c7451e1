-- The finished runs up to this one, the newest first.
SELECT run_id, kind, as_of, finished_at, semantics, broker_version, records_read, records_quarantined, bytes_read, groups, warnings
FROM runs
ORDER BY finished_at DESC
