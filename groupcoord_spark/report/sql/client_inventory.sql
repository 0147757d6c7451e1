-- Members by client, the most frequent first.
SELECT first_group_id AS group_id, group_ids, client_id, client_host, library, protocol, assignor, is_static, members, session_timeout_ms,
  rebalance_timeout_ms, rack_id
FROM client_inventory
ORDER BY members DESC, first_group_id, client_id, client_host
