"""The stages of a run have names that Spark's UI, its REST interface and its event log show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from groupcoord_spark.spark.stage_names import DESCRIPTION, describe_job
from tests.conftest import SAMPLE_LOGS
from tests.running import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def names_of_stages(spark: SparkSession, *, after_job: int) -> list[str]:
    """Return the descriptions of the stages that ran, in their order, from the store behind Spark's UI. after_job: only of later jobs."""
    store = spark.sparkContext._jsc.sc().statusStore()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = store.jobsList(None)
    jobs = [found.apply(at) for at in range(found.size())]
    stages = {job.stageIds().apply(at) for job in jobs if job.jobId() > after_job for at in range(job.stageIds().size())}
    shown = [store.lastStageAttempt(stage) for stage in sorted(stages)]
    return [stage.description().get() for stage in shown if stage.numCompleteTasks()]


def newest_job(spark: SparkSession) -> int:
    spark.range(1).collect()
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup())


@pytest.mark.parametrize(
    ("is_adaptive", "names"),
    [("true", ("read", "replay", "write")), ("false", ("read, replay, write",) * 3)],
    ids=("a job for each stage", "one job"),
)
def test_each_stage_of_a_night_says_what_it_does(spark: SparkSession, tmp_path: Path, is_adaptive: str, names: tuple[str, ...]) -> None:
    before = newest_job(spark)
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", is_adaptive)
    try:
        run(spark, tmp_path / "w", SAMPLE_LOGS, cluster="prod")
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    assert names_of_stages(spark, after_job=before) == [f"groupcoord nightly prod: {name}" for name in names]


def test_a_user_keeps_the_description_of_the_notebook(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty(DESCRIPTION, "my notebook")
    try:
        with describe_job(spark, "nightly prod", "look at the rows"):
            before = newest_job(spark)
            spark.range(2).collect()
        assert context.getLocalProperty(DESCRIPTION) == "my notebook"
        assert names_of_stages(spark, after_job=before) == ["groupcoord nightly prod: look at the rows"]
    finally:
        context.setLocalProperty(DESCRIPTION, None)
