-- How often groups rebalance, the most often in an hour first.
SELECT group_id, rebalances, rebalances_an_hour, busiest_hour, busiest_hour_rebalances, main_cause, main_cause_times, main_member,
  main_member_times, first_at, last_at, completeness
FROM rebalance_storms
ORDER BY busiest_hour_rebalances DESC NULLS LAST, rebalances DESC, group_id
