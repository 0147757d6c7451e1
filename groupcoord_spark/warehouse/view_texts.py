"""Views over the tables, as SQL that Spark, DuckDB and Trino read, and their registration in a Spark session as of one run."""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from groupcoord_spark.warehouse.reasons import GROUP_STAYS_BECAUSE, NEVER_OLD_ENOUGH, NO_GROUP_IS_REMOVED, OFFSET_STAYS_BECAUSE
from groupcoord_spark.warehouse.tables import OFFSET_COMMITS

# The end of a transaction is the first marker of its producer after the record, whatever the marker's epoch (the coordinator asks for the
# producer id alone). Markers and transactional records are sorted together, so no producer, however long it lives, becomes a join of all
# with all.
OFFSET_COMMITS_RESOLVED: Final = f"""
WITH staged AS (
  SELECT cluster, offsets_partition, incarnation, record_offset, producer_id, CAST(NULL AS BIGINT) AS marker
  FROM offset_commits WHERE producer_id IS NOT NULL
  UNION ALL
  SELECT cluster, offsets_partition, incarnation, record_offset, producer_id, record_offset AS marker
  FROM transactions
),
ended AS (
  SELECT cluster, offsets_partition, incarnation, record_offset, marker,
    MIN(marker) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, producer_id ORDER BY record_offset
      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    ) AS end_offset
  FROM staged
)
SELECT {", ".join(f"c.{column.name}" for column in OFFSET_COMMITS.columns)},
  CASE WHEN t.result IS NULL THEN 'open' ELSE t.result END AS transaction_result,
  t.record_offset AS marker_offset,
  t.record_timestamp AS marker_timestamp
FROM offset_commits c
JOIN ended e ON e.marker IS NULL AND e.cluster = c.cluster AND e.offsets_partition = c.offsets_partition
  AND e.incarnation = c.incarnation AND e.record_offset = c.record_offset
LEFT JOIN transactions t ON t.cluster = c.cluster AND t.offsets_partition = c.offsets_partition
  AND t.incarnation = c.incarnation AND t.record_offset = e.end_offset
WHERE c.producer_id IS NOT NULL
UNION ALL
SELECT {", ".join(column.name for column in OFFSET_COMMITS.columns)}, NULL, NULL, NULL
FROM offset_commits
WHERE producer_id IS NULL
""".strip()
"""offset_commits with transaction_result (committed, aborted, open; NULL: not in a transaction) and the marker's offset and timestamp."""


def _case(column: str, sentences: Mapping[str, str]) -> str:
    return " ".join([f"CASE {column}", *(f"WHEN '{word}' THEN '{sentence}'" for word, sentence in sentences.items()), "END"])


_TRAPS: Final = (
    *("inherits_empty_time", "topic_is_unsubscribed", "is_simple_group", "has_explicit_expiry", "may_come_back", "retention_changed"),
)

# A cleanup removes at its own time whatever was due before it.
EXPIRING: Final = f"""
WITH offsets AS (
  SELECT *,
    CASE WHEN expired AND (expires_at IS NULL OR expires_at < as_of) THEN as_of ELSE expires_at END AS goes_at,
    CASE WHEN expired OR expires_at IS NOT NULL THEN NULL
      WHEN blocked_by IS NULL THEN '{NEVER_OLD_ENOUGH}'
      ELSE {_case("blocked_by", OFFSET_STAYS_BECAUSE)} END AS never_because
  FROM offset_expirations
)
SELECT cluster, CAST(goes_at AS DATE) AS day, group_id, topic, 'offsets' AS what,
  COUNT(*) AS offsets, MIN(goes_at) AS first_at, MAX(goes_at) AS last_at, never_because,
  {", ".join(f"BOOL_OR({trap}) AS {trap}" for trap in _TRAPS)}
FROM offsets
GROUP BY cluster, CAST(goes_at AS DATE), group_id, topic, never_because
UNION ALL
SELECT cluster, CAST(removed_at AS DATE) AS day, group_id, NULL AS topic, 'group' AS what,
  CAST(NULL AS BIGINT) AS offsets, removed_at AS first_at, removed_at AS last_at,
  CASE WHEN removed OR removed_at IS NOT NULL THEN NULL
    WHEN blocked_by IS NULL THEN '{NO_GROUP_IS_REMOVED}'
    ELSE {_case("blocked_by", GROUP_STAYS_BECAUSE)} END AS never_because,
  {", ".join(f"CAST(NULL AS BOOLEAN) AS {trap}" for trap in _TRAPS)}
FROM (
  SELECT cluster, group_id, removed, blocked_by,
    CASE WHEN removed AND (removed_at IS NULL OR removed_at < as_of) THEN as_of ELSE removed_at END AS removed_at
  FROM group_expirations
) g
""".strip()
"""What disappears on which day (NULL: never in its present state, for the reason in never_because): offsets by group and topic, and
the groups that become Dead (topic NULL)."""

_FILES: Final = (
    *("tombstone_causes", "rebalance_rate"),
    *("record_positions", "log_completeness", "counted_commits", "rewinds", "skips", "topic_readers", "stalled", "idle_groups"),
    "orphan_topics",
    *("assigned_never_committed", "commit_rate", "hot_committers", "group_lifetimes", "group_templates", "client_inventory"),
    *("protocol_readiness", "rebalance_storms", "open_transactions", "no_leader_epoch", "topic_recreated", "shared_group_id"),
    *("storage_by_group", "lag", "lag_history", "commit_notes", "cutover", "share_lag", "lag_by_group", "may_read"),
)
"""The views in the folder sql, one file each; a view stands after the views that it reads."""

VIEWS: Final[Mapping[str, str]] = {
    "offset_commits_resolved": OFFSET_COMMITS_RESOLVED,
    "expiring": EXPIRING,
    **{name: (files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip() for name in _FILES},
}
"""View -> the SELECT it stands for, over tables and views by their bare names. A view stands after the views that it reads."""


def in_spark(query: str) -> str:
    """Return the SELECT of a view as Spark reads it, which has another word for a row of each element of an array."""
    return re.sub(r"CROSS JOIN UNNEST\((.*?)\) AS (\w+) \((\w+)\)", r"LATERAL VIEW explode(\1) \2 AS \3", query)
