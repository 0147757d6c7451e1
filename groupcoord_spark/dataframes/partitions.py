"""The stages of a run over a frame of records, without a warehouse: the frame of all that the replay gives."""

from typing import Final

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.pipeline.night import replay
from groupcoord_spark.pipeline.read.reader import ReadJob
from groupcoord_spark.pipeline.read.rows import FrameRows, packed_rows
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob
from groupcoord_spark.sources.frames import readable, refuse_other_topics
from groupcoord_spark.sources.rows import EVERY_ROW, SOURCE
from groupcoord_spark.spark.session import require_package_on_workers

TASKS_PER_CORE: Final = 4
MOST_TASKS: Final = 50
"""One for each offsets partition of Kafka's default."""


def replayed_frame(records: DataFrame, semantics: Semantics, *, until: Until | None = None, with_rebalances: bool = False) -> DataFrame:
    """Return a frame of REPLAYED: the rows that a run writes for these records, without history, group counts and expiration rules.

    Raises UsageError as ``wanted_rows`` does, InputError where the rows are of other topics, and GroupcoordError where workers lack the
    package.
    """
    require_package_on_workers(readable(records).sparkSession)
    refuse_other_topics(records)
    rebalances = RebalanceJob("", "", {}, None)
    read = ReadJob("", None, "", "", semantics, False, {}, rebalances if with_rebalances else None, until=until)
    job = ReplayJob(semantics, None, 1, rebalances, read=read, source=SOURCE, writes_latest=False)
    packed = FrameRows(records).mapped(EVERY_ROW, packed_rows(None), SHUFFLED)
    return replay(packed, job, task_count(records.sparkSession))


def kept(frame: DataFrame) -> DataFrame:
    """Cache the frame on the executors, except on Databricks serverless compute, which caches no frame."""
    try:
        return frame.persist(StorageLevel.MEMORY_AND_DISK)
    except PySparkException as error:
        if "NOT_SUPPORTED_WITH_SERVERLESS" not in str(error):
            raise
        return frame


def task_count(spark: SparkSession) -> int:
    """Return the number of tasks that work on offsets partitions.

    Spark's default of 200 would start 200 Python tasks for a handful of partitions: in a frame that is kept, adaptive execution joins none
    of them. A session of Spark Connect does not know the cores.
    """
    setting = spark.conf.get("spark.sql.shuffle.partitions") or ""
    most = int(setting) if setting.isdecimal() else MOST_TASKS  # Databricks has the setting "auto"
    cores = _core_count(spark)
    return min(most, MOST_TASKS if cores is None else TASKS_PER_CORE * cores)


def _core_count(spark: SparkSession) -> int | None:
    """Return the number of cores, None in a session of Spark Connect."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return None


def in_few_tasks(frame: DataFrame) -> DataFrame:
    """Return a kept frame with no more partitions than the cluster has cores.

    A Python task costs 0.1 to 0.5 s of CPU, also one without rows, and the rows of a table are few next to the records.
    """
    cores = _core_count(frame.sparkSession)
    return frame if cores is None else frame.coalesce(cores)
