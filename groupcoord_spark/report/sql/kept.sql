-- What stays while the group stays as it is, by reason.
SELECT e.what, e.never_because AS reason, CAST(SUM(e.offsets) AS BIGINT) AS offsets, COUNT(DISTINCT e.group_id) AS group_ids
FROM expiring e
WHERE e.day IS NULL
GROUP BY e.what, e.never_because
ORDER BY group_ids DESC, reason
