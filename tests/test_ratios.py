"""What benchmarks/ratios.py, which `make ratios` runs, says of figures and of the logs that it measures."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from groupcoord_spark.log import plan_logs, read_segment

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def ratios(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("ratios")


def test_more_than_a_quarter_above_the_kept_figure_is_named(ratios: ModuleType) -> None:
    assert ratios.slower({"dump": 1.25, "list": 0.1}, {"dump": 1.0, "list": 0.2}) == []
    (sentence,) = ratios.slower({"dump": 1.26, "list": 0.1}, {"dump": 1.0, "list": 0.2})
    assert sentence == "dump takes 1.26 of the yardstick, 26% more than the 1.00 that are kept."


def test_what_has_no_figure_is_named(ratios: ModuleType) -> None:
    assert ratios.slower({"dump": 1.0}, {}) == ["dump has no figure in ratios.json: run with --write."]
    assert all(figure > 0 for figure in json.loads((BENCHMARKS / "ratios.json").read_text()).values())


def test_the_log_that_is_measured_has_the_records_it_says(ratios: ModuleType, tmp_path: Path) -> None:
    ratios.write_dump(tmp_path, 2 * ratios.PARTITIONS * ratios.RECORDS_OF_A_BATCH)
    segments = [segment for partition in plan_logs([str(tmp_path)]).partitions for segment in partition.segments]
    assert len(segments) == ratios.PARTITIONS
    records = sum(len(chunk.records) for segment in segments for chunk in read_segment(segment))
    assert records == 2 * ratios.PARTITIONS * ratios.RECORDS_OF_A_BATCH
