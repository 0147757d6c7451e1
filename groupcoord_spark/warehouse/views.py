"""The views of a warehouse in a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupcoord_spark.warehouse.sql import view_queries
from groupcoord_spark.warehouse.tables import TABLES
from groupcoord_spark.warehouse.view_texts import VIEWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from groupcoord_spark.warehouse.read import Run, Warehouse


def register(
    spark: SparkSession, warehouse: Warehouse, *, cluster: str | None = None, at_ms: int | None = None, run: Run | None = None
) -> list[str]:
    """Create temporary views of a Spark session for every table as of one run and for every view over them. Return their names.

    The session needs Delta on its class path (``delta_settings``). Other arguments and errors as for ``view_statements``.
    """
    for name, query in view_queries("spark", warehouse, cluster=cluster, at_ms=at_ms, run=run):
        # CREATE TEMPORARY VIEW would keep the text, and Spark would analyse it again in every view and query above it.
        spark.sql(query).createOrReplaceTempView(name)
    return [*TABLES, *VIEWS]
