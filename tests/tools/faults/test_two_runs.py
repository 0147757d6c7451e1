"""A small part of two_runs.py."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from groupcoord_spark.warehouse import open_warehouse
from tests.tools.faults.two_runs import SCENES, faults_of, race
from tests.warehouse.nights import few_tables

pytestmark = pytest.mark.process


@pytest.mark.parametrize("actors", SCENES, ids=", ".join)
@few_tables()
def test_of_runs_in_threads_the_tables_have_the_rows_of_those_that_finished(tmp_path: Path, actors: tuple[str, ...]) -> None:
    for seed in range(2):
        before = open_warehouse(str(tmp_path / "w")).runs().num_rows if seed else 0
        endings = race(tmp_path / "w", actors, "threads", random.Random(seed))
        assert faults_of(tmp_path / "w", actors, endings, before) == []
        assert "finished" in endings


def test_of_runs_in_processes_the_tables_have_the_rows_of_those_that_finished(tmp_path: Path) -> None:
    """Of all tables: the threads above have few."""
    endings = race(tmp_path / "w", SCENES[3], "processes", random.Random(1))
    assert faults_of(tmp_path / "w", SCENES[3], endings, 0) == []
    assert endings[-1] == "finished", "the run of the other cluster"
