SELECT cluster, group_id, topic, COUNT(*) AS partitions, MIN(expires_at) AS first_expires_at
FROM {{ source('groupcoord', 'offset_expirations') }}
WHERE expires_at < as_of + INTERVAL '7' DAY
GROUP BY cluster, group_id, topic
