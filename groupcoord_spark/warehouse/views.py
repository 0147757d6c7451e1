"""Views over the tables, as SQL that Spark, DuckDB and Trino read, and their registration in a Spark session as of one night."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from groupcoord_spark.warehouse.reasons import GROUP_STAYS_BECAUSE, NEVER_OLD_ENOUGH, NO_GROUP_IS_REMOVED, OFFSET_STAYS_BECAUSE
from groupcoord_spark.warehouse.tables import OFFSET_COMMITS, RUNS, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from groupcoord_spark.warehouse.declaration import Table
    from groupcoord_spark.warehouse.read import Run, Warehouse

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
  CASE WHEN c.producer_id IS NULL THEN NULL WHEN t.result IS NULL THEN 'open' ELSE t.result END AS transaction_result,
  t.record_offset AS marker_offset,
  t.record_timestamp AS marker_timestamp
FROM offset_commits c
LEFT JOIN ended e ON e.marker IS NULL AND e.cluster = c.cluster AND e.offsets_partition = c.offsets_partition
  AND e.incarnation = c.incarnation AND e.record_offset = c.record_offset
LEFT JOIN transactions t ON t.cluster = c.cluster AND t.offsets_partition = c.offsets_partition
  AND t.incarnation = c.incarnation AND t.record_offset = e.end_offset
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

# One write of a coordinator gives all of its records one timestamp: that is how the records of one request or cleanup are known.
TOMBSTONE_CAUSES: Final = """
WITH retention AS (
  SELECT cluster, retention_ms, is_scala FROM (
    SELECT cluster, CAST(settings['offsets.retention.ms'] AS BIGINT) AS retention_ms, semantics = 'scala' AS is_scala,
      ROW_NUMBER() OVER (PARTITION BY cluster ORDER BY finished_at DESC) AS age
    FROM runs WHERE kind = 'night' OR (kind IS NULL AND settings['until'] IS NULL)
  ) r WHERE age = 1
),
commits AS (
  SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, topic, partition, key_version, is_tombstone,
    commit_timestamp, expire_timestamp
  FROM (
    SELECT *,
      MIN(CASE WHEN is_tombstone THEN record_offset END) OVER (
        PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
      ) AS next_tombstone
    FROM offset_commits_resolved
  ) c
  WHERE transaction_result IS NULL OR transaction_result <> 'aborted' OR marker_offset > next_tombstone
),
own AS (
  SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, key_type, is_tombstone,
    value_version, value_json
  FROM group_records WHERE key_type IN (2, 3, 11, 17)
),
placed AS (
  SELECT *,
    MAX(CASE WHEN NOT is_tombstone THEN record_offset END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS value_offset,
    MIN(CASE WHEN is_tombstone THEN record_timestamp END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id, topic, partition ORDER BY record_offset
      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    ) AS gone_at
  FROM commits
),
grouped AS (
  SELECT cluster, offsets_partition, incarnation, record_offset, is_own,
    MAX(CASE WHEN is_own THEN record_offset END) OVER (
      PARTITION BY cluster, offsets_partition, incarnation, group_id ORDER BY record_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS state_offset
  FROM (
    SELECT cluster, offsets_partition, incarnation, record_offset, group_id, TRUE AS is_own FROM own
    UNION ALL
    SELECT cluster, offsets_partition, incarnation, record_offset, group_id, FALSE AS is_own FROM commits WHERE is_tombstone
  ) r
),
removals AS (
  SELECT cluster, offsets_partition, incarnation, group_id, record_timestamp,
    BOOL_OR(is_tombstone) AS group_removed, BOOL_OR(is_tombstone) AND BOOL_OR(NOT is_tombstone) AS group_converted
  FROM own GROUP BY cluster, offsets_partition, incarnation, group_id, record_timestamp
),
dated AS (
  SELECT t.cluster, t.offsets_partition, t.incarnation, t.record_offset, t.record_timestamp,
    t.group_id, t.topic, t.partition, t.key_version,
    v.record_offset AS value_offset, v.commit_timestamp, v.expire_timestamp,
    CASE WHEN g.key_type = 2 AND NOT g.is_tombstone AND g.value_version >= 2 AND g.value_json LIKE '%"members":[]%'
        AND g.value_json NOT LIKE '%"protocolType":""%'
      THEN g.record_timestamp ELSE v.commit_timestamp END AS base_timestamp,
    CASE WHEN g.is_tombstone IS NULL OR g.is_tombstone THEN TRUE ELSE FALSE END AS never_had_members
  FROM placed t
  LEFT JOIN commits v ON v.cluster = t.cluster AND v.offsets_partition = t.offsets_partition AND v.incarnation = t.incarnation
    AND v.record_offset = t.value_offset
  LEFT JOIN grouped s ON NOT s.is_own AND s.cluster = t.cluster AND s.offsets_partition = t.offsets_partition
    AND s.incarnation = t.incarnation AND s.record_offset = t.record_offset
  LEFT JOIN own g ON g.cluster = t.cluster AND g.offsets_partition = t.offsets_partition AND g.incarnation = t.incarnation
    AND g.record_offset = s.state_offset
  WHERE t.is_tombstone
),
due AS (
  SELECT d.*, COALESCE(r.is_scala, FALSE) AS is_scala,
    COALESCE(d.expire_timestamp, d.base_timestamp + INTERVAL '1' SECOND * CAST(r.retention_ms / 1000 AS BIGINT)) AS due_at
  FROM dated d LEFT JOIN retention r ON r.cluster = d.cluster
),
lives AS (
  SELECT cluster, offsets_partition, incarnation, topic, group_id, partition, MIN(record_timestamp) AS born_at, gone_at
  FROM placed WHERE NOT is_tombstone
  GROUP BY cluster, offsets_partition, incarnation, topic, group_id, partition, gone_at
),
emptied AS (
  -- Up to 3.9 (Scala) a group without members goes with its last offset, and without a tombstone if it never had members.
  SELECT d.cluster, d.offsets_partition, d.incarnation, d.group_id, d.record_timestamp
  FROM (
    SELECT DISTINCT cluster, offsets_partition, incarnation, group_id, record_timestamp FROM due WHERE is_scala AND never_had_members
  ) d
  LEFT JOIN lives l ON l.cluster = d.cluster AND l.offsets_partition = d.offsets_partition AND l.incarnation = d.incarnation
    AND l.group_id = d.group_id AND l.born_at <= d.record_timestamp AND (l.gone_at IS NULL OR l.gone_at > d.record_timestamp)
  WHERE l.group_id IS NULL AND d.record_timestamp IS NOT NULL
),
judged AS (
  SELECT d.*,
    d.record_timestamp >= d.due_at AS was_due,
    d.record_timestamp >= d.due_at AND d.record_timestamp < d.due_at + INTERVAL '1' HOUR AS was_just_due,
    COALESCE(w.group_removed, FALSE) AS group_removed,
    CASE WHEN d.is_scala AND w.group_removed OR m.group_id IS NOT NULL THEN TRUE ELSE FALSE END AS whole_group
  FROM due d
  LEFT JOIN emptied m ON m.cluster = d.cluster AND m.offsets_partition = d.offsets_partition AND m.incarnation = d.incarnation
    AND m.group_id = d.group_id AND m.record_timestamp = d.record_timestamp AND d.never_had_members
  LEFT JOIN removals w ON w.cluster = d.cluster AND w.offsets_partition = d.offsets_partition AND w.incarnation = d.incarnation
    AND w.group_id = d.group_id AND w.record_timestamp = d.record_timestamp
),
episodes AS (
  SELECT cluster, topic, episode, COUNT(DISTINCT group_id) AS groups_at_once,
    MIN(record_timestamp) AS began_at, MAX(record_timestamp) AS ended_at
  FROM (
    SELECT *, SUM(begins) OVER (PARTITION BY cluster, topic ORDER BY record_timestamp, offsets_partition, record_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS episode
    FROM (
      SELECT cluster, topic, group_id, offsets_partition, record_offset, record_timestamp,
        CASE WHEN record_timestamp <= LAG(record_timestamp) OVER (
          PARTITION BY cluster, topic ORDER BY record_timestamp, offsets_partition, record_offset
        ) + INTERVAL '1' SECOND THEN 0 ELSE 1 END AS begins
      FROM judged WHERE value_offset IS NOT NULL AND NOT was_just_due AND NOT (group_removed AND NOT was_due AND NOT whole_group)
    ) e
  ) e
  GROUP BY cluster, topic, episode
),
topics AS (
  SELECT e.cluster, e.topic, e.began_at, e.ended_at, e.groups_at_once,
    COUNT(CASE WHEN l.born_at < e.began_at AND (l.gone_at IS NULL OR l.gone_at > e.ended_at) THEN 1 END) AS offsets_spared,
    COUNT(CASE WHEN l.born_at > e.ended_at AND l.born_at < e.ended_at + INTERVAL '1' HOUR THEN 1 END) AS offsets_soon_after
  FROM episodes e LEFT JOIN lives l ON l.cluster = e.cluster AND l.topic = e.topic
  GROUP BY e.cluster, e.topic, e.began_at, e.ended_at, e.groups_at_once
),
of_offsets AS (
  SELECT j.*, t.groups_at_once, t.offsets_spared, t.offsets_soon_after,
    CASE WHEN j.value_offset IS NULL OR j.record_timestamp IS NULL OR j.due_at IS NULL THEN 'unknown'
      WHEN j.was_just_due THEN 'expiry'
      WHEN t.groups_at_once > 1 AND t.offsets_spared = 0
        AND (t.offsets_soon_after = 0 OR t.ended_at < t.began_at + INTERVAL '0.01' SECOND) THEN 'topic_deletion'
      WHEN j.was_due THEN 'expiry'
      WHEN j.group_removed OR j.whole_group THEN 'delete_groups'
      WHEN t.offsets_spared = 0 AND t.offsets_soon_after = 0 THEN 'topic_deletion'
      ELSE 'offset_delete' END AS cause
  FROM judged j
  LEFT JOIN topics t ON t.cluster = j.cluster AND t.topic = j.topic AND j.record_timestamp BETWEEN t.began_at AND t.ended_at
    AND NOT j.was_just_due
)
SELECT cluster, offsets_partition, incarnation, record_offset, record_timestamp, group_id, topic, partition, key_version AS key_type,
  cause, value_offset, commit_timestamp, expire_timestamp, base_timestamp, due_at,
  group_removed, groups_at_once, offsets_spared, offsets_soon_after
FROM of_offsets
UNION ALL
SELECT g.cluster, g.offsets_partition, g.incarnation, g.record_offset, g.record_timestamp, g.group_id, NULL, NULL, g.key_type,
  CASE WHEN g.record_timestamp IS NULL THEN 'unknown'
    WHEN w.group_converted THEN 'conversion'
    WHEN g.key_type = 11 OR BOOL_OR(o.cause = 'delete_groups') THEN 'delete_groups'
    WHEN BOOL_OR(o.cause = 'unknown') THEN 'unknown'
    ELSE 'expiry' END,
  NULL, NULL, NULL, NULL, NULL, TRUE, NULL, NULL, NULL
FROM own g
LEFT JOIN removals w ON w.cluster = g.cluster AND w.offsets_partition = g.offsets_partition AND w.incarnation = g.incarnation
  AND w.group_id = g.group_id AND w.record_timestamp = g.record_timestamp
LEFT JOIN of_offsets o ON o.cluster = g.cluster AND o.offsets_partition = g.offsets_partition AND o.incarnation = g.incarnation
  AND o.group_id = g.group_id AND o.record_timestamp = g.record_timestamp
WHERE g.is_tombstone
GROUP BY g.cluster, g.offsets_partition, g.incarnation, g.record_offset, g.record_timestamp, g.group_id, g.key_type, w.group_converted
""".strip()
"""Why each tombstone of an offset or a group was written, as far as the history tells, with the evidence beside it."""

# A new target assignment answers a group epoch that is counted already; only what moved is told by it alone.
REBALANCE_RATE: Final = """
SELECT cluster, group_id, CAST(record_timestamp AS DATE) AS day,
  SUM(CASE WHEN kind = 'assignment' THEN 0 ELSE 1 END) AS rebalances,
  SUM(CASE WHEN kind = 'assignment' THEN 0 ELSE COALESCE(joined_count, 0) END) AS members_joined,
  SUM(CASE WHEN kind = 'assignment' THEN 0 ELSE COALESCE(left_count, 0) END) AS members_left,
  SUM(COALESCE(partitions_moved, 0)) AS partitions_moved,
  SUM(CASE WHEN kind <> 'assignment' AND cause = 'member_joined' THEN 1 ELSE 0 END) AS by_joining,
  SUM(CASE WHEN kind <> 'assignment' AND cause IN ('member_left', 'member_expelled', 'member_gone') THEN 1 ELSE 0 END) AS by_leaving,
  SUM(CASE WHEN kind <> 'assignment' AND cause = 'member_restarted' THEN 1 ELSE 0 END) AS by_restarts,
  SUM(CASE WHEN kind <> 'assignment' AND cause IN ('subscription_changed', 'partitions_changed') THEN 1 ELSE 0 END) AS by_topics,
  SUM(CASE WHEN kind <> 'assignment' AND cause = 'unknown' THEN 1 ELSE 0 END) AS unknown,
  MIN(CASE WHEN kind <> 'assignment' THEN since_previous_ms END) AS shortest_ms
FROM rebalances
WHERE record_timestamp IS NOT NULL
GROUP BY cluster, group_id, CAST(record_timestamp AS DATE)
""".strip()
"""Rebalances of each group and day (of the session's time zone): how many, who came and went, by which causes, the least time between."""

_FILES: Final = (
    *("record_positions", "log_completeness", "counted_commits", "rewinds", "topic_readers", "stalled", "idle_groups", "orphan_topics"),
    *("assigned_never_committed", "commit_rate", "hot_committers", "group_lifetimes", "group_templates", "client_inventory"),
    *("protocol_readiness", "rebalance_storms", "open_transactions", "no_leader_epoch", "topic_recreated", "shared_group_id"),
    *("storage_by_group", "lag", "lag_history", "commit_notes", "cutover", "share_lag", "may_read"),
)
"""The views in the folder sql, one file each; a view stands after the views that it reads."""

VIEWS: Final[Mapping[str, str]] = {
    "offset_commits_resolved": OFFSET_COMMITS_RESOLVED,
    "expiring": EXPIRING,
    "tombstone_causes": TOMBSTONE_CAUSES,
    "rebalance_rate": REBALANCE_RATE,
    **{name: (files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip() for name in _FILES},
}
"""View -> the SELECT it stands for, over tables and views by their bare names. A view stands after the views that it reads."""


def register(
    spark: SparkSession, warehouse: Warehouse, *, cluster: str | None = None, at_ms: int | None = None, run: Run | None = None
) -> list[str]:
    """Creates temporary views of a Spark session for every table as of one night and for every view over them. Returns their names.

    A column that a table did not have yet at that night is NULL.

    Args:
        spark: a session with Delta on its class path.
        cluster: its rows only; None: the rows of every cluster, each as of its own newest night.
        at_ms: the night, as for ``Warehouse.read``.
        run: as of this run, which may be a look-back, and of its cluster; ``cluster`` and ``at_ms`` then have no meaning.

    Raises:
        WarehouseError: there is no such run.
    """
    names = [cluster] if cluster is not None else warehouse.clusters_with_nights()
    runs = [run] if run is not None else [warehouse.run(name, at_ms=at_ms) for name in names]
    for table in TABLES.values():
        if table is RUNS:
            frame = _with_all_columns(spark.read.format("delta").load(warehouse.location.table_uri(RUNS.name)), RUNS)
        else:
            # A night of a release that did not have the table yet has no rows of it.
            of_runs = [(shown.cluster, shown.table_versions[table.name]) for shown in runs if table.name in shown.table_versions]
            frame = _of_runs(spark, warehouse, table, of_runs)
        frame.createOrReplaceTempView(table.name)
    for name, query in VIEWS.items():
        spark.sql(query).createOrReplaceTempView(name)
    return [*TABLES, *VIEWS]


def _of_runs(spark: SparkSession, warehouse: Warehouse, table: Table, versions: list[tuple[str, int]]) -> DataFrame:
    source = warehouse.location.table_uri(table.name)
    if not versions:
        # In a warehouse of an older release the table may not exist yet.
        columns = ", ".join(f"{column.name} {column.sql_type}" for column in table.columns)
        return spark.createDataFrame([], columns)
    frames = [
        _with_all_columns(
            spark.read.format("delta").option("versionAsOf", version).load(source).where(f"cluster = {_sql_text(cluster)}"), table
        )
        for cluster, version in versions
    ]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _with_all_columns(frame: DataFrame, table: Table) -> DataFrame:
    """The frame with the columns that a later release added to the table; they are NULL."""
    stored = set(frame.columns)
    return frame.selectExpr(*(f"`{c.name}`" if c.name in stored else f"CAST(NULL AS {c.sql_type}) AS `{c.name}`" for c in table.columns))


def _sql_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
