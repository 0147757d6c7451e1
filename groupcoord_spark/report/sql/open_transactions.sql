-- Transactions that are open at the end of the input, the oldest first.
SELECT t.group_id, t.transactional_id, t.producer_id, t.producer_epoch, t.offsets, t.topics, t.open_since,
  (epoch_ms(n.as_of) - epoch_ms(t.open_since)) / 3600000.0E0 AS open_hours, t.offsets_partition, t.first_record_offset
FROM open_transactions t
CROSS JOIN night n
ORDER BY t.open_since NULLS FIRST, t.group_id, t.producer_id
