-- What the doctor found about the offsets topic, the most urgent first.
SELECT finding, severity, offsets_partition, subject, certainty, since, summary, remedy, ask
FROM topic_health
WHERE severity <> 'normal'
ORDER BY severity = 'sick' DESC, finding, offsets_partition NULLS FIRST, subject
