"""Views over the tables, as SQL that Spark, DuckDB and Trino read alike, and all of it registered in a Spark session as of one night."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from groupcoord_spark.warehouse.tables import OFFSET_COMMITS, RUNS, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from groupcoord_spark.warehouse.read import Warehouse

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

VIEWS: Final[Mapping[str, str]] = {"offset_commits_resolved": OFFSET_COMMITS_RESOLVED, "rebalance_rate": REBALANCE_RATE}
"""View -> the SELECT it stands for, over tables and views by their bare names."""


def register(spark: SparkSession, warehouse: Warehouse, *, cluster: str | None = None, at_ms: int | None = None) -> list[str]:
    """Every table as of one night, and every view over them, as temporary views of a Spark session; their names.

    cluster: its rows alone; None: those of every cluster, each as of its own newest run. at_ms: the night, as for ``Warehouse.read``.
    The session needs Delta on its class path. Raises WarehouseError when there is no such run.
    """
    runs = [warehouse.run(name, at_ms=at_ms) for name in ([cluster] if cluster is not None else warehouse.clusters())]
    for table in TABLES.values():
        if table is RUNS:
            frame = spark.read.format("delta").load(warehouse.location.table_uri(RUNS.name))
        else:
            # A night of a release that did not have the table yet has no rows of it.
            of_runs = [(run.cluster, run.table_versions[table.name]) for run in runs if table.name in run.table_versions]
            frame = _of_runs(spark, warehouse, table.name, of_runs)
        frame.createOrReplaceTempView(table.name)
    for name, query in VIEWS.items():
        spark.sql(query).createOrReplaceTempView(name)
    return [*TABLES, *VIEWS]


def _of_runs(spark: SparkSession, warehouse: Warehouse, table: str, versions: list[tuple[str, int]]) -> DataFrame:
    source = warehouse.location.table_uri(table)
    if not versions:
        return spark.read.format("delta").load(source).limit(0)
    frames = [
        spark.read.format("delta").option("versionAsOf", version).load(source).where(f"cluster = {_sql_text(cluster)}")
        for cluster, version in versions
    ]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _sql_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
