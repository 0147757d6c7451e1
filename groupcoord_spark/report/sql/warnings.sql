-- Doubts of the run, by code.
SELECT code, COUNT(*) AS times, COUNT(DISTINCT group_id) AS group_ids, MIN(group_id) AS one_group, MIN(detail) AS for_example
FROM warnings w
JOIN night n ON n.run_id = w.run_id
GROUP BY code
ORDER BY times DESC, code
