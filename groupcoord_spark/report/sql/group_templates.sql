-- Families of group ids, the most expensive first.
SELECT template, group_ids, group_ids_there, births_a_day, records, bytes, CAST(committed_offsets AS BIGINT) AS committed_offsets,
  first_record_at, last_birth_at, completeness
FROM group_templates
ORDER BY bytes DESC, template
