"""The stages of a night over a frame of records, without a warehouse: the frame of all that the replay gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.errors import PySparkAttributeError, PySparkException

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.pipeline.night import replay
from groupcoord_spark.pipeline.read.reader import ReadJob
from groupcoord_spark.pipeline.read.rows import FrameRows, packed_rows
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob
from groupcoord_spark.sources.rows import EVERY_ROW, SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE: Final = 4
MOST_TASKS: Final = 50
"""One for each offsets partition of Kafka's default."""


def replayed_frame(records: DataFrame, semantics: Semantics, *, until: Until | None = None, with_rebalances: bool = False) -> DataFrame:
    """A frame of REPLAYED: what a night would write about these records, but for history, counts of groups and rules of expiration.

    Raises UsageError as ``wanted_rows`` does.
    """
    rebalances = RebalanceJob("", "", {}, None)
    read = ReadJob("", None, "", "", semantics, False, {}, rebalances if with_rebalances else None, until=until)
    job = ReplayJob(semantics, None, 1, rebalances, read, SOURCE, writes_latest=False)
    packed = FrameRows(records).mapped(EVERY_ROW, packed_rows(None), SHUFFLED)
    return replay(packed, job, task_count(records.sparkSession))


def kept(frame: DataFrame) -> DataFrame:
    """The frame, which stays on the executors after its first use; as it is on Databricks' serverless compute, which keeps no frame."""
    try:
        return frame.persist(StorageLevel.MEMORY_AND_DISK)
    except PySparkException as error:
        if "NOT_SUPPORTED_WITH_SERVERLESS" not in str(error):
            raise
        return frame


def task_count(spark: SparkSession) -> int:
    """Number of tasks that work on offsets partitions.

    Spark's default of 200 would start 200 Python tasks for a handful of partitions: in a frame that is kept, adaptive execution joins none
    of them. A session of Spark Connect does not know the cores.
    """
    setting = spark.conf.get("spark.sql.shuffle.partitions") or ""
    most = int(setting) if setting.isdecimal() else MOST_TASKS  # Databricks has the setting "auto"
    try:
        return min(most, TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return min(most, MOST_TASKS)
