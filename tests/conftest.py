"""One Spark session and one warehouse of the sample for all tests: starting and making them costs more than most of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from groupcoord_spark.pipeline.session import session
from tests.running import SAMPLE_LOGS, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a local run gets, on two cores."""
    started = session(settings={"spark.master": "local[2]"})
    yield started
    started.stop()


@pytest.fixture(scope="session")
def sample_warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse that ``make nightly`` makes. To be read only."""
    place = tmp_path_factory.mktemp("sample") / "warehouse"
    as_of = datetime(2026, 11, 21, 8, tzinfo=UTC)
    run(spark, place, SAMPLE_LOGS, cluster="sample", as_of_ms=int(as_of.timestamp()) * 1000)
    return place
