"""The garbage collector of a worker is as it was after a replay: Spark hands the same worker to a user's own functions."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.pipeline.expiration import ExpirationJob
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob, partition_replay
from tests.conftest import SAMPLE_LOGS
from tests.running import run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(params=[True, False], ids=["on", "off"])
def was_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the collector is on before the replay."""
    is_on = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if is_on else gc.disable)()


def replayed(tmp_path: Path, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    job = ReplayJob(JAVA, ExpirationJob(1, 1, JAVA), 1, RebalanceJob(str(tmp_path), "c", {}, None))
    return partition_replay(job)(("c", 0), frames)


def test_collector_is_as_it_was_after_a_replay(tmp_path: Path, was_on: bool) -> None:
    frames = replayed(tmp_path, iter([]))
    next(frames)
    assert not gc.isenabled()
    list(frames)
    assert gc.isenabled() == was_on


def test_collector_is_as_it_was_after_a_replay_that_is_not_read_to_its_end(tmp_path: Path, was_on: bool) -> None:
    frames = replayed(tmp_path, iter([]))
    next(frames)
    frames.close()  # type: ignore[attr-defined]
    assert gc.isenabled() == was_on


def test_collector_is_as_it_was_after_a_replay_that_fails(tmp_path: Path, was_on: bool) -> None:
    def failing() -> Iterator[pd.DataFrame]:
        assert not gc.isenabled()
        raise OSError
        yield

    with pytest.raises(OSError):
        next(replayed(tmp_path, failing()))
    assert gc.isenabled() == was_on


def test_collector_of_every_worker_is_on_after_a_night(spark: SparkSession, tmp_path: Path) -> None:
    def is_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"is_on": [gc.isenabled()]})

    run(spark, tmp_path / "w", SAMPLE_LOGS)
    rows = spark.range(0, 8, 1, 8).mapInArrow(is_on, "is_on boolean").collect()
    assert [row.is_on for row in rows] == [True] * 8
