-- What goes on each day (UTC).
SELECT CAST(e.day AS DATE) AS day, CAST(SUM(COALESCE(e.offsets, 0)) AS BIGINT) AS offsets,
  COUNT(DISTINCT CASE WHEN e.what = 'offsets' THEN e.group_id END) AS groups_with_offsets,
  COUNT(CASE WHEN e.what = 'group' THEN 1 END) AS groups_removed
FROM expiring e
WHERE e.day IS NOT NULL
GROUP BY CAST(e.day AS DATE)
ORDER BY day
