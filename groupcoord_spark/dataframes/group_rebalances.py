"""``rebalances``: how the groups rebalanced, as the frame of the nightly's table of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupcoord_spark.coordinator.semantics import JAVA, Semantics
from groupcoord_spark.dataframes.partitions import replayed_frame
from groupcoord_spark.dataframes.rows_of_tables import frame_of
from groupcoord_spark.dataframes.state import named_semantics
from groupcoord_spark.pipeline.rebalances import REBALANCES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rebalances(records: DataFrame, *, semantics: Semantics | str = JAVA) -> DataFrame:
    """One row for each new generation of a classic group, and for each new group epoch and target assignment of the others.

    In:  raw records, or what ``decode`` gave of them: all, or those of some groups.
    Out: the columns of the table ``rebalances``; incarnation is 0.
    Raises UsageError for a frame without the columns that are needed, and for unknown ``semantics``.
    """
    return frame_of(replayed_frame(records, named_semantics(semantics), with_rebalances=True), REBALANCES)
