-- What the run could not read, by reason.
SELECT reason, COUNT(*) AS faults, CAST(SUM(records) AS BIGINT) AS records, CAST(SUM(size) AS BIGINT) AS bytes, MIN(detail) AS for_example
FROM quarantined_records q
JOIN night n ON n.run_id = q.run_id
GROUP BY reason
ORDER BY faults DESC, reason
