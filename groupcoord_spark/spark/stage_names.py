"""Names of a run's jobs and stages in Spark's UI, its REST interface and its event log.

Spark describes all stages of a query by one text, the local property ``spark.job.description`` of the thread that runs the query. With
adaptive execution, Spark's default, each stage is a job of its own, and Spark reads the property for each job. The tasks of a stage
therefore send the name of the following stage in an accumulator. The driver receives it before Spark marks the stage as done, and changes
the property. Without adaptive execution all stages are one job with one description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

DESCRIPTION: Final = "spark.job.description"


class _Description(AccumulatorParam[str]):
    """Sets the description to each text that arrives at the driver. A worker, which has no properties, only keeps the text."""

    def __init__(self, properties: Any = None) -> None:
        self._properties = properties

    def __reduce__(self) -> tuple[type[_Description], tuple[()]]:
        return _Description, ()

    def zero(self, value: str) -> str:
        return ""

    def addInPlace(self, value1: str, value2: str) -> str:  # noqa: N802
        if value2 and self._properties is not None:
            self._properties.setProperty(DESCRIPTION, value2)
        return value2 or value1


class StageNames:
    """The names of the stages of one query. ``describe_stages`` makes it, and workers get it in their functions."""

    def __init__(self, run: str, next_stage: Accumulator[str] | None) -> None:
        self._run = run
        self._next_stage = next_stage

    def followed_by(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function of a stage, for mapInArrow. The following stage is called ``name``."""
        if self._next_stage is None:
            return function
        description, next_stage = description_of(self._run, name), self._next_stage

        @wraps(function)
        def announcing(*arguments: Any) -> Any:
            next_stage.add(description)
            return function(*arguments)

        return announcing


UNNAMED: Final = StageNames("", None)
"""The stages keep the name that their job has."""


def description_of(run: str, name: str) -> str:
    """Return the description of a stage: ``groupcoord nightly prod: replay``."""
    return f"groupcoord {run}: {name}"


@contextmanager
def describe_stages(spark: SparkSession, run: str, *names: str) -> Iterator[StageNames]:
    """Set the stage names of the one query that runs inside the block. ``followed_by`` maps functions to stages.

    run: what runs, for example ``nightly prod``. Afterwards the thread has its earlier description again.
    """
    is_adaptive = spark.conf.get("spark.sql.adaptive.enabled") == "true"
    with describe_job(spark, run, names[0] if is_adaptive else ", ".join(names)):
        # Of this thread: the object that Spark copies whenever the thread submits a stage.
        properties = spark.sparkContext._jsc.sc().getLocalProperties()
        yield StageNames(run, spark.sparkContext.accumulator("", _Description(properties)))


@contextmanager
def describe_job(spark: SparkSession, run: str, name: str) -> Iterator[None]:
    """Give all jobs and stages inside the block one name, and restore the thread's earlier description afterwards."""
    context = spark.sparkContext
    earlier_description = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, description_of(run, name))
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, earlier_description)  # type: ignore[arg-type]
